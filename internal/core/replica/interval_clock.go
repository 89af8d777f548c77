package replica

import (
	"time"

	"go.etcd.io/raft/v3"

	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
)

// The clock of a leader's term, and how long it waits before it starts one; see interval.go.

// behindMax is how far behind the clock that the leader goes by a cluster clock may fall. A leader whose
// clock is further behind transfers its leadership.
const behindMax = 10 * time.Second

// farOffTicks is how long a cluster clock is too far off before its leader transfers the leadership: with
// links that come and go, so do the clocks of a quorum, and the leader would change each time.
const farOffTicks = 5 * electionTicks

// aheadSlack is how much further than aheadMax a cluster clock may get ahead before its leader transfers
// its leadership. Together they are less than [ClientFloorAheadMax], which a restored cluster relies on.
const aheadSlack = 3 * time.Second

// aheadMax is how far ahead of the clock that the leader goes by a cluster clock may start. Each
// change of leader puts it ahead by what was reserved. Beyond this the leader runs no cluster clock,
// and oracle time holds, until its clock has caught up.
const aheadMax = ClientFloorAheadMax / 2

// clusterClock is the clock of a leader's term, and its limits. Times are unix nanoseconds on that
// clock, or of Input.Steady.
type clusterClock struct {
	// floor and opensAt say how the allocator is to be opened, and when, by the steady clock: once
	// reserved is set, which is as soon as the leader's own reservation is applied.
	reserved bool
	floor    uint64
	opensAt  int64
	// elected is when this node learned that it leads. unheard is how long before, at least, no voter
	// that elected it had answered a leader.
	elected, unheard int64
	// The clock runs from base at time at of the steady clock, slew millionths faster.
	runs bool
	base uint64
	at   int64
	slew int64
	// limit is up to where the clock may be used; 0 if no round is confirmed yet.
	limit uint64
	// floorHeld is a floor that an operator has raised: requests wait until the clock is above it.
	floorHeld uint64
	// saying is set while a proposal about limits is not applied.
	saying bool
	// releasing is set while this leader tells no limits because it is to transfer its leadership, to
	// node transferTo (0: any), since tick releasedAt; handed is set once it has begun to do so.
	releasing  bool
	handed     bool
	transferTo uint64
	// nearAt is the tick at which the clock was last not too far off.
	nearAt     int
	releasedAt int
}

// scheduleOpening decides when the allocator is to be opened above floor: when this leader's own
// reservation is applied, which is also all that earlier leaders have said about limits.
func (r *Replica) scheduleOpening(floor uint64) {
	c := &r.leading.clock
	c.reserved, c.floor, c.opensAt = true, floor, c.elected
	if again := r.mutateReelected(); again || r.state.Interval == 0 || mutant.On(mutant.NoWait) {
		return
	}
	wait := interval.Wait(int64(r.state.Interval))
	if r.cfg.Interval == 0 {
		wait += wait * clockRateErrorPercent / 100 // Mono may be slewed
	}
	c.opensAt += max(0, wait-c.unheard)
}

// tryOpen opens the allocator once limits of earlier terms have passed.
func (r *Replica) tryOpen() {
	l := &r.leading
	if !l.clock.reserved || l.alloc.IsOpen() || r.steadyNow() < l.clock.opensAt && !mutant.On(mutant.OracleDoesNotWait) {
		return
	}
	l.alloc.Open(l.clock.floor, r.state.Ceiling)
	r.startClock()
	l.alloc.Advance(r.axisNow())
	r.effects.Changed = true
	r.registerPeers()
}

// startClock starts the cluster clock, unless it is not to run or would be far ahead.
func (r *Replica) startClock() {
	l := &r.leading
	c, now := &l.clock, r.clockNow()
	if r.cfg.Interval == 0 || c.runs || !l.alloc.IsOpen() || l.floors > 0 || now == 0 || r.steadyNow() < c.opensAt {
		return
	}
	from := max(now, l.alloc.Time()+1)
	if from-now > uint64(aheadMax) {
		return
	}
	c.runs, c.base, c.at, c.slew = true, r.mutateClockStart(from), r.steadyNow(), 0
	l.alloc.Advance(c.base)
	r.effects.Changed = true
	if len(r.queue.rounds) == 0 {
		r.beginRound(nil)
	}
}

// isFarOff reports whether the cluster clock is so far from the clock that this leader goes by that slewing
// would take hours: the clocks of a quorum were set. The clock of the next term starts there, or, if the
// present one is ahead, when that time has come.
func (r *Replica) isFarOff() bool {
	now := r.clockNow()
	if !r.leading.clock.runs || now == 0 {
		return false
	}
	c := r.clusterNow()
	return now > c+uint64(behindMax) || c > now+uint64(aheadMax+aheadSlack)
}

