package storage

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/isotone/isotone/internal/core/journal"
)

// Options are the arguments of [Open].
type Options struct {
	// Dir is the data directory. It is created if it does not exist.
	Dir string
	// NodeID is this node's ID, which must be the one in the directory.
	NodeID uint64
	// Incarnation is used only when the directory is created. It must be random, and not zero
	// then.
	Incarnation uint64
	// ClusterID is used only when the directory is created, for a node that joins a cluster; 0
	// otherwise.
	ClusterID uint64
	// BeforeCommit is a hook for tests, nil in production. It runs at the end of every
	// transaction, Open's included, before anything is written. An error counts as a failed
	// write (I8). It may sleep, to imitate a slow disk.
	BeforeCommit func() error

	// steps is for tests: it is called after each write, sync and rename of a journal. An error is
	// one of that step.
	steps func(step string) error
}

// Store is an open data directory. One goroutine at a time may use it.
type Store struct {
	dir, path    string
	beforeCommit func() error
	steps        func(string) error

	lock *os.File // held until Close
	file *os.File // the data file; owned by db once that is open
	// One of these is the format of the file; the other one is nil.
	db      *bbolt.DB
	journal *journal.Journal

	identity Identity
	state    journal.State
	failed   error // the first failure of Save; final (I8)
	panicked bool  // bbolt panicked, and may still hold its locks
	closed   bool
}

// Open opens the data directory, creates it if there is none, and returns what the last Save
// wrote. It counts the boot before it returns.
//
// Errors: [*CorruptError] if the data is damaged, [*IdentityError] if it belongs to another
// node, [*FormatError] if another version wrote it, [ErrInUse] if it is open already; any other
// is an error of the file system or a bad option. After an error nothing stays open.
func Open(o Options) (*Store, Recovered, error) {
	if o.Dir == "" || o.NodeID == 0 {
		return nil, Recovered{}, errors.New("storage: Dir and NodeID must be set")
	}
	if err := makeDir(o.Dir); err != nil {
		return nil, Recovered{}, err
	}
	lock, err := lockDir(o.Dir)
	if err != nil {
		return nil, Recovered{}, err
	}
	s := &Store{
		dir: o.Dir, path: filepath.Join(o.Dir, FileName),
		beforeCommit: o.BeforeCommit, steps: o.steps, lock: lock,
	}
	r, err := s.open(o)
	if err == nil {
		err = s.endFirst()
	}
	if err != nil {
		_ = s.Close()
		return nil, Recovered{}, err
	}
	return s, r, nil
}

// Identify returns whose data a directory holds, without counting a start, and whether it
// holds a log or a snapshot. The identity is zero if there is no directory, or if its
// creation was interrupted. Errors are those of [Open].
func Identify(dir string) (id Identity, hasState bool, err error) {
	r, err := Inspect(dir)
	return r.Identity, r.Snapshot != nil || len(r.Entries) > 0, err
}

// Inspect returns what a directory holds, without counting a start; see [Identify].
func Inspect(dir string) (r Recovered, err error) {
	if hasData, err := HasData(dir); err != nil || !hasData {
		return Recovered{}, err
	}
	d, err := OpenDirectory(dir)
	if err != nil {
		return Recovered{}, err
	}
	r, err = d.Read()
	return r, errors.Join(err, d.Close())
}

// open reads the file and commits the first transaction of this boot.
func (s *Store) open(o Options) (Recovered, error) {
	if err := makeFile(s.path); err != nil {
		return Recovered{}, err
	}
	before, err := os.Stat(s.path)
	if err != nil {
		return Recovered{}, err
	}
	r, err := s.read()
	if err != nil {
		return Recovered{}, err
	}
	if r.Fresh {
		return s.create(o)
	}
	if r.Identity.NodeID != o.NodeID {
		return Recovered{}, &IdentityError{Dir: s.dir, Have: r.Identity.NodeID, Want: o.NodeID}
	}
	s.identity.Boot++
	r.Identity = s.identity
	if err := s.commit(s.beginBoot); err != nil {
		return Recovered{}, err
	}
	// A start tells the node nothing of the cluster: see [Directory.Written].
	return r, os.Chtimes(s.path, time.Time{}, before.ModTime())
}

// beginBoot makes the new boot count durable.
func (s *Store) beginBoot() error {
	if s.journal == nil {
		return s.commitBolt(nil)
	}
	if err := s.hook(); err != nil {
		return err
	}
	return s.journal.Begin()
}

