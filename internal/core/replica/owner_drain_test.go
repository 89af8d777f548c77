package replica_test

import (
	"fmt"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/timeline"
)

// newSpread returns a cluster of three nodes that own three groups each, and its leader.
func newSpread(t *testing.T) (*cluster, *node) {
	c := newCluster(t, 3, func(cfg *replica.Config) { cfg.SettleTicks = 5 })
	l := c.leader()
	c.tick(20)
	for i := range 9 {
		c.does(l, timeline.Command{Kind: timeline.KindMake, Group: fmt.Sprint("group", i)})
		c.does(l, timeline.Command{Kind: timeline.KindCreate, Creations: []timeline.Creation{{Name: fmt.Sprint("line", i), Group: fmt.Sprint("group", i)}}})
	}
	c.tick(2)
	for _, n := range c.nodes {
		if got := groupsOf(l, n); got != 3 {
			t.Fatalf("node %d owns %d groups", n.id, got)
		}
	}
	return c, l
}

// groupsOf returns how many groups a node owns, as another one knows it.
func groupsOf(by, n *node) int { return by.Timelines().OwnedBy(n.id, n.Hello().Session) }

// TestOwner_ThatLeavesIsKnownToTheNextLeader, which gives it no groups, although it owned none any more when that was elected.
func TestOwner_ThatLeavesIsKnownToTheNextLeader(t *testing.T) {
	c, l := newSpread(t)
	leaving, next := c.followers(l)[0], c.followers(l)[1]
	c.turn(leaving, &replica.Input{StopOwning: true})
	c.settle()
	c.tick(5)
	if got := groupsOf(l, leaving); got != 0 {
		t.Fatalf("the node that leaves owns %d groups", got)
	}
	c.turn(l, &replica.Input{Transfer: true, TransferTo: next.id})
	c.settle()
	for range 300 {
		c.tick(1)
		if got := groupsOf(next, leaving); got != 0 {
			t.Fatalf("the next leader gives %d groups to the node that leaves", got)
		}
	}
}

// TestOwner_ThatLeavesAsksOnceATick, however often its caller says so.
func TestOwner_ThatLeavesAsksOnceATick(t *testing.T) {
	o := newOwned(t, func(cfg *replica.Config) { cfg.SettleTicks = 5 })
	asked := 0
	o.drop = func(m *raftpb.Message) bool {
		lost := m.GetFrom() == o.owner.id && m.GetTo() == o.leader.id && m.Type == nil
		if lost {
			asked++
		}
		return lost
	}
	for range 10 {
		o.turn(o.owner, &replica.Input{StopOwning: true})
	}
	if asked != 1 {
		t.Errorf("in 10 turns without a tick the leader is asked %d times", asked)
	}
}

// TestOwner_ALeaderThatLeavesGetsNoGroups that another node can own.
func TestOwner_ALeaderThatLeavesGetsNoGroups(t *testing.T) {
	c, l := newSpread(t)
	c.turn(l, &replica.Input{StopOwning: true})
	for i := range 9 {
		c.does(l, timeline.Command{Kind: timeline.KindMake, Group: fmt.Sprint("group", i), Prefer: []uint64{l.id}})
	}
	c.tick(300)
	if got := groupsOf(l, l); got > 3 {
		t.Errorf("after groups prefer it, it owns %d", got)
	}
	gone, last := c.followers(l)[0], c.followers(l)[1]
	gone.down = true
	c.turn(l, &replica.Input{Gone: []uint64{gone.id}})
	c.settle()
	if got := groupsOf(l, l); got > 3 {
		t.Errorf("after another node has gone, it owns %d", got)
	}
	if got := groupsOf(l, last); got != 6 {
		t.Errorf("the node that stays owns %d", got)
	}
}

// TestOwner_ALeaderDoesNotTransferItsLeadershipToANodeThatLeaves while there is another.
func TestOwner_ALeaderDoesNotTransferItsLeadershipToANodeThatLeaves(t *testing.T) {
	for i := range 2 {
		c, l := newSpread(t)
		leaving, other := c.followers(l)[i], c.followers(l)[1-i]
		c.turn(leaving, &replica.Input{StopOwning: true})
		c.settle()
		c.tick(5)
		c.turn(l, &replica.Input{Transfer: true})
		c.settle()
		if got := other.Status().Leader; got != other.id {
			t.Errorf("node %d leaves, and node %d leads", leaving.id, got)
		}
	}
}
