package replica

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/mutant"
)

// The read lease (I5). A voter that has promised so grants no vote for a number of ticks after a
// heartbeat; see promise.go. Until a quorum's promises have run out no other leader can be
// elected, and this one may answer without a round. A promise counts from when its round was
// sent, and by the leader's clock, while the voter counts ticks. So the lease is shorter:
//
//   - leaseSlackTicks: two ticks may follow a heartbeat at once: one that waited while the
//     process was busy and one that was nearly due. The third is a margin.
//   - clockRateErrorPercent: the leader's clock may be slow while the voter's is fast.
//
// The argument is that of Gray and Cheriton ("Leases: An Efficient Fault-Tolerant Mechanism
// for Distributed File Cache Consistency", SOSP 1989), with a voter's promise as the lease
// (Ongaro, "Consensus: Bridging Theory and Practice", 2014, §6.4.1, uses the election timeout).
const (
	leaseSlackTicks       = 3
	clockRateErrorPercent = 10
	// leaseIdleTicks is how long after the last request in lease mode a leader renews its
	// lease.
	leaseIdleTicks = 200
)

// lease is a leader's right to answer without a round. It belongs to one term.
type lease struct {
	*facts
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
	// sent are the latest rounds.
	sent sentRounds
}

// isWanted reports whether this leader's heartbeats ask for promises: while requests in lease
// mode come.
func (e *lease) isWanted() bool {
	return e.lastRequest != 0 && e.ticks-e.lastRequest <= leaseIdleTicks && !e.forgone
}

// length is how long a lease lasts that rests on promises of so many ticks, from when their
// round was sent.
func (e *lease) length(ticks uint64) time.Duration {
	if ticks <= leaseSlackTicks {
		return 0
	}
	d := time.Duration(ticks-leaseSlackTicks) * e.cfg.TickInterval
	return e.mutateLeaseLength(ticks, d*(100-clockRateErrorPercent)/(100+clockRateErrorPercent))
}

// sentRounds are when the latest rounds of a term were sent first, by their number modulo the
// length. At most roundsMax are in flight, but answers may be late.
type sentRounds [8]struct {
	round uint64
	at    time.Duration // Input.Mono
}

// noteSent notes when a round was sent first.
func (s *sentRounds) noteSent(round uint64, at time.Duration) {
	e := &s[round%uint64(len(s))]
	e.round, e.at = round, at
}

// sentAt returns when a round was sent first, if that is known.
func (s *sentRounds) sentAt(round uint64) (at time.Duration, ok bool) {
	e := s[round%uint64(len(s))]
	return e.at, round != 0 && e.round == round
}

// promisedBy records the promise in a voter's answer.
func (e *lease) promisedBy(p *peerView, m *raftpb.Message) {
	sent, ok := e.sent.sentAt(roundOf(m))
	length := e.length(e.mutatePromise(promisedIn(m)))
	if !ok || sent < e.notBefore || length == 0 {
		return
	}
	p.promisedUntil = max(p.promisedUntil, e.mutateLeaseStart(sent)+length)
	e.extend()
}

// confirm extends the lease of a leader whom no other voter could depose, when its round that
// began at started is confirmed. That of others rests on promises.
func (e *lease) confirm(started time.Duration) {
	sole := len(e.conf.GetVoters()) == 1 && len(e.conf.GetVotersOutgoing()) == 0
	if (sole || mutant.On(mutant.LeaseFromConfirm)) && !e.forgone && started >= e.notBefore {
		e.until = max(e.until, e.mutateLeaseStart(started)+e.length(promiseTicks))
	}
}

// forgetPromises drops the lease, because the voters have changed. Later rounds bring another.
func (e *lease) forgetPromises() {
	e.until, e.notBefore = 0, e.mono
	for _, p := range e.peers { // order-free: each by itself
		p.promisedUntil = 0
	}
}

// extend extends the lease to when the promises of a quorum begin to run out.
func (e *lease) extend() {
	if e.forgone {
		return
	}
	until := e.promisedByQuorum(e.conf.GetVoters())
	if outgoing := e.conf.GetVotersOutgoing(); len(outgoing) > 0 {
		until = min(until, e.promisedByQuorum(outgoing))
	}
	e.until = max(e.until, until)
}

// promisedByQuorum returns until when a quorum of these voters grants no vote. This node, which
// leads, votes for nobody else in its term.
func (e *lease) promisedByQuorum(voters []uint64) time.Duration {
	var buf [8]time.Duration // enough for 9 voters without an allocation
	ends, need := buf[:0], len(voters)/2+1
	for _, id := range voters {
		if id == e.cfg.Self.NodeID {
			need--
		} else if p := e.peers[id]; p != nil {
			ends = append(ends, p.promisedUntil)
		}
	}
	if need == 0 || need > len(ends) {
		return 0 // need is 0 for a sole voter, see confirm
	}
	slices.Sort(ends)
	return ends[len(ends)-need]
}

// checkLease finds out whether the lease is valid at Input.Mono, which was read after the
// requests of this step had arrived. That makes lease answers safe: no later leader can have
// completed an operation before (docs/decisions/0003-lease-clock.md).
func (l *leading) checkLease() (held bool) {
	e := &l.lease
	held = l.alloc.IsOpen() && !e.forgone && e.clock() < e.until
	if e.held && !held {
		l.counters.LeasesLost++
	}
	e.held = held
	return held
}

// serveByLease answers a request in lease mode and reports whether it could.
func (r *Replica) serveByLease(req *Request) bool {
	r.leading.lease.lastRequest = r.ticks
	if !r.leading.checkLease() {
		r.counters.LeaseMisses += uint64(len(req.Counts))
		return false
	}
	if !r.queue.turns.isOpen() || req.Timeline != "" && r.tail.fence > r.applied {
		return false
	}
	p := pending{Request: *req, clock: r.leading.arrivalClock(*req)}
	if r.leading.advancesAlways() && !(p.usesClock() && r.leading.clock.runs) {
		r.leading.alloc.Advance(r.leading.axisNow())
	}
	issued, hold, err := r.leading.issue(&p)
	if hold {
		req.moved = p.moved
		return false
	}
	r.counters.LeaseServed += uint64(len(req.Counts))
	r.counters.LeaseIssued += issued
	r.queue.answerTo(&p, err)
	return true
}

// maintainLease begins a round each tick while requests in lease mode come, unless one is in
// flight.
func (r *Replica) maintainLease() {
	if !r.leading.lease.isWanted() || !r.leading.alloc.IsOpen() {
		return
	}
	r.leading.checkLease() // counts one that has ended
	if len(r.queue.rounds) == 0 {
		r.beginRound(nil)
	}
}
