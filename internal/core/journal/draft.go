package journal

import (
	"fmt"
	"math"

	"go.etcd.io/raft/v3/raftpb"
)

// change is an encoded [Write]: what the files hold of it.
type change struct {
	snapshot  *snapshotChange
	entries   []entryChange
	hard      *hardChange
	compact   *snapshotChange
	clusterID uint64
}

// snapshotChange has the position of a snapshot and its encoding.
type snapshotChange struct {
	at      Position
	payload []byte
}

// entryChange has the position of an entry and its encoding.
type entryChange struct {
	at      Position
	payload []byte
}

type hardChange struct{ term, vote, commit uint64 }

// indexMax is far above every index that a log can reach, and leaves room to count beyond it.
const indexMax = math.MaxUint64 >> 1

// prepare encodes w. It refuses what cannot be stored at all.
func prepare(w *Write) (c change, err error) {
	c.clusterID = w.ClusterID
	if c.snapshot, err = prepareSnapshot(w.Snapshot); err != nil {
		return change{}, err
	}
	for _, e := range w.Entries {
		switch {
		case e.GetType() < raftpb.EntryNormal || e.GetType() > raftpb.EntryConfChangeV2:
			return change{}, fmt.Errorf("log entry %d has the unknown type %d", e.GetIndex(), e.GetType())
		case len(e.GetData()) > EntryDataBytesMax:
			return change{}, &LimitError{What: fmt.Sprintf("log entry %d", e.GetIndex()), Size: len(e.GetData()), Max: EntryDataBytesMax}
		}
		c.entries = append(c.entries, entryChange{Position{e.GetIndex(), e.GetTerm()}, EncodeEntry(e)})
	}
	if h := w.HardState; h != nil {
		c.hard = &hardChange{h.GetTerm(), h.GetVote(), h.GetCommit()}
	}
	c.compact, err = prepareSnapshot(w.Compact)
	return c, err
}

func prepareAll(writes []Write) (changes []change, err error) {
	for i := range writes {
		c, err := prepare(&writes[i])
		if err != nil {
			return nil, err
		}
		changes = append(changes, c)
	}
	return changes, nil
}

// prepareSnapshot returns nil for a snapshot at index 0.
func prepareSnapshot(s *raftpb.Snapshot) (*snapshotChange, error) {
	at := SnapshotPosition(s)
	if at.Index == 0 {
		return nil, nil
	}
	payload, err := EncodeSnapshot(s)
	return &snapshotChange{at, payload}, err
}

// draft is the data of a directory with changes that are not durable yet.
type draft struct {
	table    *table
	identity Identity
	state    State
}

func (d *draft) applyAll(changes []change) error {
	for i := range changes {
		if err := d.apply(&changes[i]); err != nil {
			return err
		}
	}
	return nil
}

// apply makes the changes of c in the order that [Write] promises.
func (d *draft) apply(c *change) error {
	if err := d.receive(c.snapshot); err != nil {
		return err
	}
	if err := d.append(c.entries); err != nil {
		return err
	}
	if c.hard != nil {
		d.setHardState(*c.hard)
	}
	if err := d.compact(c.compact); err != nil {
		return err
	}
	if d.state.Commit > d.state.Last.Index {
		return fmt.Errorf("commit %d is beyond the end of the log at %d", d.state.Commit, d.state.Last.Index)
	}
	return d.name(c.clusterID)
}

// seal completes the state; number is that of the record.
func (d *draft) seal(number uint64) {
	d.state.Record = number
	d.state.IdentitySum = sum(sumIdentity, 0, EncodeIdentity(d.identity))
}

// receive replaces the whole log by the leader's snapshot.
func (d *draft) receive(s *snapshotChange) error {
	switch {
	case s == nil:
		return nil
	case s.at.Index <= d.state.Snapshot.Index:
		return fmt.Errorf("received snapshot %d is not above the stored one at %d", s.at.Index, d.state.Snapshot.Index)
	case s.at.Index > indexMax:
		return fmt.Errorf("snapshot %d is beyond the last index %d", s.at.Index, uint64(indexMax))
	}
	clear(d.table.log)
	d.state.Last, d.state.LogSum = s.at, 0
	d.putSnapshot(s)
	return nil
}

