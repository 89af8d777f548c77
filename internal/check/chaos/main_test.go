//go:build linux

package chaos_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/chaos"
)

// binary is the isotone command under test, built once for all tests.
var binary string

func TestMain(m *testing.M) {
	chaos.BeHostile()
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if binary = os.Getenv(insideVariable); binary != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "isotone-chaos-")
	if err == nil {
		defer os.RemoveAll(dir)
		binary, err = chaos.Build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer browser.Close()
	return m.Run()
}

// answerTimeout bounds a single request of a test.
const answerTimeout = 10 * time.Second

// options are those of most tests: three nodes, all settings default.
func options() chaos.Options { return chaos.Options{Binary: binary} }

// get sends a request to one node, and fails the test if there is no answer.
func get(t *testing.T, n *chaos.Node, target string) *chaos.Answer {
	t.Helper()
	a, err := chaos.Get(n.HTTPAddr, target, answerTimeout)
	if err != nil {
		t.Fatalf("%s of node %d: %v", target, n.ID, err)
	}
	return a
}

// timestamps requests count timestamps from one node, and fails the test if it gets none.
func timestamps(t *testing.T, n *chaos.Node, count int) isotone.Range {
	t.Helper()
	a := get(t, n, fmt.Sprintf("/timestamp?n=%d", count))
	if a.Status != 200 {
		t.Fatalf("node %d answered %d %s", n.ID, a.Status, a.Body)
	}
	r, err := a.Range()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// highest returns a new timestamp from the leader.
func highest(t *testing.T, c *chaos.Cluster) isotone.Timestamp {
	t.Helper()
	return fromLeader(t, c, 1).Last()
}

// fromLeader requests timestamps from the leader until it gets them.
func fromLeader(t *testing.T, c *chaos.Cluster, count int) isotone.Range {
	t.Helper()
	target := fmt.Sprintf("/timestamp?n=%d", count)
	for deadline := time.Now().Add(chaos.ReadyTimeout); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		n := c.Leader()
		if n == nil {
			continue
		}
		if a, err := chaos.Get(n.HTTPAddr, target, answerTimeout); err == nil && a.Status == 200 {
			r, err := a.Range()
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
	}
	t.Fatal("no node answers with a timestamp")
	return isotone.Range{}
}

// wantMetric waits until a metric has a value. A node counts an answer just after sending it,
// and sets gauges every 100 ms.
func wantMetric(t *testing.T, n *chaos.Node, name string, want float64) {
	t.Helper()
	got, err := chaos.Metric(n.HTTPAddr, name)
	for deadline := time.Now().Add(2 * time.Second); got != want && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		got, err = chaos.Metric(n.HTTPAddr, name)
	}
	if err != nil || got != want {
		t.Errorf("node %d: %s is %v, want %v; %v", n.ID, name, got, want, err)
	}
}

// wantExit waits until a node has ended by itself with exit code 1 and has printed
// all of the words.
func wantExit(t *testing.T, n *chaos.Node, words ...string) {
	t.Helper()
	if code := n.WaitExit(chaos.ExitTimeout); code != 1 {
		t.Errorf("node %d exited with code %d, want 1", n.ID, code)
	}
	wantWords(t, n.Log(), words...)
}

// waitFor polls until done returns true. At the timeout it fails the test with the last
// reason.
func waitFor(t *testing.T, timeout time.Duration, done func() (bool, string)) {
	t.Helper()
	for deadline := time.Now().Add(timeout); ; time.Sleep(10 * time.Millisecond) {
		ok, why := done()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %v: %s", timeout, why)
		}
	}
}

func wantWords(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q is missing in:\n%s", word, text)
		}
	}
}

// short returns the smaller number in -short mode.
func short(normal, short int) int {
	if testing.Short() {
		return short
	}
	return normal
}
