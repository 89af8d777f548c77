//go:build linux

package membership_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
)

// snapshotEvery is how many entries lie between two snapshots of a node here. snapshotEntries is more than that, and than it writes
// until the first one is on its disk.
const (
	snapshotEvery   = 64
	snapshotEntries = snapshotEvery + 200
)

// toSnapshot runs a cluster, quickly, until all nodes have the members with their addresses in a
// snapshot on their disks, and stops it. From then on they know the addresses as soon as they start.
func toSnapshot(t *testing.T, c *chaos.Cluster) {
	t.Helper()
	for _, n := range c.Nodes {
		n.Env["EPOCH_INTERVAL_MS"], n.Env["ISOTONE_FAULT_SNAPSHOTS"] = "1", fmt.Sprint(snapshotEvery)
	}
	c.Start()
	c.WaitReady()
	for _, n := range c.Nodes {
		await.Done(t, 4*chaos.ReadyTimeout, func() (bool, string) {
			applied, err := chaos.Metric(n.HTTPAddr, "isotone_raft_applied_index")
			return applied > snapshotEntries, fmt.Sprintf("node %d has applied %v entries, %v", n.ID, applied, err)
		})
	}
	c.Shutdown()
	for _, n := range c.Nodes {
		delete(n.Env, "ISOTONE_FAULT_SNAPSHOTS")
		delete(n.Env, "EPOCH_INTERVAL_MS")
	}
}

// wantPeerAddrs waits until the cluster has these peer addresses on record.
func wantPeerAddrs(t *testing.T, c *chaos.Cluster, addrs ...string) {
	t.Helper()
	await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
		out, err := exec.Command(trial.Binary, "member", "list", "--json", "--endpoint", strings.Join(c.Addrs(), ",")).CombinedOutput()
		for _, addr := range addrs {
			if !strings.Contains(string(out), `"peerAddr":"`+addr+`"`) {
				return false, fmt.Sprintf("%s is not on record: %v: %s", addr, err, out)
			}
		}
		return true, ""
	})
}

// TestNewAddresses_PEERSOnAllMachinesIsEnough: all machines get new addresses, and an operator edits
// PEERS. There is no leader whom anybody could tell.
func TestNewAddresses_PEERSOnAllMachinesIsEnough(t *testing.T) {
	t.Parallel()
	c := chaos.NewCluster(t, trial.Options())
	toSnapshot(t, c)
	for _, n := range c.Nodes {
		c.Move(n)
	}

	// Started with the new addresses and the old PEERS, they say what is to be done.
	c.Start()
	for _, n := range c.Nodes {
		await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
			a, err := chaos.Get(n.HTTPAddr, "/ready", trial.AnswerTimeout)
			if err != nil {
				return false, err.Error()
			}
			return strings.Contains(string(a.Body), "write these into PEERS on all machines"), string(a.Body)
		})
	}
	out, _ := exec.Command(trial.Binary, "doctor", "--endpoint", c.Node(1).HTTPAddr).CombinedOutput()
	trial.WantWords(t, string(out), "no leader is known, and these members do not answer at their peer addresses on record", "which needs no leader")
	c.Shutdown()

	peers := trial.PeersOf(c.Nodes)
	for _, n := range c.Nodes {
		n.Env["PEERS"] = peers
	}
	c.Start()
	c.WaitReady()
	wantPeerAddrs(t, c, c.Node(1).RaftAddr, c.Node(2).RaftAddr, c.Node(3).RaftAddr)
	trial.Timestamps(t, c.WaitLeader(), 1)
}

// TestNewAddresses_AWrongOwnEntryDoesNoHarm: each node calls itself localhost in its own PEERS, where
// the others do not find it. That goes on record, because all addresses are of one machine here.
func TestNewAddresses_AWrongOwnEntryDoesNoHarm(t *testing.T) {
	t.Parallel()
	c := chaos.NewCluster(t, trial.Options())
	for _, n := range c.Nodes {
		n.RaftAddr = strings.Replace(n.RaftAddr, "127.0.0.1", fmt.Sprintf("127.0.1.%d", n.ID), 1)
	}
	right := trial.PeersOf(c.Nodes)
	var wrong []string
	for _, n := range c.Nodes {
		own := strings.Replace(n.RaftAddr, fmt.Sprintf("127.0.1.%d", n.ID), "127.0.0.1", 1)
		wrong = append(wrong, own)
		n.Env["PEERS"] = strings.Replace(right, n.RaftAddr, own, 1)
	}
	toSnapshot(t, c)
	c.Start()
	c.WaitReady()
	wantPeerAddrs(t, c, wrong...)
	await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
		out, err := exec.Command(trial.Binary, "status", c.Node(1).HTTPAddr).CombinedOutput()
		return strings.Contains(string(out), "node 2 is on record at "+wrong[1]), fmt.Sprintf("%v: %s", err, out)
	})
	c.Shutdown()
	for _, n := range c.Nodes {
		n.Env["PEERS"] = right
	}
	c.Start()
	c.WaitReady()
	wantPeerAddrs(t, c, c.Node(1).RaftAddr, c.Node(2).RaftAddr, c.Node(3).RaftAddr)
}

// TestNewAddresses_AnOwnEntryThatNobodyReachesIsRefused at the start, before it can go on record.
func TestNewAddresses_AnOwnEntryThatNobodyReachesIsRefused(t *testing.T) {
	t.Parallel()
	c := chaos.NewCluster(t, trial.Options())
	n := c.Node(1)
	n.Env["PEERS"] = "1=localhost:60001,2=10.0.0.2:60001,3=10.0.0.3:60001"
	n.Start()
	n.ExpectExit()
	if code := n.WaitExit(chaos.ExitTimeout); code == 0 {
		t.Error("it has exited with code 0")
	}
	trial.WantWords(t, n.Log(), `PEERS (--peers) = "1=localhost:60001"`, "want the address at which node 2 and the other members reach this node")
}
