package replica

import (
	"time"

	"github.com/isotone/isotone"
)

// The lease (I5). A voter that acknowledged a heartbeat grants no vote for one
// election timeout, so for that long after a round was sent no other leader can be
// elected, and this one may answer without asking again. Both sides measure time by
// clocks of their own, so the leader keeps well below:
//
//   - leaseSlackTicks: a voter counts ticks, and the first ones after a heartbeat may
//     follow at once: one that waited while the process was busy, and one that was
//     nearly due. One more is for comfort.
//   - clockRateErrorPercent: the leader's clock may be slow while the voter's is fast.
//
// The argument is Gray and Cheriton's ("Leases: An Efficient Fault-Tolerant Mechanism
// for Distributed File Cache Consistency", SOSP 1989), with Raft's election timeout
// as the term of the lease (Ongaro, "Consensus: Bridging Theory and Practice", §6.4.1).
const (
	leaseSlackTicks       = 3
	clockRateErrorPercent = 10
	// leaseIdleTicks is for how long after the last request in lease mode a leader
	// keeps its lease alive.
	leaseIdleTicks = 200
)

// lease is a leader's right to answer alone. It belongs to one term.
type lease struct {
	// until is when it ends, by Input.Mono; 0 if there was none in this term.
	until time.Duration
	// notBefore: a round that began earlier gives no lease, for the voters have
	// changed since.
	notBefore time.Duration
	// forgone is set for the rest of the term once a transfer of leadership was begun:
	// the message that starts the other's election overrides the voters' promises, and
	// may arrive late.
	forgone bool
	// wanted is the tick of the latest request in lease mode, 0 if there was none.
	wanted uint64
	// held is whether the lease was valid when last looked at, for the counters.
	held bool
}

// leaseLength is how long a lease lasts, measured from when its round was sent.
func (r *Replica) leaseLength() time.Duration {
	d := (electionTicks - leaseSlackTicks) * r.cfg.TickInterval
	return r.mutateLeaseLength(d * (100 - clockRateErrorPercent) / (100 + clockRateErrorPercent))
}

// extendLease is called when a quorum has answered the round that began at started.
func (r *Replica) extendLease(started time.Duration) {
	l := &r.leading.lease
	if l.forgone || started < l.notBefore {
		return
	}
	l.until = max(l.until, r.mutateLeaseStart(started)+r.leaseLength())
}

// holdsLease reports whether the lease is valid at the time of this turn, and counts
// one that has ended. The clock
// was read after the requests of this turn had arrived; that, and not when the answer
// is sent, is what makes it safe: an operation that completed before the request
// arrived cannot be another, later leader's.
func (r *Replica) holdsLease() bool {
	l := &r.leading.lease
	held := r.leading.alloc.IsOpen() && !l.forgone && r.leaseClock() < l.until
	if held != l.held {
		if l.held = held; !held {
			r.counters.LeasesLost++
		}
	}
	return held
}

// serveByLease answers a request in lease mode at once, if it can.
func (r *Replica) serveByLease(req Request) bool {
	r.leading.lease.wanted = r.ticks
	if !r.holdsLease() {
		r.counters.LeaseMisses += uint64(len(req.Counts))
		return false
	}
	if r.cfg.EpochInterval == 0 {
		r.leading.alloc.Advance(r.clockNow())
	}
	issued, err := r.issue(req)
	r.counters.LeaseServed += uint64(len(req.Counts))
	r.counters.LeaseIssued += issued
	r.answer(req.Token, err)
	return true
}

// keepLease starts a round for the lease's sake, once a tick while it is wanted.
func (r *Replica) keepLease() {
	l := &r.leading.lease
	if l.wanted == 0 || r.ticks-l.wanted > leaseIdleTicks || l.forgone || !r.leading.alloc.IsOpen() {
		return
	}
	r.holdsLease() // notices one that has ended
	if len(r.queue.rounds) == 0 {
		r.beginRound()
	}
}

// issue takes timestamps for all counts of a request.
func (r *Replica) issue(req Request) (issued uint64, failed *isotone.Error) {
	for i, n := range req.Counts {
		rng, err := r.leading.alloc.Next(n)
		if err != nil {
			return issued, isotone.ErrOverloaded
		}
		req.Ranges[i] = rng
		issued += n
	}
	return issued, nil
}
