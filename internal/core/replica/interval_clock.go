package replica

import (
	"time"

	"go.etcd.io/raft/v3"

	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
)

// The clock of a leader's term, and how long it waits before it starts one; see interval.go.

// behindMax is how far behind the leader's clamped clock a cluster clock may fall. A leader whose
// clock is further behind transfers its leadership.
const behindMax = 10 * time.Second

// farOffTicks is how long a cluster clock is too far off before its leader transfers the leadership: with
// links that come and go, so do the clocks of a quorum, and the leader would change each time.
const farOffTicks = 5 * electionTicks

// aheadSlack is how much further than aheadMax a cluster clock may get ahead before its leader transfers
// its leadership. Together they are less than [ClientFloorAheadMax], which a restored cluster relies on.
const aheadSlack = 3 * time.Second

// aheadMax is how far ahead of the leader's clamped clock a cluster clock may start. Each
// change of leader puts it ahead by what was reserved. Beyond this the leader runs no cluster clock,
// and oracle time holds, until its clock has caught up.
const aheadMax = ClientFloorAheadMax / 2

// clusterClock is the clock of a leader's term, and its limits. Times are unix nanoseconds on that
// clock, or of Input.Steady.
type clusterClock struct {
	*facts
	// The allocator is opened above floor, at opensAt by the steady clock. Both count once reserved is
	// set, as soon as the leader's own reservation is applied.
	reserved bool
	floor    uint64
	opensAt  int64
	// electedAt is when this node learned that it leads. unheard is how long before, at least, no voter
	// that elected it had answered a leader.
	electedAt, unheard int64
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
	releasedAt int // see releasing
}

