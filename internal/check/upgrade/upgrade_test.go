//go:build linux

package upgrade_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
)

// TestUpgrade_NoCallFailsWhileNodesRollToAnotherVersionAndBack: all nodes go from this version to one
// to come, back, and to the other one again, one after the other, under a Go client in both read modes
// that requests IDs as well.
func TestUpgrade_NoCallFailsWhileNodesRollToAnotherVersionAndBack(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*chaos.Node){"SIGTERM": (*chaos.Node).Shutdown, "kill -9": (*chaos.Node).Kill} {
		t.Run(name, func(t *testing.T) {
			c := chaos.StartCluster(t, trial.Options())
			l := trial.StartClientLoad(t, c, 16, isotone.ReadQuorum, isotone.ReadLease)
			ids := trial.StartClientIDs(t, l)
			l.More(t, 500)
			for i, to := range []string{"the next version", "this version", "the next version"}[:trial.Short(3, 2)] {
				roll(t, c, l, i%2 == 0, end)
				t.Logf("all nodes run %s", to)
				l.More(t, 1000)
			}
			ids.Verify(t)
			l.Verify(t)
		})
	}
}

// roll changes the version of all nodes, one after the other. With the leader last, it
// has led nothing but nodes of the other version; with the leader first, each node may
// come to follow one of the other.
func roll(t *testing.T, c *chaos.Cluster, l *trial.ClientLoad, leaderLast bool, end func(*chaos.Node)) {
	t.Helper()
	c.Settle()
	leader := c.WaitLeader()
	order := append([]*chaos.Node{leader}, c.Others(leader)...)
	if leaderLast {
		slices.Reverse(order)
	}
	for _, n := range order {
		end(n)
		n.ChangeVersion()
		n.Start()
		c.Settle()
		l.More(t, 300)
	}
}

// TestUpgrade_WhatIsFinalizedKeepsTheOldVersionOut: the level is raised only when all nodes know it.
// After that a node of this version never serves and does not disturb the others; with the next
// version it goes on.
func TestUpgrade_WhatIsFinalizedKeepsTheOldVersionOut(t *testing.T) {
	t.Parallel()
	c := chaos.StartCluster(t, trial.Options())
	l := trial.StartClientLoad(t, c, 16, isotone.ReadQuorum)
	n := c.Others(c.WaitLeader())[0]
	for _, other := range c.Others(n) {
		other.Shutdown()
		other.ChangeVersion()
		other.Start()
		c.Settle()
	}
	leader := c.WaitLeader()
	if leader == n {
		if err := transferAway(n); err != nil {
			t.Fatal(err)
		}
		c.Settle()
		leader = c.WaitLeader()
	}
	if out, err := finalize(leader); leader != n && (err == nil || !strings.Contains(out, fmt.Sprint("stays at feature level ", chaos.NextLevel-1))) {
		t.Errorf("with a node of the older version: %v, %s", err, out)
	}
	n.Shutdown()
	n.ChangeVersion()
	n.Start()
	c.Settle()
	if out, err := finalize(c.Nodes[0]); err != nil || !strings.Contains(out, fmt.Sprintf(`"level":%d,"newest":%d`, chaos.NextLevel, chaos.NextLevel)) {
		t.Fatalf("with the next version on all nodes: %v, %s", err, out)
	}
	l.More(t, 500)

	n.Shutdown()
	n.ChangeVersion()
	n.Start()
	n.ExpectExit()
	l.More(t, 2000)
	trial.WantExit(t, n, "feature level", "newer version")
	if a, err := chaos.Get(n.HTTPAddr, "/ready", trial.AnswerTimeout); err == nil && a.Status == 200 {
		t.Error("the older version is ready in a cluster that was raised")
	}
	n.ChangeVersion()
	n.Start()
	c.Settle()
	l.More(t, 500)
	l.Verify(t)
}

// transferAway has a node that leads give the leadership to another one.
func transferAway(n *chaos.Node) error {
	out, err := exec.Command(trial.Binary, "leader", "transfer", "--endpoint", n.HTTPAddr).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func TestNextLevel_IsOneAboveThatOfThisVersion(t *testing.T) {
	t.Parallel()
	out, err := exec.Command(trial.Binary, "version", "--json").CombinedOutput()
	if want := fmt.Sprintf(`"featureLevel":%d,`, chaos.NextLevel-1); err != nil || !strings.Contains(string(out), want) {
		t.Errorf("%s, %v; want %s", out, err, want)
	}
}

// finalize runs isotone upgrade finalize at a node, which finds the leader.
func finalize(n *chaos.Node) (string, error) {
	out, err := exec.Command(trial.Binary, "upgrade", "finalize", "--yes", "--json", "--endpoint", n.HTTPAddr).CombinedOutput()
	return string(out), err
}
