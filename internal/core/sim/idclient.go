package sim

import (
	"fmt"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// idClient is a client that makes ids itself, by a worker lease from the cluster.
type idClient struct {
	id      int
	session uint64
	fixed   int
	clock   clock
	// maker is nil while it holds no lease. used is the Start of its latest lease of each
	// worker, so that it makes only one generator for a lease.
	maker *maker
	used  map[uint16]uint64
	call  *leaseCall // the request on its way, nil if there is none
	pause time.Duration
}

// leaseCall is a request on its way. It belongs to one session, or is an operator's.
type leaseCall struct {
	client  *idClient
	release bool
	revoke  *oracle.Revocation // an operator's; nil: a client's
	over    bool               // answered, or given up
}

func (w *world) newIDClient(id int) *idClient {
	l := &idClient{id: id, clock: newClock(), pause: w.between(w.cfg.tick/2, 10*w.cfg.tick)}
	l.clock.rate = w.drawRate()
	w.begin(l)
	w.runIDClient(l)
	return l
}

// begin starts a new process of the client.
func (w *world) begin(l *idClient) {
	l.session, l.maker, l.call, l.used, l.fixed = w.rng.Uint64()|1, nil, nil, map[uint16]uint64{}, oracle.AnyWorker
	if w.chance(w.cfg.ids.fixed) {
		l.fixed = w.rng.IntN(min(3, w.cfg.ids.layout.Workers()))
	}
}

func (w *world) runIDClient(l *idClient) {
	w.after(w.between(0, 2*l.pause), func() {
		if w.closing {
			return
		}
		w.stepIDClient(l)
		w.runIDClient(l)
	})
}

// stepIDClient lets the client do one thing at random and then make ids.
func (w *world) stepIDClient(l *idClient) {
	switch {
	case w.chance(0.005) && !w.quiet:
		l.clock.settle(w.now)
		l.clock.wall = worldStart + w.now + w.between(-2*time.Second, 2*time.Second)
	case w.chance(0.01):
		w.begin(l) // it died and released nothing
	case l.maker != nil && l.call == nil && w.chance(0.02):
		u := l.maker.stop()
		w.ledger.giveBack(&w.stats, l.maker.lease)
		l.maker = nil
		w.sendLease(l, replica.LeaseRequest{Session: l.session, Release: &u})
	case l.call == nil && w.needsLease(l):
		wall, _ := l.clock.read(w.now)
		w.sendLease(l, replica.LeaseRequest{
			Session: l.session, Space: oracle.Space(w.cfg.ids.layout), Fixed: l.fixed,
			FromMillis: uint64(wall / time.Millisecond), LengthMillis: w.cfg.ids.leaseMillis,
		})
	}
	if l.maker != nil {
		w.make(l.maker)
	}
}

func (w *world) needsLease(l *idClient) bool {
	if l.maker == nil {
		return true
	}
	wall, _ := l.clock.read(w.now)
	return l.maker.lease.End < uint64(wall/time.Millisecond)+w.cfg.ids.leaseMillis*3/4
}

// sendLease sends a request to a node, mostly to the leader.
func (w *world) sendLease(l *idClient, q replica.LeaseRequest) {
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	if lead := w.leader(); lead != nil && w.chance(0.8) {
		n = lead
	}
	k := &leaseCall{client: l, release: q.Release != nil}
	l.call = k
	giveUp := func() {
		if k.over = true; l.call == k {
			l.call = nil
		}
	}
	w.after(w.clientTransit(), func() {
		if !n.up() {
			giveUp()
			return
		}
		q.Token = uint64(len(n.leaseCalls))
		n.leaseCalls = append(n.leaseCalls, k)
		n.in.leases = append(n.in.leases, q)
		w.wake(n)
	})
	w.after(w.between(5*w.cfg.tick, 100*w.cfg.tick), giveUp)
}

// answerLease sends an answer back to a client.
func (w *world) answerLease(n *node, a replica.LeaseAnswer) {
	k := n.leaseCalls[a.Token]
	if k == nil {
		w.fail("node %d answers lease request %d twice", n.id, a.Token)
		return
	}
	n.leaseCalls[a.Token] = nil
	if k.revoke != nil {
		w.revoked(*k.revoke, a)
		return
	}
	layout := w.cfg.ids.layout
	if a.Err == nil && !k.release && a.Space != oracle.Space(layout) {
		w.fail("I9: a client of layout %v is granted worker %d of %+v", layout, a.Worker, a.Space)
	}
	w.after(w.clientTransit(), func() {
		l := k.client
		if k.over || l.call != k {
			return
		}
		k.over, l.call = true, nil
		if a.Err != nil || k.release {
			w.countRefusal(a.Err)
			if a.Err != nil && a.Err.Code == isotone.CodeNoWorker && l.maker != nil {
				w.changeSession(l)
			}
			return
		}
		w.grant(l, a)
	})
}

func (w *world) countRefusal(err *isotone.Error) {
	if err != nil && err.Code != isotone.CodeNotLeader && err.Code != isotone.CodeNoLeader {
		w.stats.WorkerRefusals++
	}
}

// changeSession lets a client whose lease is not renewed ask for another one in a new session,
// while it goes on with the one that it has.
func (w *world) changeSession(l *idClient) {
	if w.revoker.acts && w.revoker.rng.IntN(2) == 0 {
		l.session = w.revoker.rng.Uint64() | 1
	}
}

// grant handles the lease that a client was told of.
func (w *world) grant(l *idClient, a replica.LeaseAnswer) {
	if m := l.maker; m != nil && m.lease.Worker == a.Worker && m.lease.Start == a.Start {
		if a.End > m.lease.End {
			w.stats.WorkerRenewals++
			m.extend(a.End)
		}
		return
	}
	if a.Start <= l.used[a.Worker] {
		return // it has released that one
	}
	if l.maker != nil {
		l.maker.stop()
	}
	l.used[a.Worker] = a.Start
	l.maker = w.newMaker(fmt.Sprintf("client %d", l.id), oracle.WorkerLease{
		Worker: a.Worker, Fixed: l.fixed != oracle.AnyWorker, Session: l.session, Start: a.Start, End: a.End,
	}, w.cfg.ids.layout, &l.clock)
}
