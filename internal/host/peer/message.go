package peer

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

const (
	// contextSize is the size of the context that raft puts into the heartbeats
	// of a round (ReadOnlySafe): a counter.
	contextSize = 8
	// Fixed-size payloads: to, from, term, and commit in a heartbeat; the context
	// follows or does not.
	heartbeatSize     = 4 * 8
	heartbeatRespSize = 3 * 8
)

// AppendMessage appends m to b as one frame. Heartbeats and their answers, the
// hot path of every round, take a fixed-size form unless they hold something
// unusual; all else is protobuf. A message that does not fit a frame gives an
// error that matches [ErrFrameSize], and b unchanged.
func AppendMessage(b []byte, m *raftpb.Message) ([]byte, error) {
	start := len(b)
	switch compactType(m) {
	case FrameHeartbeat:
		b = appendAddressing(openFrame(b, FrameHeartbeat), m)
		b = binary.BigEndian.AppendUint64(b, *m.Commit)
		return sealFrame(append(b, m.Context...), start), nil
	case FrameHeartbeatResp:
		b = appendAddressing(openFrame(b, FrameHeartbeatResp), m)
		return sealFrame(append(b, m.Context...), start), nil
	}
	full, err := proto.MarshalOptions{}.MarshalAppend(openFrame(b, FrameMessage), m)
	if err != nil {
		return b, fmt.Errorf("encoding %v: %w", m.GetType(), err)
	}
	if size := len(full) - start - lengthSize + checksumSize; size > FrameSizeMax {
		return b, fmt.Errorf("%w: %v of %d bytes, at most %d", ErrFrameSize, m.GetType(), size, FrameSizeMax)
	}
	return sealFrame(full, start), nil
}

func appendAddressing(b []byte, m *raftpb.Message) []byte {
	b = binary.BigEndian.AppendUint64(b, *m.To)
	b = binary.BigEndian.AppendUint64(b, *m.From)
	return binary.BigEndian.AppendUint64(b, *m.Term)
}

// compactType returns the fixed-size frame type that can hold m exactly, or
// FrameMessage. Presence matters: a decoded message must equal the sent one, and
// protobuf tells an unset field from a zero one.
func compactType(m *raftpb.Message) FrameType {
	if m.Type == nil || m.To == nil || m.From == nil || m.Term == nil ||
		m.LogTerm != nil || m.Index != nil || m.Vote != nil || m.Snapshot != nil ||
		m.Reject != nil || m.RejectHint != nil || len(m.Entries)+len(m.Responses) != 0 ||
		m.Context != nil && len(m.Context) != contextSize ||
		len(m.ProtoReflect().GetUnknown()) != 0 {
		return FrameMessage
	}
	switch {
	case *m.Type == raftpb.MsgHeartbeat && m.Commit != nil:
		return FrameHeartbeat
	case *m.Type == raftpb.MsgHeartbeatResp && m.Commit == nil:
		return FrameHeartbeatResp
	}
	return FrameMessage
}

// ParseMessage reads a frame of one of the three message types. The message
// shares no memory with the frame. Errors match [ErrProtocol]. Whether the
// message may come from that peer is for [CheckMessage] to say.
func ParseMessage(f Frame) (*raftpb.Message, error) {
	switch f.Type {
	case FrameHeartbeat:
		return parseCompact(f.Payload, raftpb.MsgHeartbeat, heartbeatSize)
	case FrameHeartbeatResp:
		return parseCompact(f.Payload, raftpb.MsgHeartbeatResp, heartbeatRespSize)
	case FrameMessage:
		m := new(raftpb.Message)
		if err := proto.Unmarshal(f.Payload, m); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrProtocol, err)
		}
		return m, nil
	}
	return nil, fmt.Errorf("%w: unexpected frame type %d", ErrProtocol, f.Type)
}

// compactMessage keeps a heartbeat and all it points to in one allocation.
type compactMessage struct {
	message                raftpb.Message
	kind                   raftpb.MessageType
	to, from, term, commit uint64
	context                [contextSize]byte
}

