package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"path/filepath"

	"go.etcd.io/bbolt"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/journal"
)

// Internals for the external tests: the record encodings, and reading a file without opening
// the directory (no lock, no boot, no fsync), so that thousands of damaged copies can be
// tried.

const (
	BucketMeta  = journal.BucketMeta
	BucketLog   = journal.BucketLog
	KeyFormat   = journal.KeyFormat
	KeyIdentity = journal.KeyIdentity
	KeyState    = journal.KeyState
	KeySnapshot = journal.KeySnapshot

	EntryDataBytesMax = journal.EntryDataBytesMax
	SnapshotBytesMax  = journal.SnapshotBytesMax
)

var (
	EncodeRecord   = journal.EncodeRecord
	DecodeRecord   = journal.DecodeRecord
	EncodeFormat   = journal.EncodeFormat
	EncodeEntry    = journal.EncodeEntry
	DecodeEntry    = journal.DecodeEntry
	EncodeIdentity = journal.EncodeIdentity
	DecodeIdentity = journal.DecodeIdentity
	DecodeSnapshot = journal.DecodeSnapshot
	LogKey         = journal.LogKey
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

// ResealTransaction sets the transaction in the state record to the current one.
func ResealTransaction(tx *bbolt.Tx) error {
	return resealState(tx, func(payload []byte) {
		binary.BigEndian.PutUint64(payload[1:], uint64(tx.ID()))
	})
}

// Reseal updates the checksums in the state record to the other records as they are, so that
// a test of one check does not meet another one.
func Reseal(tx *bbolt.Tx) error {
	return errors.Join(ResealTransaction(tx), resealState(tx, func(payload []byte) {
		meta, log := tx.Bucket([]byte(journal.BucketMeta)), tx.Bucket([]byte(journal.BucketLog))
		var logSum uint64
		if log != nil {
			_ = log.ForEach(func(_, record []byte) error { logSum ^= journal.RecordSum(record); return nil })
		}
		sums := payload[len(payload)-3*8:]
		binary.BigEndian.PutUint64(sums, journal.RecordSum(meta.Get([]byte(journal.KeyIdentity))))
		binary.BigEndian.PutUint64(sums[8:], journal.RecordSum(meta.Get([]byte(journal.KeySnapshot))))
		binary.BigEndian.PutUint64(sums[16:], logSum)
	}))
}

// resealState changes the state record, if there is a sound one.
func resealState(tx *bbolt.Tx, change func(payload []byte)) error {
	meta := tx.Bucket([]byte(journal.BucketMeta))
	if meta == nil {
		return nil
	}
	payload, err := journal.DecodeRecord(journal.BucketMeta, []byte(journal.KeyState), meta.Get([]byte(journal.KeyState)))
	if err != nil || len(payload) != 1+11*8 {
		return nil
	}
	payload = bytes.Clone(payload)
	change(payload)
	return meta.Put([]byte(journal.KeyState), journal.EncodeRecord(journal.BucketMeta, []byte(journal.KeyState), payload))
}

// EncodeSnapshot encodes a snapshot that is not too large.
func EncodeSnapshot(s *raftpb.Snapshot) []byte {
	b, err := journal.EncodeSnapshot(s)
	if err != nil {
		panic(err)
	}
	return b
}

// ErrPanicked is the error of Peek when bbolt panicked.
var ErrPanicked = errors.New("bbolt panicked")

// Peek reads the data file in dir as Open does, without changing anything.
func Peek(dir string) (Recovered, error) {
	s := &Store{dir: dir, path: filepath.Join(dir, FileName)}
	r, err := s.read()
	if s.panicked {
		err = errors.Join(ErrPanicked, err)
	}
	_ = s.release()
	return r, err
}

// CheckPages checks a bbolt file in memory.
func CheckPages(file []byte) error {
	_, err := checkPages(bytes.NewReader(file), int64(len(file)))
	return err
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

// Marker is the head of every journal.
var Marker = marker

// SetSpareSectors sets how many empty sectors a new journal has, and returns what sets it back.
func SetSpareSectors(n int64) (restore func()) {
	former := spareSectors
	spareSectors = n
	return func() { spareSectors = former }
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
	_, r, err := journal.Open(journal.Options{Head: marker()}, memory{bytes.NewReader(file)})
	return r, err
}
