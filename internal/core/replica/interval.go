package replica

import (
	"encoding/binary"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
)

// The cluster clock (I14; docs/intervals.md has the rules and the proof). The leader of each term runs
// one, by its steady clock. It tells readings of it, with a limit: D after the start of the latest
// confirmed round, and below the ceiling. Who has a reading reads bounds of the clock by itself until
// then, however the leader fares. So a leader of a later term waits until no limit can run any more
// before it issues anything or runs a clock of its own. Then all timestamps, the oracle's and those
// made from bounds, have one order.
//
// A later leader knows how long it has to wait by two things:
//
//   - Each vote says how long ago, at least, the voter has answered a leader, has led, or was started.
//     The quorum that answered the latest round of an earlier leader shares a voter with the quorum
//     that elects the later one.
//   - The log says whether limits run. A leader that transfers its leadership tells no more, waits
//     until its limits have passed, and has the log say that none runs.

// ClockAsk asks a peer for a reading of the cluster clock.
type ClockAsk struct {
	// Peer is the ID of the member that asks, or that is asked.
	Peer uint64
	// Nonce is that of the answer.
	Nonce uint64
}

// ClockAnswer answers a [ClockAsk] of Peer, or comes from there.
type ClockAnswer struct {
	Peer    uint64
	Nonce   uint64
	Reading interval.Reading
}

// aheadMax is how far ahead of the clock that the leader goes by a cluster clock may start. Each
// change of leader puts it ahead by what was reserved. Beyond this the leader runs no cluster clock,
// and oracle time holds, until its clock has caught up.
const aheadMax = ClientFloorAheadMax / 2

// intervals is what a node knows of the cluster clock, and what it says in its votes.
type intervals struct {
	estimate interval.Estimate
	// answered is when this node last answered a leader, led, or started, by Input.Steady; known is set
	// from the first step on.
	answered int64
	known    bool
	// votes is the shortest time since then that the voters of this candidate have told in term
	// votesTerm, in nanoseconds.
	votes     int64
	votesTerm uint64
	// asked are the latest questions to leaders, by nonce modulo the length.
	asked [4]clockQuestion
	nonce uint64
	rate  interval.Rate
}

type clockQuestion struct {
	nonce, leader uint64
	at            int64 // Input.Steady
}

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
	releasedAt int
}

// steadyNow returns the steady clock. Without Config.Interval it is not read, and Mono stands for it.
func (r *Replica) steadyNow() int64 {
	if r.cfg.Interval == 0 {
		return int64(r.mono)
	}
	return r.steady
}

// noteAnswered notes that this node answers a leader, leads, or has started.
func (r *Replica) noteAnswered() { r.interval.answered = r.steadyNow() }

// noteAnsweredTo does so if m is of a leader that this node follows.
func (r *Replica) noteAnsweredTo(m *raftpb.Message) {
	if m.GetTerm() >= r.term {
		r.noteAnswered()
	}
}

// stateAnswered completes a vote that this node grants.
func (r *Replica) stateAnswered(m *raftpb.Message) {
	if r.cfg.Interval == 0 || m.GetReject() || m.GetType() != raftpb.MsgVoteResp {
		return
	}
	since := max(0, r.steadyNow()-r.interval.answered) + mutant.Pick(mutant.ReportForgets, r.mutateForgotten(), 0)
	m.Context = binary.LittleEndian.AppendUint64(nil, uint64(since))
}

// noteUnheard takes in what a vote says. One of a version or a node without intervals says nothing.
func (r *Replica) noteUnheard(m *raftpb.Message) {
	if m.GetReject() || m.GetTerm() != r.term || r.role != raft.StateCandidate || mutant.On(mutant.ReportOwnOnly) {
		return
	}
	since := int64(0)
	if c := m.GetContext(); len(c) == contextSize {
		since = int64(min(binary.LittleEndian.Uint64(c), 1<<62))
	}
	if n := &r.interval; n.votesTerm != r.term || since < n.votes {
		n.votes, n.votesTerm = since, r.term
	}
}

