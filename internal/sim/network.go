package sim

import (
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/replica"
)

// link is one direction between two nodes.
type link struct {
	blocked int // how many faults block it at the moment
}

// weather is how bad the network is, for all links.
type weather struct {
	loss, double float64
	base, spread time.Duration
	// tail is the probability of a long delay.
	tail float64
}

// conn is the connection of a pair of nodes: up while both have admitted each other.
type conn struct {
	up       bool
	sessions [2]uint64
}

func (w *world) link(from, to *node) *link { return &w.links[from.slot][to.slot] }

func (w *world) conn(a, b *node) *conn {
	return &w.conns[min(a.slot, b.slot)][max(a.slot, b.slot)]
}

// connected reports whether a and b talk to each other in their present lives.
func (w *world) connected(a, b *node) bool {
	c := w.conn(a, b)
	return c.up && c.sessions == sessions(a, b)
}

func sessions(a, b *node) [2]uint64 {
	if a.slot > b.slot {
		a, b = b, a
	}
	return [2]uint64{a.session, b.session}
}

// redial keeps trying to connect a pair, for ever.
func (w *world) redial(a, b *node) {
	w.after(w.between(w.cfg.tick/2, 4*w.cfg.tick), func() {
		w.handshake(a, b)
		w.redial(a, b)
	})
}

// handshake lets two nodes admit each other, at one moment: hellos say what is on
// disk when they are sent, and the peer package sends them as late as it can.
func (w *world) handshake(a, b *node) {
	if w.connected(a, b) || !a.up() || !b.up() || a.paused || b.paused || w.link(a, b).blocked+w.link(b, a).blocked > 0 {
		return
	}
	if !a.knows(b) || !b.knows(a) {
		return // the transport refuses whom SetPeers does not name
	}
	ha, hb := a.replica.Hello(), b.replica.Hello()
	if r := b.replica.Admit(ha); r != nil {
		w.refused(a, b, r)
		return
	}
	if r := a.replica.Admit(hb); r != nil {
		w.refused(b, a, r)
		return
	}
	*w.conn(a, b) = conn{up: true, sessions: sessions(a, b)}
	w.note('c', a.id, b.id)
	a.in.hellos = append(a.in.hellos, hb)
	b.in.hellos = append(b.in.hellos, ha)
	w.wake(a)
	w.wake(b)
}

// refused is what becomes of a node whose hello another member did not accept.
func (w *world) refused(n, by *node, r *replica.Refusal) {
	w.trace("node %d refuses node %d: %v", by.id, n.id, r)
	w.note('r', n.id, by.id)
	if !r.Code.IsFinal() {
		return
	}
	if n.tampered == "" {
		w.fail("I6: node %d refused node %d, whose disk is in order: %v", by.id, n.id, r)
		return
	}
	w.crash(n)
	n.refused = true
}

// hangUp drops the connections of n.
func (w *world) hangUp(n *node) {
	for _, o := range w.nodes {
		if o != n {
			w.conn(n, o).up = false
		}
	}
}

// send puts messages on the network.
func (w *world) send(from *node, msgs []*raftpb.Message) {
	for _, m := range msgs {
		to := w.node(m.GetTo())
		if to == nil || to == from {
			continue
		}
		copies := 1
		switch {
		case w.link(from, to).blocked > 0 || w.chance(w.weather.loss):
			copies = 0
		case w.chance(w.weather.double):
			copies = 2
		}
		for range copies {
			w.after(w.transit(), w.delivery(from, to, m))
		}
	}
}

func (w *world) transit() time.Duration {
	d := w.weather.base + time.Duration(w.rng.Int64N(int64(w.weather.spread)+1))
	if w.chance(w.weather.tail) {
		d += w.between(0, 2*time.Second)
	}
	return d
}

// delivery makes a message arrive, if the receiver still lives the life in which it
// admitted the sender. Messages of a sender that died meanwhile do arrive.
func (w *world) delivery(from, to *node, m *raftpb.Message) func() {
	m = isolate(m)
	session := to.session
	return func() {
		if to.session != session || !to.up() || !w.conn(from, to).up {
			return
		}
		w.note('m', from.id, to.id, uint64(m.GetType()), m.GetTerm(), m.GetIndex())
		to.in.messages = append(to.in.messages, m)
		w.wake(to)
	}
}

// isolate keeps the receiver's log from growing into the array that holds the
// sender's, as decoding would.
func isolate(m *raftpb.Message) *raftpb.Message {
	if len(m.GetEntries()) == 0 {
		return m
	}
	return &raftpb.Message{
		Type: m.Type, To: m.To, From: m.From, Term: m.Term, LogTerm: m.LogTerm, Index: m.Index,
		Entries: append([]*raftpb.Entry(nil), m.GetEntries()...), Commit: m.Commit, Snapshot: m.GetSnapshot(),
		Reject: m.Reject, RejectHint: m.RejectHint, Context: m.GetContext(), Vote: m.Vote,
	}
}