// read checks and maps the file and reads all of it, without changing it. A file without any
// committed transaction is fresh: its creation was interrupted, or is under way.
func (s *Store) read() (r Recovered, err error) {
	if s.file, err = os.OpenFile(s.path, os.O_RDWR, 0); err != nil {
		return Recovered{}, fmt.Errorf("storage: data file: %w", err)
	}
	info, err := s.file.Stat()
	if err != nil {
		return Recovered{}, fmt.Errorf("storage: data file: %w", err)
	}
	found, err := isJournal(s.file)
	switch {
	case err != nil:
		return Recovered{}, err
	case found:
		r, err = s.readJournal()
	default:
		r, err = s.readBolt(info.Size())
	}
	s.identity = r.Identity
	return r, s.located(err)
}

// readJournal reads a journal.
func (s *Store) readJournal() (r Recovered, err error) {
	if locked, err := awaitLock(s.file); err != nil || !locked {
		return Recovered{}, cmp.Or(err, inUse(s.dir))
	}
	s.journal, r, err = journal.Open(s.journalOptions(), &file{s.file, s, true})
	return r, err
}

// readBolt checks a bbolt file of the given size in bytes, opens and reads it.
func (s *Store) readBolt(size int64) (r Recovered, err error) {
	untouched, err := checkPages(s.file, size)
	if err != nil {
		return Recovered{}, err
	}
	err = guarded(func() error {
		if s.db, err = s.openBolt(); err != nil {
			return err
		}
		return s.db.View(func(tx *bbolt.Tx) error {
			if name, _ := tx.Cursor().First(); untouched && name == nil {
				r.Fresh = true
				return nil
			}
			r, s.state, err = load(tx)
			return err
		})
	})
	_, s.panicked = errors.AsType[*panicError](err)
	return r, err
}

// openBolt passes the open file to bbolt, so that bbolt reads the file that was checked.
func (s *Store) openBolt() (*bbolt.DB, error) {
	db, err := bbolt.Open(s.path, fileMode, &bbolt.Options{
		Timeout:      lockWait,
		NoStatistics: true,
		OpenFile:     func(string, int, os.FileMode) (*os.File, error) { return s.file, nil },
	})
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return nil, inUse(s.dir)
	case err != nil:
		return nil, fmt.Errorf("storage: open %s: %w", s.path, err)
	}
	return db, nil
}

// located completes an error of reading: it names the file, and turns a panic of bbolt into a
// CorruptError.
func (s *Store) located(err error) error {
	if p, ok := errors.AsType[*panicError](err); ok {
		err = journal.Corrupt("the file", "%v", p)
	}
	if c, ok := errors.AsType[*CorruptError](err); ok {
		c.Path = s.path
	}
	if f, ok := errors.AsType[*FormatError](err); ok {
		f.Path = s.path
	}
	return err
}

// create writes the first records of a directory, all in one transaction.
func (s *Store) create(o Options) (Recovered, error) {
	if o.Incarnation == 0 {
		return Recovered{}, errors.New("storage: a new data directory needs a nonzero Incarnation")
	}
	s.identity = Identity{ClusterID: o.ClusterID, NodeID: o.NodeID, Incarnation: o.Incarnation, Boot: 1}
	if err := s.commit(func() error { return s.commitBolt(nil) }); err != nil {
		return Recovered{}, err
	}
	return Recovered{Fresh: true, Format: FormatBolt, Identity: s.identity}, nil
}

// Size returns the size of the data file in bytes, or 0 if it cannot be told.
func (s *Store) Size() int64 {
	if s.closed {
		return 0
	}
	if s.journal != nil {
		size, _ := s.journal.Size()
		return size
	}
	info, err := s.file.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

// step does a step of writing a journal, and tells a test of it.
func (s *Store) step(name string, do func() error) error {
	if err := do(); err != nil || s.steps == nil {
		return err
	}
	return s.steps(name)
}

// Close releases the directory. It writes nothing: whatever was saved is durable already. It may
// be called again.
func (s *Store) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	if err := errors.Join(s.release(), s.lock.Close()); err != nil {
		return fmt.Errorf("storage: close %s: %w", s.path, err)
	}
	return nil
}

// release closes the file.
func (s *Store) release() (err error) {
	switch {
	case s.journal != nil:
		err = s.journal.Close()
	case s.db != nil && !s.panicked:
		err = s.db.Close()
	case s.file != nil:
		// bbolt.Close would wait forever for the locks of the transaction that panicked. The
		// mapping stays until the process ends, which is soon (I8).
		err = s.file.Close()
	}
	return err
}

// guarded runs f and turns a panic or a fault on mapped memory into an error: while the file is
// mapped, it may shrink or its disk may fail at any time.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{p}
		}
	}()
	return f()
}
