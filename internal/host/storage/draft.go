package storage

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
	at      position
	payload []byte
}

// entryChange has the position of an entry and its encoding.
type entryChange struct {
	at      position
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
		name := fmt.Sprintf("log entry %d", e.GetIndex())
		switch {
		case e.GetType() < raftpb.EntryNormal || e.GetType() > raftpb.EntryConfChangeV2:
			return change{}, fmt.Errorf("%s has the unknown type %d", name, e.GetType())
		case len(e.GetData()) > EntryDataBytesMax:
			return change{}, &LimitError{What: name, Size: len(e.GetData()), Max: EntryDataBytesMax}
		}
		c.entries = append(c.entries, entryChange{position{e.GetIndex(), e.GetTerm()}, encodeEntry(e)})
	}
	if h := w.HardState; h != nil {
		c.hard = &hardChange{h.GetTerm(), h.GetVote(), h.GetCommit()}
	}
	c.compact, err = prepareSnapshot(w.Compact)
	return c, err
}

// prepareAll encodes the writes, and returns the highest format that they ask for.
func prepareAll(writes []Write) (changes []change, format uint32, err error) {
	for i := range writes {
		c, err := prepare(&writes[i])
		if err != nil {
			return nil, 0, err
		}
		changes, format = append(changes, c), max(format, writes[i].Format)
	}
	return changes, format, nil
}

// prepareSnapshot returns nil for a snapshot at index 0.
func prepareSnapshot(s *raftpb.Snapshot) (*snapshotChange, error) {
	at := snapshotPosition(s)
	if at.index == 0 {
		return nil, nil
	}
	payload, err := encodeSnapshot(s)
	return &snapshotChange{at, payload}, err
}

// table is where the log and the snapshot of a data directory are kept, in the form of
// encodeRecord.
type table interface {
	// entry returns the record of a log entry, nil if there is none.
	entry(index uint64) []byte
	putEntry(index uint64, record []byte) error
	deleteEntry(index uint64) error
	// clearLog deletes all entries.
	clearLog() error
	putSnapshot(record []byte) error
}

// draft is the data of a directory with changes that are not durable yet. Both formats apply
// changes by it, so they refuse the same ones, with the same results.
type draft struct {
	table    table
	identity Identity
	state    state
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
	if d.state.commit > d.state.last.index {
		return fmt.Errorf("commit %d is beyond the end of the log at %d", d.state.commit, d.state.last.index)
	}
	return d.name(c.clusterID)
}

// seal completes the state: number is that of the transaction or of the record in the journal.
func (d *draft) seal(number uint64) {
	d.state.transaction = number
	d.state.identitySum = recordSum(encodeRecord(bucketMeta, []byte(keyIdentity), encodeIdentity(d.identity)))
}

// receive replaces the whole log by the leader's snapshot.
func (d *draft) receive(s *snapshotChange) error {
	switch {
	case s == nil:
		return nil
	case s.at.index <= d.state.snapshot.index:
		return fmt.Errorf("received snapshot %d is not above the stored one at %d", s.at.index, d.state.snapshot.index)
	case s.at.index > indexMax:
		return fmt.Errorf("snapshot %d is beyond the last index %d", s.at.index, uint64(indexMax))
	}
	if err := d.table.clearLog(); err != nil {
		return err
	}
	d.state.last, d.state.logSum = s.at, 0
	return d.putSnapshot(s)
}

// putSnapshot stores the snapshot and lifts the commit index to it: raft panics
// on a hard state that commits less than the snapshot holds.
func (d *draft) putSnapshot(s *snapshotChange) error {
	d.state.snapshot = s.at
	if !d.state.hasHard {
		d.state.hasHard, d.state.term = true, s.at.term
	}
	d.state.commit = max(d.state.commit, s.at.index)
	record := encodeRecord(bucketMeta, []byte(keySnapshot), s.payload)
	d.state.snapshotSum = recordSum(record)
	return d.table.putSnapshot(record)
}

// append replaces the log from the first entry's index on.
func (d *draft) append(entries []entryChange) error {
	for len(entries) > 0 && entries[0].at.index <= d.state.snapshot.index {
		entries = entries[1:]
	}
	if len(entries) == 0 {
		return nil
	}
	previous, err := d.before(entries[0].at.index)
	if err != nil {
		return err
	}
	end := d.state.last.index
	for _, e := range entries {
		if err := d.putEntry(e, previous); err != nil {
			return err
		}
		previous = e.at
	}
	d.state.last = previous
	return d.drop(previous.index+1, end)
}

// before returns the position before index, which must be in the log.
func (d *draft) before(index uint64) (position, error) {
	if index > d.state.last.index+1 {
		return position{}, fmt.Errorf("log entry %d would leave a gap after %d", index, d.state.last.index)
	}
	term, err := d.term(index - 1)
	return position{index - 1, term}, err
}

// term returns the term of an index that the log or the snapshot holds.
func (d *draft) term(index uint64) (uint64, error) {
	switch index {
	case d.state.last.index:
		return d.state.last.term, nil
	case d.state.snapshot.index:
		return d.state.snapshot.term, nil
	}
	payload, err := decodeRecord(bucketLog, logKey(index), d.table.entry(index))
	if err != nil {
		return 0, fmt.Errorf("read log entry %d: %w", index, err)
	}
	e, err := decodeEntry(index, payload)
	return e.GetTerm(), err
}

func (d *draft) putEntry(e entryChange, previous position) error {
	switch {
	case e.at.index != previous.index+1:
		return fmt.Errorf("log entry %d does not follow %d", e.at.index, previous.index)
	case e.at.term < previous.term:
		return fmt.Errorf("log entry %d has term %d, below the term %d before it", e.at.index, e.at.term, previous.term)
	case e.at.index > indexMax:
		return fmt.Errorf("log entry %d is beyond the last index %d", e.at.index, uint64(indexMax))
	}
	record := encodeRecord(bucketLog, logKey(e.at.index), e.payload)
	d.state.logSum ^= recordSum(d.table.entry(e.at.index)) ^ recordSum(record)
	return d.table.putEntry(e.at.index, record)
}

// drop deletes the entries from first to last.
func (d *draft) drop(first, last uint64) error {
	for i := first; i <= last; i++ {
		d.state.logSum ^= recordSum(d.table.entry(i))
		if err := d.table.deleteEntry(i); err != nil {
			return err
		}
	}
	return nil
}

func (d *draft) setHardState(h hardChange) {
	d.state.hasHard = true
	d.state.term, d.state.vote = h.term, h.vote
	d.state.commit = max(h.commit, d.state.snapshot.index)
}

// compact replaces the entries up to the snapshot's index by the snapshot.
func (d *draft) compact(s *snapshotChange) error {
	switch {
	case s == nil || s.at.index <= d.state.snapshot.index:
		return nil
	case s.at.index > d.state.last.index:
		return fmt.Errorf("snapshot %d is beyond the end of the log at %d", s.at.index, d.state.last.index)
	}
	term, err := d.term(s.at.index)
	if err != nil {
		return err
	}
	if term != s.at.term {
		return fmt.Errorf("snapshot %d has term %d, and the log has term %d there", s.at.index, s.at.term, term)
	}
	if err := d.drop(d.state.snapshot.index+1, s.at.index); err != nil {
		return err
	}
	return d.putSnapshot(s)
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