func parseCompact(p []byte, kind raftpb.MessageType, size int) (*raftpb.Message, error) {
	if len(p) != size && len(p) != size+contextSize {
		return nil, fmt.Errorf("%w: %v of %d bytes", ErrProtocol, kind, len(p))
	}
	c := &compactMessage{
		kind: kind,
		to:   binary.BigEndian.Uint64(p),
		from: binary.BigEndian.Uint64(p[8:]),
		term: binary.BigEndian.Uint64(p[16:]),
	}
	m := &c.message
	m.Type, m.To, m.From, m.Term = &c.kind, &c.to, &c.from, &c.term
	if kind == raftpb.MsgHeartbeat {
		c.commit = binary.BigEndian.Uint64(p[24:])
		m.Commit = &c.commit
	}
	if copy(c.context[:], p[size:]) > 0 {
		m.Context = c.context[:]
	}
	return m, nil
}

// CheckMessage reports whether a message may travel from one node to another: it
// is of a type that raft exchanges between nodes, and its addressing is true. It
// also refuses contents on which raft panics or that it would take for its own.
// Errors match [ErrProtocol].
//
// Of proposals only single entries travel, from a node that asks the leader for worker
// ids; what they may say is the replica's to judge. Reads and leadership transfers are not
// on the list.
func CheckMessage(m *raftpb.Message, from, to uint64) error {
	if m.GetFrom() != from || m.GetTo() != to {
		return fmt.Errorf("%w: %v from %d to %d between nodes %d and %d",
			ErrProtocol, m.GetType(), m.GetFrom(), m.GetTo(), from, to)
	}
	if m.GetTerm() == 0 {
		// Raft takes a message without a term for a local one.
		return fmt.Errorf("%w: %v without a term", ErrProtocol, m.GetType())
	}
	if len(m.GetResponses()) > 0 || len(m.GetEntries()) > 0 && m.GetType() != raftpb.MsgApp && m.GetType() != raftpb.MsgProp {
		return fmt.Errorf("%w: %v with entries or responses", ErrProtocol, m.GetType())
	}
	switch m.GetType() {
	case raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVote, raftpb.MsgPreVoteResp,
		raftpb.MsgAppResp, raftpb.MsgTimeoutNow:
		return nil
	case raftpb.MsgApp:
		return checkEntries(m)
	case raftpb.MsgProp:
		return checkProposal(m)
	case raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp:
		// Raft reads eight bytes of any context that is not empty.
		if n := len(m.GetContext()); n != 0 && n < contextSize {
			return fmt.Errorf("%w: %v with a context of %d bytes", ErrProtocol, m.GetType(), n)
		}
		return nil
	case raftpb.MsgSnap:
		if m.GetSnapshot().GetMetadata().GetIndex() == 0 {
			return fmt.Errorf("%w: %v without a snapshot", ErrProtocol, m.GetType())
		}
		return nil
	}
	return fmt.Errorf("%w: %v does not travel between nodes", ErrProtocol, m.GetType())
}

// checkProposal wants one entry as it is before the leader gives it a place in the log.
func checkProposal(m *raftpb.Message) error {
	if len(m.GetEntries()) != 1 || m.GetSnapshot() != nil {
		return fmt.Errorf("%w: %v of %d entries", ErrProtocol, m.GetType(), len(m.GetEntries()))
	}
	e := m.GetEntries()[0]
	if e.GetType() != raftpb.EntryNormal || len(e.GetData()) == 0 || e.GetIndex() != 0 || e.GetTerm() != 0 {
		return fmt.Errorf("%w: %v of an entry that is no proposal", ErrProtocol, m.GetType())
	}
	return nil
}

// checkEntries wants the entries of an append to be consecutive from Index+1:
// raft stores them by position.
func checkEntries(m *raftpb.Message) error {
	for i, e := range m.GetEntries() {
		if want := m.GetIndex() + 1 + uint64(i); e.GetIndex() != want {
			return fmt.Errorf("%w: %v with entry %d in the place of %d", ErrProtocol, m.GetType(), e.GetIndex(), want)
		}
	}
	return nil
}
