package web_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/front/web"
)

// wantHealth checks an answer of /livez or /readyz.
func wantHealth(t *testing.T, a answer, status int, body string) {
	t.Helper()
	if a.StatusCode != status || string(a.body) != body || a.Header.Get("Content-Type") != "text/plain; charset=utf-8" ||
		a.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%s: %d %q %v; want %d %q", a.Request.URL, a.StatusCode, a.body, a.Header, status, body)
	}
}

func TestReady_TellsTimestampsAndIDsApart(t *testing.T) {
	g := newIDs()
	s := start(t, func(c *web.Config) { c.IDs = g })
	ready := *s.backend.Status()
	const line = "[+]timestamps ok\n[+]ids ok\nreadyz check passed\n"
	for _, tc := range []struct {
		name                     string
		timestamps, ids          string // reasons in the status
		noWorker                 *isotone.Error
		plain, wantTime, wantIDs string // reasons that are told; "" is ready
		verbose                  string
	}{
		{name: "all is well", verbose: line},
		{name: "no leader", timestamps: "no leader", plain: "no leader", wantTime: "no leader",
			verbose: "[-]timestamps failed: no leader\n[+]ids ok\nreadyz check failed\n"},
		{name: "no ids", ids: "clock is off", plain: "clock is off", wantIDs: "clock is off",
			verbose: "[+]timestamps ok\n[-]ids failed: clock is off\nreadyz check failed\n"},
		{name: "no worker yet", noWorker: isotone.Errorf(isotone.CodeNoLeader, "no worker yet"), wantIDs: "no worker yet",
			verbose: "[+]timestamps ok\n[-]ids failed: no worker yet\nreadyz check failed\n"},
		{name: "neither", timestamps: "no leader", ids: "no worker", plain: "no leader", wantTime: "no leader", wantIDs: "no worker",
			verbose: "[-]timestamps failed: no leader\n[-]ids failed: no worker\nreadyz check failed\n"},
	} {
		status := ready
		status.NotReadyTimestamps, status.NotReadyIDs, status.NotReady = tc.timestamps, tc.ids, tc.timestamps
		if status.NotReady == "" {
			status.NotReady = tc.ids
		}
		s.backend.status.Store(&status)
		g.fails.Store(tc.noWorker)
		t.Run(tc.name, func(t *testing.T) {
			eachProtocol(t, s, func(t *testing.T, c *client) {
				for path, why := range map[string]string{"/ready": tc.plain, "/ready/timestamps": tc.wantTime, "/ready/ids": tc.wantIDs} {
					a := c.get(t, path)
					if why == "" {
						wantHealth(t, a, 200, "ok")
						continue
					}
					wantFault(t, a, 503, isotone.CodeNoLeader)
					if !strings.Contains(string(a.body), why) {
						t.Errorf("%s: %q, want %q", path, a.body, why)
					}
				}
				wantHealth(t, c.get(t, "/livez"), 200, "ok")
				wantHealth(t, c.get(t, "/livez?verbose"), 200, "[+]ping ok\nlivez check passed\n")
				if tc.verbose == line {
					wantHealth(t, c.get(t, "/readyz"), 200, "ok")
					wantHealth(t, c.get(t, "/readyz?verbose"), 200, line)
				} else {
					wantHealth(t, c.get(t, "/readyz"), 503, tc.verbose)
					wantHealth(t, c.get(t, "/readyz?verbose=true"), 503, tc.verbose)
				}
				if tc.wantTime == "" {
					wantHealth(t, c.get(t, "/readyz?exclude=ids"), 200, "ok")
				}
				if a := c.do(t, http.MethodHead, "/readyz", nil); len(a.body) != 0 {
					t.Errorf("HEAD: %q", a.body)
				}
			})
		})
	}
}

