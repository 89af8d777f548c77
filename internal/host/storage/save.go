package storage

import (
	"bytes"
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
	// Format, if above the format of the data file, has this Save write a new file in it, which
	// versions that do not know the format refuse. There is no way back; 0 leaves the file as it
	// is. On systems without journals (see [FormatJournal]) it is ignored.
	Format uint32
}

// Save applies all writes in order, all or none of them. They are durable when Save returns nil:
// after one fdatasync in [FormatJournal], after two in [FormatBolt], and after two fsyncs if a
// new file was written. Without writes it does nothing.
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
	s.failed = s.commit(func() error { return s.write(writes) })
	return s.failed
}

// commit runs f, which makes changes durable and only then adopts them.
func (s *Store) commit(f func() error) error {
	err := guarded(f)
	if err != nil {
		_, s.panicked = errors.AsType[*panicError](err)
		return fmt.Errorf("storage: %s: %w: %w", s.path, ErrFailed, err)
	}
	return nil
}

// write applies the writes, and makes them durable together with the identity.
func (s *Store) write(writes []Write) error {
	if s.journal != nil {
		if err := s.hook(); err != nil {
			return err
		}
		return s.journal.Save(writes...)
	}
	changes, format, err := prepareAll(writes)
	switch {
	case err != nil:
		return err
	case format >= FormatJournal && journals:
		return s.convert(changes)
	}
	return s.commitBolt(changes)
}

// commitBolt applies the changes in a transaction of bbolt.
func (s *Store) commitBolt(changes []change) error {
	d := draft{identity: s.identity, state: s.state}
	err := s.db.Update(func(tx *bbolt.Tx) error {
		t, err := newBoltTable(tx)
		if err != nil {
			return err
		}
		d.table = t
		if err := d.applyAll(changes); err != nil {
			return err
		}
		if err := t.finish(&d); err != nil {
			return err
		}
		return s.hook()
	})
	if err == nil {
		s.identity, s.state = d.identity, d.state
	}
	return err
}

// convert replaces a file of bbolt by a journal with the changes.
func (s *Store) convert(changes []change) error {
	t := newMemoryTable()
	d := draft{identity: s.identity}
	if err := s.db.View(func(tx *bbolt.Tx) (err error) {
		if _, d.state, err = load(tx); err != nil {
			return err
		}
		t.snapshot = bytes.Clone(tx.Bucket([]byte(bucketMeta)).Get([]byte(keySnapshot)))
		return tx.Bucket([]byte(bucketLog)).ForEach(func(key, record []byte) error {
			return t.putEntry(logIndex(key), bytes.Clone(record))
		})
	}); err != nil {
		return err
	}
	if err := s.hook(); err != nil {
		return err
	}
	j, err := CreateJournal(s.journalOptions(), d, t, changes)
	if err != nil {
		return err
	}
	_ = s.release() // the former file is not needed any more
	s.db, s.file, s.journal = nil, nil, j
	return nil
}

// hook calls Options.BeforeCommit.
func (s *Store) hook() error {
	if s.beforeCommit == nil {
		return nil
	}
	return s.beforeCommit()
}

// boltTable is the table of a transaction of bbolt.
type boltTable struct {
	tx        *bbolt.Tx
	meta, log *bbolt.Bucket
}

func newBoltTable(tx *bbolt.Tx) (t *boltTable, err error) {
	t = &boltTable{tx: tx}
	if t.meta, err = tx.CreateBucketIfNotExists([]byte(bucketMeta)); err != nil {
		return nil, err
	}
	t.log, err = tx.CreateBucketIfNotExists([]byte(bucketLog))
	return t, err
}

func (t *boltTable) entry(index uint64) []byte { return t.log.Get(logKey(index)) }

func (t *boltTable) putEntry(index uint64, record []byte) error {
	return t.log.Put(logKey(index), record)
}

func (t *boltTable) deleteEntry(index uint64) error { return t.log.Delete(logKey(index)) }

func (t *boltTable) clearLog() (err error) {
	if err := t.tx.DeleteBucket([]byte(bucketLog)); err != nil {
		return err
	}
	t.log, err = t.tx.CreateBucket([]byte(bucketLog))
	return err
}

func (t *boltTable) putSnapshot(record []byte) error { return t.meta.Put([]byte(keySnapshot), record) }

// finish stores the small records. They are cheap, so every transaction writes all of them, the
// state last because it has the checksums of the others.
func (t *boltTable) finish(d *draft) error {
	d.seal(uint64(t.tx.ID()))
	return errors.Join(
		t.put(keyFormat, encodeFormat(FormatBolt)),
		t.put(keyIdentity, encodeIdentity(d.identity)),
		t.put(keyState, encodeState(d.state)),
	)
}

func (t *boltTable) put(key string, payload []byte) error {
	return t.meta.Put([]byte(key), encodeRecord(bucketMeta, []byte(key), payload))
}
