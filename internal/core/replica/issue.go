package replica

import (
	"math"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
)

// issue allocates the timestamps of a request, above its floor, and returns their number. With
// hold the request has to wait, for a proposal (see passFloor and headroom.go) or for the cluster clock (see next64). It goes on
// then with the range that did not fit: if it began again, a request for several might never have
// time for all of them. On an error part of the ranges is set.
func (l *leading) issue(p *pending) (issued uint64, hold bool, failed *isotone.Error) {
	p.short = false
	if p.Timeline != "" {
		return l.timelines.issue(p)
	}
	if hold, failed = l.passFloor(p); hold || failed != nil {
		return 0, hold, failed
	}
	for ; p.filled < len(p.Counts); p.filled++ {
		n, rng, err := p.Counts[p.filled], &p.Ranges[p.filled], (*isotone.Error)(nil)
		if p.U64 {
			*rng, hold, err = l.next64(n, p.clock)
			p.short = hold && l.clock.runs
			if p.short && l.ticks-p.arrived >= blockTicks && !l.mayHold() {
				p.short, hold, err = false, false, isotone.ErrOverloaded
			}
		} else if next, full := l.alloc.Next(n); full != nil {
			err = isotone.ErrOverloaded
		} else {
			*rng = next
		}
		if hold || err != nil {
			return p.issued, hold, err
		}
		p.issued += n
		l.sessions.taken(p, *rng)
	}
	return p.issued, false, nil
}

// arrivalClock returns what the cluster clock shows when a request comes, for [leading.next64]; 0 if none
// runs.
func (l *leading) arrivalClock(req Request) uint64 {
	if !req.U64 || !l.clock.runs {
		return 0
	}
	return l.clock.shows()
}

// next64 allocates 64-bit timestamps. Each takes 3.8 ns of the time axis. Without a cluster clock that may
// run ahead, up to the ceiling; there the request waits for a reservation, see headroom.go.
//
// A cluster clock allows no timestamp ahead of it (I14), and none before it showed arrived, when the request
// came. So they have to lie between arrived and now, and after all that was issued. That is as long as
// a round takes. Where it is too short, as for a sole voter, whose rounds take no time, for a request
// in lease mode, and for large counts, the request waits for another round.
func (l *leading) next64(count, arrived uint64) (rng isotone.Range, hold bool, err *isotone.Error) {
	to := uint64(math.MaxUint64)
	if l.clock.runs && !mutant.On(mutant.AheadOfClock64) {
		to = l.clock.shows()
	}
	rng, ok := l.alloc.Next64(count, mutant.Pick(mutant.BehindClock64, 0, arrived), to)
	switch {
	case ok:
		return rng, false, nil
	case l.clock.runs, l.awaits64(count):
		return rng, true, nil
	}
	return rng, false, isotone.ErrOverloaded
}
