package replica_test

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/core/replica"
)

// limit is the length of limits in these tests: long enough that each phase of an election is over
// before one has passed.
const limit = 500 * time.Millisecond

// newIntervalCluster forms a cluster with a cluster clock, and waits until all nodes read it.
func newIntervalCluster(t testing.TB, n int) *cluster {
	c := newCluster(t, n, func(cfg *replica.Config) { cfg.Interval = limit })
	c.leader()
	c.tick(5)
	for _, n := range c.nodes {
		if !c.reads(n) {
			t.Fatalf("node %d does not know the cluster clock: %+v", n.id, n.Status().Interval)
		}
	}
	return c
}

// bounds returns what a node reads of the cluster clock now.
func (c *cluster) bounds(n *node) (interval.Reading, bool) {
	return n.ClockEstimate().Bounds(interval.At(n.steady(c.mono)))
}

func (c *cluster) reads(n *node) bool {
	_, good := c.bounds(n)
	return good
}

// overlaps reports whether bounds of an earlier term than that of a node that serves are good at any
// node, now or within ticks from now.
func (c *cluster) overlaps(ticks int) bool {
	for i := 0; ; i++ {
		for _, n := range c.running() {
			if !n.Status().Serving {
				continue
			}
			for _, o := range c.nodes { // one that is down stands for a client that has its estimate
				if b, good := c.bounds(o); good && b.Term < n.Status().Term {
					c.t.Logf("node %d serves in term %d, and the clock of term %d is good at node %d for %v", n.id, n.Status().Term, b.Term, o.id, time.Duration(b.Limit-b.Latest))
					return true
				}
			}
		}
		if i == ticks {
			return false
		}
		c.tick(1)
	}
}

// killed ends the process of a node, and the others find that its address refuses connections.
func (c *cluster) killed(n *node) {
	c.kill(n.id)
	c.refuse(n.id, c.running()...)
	c.settle()
}

// away ends the process of a node, for some ticks, and starts it again.
func (c *cluster) away(n *node, ticks int) {
	c.kill(n.id)
	c.tick(ticks)
	c.start(n)
	c.greet()
}

func TestInterval_EveryNodeReadsTheLeadersClock(t *testing.T) {
	c := newIntervalCluster(t, 3)
	l := c.leader()
	for range 200 {
		c.tick(1)
		clock, ok := l.ClusterClock()
		now := clock.Show(l.steady(c.mono))
		for _, n := range c.nodes {
			b, good := c.bounds(n)
			if !ok || !good || now < b.Earliest || now > b.Latest || b.Latest-b.Earliest > uint64(3*tick)/100 {
				t.Fatalf("node %d reads %+v, %v; the clock shows %d", n.id, b, good, now)
			}
		}
	}
}

func TestInterval_ALeadersSuccessorWaitsForItsLimits(t *testing.T) {
	c := newIntervalCluster(t, 3)
	died := c.mono
	c.killed(c.leader())
	if c.overlaps(3 * int(limit/tick)) {
		t.Error("terms overlap")
	}
	n := c.leader()
	if waited := c.mono - died; waited < limit-2*tick {
		t.Errorf("node %d served after %v, a limit is %v", n.id, waited, limit)
	}
}

// TestInterval_TheWaitIsAsLongAsItMustBe: a follower that takes over within a tick waits for the rest
// of a limit, and hardly longer.
func TestInterval_TheWaitIsAsLongAsItMustBe(t *testing.T) {
	c := newIntervalCluster(t, 3)
	old := c.leader()
	died := c.mono
	c.killed(old)
	for c.mono-died < 2*limit {
		c.tick(1)
		for _, n := range c.running() {
			if n.Status().Serving {
				if waited := c.mono - died; waited > limit+5*tick {
					t.Errorf("it waited for %v", waited)
				}
				return
			}
		}
	}
	t.Error("nobody serves")
}

func TestInterval_WhoWasAwayForLongNeedsNoWait(t *testing.T) {
	c := newIntervalCluster(t, 3)
	for _, n := range c.nodes {
		n.down = true
	}
	c.mono += 2 * limit
	for id := range c.nodes {
		c.nodes[id].down = id == c.leaderOf(c.nodes[1])
	}
	began := c.mono
	n := c.leader()
	if waited := c.mono - began; waited > limit/2 && waited > 60*tick {
		t.Errorf("node %d served after %v", n.id, waited)
	}
	if c.overlaps(0) {
		t.Error("terms overlap")
	}
}