// putSnapshot stores the snapshot and lifts the commit index to it: raft panics
// on a hard state that commits less than the snapshot holds.
func (d *draft) putSnapshot(s *snapshotChange) {
	d.state.Snapshot = s.at
	if !d.state.HasHard {
		d.state.HasHard, d.state.Term = true, s.at.Term
	}
	d.state.Commit = max(d.state.Commit, s.at.Index)
	d.state.SnapshotSum = sum(sumSnapshot, 0, s.payload)
	d.table.snapshot = s.payload
}

// append replaces the log from the first entry's index on.
func (d *draft) append(entries []entryChange) error {
	for len(entries) > 0 && entries[0].at.Index <= d.state.Snapshot.Index {
		entries = entries[1:]
	}
	if len(entries) == 0 {
		return nil
	}
	previous, err := d.before(entries[0].at.Index)
	if err != nil {
		return err
	}
	end := d.state.Last.Index
	for _, e := range entries {
		if err := d.putEntry(e, previous); err != nil {
			return err
		}
		previous = e.at
	}
	d.state.Last = previous
	d.drop(previous.Index+1, end)
	return nil
}

// before returns the position before index, which must be in the log.
func (d *draft) before(index uint64) (Position, error) {
	if index > d.state.Last.Index+1 {
		return Position{}, fmt.Errorf("log entry %d would leave a gap after %d", index, d.state.Last.Index)
	}
	term, err := d.term(index - 1)
	return Position{index - 1, term}, err
}

// term returns the term of an index that the log or the snapshot holds.
func (d *draft) term(index uint64) (uint64, error) {
	switch index {
	case d.state.Last.Index:
		return d.state.Last.Term, nil
	case d.state.Snapshot.Index:
		return d.state.Snapshot.Term, nil
	}
	e, err := DecodeEntry(index, d.table.log[index])
	if err != nil {
		return 0, fmt.Errorf("log entry %d: %w", index, err)
	}
	return e.GetTerm(), nil
}

func (d *draft) putEntry(e entryChange, previous Position) error {
	switch {
	case e.at.Index != previous.Index+1:
		return fmt.Errorf("log entry %d does not follow %d", e.at.Index, previous.Index)
	case e.at.Term < previous.Term:
		return fmt.Errorf("log entry %d has term %d, below the term %d before it", e.at.Index, e.at.Term, previous.Term)
	case e.at.Index > indexMax:
		return fmt.Errorf("log entry %d is beyond the last index %d", e.at.Index, uint64(indexMax))
	}
	d.drop(e.at.Index, e.at.Index)
	d.state.LogSum ^= sum(sumEntry, e.at.Index, e.payload)
	d.table.log[e.at.Index] = e.payload
	return nil
}

// drop deletes the entries from first to last.
func (d *draft) drop(first, last uint64) {
	for i := first; i <= last; i++ {
		if payload, ok := d.table.log[i]; ok {
			d.state.LogSum ^= sum(sumEntry, i, payload)
			delete(d.table.log, i)
		}
	}
}

func (d *draft) setHardState(h hardChange) {
	d.state.HasHard = true
	d.state.Term, d.state.Vote = h.term, h.vote
	d.state.Commit = max(h.commit, d.state.Snapshot.Index)
}

// compact replaces the entries up to the snapshot's index by the snapshot.
func (d *draft) compact(s *snapshotChange) error {
	switch {
	case s == nil || s.at.Index <= d.state.Snapshot.Index:
		return nil
	case s.at.Index > d.state.Last.Index:
		return fmt.Errorf("snapshot %d is beyond the end of the log at %d", s.at.Index, d.state.Last.Index)
	}
	term, err := d.term(s.at.Index)
	if err != nil {
		return err
	}
	if term != s.at.Term {
		return fmt.Errorf("snapshot %d has term %d, and the log has term %d there", s.at.Index, s.at.Term, term)
	}
	d.drop(d.state.Snapshot.Index+1, s.at.Index)
	d.putSnapshot(s)
	return nil
}

// name sets the cluster's ID, which never changes after that (I6).
func (d *draft) name(clusterID uint64) error {
	if clusterID == 0 || clusterID == d.identity.ClusterID {
		return nil
	}
	if d.identity.ClusterID != 0 {
		return fmt.Errorf("the data belongs to cluster %016x, not %016x", d.identity.ClusterID, clusterID)
	}
	d.identity.ClusterID = clusterID
	return nil
}
