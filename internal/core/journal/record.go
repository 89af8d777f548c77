package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// The formats of the data file. The format record itself, its place and its encoding never
// change, so that every version can report the format of a file: see marker.go of internal/host/storage for how a journal
// has one.
const (
	// FormatBolt is a file of bbolt. Every directory begins with it.
	FormatBolt = 1
	// FormatJournal is a file to which each Save appends; see the package comment.
	FormatJournal = 2
	// FormatNewest is the newest format that this version reads.
	FormatNewest = FormatJournal
)

const (
	// EntryDataBytesMax bounds the data of one log entry. Entries carry a
	// reservation or a membership change, a few hundred bytes at most; 1 MiB is
	// far above that and still a write that no disk stalls on.
	EntryDataBytesMax = 1 << 20
	// SnapshotBytesMax bounds one encoded snapshot. The replicated state is a
	// ceiling, worker leases and members: a few hundred kilobytes at worst.
	SnapshotBytesMax = 16 << 20
)

const (
	BucketMeta = "isotone"
	BucketLog  = "log"

	KeyFormat   = "format"
	KeyIdentity = "identity"
	KeyState    = "state"
	KeySnapshot = "snapshot"
)

const (
	checksumBytes    = 4
	formatBytes      = 4
	identityBytes    = 4 * 8
	stateBytes       = 1 + 11*8
	entryHeaderBytes = 8 + 1
	LogKeyBytes      = 8
)

var (
	castagnoli  = crc32.MakeTable(crc32.Castagnoli)
	ErrChecksum = errors.New("its checksum does not match its content")
	errLength   = errors.New("it has the wrong length")
)

// Position is a place in the log: an index and the term of the entry there.
type Position struct{ Index, Term uint64 }

// State is the record that every transaction rewrites. Besides the hard state it has the
// checksums of all other records. Without them, a log that has lost its end, or a page whose
// last write the disk lost, would look like an older but healthy state.
type State struct {
	Transaction        uint64 // the transaction of bbolt that wrote this record, or the number of the record in the journal
	HasHard            bool
	Term, Vote, Commit uint64
	Snapshot           Position // zero if there is none
	Last               Position // last entry; equal to snapshot if the log is empty

	IdentitySum uint64 // checksum of the identity record
	SnapshotSum uint64 // checksum of the snapshot record; zero if there is none
	LogSum      uint64 // all checksums of the log's records, XORed
}

// HardState returns the raft form, or nil if none was ever saved.
func (s *State) HardState() *raftpb.HardState {
	if !s.HasHard {
		return nil
	}
	return &raftpb.HardState{Term: new(s.Term), Vote: new(s.Vote), Commit: new(s.Commit)}
}

// checksum covers the place of a record as well as its content. The key's length keeps key and
// payload apart; no bucket name contains a zero byte.
func checksum(bucket string, key, payload []byte) uint32 {
	head := make([]byte, 0, len(bucket)+1+4+len(key))
	head = append(append(head, bucket...), 0)
	head = binary.BigEndian.AppendUint32(head, uint32(len(key)))
	head = append(head, key...)
	return crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, payload)
}

// EncodeRecord returns the stored form of payload: its checksum, then itself.
func EncodeRecord(bucket string, key, payload []byte) []byte {
	record := make([]byte, 0, checksumBytes+len(payload))
	record = binary.BigEndian.AppendUint32(record, checksum(bucket, key, payload))
	return append(record, payload...)
}

// RecordSum returns the checksum in a record, and 0 if the record is too short to have one.
func RecordSum(record []byte) uint64 {
	if len(record) < checksumBytes {
		return 0
	}
	return uint64(binary.BigEndian.Uint32(record))
}

// DecodeRecord returns the payload of a record found in bucket under key. The
// payload shares memory with record.
func DecodeRecord(bucket string, key, record []byte) ([]byte, error) {
	if len(record) < checksumBytes {
		return nil, errLength
	}
	payload := record[checksumBytes:]
	if binary.BigEndian.Uint32(record) != checksum(bucket, key, payload) {
		return nil, ErrChecksum
	}
	return payload, nil
}

func EncodeFormat(format uint32) []byte { return binary.BigEndian.AppendUint32(nil, format) }

func DecodeFormat(b []byte) (uint32, error) {
	if len(b) != formatBytes {
		return 0, errLength
	}
	return binary.BigEndian.Uint32(b), nil
}

func EncodeIdentity(id Identity) []byte {
	return appendUint64s(nil, id.ClusterID, id.NodeID, id.Incarnation, id.Boot)
}

