package storage

import (
	"bytes"
	"errors"
	"path/filepath"

	"github.com/isotone/isotone/internal/core/journal"
)

// Internals for the external tests: the record encodings, and reading a file without opening
// the directory (no lock, no boot, no fsync), so that thousands of damaged copies can be
// tried.

const (
	EntryDataBytesMax = journal.EntryDataBytesMax
	SnapshotBytesMax  = journal.SnapshotBytesMax
)

var (
	EncodeEntry    = journal.EncodeEntry
	DecodeEntry    = journal.DecodeEntry
	EncodeIdentity = journal.EncodeIdentity
	DecodeIdentity = journal.DecodeIdentity
	DecodeSnapshot = journal.DecodeSnapshot
)

// State mirrors what callers can know of the state record.
type State struct {
	HasHard                                     bool
	Term, Vote, Commit                          uint64
	SnapshotIndex, SnapshotTerm, Last, LastTerm uint64
}

func (s State) internal() journal.State {
	return journal.State{HasHard: s.HasHard, Term: s.Term, Vote: s.Vote, Commit: s.Commit,
		Snapshot: journal.Position{Index: s.SnapshotIndex, Term: s.SnapshotTerm}, Last: journal.Position{Index: s.Last, Term: s.LastTerm}}
}

func EncodeState(s State) []byte { return journal.EncodeState(s.internal()) }

// ReencodeState decodes and encodes a state record.
func ReencodeState(b []byte) ([]byte, error) {
	s, err := journal.DecodeState(b)
	return journal.EncodeState(s), err
}

// Peek reads the data file in dir as Open does, without changing anything.
func Peek(dir string) (Recovered, error) {
	s := &Store{dir: dir, path: filepath.Join(dir, FileName)}
	r, err := s.read()
	_ = s.release()
	return r, err
}

// WithSteps has step called after each write, sync and rename of a journal.
func WithSteps(o Options, step func(string)) Options {
	o.steps = func(name string) error { step(name); return nil }
	return o
}

// WithFaults has each write, sync and rename of a journal fail with what fault returns.
func WithFaults(o Options, fault func(step string) error) Options {
	o.steps = fault
	return o
}

// SetSpareSectors sets how many empty sectors a new journal has, and returns what sets it back.
func SetSpareSectors(n int64) (restore func()) {
	former := spareSectors
	spareSectors = n
	return func() { spareSectors = former }
}

// OnWait has f called when a lock is waited for, and returns what ends that.
func OnWait(f func()) (restore func()) {
	former := onWait
	onWait = f
	return func() { onWait = former }
}

// memory is a journal file in memory, and has no other files.
type memory struct{ *bytes.Reader }

func (memory) WriteAt([]byte, int64) (int, error) { return 0, errors.ErrUnsupported }
func (m memory) Size() (int64, error)             { return m.Reader.Size(), nil }
func (memory) Truncate(int64) error               { return errors.ErrUnsupported }
func (memory) SyncData() error                    { return errors.ErrUnsupported }
func (memory) Sync() error                        { return errors.ErrUnsupported }
func (memory) Close() error                       { return nil }

// ReadJournal reads a journal in memory.
func ReadJournal(file []byte) (Recovered, error) {
	_, r, err := journal.Open(journal.Options{}, memory{bytes.NewReader(file)})
	return r, err
}
