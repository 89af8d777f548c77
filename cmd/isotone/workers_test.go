package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/check/testnode"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/snowflake"
)

// workersAt returns the worker leases by the command line.
func workersAt(t *testing.T, addr string, more ...string) (l front.WorkerList) {
	t.Helper()
	code, out, err := command(append([]string{"worker", "list", "--json", "--endpoint", addr}, more...)...)
	if e := json.Unmarshal([]byte(out), &l); code != 0 || e != nil {
		t.Fatalf("exit code %d, %v: %s%s", code, e, out, err)
	}
	return l
}

func TestWorkers_AreListedAndRevoked(t *testing.T) {
	t.Parallel()
	m, _ := startAlone(t, "0")
	addr := loopback(t, m)
	c, err := client.New(rig.Soon(t), addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	g, err := c.NewGenerator(rig.Soon(t), client.GeneratorOptions{Lease: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	await.Until(t, "the node has a worker", func() bool { l := workersAt(t, addr); return len(l.Workers) > 1 })
	mine := g.Worker()
	l := workersAt(t, addr)
	r, held := leaseOf(l, mine)
	if !held || r.NodeID != 0 || r.Start != uint64(g.Lease().Start) || r.Ended || r.Revoked || len(r.Session) != 16 || l.Limit != 1024 || l.Layout != "41/5/5/12" {
		t.Fatalf("%+v, of %d, %s", r, l.Limit, l.Layout)
	}
	wantRun(t, 0, "client", "", "worker", "list", "--endpoint", addr)
	wantRun(t, 0, "node 1", "", "worker", "list", "--endpoint", addr)
	wantRun(t, 1, "", "nobody holds worker 999", "worker", "revoke", "999", "--yes", "--endpoint", addr)
	wantRun(t, 1, "", "began at", "worker", "revoke", strconv.Itoa(mine), "--start", "5", "--yes", "--endpoint", addr)
	wantRun(t, 0, "is revoked, and free from", "", "worker", "revoke", strconv.Itoa(mine), "--start", strconv.FormatUint(r.Start, 10), "--yes", "--endpoint", addr)
	await.Until(t, "the client has another worker", func() bool { return g.Worker() != mine })
	await.Until(t, "the revoked one is released", func() bool { // on a slow machine it may be leased again
		now, held := leaseOf(workersAt(t, addr), mine)
		return !held || now.Start != r.Start
	})

	// The node's own workers: it has another one, and its IDs go on.
	own := l.Workers[0]
	if own.NodeID != 1 {
		t.Fatalf("%+v", own)
	}
	wantRun(t, 0, "worker "+strconv.Itoa(own.Worker), "", "worker", "revoke", strconv.Itoa(own.Worker), "--yes", "--endpoint", addr)
	await.Until(t, "the node has another worker", func() bool {
		l := workersAt(t, addr)
		_, held := leaseOf(l, own.Worker)
		return !held && l.Workers[0].NodeID == 1
	})
	await.Done(t, await.Timeout, func() (bool, string) { // the leader may know of the lease before the node does
		status, body := rig.Fetch(t, "http://"+addr+"/api/snowflake")
		return status == http.StatusOK, fmt.Sprintf("an ID: %d, %s", status, body)
	})
}

// TestWorkers_AreForOperators by every door.
func TestWorkers_AreForOperators(t *testing.T) {
	n := testnode.Guarded(t, rig.Users, nil)
	redis := rig.DialRedis(t, n.Client, nil)
	for _, step := range []struct{ command, want string }{
		{"WORKER LIST", "-NOAUTH"}, {"WORKER REVOKE 0", "-NOAUTH"},
		{"AUTH ids " + rig.Secret, "+OK"}, {"WORKER LIST", "-NOPERM"}, {"worker revoke 0", "-NOPERM"}, {"WORKER REVOKE", "-NOPERM"},
		{"WORKER LEASE 5f0c3a9b2d4e7181 " + strconv.FormatInt(time.Now().UnixMilli(), 10) + " 60000", "*5"},
		{"AUTH ops " + rig.Secret, "+OK"}, {"WORKER REVOKE 999", "-ERR nobody holds worker 999"}, {"WORKER REVOKE 256 5", "-ERR nobody holds worker 256 since"},
		{"WORKER REVOKE 256", ":"}, {"WORKER REVOKE 256", ":"}, {"WORKER LIST", "*"},
		{"WORKER LEASE 5f0c3a9b2d4e7181 " + strconv.FormatInt(time.Now().UnixMilli(), 10) + " 60000", "-TRYAGAIN no_worker: worker 256 was revoked"},
		{"WORKER LEASE 5f0c3a9b2d4e7182 " + strconv.FormatInt(time.Now().UnixMilli(), 10) + " 60000", "*5"},
	} {
		redis.Does(step.command, step.want)
	}
	for _, who := range []struct {
		authorization string
		status        int
	}{{"", 401}, {rig.Bearer("ids", rig.Secret), 403}, {rig.Bearer("web", rig.Secret), 403}, {rig.Bearer("ops", rig.Secret), 200}} {
		for _, body := range []string{"", `{"action":"revoke","worker":257}`} {
			r, _ := http.NewRequest(http.MethodGet, "http://"+n.Client+workersPath, nil)
			if body != "" {
				r, _ = http.NewRequest(http.MethodPost, "http://"+n.Client+workersPath, bytes.NewReader([]byte(body)))
				r.Header.Set("Content-Type", "application/json")
			}
			if who.authorization != "" {
				r.Header.Set("Authorization", who.authorization)
			}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != who.status {
				t.Errorf("%q %s: %d, want %d", who.authorization, body, resp.StatusCode, who.status)
			}
		}
	}
	file := rig.SecretFile(t, rig.Secret)
	wantRun(t, 1, "", "forbidden", "worker", "list", "--endpoint", n.Client, "--user", "ids", "--password-file", file)
	wantRun(t, 1, "", "forbidden", "worker", "revoke", "256", "--yes", "--endpoint", n.Client, "--user", "ids", "--password-file", file)
	wantRun(t, 0, "revoked; free when it ends", "", "worker", "list", "--endpoint", n.Client, "--user", "ops", "--password-file", file)
	l := workersAt(t, n.Client, "--user", "ops", "--password-file", file)
	for _, worker := range []int{256, 257} {
		if r, held := leaseOf(l, worker); !held || !r.Revoked || r.NodeID != 0 {
			t.Errorf("worker %d: %+v", worker, r)
		}
	}
}

func workersAnswer(records ...front.WorkerRecord) answer {
	return func(w http.ResponseWriter) {
		_ = json.NewEncoder(w).Encode(front.WorkerList{Limit: 8, Workers: records})
	}
}

var leased = front.WorkerRecord{Worker: 5, Session: "00000000000000aa", Start: 1000, End: 2000, Starts: "then", Ends: "later"}

// TestWorkers_ARevocationIsAskedForAndLookedAfter: without a confirmation nothing is sent, and an
// answer that was lost is looked up.
func TestWorkers_ARevocationIsAskedForAndLookedAfter(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	stdin(t, null)
	s := serveScript(t, workersAnswer(leased))
	wantRun(t, 2, "", "The lease of worker 5, held by client (session 00000000000000aa), is not renewed any more. It ends at later.", "worker", "revoke", "5", "--endpoint", s.addr())
	if got := fmt.Sprint(s.requests()); strings.Contains(got, "POST") {
		t.Errorf("without a confirmation: %s", got)
	}
	revoked, next := leased, leased
	revoked.Revoked, next.Start = true, 2000
	run := func(code int, out, stderr string, script ...answer) {
		t.Helper()
		wantRun(t, code, out, stderr, "worker", "revoke", "5", "--yes", "--timeout", map[int]string{0: "30s", 1: "3s"}[code], "--endpoint", serveScript(t, script...).addr())
	}
	run(0, "worker 5 is revoked, and free from later on at the latest", "", workersAnswer(leased), workersAnswer(revoked))
	run(0, "worker 5 is revoked", "", workersAnswer(revoked)) // already
	run(0, "worker 5 is revoked", "", workersAnswer(leased), fault(isotone.CodeDeadlineExceeded, "late", ""), workersAnswer(revoked))
	run(0, "the lease of worker 5 is over", "", workersAnswer(leased), fault(isotone.CodeDeadlineExceeded, "late", ""), workersAnswer(next))
	run(0, "the lease of worker 5 is over", "", workersAnswer(leased), fault(isotone.CodeDeadlineExceeded, "late", ""), workersAnswer())
	run(1, "", "late", workersAnswer(leased), fault(isotone.CodeDeadlineExceeded, "late", ""), workersAnswer(leased))
	run(1, "", "nobody holds worker 5", workersAnswer())
	run(1, "", "invalid_argument: level", workersAnswer(leased), fault(isotone.CodeInvalidArgument, "level", ""))
}

// TestWorkers_AClockThatJumpsToAndFroRepeatsNoID of a client's generator (I9).
func TestWorkers_AClockThatJumpsToAndFroRepeatsNoID(t *testing.T) {
	t.Parallel()
	m, _ := startAlone(t, "0")
	c, err := client.New(rig.Soon(t), loopback(t, m))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	var ahead atomic.Int64
	g, err := c.NewGenerator(rig.Soon(t), client.GeneratorOptions{Lease: 300 * time.Millisecond, Now: func() int64 { return time.Now().UnixMilli() + ahead.Load() }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	made, workers := make(chan snowflake.ID), map[int]bool{}
	ctx, cancel := context.WithCancel(rig.Soon(t))
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for {
				id, err := g.Next(ctx)
				if err != nil {
					return
				}
				select {
				case made <- id:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	seen := map[snowflake.ID]bool{}
	for i, minutes := range []int64{0, 30, 0, 1, 30, -10, 0, 20, 0} {
		ahead.Store(minutes * time.Minute.Milliseconds())
		for n := 0; n < 200; { // of the time that the clock shows now
			select {
			case id := <-made:
				if seen[id] {
					t.Fatalf("jump %d: %d was made twice", i, id)
				}
				seen[id], workers[g.Layout().Worker(id)] = true, true
				if off := g.Layout().Millis(id) - time.Now().UnixMilli() - ahead.Load(); max(off, -off) < (30 * time.Second).Milliseconds() {
					n++
				}
			case <-ctx.Done():
				t.Fatalf("jump %d: no ids", i)
			}
		}
	}
	cancel()
	callers.Wait()
	if len(workers) < 4 { // one at first, and one for each jump back
		t.Errorf("%d workers", len(workers))
	}
}
