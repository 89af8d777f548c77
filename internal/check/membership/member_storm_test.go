//go:build linux

package membership_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/evidence"
	"github.com/isotone/isotone/internal/check/trial"
)

// These tests change the membership under load: 2 s deadlines, timestamps and IDs of nodes and
// of leased workers. No call may fail, no order break, no ID repeat. "make member-storm" runs
// them for minutes; without the settings in the environment they are short.

// memberLoad is the load of these tests.
type memberLoad struct {
	*trial.ClientLoad
	ids *trial.ClientIDs
}

func startMemberLoad(t *testing.T, c *chaos.Cluster) memberLoad {
	t.Helper()
	l := trial.StartClientLoad(t, c, 8)
	return memberLoad{l, trial.StartClientIDs(t, l)}
}

func (l memberLoad) Verify(t *testing.T) {
	t.Helper()
	l.ids.Verify(t)
	l.ClientLoad.Verify(t)
	command := "make member-storm"
	if strings.HasPrefix(t.Name(), "TestMemberSteps") {
		command = "make member-steps"
	}
	trial.Record(t, evidence.Storm{
		Command: command, Settings: t.Name(), Took: l.Took(), Answered: uint64(l.Answered.Load()), IDs: uint64(l.ids.Count()),
		Violations: l.Online.Stats().Violations, Note: fmt.Sprintf("%v at most for a call", l.Slowest.Round(time.Millisecond)),
	})
}

// settled waits until the cluster has recovered and all nodes agree on the members, which are
// the nodes that run.
func settled(t *testing.T, c *chaos.Cluster, l memberLoad) {
	t.Helper()
	untilVoters(t, c)
	c.WaitMembers()
	c.Settle()
	l.More(t, 200)
}

// TestMember_ReplacesLostDisks: kill -9, the data directory is deleted, a new one joins. In
// turn of a follower and of the leader; the new node is started before the command and after
// it; at the old address and at a new one. MEMBER_REPLACEMENTS says how often.
func TestMember_ReplacesLostDisks(t *testing.T) {
	t.Parallel()
	c := chaos.StartCluster(t, trial.Options())
	l := startMemberLoad(t, c)
	for i := range trial.Number(t, "MEMBER_REPLACEMENTS", 3, 2) {
		n := c.WaitLeader()
		if i%2 == 0 {
			n = c.Others(n)[rand.IntN(2)]
		}
		l.More(t, 200)
		n.Kill()
		c.LoseDisk(n)
		if i%4 >= 2 {
			c.Move(n)
		}
		began := time.Now()
		if i%3 == 0 {
			n.Start()
		}
		o := start(t, c, "member", "replace", id(n), n.RaftAddr)
		if i%3 != 0 {
			await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
				members := membersNow(c)
				return len(members) == 4, fmt.Sprintf("no successor of node %d: %+v", n.ID, members)
			})
			n.Start()
		}
		if err := o.wait(); err != nil {
			t.Fatal(err)
		}
		t.Logf("node %d is replaced after %v", n.ID, time.Since(began).Round(time.Millisecond))
		settled(t, c, l)
	}
	l.Verify(t)
}

// TestMember_GrowsAndShrinks: 3→5→3, by adding two nodes and removing two, the leader among
// them. The removed nodes end by themselves. MEMBER_GROWTHS says how often.
func TestMember_GrowsAndShrinks(t *testing.T) {
	t.Parallel()
	c := chaos.StartCluster(t, trial.Options())
	l := startMemberLoad(t, c)
	for range trial.Number(t, "MEMBER_GROWTHS", 1, 1) {
		early, late := c.Joiner(), c.Joiner()
		early.Start() // before it is added
		operate(t, c, "member", "add", id(early), early.RaftAddr, "--voter")
		operate(t, c, "member", "add", id(late), late.RaftAddr, "--learner")
		late.Start()
		await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
			err := start(t, c, "member", "promote", id(late)).wait() // refused until it has caught up
			return err == nil, fmt.Sprint(err)
		})
		settled(t, c, l)
		for i := range 2 {
			n := c.WaitLeader()
			if i == 1 {
				n = running(c, n)[rand.IntN(3)]
			}
			operate(t, c, "member", "remove", id(n))
			wantRemoved(t, n)
			settled(t, c, l)
		}
	}
	l.Verify(t)
}

