package wire

import (
	"cmp"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/interval"
)

// Codec is the wire format of one connection: what one node sends to another, and hears from it. It
// does no I/O. One goroutine at a time may use it.
type Codec struct {
	// Decoder splits what arrives into frames: those of the handshake first, then those for Parse.
	Decoder Decoder

	self     uint64
	hello    Hello  // the other side's
	frameMax int    // 0: FrameSizeMax; see SetFrameMax
	parts    []byte // of a message whose last part has not arrived, joined; at most MessageSizeMax
	// The functions whose names begin with on may be nil.
	onUpdate      func(Hello)
	onClock       func(now int64)
	onClockAsk    func(nonce uint64)
	onClockTold   func(nonce uint64, r interval.Reading)
	onCarry       func(nonce uint64, r *Carry)
	onCarryAnswer func(nonce uint64, status uint16, body []byte)
	onOwnerAsk    func(session, round uint64)
	onOwnerTold   func(session, round, fence uint64)
	onUnsendable  func(m *raftpb.Message, err error)
}

// NewCodec returns the codec of the node self for a connection to the one that has sent hello.
func NewCodec(self uint64, hello Hello) Codec { return Codec{self: self, hello: hello} }

// Open sets what the handshake has found out: the hello of the other side. Parse may be called from
// then on.
func (c *Codec) Open(hello Hello) {
	c.hello = hello
	c.Decoder.SetHandshake(false)
}

// Hello returns that of the other side, as the handshake found it.
func (c *Codec) Hello() Hello { return c.hello }

// OnUnsendable has Append call f with each message that it drops.
func (c *Codec) OnUnsendable(f func(m *raftpb.Message, err error)) { c.onUnsendable = f }

// Peer returns the ID of the other node.
func (c *Codec) Peer() uint64 { return c.hello.NodeID }

// OnClock has Parse call f with each clock reading of the other side, in unix
// nanoseconds; see [AppendClock].
func (c *Codec) OnClock(f func(now int64)) { c.onClock = f }

// OnUpdate has Parse call f with each hello that replaces the one of the handshake.
func (c *Codec) OnUpdate(f func(Hello)) { c.onUpdate = f }

// AppendUpdate appends this node's hello to b; it replaces the one of the handshake.
func (c *Codec) AppendUpdate(b []byte, h Hello) []byte {
	h.NodeID = c.self
	b, _ = AppendHello(b, FrameUpdate, h) // the handshake has validated the addresses
	return b
}

// Append appends m to b in the wire format, all parts of it at once. A message that the other side would
// refuse is dropped; see [Codec.OnUnsendable].
func (c *Codec) Append(b []byte, m *raftpb.Message) []byte {
	err := CheckMessage(m, c.self, c.Peer())
	if err == nil {
		var grown []byte
		if grown, err = appendMessage(b, m, cmp.Or(c.frameMax, FrameSizeMax)); err == nil {
			return grown
		}
	}
	if c.onUnsendable != nil {
		c.onUnsendable(m, err)
	}
	return b
}

// Parse reads all of b, keeps a copy of an incomplete frame or message, and appends the messages of
// complete ones to msgs, each checked by [CheckMessage]. After an error the connection
// must be closed; the messages before it are returned.
func (c *Codec) Parse(msgs []*raftpb.Message, b []byte) ([]*raftpb.Message, error) {
	c.Decoder.Feed(b)
	for {
		f, ok, err := c.Decoder.Next()
		if !ok || err != nil {
			return msgs, err
		}
		switch {
		case f.Type == FrameClockAsk:
			err = c.parseClockAsk(f.Payload)
		case f.Type == FrameClockTold:
			err = c.parseClockTold(f.Payload)
		case f.Type == FrameOwnerAsk:
			err = c.parseOwnerAsk(f.Payload)
		case f.Type == FrameOwnerTold:
			err = c.parseOwnerTold(f.Payload)
		case f.Type == FrameCarry:
			err = c.parseCarry(f.Payload)
		case f.Type == FrameCarryAnswer:
			err = c.parseCarryAnswer(f.Payload)
		case f.Type == FramePart || f.Type == FrameLastPart:
			msgs, err = c.parsePart(msgs, f)
		case f.Type == FramePing || f.Type >= frameOptional:
		case f.Type == FrameClock:
			err = c.parseClock(f.Payload)
		case f.Type == FrameUpdate:
			err = c.parseUpdate(f.Payload)
		default:
			msgs, err = c.parseMessage(msgs, f)
		}
		if err != nil {
			return msgs, err
		}
	}
}

func (c *Codec) parseMessage(msgs []*raftpb.Message, f Frame) ([]*raftpb.Message, error) {
	m, err := ParseMessage(f)
	switch {
	case err != nil:
		return msgs, err
	case len(c.parts) > 0:
		return msgs, fmt.Errorf("%w: a message between the parts of another one", ErrProtocol)
	}
	if err := CheckMessage(m, c.Peer(), c.self); err != nil {
		return msgs, err
	}
	return append(msgs, m), nil
}

func (c *Codec) parseClock(p []byte) error {
	now, err := parseClock(p)
	if err == nil && c.onClock != nil {
		c.onClock(now)
	}
	return err
}

func (c *Codec) parseUpdate(p []byte) error {
	h, err := ParseHello(p)
	switch {
	case err != nil:
		return err
	case h.NodeID != c.hello.NodeID || h.Session != c.hello.Session:
		return fmt.Errorf("%w: an update of node %d on the connection of node %d", ErrProtocol, h.NodeID, c.hello.NodeID)
	case c.onUpdate != nil:
		c.onUpdate(h)
	}
	return nil
}

// OnClockAsk has Parse call f with the nonce of each question of the other side for the cluster
// clock; see [AppendClockAsk].
func (c *Codec) OnClockAsk(f func(nonce uint64)) { c.onClockAsk = f }

// OnClockTold has Parse call f with each reading of the cluster clock, and the nonce of the question
// that it answers; see [AppendClockTold].
func (c *Codec) OnClockTold(f func(nonce uint64, r interval.Reading)) { c.onClockTold = f }

func (c *Codec) parseClockAsk(p []byte) error {
	nonce, err := parseClockAsk(p)
	if err == nil && c.onClockAsk != nil {
		c.onClockAsk(nonce)
	}
	return err
}

func (c *Codec) parseClockTold(p []byte) error {
	nonce, r, err := parseClockTold(p)
	if err == nil && c.onClockTold != nil {
		c.onClockTold(nonce, r)
	}
	return err
}
