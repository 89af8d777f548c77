package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Format is the format of the files that this version reads and writes.
const Format = 1

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
	formatBytes      = 4
	identityBytes    = 4 * 8
	stateBytes       = 1 + 11*8
	entryHeaderBytes = 8 + 1
)

var (
	castagnoli  = crc32.MakeTable(crc32.Castagnoli)
	ErrChecksum = errors.New("its checksum does not match its content")
	errLength   = errors.New("it has the wrong length")
)

// Position is a place in the log: an index and the term of the entry there.
type Position struct{ Index, Term uint64 }

// State is what every record repeats: the hard state, and the checksums of everything that the
// records up to this one result in.
type State struct {
	Record             uint64 // the number of the record
	HasHard            bool
	Term, Vote, Commit uint64
	Snapshot           Position // zero if there is none
	Last               Position // last entry; equal to snapshot if the log is empty

	IdentitySum uint64 // checksum of the identity
	SnapshotSum uint64 // checksum of the snapshot; zero if there is none
	LogSum      uint64 // the checksums of the log's entries, XORed
}

// HardState returns the raft form, or nil if none was ever saved.
func (s *State) HardState() *raftpb.HardState {
	if !s.HasHard {
		return nil
	}
	return &raftpb.HardState{Term: new(s.Term), Vote: new(s.Vote), Commit: new(s.Commit)}
}

// What the checksums in a [State] cover.
const (
	sumIdentity = 1 + iota
	sumSnapshot
	sumEntry
)

// sum returns the checksum of the encoding of what; index is that of an entry.
func sum(what byte, index uint64, encoding []byte) uint64 {
	head := binary.BigEndian.AppendUint64(append(make([]byte, 0, 1+8), what), index)
	return uint64(crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, encoding))
}

func EncodeIdentity(id Identity) []byte {
	return appendUint64s(make([]byte, 0, identityBytes), id.ClusterID, id.NodeID, id.Incarnation, id.Boot)
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
	return appendUint64s(b, s.Record, s.Term, s.Vote, s.Commit,
		s.Snapshot.Index, s.Snapshot.Term, s.Last.Index, s.Last.Term,
		s.IdentitySum, s.SnapshotSum, s.LogSum)
}

func DecodeState(b []byte) (s State, err error) {
	if len(b) != stateBytes {
		return State{}, errLength
	}
	s.HasHard = b[0] == 1
	readUint64s(b[1:], &s.Record, &s.Term, &s.Vote, &s.Commit,
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
