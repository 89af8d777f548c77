package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"path/filepath"

	"go.etcd.io/bbolt"
	"go.etcd.io/raft/v3/raftpb"
)

// Internals for the external tests: the record encodings, and reading a file without opening
// the directory (no lock, no boot, no fsync), so that thousands of damaged copies can be
// tried.

const (
	BucketMeta  = bucketMeta
	BucketLog   = bucketLog
	KeyFormat   = keyFormat
	KeyIdentity = keyIdentity
	KeyState    = keyState
	KeySnapshot = keySnapshot
)

var (
	EncodeRecord   = encodeRecord
	DecodeRecord   = decodeRecord
	EncodeFormat   = encodeFormat
	EncodeEntry    = encodeEntry
	DecodeEntry    = decodeEntry
	EncodeIdentity = encodeIdentity
	DecodeIdentity = decodeIdentity
	DecodeSnapshot = decodeSnapshot
	LogKey         = logKey
)

// State mirrors what callers can know of the state record.
type State struct {
	HasHard                                     bool
	Term, Vote, Commit                          uint64
	SnapshotIndex, SnapshotTerm, Last, LastTerm uint64
}

func (s State) internal() state {
	return state{hasHard: s.HasHard, term: s.Term, vote: s.Vote, commit: s.Commit,
		snapshot: position{s.SnapshotIndex, s.SnapshotTerm}, last: position{s.Last, s.LastTerm}}
}

func EncodeState(s State) []byte { return encodeState(s.internal()) }

// ReencodeState decodes and encodes a state record.
func ReencodeState(b []byte) ([]byte, error) {
	s, err := decodeState(b)
	return encodeState(s), err
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
		meta, log := tx.Bucket([]byte(bucketMeta)), tx.Bucket([]byte(bucketLog))
		var logSum uint64
		if log != nil {
			_ = log.ForEach(func(_, record []byte) error { logSum ^= recordSum(record); return nil })
		}
		appendUint64s(payload[:stateBytes-3*8], recordSum(meta.Get([]byte(keyIdentity))),
			recordSum(meta.Get([]byte(keySnapshot))), logSum)
	}))
}

// resealState changes the state record, if there is a sound one.
func resealState(tx *bbolt.Tx, change func(payload []byte)) error {
	meta := tx.Bucket([]byte(bucketMeta))
	if meta == nil {
		return nil
	}
	payload, err := decodeRecord(bucketMeta, []byte(keyState), meta.Get([]byte(keyState)))
	if err != nil || len(payload) != stateBytes {
		return nil
	}
	payload = bytes.Clone(payload)
	change(payload)
	return meta.Put([]byte(keyState), encodeRecord(bucketMeta, []byte(keyState), payload))
}

// EncodeSnapshot encodes a snapshot that is not too large.
func EncodeSnapshot(s *raftpb.Snapshot) []byte {
	b, err := encodeSnapshot(s)
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

// Where the sectors of a journal are.
const (
	MarkerBytes        = markerBytes
	SectorBytes        = sectorBytes
	SectorContentBytes = sectorContentBytes
)

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
	_, r, err := OpenJournal(JournalOptions{}, memory{bytes.NewReader(file)})
	return r, err
}
