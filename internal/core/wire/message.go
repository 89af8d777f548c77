package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/isotone/isotone/internal/core/mutant"
)

// contextSize is the size of the context in the heartbeats of a round: a counter.
const contextSize = 8

// compactForm is the layout of a message of fixed size: to, from, term, the commit index of a heartbeat,
// and the promise, each of 8 bytes. A context may follow.
type compactForm struct {
	kind   raftpb.MessageType
	commit bool
}

// compactForms has the forms by frame type, and zero for the other types.
var compactForms = [...]compactForm{
	FrameHeartbeat:     {kind: raftpb.MsgHeartbeat, commit: true},
	FrameHeartbeatResp: {kind: raftpb.MsgHeartbeatResp},
}

// AppendMessage appends m to b, in parts if it does not fit a frame. Heartbeats and their responses, the
// hot path of every round, have a fixed-size form unless an unusual field is set; all else is protobuf. If
// that has more than [MessageSizeMax], it returns b unchanged and an error that matches [ErrFrameSize].
func AppendMessage(b []byte, m *raftpb.Message) ([]byte, error) {
	return appendMessage(b, m, FrameSizeMax)
}

func appendMessage(b []byte, m *raftpb.Message, frameMax int) ([]byte, error) {
	start := len(b)
	if t := compactType(m); t != FrameMessage {
		b = openFrame(b, t)
		b = binary.BigEndian.AppendUint64(b, *m.To)
		b = binary.BigEndian.AppendUint64(b, *m.From)
		b = binary.BigEndian.AppendUint64(b, *m.Term)
		if m.Commit != nil {
			b = binary.BigEndian.AppendUint64(b, *m.Commit)
		}
		promise := *m.RejectHint
		if mutant.On(mutant.DropPromise) {
			promise = 0
		}
		b = binary.BigEndian.AppendUint64(b, promise)
		return sealFrame(append(b, m.Context...), start), nil
	}
	full, err := proto.MarshalOptions{}.MarshalAppend(openFrame(b, FrameMessage), m)
	if err != nil {
		return b, fmt.Errorf("encoding %v: %w", m.GetType(), err)
	}
	message := full[start+lengthSize+typeSize:]
	switch room := frameMax - typeSize - checksumSize; {
	case len(message) <= room:
		return sealFrame(full, start), nil
	case len(message) <= MessageSizeMax:
		return appendParts(full[:start], bytes.Clone(message), min(room, partSizeMax)), nil
	}
	return b, fmt.Errorf("%w: %v of %d bytes, at most %d", ErrFrameSize, m.GetType(), len(message), MessageSizeMax)
}

// compactType returns the fixed-size frame type that represents m exactly, or
// FrameMessage. Unset and zero fields differ: a decoded message must equal the sent one.
func compactType(m *raftpb.Message) FrameType {
	switch {
	case m.Type == nil || m.To == nil || m.From == nil || m.Term == nil || m.RejectHint == nil ||
		m.LogTerm != nil || m.Index != nil || m.Vote != nil || m.Snapshot != nil ||
		m.Reject != nil || len(m.Entries)+len(m.Responses) != 0 ||
		m.Context != nil && len(m.Context) != contextSize ||
		len(m.ProtoReflect().GetUnknown()) != 0:
	case *m.Type == raftpb.MsgHeartbeat && m.Commit != nil:
		return FrameHeartbeat
	case *m.Type == raftpb.MsgHeartbeatResp && m.Commit == nil:
		return FrameHeartbeatResp
	}
	return FrameMessage
}

// ParseMessage parses a frame of one of the message types. The message shares
// no memory with the frame. Errors match [ErrProtocol]. [CheckMessage] decides whether
// the peer may send the message.
func ParseMessage(f Frame) (*raftpb.Message, error) {
	if f.Type == FrameMessage {
		m := new(raftpb.Message)
		if err := proto.Unmarshal(f.Payload, m); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrProtocol, err)
		}
		return m, nil
	}
	if int(f.Type) >= len(compactForms) || compactForms[f.Type] == (compactForm{}) {
		return nil, fmt.Errorf("%w: unexpected frame type %d", ErrProtocol, f.Type)
	}
	return compactForms[f.Type].parse(f.Payload)
}

// compactMessage has a heartbeat and all it points to in one allocation.
type compactMessage struct {
	message                         raftpb.Message
	kind                            raftpb.MessageType
	to, from, term, commit, promise uint64
	context                         [contextSize]byte
}

func (f compactForm) parse(p []byte) (*raftpb.Message, error) {
	size := 4 * 8
	if f.commit {
		size += 8
	}
	if len(p) != size && len(p) != size+contextSize {
		return nil, fmt.Errorf("%w: %v of %d bytes", ErrProtocol, f.kind, len(p))
	}
	c := &compactMessage{kind: f.kind}
	next := func() (v uint64) {
		v, p = binary.BigEndian.Uint64(p), p[8:]
		return v
	}
	c.to, c.from, c.term = next(), next(), next()
	m := &c.message
	m.Type, m.To, m.From, m.Term = &c.kind, &c.to, &c.from, &c.term
	if f.commit {
		c.commit, m.Commit = next(), &c.commit
	}
	c.promise, m.RejectHint = next(), &c.promise
	if copy(c.context[:], p) > 0 {
		m.Context = c.context[:]
	}
	return m, nil
}

// CheckMessage returns an error, matching [ErrProtocol], unless one node may send m to
// another: raft exchanges messages of its type between nodes, and its addresses are those
// of the two nodes. It also refuses contents that raft panics on or treats as local.
//
// A proposal must have a single entry: a node requests worker leases from the leader with
// it, and the replica checks its contents. Reads and leadership transfers are refused.
func CheckMessage(m *raftpb.Message, from, to uint64) error {
	if m.GetFrom() != from || m.GetTo() != to {
		return fmt.Errorf("%w: %v from %d to %d between nodes %d and %d",
			ErrProtocol, m.GetType(), m.GetFrom(), m.GetTo(), from, to)
	}
	if m.GetTerm() == 0 {
		// Raft treats a message without a term as local.
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
		// Raft reads eight bytes of a context unless it is empty.
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
	return fmt.Errorf("%w: %v is not sent between nodes", ErrProtocol, m.GetType())
}

// checkProposal requires one entry with no place in the log yet.
func checkProposal(m *raftpb.Message) error {
	if len(m.GetEntries()) != 1 || m.GetSnapshot() != nil {
		return fmt.Errorf("%w: %v with %d entries", ErrProtocol, m.GetType(), len(m.GetEntries()))
	}
	e := m.GetEntries()[0]
	if e.GetType() != raftpb.EntryNormal || len(e.GetData()) == 0 || e.GetIndex() != 0 || e.GetTerm() != 0 {
		return fmt.Errorf("%w: %v with an invalid entry", ErrProtocol, m.GetType())
	}
	return nil
}

// checkEntries requires the entries of an append to be consecutive from Index+1:
// raft stores them by position.
func checkEntries(m *raftpb.Message) error {
	for i, e := range m.GetEntries() {
		if want := m.GetIndex() + 1 + uint64(i); e.GetIndex() != want {
			return fmt.Errorf("%w: %v with entry %d, want %d", ErrProtocol, m.GetType(), e.GetIndex(), want)
		}
	}
	return nil
}
