//go:build linux

package membership_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
)

// aWhile is how long a cluster runs on between a copy of a directory and its return.
const aWhile = 1200 * time.Millisecond

// rename moves a directory, and fails the test if it cannot.
func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func copyDir(t *testing.T, to, from string) {
	t.Helper()
	if err := chaos.CopyDir(to, from); err != nil {
		t.Fatal(err)
	}
}

// refuse starts a node that must not take part: it exits with code 1 and names the cause,
// while the others go on serving.
func refuse(t *testing.T, c *chaos.Cluster, n *chaos.Node, words ...string) {
	t.Helper()
	before := trial.Highest(t, c)
	n.Start()
	n.ExpectExit()
	trial.WantExit(t, n, words...)
	if after := trial.Highest(t, c); !before.Before(after) {
		t.Errorf("%v after %v", after, before)
	}
}

// TestIdentity_RefusesDirectoriesThatAreNotTheNodes starts one node on every kind of wrong
// directory, and restores its own in between (I6).
func TestIdentity_RefusesDirectoriesThatAreNotTheNodes(t *testing.T) {
	t.Parallel()
	c := chaos.StartCluster(t, trial.Options())
	load := chaos.StartLoad(t, chaos.LoadOptions{Addrs: c.Addrs(), Callers: 4, Pause: 2 * time.Millisecond})
	n := c.Node(3)
	kept := n.Dir + ".kept"
	n.Shutdown()
	copyDir(t, kept, n.Dir)

	t.Run("wiped", func(t *testing.T) {
		rename(t, n.Dir, n.Dir+".away")
		refuse(t, c, n, "node 3", "was refused by", "wiped")
		if err := os.RemoveAll(n.Dir); err != nil {
			t.Fatal(err)
		}
		rename(t, n.Dir+".away", n.Dir)
		n.Start()
		c.WaitReady()
	})
	t.Run("set back by one start", func(t *testing.T) {
		n.Shutdown()
		good := n.Dir
		defer func() { n.Dir = good }()
		n.Dir = good + ".back1"
		copyDir(t, n.Dir, kept)
		// The copy counts the same start as the run that it lacks, so it cannot be told
		// from a second process on a clone.
		refuse(t, c, n, "node 3", "was refused by", "cop")
	})
	t.Run("set back further", func(t *testing.T) {
		n.Start()
		c.WaitReady()
		n.Shutdown()
		good := n.Dir
		defer func() { n.Dir = good }()
		n.Dir = good + ".back2"
		copyDir(t, n.Dir, kept)
		refuse(t, c, n, "node 3", "was refused by", "stale", "older copy")
	})
	t.Run("set back within a start", func(t *testing.T) {
		// A snapshot of the running node's disk: only its log shows its age.
		n.Start()
		c.WaitReady()
		good := n.Dir
		defer func() { n.Dir = good }()
		n.Stop()
		copyDir(t, good+".back0", good)
		n.Cont()
		time.Sleep(aWhile)
		n.Shutdown()
		n.Dir = good + ".back0"
		refuse(t, c, n, "node 3", "was refused by", "stale", "older copy", "log index")
	})
	refuseUnusable(t, c, n)
	n.Start()
	c.WaitReady()
	load.End(t, 100, 0)
}

// refuseUnusable gives a node directories that it must refuse by itself, without any peer.
func refuseUnusable(t *testing.T, c *chaos.Cluster, n *chaos.Node) {
	t.Run("another node's", func(t *testing.T) {
		n.Env["NODE_ID"] = "2"
		refuse(t, c, n, "belongs to node 3", "this is node 2", n.Dir)
		delete(n.Env, "NODE_ID")
	})
	t.Run("rotten", func(t *testing.T) {
		good := n.Dir
		defer func() { n.Dir = good }()
		n.Dir = good + ".rotten"
		copyDir(t, n.Dir, good)
		// In its member record, which is in the snapshot or in the log.
		file := filepath.Join(n.Dir, "isotone.db")
		if err := chaos.Rot(file, n.HTTPAddr, -1); err != nil {
			t.Fatal(err)
		}
		refuse(t, c, n, file, "sector", "damaged")
	})
}

// TestIdentity_RefusesAnotherCluster runs two clusters with the same settings, one
// after the other, and gives one a directory of the other.
func TestIdentity_RefusesAnotherCluster(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("two clusters; left out by -short")
	}
	c := chaos.StartCluster(t, trial.Options())
	c.Shutdown()
	foreign := map[uint64]string{}
	for _, n := range c.Nodes {
		foreign[n.ID] = n.Dir
		n.Dir += ".second"
	}
	c.Start()
	c.WaitReady()
	trial.Highest(t, c)
	n := c.Node(3)
	n.Shutdown()
	own := n.Dir
	n.Dir = foreign[3]
	refuse(t, c, n, "node 3", "was refused by", "wrong_cluster", "data directory of its own")
	n.Dir = own
	n.Start()
	c.WaitReady()
}

// TestIdentity_RefusesAClone runs two processes from copies of one directory. The one that
// connects first is admitted, never both.
func TestIdentity_RefusesAClone(t *testing.T) {
	t.Parallel()
	c := chaos.StartCluster(t, trial.Options())
	load := chaos.StartLoad(t, chaos.LoadOptions{Addrs: c.Addrs(), Callers: 4, Pause: 2 * time.Millisecond})
	n := c.Node(3)
	n.Shutdown()
	twin := c.Clone(n, n.Dir+".clone")
	copyDir(t, twin.Dir, n.Dir)

	// The member is connected already.
	n.Start()
	c.Settle()
	refuse(t, c, twin, "node 3", "was refused by", "cloned: node 3 runs already")
	if n.Exited() {
		t.Error("the clone ended the member")
	}

	// Both start at once.
	n.Shutdown()
	if err := os.RemoveAll(twin.Dir); err != nil {
		t.Fatal(err)
	}
	copyDir(t, twin.Dir, n.Dir)
	n.Start()
	n.ExpectExit()
	twin.Start()
	twin.ExpectExit()
	for deadline := time.Now().Add(chaos.ExitTimeout); !n.Exited() && !twin.Exited(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("both run")
		}
	}
	for _, one := range []*chaos.Node{n, twin} {
		if one.Exited() {
			trial.WantExit(t, one, "node 3", "was refused by", "cloned: ")
		}
	}
	t.Logf("started at once: the member exited: %v, its clone: %v", n.Exited(), twin.Exited())
	trial.Highest(t, c)
	load.End(t, 100, 0)
}