func (c *cluster) leaderOf(n *node) uint64 { return n.Status().Leader }

func TestInterval_ATransferWaitsAndItsSuccessorDoesNot(t *testing.T) {
	c := newIntervalCluster(t, 3)
	old := c.leader()
	began := c.mono
	c.turn(old, &replica.Input{Transfer: true})
	gap := time.Duration(0)
	for served := c.mono; ; c.tick(1) {
		if c.mono-began > 3*limit {
			t.Fatal("nothing came of it")
		}
		if c.overlaps(0) {
			t.Fatal("terms overlap")
		}
		l := c.nodes[old.id]
		for _, n := range c.running() {
			if n.Status().Serving {
				l = n
			}
		}
		if !l.Status().Serving {
			continue
		}
		c.must(l)
		gap, served = max(gap, c.mono-served), c.mono
		if l != old {
			break
		}
	}
	if took := c.mono - began; took < limit-2*tick {
		t.Errorf("the leadership was transferred after %v, a limit is %v", took, limit)
	}
	if gap > 4*tick {
		t.Errorf("nothing was answered for %v", gap)
	}
	c.tick(10)
	for _, n := range c.nodes {
		if !c.reads(n) {
			t.Errorf("node %d does not read the new leader's clock", n.id)
		}
	}
}

func TestInterval_ATransferThatFailsGoesOnWithTheClock(t *testing.T) {
	c := newIntervalCluster(t, 3)
	l := c.leader()
	c.turn(l, &replica.Input{Transfer: true})
	c.drop = func(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgTimeoutNow }
	c.tick(int(limit/tick) + 10)
	if c.reads(l) || l.Status().Interval.Running {
		t.Fatalf("limits still run: %+v", l.Status().Interval)
	}
	c.tick(60)
	if !l.Status().Serving || !c.reads(l) {
		t.Errorf("the leader goes on without its clock: %+v", l.Status().Interval)
	}
}

func TestInterval_ASoleVoterWaitsAfterARestart(t *testing.T) {
	c := newIntervalCluster(t, 1)
	n := c.nodes[1]
	copied := *n.ClockEstimate()
	c.start(n)
	began := c.mono
	for !n.Status().Serving {
		c.tick(1)
		if c.mono-began > 2*limit {
			t.Fatal("it does not serve")
		}
	}
	if _, good := copied.Bounds(interval.At(n.steady(c.mono))); good || c.mono-began < limit {
		t.Errorf("it serves after %v, good: %v", c.mono-began, good)
	}
}

func TestInterval_OffAfterOnWaitsOnceMore(t *testing.T) {
	c := newIntervalCluster(t, 3)
	for _, n := range c.nodes {
		n.cfg.Interval = 0
	}
	for _, id := range []uint64{1, 2, 3} {
		n := c.nodes[id]
		c.away(n, 3)
		if c.overlaps(2 * int(limit/tick)) {
			t.Fatal("terms overlap")
		}
	}
	l := c.leader()
	c.tick(5)
	if s := l.Status().Interval; s.On || s.Running || c.reads(l) {
		t.Errorf("the cluster clock is not off: %+v", s)
	}
	began := c.mono
	c.killed(l)
	c.leader(l)
	if c.mono-began > limit/2 {
		t.Errorf("a leader waited %v for limits that do not run", c.mono-began)
	}
}

func TestInterval_AnotherLengthCounts(t *testing.T) {
	c := newIntervalCluster(t, 3)
	for _, id := range []uint64{1, 2, 3} {
		n := c.nodes[id]
		n.cfg.Interval = limit / 5
		c.away(n, 3)
		if c.overlaps(2 * int(limit/tick)) {
			t.Fatal("terms overlap")
		}
	}
	l := c.leader()
	c.tick(20)
	if b, good := c.bounds(l); !good || b.Limit-b.Latest > uint64(limit/5) {
		t.Errorf("bounds %+v, %v", b, good)
	}
	began := c.mono
	c.killed(l)
	c.leader(l)
	if c.mono-began > limit/2 {
		t.Errorf("a leader waited for %v, and limits are %v long", c.mono-began, limit/5)
	}
}

// TestInterval_TimeFollowsTheClusterClock: with a wall clock that jumps, and epochs that are long.
func TestInterval_TimeFollowsTheClusterClock(t *testing.T) {
	c := newIntervalCluster(t, 3)
	l := c.leader()
	for range 100 {
		l.skew += 7 * time.Millisecond
		c.tick(1)
		b, good := c.bounds(l)
		got := c.must(l)
		clock, _ := l.ClusterClock()
		if now := clock.Show(l.steady(c.mono)); !good || got.Time != now || got.Time < b.Earliest || got.Index >= interval.IndexMin {
			t.Fatalf("%v was issued, the clock shows %d, bounds are %+v", got, now, b)
		}
	}
}

