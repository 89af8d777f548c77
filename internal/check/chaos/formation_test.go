//go:build linux

package chaos_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/chaos"
)

// peersOf returns the PEERS setting for some nodes.
func peersOf(nodes []*chaos.Node) string {
	var list []string
	for _, n := range nodes {
		list = append(list, fmt.Sprintf("%d=%s", n.ID, n.RaftAddr))
	}
	return strings.Join(list, ",")
}

// clusterOf returns the cluster ID that a node reports.
func clusterOf(t *testing.T, n *chaos.Node) string {
	t.Helper()
	var members struct{ ClusterID string }
	if err := json.Unmarshal(get(t, n, "/members").Body, &members); err != nil || members.ClusterID == "" {
		t.Fatalf("node %d names no cluster: %v", n.ID, err)
	}
	return members.ClusterID
}

// wantRefused starts nodes that must not form a cluster. All exit with code 1, name the cause,
// and never answer with a timestamp.
func wantRefused(t *testing.T, nodes []*chaos.Node, words ...string) {
	t.Helper()
	for _, n := range nodes {
		n.Start()
		n.ExpectExit()
	}
	for _, n := range nodes {
		waitFor(t, chaos.ExitTimeout, func() (bool, string) {
			if a, err := chaos.Get(n.HTTPAddr, "/timestamp", time.Second); err == nil && a.Status == 200 {
				t.Errorf("I10: node %d serves", n.ID)
			}
			return n.Exited(), fmt.Sprintf("node %d goes on: %s", n.ID, n.Log())
		})
		wantExit(t, n, append(words, fmt.Sprintf("node %d", n.ID), "was refused by node")...)
	}
}

// TestFormation_NothingIsFormedBesideANodeAlone starts node 1 without PEERS, and the others
// with all three.
func TestFormation_NothingIsFormedBesideANodeAlone(t *testing.T) {
	t.Parallel()
	c := chaos.NewCluster(t, options())
	one := c.Node(1)
	one.Env["PEERS"] = ""
	one.Start()
	one.WaitReady(chaos.ReadyTimeout)
	before := timestamps(t, one, 1).First
	wantRefused(t, c.Nodes[1:], "already_formed", "cluster of the nodes 1,2,3", clusterOf(t, one), "JOIN")
	if after := timestamps(t, one, 1).First; !before.Before(after) {
		t.Errorf("%v after %v", after, before)
	}
}

// TestFormation_NothingIsFormedByEditingPEERS extends three nodes to five by editing PEERS,
// while one of the three has a new disk.
func TestFormation_NothingIsFormedByEditingPEERS(t *testing.T) {
	t.Parallel()
	o := options()
	o.Nodes = 5
	c := chaos.NewCluster(t, o)
	for _, n := range c.Nodes[:3] {
		n.Env["PEERS"] = peersOf(c.Nodes[:3])
		n.Start()
	}
	c.WaitReady()
	load := chaos.StartLoad(t, chaos.LoadOptions{Addrs: c.Addrs(), Callers: 4, Pause: 5 * time.Millisecond})
	load.WaitAnswer(t)
	was, three := clusterOf(t, c.Node(1)), c.Node(3)
	three.Shutdown()
	if err := os.RemoveAll(three.Dir); err != nil {
		t.Fatal(err)
	}
	delete(three.Env, "PEERS")
	wantRefused(t, c.Nodes[2:], "has stopped")
	wantWords(t, three.Log(), "wiped", "bring the old directory back")
	for _, n := range c.Nodes[3:] {
		wantWords(t, n.Log(), "already_formed", "cluster of the nodes 1,2,3,4,5", was, "JOIN")
	}
	load.WaitAnswer(t)
	if is := clusterOf(t, c.WaitLeader()); is != was {
		t.Errorf("cluster %s, was %s", is, was)
	}
	load.Stop().Verify(t, 100)
}

// TestFormation_WaitsForTheLast starts three nodes one after the other.
func TestFormation_WaitsForTheLast(t *testing.T) {
	t.Parallel()
	c := chaos.NewCluster(t, options())
	for i, missing := range []string{"nodes 2 and 3 were not reached yet", "node 3 was not reached yet"} {
		c.Nodes[i].Start()
		for _, n := range c.Nodes[:i+1] {
			waitFor(t, chaos.ReadyTimeout, func() (bool, string) {
				a, err := chaos.Get(n.HTTPAddr, "/ready", answerTimeout)
				return err == nil && strings.Contains(string(a.Body), missing), fmt.Sprintf("node %d: %v %v", n.ID, a, err)
			})
		}
		for range 20 {
			for _, n := range c.Nodes[:i+1] {
				if a := get(t, n, "/ready"); a.Status == 200 {
					t.Errorf("I10: node %d is ready without the others", n.ID)
				}
				if a := get(t, n, "/timestamp"); a.Status == 200 || a.Code() != "no_leader" {
					t.Errorf("I10: node %d answered %d %s", n.ID, a.Status, a.Body)
				}
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	c.Node(3).Start()
	c.WaitReady()
	timestamps(t, c.WaitLeader(), 1)
}

// TestFormation_SurvivesKills kills nodes at random while they form a cluster.
func TestFormation_SurvivesKills(t *testing.T) {
	for seed := range uint64(short(4, 2)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 4))
			c := chaos.NewCluster(t, options())
			c.Start()
			for range 15 {
				time.Sleep(time.Duration(20+rng.IntN(80)) * time.Millisecond)
				n := c.Nodes[rng.IntN(3)]
				n.Kill()
				n.Start()
			}
			c.WaitReady()
			for _, n := range c.Nodes {
				if is, want := clusterOf(t, n), clusterOf(t, c.Node(1)); is != want {
					t.Errorf("I10: node %d is of cluster %s, node 1 of %s", n.ID, is, want)
				}
			}
			timestamps(t, c.WaitLeader(), 1)
		})
	}
}

// TestFormation_MemberWipedEarlyIsRefused wipes a node as soon as the cluster is formed.
func TestFormation_MemberWipedEarlyIsRefused(t *testing.T) {
	t.Parallel()
	c := chaos.NewCluster(t, options())
	c.Start()
	highest(t, c)
	leader := c.WaitLeader()
	n := c.Others(leader)[0]
	n.Kill()
	if err := os.RemoveAll(n.Dir); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, []*chaos.Node{n}, "wiped", "bring the old directory back")
	highest(t, c)
}
