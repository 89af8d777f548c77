package storage

import (
	"errors"
	"fmt"
	"os"

	"go.etcd.io/bbolt"
	"go.etcd.io/raft/v3/raftpb"
)

// Write is one change. Its parts take effect in the order Snapshot, Entries,
// HardState, Compact, ClusterID; the zero Write changes nothing.
//
// A write that raft never makes (a gap in the log, a commit beyond its end, a snapshot that
// goes back) is a defect of the caller. Save refuses it before writing anything, rather than
// leave a file that Open must refuse.
type Write struct {
	// HardState replaces the hard state; nil leaves it. The stored commit index is never below
	// the snapshot, even if that of HardState is.
	HardState *raftpb.HardState
	// Entries replace everything from the first one's index on. They are
	// contiguous. Those at or below the snapshot's index are left out.
	Entries []*raftpb.Entry
	// Snapshot was received from the leader. It replaces the whole log. Index 0 counts as nil,
	// as in raft.
	Snapshot *raftpb.Snapshot
	// Compact was made by this node. Entries up to its index are dropped. One at or below the
	// stored snapshot is late and is ignored.
	Compact *raftpb.Snapshot
	// ClusterID, if not zero, sets the cluster's ID for good.
	ClusterID uint64
}

// Save applies all writes in order, in one transaction, which is durable when
// Save returns nil (two fdatasyncs). Without writes it does nothing.
//
// Any error is final (I8): every later Save returns the same error, which matches [ErrFailed].
// Nothing of the failed call counts as saved, although the next Open may find it. The one
// exception is a Save after Close, whose error matches [os.ErrClosed].
func (s *Store) Save(writes ...Write) error {
	switch {
	case s.failed != nil:
		return s.failed
	case s.closed:
		return fmt.Errorf("storage: save: %w", os.ErrClosed)
	case len(writes) == 0:
		return nil
	}
	if err := s.commit(writes); err != nil {
		s.failed = err
	}
	return s.failed
}

// commit applies the writes and makes them durable together with the identity.
// Only then does it adopt the result.
func (s *Store) commit(writes []Write) error {
	d := draft{identity: s.identity, state: s.state}
	err := guarded(func() error {
		return s.db.Update(func(tx *bbolt.Tx) error {
			if err := d.begin(tx); err != nil {
				return err
			}
			for i := range writes {
				if err := d.apply(&writes[i]); err != nil {
					return err
				}
			}
			if err := d.finish(); err != nil || s.beforeCommit == nil {
				return err
			}
			return s.beforeCommit()
		})
	})
	if err != nil {
		_, s.panicked = errors.AsType[*panicError](err)
		return fmt.Errorf("storage: %s: %w: %w", s.path, ErrFailed, err)
	}
	s.identity, s.state = d.identity, d.state
	return nil
}

// draft is a transaction that is not committed yet.
type draft struct {
	tx        *bbolt.Tx
	meta, log *bbolt.Bucket
	identity  Identity
	state     state
}

func (d *draft) begin(tx *bbolt.Tx) (err error) {
	d.tx = tx
	if d.meta, err = tx.CreateBucketIfNotExists([]byte(bucketMeta)); err != nil {
		return err
	}
	d.log, err = tx.CreateBucketIfNotExists([]byte(bucketLog))
	return err
}

// apply makes the changes of w in the order that [Write] promises.
func (d *draft) apply(w *Write) error {
	if err := d.receive(w.Snapshot); err != nil {
		return err
	}
	if err := d.append(w.Entries); err != nil {
		return err
	}
	d.setHardState(w.HardState)
	if err := d.compact(w.Compact); err != nil {
		return err
	}
	if d.state.commit > d.state.last.index {
		return fmt.Errorf("commit %d is beyond the end of the log at %d", d.state.commit, d.state.last.index)
	}
	return d.name(w.ClusterID)
}

// finish stores the small records. They are cheap, so every transaction writes all of them, the
// state last because it has the checksums of the others.
func (d *draft) finish() (err error) {
	if _, err = d.put(keyFormat, encodeFormat(Format)); err != nil {
		return err
	}
	if d.state.identitySum, err = d.put(keyIdentity, encodeIdentity(d.identity)); err != nil {
		return err
	}
	d.state.transaction = uint64(d.tx.ID())
	_, err = d.put(keyState, encodeState(d.state))
	return err
}

// put stores a record and returns its checksum.
func (d *draft) put(key string, payload []byte) (sum uint64, err error) {
	record := encodeRecord(bucketMeta, []byte(key), payload)
	return recordSum(record), d.meta.Put([]byte(key), record)
}

