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

// ReadJournal reads a journal in memory.
func ReadJournal(file []byte) (Recovered, error) {
	j, d, err := readJournal(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		return Recovered{}, err
	}
	return j.table.recovered(d.identity, &d.state)
}

// JournalPayloads returns the complete records of a sound journal.
func JournalPayloads(file []byte) (payloads [][]byte) {
	salt, sectors, err := decodeHead(file[markerBytes:][:sectorBytes])
	if err != nil {
		panic(err)
	}
	j := &journal{next: 1, sectors: sectors}
	r := &sectorReader{file: bytes.NewReader(file), salt: salt, sectors: sectors}
	for j.next < sectors {
		payload, err := j.readRecord(r)
		if err != nil {
			panic(err)
		}
		if payload == nil {
			break
		}
		payloads = append(payloads, payload)
		j.record++
		j.next += sectorsFor(len(payload))
	}
	return payloads
}

// BuildJournal returns a journal with valid sectors and whatever records.
func BuildJournal(salt uint64, empty int, payloads ...[]byte) []byte {
	var sectors []byte
	for i, payload := range payloads {
		sectors = appendSectors(sectors, salt, 1+int64(len(sectors)/sectorBytes), uint64(i+1), payload)
	}
	sectors = append(sectors, make([]byte, empty*sectorBytes)...)
	head := journalHead(salt, 1+int64(len(sectors)/sectorBytes))
	return append(append(marker(), head...), sectors...)
}

// ResealSectors makes the checksums of all sectors that are not empty valid.
func ResealSectors(file []byte) {
	head := file[markerBytes:][:sectorBytes]
	var salt uint64
	readUint64s(head[sectorHeaderBytes:], &salt)
	binary.BigEndian.PutUint32(head, sectorSum(0, 0, head))
	for number := int64(1); markerBytes+(number+1)*sectorBytes <= int64(len(file)); number++ {
		if raw := file[markerBytes+number*sectorBytes:][:sectorBytes]; !isZero(raw) {
			binary.BigEndian.PutUint32(raw, sectorSum(salt, number, raw))
		}
	}
}

// AppendSector appends a valid sector.
func AppendSector(b []byte, salt uint64, number int64, record uint64, length, place uint32, content []byte) []byte {
	return appendSector(b, salt, number, sector{record, length, place, content})
}

// EncodeJournalRecord encodes the record of some writes that result in r, after the records of file.
func EncodeJournalRecord(file []byte, writes ...Write) ([]byte, error) {
	j, d, err := readJournal(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		return nil, err
	}
	changes, _, err := prepareAll(writes)
	if err == nil {
		err = d.applyAll(changes)
	}
	d.seal(j.record + 1)
	return encodeJournalRecord(d, changes), err
}