// TestInterval_AFloorAboveTheClockIsWaitedFor: oracle time cannot run ahead of the clock.
func TestInterval_AFloorAboveTheClockIsWaitedFor(t *testing.T) {
	c := newIntervalCluster(t, 3)
	l := c.leader()
	b, _ := c.bounds(l)
	floor := isotone.Timestamp{Time: b.Latest + uint64(100*time.Millisecond), Index: interval.IndexMin + 5}
	token := c.askAbove(l, isotone.ReadQuorum, floor, 1)
	c.settle()
	if got := l.outcome(token); got != "" {
		t.Fatalf("answered %q", got)
	}
	c.tick(12)
	if got := l.outcome(token); got != "ok" || !floor.Before(l.answers[token].ranges[0].First) {
		t.Errorf("answered %q, %v", got, l.answers[token].ranges)
	}
	far := isotone.Timestamp{Time: b.Latest + uint64(time.Minute)}
	token = c.askAbove(l, isotone.ReadQuorum, far, 1)
	c.settle()
	if got := l.outcome(token); got != isotone.CodeRegressed {
		t.Errorf("a floor a minute ahead: answered %q", got)
	}
}

func TestInterval_AnOperatorsFloorIsNearOrRefused(t *testing.T) {
	c := newIntervalCluster(t, 3)
	l := c.leader()
	b, _ := c.bounds(l)
	in := &replica.Input{RaiseFloor: &replica.FloorRequest{Time: b.Latest + uint64(time.Hour), Force: true}}
	in.Mono, in.Now, in.Steady = c.mono, uint64(c.mono), l.steady(c.mono)
	if e := l.Step(in); e.FloorRefused == nil || e.FloorRefused.Code != isotone.CodeInvalidArgument {
		t.Errorf("a floor an hour ahead: %v", e.FloorRefused)
	}
	near := b.Latest + uint64(200*time.Millisecond)
	c.turn(l, &replica.Input{RaiseFloor: &replica.FloorRequest{Time: near}})
	c.settle()
	token := c.ask(l, 1)
	c.settle()
	c.tick(25)
	if got := l.outcome(token); got != "ok" || l.answers[token].ranges[0].First.Time <= near {
		t.Errorf("answered %q, %v; the floor is %d", got, l.answers[token].ranges, near)
	}
}

// TestInterval_AClockFarAheadStartsLater: after a floor that was raised, oracle time holds as it does
// without a cluster clock, which starts when the leader's clock has come near.
func TestInterval_AClockFarAheadStartsLater(t *testing.T) {
	c := newCluster(t, 3, nil)
	state := c.leader()
	c.turn(state, &replica.Input{RaiseFloor: &replica.FloorRequest{Time: uint64(c.mono + 8*time.Second)}})
	c.settle()
	c.must(state)
	for _, n := range c.nodes {
		n.cfg.Interval = limit
	}
	for _, id := range []uint64{1, 2, 3} {
		c.away(c.nodes[id], 2)
		c.tick(30)
	}
	l := c.leader()
	if _, runs := l.ClusterClock(); runs || c.reads(l) {
		t.Error("a clock runs far ahead")
	}
	c.must(l)
	c.tick(800)
	l = c.leader()
	if _, runs := l.ClusterClock(); !runs || !c.reads(l) {
		t.Errorf("no clock runs: %+v", l.Status().Interval)
	}
	c.must(l)
}

// TestInterval_AVoteOfAnOlderVersionSaysNothing: then the whole length is waited for.
func TestInterval_AVoteOfAnOlderVersionSaysNothing(t *testing.T) {
	c := newIntervalCluster(t, 3)
	c.drop = func(m *raftpb.Message) bool {
		if m.GetType() == raftpb.MsgVoteResp {
			m.Context = nil
		}
		return false
	}
	for _, n := range c.nodes {
		n.down = true
	}
	c.mono += 2 * limit
	lead := c.leaderOf(c.nodes[1])
	for id := range c.nodes {
		c.nodes[id].down = id == lead
	}
	began := c.mono
	c.leader()
	if waited := c.mono - began; waited < limit {
		t.Errorf("it waited %v, a limit is %v", waited, limit)
	}
}

