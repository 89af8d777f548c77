//go:build linux

package service_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
)

// drain asks a node to end by the command for that.
func drain(t *testing.T, n *chaos.Node) {
	t.Helper()
	n.Process().ExpectExit()
	if code, out, text := trial.Command(t, "drain", "--endpoint", n.HTTPAddr, "--yes", "--json"); code != 0 || out != "{\"draining\":true}\n" {
		t.Fatalf("isotone drain: exit code %d\n%s%s", code, out, text)
	}
}

// untilClosed asks a node on a connection of its own, and returns all that comes until the node
// closes it.
func untilClosed(t *testing.T, n *chaos.Node, target string) string {
	t.Helper()
	c, err := chaos.Dial(n.HTTPAddr, trial.AnswerTimeout)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(trial.AnswerTimeout))
	if err := c.Send(target); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(c)
	if err != nil {
		t.Errorf("%s: %v", target, err)
	}
	return string(all)
}

// TestDrain_ServesForTheDelayAndSaysWhyItIsNotReady drains a leader whose delay is longer than
// the test.
func TestDrain_ServesForTheDelayAndSaysWhyItIsNotReady(t *testing.T) {
	t.Parallel()
	o := trial.Options()
	o.Env = map[string]string{"SHUTDOWN_DELAY_MS": "600000", "LIVE_INTERVAL_MS": "100"}
	c := chaos.StartCluster(t, o)
	waitIDs(t, c.Nodes...)
	c.Settle()
	n := c.WaitLeader()
	for _, path := range []string{"/ready", "/ready/timestamps", "/ready/ids", "/readyz", "/livez"} {
		if a := trial.Get(t, n, path); a.Status != 200 || string(a.Body) != "ok" {
			t.Errorf("before: %s: %d %v %s", path, a.Status, a.Header, a.Body)
		}
	}
	redis, err := chaos.Dial(n.HTTPAddr, trial.AnswerTimeout)
	if err != nil {
		t.Fatal(err)
	}
	defer redis.Close()
	await.Done(t, trial.AnswerTimeout, func() (bool, string) { // the document of a new leader may be older than its election
		code, _, text := trial.Command(t, "drain", "--endpoint", n.HTTPAddr)
		asks := fmt.Sprintf("Node %d (leader) sends its clients away and ends. Another node becomes the leader first.", n.ID)
		return code == 2 && strings.Contains(text, asks) && strings.Contains(text, "--yes"), fmt.Sprintf("unconfirmed: exit code %d\n%s", code, text)
	})
	if a := trial.Get(t, n, "/ready"); a.Status != 200 {
		t.Fatalf("it drains without a confirmation: %s", a.Body)
	}

	drain(t, n)
	drain(t, n) // again changes nothing
	for _, path := range []string{"/ready", "/ready/timestamps", "/ready/ids"} {
		await.Done(t, trial.AnswerTimeout, func() (bool, string) {
			a := trial.Get(t, n, path)
			return a.Status == 503 && a.Code() == "no_leader" && strings.Contains(string(a.Body), "this node is draining"), fmt.Sprintf("%s: %d %s", path, a.Status, a.Body)
		})
	}
	const readyz = "[-]timestamps failed: this node is draining\n[-]ids failed: this node is draining\nreadyz check failed\n"
	if a := trial.Get(t, n, "/readyz?verbose"); a.Status != 503 || string(a.Body) != readyz {
		t.Errorf("/readyz: %d %q", a.Status, a.Body)
	}
	for _, path := range []string{"/up", "/livez", "/members", "/timestamp", "/timestamp?n=2&format=json", "/timestamp?n=5000", "/api/snowflake", "/state"} {
		if a := untilClosed(t, n, path); !strings.HasPrefix(a, "HTTP/1.1 200 OK\r\n") || !strings.Contains(a, "\r\nConnection: close\r\n") {
			t.Errorf("%s: %.500q", path, a)
		}
	}
	_ = redis.SetDeadline(time.Now().Add(trial.AnswerTimeout))
	for range 2 {
		_, _ = io.WriteString(redis, "TS\r\n")
		b := make([]byte, len("$16\r\n")+16+len("\r\n"))
		if _, err := io.ReadFull(redis, b); err != nil || b[0] != '$' {
			t.Errorf("over RESP: %q, %v", b, err)
		}
	}
	await.Done(t, trial.AnswerTimeout, func() (bool, string) {
		var state struct {
			Node struct{ Draining bool }
		}
		a := trial.Get(t, n, "/state")
		return json.Unmarshal(a.Body, &state) == nil && state.Node.Draining, string(a.Body)
	})
	if code, out, text := trial.Command(t, "status", c.Others(n)[0].HTTPAddr); code != 1 || !strings.Contains(out+text, "this node is draining") {
		t.Errorf("isotone status: exit code %d\n%s%s", code, out, text)
	}
	if now := c.WaitLeader(); now != n {
		t.Errorf("node %d leads before the delay is over, instead of node %d", now.ID, n.ID)
	}
	for _, other := range c.Others(n) {
		if a := trial.Get(t, other, "/ready"); a.Status != 200 {
			t.Errorf("node %d: %s", other.ID, a.Body)
		}
	}
	n.Kill()
}

