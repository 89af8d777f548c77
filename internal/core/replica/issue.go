package replica

import (
	"math"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
)

// issue allocates the timestamps of a request, above its floor, and returns their number. With
// hold the request has to wait, for a proposal (see passFloor and lead.go) or for the cluster clock (see next64). It goes on
// then with the range that did not fit: if it began again, a request for several might never have
// time for all of them. On an error part of the ranges is set.
func (r *Replica) issue(p *pending) (issued uint64, hold bool, failed *isotone.Error) {
	p.short = false
	if hold, failed = r.passFloor(p); hold || failed != nil {
		return 0, hold, failed
	}
	for ; p.filled < len(p.Counts); p.filled++ {
		n, rng, err := p.Counts[p.filled], &p.Ranges[p.filled], (*isotone.Error)(nil)
		if p.U64 {
			*rng, hold, err = r.next64(n, p.clock)
			p.short = hold && r.leading.clock.runs
			if p.short && r.ticks-p.arrived >= blockTicks && !r.mayHold() {
				p.short, hold, err = false, false, isotone.ErrOverloaded
			}
		} else if next, full := r.leading.alloc.Next(n); full != nil {
			err = isotone.ErrOverloaded
		} else {
			*rng = next
		}
		if hold || err != nil {
			return p.issued, hold, err
		}
		p.issued += n
	}
	return p.issued, false, nil
}

// mayHold reports whether a request may be held for long: for its floor, for a reservation, or for more time of the cluster
// clock. It may not if the queue is more than half full: the rest is for requests that need no such wait.
func (r *Replica) mayHold() bool {
	return r.queue.size <= (r.queue.max+1)/2 || mutant.On(mutant.HoldAll)
}

// arrivalClock returns what the cluster clock shows when a request comes, for [Replica.next64]; 0 if none
// runs.
func (r *Replica) arrivalClock(req Request) uint64 {
	if !req.U64 || !r.leading.clock.runs {
		return 0
	}
	return r.clusterNow()
}

// next64 allocates 64-bit timestamps. Each takes 3.8 ns of the time axis. Without a cluster clock that may
// run ahead, up to the ceiling; there the request waits for a reservation, see lead.go.
//
// A cluster clock allows no timestamp ahead of it (I14), and none before it showed arrived, when the request
// came. So they have to lie between arrived and now, and after all that was issued. That is as long as
// a round takes. Where it is too short, as for a sole voter, whose rounds take no time, for a request
// in lease mode, and for large counts, the request waits for another round.
func (r *Replica) next64(count, arrived uint64) (rng isotone.Range, hold bool, err *isotone.Error) {
	to := uint64(math.MaxUint64)
	if r.leading.clock.runs && !mutant.On(mutant.AheadOfClock64) {
		to = r.clusterNow()
	}
	rng, ok := r.leading.alloc.Next64(count, mutant.Pick(mutant.BehindClock64, 0, arrived), to)
	switch {
	case ok:
		return rng, false, nil
	case r.leading.clock.runs, r.awaits64(count):
		return rng, true, nil
	}
	return rng, false, isotone.ErrOverloaded
}

// triesAgain reports whether a request that is held is to take part in the next round at once: one that
// [Replica.next64] could not answer. If the clock has not moved since that was last tried, or has
// reached the ceiling, or the next round takes no time, it waits for a tick.
func (r *Replica) triesAgain(p *pending) bool {
	if !p.short || len(r.conf.GetVoters()) == 1 {
		return false
	}
	before, now := p.tried, r.clusterNow()
	p.tried = now
	return before != now && now < r.leading.alloc.Ceiling()
}

// blockTicks is how old a request is for which others wait: so that most that wait for another round do
// without.
const blockTicks = 2

// keepFree is called after a request was tried, with whether it got a range, and whether it was short before. With
// a cluster clock, a large count needs more time than a busy leader leaves it: a millisecond for the largest. So
// all others wait for one that is blockTicks old, until it has got a range. If 64-bit timestamps have just been
// issued it is the turn of the other form. At the ceiling nobody waits: what the request lacks there is a commit.
func (r *Replica) keepFree(p *pending, got, short bool) {
	q := &r.queue
	switch {
	case !p.U64 || !r.leading.clock.runs:
	case got:
		q.passed = true
		if q.blocked && short {
			q.blocked, q.again = false, true
		}
	case p.short && !q.passed && r.ticks-p.arrived >= blockTicks && r.clusterNow() < r.leading.alloc.Ceiling():
		q.blocked, q.stop = true, true
	}
}
