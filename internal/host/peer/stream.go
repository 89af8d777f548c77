package peer

import (
	"fmt"
	"net"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/interval"
)

const (
	// stallTimeout is about ten election timeouts. By then raft has given the peer up;
	// TCP alone would keep trying for a quarter of an hour.
	stallTimeout = 5 * time.Second
	// pingsPerStall is how many pings may be lost or late before a connection stalls.
	pingsPerStall = 4
)

// Attacher attaches an admitted connection to an event loop; see [Config.Attach].
type Attacher func(conn net.Conn, s *Stream) (stop func(error), err error)

// Stream is the wire format of one connection. Once the connection is attached, an event
// loop moves the bytes; the stream has no goroutine then and does no I/O, and only the
// loop's goroutine may call its methods.
type Stream struct {
	conn    net.Conn
	secured Secured // conn, if it is protected; else nil
	self    uint64
	dec     Decoder
	hello   Hello  // the other side's
	version uint16 // spoken by both sides
	// The functions whose names begin with on may be nil.
	onUpdate    func(Hello)
	onClock     func(now int64)
	onClockAsk  func(nonce uint64)
	onClockTold func(nonce uint64, r interval.Reading)
	// unsendable is told of messages that the other side would refuse.
	unsendable func(m *raftpb.Message, err error)
	ended      chan error
}

// Peer returns the ID of the other node.
func (s *Stream) Peer() uint64 { return s.hello.NodeID }

// StallTimeout returns how long the other side may send nothing, or read nothing, before
// the loop must close the connection.
func (s *Stream) StallTimeout() time.Duration { return stallTimeout }

// PingInterval returns how long this side may send nothing before an [AppendPing] is due.
func (s *Stream) PingInterval() time.Duration { return stallTimeout / pingsPerStall }

// OnClock has Parse call f with each clock reading of the other side, in unix
// nanoseconds; see [AppendClock].
func (s *Stream) OnClock(f func(now int64)) { s.onClock = f }

// OnUpdate has Parse call f with each hello that replaces the one of the handshake.
func (s *Stream) OnUpdate(f func(Hello)) { s.onUpdate = f }

// AppendUpdate appends this node's hello to b; it replaces the one of the handshake.
// Nothing is appended for a peer that speaks version 1.
func (s *Stream) AppendUpdate(b []byte, h Hello) []byte {
	if s.version == versionFixed {
		return b
	}
	h.NodeID = s.self
	b, _ = AppendHello(b, FrameUpdate, h, s.version) // the handshake has validated the addresses
	return b
}

// Append appends m to b in the wire format. A message that the other side would refuse is
// dropped; the first one is logged.
func (s *Stream) Append(b []byte, m *raftpb.Message) []byte {
	err := CheckMessage(m, s.self, s.Peer())
	if err == nil {
		var grown []byte
		if grown, err = AppendMessage(b, m, s.hello.Level); err == nil {
			return grown
		}
	}
	s.unsendable(m, err)
	return b
}

// Parse reads all of b, keeps a copy of an incomplete frame, and appends the messages of
// complete ones to msgs, each checked by [CheckMessage]. After an error the connection
// must be closed; the messages before it are returned.
func (s *Stream) Parse(msgs []*raftpb.Message, b []byte) ([]*raftpb.Message, error) {
	s.dec.Feed(b)
	for {
		f, ok, err := s.dec.Next()
		if !ok || err != nil {
			return msgs, err
		}
		switch {
		case f.Type == FrameClockAsk:
			err = s.parseClockAsk(f.Payload)
		case f.Type == FrameClockTold:
			err = s.parseClockTold(f.Payload)
		case f.Type == FramePing || f.Type >= frameOptional:
		case f.Type == FrameClock:
			err = s.parseClock(f.Payload)
		case f.Type == FrameUpdate:
			err = s.parseUpdate(f.Payload)
		default:
			var m *raftpb.Message
			if m, err = s.parseMessage(f); err == nil {
				msgs = append(msgs, m)
			}
		}
		if err != nil {
			return msgs, err
		}
	}
}

func (s *Stream) parseMessage(f Frame) (*raftpb.Message, error) {
	m, err := ParseMessage(f)
	if err == nil {
		err = CheckMessage(m, s.Peer(), s.self)
	}
	return m, err
}

func (s *Stream) parseClock(p []byte) error {
	now, err := parseClock(p)
	if err == nil && s.onClock != nil {
		s.onClock(now)
	}
	return err
}

func (s *Stream) parseUpdate(p []byte) error {
	h, _, err := ParseHello(p)
	switch {
	case err != nil:
		return err
	case h.NodeID != s.hello.NodeID || h.Session != s.hello.Session:
		return fmt.Errorf("%w: an update of node %d on the connection of node %d", ErrProtocol, h.NodeID, s.hello.NodeID)
	case s.onUpdate != nil:
		s.onUpdate(h)
	}
	return nil
}

// Ended tells the transport that the connection was closed, and why. The loop must call it
// exactly once, whichever side ended the connection.
func (s *Stream) Ended(err error) { s.ended <- err }
