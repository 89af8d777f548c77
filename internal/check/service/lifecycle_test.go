//go:build linux

package service_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/ports"
	"github.com/isotone/isotone/internal/check/trial"
)

// exitQuick is less than a node waits for requests that run. A node that has nothing to wait for ends
// sooner, at least once of several times: a busy machine delays some.
const exitQuick = 5 * time.Second

// TestLifecycle_SignalsEndANodeCleanly ends a node of a cluster and a node on its own
// by each signal, with clients connected, and starts it again on its directory.
func TestLifecycle_SignalsEndANodeCleanly(t *testing.T) {
	t.Parallel()
	alone := trial.Options()
	alone.Nodes = 1
	var took []time.Duration
	for name, c := range map[string]*chaos.Cluster{"alone": chaos.StartCluster(t, alone), "leader of three": chaos.StartCluster(t, trial.Options())} {
		for _, signal := range []func(*chaos.Process) error{(*chaos.Process).Term, (*chaos.Process).Interrupt} {
			c.Settle()
			n := c.WaitLeader()
			before := trial.Timestamps(t, n, 1).First
			idle, err := chaos.Dial(n.HTTPAddr, trial.AnswerTimeout)
			if err != nil {
				t.Fatal(err)
			}
			defer idle.Close()
			if _, err := idle.Get("/up", trial.AnswerTimeout); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if err := signal(n.Process()); err != nil {
				t.Fatal(err)
			}
			if code := n.WaitExit(chaos.ExitTimeout); code != 0 {
				t.Errorf("%s: exit code %d", name, code)
			}
			took = append(took, time.Since(began))
			t.Logf("%s: gone after %v", name, took[len(took)-1].Round(time.Millisecond))
			trial.WantWords(t, n.Log(), `"msg":"stopping"`, `"msg":"stopped"`)
			for _, addr := range []string{n.HTTPAddr, n.RaftAddr} {
				if err := ports.Check(portOf(t, addr)); err != nil {
					t.Errorf("%s: a socket is left: %v", name, err)
				}
			}
			n.Start()
			c.WaitReady()
			if after := trial.Highest(t, c); !before.Before(after) {
				t.Errorf("%v after %v", after, before)
			}
		}
	}
	if soonest := slices.Min(took); soonest > exitQuick {
		t.Errorf("with an idle client a node ends after %v at the soonest", soonest)
	}
}

func portOf(t *testing.T, addr string) (port int) {
	t.Helper()
	if _, err := fmt.Sscanf(addr, "127.0.0.1:%d", &port); err != nil {
		t.Fatal(err)
	}
	return port
}

// TestLifecycle_BadStartsSayWhy starts nodes that cannot run.
func TestLifecycle_BadStartsSayWhy(t *testing.T) {
	t.Parallel()
	o := trial.Options()
	o.Nodes = 1
	n := chaos.StartCluster(t, o).Node(1)
	other := chaos.NewCluster(t, o).Node(1)
	cases := []struct {
		name, setting, value string
		code                 int
		words                []string
	}{
		{"client port taken", "HTTP_PORT", fmt.Sprint(portOf(t, n.HTTPAddr)), 1, []string{"HTTP_PORT", "address already in use"}},
		{"peer port taken", "RAFT_ADDR", n.RaftAddr, 1, []string{"RAFT_ADDR", "address already in use"}},
		{"directory in use", "DATA_DIR", n.Dir, 1, []string{n.Dir, "in use by another process"}},
		{"directory is a file", "DATA_DIR", os.Args[0], 1, []string{os.Args[0], "not a directory"}},
		{"bad settings", "NODE_ID", "zero", 2, []string{"NODE_ID", "--node-id", "zero"}},
	}
	for _, test := range cases {
		other.Env = map[string]string{test.setting: test.value}
		other.Start()
		other.ExpectExit()
		if code := other.WaitExit(chaos.ExitTimeout); code != test.code {
			t.Errorf("%s: exit code %d, want %d", test.name, code, test.code)
		}
		trial.WantWords(t, other.Log(), test.words...)
		if strings.Contains(other.Log(), "goroutine ") {
			t.Errorf("%s: it panicked:\n%s", test.name, other.Log())
		}
	}
	trial.Timestamps(t, n, 1)
}

// TestLifecycle_DevRunsThreeNodes runs "isotone dev" and a command that it prints.
func TestLifecycle_DevRunsThreeNodes(t *testing.T) {
	t.Parallel()
	port, err := ports.Free(3)
	if err != nil {
		t.Fatal(err)
	}
	temp := t.TempDir()
	env := []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + temp}
	p, err := chaos.Run("isotone dev", filepath.Join(t.TempDir(), "log"), env, []string{trial.Binary, "dev", "--port", fmt.Sprint(port)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !p.Exited() {
			_ = p.Kill()
			_, _ = p.WaitExit(chaos.ExitTimeout)
		}
	})
	for deadline := time.Now().Add(chaos.ReadyTimeout); !strings.Contains(p.Log(), "Ctrl-C"); time.Sleep(10 * time.Millisecond) {
		if p.Exited() || time.Now().After(deadline) {
			t.Fatalf("it did not come up:\n%s", p.Log())
		}
	}
	text := p.Log()
	trial.WantWords(t, text, "NODE", "CLIENTS", "PEERS", "ROLE", "leader", "follower", temp, "/timestamp?format=json'", "/timestamp?n=4' | xxd", "/api/snowflake\n", "/live/state\n", "isotone demo failover\n", fmt.Sprintf("http://127.0.0.1:%d/", port))
	if strings.Count(text, "curl ") != 5 {
		t.Errorf("not five commands of curl:\n%s", text)
	}
	for i := range 3 {
		trial.WantWords(t, text, fmt.Sprintf("127.0.0.1:%d", port+i))
	}
	runPrinted(t, text)
	if err := p.Interrupt(); err != nil {
		t.Fatal(err)
	}
	if code, err := p.WaitExit(exitQuick); err != nil || code != 0 {
		t.Errorf("after SIGINT: exit code %d, %v:\n%s", code, err, p.Log())
	}
	if left, _ := os.ReadDir(temp); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
}

// runPrinted sends the request of the first printed command to the node that it names.
func runPrinted(t *testing.T, text string) {
	t.Helper()
	_, rest, _ := strings.Cut(text, "curl '")
	url, _, _ := strings.Cut(rest, "'")
	addr, target, _ := strings.Cut(url, "/")
	a, err := chaos.Get(addr, "/"+target, trial.AnswerTimeout)
	if err != nil || a.Status != 200 {
		t.Fatalf("%s: %v, %v", url, a, err)
	}
	trial.WantWords(t, string(a.Body), `"timestamps"`, `"hex"`)
}

// TestLifecycle_RestartedClusterGoesOn: timestamps are larger after a full restart
// than all before, whether the nodes were asked to end or not (I1).
func TestLifecycle_RestartedClusterGoesOn(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one round of it is part of the order test; left out by -short")
	}
	c := chaos.StartCluster(t, trial.Options())
	for range 2 {
		for _, end := range []func(){c.Shutdown, c.Kill} {
			before := trial.Highest(t, c)
			end()
			c.Start()
			if after := trial.Highest(t, c); !before.Before(after) {
				t.Fatalf("%v after %v", after, before)
			}
		}
	}
}
