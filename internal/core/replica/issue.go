package replica

import (
	"math"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
)

// issue allocates the timestamps of a request, above its floor, and returns their number. With
// hold the request has to wait, for a proposal (see passFloor) or for the cluster clock (see next64). On
// an error, and with hold, part of the ranges is set.
func (r *Replica) issue(p *pending) (issued uint64, hold bool, failed *isotone.Error) {
	if hold, failed = r.passFloor(p.Floor); hold || failed != nil {
		return 0, hold, failed
	}
	for i, n := range p.Counts {
		var err *isotone.Error
		if p.U64 {
			p.Ranges[i], hold, err = r.next64(n, p.clock)
		} else if rng, full := r.leading.alloc.Next(n); full != nil {
			err = isotone.ErrOverloaded
		} else {
			p.Ranges[i] = rng
		}
		if hold || err != nil {
			return issued, hold, err
		}
		issued += n
	}
	return issued, false, nil
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
// run ahead, up to the ceiling.
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
	case r.leading.clock.runs:
		return rng, true, nil
	}
	return rng, false, isotone.ErrOverloaded
}

// triesAgain reports whether a request that [Replica.next64] could not answer is to take part in the next round
// at once. If the clock has not moved since that was last tried, or the next round takes no time, it
// waits for a tick.
func (r *Replica) triesAgain(p *pending) bool {
	if !p.U64 || !r.leading.clock.runs || len(r.conf.GetVoters()) == 1 {
		return false
	}
	before, now := p.tried, r.clusterNow()
	p.tried = now
	return before != now
}