// clockFloor returns where the cluster clock that is going to start is to start at least, so that enough
// is reserved for it; 0 if none is, or not soon.
func (r *Replica) clockFloor() uint64 {
	c := &r.leading.clock
	if r.cfg.Interval == 0 || c.runs {
		return 0
	}
	floor := r.state.Ceiling
	if c.reserved {
		floor = c.floor
	}
	if now := r.clockNow(); now == 0 || floor > now+uint64(aheadMax) {
		return 0
	}
	return floor
}

// ClusterClock is the clock of a leader's term: at the time At of the leader's steady clock it shows
// Base, and runs Slew millionths faster than that.
type ClusterClock struct {
	Term, Base uint64
	At, Slew   int64
}

// ClusterClock returns the clock that this leader runs. The simulator checks by it.
func (r *Replica) ClusterClock() (c ClusterClock, ok bool) {
	l := &r.leading.clock
	return ClusterClock{Term: r.term, Base: l.base, At: l.at, Slew: l.slew}, l.runs
}

// Show returns what the clock shows when the leader's steady clock shows now.
func (c ClusterClock) Show(now int64) uint64 {
	since := max(0, now-c.At)
	return min(c.Base+uint64(since+since*c.Slew/1_000_000), oracle.CeilingMax)
}

// clusterNow returns what the cluster clock shows. It has to run.
func (r *Replica) clusterNow() uint64 {
	c, _ := r.ClusterClock()
	return c.Show(r.steadyNow())
}

// axisNow returns the time that oracle time follows: the cluster clock's if one runs.
func (r *Replica) axisNow() uint64 {
	if !r.leading.clock.runs || mutant.On(mutant.OracleByWall) {
		return r.clockNow()
	}
	return r.clusterNow()
}

// advancesAlways reports whether oracle time follows its clock with every batch.
func (r *Replica) advancesAlways() bool {
	return r.cfg.EpochInterval == 0 && !mutant.On(mutant.CoarseEpoch) || r.leading.clock.runs && !mutant.On(mutant.CoarseEpoch)
}

// roundClock returns what the cluster clock shows at the start of a round, 0 if none runs.
func (r *Replica) roundClock() uint64 {
	if !r.leading.clock.runs {
		return 0
	}
	now := r.clusterNow()
	if mutant.On(mutant.LimitUnconfirmed) {
		r.extendLimit(now)
	}
	return now
}

// slewClock has the cluster clock approach the clock that this leader goes by, within a second if
// the bound on its rate permits.
func (r *Replica) slewClock() {
	c := &r.leading.clock
	c.base, c.at = r.clusterNow(), r.steadyNow()
	now := r.clockNow()
	if now == 0 {
		c.slew = 0
		return
	}
	off := int64(difference(now, c.base))
	c.slew = max(-interval.Slew, min(off/1000, interval.Slew))
	if mutant.On(mutant.JumpInTerm) && off > 5_000_000 {
		c.base += uint64(off)
	}
}

// tellsLimits reports whether this leader may tell limits: the log says that some may run.
func (r *Replica) tellsLimits() bool {
	if !r.leading.clock.runs {
		return false
	}
	return r.state.Interval == uint64(r.cfg.Interval) || mutant.On(mutant.TellUnsaid) || mutant.On(mutant.ReleaseAndTell) && r.leading.clock.releasing
}

// extendLimit takes in that a round is confirmed that began when the clock showed started, 0 if none
// ran. Not while the log may come to say that no limit runs: even if this leader has given up the
// transfer, its successor may find that word, and not wait.
func (r *Replica) extendLimit(started uint64) {
	c := &r.leading.clock
	if started == 0 || !r.tellsLimits() || (c.releasing || c.saying && !mutant.On(mutant.TellAfterGivingUp)) && !mutant.On(mutant.ReleaseAndTell) {
		return
	}
	if mutant.On(mutant.LimitFromAnswer) {
		started = r.clusterNow()
	}
	first := c.limit == 0
	c.limit = max(c.limit, started+uint64(r.cfg.Interval))
	if first {
		r.publishClock()
	}
}

// reading returns what this leader tells of its clock, and whether it may.
func (r *Replica) reading() (interval.Reading, bool) {
	c := &r.leading.clock
	if r.role != raft.StateLeader || !r.tellsLimits() || c.limit == 0 {
		return interval.Reading{}, false
	}
	now, limit := r.clusterNow(), c.limit
	if !mutant.On(mutant.LimitOverCeiling) {
		limit = min(limit, r.leading.alloc.Ceiling()-1)
	}
	if mutant.On(mutant.LeaderIgnoresLimit) {
		limit = oracle.CeilingMax
	}
	return interval.Reading{Cluster: r.state.ClusterID, Term: r.term, Earliest: now, Latest: now, Limit: limit}, now <= limit
}

// publishClock puts what the leader would tell into its own estimate, from which the rest of its
// process reads.
func (r *Replica) publishClock() {
	if m, ok := r.reading(); ok {
		now := interval.At(r.steadyNow())
		r.takeReading(now, now, m)
	}
}
