package replica

import (
	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
)

// How far reservations reach ahead of the clock (I11). A reservation reaches reserveIntervals epochs
// ahead of the clock that the leader goes by. That is not enough while oracle time itself is ahead of the clock:
// after a raised floor, a restoration, or a clock that was set right. 16-byte timestamps need no room,
// because their index grows; 64-bit timestamps use up time (see [oracle.Allocator.Next64]). So a reservation also
// reaches some epochs ahead of oracle time, but never further than the lead.
//
// The lead is how far the ceiling may be ahead of the clock. In each term it begins with how far ahead the ceiling is
// anyway, so a reservation gains no more than the time that passes, and no sequence of terms moves
// time further ahead. From there it only shrinks, as the clock catches up, except when a floor moves time: then
// room for reserveIntervals epochs is reserved above the floor. A client's floor is at most ClientFloorAheadMax ahead of
// the clock, so it raises the lead by no more than that.

// reach is how far a reservation reaches, in nanoseconds.
func (r *Replica) reach() uint64 {
	return reserveIntervals * uint64(r.cfg.EpochTicks) * uint64(r.cfg.TickInterval)
}

// target is the ceiling to propose, in unix nanoseconds.
func (r *Replica) target() uint64 {
	now, l := r.axisNow(), &r.leading
	target := max(now, r.clockFloor(), 1) + r.reach()
	if !l.alloc.IsOpen() || now == 0 || mutant.On(mutant.ReserveFromClock) {
		return target
	}
	r.updateLead(now)
	ahead := l.alloc.Time() + r.reach()
	if bound := now + l.lead; !mutant.On(mutant.LeadUnbounded) {
		ahead = min(ahead, bound)
	}
	return max(target, ahead)
}

// updateLead determines the lead in a leader's first reservation after the one that opened its allocator, and shrinks it
// later.
func (r *Replica) updateLead(now uint64) {
	l := &r.leading
	if l.lead == 0 {
		l.lead = max(r.reach(), r.state.Ceiling-min(r.state.Ceiling, now))
		return
	}
	l.lead = max(r.reach(), min(l.lead, r.aheadOf(now)+r.reach()))
}

// aheadOf returns how far oracle time is ahead of now, in nanoseconds.
func (r *Replica) aheadOf(now uint64) uint64 {
	time := r.leading.alloc.Time()
	return time - min(time, now)
}

// floorMovedTime raises the lead after a floor has moved oracle time.
func (r *Replica) floorMovedTime() {
	l, now := &r.leading, r.axisNow()
	if now == 0 {
		return // target will see to it, as after an election
	}
	if l.lead == 0 {
		r.updateLead(now)
	}
	l.lead = max(l.lead, r.aheadOf(now)+r.reach())
}

// awaits64 reports whether a request for count 64-bit timestamps that finds no time below the ceiling may wait
// for a reservation. It may not if no reservation is long enough for it, or if half of the queue
// waits so: the rest is for the other form.
func (r *Replica) awaits64(count uint64) bool {
	const stepsPerMicrosecond = isotone.Range64CountMax / 1000
	if count/stepsPerMicrosecond*1000 >= r.reach() || len(r.queue.held) >= r.queue.max/2 {
		return false
	}
	r.leading.wants64 = true
	return true
}

// reserveFor64 proposes a reservation, before the next epoch begins, if 64-bit timestamps wait for one.
func (r *Replica) reserveFor64() {
	if r.leading.wants64 && !r.leading.reserving && r.target() > r.state.Ceiling {
		r.reserve()
	}
}
