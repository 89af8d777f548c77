package storage

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"

	"go.etcd.io/bbolt"
)

// spareSectors is how many sectors a new journal has beyond the state: 1 MiB, which a disk
// writes within some milliseconds, and some 2,000 Saves fill, in minutes. Tests make it smaller.
var spareSectors int64 = 1 << 20 / sectorBytes

// append writes a record and syncs it.
func (s *Store) append(payload []byte) error {
	j := s.journal
	info, err := j.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() != j.size() {
		return fmt.Errorf("its size has changed from %d to %d", j.size(), info.Size())
	}
	b := appendSectors(nil, j.salt, j.next, j.record+1, payload)
	if err := s.step("record written", func() error {
		_, err := j.file.WriteAt(b, markerBytes+j.next*sectorBytes)
		return err
	}); err != nil {
		return err
	}
	if err := s.step("record synced", func() error { return syncData(j.file) }); err != nil {
		return err
	}
	j.record++
	j.next += int64(len(b) / sectorBytes)
	return nil
}

// commitJournal appends the changes as one record, or writes a new file if there is no room.
func (s *Store) commitJournal(changes []change) error {
	j := s.journal
	d := draft{table: j.table, identity: s.identity, state: s.state}
	// A failure leaves some of the changes in the table, which is not used any more (I8).
	if err := d.applyAll(changes); err != nil {
		return err
	}
	if err := s.hook(); err != nil {
		return err
	}
	d.seal(j.record + 1)
	payload := encodeJournalRecord(&d, changes)
	if sectorsFor(len(payload)) > j.sectors-j.next {
		return s.replace(&d, j.table)
	}
	if err := s.append(payload); err != nil {
		return err
	}
	s.identity, s.state = d.identity, d.state
	return nil
}

// convert replaces a file of bbolt by a journal with the changes.
func (s *Store) convert(changes []change) error {
	t := newMemoryTable()
	d := draft{table: t, identity: s.identity}
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
	if err := d.applyAll(changes); err != nil {
		return err
	}
	if err := s.hook(); err != nil {
		return err
	}
	return s.replace(&d, t)
}

// replace writes a new journal with the state d and goes on in it. It syncs twice: the file, and
// the directory.
func (s *Store) replace(d *draft, t *memoryTable) error {
	d.seal(1)
	j := &journal{salt: rand.Uint64(), record: 1, table: t}
	content, err := j.encode(d)
	if err != nil {
		return err
	}
	if j.file, err = s.install(content); err != nil {
		return err
	}
	_ = s.release() // the former file is not needed any more
	s.db, s.file, s.journal = nil, j.file, j
	s.identity, s.state = d.identity, d.state
	return nil
}

// encode returns the content of a new file, and sets what it follows from that in j.
func (j *journal) encode(d *draft) ([]byte, error) {
	payload := encodeJournalRecord(d, j.table.whole(&d.state))
	if len(payload) > journalRecordBytesMax {
		return nil, &LimitError{What: "the state of the node", Size: len(payload), Max: journalRecordBytesMax}
	}
	j.next = 1 + sectorsFor(len(payload))
	j.sectors = j.next + spareSectors
	content := make([]byte, 0, j.size())
	content = append(append(content, marker()...), journalHead(j.salt, j.sectors)...)
	return appendSectors(content, j.salt, 1, 1, payload)[:j.size()], nil
}

// install writes a new data file beside the present one, syncs it, and exchanges their names. So
// the directory has one complete data file at any time. The former one becomes the spare file,
// which the next call overwrites: it has its blocks already, so a disk that others have filled
// does not stop a node. The empty sectors are written as well: a file system that allocates or
// initializes them later would have to sync more than the data of a Save then.
//
// The spare file may only be overwritten when the names are durable: until then it may be the
// data file after a power cut. See beginBoot.
func (s *Store) install(content []byte) (*os.File, error) {
	spare := s.path + spareSuffix
	if err := unlinkSame(spare, s.path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(spare, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, err
	}
	if err = s.fill(f, content); err == nil {
		err = s.putInPlace(f, spare)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// fill replaces the content of a file, and syncs it.
func (s *Store) fill(f *os.File, content []byte) error {
	if err := s.step("file written", func() error {
		if _, err := f.WriteAt(content, 0); err != nil {
			return err
		}
		return f.Truncate(int64(len(content)))
	}); err != nil {
		return err
	}
	return s.step("file synced", f.Sync)
}

// putInPlace makes f, which has the name spare, the data file.
func (s *Store) putInPlace(f *os.File, spare string) error {
	if locked, err := tryLock(f); err != nil || !locked {
		return cmp.Or(err, inUse(s.dir))
	}
	if err := s.step("file renamed", func() error { return exchange(spare, s.path) }); err != nil {
		return err
	}
	return s.syncNames()
}

// unlinkSame deletes the name spare if somebody has made it another name of the data file.
func unlinkSame(spare, path string) error {
	a, err := os.Stat(spare)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	b, err := os.Stat(path)
	if err != nil || !os.SameFile(a, b) {
		return err
	}
	return os.Remove(spare)
}
