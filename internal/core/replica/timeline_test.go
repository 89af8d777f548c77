package replica_test

import (
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/timeline"
)

// alter asks a node for a change of timelines, and returns the token.
func (c *cluster) alter(n *node, q timeline.Command) uint64 {
	return c.alterBy(n, replica.TimelineRequest{Command: q})
}

func (c *cluster) alterBy(n *node, q replica.TimelineRequest) uint64 {
	c.token++
	q.Token = c.token
	c.turn(n, &replica.Input{TimelineRequests: []replica.TimelineRequest{q}})
	return c.token
}

// changed returns the outcome of a change: what is refused, an error code, or "" while there is no answer.
func (n *node) changed(token uint64) (refusal timeline.Refusal, code isotone.Code) {
	for _, a := range n.altered {
		switch {
		case a.Token != token:
		case a.Err != nil:
			return 0, a.Err.Code
		default:
			return a.Outcomes[0], "ok"
		}
	}
	return 0, ""
}

// does changes timelines and fails the test unless that is done.
func (c *cluster) does(n *node, q timeline.Command) {
	c.t.Helper()
	token := c.alter(n, q)
	c.settle()
	if refusal, code := n.changed(token); code != "ok" || refusal != timeline.Done {
		c.t.Fatalf("%+v: %v, %q", q, refusal, code)
	}
}

func creates(names ...string) timeline.Command {
	c := timeline.Command{Kind: timeline.KindCreate}
	for _, name := range names {
		c.Creations = append(c.Creations, timeline.Creation{Name: name})
	}
	return c
}

// on asks a node for timestamps of a timeline and returns the token. Their order is not that of [cluster.check].
func (c *cluster) on(n *node, name string, floor isotone.Timestamp, counts ...uint64) uint64 {
	return c.request(n, replica.Request{Mode: isotone.ReadQuorum, Timeline: name, Floor: floor, Raise: true, Counts: counts})
}

// mustOn returns the first timestamp that a node issues of a timeline.
func (c *cluster) mustOn(n *node, name string) isotone.Timestamp {
	c.t.Helper()
	token := c.on(n, name, isotone.Timestamp{}, 2)
	c.settle()
	if got := n.outcome(token); got != "ok" {
		c.t.Fatalf("%q on %q", got, name)
	}
	return n.answers[token].ranges[0].First
}

// wantOn fails the test unless a request for a timeline ends so.
func (c *cluster) wantOn(n *node, name string, want isotone.Code) {
	c.t.Helper()
	token := c.on(n, name, isotone.Timestamp{}, 1)
	c.settle()
	if got := n.outcome(token); got != want {
		c.t.Errorf("on %q: %q, want %q", name, got, want)
	}
}

func TestTimeline_LivesAndEnds(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.wantOn(l, "orders", "not_found")
	c.does(l, creates("orders", "tenant-7/orders"))
	first := c.mustOn(l, "orders")
	if now := uint64(c.mono); first.Time < now || first.Time > now+uint64(time.Second) {
		t.Errorf("it begins at %d, and the clock shows %d", first.Time, now)
	}
	for _, n := range c.running() {
		if n != l {
			c.wantOn(n, "orders", "not_leader")
		}
	}
	c.does(l, timeline.Command{Kind: timeline.KindSeal, Name: "orders"})
	c.wantOn(l, "orders", "not_found")
	c.does(l, timeline.Command{Kind: timeline.KindDelete, Name: "orders"})
	c.wantOn(l, "orders", "not_found")
	c.does(l, creates("orders"))
	if again := c.mustOn(l, "orders"); !first.Before(again) {
		t.Errorf("created again it begins at %v, before %v", again, first)
	}
	c.does(l, timeline.Command{Kind: timeline.KindMake, Group: "eu"})
	last := c.mustOn(l, "tenant-7/orders")
	c.does(l, timeline.Command{Kind: timeline.KindMove, Name: "tenant-7/orders", Group: "eu"})
	if moved := c.mustOn(l, "tenant-7/orders"); !last.Before(moved) {
		t.Errorf("moved it goes on at %v, before %v", moved, last)
	}
}

// TestTimeline_GoesOnWithEveryLeader: the order of a timeline outlives leaders, restarts and clocks that are behind.
func TestTimeline_GoesOnWithEveryLeader(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.does(l, creates("orders"))
	last := c.mustOn(l, "orders")
	for range 6 {
		old := l
		old.down = true
		l = c.leader(old)
		c.tick(15) // the old one is silent
		next := c.mustOn(l, "orders")
		if !last.Before(next) {
			t.Fatalf("node %d issues %v after %v", l.id, next, last)
		}
		last = next
		c.start(old)
		c.greet()
		c.tick(30)
	}
}

// TestTimeline_HasItsOwnFloor: a floor of one order does not move another.
func TestTimeline_HasItsOwnFloor(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.does(l, creates("orders", "x"))
	day := uint64(c.mono + 20*time.Hour)
	c.does(l, timeline.Command{Kind: timeline.KindFloor, Name: "orders", Time: day})
	if got := c.mustOn(l, "orders"); got.Time <= day {
		t.Errorf("%v after the floor was raised to %d", got, day)
	}
	l2 := c.leader()
	c.turn(l2, &replica.Input{RaiseFloor: &replica.FloorRequest{Time: day}})
	c.settle()
	c.tick(50)
	c.does(l, creates("later"))
	for _, name := range []string{"x", "later"} {
		if got := c.mustOn(l, name); got.Time > uint64(c.mono+time.Minute) {
			t.Errorf("%q is at %v, as others were raised by a day", name, got)
		}
	}
}

