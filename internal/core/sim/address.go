package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/route"
	"github.com/isotone/isotone/internal/core/wire"
)

// The addresses of machines. A machine answers only at its present address, and a node dials as
// internal/core/route says, what is on record and what its PEERS say. In some runs all machines
// change their addresses at once, perhaps to those of one another, and an operator edits PEERS; and
// what a node calls itself in its own PEERS may be an address that nobody else reaches. That has a
// source of randomness of its own; in all other runs each machine is found at once.

const (
	// movingRuns is one in how many runs has machines that move.
	movingRuns = 6
	// wrongOwnShare is the share of machines in such runs whose own entry is wrong.
	wrongOwnShare = 0.3
)

// addresses draws the moves of a run.
type addresses struct {
	rng    *rand.Rand
	moves  bool
	number int // of the latest address that was given out
}

// place is where a machine is, and what it knows of where others are.
type place struct {
	addr string
	// edited is set once an operator has written PEERS on a machine that joined.
	edited bool
	// own is what it calls itself in its PEERS. peers has the others there: by node ID, and by member ID, as
	// a node that joins is told.
	own   string
	peers map[uint64]string
	// routes are those of its process to the other members.
	routes map[uint64]*route.Route
}

func newAddresses(seed uint64) addresses {
	a := addresses{rng: rand.New(rand.NewPCG(seed, 0xadd2ee0))}
	a.moves = a.rng.IntN(movingRuns) == 0
	return a
}

// next returns an address that no machine has had.
func (a *addresses) next() string {
	a.number++
	return fmt.Sprintf("10.0.0.%d:1", a.number)
}

// place gives a new machine an address.
func (w *world) place(n *node) { n.place.addr = w.addresses.next() }

// addrOf returns the address of the machine of a member, a new one if there is none yet.
func (w *world) addrOf(id uint64) string {
	if n := w.node(id); n != nil {
		return n.place.addr
	}
	return w.addresses.next()
}

// runMoves moves all machines now and then while there are faults.
func (w *world) runMoves() {
	a := &w.addresses
	if !a.moves {
		return
	}
	w.after(w.cfg.tick*time.Duration(20+a.rng.IntN(400)), func() {
		if w.closing || w.healing {
			return
		}
		if !w.quiet && !w.isReplacing() {
			w.moveAll()
		}
		w.runMoves()
	})
}

// isReplacing reports whether a node has two machines, as while its member is replaced: PEERS can name
// one of them only.
func (w *world) isReplacing() bool {
	machines := map[uint64]int{}
	for _, n := range w.nodes {
		if !n.refused {
			machines[oracle.NodeOf(n.id)]++
		}
	}
	return slices.ContainsFunc(w.nodes, func(n *node) bool { return machines[oracle.NodeOf(n.id)] > 1 })
}

// moveAll stops all processes, changes the addresses of the machines, edits PEERS on all of them, and
// starts the processes again, one after the other.
func (w *world) moveAll() {
	a := &w.addresses
	var old []string
	for _, n := range w.nodes {
		w.crash(n)
		old = append(old, n.place.addr)
	}
	shift := 1 + a.rng.IntN(len(old)) // by how many machines the old addresses move on; all of them: they are given up
	for i, n := range w.nodes {
		n.place.edited = true
		if n.place.addr = old[(i+shift)%len(old)]; shift == len(old) {
			n.place.addr = a.next()
		}
	}
	w.noteFault(MoveAll, 0, 0)
	if shift == len(old) {
		w.moveClients()
	}
	for _, n := range w.nodes {
		w.writePeers(n)
		if !n.refused {
			w.restart(n, w.cfg.tick*time.Duration(a.rng.IntN(20)))
		}
	}
}

// writePeers writes PEERS on the machine of a node, with the present addresses of all.
func (w *world) writePeers(n *node) {
	p, a := &n.place, &w.addresses
	p.peers, p.own = map[uint64]string{}, p.addr
	for _, o := range w.nodes {
		if o.id == n.id || o.refused || o.tampered == Copy.String() {
			continue
		}
		p.peers[o.id] = o.place.addr
		if node := oracle.NodeOf(o.id); p.peers[node] == "" { // while a node has two members, the first one has its ID
			p.peers[node] = o.place.addr
		}
	}
	if a.moves && a.rng.Float64() < wrongOwnShare {
		p.own = []string{"localhost:1", "inside-" + p.addr}[a.rng.IntN(2)]
		w.noteFault(OwnEntry, n.id, 0)
	}
}

// setUpAddresses prepares the addresses of a process that starts.
func (w *world) setUpAddresses(n *node) {
	n.place.routes = map[uint64]*route.Route{}
	if n.place.peers == nil {
		w.writePeers(n)
	}
	n.founders = slices.Clone(n.founders)
	for i, m := range n.founders {
		n.founders[i].PeerAddr = n.place.configured(n, m.ID)
	}
}

// configured returns the address of a member in the PEERS of n.
func (p *place) configured(n *node, id uint64) string {
	if id == n.id {
		return p.own
	}
	return cmp.Or(p.peers[id], p.peers[oracle.NodeOf(id)])
}

// ownAddr returns the peer address that the process of n is started with, and whether it is from its
// PEERS, or else where it listens.
func (n *node) ownAddr() (addr string, configured bool) {
	if n.founders == nil && (!n.place.edited || n.disk.durable.snapshot == nil) {
		return n.place.addr, false
	}
	return n.place.own, true
}

// finds makes an attempt to dial a member, and reports whether it has led to its machine.
func (w *world) finds(dialer, acceptor *node) bool {
	if !w.addresses.moves {
		return true
	}
	r := dialer.place.routes[acceptor.id]
	if r == nil {
		r = &route.Route{}
		dialer.place.routes[acceptor.id] = r
	}
	configured := func(id uint64) string { return dialer.place.configured(dialer, id) }
	known := []string{configured(acceptor.id)} // all that a node knows that joins
	for _, p := range dialer.replica.PeerAddrs(configured) {
		if p.ID == acceptor.id {
			known = p.Addrs
		}
	}
	r.Know(known...)
	addr := r.Next()
	for _, o := range w.nodes {
		if o != dialer && o != acceptor && o.up() && !o.paused && o.place.addr == addr && w.meets(o, dialer, acceptor.id) {
			_ = o.replica.Refused(dialer.id, &replica.Refusal{Code: "wrong_node"}) // the dialer tells it, and hangs up
		}
	}
	return addr == acceptor.place.addr
}

// meets reports whether a node admits another one that takes it for a third.
func (w *world) meets(o, dialer *node, third uint64) bool {
	d := wire.NewDialer(ownHello(dialer), third, admission(dialer))
	hello, err := d.Start(nil)
	if err != nil {
		w.fail("node %d cannot send its hello: %w", dialer.id, err)
		return false
	}
	_, ok := w.shake(o, dialer, wire.NewAcceptor(ownHello(o), admission(o)), hello)
	return ok
}

// reached notes that the latest attempt of n to dial a member has reached it.
func (n *node) reached(o *node) {
	if r := n.place.routes[o.id]; r != nil {
		r.Reached()
	}
}
