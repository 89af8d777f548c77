package replica

import (
	"time"

	"github.com/isotone/isotone"
)

// The read lease (I5). A voter that acknowledged a heartbeat grants no vote for one election
// timeout. For that long after a round was sent no other leader can be elected, and this one
// may answer without another round. Leader and voters measure time by their own clocks, so
// the lease is shorter:
//
//   - leaseSlackTicks: a voter counts ticks, and two may follow a heartbeat at once: one that
//     waited while the process was busy and one that was nearly due. The third is a margin.
//   - clockRateErrorPercent: the leader's clock may be slow while the voter's is fast.
//
// The argument is that of Gray and Cheriton ("Leases: An Efficient Fault-Tolerant Mechanism
// for Distributed File Cache Consistency", SOSP 1989), with Raft's election timeout as the
// lease term (Ongaro, "Consensus: Bridging Theory and Practice", 2014, §6.4.1).
const (
	leaseSlackTicks       = 3
	clockRateErrorPercent = 10
	// leaseIdleTicks is how long after the last request in lease mode a leader renews its
	// lease.
	leaseIdleTicks = 200
)

// lease is a leader's right to answer without a round. It belongs to one term.
type lease struct {
	// until is the end by Input.Mono; 0 if there was no lease in this term.
	until time.Duration
	// notBefore is when the voters last changed. A round that began earlier gives no lease.
	notBefore time.Duration
	// forgone is set for the rest of the term once a leadership transfer began: its message
	// overrides the voters' promises and may arrive late.
	forgone bool
	// lastRequest is the tick of the latest request in lease mode, 0 if there was none.
	lastRequest uint64
	// held is whether the lease was valid when last checked.
	held bool
}

// leaseLength is the length of a lease, measured from when its round was sent.
func (r *Replica) leaseLength() time.Duration {
	d := (electionTicks - leaseSlackTicks) * r.cfg.TickInterval
	return r.mutateLeaseLength(d * (100 - clockRateErrorPercent) / (100 + clockRateErrorPercent))
}

// extendLease extends the lease when a quorum has answered the round that began at started.
func (r *Replica) extendLease(started time.Duration) {
	l := &r.leading.lease
	if l.forgone || started < l.notBefore {
		return
	}
	l.until = max(l.until, r.mutateLeaseStart(started)+r.leaseLength())
}

// checkLease finds out whether the lease is valid at Input.Mono, which was read after the
// requests of this step had arrived. That makes lease answers safe: no later leader can have
// completed an operation before (docs/decisions/0003-lease-clock.md).
func (r *Replica) checkLease() (held bool) {
	l := &r.leading.lease
	held = r.leading.alloc.IsOpen() && !l.forgone && r.leaseClock() < l.until
	if l.held && !held {
		r.counters.LeasesLost++
	}
	l.held = held
	return held
}

// serveByLease answers a request in lease mode and reports whether it could.
func (r *Replica) serveByLease(req Request) bool {
	r.leading.lease.lastRequest = r.ticks
	if !r.checkLease() {
		r.counters.LeaseMisses += uint64(len(req.Counts))
		return false
	}
	if r.cfg.EpochInterval == 0 {
		r.leading.alloc.Advance(r.clockNow())
	}
	issued, hold, err := r.issue(req)
	if hold {
		return false
	}
	r.counters.LeaseServed += uint64(len(req.Counts))
	r.counters.LeaseIssued += issued
	r.answer(req.Token, err)
	return true
}

// maintainLease begins a round each tick while requests in lease mode come, unless one is in
// flight.
func (r *Replica) maintainLease() {
	l := &r.leading.lease
	if l.lastRequest == 0 || r.ticks-l.lastRequest > leaseIdleTicks || l.forgone || !r.leading.alloc.IsOpen() {
		return
	}
	r.checkLease() // counts one that has ended
	if len(r.queue.rounds) == 0 {
		r.beginRound()
	}
}

// issue allocates the timestamps of a request, above its floor, and returns their number. With
// hold the request has to wait for a proposal, see passFloor. On an error part of the ranges is
// set.
func (r *Replica) issue(req Request) (issued uint64, hold bool, failed *isotone.Error) {
	if hold, failed = r.passFloor(req.Floor); hold || failed != nil {
		return 0, hold, failed
	}
	for i, n := range req.Counts {
		rng, err := r.leading.alloc.Next(n)
		if err != nil {
			return issued, false, isotone.ErrOverloaded
		}
		req.Ranges[i] = rng
		issued += n
	}
	return issued, false, nil
}