// Without ids there is nothing to be ready for.
func TestReady_WithoutIDsChecksTimestampsOnly(t *testing.T) {
	s := start(t)
	eachProtocol(t, s, func(t *testing.T, c *client) {
		wantFault(t, c.get(t, "/ready/ids"), 404, isotone.CodeNotFound)
		wantHealth(t, c.get(t, "/readyz?verbose"), 200, "[+]timestamps ok\nreadyz check passed\n")
		for _, path := range []string{"/ready/", "/ready/other", "/livez/ping", "/readyz/"} {
			wantFault(t, c.get(t, path), 404, isotone.CodeNotFound)
		}
		wantFault(t, c.do(t, http.MethodPost, "/readyz", nil), 405, isotone.CodeInvalidArgument)
	})
}

func TestDrain_IsAskedForByPOSTOnly(t *testing.T) {
	var asked atomic.Int64
	s := start(t, func(c *web.Config) { c.Drain = func() { asked.Add(1) } })
	eachProtocol(t, s, func(t *testing.T, c *client) {
		before := asked.Load()
		a := c.get(t, "/admin/drain")
		wantFault(t, a, 405, isotone.CodeInvalidArgument)
		if allow := a.Header.Get("Allow"); allow != "POST" {
			t.Errorf("Allow: %q", allow)
		}
		wantFault(t, c.do(t, "POST", "/admin/drain", nil), 400, isotone.CodeInvalidArgument)
		wantFault(t, c.do(t, "POST", "/admin/drain", nil, "Content-Type", "text/plain"), 400, isotone.CodeInvalidArgument)
		wantFault(t, c.do(t, "POST", "/admin/drain", strings.NewReader("{}"), "Content-Type", "application/json"), 400, isotone.CodeInvalidArgument)
		wantFault(t, c.do(t, "POST", "/admin/other", nil, "Content-Type", "application/json"), 404, isotone.CodeNotFound)
		if n := asked.Load() - before; n != 0 {
			t.Fatalf("drained %d times without being asked", n)
		}
		a = c.do(t, "POST", "/admin/drain", nil, "Content-Type", "application/json")
		if a.StatusCode != 200 || string(a.body) != `{"draining":true}` || a.Header.Get("Content-Type") != "application/json" || asked.Load() != before+1 {
			t.Errorf("%d %q %v, asked %d times", a.StatusCode, a.body, a.Header, asked.Load()-before)
		}
	})
}

func TestDrain_IsNotServedWhereNobodyDrains(t *testing.T) {
	s := start(t)
	wantFault(t, s.client(t, "http1").do(t, "POST", "/admin/drain", nil, "Content-Type", "application/json"), 404, isotone.CodeNotFound)
}

// While the node drains, requests are answered, and clients of HTTP/1.1 and HTTP/2 are told to
// leave: each next request is on another connection.
func TestDraining_TellsClientsToLeave(t *testing.T) {
	for _, p := range protocols {
		t.Run(p, func(t *testing.T) {
			s := start(t)
			c := s.client(t, p)
			c.get(t, "/up")
			await.Until(t, "one connection", func() bool { return s.Connections() == 1 })
			draining := *s.backend.Status()
			draining.Draining = true
			s.backend.status.Store(&draining)
			for range 3 {
				a := c.get(t, "/timestamp")
				if a.StatusCode != 200 || len(a.body) != 16 || a.Header.Get("Alt-Svc") != "" {
					t.Errorf("%d %q %v", a.StatusCode, a.body, a.Header)
				}
				if a.ProtoMajor == 1 != a.Close {
					t.Errorf("HTTP/%d, Connection: close %v", a.ProtoMajor, a.Close)
				}
				if p != "h3" {
					await.Until(t, "the connection is closed", func() bool { return s.Connections() == 0 })
				}
			}
			wantServed(t, s.backend, 3)
		})
	}
}

func wantServed(t *testing.T, b *backend, n int64) {
	t.Helper()
	if got := b.submitted.Load(); got != n {
		t.Errorf("%d requests reached the backend, want %d", got, n)
	}
}