// callers ask for timestamps and ids with deadlines of two seconds until they are stopped, and
// count calls that fail.
type callers struct {
	t      *testing.T
	client *client.Client
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu            sync.Mutex
	calls, failed int
}

func startCallers(t *testing.T, c *chaos.Cluster, n int) *callers {
	t.Helper()
	on, cancel := context.WithCancel(t.Context())
	asked, err := client.New(on, c.Addrs()...)
	if err != nil {
		t.Fatal(err)
	}
	l := &callers{t: t, client: asked, cancel: cancel}
	for i := range n {
		l.done.Go(func() {
			for ; on.Err() == nil; time.Sleep(time.Millisecond) {
				l.call(i%2 == 0)
			}
		})
	}
	return l
}

func (l *callers) call(timestamp bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var err error
	if timestamp {
		_, err = l.client.Timestamp(ctx)
	} else {
		_, err = l.client.Snowflake(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	if err != nil {
		if l.failed++; l.failed < 10 {
			l.t.Errorf("a call failed: %v", err)
		}
	}
}

// stop ends the calls and returns how many there were.
func (l *callers) stop() int {
	l.cancel()
	l.done.Wait()
	_ = l.client.Close()
	return l.calls
}

// TestDrain_EndsWithStatus0AndNoCallFails ends leaders and followers under load, by the command
// and by signals.
func TestDrain_EndsWithStatus0AndNoCallFails(t *testing.T) {
	t.Parallel()
	o := trial.Options()
	o.Env = map[string]string{"SHUTDOWN_DELAY_MS": "200"}
	c := chaos.StartCluster(t, o)
	waitIDs(t, c.Nodes...)
	load := startCallers(t, c, 8)
	for _, end := range []func(*testing.T, *chaos.Node){
		drain,
		func(_ *testing.T, n *chaos.Node) { n.Term() },
		func(t *testing.T, n *chaos.Node) {
			if err := n.Process().Interrupt(); err != nil {
				t.Fatal(err)
			}
		},
	} {
		for _, leads := range []bool{true, false} {
			c.Settle()
			leader := c.WaitLeader()
			n := leader
			if !leads {
				n = c.Others(leader)[0]
			}
			began := time.Now()
			end(t, n)
			if code := n.WaitExit(chaos.ExitTimeout); code != 0 || time.Since(began) < 200*time.Millisecond {
				t.Errorf("exit code %d after %v", code, time.Since(began))
			}
			trial.WantWords(t, n.Log(), `"msg":"stopping"`, `"why":"this node is draining"`, `"msg":"stopped"`)
			if next := c.WaitLeader(); leads == (next == leader) {
				t.Errorf("node %d led, node %d ended, node %d leads", leader.ID, n.ID, next.ID)
			}
			n.Start()
			c.WaitReady()
		}
	}
	if calls := load.stop(); calls < 500 {
		t.Errorf("%d calls only", calls)
	}
}

// TestDrain_GivesItsWorkerBack leases a worker for an hour to a node that drains: another node
// has it at once.
func TestDrain_GivesItsWorkerBack(t *testing.T) {
	t.Parallel()
	c := chaos.NewCluster(t, workerOptions(time.Hour))
	first, second := c.Node(1), c.Node(2)
	first.Env["WORKER_ID"] = "7"
	c.Start()
	c.WaitReady()
	if l := lease(t, first); l.Worker != 7 {
		t.Fatalf("node 1 holds %+v", l)
	}
	drain(t, first)
	if code := first.WaitExit(chaos.ExitTimeout); code != 0 {
		t.Errorf("exit code %d", code)
	}
	second.Shutdown()
	second.Env["WORKER_ID"] = "7"
	second.Start()
	if l := lease(t, second); l.Worker != 7 {
		t.Errorf("node 2 holds %+v", l)
	}
}
