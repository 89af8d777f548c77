package sim

import (
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/wire"
)

// link is one direction between two nodes.
type link struct {
	blocked int // number of faults that block it
	mail    mail
}

// weather is the quality of all links. loss and double are probabilities.
type weather struct {
	loss, double float64
	base, spread time.Duration
	// tail is the probability of a long delay.
	tail float64
}

// conn is the connection of a pair of nodes. Each end is up once its node has admitted the
// other, in the sessions in which they did. The node in the lower slot comes first.
type conn struct {
	up       [2]bool
	sessions [2]uint64
	dialing  [2]uint64 // the sessions of the handshake that is under way
	asked    time.Duration
}

// askTicks is how long a node hears of no leader before it makes itself known to members with higher IDs, which would dial it if
// they knew it; as in internal/node.
const askTicks = 200

func (w *world) link(from, to *node) *link { return &w.links[from.slot][to.slot] }

func (w *world) conn(a, b *node) *conn {
	return &w.conns[min(a.slot, b.slot)][max(a.slot, b.slot)]
}

// connected reports whether a and b are connected in their present sessions.
func (w *world) connected(a, b *node) bool {
	c := w.conn(a, b)
	return c.up == [2]bool{true, true} && c.sessions == sessions(a, b)
}

// end returns the index of n's end of a connection.
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

// redial tries to connect a pair, for ever.
func (w *world) redial(a, b *node) {
	w.after(w.between(w.cfg.tick/2, 4*w.cfg.tick), func() {
		if c := w.conn(a, b); !w.connected(a, b) && c.dialing != sessions(a, b) {
			w.dial(a, b)
		}
		w.redial(a, b)
	})
}

// dial runs a handshake of internal/core/wire; of the two nodes, the one with the higher ID dials. A
// hello may arrive late, when its node has confirmed more through others.
func (w *world) dial(dialer, acceptor *node) {
	if dialer.id < acceptor.id {
		dialer, acceptor = acceptor, dialer
	}
	if dialer.id == acceptor.id || !dialer.up() || !acceptor.up() || dialer.paused {
		return
	}
	if !dialer.knows(acceptor) {
		w.askPeer(acceptor, dialer)
		return
	}
	if !w.finds(dialer, acceptor) {
		w.askPeer(acceptor, dialer)
		return
	}
	c, lives := w.conn(dialer, acceptor), sessions(dialer, acceptor)
	c.dialing = lives
	d := wire.NewDialer(ownHello(dialer), acceptor.id, admission(dialer))
	a := wire.NewAcceptor(ownHello(acceptor), admission(acceptor))
	hello, err := d.Start(nil)
	if err != nil {
		w.fail("node %d cannot send its hello: %w", dialer.id, err)
	}
	w.handshakeStep(dialer, acceptor, lives, func() bool {
		welcome, ok := w.shake(acceptor, dialer, a, hello)
		if !ok {
			return false
		}
		w.handshakeStep(acceptor, dialer, lives, func() bool {
			ready, ok := w.shake(dialer, acceptor, d, welcome)
			if !ok {
				return false
			}
			*c = conn{sessions: lives, dialing: lives, asked: w.now}
			dialer.reached(acceptor)
			w.open(dialer, acceptor, replica.Hello(d.Peer()))
			w.handshakeStep(dialer, acceptor, lives, func() bool {
				if _, ok := w.shake(acceptor, dialer, a, ready); ok {
					w.open(acceptor, dialer, replica.Hello(a.Peer()))
				}
				return false
			})
			return true
		})
		return true
	})
}

// askPeer has n, if it hears of no leader or leads, make itself known to a member that does not dial it, as internal/host/peer does
// (Transport.Ask). That leads to no connection: the other one dials then.
func (w *world) askPeer(n, to *node) {
	c := w.conn(n, to)
	switch s := n.replica.Brief(); {
	case s.Leader != raft.None && s.Leader != n.id || s.Forming || !n.knows(to):
		c.asked = w.now
	case w.now-c.asked < askTicks*w.cfg.tick || n.paused || to.paused || w.link(n, to).blocked > 0 || w.link(to, n).blocked > 0:
	default:
		c.asked = w.now
		w.meets(to, n, to.id)
	}
}

