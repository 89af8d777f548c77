//go:build linux

package trial

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chaos"
)

// AnswerTimeout bounds a single request of a test.
const AnswerTimeout = time.Minute

// Get sends a request to one node, and fails the test if there is no answer.
func Get(t *testing.T, n *chaos.Node, target string) *chaos.Answer {
	t.Helper()
	a, err := chaos.Get(n.HTTPAddr, target, AnswerTimeout)
	if err != nil {
		t.Fatalf("%s of node %d: %v", target, n.ID, err)
	}
	return a
}

// Timestamps requests count timestamps from one node, and fails the test if it gets none.
func Timestamps(t *testing.T, n *chaos.Node, count int) isotone.Range {
	t.Helper()
	a := Get(t, n, fmt.Sprintf("/timestamp?n=%d", count))
	if a.Status != 200 {
		t.Fatalf("node %d answered %d %s", n.ID, a.Status, a.Body)
	}
	r, err := a.Range()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Highest returns a new timestamp from the leader.
func Highest(t *testing.T, c *chaos.Cluster) isotone.Timestamp {
	t.Helper()
	return FromLeader(t, c, 1).Last()
}

// FromLeader requests timestamps from the leader until it gets them.
func FromLeader(t *testing.T, c *chaos.Cluster, count int) (r isotone.Range) {
	t.Helper()
	await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
		n := c.Leader()
		if n == nil {
			return false, "no node leads"
		}
		a, err := chaos.Get(n.HTTPAddr, fmt.Sprintf("/timestamp?n=%d", count), AnswerTimeout)
		if err != nil || a.Status != 200 {
			return false, fmt.Sprintf("node %d gives no timestamp: %v, %v", n.ID, a, err)
		}
		if r, err = a.Range(); err != nil {
			t.Fatal(err)
		}
		return true, ""
	})
	return r
}

// WantMetric waits until a metric has a value. A node counts an answer just after sending it,
// and sets gauges every 100 ms.
func WantMetric(t *testing.T, n *chaos.Node, name string, want float64) {
	t.Helper()
	WaitMetric(t, n, name, func(v float64) bool { return v == want })
}

// WaitMetric waits until a metric of a node has a value that is good.
func WaitMetric(t *testing.T, n *chaos.Node, name string, good func(float64) bool) {
	t.Helper()
	await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
		v, err := chaos.Metric(n.HTTPAddr, name)
		return err == nil && good(v), fmt.Sprintf("node %d: %s is %v, %v", n.ID, name, v, err)
	})
}

// WantExit waits until a node has ended by itself with exit code 1 and has printed
// all of the words.
func WantExit(t *testing.T, n *chaos.Node, words ...string) {
	t.Helper()
	if code := n.WaitExit(chaos.ExitTimeout); code != 1 {
		t.Errorf("node %d exited with code %d, want 1", n.ID, code)
	}
	WantWords(t, n.Log(), words...)
}

// WantWords expects a text to contain all of the words.
func WantWords(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q is missing in:\n%s", word, text)
		}
	}
}

// WaitWords waits until a node has printed a text in its current run.
func WaitWords(t *testing.T, n *chaos.Node, words string) {
	t.Helper()
	await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
		log := n.Log()
		return strings.Contains(log, words), fmt.Sprintf("node %d does not print %q: %s", n.ID, words, log)
	})
}

// WantAnswers waits until a counter has grown by more.
func WantAnswers(t *testing.T, answered *atomic.Int64, more int64) {
	t.Helper()
	want := answered.Load() + more
	await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
		if t.Failed() {
			t.FailNow()
		}
		now := answered.Load()
		return now >= want, fmt.Sprintf("%d answers, want %d", now, want)
	})
}

// Command runs a command of the binary under test and returns its exit code and output.
func Command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err strings.Builder
	cmd := exec.CommandContext(t.Context(), Binary, args...)
	cmd.Stdout, cmd.Stderr = &out, &err
	if failed := cmd.Run(); failed != nil && !errors.As(failed, new(*exec.ExitError)) {
		t.Fatalf("isotone %q: %v", args, failed)
	}
	return cmd.ProcessState.ExitCode(), out.String(), err.String()
}

// PeersOf returns the PEERS setting for some nodes.
func PeersOf(nodes []*chaos.Node) string {
	var list []string
	for _, n := range nodes {
		list = append(list, fmt.Sprintf("%d=%s", n.ID, n.RaftAddr))
	}
	return strings.Join(list, ",")
}

// ClusterOf returns the cluster ID that a node reports.
func ClusterOf(t *testing.T, n *chaos.Node) string {
	t.Helper()
	var members struct{ ClusterID string }
	if err := json.Unmarshal(Get(t, n, "/members").Body, &members); err != nil || members.ClusterID == "" {
		t.Fatalf("node %d names no cluster: %v", n.ID, err)
	}
	return members.ClusterID
}
