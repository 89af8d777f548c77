//go:build linux

package chaos_test

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/core/lincheck"
)

// These tests test the harness, on which all other tests of this package rely.

// TestLoad_NoticesAFaultyOracle runs the load on an oracle that repeats a timestamp, one that
// goes back, and one that redirects to an unknown leader.
func TestLoad_NoticesAFaultyOracle(t *testing.T) {
	t.Parallel()
	for name, faulty := range map[string]func(uint64) isotone.Timestamp{
		"repeats":   func(n uint64) isotone.Timestamp { return isotone.Timestamp{Time: 1, Index: n - n%100/99} },
		"goes back": func(n uint64) isotone.Timestamp { return isotone.Timestamp{Time: 1 + n/50%2, Index: n} },
	} {
		var issued atomic.Uint64
		r := loadOn(t, func(w http.ResponseWriter, _ *http.Request) {
			b, _ := faulty(issued.Add(1)).MarshalBinary()
			_, _ = w.Write(b)
		})
		if lincheck.Check(r.History) == nil || r.Online.Violations == 0 || len(r.Faults) == 0 {
			t.Errorf("an oracle that %s passes: %v, %+v", name, r, r.Online)
		}
	}
	r := loadOn(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Isotone-Leader", "nobody:1")
		w.WriteHeader(409)
		_, _ = w.Write([]byte(`{"error":{"code":"not_leader","message":"m"}}`))
	})
	if len(r.Faults) == 0 {
		t.Errorf("a redirect to nowhere passes: %v", r)
	}
}

// loadOn runs a load on a server for some hundred requests.
func loadOn(t *testing.T, serve http.HandlerFunc) *chaos.Report {
	var served atomic.Uint64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serve(w, r)
		served.Add(1)
	}))
	defer server.Close()
	load := chaos.StartLoad(t, chaos.LoadOptions{Addrs: []string{server.Listener.Addr().String()}, Callers: 1, Pause: time.Nanosecond})
	for deadline := time.Now().Add(chaos.ReadyTimeout); served.Load() < 250 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	return load.Stop()
}

// TestProcess_NoticesAnUnexpectedEnd runs commands that end as requested and otherwise.
func TestProcess_NoticesAnUnexpectedEnd(t *testing.T) {
	nothing := func(*chaos.Process) error { return nil }
	for _, test := range []struct {
		command string
		end     func(*chaos.Process) error
		fault   string
	}{
		{"exit 0", nothing, "ended by itself"},
		{"exit 3", nothing, "ended by itself: exit status 3"},
		{"kill -SEGV $$", nothing, "ended by itself: signal"},
		{"exec sleep 60", (*chaos.Process).Kill, ""},
		{"exec sleep 60", (*chaos.Process).Term, "want exit code 0: signal: terminated"},
		{"trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done", (*chaos.Process).Term, ""},
		{"trap 'exit 4' TERM; echo ready; while :; do sleep 0.01; done", (*chaos.Process).Term, "want exit code 0: exit status 4"},
	} {
		p, err := chaos.Run("a command", filepath.Join(t.TempDir(), "log"), []string{"PATH=/usr/bin:/bin"}, []string{"/bin/sh", "-c", test.command})
		if err != nil {
			t.Fatal(err)
		}
		for strings.Contains(test.command, "ready") && !strings.Contains(p.Log(), "ready") {
			time.Sleep(time.Millisecond)
		}
		if err := test.end(p); err != nil {
			t.Error(err)
		}
		if _, err := p.WaitExit(chaos.ExitTimeout); err != nil {
			t.Fatal(err)
		}
		if fault := p.Fault(); test.fault == "" && fault != "" || !strings.Contains(fault, test.fault) {
			t.Errorf("%s: %q, want %q", test.command, fault, test.fault)
		}
		if p.Kill() == nil {
			t.Errorf("%s: a process that had ended was killed", test.command)
		}
	}
}
