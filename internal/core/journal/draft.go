package journal

import (
	"fmt"
	"math"

	"go.etcd.io/raft/v3/raftpb"
)

// Change is an encoded [Write]: what the files hold of it.
type Change struct {
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
func prepare(w *Write) (c Change, err error) {
	c.clusterID = w.ClusterID
	if c.snapshot, err = prepareSnapshot(w.Snapshot); err != nil {
		return Change{}, err
	}
	for _, e := range w.Entries {
		name := fmt.Sprintf("log entry %d", e.GetIndex())
		switch {
		case e.GetType() < raftpb.EntryNormal || e.GetType() > raftpb.EntryConfChangeV2:
			return Change{}, fmt.Errorf("%s has the unknown type %d", name, e.GetType())
		case len(e.GetData()) > EntryDataBytesMax:
			return Change{}, &LimitError{What: name, Size: len(e.GetData()), Max: EntryDataBytesMax}
		}
		c.entries = append(c.entries, entryChange{Position{e.GetIndex(), e.GetTerm()}, EncodeEntry(e)})
	}
	if h := w.HardState; h != nil {
		c.hard = &hardChange{h.GetTerm(), h.GetVote(), h.GetCommit()}
	}
	c.compact, err = prepareSnapshot(w.Compact)
	return c, err
}

// PrepareAll encodes the writes, and returns the highest format that they ask for.
func PrepareAll(writes []Write) (changes []Change, format uint32, err error) {
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
	at := SnapshotPosition(s)
	if at.Index == 0 {
		return nil, nil
	}
	payload, err := EncodeSnapshot(s)
	return &snapshotChange{at, payload}, err
}

// table is where the log and the snapshot of a data directory are kept, in the form of
// encodeRecord.
type table interface {
	// Entry returns the record of a log entry, nil if there is none.
	Entry(index uint64) []byte
	PutEntry(index uint64, record []byte) error
	DeleteEntry(index uint64) error
	// ClearLog deletes all entries.
	ClearLog() error
	PutSnapshot(record []byte) error
}

// Draft is the data of a directory with changes that are not durable yet. Both formats apply
// changes by it, so they refuse the same ones, with the same results.
type Draft struct {
	Table    table
	Identity Identity
	State    State
}

func (d *Draft) ApplyAll(changes []Change) error {
	for i := range changes {
		if err := d.apply(&changes[i]); err != nil {
			return err
		}
	}
	return nil
}

// apply makes the changes of c in the order that [Write] promises.
func (d *Draft) apply(c *Change) error {
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
	if d.State.Commit > d.State.Last.Index {
		return fmt.Errorf("commit %d is beyond the end of the log at %d", d.State.Commit, d.State.Last.Index)
	}
	return d.name(c.clusterID)
}

// Seal completes the state: number is that of the transaction or of the record in the journal.
func (d *Draft) Seal(number uint64) {
	d.State.Transaction = number
	d.State.IdentitySum = RecordSum(EncodeRecord(BucketMeta, []byte(KeyIdentity), EncodeIdentity(d.Identity)))
}

// receive replaces the whole log by the leader's snapshot.
func (d *Draft) receive(s *snapshotChange) error {
	switch {
	case s == nil:
		return nil
	case s.at.Index <= d.State.Snapshot.Index:
		return fmt.Errorf("received snapshot %d is not above the stored one at %d", s.at.Index, d.State.Snapshot.Index)
	case s.at.Index > indexMax:
		return fmt.Errorf("snapshot %d is beyond the last index %d", s.at.Index, uint64(indexMax))
	}
	if err := d.Table.ClearLog(); err != nil {
		return err
	}
	d.State.Last, d.State.LogSum = s.at, 0
	return d.putSnapshot(s)
}

// putSnapshot stores the snapshot and lifts the commit index to it: raft panics
// on a hard state that commits less than the snapshot holds.
func (d *Draft) putSnapshot(s *snapshotChange) error {
	d.State.Snapshot = s.at
	if !d.State.HasHard {
		d.State.HasHard, d.State.Term = true, s.at.Term
	}
	d.State.Commit = max(d.State.Commit, s.at.Index)
	record := EncodeRecord(BucketMeta, []byte(KeySnapshot), s.payload)
	d.State.SnapshotSum = RecordSum(record)
	return d.Table.PutSnapshot(record)
}

// append replaces the log from the first entry's index on.
func (d *Draft) append(entries []entryChange) error {
	for len(entries) > 0 && entries[0].at.Index <= d.State.Snapshot.Index {
		entries = entries[1:]
	}
	if len(entries) == 0 {
		return nil
	}
	previous, err := d.before(entries[0].at.Index)
	if err != nil {
		return err
	}
	end := d.State.Last.Index
	for _, e := range entries {
		if err := d.putEntry(e, previous); err != nil {
			return err
		}
		previous = e.at
	}
	d.State.Last = previous
	return d.drop(previous.Index+1, end)
}

// before returns the position before index, which must be in the log.
func (d *Draft) before(index uint64) (Position, error) {
	if index > d.State.Last.Index+1 {
		return Position{}, fmt.Errorf("log entry %d would leave a gap after %d", index, d.State.Last.Index)
	}
	term, err := d.term(index - 1)
	return Position{index - 1, term}, err
}

// term returns the term of an index that the log or the snapshot holds.
func (d *Draft) term(index uint64) (uint64, error) {
	switch index {
	case d.State.Last.Index:
		return d.State.Last.Term, nil
	case d.State.Snapshot.Index:
		return d.State.Snapshot.Term, nil
	}
	payload, err := DecodeRecord(BucketLog, LogKey(index), d.Table.Entry(index))
	if err != nil {
		return 0, fmt.Errorf("read log entry %d: %w", index, err)
	}
	e, err := DecodeEntry(index, payload)
	return e.GetTerm(), err
}

func (d *Draft) putEntry(e entryChange, previous Position) error {
	switch {
	case e.at.Index != previous.Index+1:
		return fmt.Errorf("log entry %d does not follow %d", e.at.Index, previous.Index)
	case e.at.Term < previous.Term:
		return fmt.Errorf("log entry %d has term %d, below the term %d before it", e.at.Index, e.at.Term, previous.Term)
	case e.at.Index > indexMax:
		return fmt.Errorf("log entry %d is beyond the last index %d", e.at.Index, uint64(indexMax))
	}
	record := EncodeRecord(BucketLog, LogKey(e.at.Index), e.payload)
	d.State.LogSum ^= RecordSum(d.Table.Entry(e.at.Index)) ^ RecordSum(record)
	return d.Table.PutEntry(e.at.Index, record)
}

// drop deletes the entries from first to last.
func (d *Draft) drop(first, last uint64) error {
	for i := first; i <= last; i++ {
		d.State.LogSum ^= RecordSum(d.Table.Entry(i))
		if err := d.Table.DeleteEntry(i); err != nil {
			return err
		}
	}
	return nil
}

func (d *Draft) setHardState(h hardChange) {
	d.State.HasHard = true
	d.State.Term, d.State.Vote = h.term, h.vote
	d.State.Commit = max(h.commit, d.State.Snapshot.Index)
}

// compact replaces the entries up to the snapshot's index by the snapshot.
func (d *Draft) compact(s *snapshotChange) error {
	switch {
	case s == nil || s.at.Index <= d.State.Snapshot.Index:
		return nil
	case s.at.Index > d.State.Last.Index:
		return fmt.Errorf("snapshot %d is beyond the end of the log at %d", s.at.Index, d.State.Last.Index)
	}
	term, err := d.term(s.at.Index)
	if err != nil {
		return err
	}
	if term != s.at.Term {
		return fmt.Errorf("snapshot %d has term %d, and the log has term %d there", s.at.Index, s.at.Term, term)
	}
	if err := d.drop(d.State.Snapshot.Index+1, s.at.Index); err != nil {
		return err
	}
	return d.putSnapshot(s)
}

// name sets the cluster's ID, which never changes after that (I6).
func (d *Draft) name(clusterID uint64) error {
	if clusterID == 0 || clusterID == d.Identity.ClusterID {
		return nil
	}
	if d.Identity.ClusterID != 0 {
		return fmt.Errorf("the data belongs to cluster %016x, not %016x", d.Identity.ClusterID, clusterID)
	}
	d.Identity.ClusterID = clusterID
	return nil
}