func TestTimeline_FloorsOfClients(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.does(l, creates("orders"))
	c.mustOn(l, "orders")
	for _, d := range []time.Duration{time.Millisecond, 2 * time.Second, replica.ClientFloorAheadMax - time.Second} {
		f := isotone.Timestamp{Time: uint64(c.mono + d), Index: 7}
		token := c.on(l, "orders", f, 1)
		c.settle()
		if got := l.outcome(token); got != "ok" || !f.Before(l.answers[token].ranges[0].First) {
			t.Errorf("a floor %v ahead: %q, %v", d, got, l.answers[token].ranges)
		}
	}
	tooFar := c.on(l, "orders", isotone.Timestamp{Time: uint64(c.mono + replica.ClientFloorAheadMax + time.Second)}, 1)
	c.settle()
	if got := l.outcome(tooFar); got != "regressed" {
		t.Errorf("a floor that is too far ahead: %q", got)
	}
	if w := l.Status().Waiting; w != 0 {
		t.Errorf("%d requests wait", w)
	}
}

func TestTimeline_WrongChangesAreRefused(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.does(l, creates("orders"))
	far := uint64(c.mono + replica.FloorAheadMax + time.Minute)
	floor := timeline.Command{Kind: timeline.KindFloor, Name: "orders", Time: far}
	above := timeline.Command{Kind: timeline.KindCreate, Creations: []timeline.Creation{{Name: "far", Above: far}}}
	for name, q := range map[string]timeline.Command{
		"no name":          creates(""),
		"a bad name":       creates("a b"),
		"a long name":      creates(strings.Repeat("x", timeline.NameMax+1)),
		"too many":         creates(make([]string, timeline.CreationsMax+1)...),
		"a grant":          {Kind: timeline.KindGrant},
		"a lease":          {Kind: timeline.KindLeaseOff, Group: timeline.GroupOf("orders")},
		"no kind":          {},
		"a floor far away": floor, "a beginning far away": above,
	} {
		token := c.alter(l, q)
		c.settle()
		if _, code := l.changed(token); code != "invalid_argument" {
			t.Errorf("%s: %q", name, code)
		}
	}
	for _, q := range []timeline.Command{floor, above} {
		token := c.alterBy(l, replica.TimelineRequest{Command: q, Force: true})
		c.settle()
		if refusal, code := l.changed(token); code != "ok" || refusal != timeline.Done {
			t.Errorf("with force: %v, %q", refusal, code)
		}
	}
	for _, n := range c.running() {
		if n != l {
			token := c.alter(n, creates("y"))
			if _, code := n.changed(token); code != "not_leader" {
				t.Errorf("a follower: %q", code)
			}
		}
	}
}

// TestTimeline_WithoutClocksNobodyCanTellHowFarAFloorIs: it is not refused as too far ahead.
func TestTimeline_WithoutClocksNobodyCanTellHowFarAFloorIs(t *testing.T) {
	c := newClockCluster(t, 3, nil)
	l := c.leader()
	c.does(l, creates("orders"))
	c.tick(200)
	c.loseClocks()
	for ticks := 0; c.leader().Status().Clock.Known && ticks < 2000; ticks++ {
		c.tick(1)
	}
	token := c.alter(c.leader(), timeline.Command{Kind: timeline.KindFloor, Name: "orders", Time: uint64(c.mono + time.Second)})
	c.settle()
	if _, code := c.leader().changed(token); code != "clock" {
		t.Errorf("%q", code)
	}
	c.mustOn(c.leader(), "orders")
}

// TestTimeline_NeedsItsLevel: nothing is written that an older member cannot read.
func TestTimeline_NeedsItsLevel(t *testing.T) {
	c := newCluster(t, 3, func(cfg *replica.Config) { cfg.Level = 1 })
	l := c.leader()
	for _, n := range c.running() {
		n.cfg.Level = oracle.LevelNewest
	}
	token := c.alter(l, creates("orders"))
	c.settle()
	if _, code := l.changed(token); code != "invalid_argument" {
		t.Errorf("at level 1: %q", code)
	}
}

// TestTimeline_ChangesAreBoundedAndExpire while nothing is committed.
func TestTimeline_ChangesAreBoundedAndExpire(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.does(l, creates("orders"))
	c.drop = func(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgApp }
	refused := 0
	first := c.alter(l, creates("a"))
	for range 200 {
		if _, code := l.changed(c.alter(l, creates("a"))); code == "overloaded" {
			refused++
		}
	}
	if refused == 0 {
		t.Error("any number of changes may wait")
	}
	c.tick(501)
	if _, code := l.changed(first); code != "deadline_exceeded" {
		t.Errorf("a change that is not applied: %q", code)
	}
	c.drop = nil
	c.settle()
	c.tick(5)
	if token := c.alter(l, creates("a")); true {
		c.settle()
		if refusal, code := l.changed(token); code != "ok" || refusal != timeline.Exists {
			t.Errorf("the first change was applied late, and again: %v, %q", refusal, code)
		}
	}
}
