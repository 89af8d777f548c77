package replica_test

import (
	"fmt"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/timeline"
)

func TestOwner_RequestsOutliveALeadership(t *testing.T) {
	if endsWithLeadership(t) {
		t.Error("a request of a timeline that the leader owns ends with its leadership")
	}
}

// endsWithLeadership has a leader resign that hears nobody, with a request in flight of a timeline that it owns.
func endsWithLeadership(t *testing.T) bool {
	o := newOwned(t, nil)
	o.grant(o.leader)
	o.mustOn(o.leader, "orders")
	o.isolate(o.leader.id)
	ours, others := o.on(o.leader, "orders", isotone.Timestamp{}, 1), o.ask(o.leader, 1)
	o.leaderTicks(50)
	if got := o.leader.outcome(others); o.leader.Status().Serving || got != "no_leader" {
		t.Fatalf("the leader, which hears nobody, answers %q", got)
	}
	o.drop = nil
	o.leaderTicks(1)
	return o.leader.outcome(ours) != "ok"
}

// TestOwner_AnswersBeforeItsLeadershipIsOpen: a follower's timelines go on when it is elected.
func TestOwner_AnswersBeforeItsLeadershipIsOpen(t *testing.T) {
	o := newOwned(t, nil)
	first := o.mustOn(o.owner, "orders")
	o.drop = func(m *raftpb.Message) bool { // of what the new leader proposes nothing is committed
		return m.GetFrom() == o.owner.id && m.GetType() == raftpb.MsgApp
	}
	o.turn(o.leader, &replica.Input{Transfer: true, TransferTo: o.owner.id})
	o.settle()
	s := o.owner.Status()
	if s.Leader != o.owner.id || s.Serving {
		t.Fatalf("the owner follows node %d, and serves: %v; it should lead and not serve", s.Leader, s.Serving)
	}
	if second := o.mustOn(o.owner, "orders"); !first.Before(second) {
		t.Errorf("%v after %v", second, first)
	}
}

// TestOwner_ThatLeavesHasItsGroupsGivenToOthers, and gets none any more.
func TestOwner_ThatLeavesHasItsGroupsGivenToOthers(t *testing.T) {
	o := newOwned(t, func(cfg *replica.Config) { cfg.SettleTicks = 5 })
	last := o.mustOn(o.owner, "orders")
	o.drop = func(m *raftpb.Message) bool { return m.GetFrom() == o.owner.id && m.Type == nil } // the first request gets lost
	o.turn(o.owner, &replica.Input{StopOwning: true})
	o.settle()
	o.drop = nil
	token := o.on(o.owner, "orders", isotone.Timestamp{}, 1)
	o.settle()
	if got := o.owner.outcome(token); got != "ok" {
		t.Fatalf("until then it answers %q", got)
	}
	o.tick(2)
	g, _ := o.leader.Timelines().Group(timeline.GroupOf("orders"))
	if g.Owner == o.owner.id {
		t.Fatal("its group is not given to another node")
	}
	if next := o.mustOn(o.nodes[g.Owner], "orders"); !last.Before(next) {
		t.Errorf("%v after %v", next, last)
	}
	o.does(o.leader, creates("a", "b", "c", "d", "e", "f"))
	o.tick(300)
	if n := o.leader.Timelines().OwnedBy(o.owner.id, o.owner.Hello().Session); n > 0 {
		t.Errorf("later it owns %d groups", n)
	}
	o.start(o.owner) // another process, which stays
	o.greet()
	o.tick(300)
	if n := o.leader.Timelines().OwnedBy(o.owner.id, o.owner.Hello().Session); n == 0 {
		t.Error("its next process owns no groups")
	}
}

func TestOwner_OneTimelineLeavesRoomForOthers(t *testing.T) {
	if leavesNoRoom(t) {
		t.Error("I7: the requests of one timeline take all of the queue")
	}
}

// leavesNoRoom has an owner that reaches nobody take requests of one timeline for more than an eighth of its queue.
func leavesNoRoom(t *testing.T) bool {
	o := newOwned(t, func(cfg *replica.Config) { cfg.QueueMax = 80 })
	o.does(o.leader, timeline.Command{Kind: timeline.KindCreate, Creations: []timeline.Creation{{Name: "others", Group: timeline.GroupOf("orders")}}})
	o.tick(2)
	o.isolate(o.owner.id)
	var last uint64
	for range 11 {
		last = o.on(o.owner, "orders", isotone.Timestamp{}, 1)
	}
	if got := o.owner.outcome(o.on(o.owner, "others", isotone.Timestamp{}, 1)); got != "" {
		t.Fatalf("a request of another timeline: %q", got)
	}
	if o.owner.outcome(last) != "overloaded" {
		return true
	}
	o.drop = nil
	o.tick(1)
	o.mustOn(o.owner, "orders") // and there is room for it again
	return false
}

// TestTimelines_AreSpread over the processes that are there: at once those whose owner is gone, and after a while to a process that comes back.
func TestTimelines_AreSpread(t *testing.T) {
	c := newCluster(t, 3, func(cfg *replica.Config) { cfg.SettleTicks = 10 })
	l := c.leader()
	c.tick(20)
	for i := range 9 {
		c.does(l, timeline.Command{Kind: timeline.KindMake, Group: fmt.Sprint("group", i)})
		c.does(l, timeline.Command{Kind: timeline.KindCreate, Creations: []timeline.Creation{{Name: fmt.Sprint("line", i), Group: fmt.Sprint("group", i)}}})
	}
	owners := func() map[uint64]int {
		count := map[uint64]int{}
		for i := range 9 {
			g, _ := l.Timelines().Group(fmt.Sprint("group", i))
			count[g.Owner]++
		}
		return count
	}
	c.tick(2)
	for _, n := range c.nodes {
		if owners()[n.id] != 3 {
			t.Fatalf("the nodes own %v groups", owners())
		}
	}
	gone := c.followers(l)[0]
	gone.down = true
	c.turn(l, &replica.Input{Gone: []uint64{gone.id}})
	c.settle()
	if got := owners(); got[gone.id] != 0 || got[l.id] < 4 {
		t.Fatalf("node %d is gone, and the nodes own %v groups", gone.id, got)
	}
	c.start(gone)
	c.greet()
	c.tick(8)
	if got := owners(); got[gone.id] != 0 {
		t.Errorf("the nodes own %v groups before node %d has been there for long", got, gone.id)
	}
	c.tick(120)
	if got := owners(); got[gone.id] != 3 {
		t.Errorf("the nodes own %v groups, want 3 each", got)
	}
}

// TestOwner_ForgetsTimelinesThatAreDeleted (I7), also if it learns of that by a snapshot.
func TestOwner_ForgetsTimelinesThatAreDeleted(t *testing.T) {
	for _, bySnapshot := range []bool{false, true} {
		o := newOwned(t, func(cfg *replica.Config) { cfg.SnapshotEvery = 4 })
		o.mustOn(o.owner, "orders")
		if n := o.owner.Allocators(); n != 1 {
			t.Fatalf("%d allocators", n)
		}
		if bySnapshot {
			o.isolate(o.owner.id)
		}
		o.does(o.leader, timeline.Command{Kind: timeline.KindDelete, Name: "orders"})
		o.leaderTicks(200)
		o.drop = nil
		o.tick(50)
		if _, ok := o.owner.Timelines().Timeline("orders"); ok {
			t.Fatal("the owner does not learn of it")
		}
		if n := o.owner.Allocators(); n != 0 {
			t.Errorf("by a snapshot: %v; %d allocators are left", bySnapshot, n)
		}
	}
}
