//go:build linux

package membership_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
)

// operatorTimeout bounds one command of an operator.
const operatorTimeout = 60 * time.Second

// operation is a command of an operator that runs beside the test.
type operation struct {
	args     []string
	out, err bytes.Buffer
	ended    chan struct{}
	failed   error // set when ended is closed
	took     time.Duration
	kill     func() // with SIGKILL
}

// start runs an isotone command with --yes, at all nodes of a cluster that run, unless it names
// endpoints.
func start(t *testing.T, c *chaos.Cluster, args ...string) *operation {
	t.Helper()
	args = append(args, "--yes", "--timeout", "20s")
	if !slices.Contains(args, "--endpoint") {
		var endpoints []string
		for _, n := range c.Nodes {
			if !n.Exited() {
				endpoints = append(endpoints, n.HTTPAddr)
			}
		}
		args = append(args, "--endpoint", strings.Join(endpoints, ","))
	}
	ctx, cancel := context.WithTimeout(context.Background(), operatorTimeout)
	o := &operation{args: args, ended: make(chan struct{}), kill: cancel}
	cmd := exec.CommandContext(ctx, trial.Binary, args...)
	cmd.Stdout, cmd.Stderr = &o.out, &o.err
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(o.ended)
		defer cancel()
		o.failed = cmd.Wait()
		o.took = time.Since(began)
	}()
	t.Cleanup(func() { cancel(); <-o.ended })
	return o
}

// wait waits for the end of the command and returns its error, with what it printed.
func (o *operation) wait() error {
	<-o.ended
	if o.failed == nil {
		return nil
	}
	return fmt.Errorf("isotone %s: %w after %v: %s%s", strings.Join(o.args, " "), o.failed, o.took, o.out.String(), o.err.String())
}

// operate runs a command of an operator, which must succeed, and returns its output.
func operate(t *testing.T, c *chaos.Cluster, args ...string) string {
	t.Helper()
	o := start(t, c, args...)
	if err := o.wait(); err != nil {
		t.Fatal(err)
	}
	return o.out.String()
}

// memberRecord is what isotone member list prints of a member.
type memberRecord struct {
	NodeID, Generation uint64
	Role               string
	PeerAddr           string
	Promote            bool
	Replaces           uint64
}

// memberList returns the members as the leader sees them, and the removed nodes.
func memberList(t *testing.T, c *chaos.Cluster) (members []memberRecord, removed []uint64) {
	t.Helper()
	var l struct {
		Members []memberRecord
		Removed []uint64
	}
	out := operate(t, c, "member", "list", "--json")
	if err := json.Unmarshal([]byte(out), &l); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return l.Members, l.Removed
}

// membersNow returns the members as the leader sees them, or nil if it does not answer. It costs a test that
// waits less than a command.
func membersNow(c *chaos.Cluster) []memberRecord {
	leader := c.Leader()
	if leader == nil {
		return nil
	}
	a, err := chaos.Get(leader.HTTPAddr, "/admin/members", time.Second)
	var l struct{ Members []memberRecord }
	if err != nil || a.Status != 200 || json.Unmarshal(a.Body, &l) != nil {
		return nil
	}
	return l.Members
}

// untilVoters waits until the cluster has nothing more to do by itself, and a command says so.
func untilVoters(t *testing.T, c *chaos.Cluster) {
	t.Helper()
	await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
		members := membersNow(c)
		if areVoters(members) {
			members, _ = memberList(t, c)
		}
		return areVoters(members), fmt.Sprintf("the members remain %+v", members)
	})
}

// areVoters reports whether there are members, each of them a voter, and one for each node.
func areVoters(members []memberRecord) bool {
	nodes := map[uint64]bool{}
	for _, m := range members {
		if m.Role == "learner" || nodes[m.NodeID] {
			return false
		}
		nodes[m.NodeID] = true
	}
	return len(members) > 0
}

// id is the ID of a node as an argument.
func id(n *chaos.Node) string { return fmt.Sprint(n.ID) }

// wantRemoved waits until a node that was removed or replaced ends, because the others refuse
// it.
func wantRemoved(t *testing.T, n *chaos.Node) {
	t.Helper()
	n.ExpectExit()
	trial.WantExit(t, n, fmt.Sprintf("node %d ", n.ID), "has stopped: removed: ")
}

// TestMember_WhoeverMissedItsRemovalIsTold when it comes back: nobody dials it any more, and the
// node with the lowest ID dials nobody.
func TestMember_WhoeverMissedItsRemovalIsTold(t *testing.T) {
	t.Parallel()
	o := trial.Options()
	o.Nodes = 4
	c := chaos.StartCluster(t, o)
	n := c.Node(1)
	n.Kill()
	operate(t, c, "member", "remove", id(n))
	n.Start()
	wantRemoved(t, n)
	n.Start() // it does not learn to live with it
	wantRemoved(t, n)
	two := c.Node(2)
	old := two.Dir
	two.Kill()
	two.Dir += ".new"
	peers := trial.PeersOf(c.Nodes)
	c.SetJoin(two)
	two.Start()
	operate(t, c, "member", "replace", id(two), two.RaftAddr)
	untilVoters(t, c)
	two.Shutdown()
	renewed := two.Dir
	two.Dir, two.Env["PEERS"], two.Env["JOIN"] = old, peers, ""
	two.Start()
	two.ExpectExit()
	trial.WantExit(t, two, "node 2 ", "has stopped: removed: node 2 was replaced by a node with a new data directory, at "+two.RaftAddr)
	delete(two.Env, "PEERS")
	delete(two.Env, "JOIN")
	two.Dir = renewed
	two.Start()
	c.WaitMembers()
	trial.Highest(t, c)
}

// TestMember_ALeaderIsReplacedWhileItRuns, by a node on another machine: it transfers its
// leadership, and ends when it is removed.
func TestMember_ALeaderIsReplacedWhileItRuns(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{3, 1} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			o := trial.Options()
			o.Nodes = nodes
			c := chaos.StartCluster(t, o)
			l := startMemberLoad(t, c)
			for range trial.Short(2, 1) {
				old := c.WaitLeader()
				next := c.Successor(old)
				next.Start()
				operate(t, c, "member", "replace", id(next), next.RaftAddr, "--endpoint", old.HTTPAddr+","+next.HTTPAddr)
				wantRemoved(t, old)
				settled(t, c, l)
			}
			l.Verify(t)
		})
	}
}
