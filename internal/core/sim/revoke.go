package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// Operators revoke worker leases (I9). They have a source of randomness of their own, so that
// runs without them are the same as before.

// revokerRuns is one in how many runs has operators who revoke.
const revokerRuns = 4

// revoker draws revocations.
type revoker struct {
	rng    *rand.Rand
	acts   bool
	leases []oracle.WorkerLease // those that were revoked, as of then
}

func newRevoker(seed uint64) revoker {
	r := revoker{rng: rand.New(rand.NewPCG(seed, 0x7e70c))}
	r.acts = r.rng.IntN(revokerRuns) == 0
	return r
}

// runRevoker revokes a lease at random intervals while there are faults.
func (w *world) runRevoker() {
	r := &w.revoker
	if !r.acts {
		return
	}
	w.after(w.cfg.tick*time.Duration(5+r.rng.IntN(100)), func() {
		if w.closing || w.healing {
			return
		}
		if !w.quiet {
			w.revokeSome()
		}
		w.runRevoker()
	})
}

// revokeSome has the leader revoke a lease that some node knows of; it may be over by then.
func (w *world) revokeSome() {
	r := &w.revoker
	seen := w.nodes[r.rng.IntN(len(w.nodes))]
	if !seen.up() {
		return
	}
	leases := seen.replica.WorkerLeases()
	if len(leases) == 0 {
		return
	}
	l := leases[r.rng.IntN(len(leases))]
	for range 1 + r.rng.IntN(2) { // twice: the second may arrive when another process holds the worker
		w.after(w.cfg.tick*time.Duration(r.rng.IntN(20)), func() {
			if lead := w.leader(); lead != nil && !lead.paused && !w.closing && !w.quiet {
				w.sendRevocation(lead, oracle.Revocation{Worker: l.Worker, Start: l.Start})
			}
		})
	}
}

func (w *world) sendRevocation(n *node, v oracle.Revocation) {
	q := replica.LeaseRequest{Token: uint64(len(n.leaseCalls)), Revoke: &v}
	n.leaseCalls = append(n.leaseCalls, &leaseCall{client: &idClient{}, revoke: &v})
	n.in.leases = append(n.in.leases, q)
	w.wake(n)
}

// revoked handles the answer to a revocation.
func (w *world) revoked(v oracle.Revocation, a replica.LeaseAnswer) {
	if a.Err != nil {
		w.countRefusal(a.Err)
		return
	}
	// A start of 0 stands for the lease on record, also when it is that of a lease: its clock showed
	// 1970.
	if a.Worker != v.Worker || v.Start != 0 && a.Start != v.Start {
		w.fail("I9: the revocation of worker %d since %d is answered with worker %d since %d", v.Worker, v.Start, a.Worker, a.Start)
	}
	w.trace("worker %d is revoked in [%d, %d)", a.Worker, a.Start, a.End)
	w.note('r', uint64(a.Worker), a.Start, a.End)
	w.stats.WorkerRevocations++
	w.coverage.add(RevokeWorker, w.active)
	w.active = append(w.active, fault{RevokeWorker, w.now + faultEcho*w.cfg.tick})
	if slices.ContainsFunc(w.revoker.leases, func(l oracle.WorkerLease) bool { return l.Worker == a.Worker && l.Start == a.Start }) {
		return // again
	}
	w.revoker.leases = append(w.revoker.leases, oracle.WorkerLease{Worker: a.Worker, Start: a.Start, End: a.End})
}

// checkRevoked checks that a node knows of no revoked lease that was renewed.
func (w *world) checkRevoked(n *node) {
	for _, r := range w.revoker.leases {
		if l, _ := n.replica.WorkerLease(r.Worker); l.Start == r.Start && l.End > r.End {
			w.fail("I9: worker %d was revoked in [%d, %d), and on record of node %d is [%d, %d)", r.Worker, r.Start, r.End, n.id, l.Start, l.End)
		}
	}
}
