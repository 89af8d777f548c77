//go:build linux

package membership_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/namespace"
	"github.com/isotone/isotone/internal/check/trial"
)

const (
	// copyEndsWithin bounds the time from the start of a copy to its end.
	copyEndsWithin = chaos.ReadyTimeout
	// copyTriesMax bounds how often a directory in use is copied: cp may read a file while it
	// changes, which the copy notices when it starts.
	copyTriesMax = 5
)

// member is what the cluster has on record of a node.
type member struct {
	NodeID, Generation, Start   uint64
	Incarnation, PeerAddr, Addr string
	Learner                     bool
}

// onRecord returns the members in the log, as the leader has applied it.
func onRecord(t *testing.T, c *chaos.Cluster) (list []member) {
	t.Helper()
	var answer struct {
		Members []struct {
			member
			Role string
		}
	}
	await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
		a, err := chaos.Get(c.WaitLeader().HTTPAddr, "/admin/members", trial.AnswerTimeout)
		if err != nil || a.Status != 200 {
			return false, fmt.Sprintf("/admin/members: %+v, %v", a, err)
		}
		return json.Unmarshal(a.Body, &answer) == nil, string(a.Body)
	})
	for _, m := range answer.Members {
		m.Learner = m.Role == "learner"
		list = append(list, m.member)
	}
	return list
}

func wantOnRecord(t *testing.T, c *chaos.Cluster, want []member) {
	t.Helper()
	if got := onRecord(t, c); !slices.Equal(got, want) {
		t.Errorf("the members on record are %+v, want %+v", got, want)
	}
}

// copyEnds starts a copy of a node whose directory make fills. It is first told that its place
// is taken, and then that it is a copy.
func copyEnds(t *testing.T, c *chaos.Cluster, n *chaos.Node, make func(dir string)) {
	t.Helper()
	for try := range copyTriesMax {
		twin := c.Clone(n, fmt.Sprintf("%s.copy%d", n.Dir, time.Now().UnixNano()))
		make(twin.Dir)
		began := time.Now()
		twin.Start()
		twin.ExpectExit()
		if code := twin.WaitExit(copyEndsWithin); code != 1 {
			t.Errorf("the copy exited with code %d, want 1", code)
		}
		if strings.Contains(twin.Log(), "damaged") && try < copyTriesMax-1 {
			t.Log("cp has read a file while it changed; once more")
			continue
		}
		t.Logf("the copy ended after %v", time.Since(began).Round(time.Millisecond))
		trial.WantWords(t, twin.Log(), `"refusal":"in_use: `, fmt.Sprintf("node %d was refused by node", n.ID), "has stopped: cloned: ")
		return
	}
}

// wasHeldUp reports whether the machine was too busy to run a node for a while, which may cost it the leadership.
func wasHeldUp(c *chaos.Cluster) bool {
	return slices.ContainsFunc(c.Nodes, func(n *chaos.Node) bool { return strings.Contains(n.Log(), "this process did not run for a while") })
}

// cpTo copies a directory that may be in use.
func cpTo(t *testing.T, from string) func(to string) {
	return func(to string) {
		t.Helper()
		if out, err := exec.Command("cp", "-r", from, to).CombinedOutput(); err != nil {
			t.Fatalf("cp: %v: %s", err, out)
		}
	}
}

// TestCopy_DoesNotCostTheOriginalItsMembership starts copies of data directories with other
// ports, while the originals run. Nothing of that reaches the log, no call fails, and the
// originals go on, restarts included (I6).
func TestCopy_DoesNotCostTheOriginalItsMembership(t *testing.T) {
	t.Parallel()
	c := chaos.StartCluster(t, trial.Options())
	load := trial.StartClientLoad(t, c, 8)
	ids := trial.StartClientIDs(t, load)
	check := func(n *chaos.Node, before []member) {
		t.Helper()
		wantOnRecord(t, c, before)
		if n.Exited() {
			t.Fatal("the copy ended the original")
		}
		n.Shutdown()
		n.Start()
		c.Settle()
		for i := range before {
			if before[i].NodeID == n.ID {
				before[i].Start++
			}
		}
		await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
			got := onRecord(t, c)
			return slices.Equal(got, before), fmt.Sprintf("after a restart: %+v, want %+v", got, before)
		})
		load.More(t, 200)
	}
	for _, what := range []string{"a follower", "the leader"} {
		t.Run("taken while it runs: "+what, func(t *testing.T) {
			n := c.Others(c.Node(1))[0] // node 1 dials nobody, so its copy is not heard of
			if leads := c.WaitLeader(); what == "the leader" && leads != n {
				operateLeader(t, c, n)
			} else if what != "the leader" && leads == n {
				operateLeader(t, c, c.Node(1))
			}
			before := onRecord(t, c)
			copyEnds(t, c, n, cpTo(t, n.Dir))
			if leads := c.WaitLeader(); what == "the leader" && leads != n && !wasHeldUp(c) {
				t.Errorf("node %d leads after the copy of the leader", leads.ID)
			}
			check(n, before)
		})
	}
	t.Run("taken while it was stopped", func(t *testing.T) {
		n := c.Node(3)
		n.Shutdown()
		kept := n.Dir + ".kept"
		cpTo(t, n.Dir)(kept)
		n.Start()
		c.Settle()
		waitConnectedOnRecord(t, c, n)
		before := onRecord(t, c)
		copyEnds(t, c, n, func(to string) { rename(t, kept, to) })
		check(n, before)
	})
	ids.Verify(t)
	load.Verify(t)
}