func DecodeIdentity(b []byte) (id Identity, err error) {
	if len(b) != identityBytes {
		return Identity{}, errLength
	}
	readUint64s(b, &id.ClusterID, &id.NodeID, &id.Incarnation, &id.Boot)
	if id.NodeID == 0 || id.Incarnation == 0 || id.Boot == 0 {
		return Identity{}, errors.New("it has a zero node ID, incarnation or boot count")
	}
	return id, nil
}

func EncodeState(s State) []byte {
	b := make([]byte, 1, stateBytes)
	if s.HasHard {
		b[0] = 1
	}
	return appendUint64s(b, s.Transaction, s.Term, s.Vote, s.Commit,
		s.Snapshot.Index, s.Snapshot.Term, s.Last.Index, s.Last.Term,
		s.IdentitySum, s.SnapshotSum, s.LogSum)
}

func DecodeState(b []byte) (s State, err error) {
	if len(b) != stateBytes {
		return State{}, errLength
	}
	s.HasHard = b[0] == 1
	readUint64s(b[1:], &s.Transaction, &s.Term, &s.Vote, &s.Commit,
		&s.Snapshot.Index, &s.Snapshot.Term, &s.Last.Index, &s.Last.Term,
		&s.IdentitySum, &s.SnapshotSum, &s.LogSum)
	switch {
	case b[0] > 1:
		return State{}, fmt.Errorf("it has the unknown flag %d", b[0])
	case s.Last.Index < s.Snapshot.Index || s.Last.Term < s.Snapshot.Term:
		return State{}, errors.New("the log ends before the snapshot")
	case s.HasHard && s.Commit > s.Last.Index:
		return State{}, fmt.Errorf("it commits index %d, and the log ends at %d", s.Commit, s.Last.Index)
	case s.HasHard && s.Commit < s.Snapshot.Index:
		return State{}, fmt.Errorf("it commits index %d, and the snapshot is at %d", s.Commit, s.Snapshot.Index)
	case !s.HasHard && (s.Term|s.Vote|s.Commit|s.Snapshot.Index) != 0:
		return State{}, errors.New("it lacks the mark of a hard state")
	}
	return s, nil
}

func EncodeEntry(e *raftpb.Entry) []byte {
	b := make([]byte, 0, entryHeaderBytes+len(e.GetData()))
	b = binary.BigEndian.AppendUint64(b, e.GetTerm())
	b = append(b, byte(e.GetType()))
	return append(b, e.GetData()...)
}

// DecodeEntry returns the entry at index. It owns its data; empty data is nil.
func DecodeEntry(index uint64, b []byte) (*raftpb.Entry, error) {
	if len(b) < entryHeaderBytes || len(b) > entryHeaderBytes+EntryDataBytesMax {
		return nil, errLength
	}
	kind := raftpb.EntryType(b[8])
	if kind > raftpb.EntryConfChangeV2 {
		return nil, fmt.Errorf("it has the unknown entry type %d", b[8])
	}
	e := &raftpb.Entry{Term: new(binary.BigEndian.Uint64(b)), Index: new(index), Type: kind.Enum()}
	if data := b[entryHeaderBytes:]; len(data) > 0 {
		e.Data = append([]byte(nil), data...)
	}
	return e, nil
}

func EncodeSnapshot(s *raftpb.Snapshot) ([]byte, error) {
	b, err := proto.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode snapshot: %w", err)
	}
	if len(b) > SnapshotBytesMax {
		what := fmt.Sprintf("snapshot at index %d", s.GetMetadata().GetIndex())
		return nil, &LimitError{What: what, Size: len(b), Max: SnapshotBytesMax}
	}
	return b, nil
}

// DecodeSnapshot returns the snapshot. It owns its data.
func DecodeSnapshot(b []byte) (*raftpb.Snapshot, error) {
	if len(b) > SnapshotBytesMax {
		return nil, errLength
	}
	s := new(raftpb.Snapshot)
	if err := proto.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("it cannot be decoded: %w", err)
	}
	return s, nil
}

func SnapshotPosition(s *raftpb.Snapshot) Position {
	return Position{s.GetMetadata().GetIndex(), s.GetMetadata().GetTerm()}
}

// LogIndex is the reverse of logKey.
func LogIndex(key []byte) uint64 { return binary.BigEndian.Uint64(key) }

func LogKey(index uint64) []byte { return binary.BigEndian.AppendUint64(nil, index) }

func appendUint64s(b []byte, values ...uint64) []byte {
	for _, v := range values {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return b
}

// readUint64s fills values from b, which must be long enough.
func readUint64s(b []byte, values ...*uint64) {
	for i, v := range values {
		*v = binary.BigEndian.Uint64(b[8*i:])
	}
}
