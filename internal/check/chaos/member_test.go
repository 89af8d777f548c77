//go:build linux

package chaos_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/chaos"
)

// number returns the setting of a storm in the environment, or the default of a normal run, or
// the one with -short.
func number(t *testing.T, name string, normal, small int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return short(normal, small)
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q: want a number of 1 or more", name, text)
	}
	return n
}

// operatorTimeout bounds one command of an operator.
const operatorTimeout = 60 * time.Second

// operation is a command of an operator that runs beside the test.
type operation struct {
	args     []string
	out, err bytes.Buffer
	ended    chan struct{}
	failed   error // set when ended is closed
	took     time.Duration
}

// start runs an isotone command with --yes at all nodes of a cluster that were up.
func start(t *testing.T, c *chaos.Cluster, args ...string) *operation {
	t.Helper()
	var endpoints []string
	for _, n := range c.Nodes {
		if !n.Exited() {
			endpoints = append(endpoints, n.HTTPAddr)
		}
	}
	o := &operation{args: args, ended: make(chan struct{})}
	ctx, cancel := context.WithTimeout(context.Background(), operatorTimeout)
	cmd := exec.CommandContext(ctx, binary, append(args, "--yes", "--timeout", "20s", "--endpoint", strings.Join(endpoints, ","))...)
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

// untilVoters waits until the cluster has nothing more to do by itself.
func untilVoters(t *testing.T, c *chaos.Cluster) {
	t.Helper()
	waitFor(t, chaos.ReadyTimeout, func() (bool, string) {
		members, _ := memberList(t, c)
		nodes := map[uint64]bool{}
		for _, m := range members {
			if m.Role == "learner" || nodes[m.NodeID] {
				return false, fmt.Sprintf("the members remain %+v", members)
			}
			nodes[m.NodeID] = true
		}
		return true, ""
	})
}

// id is the ID of a node as an argument.
func id(n *chaos.Node) string { return fmt.Sprint(n.ID) }

// wantRemoved waits until a node that was removed or replaced ends, because the others refuse
// it.
func wantRemoved(t *testing.T, n *chaos.Node) {
	t.Helper()
	n.ExpectExit()
	wantExit(t, n, fmt.Sprintf("node %d ", n.ID), "has stopped: removed: ")
}