// waitConnectedOnRecord waits until the leader has registered the process of a node that runs.
func waitConnectedOnRecord(t *testing.T, c *chaos.Cluster, n *chaos.Node) {
	t.Helper()
	last := uint64(0)
	await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
		for _, m := range onRecord(t, c) {
			if m.NodeID == n.ID {
				last = m.Start
			}
		}
		return strings.Contains(n.Log(), fmt.Sprintf(`"start":%d,`, last)), fmt.Sprintf("start %d of node %d is on record", last, n.ID)
	})
}

// operateLeader transfers the leadership by the command for it.
func operateLeader(t *testing.T, c *chaos.Cluster, to *chaos.Node) {
	t.Helper()
	out, err := exec.Command(trial.Binary, "leader", "transfer", fmt.Sprint(to.ID), "--endpoint", strings.Join(c.Addrs(), ",")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if leader := c.WaitLeader(); leader != to {
		t.Fatalf("node %d leads, want node %d", leader.ID, to.ID)
	}
}

// TestCopy_ARestartAfterAKillIsAdmittedAtOnce: the kernel closes the connections of a process
// that is killed, so that its successor is taken for no copy.
func TestCopy_ARestartAfterAKillIsAdmittedAtOnce(t *testing.T) {
	t.Parallel()
	c := chaos.StartCluster(t, trial.Options())
	load := trial.StartClientLoad(t, c, 8)
	for range trial.Short(3, 1) {
		for _, n := range c.Nodes {
			c.Settle()
			load.More(t, 100)
			n.Kill()
			n.Start()
			n.WaitReady(chaos.ReadyTimeout)
			if log := n.Log(); strings.Contains(log, "cloned") || strings.Contains(log, `"refusal":"in_use: `) {
				t.Errorf("node %d was taken for a copy:\n%s", n.ID, log)
			}
		}
	}
	c.Settle()
	load.Verify(t)
}

// TestCopy_ARestartAfterAPowerLossIsAdmittedSoon: the peers do not hear that the connections of
// the last process have ended, and give them up after 5 s.
func TestCopy_ARestartAfterAPowerLossIsAdmittedSoon(t *testing.T) {
	t.Parallel()
	if why := namespace.NetworkDenied(); why != "" {
		t.Skip(why)
	}
	o := trial.Options()
	o.Network = true
	c := chaos.StartCluster(t, o)
	load := chaos.StartLoad(t, chaos.LoadOptions{Addrs: c.Addrs(), Callers: 4, Pause: 2 * time.Millisecond})
	// Node 1 is dialed by the others, node 3 dials them. The leader goes on sending to it.
	for _, n := range []*chaos.Node{c.Node(3), c.Node(1)} {
		c.Settle()
		if c.WaitLeader() == n {
			n.Shutdown() // and so another leads
			n.Start()
			c.Settle()
		}
		load.WaitAnswer(t)
		c.PowerLoss(n)
		began := time.Now()
		n.Start()
		n.WaitReady(chaos.ReadyTimeout)
		c.Settle()
		took := time.Since(began)
		t.Logf("node %d was a member again after %v", n.ID, took.Round(time.Millisecond))
		if log := n.Log(); strings.Contains(log, "cloned") {
			t.Errorf("node %d was taken for a copy:\n%s", n.ID, log)
		}
	}
	load.WaitAnswer(t)
	load.End(t, 100, 0)
}
