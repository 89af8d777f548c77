package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/inspect/survey"
)

// statusCluster is servers that say of themselves that they are the members of a cluster.
type statusCluster struct {
	servers []*httptest.Server
	leader  atomic.Uint64 // 0: none
	asked   atomic.Int64
}

func newStatusCluster(t *testing.T, n int) *statusCluster {
	t.Helper()
	c := &statusCluster{}
	c.leader.Store(1)
	for i := range n {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/state" {
				http.NotFound(w, r)
				return
			}
			c.asked.Add(1)
			_ = json.NewEncoder(w).Encode(c.state(uint64(i + 1)))
		}))
		t.Cleanup(server.Close)
		c.servers = append(c.servers, server)
	}
	return c
}

func (c *statusCluster) addr(id uint64) string { return c.servers[id-1].Listener.Addr().String() }

func (c *statusCluster) state(id uint64) *survey.State {
	s := &survey.State{ClusterID: "00c0ffee00c0ffee", Term: 3, Clock: survey.Clock{OK: true},
		Node: survey.Node{ID: id, Addr: c.addr(id), Role: "follower", Ready: true}}
	if leader := c.leader.Load(); leader != 0 {
		s.Leader = &survey.Leader{NodeID: leader, Addr: c.addr(leader)}
		if leader == id {
			s.Node.Role = "leader"
		}
	} else {
		s.Node.Ready, s.Node.NotReady = false, "no leader is known"
	}
	for i := range c.servers {
		s.Members = append(s.Members, survey.Member{NodeID: uint64(i + 1), Addr: c.addr(uint64(i + 1)), Self: id == uint64(i+1), Connected: true})
	}
	return s
}

func TestStatus_ShowsAllMembersAndExitsWith0(t *testing.T) {
	c := newStatusCluster(t, 3)
	code, out, err := command("status", c.addr(3))
	if code != 0 || err != "" {
		t.Errorf("exit code %d, %q", code, err)
	}
	if code, again, err := command("status", c.addr(2)+","+c.addr(3), c.addr(1)); code != 0 || again != out {
		t.Errorf("with commas: exit code %d, %q\n%s", code, err, again)
	}
	for _, want := range []string{"Node 1 leads in term 3; 3 of 3 members answer", c.addr(1), c.addr(2), c.addr(3), "leader", "follower"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
}

func TestStatus_ExitsWith1WhenSomethingIsWrong(t *testing.T) {
	c := newStatusCluster(t, 3)
	c.leader.Store(0)
	if code, out, err := command("status", c.addr(1)); code != exitFailure || !strings.Contains(err, "no leader is known") || !strings.HasPrefix(out, "No leader; 3 of 3") {
		t.Errorf("no leader: exit code %d, %q\n%s", code, err, out)
	}
	c.leader.Store(2)
	missing := "unix:" + filepath.Join(t.TempDir(), "operator.sock")
	if code, out, err := command("status", c.addr(1)+","+missing); code != exitFailure || !strings.Contains(err, missing+": no member of this cluster has this client address") || !strings.Contains(out, "3 of 3 members") {
		t.Errorf("an address of no member: exit code %d, %q\n%s", code, err, out)
	}
	c.servers[2].Close()
	if code, out, err := command("status", c.addr(1)); code != exitFailure || !strings.Contains(err, "node 3 does not answer") || !strings.Contains(out, "2 of 3 members") {
		t.Errorf("a member that does not answer: exit code %d, %q\n%s", code, err, out)
	}
	if code, _, err := command("status", c.addr(3)); code != exitFailure || !strings.Contains(err, "does not answer") {
		t.Errorf("nobody answers: exit code %d, %q", code, err)
	}
}

func TestStatus_SaysWhichFlagsAreForCertificates(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	server.StartTLS()
	defer server.Close()
	for flag, want := range map[string]bool{"--watch=false": true, "--insecure": false} {
		code, _, err := command("status", server.URL, flag)
		if told := strings.Contains(err, "--insecure") && strings.Contains(err, "--ca FILE"); code != exitFailure || told != want {
			t.Errorf("%s: exit code %d, %s", flag, code, err)
		}
	}
}

func TestStatus_JSONIsOneLine(t *testing.T) {
	c := newStatusCluster(t, 2)
	code, out, _ := command("status", "--json", c.addr(2))
	var r survey.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 || strings.Count(out, "\n") != 1 {
		t.Fatalf("exit code %d, %v\n%s", code, err, out)
	}
	if r.Leader == nil || r.Leader.NodeID != 1 || len(r.Views) != 2 || r.Views[1].State.Node.Role != "follower" {
		t.Errorf("%+v", r)
	}
}

func TestStatus_RefusesSettingsThatMakeNoSense(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"ftp://node1", "ftp://node1"},
		{"node1/path", "node1/path"},
		{"node1:1,,node2:1", `""`},
		{"--watch --interval 1ms", "--interval"},
		{"--timeout 0s", "--timeout"},
		{"--ca /does/not/exist", "--ca"},
	} {
		if code, _, err := command(append([]string{"status"}, strings.Fields(tc.args)...)...); code != exitUsage || !strings.Contains(err, tc.want) {
			t.Errorf("%s: exit code %d, %q", tc.args, code, err)
		}
	}
}

// TestStatus_WatchesUntilItIsTold: blocks one below the other where there is no terminal,
// and an end without an error.
func TestStatus_WatchesUntilItIsTold(t *testing.T) {
	for _, flag := range []bool{false, true} {
		c := newStatusCluster(t, 1)
		ctx, cancel := context.WithCancel(t.Context())
		var out bytes.Buffer
		ended := make(chan error, 1)
		go func() {
			ended <- (&statusCmd{Addrs: []string{c.addr(1)}, Watch: true, Interval: statusIntervalMin, Timeout: 5 * time.Second, JSON: flag}).Run(ctx, console{&out, &out})
		}()
		for begin := time.Now(); c.asked.Load() < 3; time.Sleep(time.Millisecond) {
			if time.Since(begin) > 30*time.Second {
				t.Fatal("it does not ask again")
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		blocks := strings.Count(out.String(), "Node 1 leads")
		if flag {
			blocks = strings.Count(out.String(), `"leader":{`)
		}
		if blocks < 2 || strings.Contains(out.String(), "\x1b") {
			t.Errorf("JSON %v: %d blocks\n%q", flag, blocks, out.String())
		}
	}
}

func TestStatusScreen_RedrawsInPlaceAndGivesTheTerminalBack(t *testing.T) {
	var out bytes.Buffer
	s := &statusScreen{w: &out, terminal: true}
	if err := s.show([]byte("one\ntwo\n")); err != nil {
		t.Fatal(err)
	}
	if err := s.show([]byte("three\n")); err != nil {
		t.Fatal(err)
	}
	s.end()
	want := "\x1b[2J\x1b[?25l\x1b[?7l\x1b[Hone\x1b[K\ntwo\x1b[K\n\x1b[J" + "\x1b[Hthree\x1b[K\n\x1b[J" + "\x1b[?7h\x1b[?25h"
	if out.String() != want {
		t.Errorf("got %q\nwant %q", out.String(), want)
	}
}
