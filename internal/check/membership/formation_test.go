//go:build linux

package membership_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
)

// wantRefused starts nodes that must not form a cluster. All exit with code 1, name the cause,
// and never answer with a timestamp.
func wantRefused(t *testing.T, nodes []*chaos.Node, words ...string) {
	t.Helper()
	for _, n := range nodes {
		n.Start()
		n.ExpectExit()
	}
	for _, n := range nodes {
		await.Done(t, chaos.ExitTimeout, func() (bool, string) {
			if a, err := chaos.Get(n.HTTPAddr, "/timestamp", time.Second); err == nil && a.Status == 200 {
				t.Errorf("I10: node %d serves", n.ID)
			}
			return n.Exited(), fmt.Sprintf("node %d goes on: %s", n.ID, n.Log())
		})
		trial.WantExit(t, n, append(words, fmt.Sprintf("node %d", n.ID), "was refused by node")...)
	}
}

// TestFormation_NothingIsFormedBesideANodeAlone starts node 1 without PEERS, and the others
// with all three.
func TestFormation_NothingIsFormedBesideANodeAlone(t *testing.T) {
	t.Parallel()
	c := chaos.NewCluster(t, trial.Options())
	one := c.Node(1)
	one.Env["PEERS"] = ""
	one.Start()
	one.WaitReady(chaos.ReadyTimeout)
	before := trial.Timestamps(t, one, 1).First
	wantRefused(t, c.Nodes[1:], "already_formed", "cluster of the nodes 1,2,3", trial.ClusterOf(t, one), "JOIN")
	if after := trial.Timestamps(t, one, 1).First; !before.Before(after) {
		t.Errorf("%v after %v", after, before)
	}
}

// TestFormation_NothingIsFormedByEditingPEERS extends three nodes to five by editing PEERS,
// while one of the three has a new disk.
func TestFormation_NothingIsFormedByEditingPEERS(t *testing.T) {
	t.Parallel()
	o := trial.Options()
	o.Nodes = 5
	c := chaos.NewCluster(t, o)
	for _, n := range c.Nodes[:3] {
		n.Env["PEERS"] = trial.PeersOf(c.Nodes[:3])
		n.Start()
	}
	c.WaitReady()
	load := chaos.StartLoad(t, chaos.LoadOptions{Addrs: c.Addrs(), Callers: 4, Pause: 5 * time.Millisecond})
	load.WaitAnswer(t)
	was, three := trial.ClusterOf(t, c.Node(1)), c.Node(3)
	three.Shutdown()
	if err := os.RemoveAll(three.Dir); err != nil {
		t.Fatal(err)
	}
	delete(three.Env, "PEERS")
	wantRefused(t, c.Nodes[2:], "has stopped")
	trial.WantWords(t, three.Log(), "wiped", "bring the old directory back")
	for _, n := range c.Nodes[3:] {
		trial.WantWords(t, n.Log(), "already_formed", "cluster of the nodes 1,2,3,4,5", was, "JOIN")
	}
	load.WaitAnswer(t)
	if is := trial.ClusterOf(t, c.WaitLeader()); is != was {
		t.Errorf("cluster %s, was %s", is, was)
	}
	load.End(t, 100, 0)
}

// TestFormation_WaitsForTheLast starts three nodes one after the other.
func TestFormation_WaitsForTheLast(t *testing.T) {
	t.Parallel()
	c := chaos.NewCluster(t, trial.Options())
	for i, missing := range []string{"nodes 2 and 3 were not reached yet", "node 3 was not reached yet"} {
		c.Nodes[i].Start()
		for _, n := range c.Nodes[:i+1] {
			await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
				a, err := chaos.Get(n.HTTPAddr, "/ready", trial.AnswerTimeout)
				return err == nil && strings.Contains(string(a.Body), missing), fmt.Sprintf("node %d: %v %v", n.ID, a, err)
			})
		}
		for range 20 {
			for _, n := range c.Nodes[:i+1] {
				if a := trial.Get(t, n, "/ready"); a.Status == 200 {
					t.Errorf("I10: node %d is ready without the others", n.ID)
				}
				if a := trial.Get(t, n, "/timestamp"); a.Status == 200 || a.Code() != "no_leader" {
					t.Errorf("I10: node %d answered %d %s", n.ID, a.Status, a.Body)
				}
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	c.Node(3).Start()
	c.WaitReady()
	trial.Timestamps(t, c.WaitLeader(), 1)
}

// TestFormation_SaysWhyItWaits: a mistake in the settings of one node is named, by a node that knows of it.
func TestFormation_SaysWhyItWaits(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		mistake func(c *chaos.Cluster)
		node    uint64 // that names it
		words   []string
	}{
		"two nodes have the lowest ID": {func(c *chaos.Cluster) { c.Node(2).Env["NODE_ID"] = "1" }, 3,
			[]string{"this node refuses node 2 at ", "(check PEERS, and NODE_ID there)", "dialed node 2, node 1 answered"}},
		"nobody listens": {func(c *chaos.Cluster) { c.Node(2).Env["RAFT_ADDR"] = "127.0.0.1:0" }, 3,
			[]string{"node 2 was not reached yet", "dialed in vain: node 2 at ", "connection refused", "RAFT_ADDR of that one"}},
		"a node does not run": {func(c *chaos.Cluster) { c.Nodes = c.Nodes[:2] }, 2,
			[]string{"node 3 was not reached yet", "it is for node 3 to dial this node"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := chaos.NewCluster(t, trial.Options())
			by := c.Node(tc.node)
			tc.mistake(c)
			for _, n := range c.Nodes {
				n.Start()
			}
			await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
				a, err := chaos.Get(by.HTTPAddr, "/state", trial.AnswerTimeout)
				return err == nil && !slices.ContainsFunc(tc.words, func(w string) bool { return !strings.Contains(string(a.Body), w) }), fmt.Sprintf("%v %v", a, err)
			})
			trial.WantWords(t, by.Log(), "the cluster is not formed yet")
		})
	}
}

// TestFormation_SurvivesKills kills nodes at random while they form a cluster.
func TestFormation_SurvivesKills(t *testing.T) {
	t.Parallel()
	for seed := range uint64(trial.Short(4, 2)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 4))
			c := chaos.NewCluster(t, trial.Options())
			c.Start()
			for range 15 {
				time.Sleep(time.Duration(20+rng.IntN(80)) * time.Millisecond)
				n := c.Nodes[rng.IntN(3)]
				n.Kill()
				n.Start()
			}
			c.WaitReady()
			for _, n := range c.Nodes {
				if is, want := trial.ClusterOf(t, n), trial.ClusterOf(t, c.Node(1)); is != want {
					t.Errorf("I10: node %d is of cluster %s, node 1 of %s", n.ID, is, want)
				}
			}
			trial.Timestamps(t, c.WaitLeader(), 1)
		})
	}
}

// TestFormation_MemberWipedEarlyIsRefused wipes a node as soon as the cluster is formed.
func TestFormation_MemberWipedEarlyIsRefused(t *testing.T) {
	t.Parallel()
	c := chaos.NewCluster(t, trial.Options())
	c.Start()
	trial.Highest(t, c)
	leader := c.WaitLeader()
	n := c.Others(leader)[0]
	n.Kill()
	if err := os.RemoveAll(n.Dir); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, []*chaos.Node{n}, "wiped", "bring the old directory back")
	trial.Highest(t, c)
}
