package sim

import (
	"errors"
	"math/rand/v2"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/wire"
)

// Everything that a node tells another one travels as the bytes that production sends, and is read as
// production reads it. The pieces in which it arrives have a source of randomness of their own, so
// that they change nothing else in a run.

// newPieces returns the source of randomness that cuts bytes into pieces.
func newPieces(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x3173)) }

// codec returns the codec of a node for a connection to another one.
func codec(n, other *node) wire.Codec {
	return wire.NewCodec(n.id, wire.Hello{NodeID: other.id})
}

// mail carries the messages of one link. A run sends more of them than of anything else, so it keeps its memory.
type mail struct {
	from, to         uint64 // the IDs; a machine may get its ID late
	sender, receiver wire.Codec
	bytes            []byte
	messages         []*raftpb.Message
}

// mail returns that of a link.
func (w *world) mail(from, to *node) *mail {
	m := &w.link(from, to).mail
	if m.from != from.id || m.to != to.id {
		*m = mail{from: from.id, to: to.id, sender: codec(from, to), receiver: codec(to, from)}
	}
	return m
}

// feed passes bytes to f in pieces.
func (w *world) feed(b []byte, f func(piece []byte) error) error {
	for range w.pieces.Uint64() % 3 {
		n := int(w.pieces.Uint64() % uint64(len(b)+1))
		if err := f(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return f(b)
}

// parse has a node read what another one has sent, and appends the messages to msgs. A defect ends the run.
func (w *world) parse(c *wire.Codec, msgs []*raftpb.Message, b []byte) []*raftpb.Message {
	if w.pieces.IntN(8) == 0 {
		b = append(wire.AppendPing(nil), b...)
	}
	err := w.feed(b, func(piece []byte) (err error) {
		msgs, err = c.Parse(msgs, piece)
		return err
	})
	if err != nil {
		w.fail("what one node sends, another cannot read: %w", err)
	}
	return msgs
}

// carry returns a message as its receiver decodes it, which must be the one that was sent.
func (w *world) carry(from, to *node, m *raftpb.Message) *raftpb.Message {
	l, frameMax := w.mail(from, to), wire.FrameSizeMax
	if w.pieces.IntN(4) == 0 {
		frameMax = 6 + w.pieces.IntN(100) // most messages that are not heartbeats travel in parts
	}
	l.sender.SetFrameMax(frameMax)
	if l.bytes = l.sender.Append(l.bytes[:0], m); len(l.bytes) == 0 {
		w.fail("node %d cannot send {%v} to node %d", from.id, m, to.id)
		return m
	}
	l.messages = w.parse(&l.receiver, l.messages[:0], l.bytes)
	if len(l.messages) != 1 || !sameMessage(l.messages[0], m) {
		w.fail("node %d sends {%v}, and it is read as %v", from.id, m, l.messages)
		return m
	}
	return l.messages[0]
}

// carryUpdate returns a hello that replaces the one of the handshake.
func (w *world) carryUpdate(from, to *node, h replica.Hello) (told replica.Hello) {
	sender, receiver := codec(from, to), wire.NewCodec(to.id, wire.Hello{NodeID: from.id, Session: h.Session})
	receiver.OnUpdate(func(h wire.Hello) { told = replica.Hello(h) })
	w.parse(&receiver, nil, sender.AppendUpdate(nil, wire.Hello(h)))
	if h != told {
		w.fail("a hello %+v is read as %+v", h, told)
	}
	return told
}

// carryClock returns a reading of a clock.
func (w *world) carryClock(from, to *node, wall int64) (told int64) {
	c := codec(to, from)
	c.OnClock(func(now int64) { told = now })
	w.parse(&c, nil, wire.AppendClock(nil, wall))
	return told
}

// carryAsk returns a question for the cluster clock.
func (w *world) carryAsk(from, to *node, nonce uint64) (told uint64) {
	c := codec(to, from)
	c.OnClockAsk(func(nonce uint64) { told = nonce })
	w.parse(&c, nil, wire.AppendClockAsk(nil, nonce))
	return told
}

// carryOwnerAsk returns a question of an owner of timelines.
func (w *world) carryOwnerAsk(from, to *node, q replica.OwnerAsk) (told replica.OwnerAsk) {
	c := codec(to, from)
	c.OnOwnerAsk(func(session, round uint64) { told = replica.OwnerAsk{Peer: from.id, Session: session, Round: round} })
	w.parse(&c, nil, wire.AppendOwnerAsk(nil, q.Session, q.Round))
	return told
}

// carryOwnerTold returns an answer to that.
func (w *world) carryOwnerTold(from, to *node, a replica.OwnerAnswer) (told replica.OwnerAnswer) {
	c := codec(to, from)
	c.OnOwnerTold(func(session, round, fence uint64) {
		told = replica.OwnerAnswer{OwnerAsk: replica.OwnerAsk{Peer: from.id, Session: session, Round: round}, Fence: fence}
	})
	w.parse(&c, nil, wire.AppendOwnerTold(nil, a.Session, a.Round, a.Fence))
	return told
}

// carryReading returns an answer to that.
func (w *world) carryReading(from, to *node, nonce uint64, r interval.Reading) (answer replica.ClockAnswer) {
	c := codec(to, from)
	c.OnClockTold(func(nonce uint64, r interval.Reading) {
		answer = replica.ClockAnswer{Peer: from.id, Nonce: nonce, Reading: r}
	})
	w.parse(&c, nil, wire.AppendClockTold(nil, nonce, r))
	if answer.Nonce != nonce || answer.Reading != r {
		w.fail("an answer %d with the reading %+v is read as %+v", nonce, r, answer)
	}
	return answer
}

// ownHello returns what a node says about itself in a handshake.
func ownHello(n *node) func() wire.Hello {
	return func() wire.Hello { return wire.Hello(n.replica.Hello()) }
}

// admission has a node judge a hello.
func admission(n *node) func(wire.Hello) *wire.Refusal {
	return func(h wire.Hello) *wire.Refusal {
		if r := n.replica.Admit(replica.Hello(h)); r != nil {
			return wire.Refusalf(wire.RefusalCode(r.Code), "%s", r.Message)
		}
		return nil
	}
}

// frame returns the one frame that some bytes are.
func (w *world) frame(b []byte) (f wire.Frame) {
	var d wire.Decoder
	d.SetHandshake(true)
	found := false
	err := w.feed(b, func(piece []byte) (err error) {
		d.Feed(piece)
		if !found {
			f, found, err = d.Next()
		}
		return err
	})
	if err != nil || !found {
		w.fail("%d bytes of a handshake are no frame: %w", len(b), err)
	}
	return f
}

// shake has a node take a step of a handshake with another one, and returns what it answers. If it
// refuses, it sends that, and ok is false.
func (w *world) shake(by, other *node, h *wire.Handshake, sent []byte) (answer []byte, ok bool) {
	out, err := h.Step(w.frame(sent), nil)
	if err == nil {
		return out, true
	}
	var refused *wire.RefusedError
	if !errors.As(err, &refused) || refused.By != wire.Self {
		w.fail("the handshake of nodes %d and %d fails: %w", by.id, other.id, err)
		return nil, false
	}
	session := other.session
	w.after(w.transit(), func() {
		if other.session != session || !other.up() {
			return
		}
		r, err := wire.ParseRefusal(w.frame(out).Payload)
		if err != nil || *r != *refused.Refusal {
			w.fail("a refusal %v is read as %v, %w", refused.Refusal, r, err)
			return
		}
		w.refused(other, by, &replica.Refusal{Code: replica.RefusalCode(r.Code), Message: r.Message})
	})
	return nil, false
}
