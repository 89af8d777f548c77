package replica_test

import (
	"testing"

	"github.com/isotone/isotone/internal/core/replica"
)

// stalledRelease has the leader give up a transfer because its word that no limit runs is not
// committed: the disks of the others stand still. They answer rounds all the same, and enough is
// reserved for limits. When the disks go on, that word is still in the log.
func stalledRelease(t *testing.T) (c *cluster, l *node) {
	c = newCluster(t, 3, func(cfg *replica.Config) { cfg.Interval, cfg.EpochTicks = limit, 100 })
	l = c.leader()
	c.tick(5)
	c.turn(l, &replica.Input{Transfer: true})
	for _, n := range c.nodes {
		n.stalled = n != l
	}
	const patience = 2*int(limit/tick) + 20 // ticks until it sends the transfer all the same
	c.tick(patience + 20 + 10)              // and until it gives that up, too
	if s := l.Status(); s.Leader != l.id || !s.Interval.Running {
		t.Fatalf("the leader's word is committed, or it leads no more: %+v", s.Interval)
	}
	for _, n := range c.nodes {
		n.stalled = false
	}
	return c, l
}

// TestInterval_AReleaseThatIsGivenUpStillCounts: a successor that finds the word in its log does not
// wait. So no limit may run.
func TestInterval_AReleaseThatIsGivenUpStillCounts(t *testing.T) {
	t.Run("leader dies", func(t *testing.T) {
		c, l := stalledRelease(t)
		c.settle()
		c.killed(l)
		if c.overlaps(3 * int(limit/tick)) {
			t.Error("terms overlap")
		}
	})
	t.Run("another transfer", func(t *testing.T) {
		c, l := stalledRelease(t)
		c.settle()
		c.turn(l, &replica.Input{Transfer: true})
		c.settle()
		if c.overlaps(3 * int(limit/tick)) {
			t.Error("terms overlap")
		}
	})
	t.Run("the leader goes on", func(t *testing.T) {
		c, l := stalledRelease(t)
		c.tick(20)
		if !l.Status().Serving || !c.reads(l) {
			t.Errorf("the leader goes on without its clock: %+v", l.Status().Interval)
		}
	})
}
