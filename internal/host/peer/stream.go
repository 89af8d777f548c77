package peer

import (
	"net"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// Attacher attaches an admitted connection to an event loop; see [Config.Attach].
type Attacher func(conn net.Conn, s *Stream) (stop func(error), err error)

// Stream is an admitted connection whose bytes somebody else moves: an event loop that
// owns the socket. It has no goroutine and does no I/O. All methods but Stop's effects
// belong to the goroutine that moves the bytes.
type Stream struct {
	link  *link
	self  uint64
	stall time.Duration
	// unsendable is told of messages that the other side would not take.
	unsendable func(m *raftpb.Message, err error)
	ended      chan error
}

// Peer is the ID of the node at the other end.
func (s *Stream) Peer() uint64 { return s.link.hello.NodeID }

// StallTimeout is how long the other side may send nothing, or take nothing, before the
// connection is to be closed.
func (s *Stream) StallTimeout() time.Duration { return s.stall }

// PingInterval is how long this side may send nothing before an [AppendPing] is due.
func (s *Stream) PingInterval() time.Duration { return s.stall / pingsPerStall }

// OnClock has f called by Parse with what the other side's wall clock shows, unix
// nanoseconds, when it says so; see [AppendClock].
func (s *Stream) OnClock(f func(now int64)) { s.link.onClock = f }

// OnUpdate has f called by Parse with a hello that replaces the one of the handshake.
func (s *Stream) OnUpdate(f func(Hello)) { s.link.onUpdate = f }

// AppendUpdate appends this node's hello to b, which replaces the one of the handshake. A
// peer that speaks an older version is told nothing.
func (s *Stream) AppendUpdate(b []byte, h Hello) []byte {
	if s.link.version == versionFixed {
		return b
	}
	h.NodeID = s.self
	b, _ = AppendHello(b, FrameUpdate, h, s.link.version) // what a handshake has said is well formed
	return b
}

// Parse takes all of b and appends the messages that it completes to msgs, every one
// checked. It keeps a copy of what is incomplete. An error means that the connection is
// of no more use.
func (s *Stream) Parse(msgs []*raftpb.Message, b []byte) ([]*raftpb.Message, error) {
	s.link.dec.Feed(b)
	return s.link.decode(msgs, s.self)
}

// Append appends m to b in the wire format, or leaves b as it is if the other side would
// not take m. That is logged once.
func (s *Stream) Append(b []byte, m *raftpb.Message) []byte {
	err := CheckMessage(m, s.self, s.Peer())
	if err == nil {
		var grown []byte
		if grown, err = AppendMessage(b, m); err == nil {
			return grown
		}
	}
	s.unsendable(m, err)
	return b
}

// Ended tells that the connection has ended and was closed, and why. It must be called
// once, whoever ended it.
func (s *Stream) Ended(err error) { s.ended <- err }
