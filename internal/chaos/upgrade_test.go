//go:build linux

package chaos_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/chaos"
)

// previous builds the previous release once.
var previous = sync.OnceValues(func() (string, error) { return chaos.BuildPrevious(filepath.Dir(binary)) })

// upgradable are options of a cluster whose nodes change between the previous release,
// with which they start, and this version. The test is skipped where the previous
// release is not to be had, but not where CI is set: there it has to run.
func upgradable(t *testing.T) chaos.Options {
	t.Helper()
	path, err := previous()
	if errors.Is(err, chaos.ErrNoHistory) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	o := options()
	o.Binary, o.Previous = path, binary
	return o
}

// TestUpgrade_NoCallFailsWhileNodesRollToThisVersionAndBack: all nodes go from the
// previous release to this version, back, and to this version again, one after the
// other, under a Go client in both read modes that asks for ids as well.
func TestUpgrade_NoCallFailsWhileNodesRollToThisVersionAndBack(t *testing.T) {
	for name, end := range map[string]func(*chaos.Node){"SIGTERM": (*chaos.Node).Shutdown, "kill -9": (*chaos.Node).Kill} {
		t.Run(name, func(t *testing.T) {
			o := upgradable(t)
			c := chaos.StartCluster(t, o)
			l := startClientLoad(t, c, 16, isotone.ReadQuorum, isotone.ReadLease)
			ids := startClientIDs(t, l)
			l.more(t, 500)
			for i, to := range []string{"this version", "the previous release", "this version"}[:short(3, 2)] {
				roll(t, c, l, i%2 == 0, end)
				t.Logf("all nodes run %s", to)
				l.more(t, 1000)
			}
			ids.verify(t)
			l.verify(t)
		})
	}
}

// roll changes the version of all nodes, one after the other. With the leader last, it
// has led nothing but nodes of the other version; with the leader first, each node may
// come to follow one of the other.
func roll(t *testing.T, c *chaos.Cluster, l *clientLoad, leaderLast bool, end func(*chaos.Node)) {
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
		l.more(t, 300)
	}
}
