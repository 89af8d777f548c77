//go:build linux

package upgrade_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
)

// previous builds the previous release once.
var previous = sync.OnceValues(func() (string, error) { return chaos.BuildPrevious(filepath.Dir(trial.Binary)) })

// upgradable returns options of a cluster whose nodes start with the previous release and can
// change to this version. Where the previous release is not available the test is skipped,
// unless CI is set.
func upgradable(t *testing.T) chaos.Options {
	t.Helper()
	path, err := previous()
	if errors.Is(err, chaos.ErrNoHistory) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	o := trial.Options()
	o.Binary, o.Previous = path, trial.Binary
	return o
}

// TestUpgrade_NoCallFailsWhileNodesRollToThisVersionAndBack: all nodes go from the
// previous release to this version, back, and to this version again, one after the
// other, under a Go client in both read modes that requests IDs as well.
func TestUpgrade_NoCallFailsWhileNodesRollToThisVersionAndBack(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*chaos.Node){"SIGTERM": (*chaos.Node).Shutdown, "kill -9": (*chaos.Node).Kill} {
		t.Run(name, func(t *testing.T) {
			o := upgradable(t)
			c := chaos.StartCluster(t, o)
			l := trial.StartClientLoad(t, c, 16, isotone.ReadQuorum, isotone.ReadLease)
			ids := trial.StartClientIDs(t, l)
			l.More(t, 500)
			for i, to := range []string{"this version", "the previous release", "this version"}[:trial.Short(3, 2)] {
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

// TestUpgrade_WhatIsFinalizedKeepsTheOldVersionOut: the level is raised only when all nodes
// run this version. After that a node with the previous release never serves and does not
// disturb the others; with this version it goes on.
func TestUpgrade_WhatIsFinalizedKeepsTheOldVersionOut(t *testing.T) {
	t.Parallel()
	o := upgradable(t)
	c := chaos.StartCluster(t, o)
	l := trial.StartClientLoad(t, c, 16, isotone.ReadQuorum)
	n := c.Others(c.WaitLeader())[0]
	for _, other := range c.Others(n) {
		other.Shutdown()
		other.ChangeVersion()
		other.Start()
		c.Settle()
	}
	if leader := c.WaitLeader(); leader != n {
		if out, err := finalize(leader); err == nil || !strings.Contains(out, "stays at feature level 1") {
			t.Errorf("with a node of the previous release: %v, %s", err, out)
		}
	}
	n.Shutdown()
	n.ChangeVersion()
	n.Start()
	c.Settle()
	if out, err := finalize(c.Nodes[0]); err != nil || !strings.Contains(out, `"level":3,"newest":3`) {
		t.Fatalf("with this version on all nodes: %v, %s", err, out)
	}
	l.More(t, 500)
	file := filepath.Join(n.Dir, "isotone.db")
	trial.WaitFor(t, chaos.ReadyTimeout, func() (bool, string) { // a journal has more than that from the start
		info, err := os.Stat(file)
		return err == nil && info.Size() > 1<<20, "the data file does not become a journal"
	})

	n.Shutdown()
	n.ChangeVersion()
	n.Start()
	n.ExpectExit()
	l.More(t, 2000)
	trial.WantExit(t, n, file, "has format 2, and this version reads only format 1")
	if a, err := chaos.Get(n.HTTPAddr, "/ready", trial.AnswerTimeout); err == nil && a.Status == 200 {
		t.Error("the previous release is ready in a cluster that was raised")
	}
	n.ChangeVersion()
	n.Start()
	c.Settle()
	l.More(t, 500)
	l.Verify(t)
}

// finalize runs isotone upgrade finalize at a node, which finds the leader.
func finalize(n *chaos.Node) (string, error) {
	out, err := exec.Command(trial.Binary, "upgrade", "finalize", "--yes", "--json", "--endpoint", n.HTTPAddr).CombinedOutput()
	return string(out), err
}
