package sim

import (
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/replica"
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

// conn is the connection of a pair of nodes. Each end is up once its node has admitted
// the other, and only for the lives in which they did.
type conn struct {
	up       [2]bool // of the node in the lower slot, of the other
	sessions [2]uint64
	dialing  [2]uint64 // the lives between which a handshake is under way
}

func (w *world) link(from, to *node) *link { return &w.links[from.slot][to.slot] }

func (w *world) conn(a, b *node) *conn {
	return &w.conns[min(a.slot, b.slot)][max(a.slot, b.slot)]
}

// connected reports whether a and b talk to each other in their present lives.
func (w *world) connected(a, b *node) bool {
	c := w.conn(a, b)
	return c.up == [2]bool{true, true} && c.sessions == sessions(a, b)
}

// end is which of a connection's two ends is n's.
func end(n, other *node) int {
	if n.slot > other.slot {
		return 1
	}
	return 0
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
		if c := w.conn(a, b); !w.connected(a, b) && c.dialing != sessions(a, b) {
			w.dial(a, b)
		}
		w.redial(a, b)
	})
}

// dial lets two nodes admit each other, in the steps of the peer package: the dialer's
// hello, the acceptor's welcome, the dialer's ready. A hello says what is on disk when
// it is sent; it may arrive late, when more has been confirmed on other ways.
func (w *world) dial(dialer, acceptor *node) {
	if !dialer.up() || !acceptor.up() || dialer.paused || !dialer.knows(acceptor) {
		return
	}
	c, lives := w.conn(dialer, acceptor), sessions(dialer, acceptor)
	c.dialing = lives
	hello := dialer.replica.Hello()
	w.carry(dialer, acceptor, lives, func() bool {
		if !w.admit(acceptor, dialer, hello) {
			return false
		}
		welcome := acceptor.replica.Hello()
		w.carry(acceptor, dialer, lives, func() bool {
			if !w.admit(dialer, acceptor, welcome) {
				return false
			}
			*c = conn{sessions: lives, dialing: lives}
			w.open(dialer, acceptor, welcome)
			w.carry(dialer, acceptor, lives, func() bool {
				w.open(acceptor, dialer, hello)
				return false
			})
			return true
		})
		return true
	})
}

// carry brings one step of a handshake to a node: late when the node is paused, the link
// is blocked or loses packets, and not at all when it took too long or one of the two
// lives is over. then reports whether the handshake goes on.
func (w *world) carry(from, to *node, lives [2]uint64, then func() bool) {
	late := w.now + handshakeTimeout
	c := w.conn(from, to)
	var arrive func()
	arrive = func() {
		again := to.paused || w.link(from, to).blocked > 0 || w.chance(w.weather.loss)
		switch {
		case lives != sessions(from, to) || !to.up():
			return // of other lives, which dial on their own
		case again && w.now < late:
			w.after(w.between(w.cfg.tick/2, 5*w.cfg.tick), arrive)
		case again || !then():
			c.dialing = [2]uint64{}
		}
	}
	delay := w.transit()
	if !w.quiet && w.chance(w.cfg.slowDial) {
		delay += w.between(0, 20*w.cfg.tick)
	}
	w.after(delay, arrive)
}

// handshakeTimeout is the peer package's.
const handshakeTimeout = 2 * time.Second

// admit asks by whether it takes a hello of n, and sends n the refusal if not.
func (w *world) admit(by, n *node, h replica.Hello) bool {
	r := by.replica.Admit(h)
	if r == nil {
		return true
	}
	session := n.session
	w.after(w.transit(), func() {
		if n.session == session && n.up() {
			w.refused(n, by, r)
		}
	})
	return false
}

// open opens n's end of its connection to a peer.
func (w *world) open(n, to *node, h replica.Hello) {
	if !n.knows(to) {
		w.conn(n, to).dialing = [2]uint64{}
		return
	}
	w.conn(n, to).up[end(n, to)] = true
	w.note('c', n.id, to.id)
	n.in.hellos = append(n.in.hellos, h)
	w.wake(n)
}

// announce tells all connected peers the hello of n again.
func (w *world) announce(n *node) {
	h := n.replica.Hello()
	for _, o := range w.nodes {
		if o == n || !w.connected(n, o) || w.link(n, o).blocked > 0 || w.chance(w.weather.loss) {
			continue
		}
		lives := sessions(n, o)
		w.after(w.transit(), func() {
			switch {
			case !w.connected(n, o) || lives != sessions(n, o):
			case o.replica.Admit(h) != nil:
				w.conn(n, o).up = [2]bool{}
			default:
				o.in.hellos = append(o.in.hellos, h)
				w.wake(o)
			}
		})
	}
}

// tellClock tells all connected peers what the clock of n shows.
func (w *world) tellClock(n *node) {
	wall, _ := n.clock.read(w.now)
	for _, o := range w.nodes {
		if o == n || !w.connected(n, o) || w.link(n, o).blocked > 0 || w.chance(w.weather.loss) {
			continue
		}
		lives := sessions(n, o)
		w.after(w.transit(), func() {
			if w.connected(n, o) && lives == sessions(n, o) {
				o.in.clocks = append(o.in.clocks, replica.PeerClock{ID: n.id, Wall: int64(wall)})
				w.wake(o)
			}
		})
	}
}

// refused is what becomes of a node whose hello another member did not accept.
func (w *world) refused(n, by *node, r *replica.Refusal) {
	w.trace("node %d refuses node %d: %v", by.id, n.id, r)
	w.note('r', n.id, by.id)
	err := n.replica.Refused(by.id, r)
	if err == nil {
		return
	}
	if r.Code == replica.RefusedMember && !w.isMemberNow(n) {
		w.trace("node %d ends, as it was removed", n.id)
	} else if n.tampered == "" && !w.cfg.birth.mayFail() {
		w.fail("I6: node %d, whose disk is in order: %v", n.id, err)
		return
	}
	w.crash(n)
	n.refused = true
}

// latest returns the running node that has applied most, nil if none runs.
func (w *world) latest() *node {
	var latest *node
	for _, o := range w.nodes {
		if o.up() && (latest == nil || o.replica.Status().Applied > latest.replica.Status().Applied) {
			latest = o
		}
	}
	return latest
}

// isMemberNow reports whether the node that has applied most counts n among the members.
func (w *world) isMemberNow(n *node) bool {
	latest := w.latest()
	if latest == nil {
		return false
	}
	_, ok := w.member(latest, n.id)
	return ok
}

// hangUp drops the connections of n.
func (w *world) hangUp(n *node) {
	for _, o := range w.nodes {
		if o != n {
			w.conn(n, o).up = [2]bool{}
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
		if m.GetType() == raftpb.MsgProp && w.chance(w.cfg.ids.echo) {
			// Once more, when what it was about may be over.
			w.after(w.between(0, 100*w.cfg.tick), w.delivery(from, to, m))
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
		if to.session != session || !to.up() || !w.conn(from, to).up[end(to, from)] {
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