// leaderElected begins the clock's part of a term.
func (r *Replica) leaderElected() {
	c, n := &r.leading.clock, &r.interval
	c.elected = r.steadyNow()
	c.unheard = max(0, c.elected-n.answered)
	if n.votesTerm == r.term {
		c.unheard = min(c.unheard, n.votes)
	}
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
	if r.cfg.Interval == 0 || c.runs || !l.alloc.IsOpen() || now == 0 || r.state.CurrentLevel() < oracle.LevelMembers || r.steadyNow() < c.opensAt {
		return
	}
	from := max(now, l.alloc.Time()+1)
	if from-now > uint64(aheadMax) {
		return
	}
	c.runs, c.base, c.at, c.slew = true, r.mutateClockStart(from), r.steadyNow(), 0
	r.effects.Changed = true
	if len(r.queue.rounds) == 0 {
		r.beginRound(nil)
	}
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
	if mutant.On(mutant.ClockJumps) && off > 5_000_000 {
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
	if started == 0 || !r.tellsLimits() || (c.releasing || c.saying) && !mutant.On(mutant.ReleaseAndTell) {
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

func (r *Replica) takeReading(sent, received interval.Instant, m interval.Reading) {
	n := &r.interval
	believed := n.rate.OK()
	if n.rate.Take(received, m.Term, n.estimate.Take(sent, received, m)) != believed {
		r.effects.Changed = true
	}
	r.effects.ClockChanged = true
}

// ClockEstimate returns what this node knows of the cluster clock. It belongs to the replica and is
// valid until the next call of Step: copy it. A copy may be used by any goroutine for as long as its
// bounds are good, whatever becomes of this node.
func (r *Replica) ClockEstimate() *interval.Estimate { return &r.interval.estimate }

// exchangeClocks answers what peers ask, and takes in what they answer.
func (r *Replica) exchangeClocks(in *Input) {
	if r.cfg.Interval == 0 {
		return
	}
	for _, q := range in.ClockAsks {
		if m, ok := r.reading(); ok {
			r.effects.TellClock = append(r.effects.TellClock, ClockAnswer{Peer: q.Peer, Nonce: q.Nonce, Reading: m})
		}
	}
	n := &r.interval
	for _, a := range in.ClockAnswers {
		q := n.asked[a.Nonce%uint64(len(n.asked))]
		if mutant.On(mutant.AnswerOfAnother) {
			q = n.asked[n.nonce%uint64(len(n.asked))]
			q.nonce, q.leader = a.Nonce, a.Peer
		}
		if a.Nonce == 0 || q.nonce != a.Nonce || q.leader != a.Peer || a.Reading.Cluster != r.state.ClusterID {
			continue
		}
		r.takeReading(interval.At(q.at), interval.At(r.steadyNow()), a.Reading)
	}
}

// askClock asks the leader for a reading, with every tick.
func (r *Replica) askClock() {
	if r.cfg.Interval > 0 && r.isFollowing() && r.state.Interval != 0 {
		n := &r.interval
		n.nonce++
		n.asked[n.nonce%uint64(len(n.asked))] = clockQuestion{nonce: n.nonce, leader: r.lead, at: r.steadyNow()}
		r.effects.AskClock = append(r.effects.AskClock, ClockAsk{Peer: r.lead, Nonce: n.nonce})
	}
}

// maintainClock does with every tick what a leader's clock needs.
func (r *Replica) maintainClock() {
	r.noteLeads()
	r.tryOpen()
	r.startClock()
	if r.leading.clock.runs {
		r.slewClock()
		r.publishClock()
		r.queue.release() // floors above the clock, see passFloor
		if len(r.queue.rounds) == 0 {
			r.beginRound(nil)
		}
	}
	r.sayRunning()
	r.goOnReleasing()
}

func (r *Replica) noteLeads() {
	if !mutant.On(mutant.ReportNotAsLeader) {
		r.noteAnswered()
	}
}

// sayRunning has the log say how long the limits are that this leader wants to tell, or that none
// runs because it tells none: those of earlier terms have passed.
func (r *Replica) sayRunning() {
	l := &r.leading
	length := uint64(0)
	if l.clock.runs {
		length = uint64(r.cfg.Interval)
	}
	if l.clock.saying || l.clock.releasing || !l.alloc.IsOpen() || r.steadyNow() < l.clock.opensAt || r.state.Interval == length || r.cfg.Interval > 0 && length == 0 {
		return
	}
	l.clock.saying = r.propose(oracle.Command{Kind: oracle.KindInterval, Interval: length})
}

// release reports whether a transfer of the leadership, to member to or any, has to wait because
// limits run, and has them run out.
func (r *Replica) release(to uint64) bool {
	l := &r.leading
	if !l.clock.runs || r.state.Interval == 0 || l.clock.handed || r.isLeaving() {
		return false
	}
	l.clock.transferTo = to
	if !l.clock.releasing {
		l.clock.releasing, l.clock.releasedAt = true, l.ticks
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
	ticks := l.ticks - c.releasedAt
	patience := int(2*r.cfg.Interval/r.cfg.TickInterval) + electionTicks
	switch {
	case c.handed && ticks > electionTicks: // nothing came of it
		c.releasing, c.handed = false, false
	case c.handed || c.saying:
	case r.state.Interval != 0 && ticks <= patience && (r.clusterNow() > c.limit || mutant.On(mutant.ReleaseEarly)):
		c.saying = r.propose(oracle.Command{Kind: oracle.KindInterval})
	}
	if c.releasing && !c.handed && ticks > patience {
		r.handOver()
	}
}

// handOver transfers the leadership after limits have run out.
func (r *Replica) handOver() {
	c := &r.leading.clock
	c.handed, c.releasedAt = true, r.leading.ticks
	r.transferNow(c.transferTo)
}

// intervalApplied takes in what the log says of limits, proposed in term.
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

// IntervalStatus describes what this node knows of the cluster clock.
type IntervalStatus struct {
	// On is set if Config.Interval is not 0.
	On bool
	// Running is set while the log says that readings may be told.
	Running bool
	// Waiting is set while this leader answers nothing because limits of an earlier term may run.
	Waiting bool
	// Known is set while bounds are good; the next three count only then, in nanoseconds. Width is that
	// of the interval, Limit the time from its later bound to the limit, Age the time since the latest
	// reading.
	Known             bool
	Width, Limit, Age int64
	// Broken is set while this node's steady clock, or the leader's, has a wrong rate.
	Broken bool
}

// intervalStatus returns Status.Interval.
func (r *Replica) intervalStatus() IntervalStatus {
	n, now := &r.interval, interval.At(r.steadyNow())
	s := IntervalStatus{
		On: r.cfg.Interval > 0, Running: r.state.Interval != 0, Broken: !n.rate.OK(),
		Waiting: r.role == raft.StateLeader && r.leading.clock.reserved && !r.leading.alloc.IsOpen(),
	}
	if b, good := n.estimate.Bounds(now); good && s.On {
		s.Known, s.Width, s.Limit, s.Age = true, int64(b.Latest-b.Earliest), int64(b.Limit-b.Latest), n.estimate.Age(now)
	}
	return s
}