// scheduleOpening decides when the allocator is to be opened above floor: when this leader's own
// reservation is applied, which is also all that earlier leaders have said about limits.
func (l *leading) scheduleOpening(floor uint64) {
	c := &l.clock
	c.reserved, c.floor, c.opensAt = true, floor, c.electedAt
	if again := l.mutateReelected(); again || l.state.Interval == 0 || mutant.On(mutant.NoWait) {
		return
	}
	wait := interval.Wait(int64(l.state.Interval))
	if l.cfg.Interval == 0 {
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
	l.sessions.open()
	r.startClock()
	l.alloc.Advance(r.leading.axisNow())
	r.effects.Changed = true
	r.membership.register()
}

// startClock starts the cluster clock, unless it is not to run or would be far ahead.
func (r *Replica) startClock() {
	l := &r.leading
	c, now := &l.clock, r.clocks.time()
	if r.cfg.Interval == 0 || c.runs || !l.alloc.IsOpen() || l.floors > 0 || now == 0 || r.steadyNow() < c.opensAt {
		return
	}
	from := max(now, l.alloc.Time()+1)
	if from-now > uint64(aheadMax) {
		return
	}
	c.runs, c.base, c.at, c.slew = true, r.leading.mutateClockStart(from), r.steadyNow(), 0
	l.alloc.Advance(c.base)
	r.effects.Changed = true
	if len(r.queue.rounds) == 0 {
		r.beginRound(nil)
	}
}

// isFarOff reports whether the cluster clock is so far from this leader's clamped clock that slewing
// would take hours: the clocks of a quorum were set. The clock of the next term starts there, or, if the
// present one is ahead, when that time has come.
func (l *leading) isFarOff() bool {
	now := l.clocks.time()
	if !l.clock.runs || now == 0 {
		return false
	}
	c := l.clock.shows()
	return now > c+uint64(behindMax) || c > now+uint64(aheadMax+aheadSlack)
}

// clockFloor returns where the cluster clock that is going to start is to start at least, so that enough
// is reserved for it; 0 if none is, or not soon.
func (l *leading) clockFloor() uint64 {
	c := &l.clock
	if l.cfg.Interval == 0 || c.runs {
		return 0
	}
	floor := l.state.Ceiling
	if c.reserved {
		floor = c.floor
	}
	if now := l.clocks.time(); now == 0 || floor > now+uint64(aheadMax) {
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
func (r *Replica) ClusterClock() (c ClusterClock, ok bool) { return r.leading.clock.running() }

func (c *clusterClock) running() (clock ClusterClock, ok bool) {
	return ClusterClock{Term: c.term, Base: c.base, At: c.at, Slew: c.slew}, c.runs
}

// Show returns what the clock shows when the leader's steady clock shows now.
func (c ClusterClock) Show(now int64) uint64 {
	since := max(0, now-c.At)
	return min(c.Base+uint64(since+since*c.Slew/1_000_000), oracle.CeilingMax)
}

// shows returns what the cluster clock shows. It has to run.
func (c *clusterClock) shows() uint64 {
	running, _ := c.running()
	return running.Show(c.steadyNow())
}

// axisNow returns the time that oracle time follows: the cluster clock's if one runs.
func (l *leading) axisNow() uint64 {
	if !l.clock.runs || mutant.On(mutant.OracleByWall) {
		return l.clocks.time()
	}
	return l.clock.shows()
}

// advancesAlways reports whether oracle time follows its clock with every batch.
func (l *leading) advancesAlways() bool {
	return l.cfg.EpochInterval == 0 && !mutant.On(mutant.CoarseEpoch) || l.clock.runs && !mutant.On(mutant.CoarseEpoch)
}

// roundClock returns what the cluster clock shows at the start of a round, 0 if none runs.
func (l *leading) roundClock() uint64 {
	if !l.clock.runs {
		return 0
	}
	now := l.clock.shows()
	if mutant.On(mutant.LimitUnconfirmed) {
		l.extendLimit(now)
	}
	return now
}

// slewClock makes the cluster clock approach the clamped clock of this leader, within a second if
// the bound on its rate permits.
func (l *leading) slewClock() {
	c := &l.clock
	c.base, c.at = l.clock.shows(), l.steadyNow()
	now := l.clocks.time()
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
func (l *leading) tellsLimits() bool {
	if !l.clock.runs {
		return false
	}
	return l.state.Interval == uint64(l.cfg.Interval) || mutant.On(mutant.TellUnsaid) || mutant.On(mutant.ReleaseAndTell) && l.clock.releasing
}

// extendLimit records that a round is confirmed that began when the clock showed started, 0 if none
// ran. It does nothing while an entry that says that no limit runs may still be committed: even if this
// leader has given up the transfer, its successor may find that entry, and not wait.
func (l *leading) extendLimit(started uint64) {
	c := &l.clock
	if started == 0 || !l.tellsLimits() || (c.releasing || c.saying && !mutant.On(mutant.TellAfterGivingUp)) && !mutant.On(mutant.ReleaseAndTell) {
		return
	}
	if mutant.On(mutant.LimitFromAnswer) {
		started = l.clock.shows()
	}
	first := c.limit == 0
	c.limit = max(c.limit, started+uint64(l.cfg.Interval))
	if first {
		l.publishClock()
	}
}

// reading returns what this leader tells of its clock, and whether it may.
func (l *leading) reading() (interval.Reading, bool) {
	c := &l.clock
	if l.role != raft.StateLeader || !l.tellsLimits() || c.limit == 0 {
		return interval.Reading{}, false
	}
	now, limit := l.clock.shows(), c.limit
	if !mutant.On(mutant.LimitOverCeiling) {
		limit = min(limit, l.alloc.Ceiling()-1)
	}
	if mutant.On(mutant.LeaderIgnoresLimit) {
		limit = oracle.CeilingMax
	}
	return interval.Reading{Cluster: l.state.ClusterID, Term: l.term, Earliest: now, Latest: now, Limit: limit}, now <= limit
}

// publishClock puts what the leader would tell into its own estimate, from which the rest of its
// process reads.
func (l *leading) publishClock() {
	if m, ok := l.reading(); ok {
		now := interval.At(l.steadyNow())
		l.interval.take(now, now, m)
	}
}