// running returns the nodes that run, but one.
func running(c *chaos.Cluster, except *chaos.Node) (list []*chaos.Node) {
	for _, n := range c.Others(except) {
		if !n.Exited() {
			list = append(list, n)
		}
	}
	return list
}

// TestMember_MovesEveryNode to another peer address and another client address. The load knows
// the addresses of the beginning only. MEMBER_MOVES says how often each is moved.
func TestMember_MovesEveryNode(t *testing.T) {
	t.Parallel()
	c := chaos.StartCluster(t, trial.Options())
	l := startMemberLoad(t, c)
	for round := range trial.Number(t, "MEMBER_MOVES", 1, 1) {
		for i, n := range c.Nodes {
			if (round+i)%2 == 0 {
				// First the addresses, then the node.
				was := n.HTTPAddr
				c.Move(n)
				to := n.HTTPAddr
				n.HTTPAddr = was // it still runs there
				leads := c.WaitLeader() == n
				operate(t, c, "member", "update", id(n), n.RaftAddr, to)
				if !leads {
					l.More(t, 200)
				} // Else who looks for the leader now is sent to where nothing listens yet.
				n.Shutdown()
				n.HTTPAddr = to
				n.Start()
			} else {
				// First the node: it registers its new client address by itself.
				n.Shutdown()
				c.Move(n)
				n.Start()
				operate(t, c, "member", "update", id(n), n.RaftAddr)
			}
			settled(t, c, l)
			if log := n.Log(); !strings.Contains(log, "PEERS differs from the members that the cluster has by now") {
				t.Errorf("node %d does not warn of its PEERS: %s", n.ID, log)
			}
		}
	}
	l.Verify(t)
}

// TestMember_RollingRestart by SIGTERM, one node after the other, of a cluster with a node that has
// joined it. MEMBER_ROLLS says how often.
func TestMember_RollingRestart(t *testing.T) {
	t.Parallel()
	c := chaos.StartCluster(t, trial.Options())
	l := startMemberLoad(t, c)
	n := c.Joiner()
	n.Start()
	operate(t, c, "member", "add", id(n), n.RaftAddr, "--voter")
	operate(t, c, "member", "remove", id(c.Node(1)))
	wantRemoved(t, c.Node(1))
	for range trial.Number(t, "MEMBER_ROLLS", 1, 1) {
		for _, n := range c.Nodes[1:] {
			n.Shutdown()
			n.Start()
			c.Settle()
			l.More(t, 50)
		}
	}
	l.Verify(t)
}

// TestMember_ProxiesAndForwardingFollowersKnowTheMembers: a load through isotone proxy, which
// knows the nodes of the beginning, and another one through a follower with FORWARD=1, which
// knows itself, while both other nodes are replaced at other addresses.
func TestMember_ProxiesAndForwardingFollowersKnowTheMembers(t *testing.T) {
	t.Parallel()
	o := trial.Options()
	o.Env = map[string]string{"FORWARD": "1"}
	c := chaos.StartCluster(t, o)
	follower := c.Others(c.WaitLeader())[0]
	through := trial.StartClientLoadWithin(t, []string{trial.StartProxy(t, c)}, 8, trial.CallDeadline())
	load := chaos.StartLoad(t, chaos.LoadOptions{Addrs: []string{follower.HTTPAddr}, Callers: 4, Pause: 2 * time.Millisecond, Timeout: 10 * time.Second})
	for _, n := range c.Others(follower) {
		n.Kill()
		c.LoseDisk(n)
		c.Move(n)
		n.Start()
		operate(t, c, "member", "replace", id(n), n.RaftAddr)
		untilVoters(t, c)
		c.WaitMembers()
		c.Settle()
		through.More(t, 200)
		load.WaitAnswer(t)
	}
	through.Verify(t)
	report := load.End(t, 100, 0)
	for outcome, count := range report.Outcomes {
		if outcome != "ok" {
			t.Errorf("%d requests to the follower ended as %s", count, outcome)
		}
	}
}
