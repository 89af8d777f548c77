package storage

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"go.etcd.io/bbolt"

	"github.com/isotone/isotone/internal/core/journal"
)

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
	changes, format, err := journal.PrepareAll(writes)
	switch {
	case err != nil:
		return err
	case format >= FormatJournal && journals:
		return s.convert(changes)
	}
	return s.commitBolt(changes)
}

// commitBolt applies the changes in a transaction of bbolt.
func (s *Store) commitBolt(changes []journal.Change) error {
	d := journal.Draft{Identity: s.identity, State: s.state}
	err := s.db.Update(func(tx *bbolt.Tx) error {
		t, err := newBoltTable(tx)
		if err != nil {
			return err
		}
		d.Table = t
		if err := d.ApplyAll(changes); err != nil {
			return err
		}
		if err := t.finish(&d); err != nil {
			return err
		}
		return s.hook()
	})
	if err == nil {
		s.identity, s.state = d.Identity, d.State
	}
	return err
}

// convert replaces a file of bbolt by a journal with the changes.
func (s *Store) convert(changes []journal.Change) error {
	t := journal.NewMemoryTable()
	d := journal.Draft{Identity: s.identity}
	if err := s.db.View(func(tx *bbolt.Tx) (err error) {
		if _, d.State, err = load(tx); err != nil {
			return err
		}
		t.Snapshot = bytes.Clone(tx.Bucket([]byte(journal.BucketMeta)).Get([]byte(journal.KeySnapshot)))
		return tx.Bucket([]byte(journal.BucketLog)).ForEach(func(key, record []byte) error {
			return t.PutEntry(journal.LogIndex(key), bytes.Clone(record))
		})
	}); err != nil {
		return err
	}
	if err := s.hook(); err != nil {
		return err
	}
	j, err := journal.Create(s.journalOptions(), d, t, changes)
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
	if t.meta, err = tx.CreateBucketIfNotExists([]byte(journal.BucketMeta)); err != nil {
		return nil, err
	}
	t.log, err = tx.CreateBucketIfNotExists([]byte(journal.BucketLog))
	return t, err
}

func (t *boltTable) Entry(index uint64) []byte { return t.log.Get(journal.LogKey(index)) }

func (t *boltTable) PutEntry(index uint64, record []byte) error {
	return t.log.Put(journal.LogKey(index), record)
}

func (t *boltTable) DeleteEntry(index uint64) error { return t.log.Delete(journal.LogKey(index)) }

func (t *boltTable) ClearLog() (err error) {
	if err := t.tx.DeleteBucket([]byte(journal.BucketLog)); err != nil {
		return err
	}
	t.log, err = t.tx.CreateBucket([]byte(journal.BucketLog))
	return err
}

func (t *boltTable) PutSnapshot(record []byte) error {
	return t.meta.Put([]byte(journal.KeySnapshot), record)
}

// finish stores the small records. They are cheap, so every transaction writes all of them, the
// state last because it has the checksums of the others.
func (t *boltTable) finish(d *journal.Draft) error {
	d.Seal(uint64(t.tx.ID()))
	return errors.Join(
		t.put(journal.KeyFormat, journal.EncodeFormat(FormatBolt)),
		t.put(journal.KeyIdentity, journal.EncodeIdentity(d.Identity)),
		t.put(journal.KeyState, journal.EncodeState(d.State)),
	)
}

func (t *boltTable) put(key string, payload []byte) error {
	return t.meta.Put([]byte(key), journal.EncodeRecord(journal.BucketMeta, []byte(key), payload))
}
