package storage

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

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
	// BeforeCommit is a hook for tests, nil in production. It runs before every write, Open's
	// included. An error counts as a failed write (I8). It may sleep, to imitate a slow disk.
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

	lock    *os.File // held until Close
	journal *journal.Journal
	data    *file // that of journal; nil while there is none

	failed error // the first failure of Save; final (I8)
	closed bool
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

// open reads the data file, or creates it, and counts the boot.
func (s *Store) open(o Options) (Recovered, error) {
	before, err := os.Lstat(s.path)
	exists, err := checkFile(s.path, before, err)
	if err != nil {
		return Recovered{}, err
	}
	if !exists {
		return s.create(o)
	}
	r, err := s.read()
	if err != nil {
		return Recovered{}, err
	}
	if r.Identity.NodeID != o.NodeID {
		return Recovered{}, &IdentityError{Dir: s.dir, Have: r.Identity.NodeID, Want: o.NodeID}
	}
	if err := s.commit(s.journal.Begin); err != nil {
		return Recovered{}, err
	}
	r.Identity = s.journal.Identity()
	// A start tells the node nothing of the cluster: see [Directory.Written].
	return r, os.Chtimes(s.path, time.Time{}, before.ModTime())
}

// read reads all of the data file, without changing it.
func (s *Store) read() (r Recovered, err error) {
	f, err := os.OpenFile(s.path, os.O_RDWR, 0)
	if err != nil {
		return Recovered{}, fmt.Errorf("storage: data file: %w", err)
	}
	// A process whose lock was deleted may have replaced the file while this one waited.
	if locked, err := awaitLock(f); err != nil || !locked || !isNamed(f, s.path) {
		_ = f.Close()
		return Recovered{}, cmp.Or(err, inUse(s.dir))
	}
	s.data = &file{f, s, true}
	if s.journal, r, err = journal.Open(s.journalOptions(), s.data); err != nil {
		_ = f.Close()
		return Recovered{}, s.located(err)
	}
	return r, nil
}

// located has an error of reading name the file.
func (s *Store) located(err error) error {
	if c, ok := errors.AsType[*CorruptError](err); ok {
		c.Path = s.path
	}
	if f, ok := errors.AsType[*FormatError](err); ok {
		f.Path = s.path
	}
	return err
}

// create writes the data file of a directory that has none. It is complete when it gets its name, so a
// data file that is not is damaged. The spare file shows from then on that there was one; see [CheckNew].
func (s *Store) create(o Options) (Recovered, error) {
	if o.Incarnation == 0 {
		return Recovered{}, errors.New("storage: a new data directory needs a nonzero Incarnation")
	}
	id := Identity{ClusterID: o.ClusterID, NodeID: o.NodeID, Incarnation: o.Incarnation, Boot: 1}
	err := s.commit(func() (err error) {
		s.journal, err = journal.Create(s.journalOptions(), id)
		return err
	})
	return Recovered{Fresh: true, Identity: id}, err
}

// Size returns the size of the data file in bytes, or 0 if it cannot be told.
func (s *Store) Size() int64 {
	if s.closed {
		return 0
	}
	size, _ := s.journal.Size()
	return size
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

// release closes the data file.
func (s *Store) release() error {
	if s.journal == nil {
		return nil
	}
	return s.journal.Close()
}
