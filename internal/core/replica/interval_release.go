package replica

import (
	"go.etcd.io/raft/v3"

	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
)

// What the log says of limits, and how a leader that hands over lets them run out; see interval.go.

// maintainClock does with every tick what a leader's clock needs.
func (r *Replica) maintainClock() {
	r.interval.noteLeads()
	r.tryOpen()
	r.startClock()
	if r.leading.clock.runs {
		r.leading.slewClock()
		r.leading.publishClock()
		r.queue.turns.open()
		r.queue.release() // floors above the clock, see passFloor
		if len(r.queue.rounds) == 0 {
			r.beginRound(nil)
		}
	}
	r.leading.sayRunning()
	r.goOnReleasing()
	if !r.leading.isFarOff() {
		r.leading.clock.nearAt = r.leading.tenure
	}
	isFarOff := r.leading.tenure-r.leading.clock.nearAt >= mutant.Pick(mutant.FarOffAtOnce, 1, farOffTicks)
	if r.leading.tenure%electionTicks == 0 && (r.blamedByMost() && r.leading.tenure > priorityTicks || isFarOff) {
		r.transfer(0)
	}
}

// sayRunning has the log say how long the limits are that this leader wants to tell, or that none
// runs because it tells none: those of earlier terms have passed.
func (l *leading) sayRunning() {
	length := uint64(0)
	if l.clock.runs {
		length = uint64(l.cfg.Interval)
	}
	if l.clock.saying || l.clock.releasing || !l.alloc.IsOpen() || l.steadyNow() < l.clock.opensAt || l.state.Interval == length || l.cfg.Interval > 0 && length == 0 {
		return
	}
	l.clock.saying = l.tail.propose(oracle.Command{Kind: oracle.KindInterval, Interval: length})
}

// release reports whether a transfer of the leadership, to member to or any, has to wait because
// limits run, and has them run out.
func (r *Replica) release(to uint64) bool {
	l := &r.leading
	if !l.clock.runs || r.state.Interval == 0 || l.clock.handed || r.tail.isLeaving() {
		return false
	}
	l.clock.transferTo = to
	if !l.clock.releasing {
		l.clock.releasing, l.clock.releasedAt = true, l.tenure
	}
	return true
}

// goOnReleasing takes the next step of a transfer that waits for limits. If that lasts for too long,
// the leadership is transferred all the same, and the next leader waits.
func (r *Replica) goOnReleasing() {
	l := &r.leading
	c := &l.clock
	if !c.releasing {
		return
	}
	ticks := l.tenure - c.releasedAt
	patience := int(2*r.cfg.Interval/r.cfg.TickInterval) + electionTicks
	switch {
	case c.handed && ticks > electionTicks: // nothing came of it
		c.releasing, c.handed = false, false
	case c.handed || c.saying:
	case r.state.Interval != 0 && ticks <= patience && (r.leading.clock.shows() > c.limit || mutant.On(mutant.ReleaseEarly)):
		c.saying = r.tail.propose(oracle.Command{Kind: oracle.KindInterval})
	}
	if c.releasing && !c.handed && ticks > patience {
		r.handOver()
	}
}

// handOver transfers the leadership after limits have run out.
func (r *Replica) handOver() {
	c := &r.leading.clock
	c.handed, c.releasedAt = true, r.leading.tenure
	r.transferNow(c.transferTo)
}

// intervalApplied handles what the log says of limits, proposed in term.
func (r *Replica) intervalApplied(term uint64) {
	r.effects.Changed = true
	if r.role != raft.StateLeader || term != r.term {
		return
	}
	c := &r.leading.clock
	c.saying = false
	if r.state.Interval == 0 && c.releasing && !c.handed {
		r.handOver()
	}
}