// handshakeStep delivers one step of a handshake: late if the node is paused or the link is
// blocked or loses it, and never after handshakeTimeout or the end of a session. then reports
// whether the handshake goes on.
func (w *world) handshakeStep(from, to *node, lives [2]uint64, then func() bool) {
	late := w.now + handshakeTimeout
	c := w.conn(from, to)
	var arrive func()
	arrive = func() {
		again := to.paused || w.link(from, to).blocked > 0 || w.chance(w.weather.loss)
		switch {
		case lives != sessions(from, to) || !to.up():
			return // new sessions dial again
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

// handshakeTimeout is that of internal/host/peer.
const handshakeTimeout = 2 * time.Second

// open opens n's end of its connection to a peer.
func (w *world) open(n, to *node, h replica.Hello) {
	if !n.knows(to) {
		w.conn(n, to).dialing = [2]uint64{}
		return
	}
	w.conn(n, to).up[end(n, to)] = true
	for _, o := range w.nodes {
		if o != to && o.id == to.id && o != n {
			w.conn(n, o).up = [2]bool{} // of two processes with one ID the latest is connected
		}
	}
	w.note('c', n.id, to.id)
	n.in.hellos = append(n.in.hellos, h)
	w.wake(n)
}

// announce sends the hello of n to all connected peers.
func (w *world) announce(n *node) {
	h := n.replica.Hello()
	for _, o := range w.nodes {
		if o == n || !w.connected(n, o) || w.link(n, o).blocked > 0 || w.chance(w.weather.loss) {
			continue
		}
		lives := sessions(n, o)
		h := w.carryUpdate(n, o, h)
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

// sendClock sends a reading of the clock of n to all connected peers.
func (w *world) sendClock(n *node) {
	wall, _ := n.clock.read(w.now)
	for _, o := range w.nodes {
		if o == n || !w.connected(n, o) || w.link(n, o).blocked > 0 || w.chance(w.weather.loss) {
			continue
		}
		lives, told := sessions(n, o), w.carryClock(n, o, int64(wall))
		w.after(w.transit(), func() {
			if w.connected(n, o) && lives == sessions(n, o) {
				o.in.clocks = append(o.in.clocks, replica.PeerClock{ID: n.id, Wall: told})
				w.wake(o)
			}
		})
	}
}

// refused handles a refusal at the node n.
func (w *world) refused(n, by *node, r *replica.Refusal) {
	w.trace("node %d refuses node %d: %v", by.id, n.id, r)
	w.note('r', n.id, by.id)
	err := n.replica.Refused(by.id, r)
	if err == nil {
		return
	}
	if (r.Code == replica.RefusedMember || r.Code == replica.RefusedRemoved) && !w.isMemberNow(n) {
		w.trace("node %d ends, as it was removed", n.id)
	} else if n.tampered == "" && !w.cfg.formation.mayFail() {
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
		if o.up() && (latest == nil || o.replica.Brief().Applied > latest.replica.Brief().Applied) {
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
	return ok && w.removedAt[n.id] == 0 // the one that has applied its removal may be down
}

// disconnect drops the connections of n.
func (w *world) disconnect(n *node) {
	for _, o := range w.nodes {
		if o == n {
			continue
		}
		if w.conn(n, o).up[end(o, n)] && w.link(n, o).blocked == 0 && !w.chance(w.weather.loss) {
			w.tellGone(o, n, w.chance(0.8))
		}
		w.conn(n, o).up = [2]bool{}
	}
}

// tellGone tells o that its connection to n has ended, and, if the address of n refuses
// connections, that too, soon after.
func (w *world) tellGone(o, n *node, refuses bool) {
	session := o.session
	w.after(w.transit(), func() {
		if o.session != session || !o.up() || w.conn(n, o).up[end(o, n)] {
			return
		}
		o.in.gone = append(o.in.gone, n.id)
		w.wake(o)
		if !refuses {
			return
		}
		w.after(w.transit(), func() {
			if o.session == session && o.up() {
				o.in.refused = append(o.in.refused, n.id)
				w.wake(o)
			}
		})
	})
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
		case w.now < to.deafUntil && (m.GetType() == raftpb.MsgApp || m.GetType() == raftpb.MsgSnap):
			copies = 0
		case w.link(from, to).blocked > 0 || w.chance(w.weather.loss):
			copies = 0
		case w.chance(w.weather.double):
			copies = 2
		}
		for range copies {
			w.after(w.transit(), w.delivery(from, to, m))
		}
		if m.GetType() == raftpb.MsgProp && w.chance(w.cfg.ids.echo) {
			// Once more, perhaps out of date.
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

// delivery returns the arrival of a message, in the receiver's present session only. Messages
// of a sender that died meanwhile do arrive.
func (w *world) delivery(from, to *node, m *raftpb.Message) func() {
	m = w.carry(from, to, m)
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