// receive replaces the whole log by the leader's snapshot.
func (d *draft) receive(snapshot *raftpb.Snapshot) (err error) {
	at := snapshotPosition(snapshot)
	switch {
	case at.index == 0:
		return nil
	case at.index <= d.state.snapshot.index:
		return fmt.Errorf("received snapshot %d is not above the stored one at %d", at.index, d.state.snapshot.index)
	}
	if err := d.tx.DeleteBucket([]byte(bucketLog)); err != nil {
		return err
	}
	if d.log, err = d.tx.CreateBucket([]byte(bucketLog)); err != nil {
		return err
	}
	d.state.last, d.state.logSum = at, 0
	return d.putSnapshot(snapshot)
}

// putSnapshot stores the snapshot and lifts the commit index to it: raft panics
// on a hard state that commits less than the snapshot holds.
func (d *draft) putSnapshot(snapshot *raftpb.Snapshot) error {
	b, err := encodeSnapshot(snapshot)
	if err != nil {
		return err
	}
	d.state.snapshot = snapshotPosition(snapshot)
	if !d.state.hasHard {
		d.state.hasHard, d.state.term = true, d.state.snapshot.term
	}
	d.state.commit = max(d.state.commit, d.state.snapshot.index)
	d.state.snapshotSum, err = d.put(keySnapshot, b)
	return err
}

// append replaces the log from the first entry's index on.
func (d *draft) append(entries []*raftpb.Entry) error {
	for len(entries) > 0 && entries[0].GetIndex() <= d.state.snapshot.index {
		entries = entries[1:]
	}
	if len(entries) == 0 {
		return nil
	}
	previous, err := d.before(entries[0].GetIndex())
	if err != nil {
		return err
	}
	end := d.state.last.index
	for _, e := range entries {
		if err := d.putEntry(e, previous); err != nil {
			return err
		}
		previous = position{e.GetIndex(), e.GetTerm()}
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
	key := logKey(index)
	payload, err := decodeRecord(bucketLog, key, d.log.Get(key))
	if err != nil {
		return 0, fmt.Errorf("read log entry %d: %w", index, err)
	}
	e, err := decodeEntry(index, payload)
	return e.GetTerm(), err
}

func (d *draft) putEntry(e *raftpb.Entry, previous position) error {
	name := fmt.Sprintf("log entry %d", e.GetIndex())
	switch {
	case e.GetIndex() != previous.index+1:
		return fmt.Errorf("%s does not follow %d", name, previous.index)
	case e.GetTerm() < previous.term:
		return fmt.Errorf("%s has term %d, below the term %d before it", name, e.GetTerm(), previous.term)
	case e.GetType() < raftpb.EntryNormal || e.GetType() > raftpb.EntryConfChangeV2:
		return fmt.Errorf("%s has the unknown type %d", name, e.GetType())
	case len(e.GetData()) > EntryDataBytesMax:
		return &LimitError{What: name, Size: len(e.GetData()), Max: EntryDataBytesMax}
	}
	key := logKey(e.GetIndex())
	record := encodeRecord(bucketLog, key, encodeEntry(e))
	d.state.logSum ^= recordSum(d.log.Get(key)) ^ recordSum(record)
	return d.log.Put(key, record)
}

// drop deletes the entries from first to last.
func (d *draft) drop(first, last uint64) error {
	for i := first; i <= last; i++ {
		key := logKey(i)
		d.state.logSum ^= recordSum(d.log.Get(key))
		if err := d.log.Delete(key); err != nil {
			return err
		}
	}
	return nil
}

func (d *draft) setHardState(h *raftpb.HardState) {
	if h == nil {
		return
	}
	d.state.hasHard = true
	d.state.term, d.state.vote = h.GetTerm(), h.GetVote()
	d.state.commit = max(h.GetCommit(), d.state.snapshot.index)
}

// compact replaces the entries up to the snapshot's index by the snapshot.
func (d *draft) compact(snapshot *raftpb.Snapshot) error {
	at := snapshotPosition(snapshot)
	switch {
	case at.index <= d.state.snapshot.index:
		return nil
	case at.index > d.state.last.index:
		return fmt.Errorf("snapshot %d is beyond the end of the log at %d", at.index, d.state.last.index)
	}
	term, err := d.term(at.index)
	if err != nil {
		return err
	}
	if term != at.term {
		return fmt.Errorf("snapshot %d has term %d, and the log has term %d there", at.index, at.term, term)
	}
	if err := d.drop(d.state.snapshot.index+1, at.index); err != nil {
		return err
	}
	return d.putSnapshot(snapshot)
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
