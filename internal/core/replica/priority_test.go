package replica_test

import (
	"testing"

	"github.com/isotone/isotone/internal/core/replica"
)

// giveWayTicks is how long a node leads at least before it gives way to another.
const giveWayTicks = 1000

// The leadership goes to the voter with the highest priority that is connected and up to
// date, and not before its leader has led for a while.
func TestPriority_TheLeadershipComesBack(t *testing.T) {
	c := newCluster(t, 3, func(cfg *replica.Config) {
		cfg.Self.Priority = map[uint64]int64{1: -1, 2: 5, 3: 7}[cfg.Self.NodeID]
	})
	one, three := c.nodes[1], c.nodes[3]
	c.leadBy(t, one)
	three.down = true
	c.tick(giveWayTicks + 100)
	if !c.nodes[2].Status().Serving {
		t.Errorf("without node 3, %+v leads", c.leader().id)
	}
	c.start(three)
	c.greet()
	c.tick(giveWayTicks - 200)
	if three.Status().Serving {
		t.Error("node 3 leads soon after its start")
	}
	c.tick(500)
	if !three.Status().Serving {
		t.Errorf("node %d leads, not node 3", c.leader().id)
	}
}

// TestPriority_NobodyGivesWayToANodeThatLeaves, as the leadership would come back at once.
func TestPriority_NobodyGivesWayToANodeThatLeaves(t *testing.T) {
	c := newCluster(t, 3, func(cfg *replica.Config) {
		cfg.Self.Priority = map[uint64]int64{3: 7}[cfg.Self.NodeID]
	})
	one, three := c.nodes[1], c.nodes[3]
	c.leadBy(t, one)
	c.turn(three, &replica.Input{StopOwning: true})
	c.tick(giveWayTicks + 500)
	if !one.Status().Serving {
		t.Errorf("node %d leads", c.leader().id)
	}
}

// leadBy has a node lead.
func (c *cluster) leadBy(t *testing.T, n *node) {
	t.Helper()
	for range 20 {
		l := c.leader()
		if l == n {
			return
		}
		c.turn(l, &replica.Input{Transfer: true, TransferTo: n.id})
		c.settle()
		c.tick(3)
	}
	t.Fatalf("node %d does not lead", n.id)
}
