package main

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/telemetry"
)

// startInterval runs a node with INTERVAL_MS, and returns its client address.
func startInterval(t *testing.T, interval time.Duration, forward bool) string {
	t.Helper()
	s := config.Default()
	s.HTTPHost, s.HTTPPort, s.RaftAddr, s.DataDir = "127.0.0.1", 0, "127.0.0.1:0", t.TempDir()
	s.Interval, s.Forward = interval, forward
	so, err := listen(&s)
	if err != nil {
		t.Fatal(err)
	}
	addr := so.http.Addr().String()
	m, err := startMember(&s, so, memberOptions{loops: 1}, telemetry.NewLogger(io.Discard, telemetry.LogOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.close(); err != nil {
			t.Error(err)
		}
	})
	return addr
}

// sayInterval sends a line of RESP, and returns the first line of the answer.
func sayInterval(t *testing.T, addr, line string) string {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_, _ = io.WriteString(nc, line+"\r\nQUIT\r\n")
	answer, err := io.ReadAll(nc)
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(answer), "\r\n")
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
			if status, body := fetch(t, "http://"+addr+"/interval"+query); status != 404 || !strings.Contains(body, `"not_found"`) || !strings.Contains(body, hint) {
				t.Errorf("%s: %d %s, want %q", query, status, body, hint)
			}
		}
		for _, line := range []string{"INTERVAL", "INTERVAL 7", "INTERVAL STAMP", "INTERVAL WAIT " + wait} {
			if got := sayInterval(t, addr, line); !strings.HasPrefix(got, "-ERR ") || !strings.Contains(got, hint) {
				t.Errorf("%s: %q, want %q", line, got, hint)
			}
		}
	}
	if _, body := fetch(t, "http://"+node+"/state"); !strings.Contains(body, `"interval":null`) {
		t.Errorf("/state: %s", body)
	}
}

func TestInterval_SettingIsShown(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	node := startInterval(t, 100*time.Millisecond, false)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		_, state := fetch(t, "http://"+node+"/state")
		_, metrics := fetch(t, "http://"+node+"/metrics")
		if strings.Contains(state, `"interval":{"maxSeconds":0.1,`) && strings.Contains(metrics, "\nisotone_interval_max_seconds 0.1\n") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s", state)
		}
	}
}
