package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/telemetry"
	"github.com/isotone/isotone/internal/server"
)

// startInterval runs a node with INTERVAL_MS, waits until it is ready, and returns its client address.
func startInterval(t *testing.T, length time.Duration, forward bool) string {
	t.Helper()
	s := config.Default()
	s.HTTPHost, s.HTTPPort, s.RaftAddr, s.DataDir = "127.0.0.1", 0, "127.0.0.1:0", t.TempDir()
	s.AdvertiseAddr, s.Interval, s.Forward = "", length, forward
	so, err := server.Listen(&s)
	if err != nil {
		t.Fatal(err)
	}
	addr := so.HTTP.Addr().String()
	m, err := server.Start(&s, so, server.Options{Version: version, Loops: 1}, telemetry.NewLogger(io.Discard, telemetry.LogOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	awaitReady(t, addr)
	return addr
}

// awaitReady waits until the node at addr can answer.
func awaitReady(t *testing.T, addr string) {
	t.Helper()
	for ctx := rig.Soon(t); ; time.Sleep(5 * time.Millisecond) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/ready", nil)
		if err != nil {
			t.Fatal(err)
		}
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = a.Body.Close()
		if a.StatusCode == http.StatusOK {
			return
		}
	}
}

// sayInterval sends a line of RESP, and returns the first line of the answer.
func sayInterval(t *testing.T, addr, line string) string {
	t.Helper()
	first, _, _ := strings.Cut(rig.Say(t, addr, line), "\r\n")
	return first
}

// Without INTERVAL_MS, and at a proxy, everything says that nothing is read here, and whom to ask.
func TestInterval_OffEverywhere(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	const wait = "0123456789abcdef8000000000000000"
	node, forwarding := startInterval(t, 0, false), startInterval(t, 0, true)
	proxy, _ := runProxy(t, "--node", node)
	for addr, hint := range map[string]string{node: "INTERVAL_MS is 0", forwarding: "INTERVAL_MS is 0", proxy: "ask a node of the cluster"} {
		for _, query := range []string{"", "?nonce=7", "?n=3", "?n=65536", "?wait=" + wait, "?format=json"} {
			if status, body := rig.Fetch(t, "http://"+addr+"/interval"+query); status != 404 || !strings.Contains(body, `"not_found"`) || !strings.Contains(body, hint) {
				t.Errorf("%s: %d %s, want %q", query, status, body, hint)
			}
		}
		for _, line := range []string{"INTERVAL", "INTERVAL 7", "INTERVAL STAMP", "INTERVAL WAIT " + wait} {
			if got := sayInterval(t, addr, line); !strings.HasPrefix(got, "-ERR ") || !strings.Contains(got, hint) {
				t.Errorf("%s: %q, want %q", line, got, hint)
			}
		}
	}
	if _, body := rig.Fetch(t, "http://"+node+"/state"); !strings.Contains(body, `"interval":null`) {
		t.Errorf("/state: %s", body)
	}
}

func TestInterval_NodeAnswersAndShowsIt(t *testing.T) {
	t.Parallel()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	node := startInterval(t, 2*time.Second, false)
	deadline := time.Now().Add(time.Minute)
	answered := func(target string) string {
		for ; ; time.Sleep(time.Millisecond) {
			status, body := rig.Fetch(t, "http://"+node+target)
			if status == 200 {
				return body
			}
			if status != 503 || time.Now().After(deadline) {
				t.Fatalf("%s: %d %s", target, status, body)
			}
		}
	}
	if r, nonce, err := interval.Decode([]byte(answered("/interval?nonce=7"))); err != nil || nonce != 7 || r.Cluster == 0 {
		t.Errorf("%+v, %d, %v", r, nonce, err)
	}
	var made isotone.Timestamp
	if err := made.UnmarshalBinary([]byte(answered("/interval?n=1"))); err != nil || made.Index < interval.IndexMin {
		t.Errorf("%v, %v", made, err)
	}
	if body := answered("/interval?wait=" + made.String()); body != "ok" {
		t.Errorf("%q", body)
	}
	for line, want := range map[string]string{"INTERVAL 7": "$48", "INTERVAL STAMP 3": "$16", "INTERVAL WAIT " + made.String(): "+OK"} {
		if got := sayInterval(t, node, line); got != want && !strings.HasPrefix(got, "-CLUSTERDOWN ") {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	for ; ; time.Sleep(time.Millisecond) {
		_, state := rig.Fetch(t, "http://"+node+"/state")
		_, metrics := rig.Fetch(t, "http://"+node+"/metrics")
		if strings.Contains(state, `"interval":{"maxSeconds":2,"running":true,"broken":false,`) && !strings.Contains(state, `"widthSeconds":null`) && strings.Contains(metrics, "\nisotone_interval_max_seconds 2\n") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s", state)
		}
	}
}

func TestDev_RefusesAnIntervalThatNodesWouldRefuse(t *testing.T) {
	for _, ms := range []string{"-1", "49", "10001"} {
		if code, _, stderr := command("dev", "--interval-ms="+ms); code != exitUsage || !strings.Contains(stderr, "want 0, or 50 to 10000") {
			t.Errorf("%s: exit code %d: %s", ms, code, stderr)
		}
	}
}