// TestInterval_ForeignAnswersAreIgnored: those to no question, to an old one, of another peer or of
// another cluster.
func TestInterval_ForeignAnswersAreIgnored(t *testing.T) {
	c := newIntervalCluster(t, 3)
	var f *node
	for _, n := range c.running() {
		if !n.Status().Serving {
			f = n
		}
	}
	l := c.leader()
	b, _ := c.bounds(f)
	wrong := interval.Reading{Cluster: f.Status().ClusterID, Term: b.Term + 1, Earliest: 1, Latest: 2, Limit: 1 << 62}
	for nonce := range uint64(400) {
		c.turn(f, &replica.Input{ClockAnswers: []replica.ClockAnswer{{Peer: 99, Nonce: nonce, Reading: wrong}}})
	}
	foreign := wrong
	foreign.Cluster++
	for nonce := range uint64(400) {
		c.turn(f, &replica.Input{ClockAnswers: []replica.ClockAnswer{{Peer: l.id, Nonce: nonce, Reading: foreign}}})
	}
	if got, _ := c.bounds(f); got.Term != b.Term {
		t.Errorf("it took a reading of term %d", got.Term)
	}
}

// TestInterval_ALeaderWithAWrongRateHandsOver: both others find that its readings contradict each other.
// One of them alone with a wrong rate changes nothing.
func TestInterval_ALeaderWithAWrongRateHandsOver(t *testing.T) {
	c := newIntervalCluster(t, 3)
	l := c.leader()
	f := c.others(l)[0]
	c.setRate(f, 50_000)
	c.tick(300)
	if s := f.Status().Interval; !s.Broken || c.leader() != l || l.Status().Interval.Blamed {
		t.Errorf("a follower with a wrong rate: %+v, the leader is node %d", s, c.leader().id)
	}
	c.setRate(f, 0)
	c.tick(int(interval.RateWindow/tick) + 300)
	if s := f.Status().Interval; s.Broken {
		t.Errorf("a follower whose rate is right again: %+v", s)
	}
	c.setRate(l, 50_000)
	c.tick(300)
	if c.leader() == l {
		t.Errorf("it still leads: %+v", l.Status().Interval)
	}
	if c.overlaps(int(limit / tick)) {
		t.Error("terms overlap")
	}
}

// TestInterval_NoClockStartsBeforeAFloorIsApplied: it could not jump above the floor, and requests would
// wait for as long as that is ahead.
func TestInterval_NoClockStartsBeforeAFloorIsApplied(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.turn(l, &replica.Input{RaiseFloor: &replica.FloorRequest{Time: uint64(c.mono + 8*time.Second)}})
	c.settle()
	for _, n := range c.nodes {
		n.cfg.Interval = limit
	}
	for _, id := range []uint64{1, 2, 3} {
		c.away(c.nodes[id], 2)
		c.tick(30)
	}
	l = c.leader() // whose clock is far ahead, and starts in some seconds
	far := uint64(c.mono + time.Hour)
	for _, n := range c.nodes {
		n.stalled = n != l
	}
	c.turn(l, &replica.Input{RaiseFloor: &replica.FloorRequest{Time: far}})
	c.tick(800)
	if _, runs := l.ClusterClock(); runs {
		t.Error("a clock runs while a floor is proposed")
	}
	for _, n := range c.nodes {
		n.stalled = false
	}
	c.tick(5)
	if got := c.must(c.leader()); got.Time <= far {
		t.Errorf("%v was issued, the floor is %d", got, far)
	}
}

// changesWithClocks reports whether the leader changes with clocks of a quorum that come and go.
func changesWithClocks(t *testing.T) bool {
	c := newIntervalCluster(t, 3)
	term := c.leader().Status().Term
	for range 20 {
		c.setClocks(30*time.Second, 40)
		c.setClocks(0, 40)
	}
	return c.leader().Status().Term != term
}

// setClocks sets all clocks and lets time pass.
func (c *cluster) setClocks(off time.Duration, ticks int) {
	for _, n := range c.nodes {
		c.setClock(n, off)
	}
	c.tick(ticks)
}

func TestInterval_OnlyAClockThatStaysFarOffIsGivenUp(t *testing.T) {
	if changesWithClocks(t) {
		t.Error("the leader changes with clocks that come and go")
	}
	c := newIntervalCluster(t, 3)
	term := c.leader().Status().Term
	c.setClocks(30*time.Second, 300)
	if c.leader().Status().Term == term {
		t.Error("the cluster clock stays 30 s behind the clocks of all nodes")
	}
}
