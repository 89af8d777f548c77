package replica

import (
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
)

// How far reservations reach ahead of the clock (I11). A reservation reaches reserveIntervals epochs
// ahead of the leader's clamped clock. That is not enough while oracle time itself is ahead of the clock:
// after a raised floor, a restoration, or a clock that was set right. 16-byte timestamps need no room,
// because their index grows; 64-bit timestamps use up time (see [oracle.Allocator.Next64]). So a reservation also
// reaches as far ahead of oracle time, but not beyond a bound.
//
// In each term the bound begins at the ceiling that is found, and it gains no more than the time that passes, by the steady
// clock, which is assumed not to run faster than the clocks of a quorum for long. So no sequence of terms moves time
// further ahead of the clock than it was, whatever clients ask for. Only
// a floor raises it: to reserveIntervals epochs above the floor. A client's floor is at most ClientFloorAheadMax ahead
// of the clock, so it moves the bound no further than that.

// headroom is what bounds the reservations of a term.
type headroom struct {
	bound uint64        // for the ceiling, in unix nanoseconds; 0: not known yet
	at    time.Duration // Input.Mono, when the bound was computed
}

// reach is how far a reservation reaches, in nanoseconds.
func (l *leading) reach() uint64 {
	return reserveIntervals * uint64(l.cfg.EpochTicks) * uint64(l.cfg.TickInterval)
}

// target is the ceiling to propose, in unix nanoseconds.
func (l *leading) target() uint64 {
	target := max(l.axisNow(), l.clockFloor(), 1) + l.reach()
	if !l.alloc.IsOpen() || mutant.On(mutant.ReserveFromClock) {
		return target
	}
	l.updateBound(target)
	return max(target, mutant.Pick(mutant.LeadUnbounded, l.alloc.Time()+l.reach(), l.headroom.bound))
}

// updateBound lets the bound gain the time that has passed, as far as oracle time has use for it. The bound is never
// below byClock, which the clock allows.
func (l *leading) updateBound(byClock uint64) {
	b := &l.headroom
	gained := b.bound + uint64(l.mono-b.at)/l.share()
	if b.bound == 0 {
		gained = l.state.Ceiling
	}
	b.bound, b.at = max(min(gained, l.alloc.Time()+l.reach()), l.state.Ceiling, byClock), l.mono
}

// share is the divisor of the time that passes before the bound gains it. It is two while a cluster clock waits for the
// clock to catch up with oracle time: otherwise the clock never would.
func (l *leading) share() uint64 {
	if l.cfg.Interval > 0 && !l.clock.runs {
		return 2
	}
	return 1
}

// floorMovedTime raises the bound after a floor has moved oracle time. While no clock is known nobody can tell how far
// ahead the floor is.
func (l *leading) floorMovedTime() {
	if now := l.axisNow(); now != 0 {
		l.updateBound(max(now, l.alloc.Time()) + l.reach())
	}
}

// awaits64 reports whether a request for count 64-bit timestamps that finds no time below the ceiling may wait
// for a reservation. It may not if no reservation is long enough for it, or if the queue is too full.
func (l *leading) awaits64(count uint64) bool {
	const stepsPerMicrosecond = isotone.Range64CountMax / 1000
	if count/stepsPerMicrosecond*1000 >= l.reach() || !l.mayHold() {
		return false
	}
	l.wants64 = true
	return true
}

// needsTime64 reports whether 64-bit timestamps wait for a reservation that would help.
func (l *leading) needsTime64() bool {
	return l.wants64 && !l.reserving && l.target() > l.state.Ceiling
}
