package replica_test

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// mixed returns a cluster of three nodes that know these feature levels, and that node 1 leads.
func mixed(t *testing.T, levels ...uint64) *cluster {
	t.Helper()
	c := newCluster(t, 3, func(cfg *replica.Config) { cfg.Level = oracle.LevelRecords })
	c.leader()
	for i, level := range levels {
		n := c.nodes[uint64(i+1)]
		n.cfg.Level = level
		c.crash(n, true)
	}
	c.greet()
	c.lead(1)
	c.tick(30)
	return c
}

// TestPromise_LeasesHoldBetweenVersions: voters of the version before promise 20 ticks with every
// answer, and its leaders rely on that.
func TestPromise_LeasesHoldBetweenVersions(t *testing.T) {
	const older, newer = oracle.LevelRecords, oracle.LevelMembers
	long, short := 139*time.Millisecond, 57*time.Millisecond
	for _, test := range []struct {
		name     string
		levels   []uint64 // of the leader and its voters
		lease    time.Duration
		promises [2]int // of the voters, in ticks
	}{
		{"all older", []uint64{older, older, older}, long, [2]int{20, 20}},
		{"older leader", []uint64{older, newer, newer}, long, [2]int{20, 20}},
		{"older leader and voter", []uint64{older, older, newer}, long, [2]int{20, 20}},
		{"older voters", []uint64{newer, older, older}, long, [2]int{20, 20}},
		{"one older voter", []uint64{newer, older, newer}, long, [2]int{20, 10}},
		{"all newer", []uint64{newer, newer, newer}, short, [2]int{10, 10}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := mixed(t, test.levels...)
			l := c.nodes[1]
			older := func(id uint64) bool { return test.levels[id-1] == oracle.LevelRecords }
			c.drop = func(m *raftpb.Message) bool {
				if m.GetRejectHint() != 0 && older(m.GetFrom()) && m.GetType() != raftpb.MsgAppResp {
					t.Errorf("node %d is of the version before and sends %v", m.GetFrom(), m)
				}
				return false
			}
			c.askMode(l, isotone.ReadLease, 1)
			c.turn(l, &replica.Input{Ticks: 1}) // everyone gets a heartbeat
			c.settle()
			c.isolate(1)
			if got := c.leaseLeft(l); got != test.lease {
				t.Errorf("the lease lasts %v, want %v", got, test.lease)
			}
			for i, f := range c.followers(l) {
				term := raiseTerm(c, f, c.nodes[5-f.id])
				if voteFor(c, f, 5-f.id, term) || votesBefore(c, f, 5-f.id, term, test.promises[i]) {
					t.Errorf("node %d votes within %d ticks", f.id, test.promises[i])
				}
			}
		})
	}
}

// leaseLeft returns for how many whole milliseconds l answers by lease.
func (c *cluster) leaseLeft(l *node) (left time.Duration) {
	for began := c.mono; l.outcome(c.askMode(l, isotone.ReadLease, 1)) == "ok"; c.mono += time.Millisecond {
		left = c.mono - began
	}
	return left
}

// TestPromise_NoLeaderBesideALeaseOfAnotherVersion: the older leader's address refuses
// connections, but it serves by lease behind that.
func TestPromise_NoLeaderBesideALeaseOfAnotherVersion(t *testing.T) {
	const older, newer = oracle.LevelRecords, oracle.LevelMembers
	for _, levels := range [][]uint64{{older, newer, newer}, {newer, older, newer}, {newer, older, older}, {older, older, newer}} {
		c := mixed(t, levels...)
		l := c.nodes[1]
		c.askMode(l, isotone.ReadLease, 1)
		c.settle()
		c.isolate(1)
		c.refuse(1, c.followers(l)...)
		for ticks := 0; ticks < 100; ticks++ {
			c.settle()
			served := l.outcome(c.askMode(l, isotone.ReadLease, 1)) == "ok"
			for _, n := range c.followers(l) {
				if n.Status().Serving && served {
					t.Fatalf("I5: levels %d: node %d leads after %d ticks, and node 1 serves by lease", levels, n.id, ticks)
				}
			}
			c.tickOnly(1, c.followers(l)...)
		}
		c.leader(l)
	}
}
