package web_test

import (
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/web"
)

// eachProtocol runs a test against one server over every protocol.
func eachProtocol(t *testing.T, s *site, test func(t *testing.T, c *client)) {
	t.Helper()
	for _, p := range protocols {
		t.Run(p, func(t *testing.T) { test(t, s.client(t, p)) })
	}
}

// wantFault checks an error answer in full.
func wantFault(t *testing.T, a answer, status int, code isotone.Code) {
	t.Helper()
	var body struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal(a.body, &body); err != nil {
		t.Errorf("body %q: %v", a.body, err)
	}
	if a.StatusCode != status || body.Error.Code != string(code) || body.Error.Message == "" {
		t.Errorf("got %d %q, want %d %s with a message", a.StatusCode, a.body, status, code)
	}
	if got := a.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type %q", got)
	}
	if got := a.Header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control %q", got)
	}
}

func TestUpReadyMetrics(t *testing.T) {
	s := start(t)
	ready := s.backend.Status()
	unready := *ready
	unready.NotReady = "no quorum for 3s"
	eachProtocol(t, s, func(t *testing.T, c *client) {
		for target, want := range map[string]string{"/up": "ok", "/ready": "ok", "/metrics": "isotone_up 1\n"} {
			a := c.get(t, target)
			if a.StatusCode != 200 || string(a.body) != want || a.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s: %d %q %v", target, a.StatusCode, a.body, a.Header)
			}
			a = c.do(t, http.MethodHead, target, nil)
			if a.StatusCode != 200 || len(a.body) != 0 {
				t.Errorf("HEAD %s: %d %q", target, a.StatusCode, a.body)
			}
		}
		s.backend.status.Store(&unready)
		defer s.backend.status.Store(ready)
		a := c.get(t, "/ready")
		wantFault(t, a, 503, isotone.CodeNoLeader)
		if !strings.Contains(string(a.body), unready.NotReady) {
			t.Errorf("/ready does not say why: %q", a.body)
		}
		if a := c.get(t, "/up"); a.StatusCode != 200 {
			t.Errorf("/up when not ready: %d", a.StatusCode)
		}
	})
}

func TestMembers(t *testing.T) {
	s := start(t)
	known := s.backend.Status()
	const rest = `"members":[{"nodeID":1,"addr":"127.0.0.1:8081","peerAddr":"127.0.0.1:60001","learner":false},` +
		`{"nodeID":2,"addr":"127.0.0.1:8082","peerAddr":"127.0.0.1:60002","learner":true}],"nodeID":2,"role":"follower","term":7}`
	eachProtocol(t, s, func(t *testing.T, c *client) {
		for _, target := range []string{"/members", "/membership"} {
			a := c.get(t, target)
			if want := `{"leader":{"nodeID":1,"addr":"127.0.0.1:8081"},` + rest; a.StatusCode != 200 || string(a.body) != want {
				t.Errorf("%s: %d\n got %s\nwant %s", target, a.StatusCode, a.body, want)
			}
			if a := c.do(t, http.MethodHead, target, nil); a.StatusCode != 200 || len(a.body) != 0 {
				t.Errorf("HEAD %s: %d %q", target, a.StatusCode, a.body)
			}
		}
		defer s.backend.status.Store(known)
		unknown := *known
		unknown.Leader, unknown.LeaderAddr = 0, ""
		s.backend.status.Store(&unknown)
		if a := c.get(t, "/members"); string(a.body) != `{"leader":null,`+rest {
			t.Errorf("no leader: %s", a.body)
		}
		s.backend.status.Store(&front.Status{NodeID: 1})
		if a := c.get(t, "/members"); !strings.HasPrefix(string(a.body), `{"leader":null,"members":[],`) {
			t.Errorf("no members: %s", a.body)
		}
	})
}

// TestCluster_IsTold by every answer but documents, as soon as the node knows it.
func TestCluster_IsTold(t *testing.T) {
	s := start(t, func(c *web.Config) {
		c.IDs = newIDs()
		c.Live = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
	})
	unnamed := s.backend.Status()
	eachProtocol(t, s, func(t *testing.T, c *client) {
		defer s.backend.status.Store(unnamed)
		for _, id := range []isotone.ClusterID{0, 0xabc, 0xdef} {
			status, want, member := *unnamed, "", `{"leader":`
			if status.ClusterID = uint64(id); id != 0 {
				want, member = id.String(), `{"clusterID":"`+id.String()+`","leader":`
			}
			s.backend.status.Store(&status)
			for _, target := range []string{"/timestamp", "/timestamp?n=0", "/api/snowflake", "/members", "/nowhere"} {
				a := c.get(t, target)
				if got := a.Header.Get("Isotone-Cluster"); got != want {
					t.Errorf("%s: %q, want %q", target, got, want)
				}
				if target == "/members" && !strings.HasPrefix(string(a.body), member) {
					t.Errorf("%s: %s", target, a.body)
				}
			}
			if got := c.get(t, "/state").Header.Get("Isotone-Cluster"); got != "" {
				t.Errorf("/state: %q", got)
			}
		}
	})
}

func TestPathsAndMethods(t *testing.T) {
	s := start(t)
	eachProtocol(t, s, func(t *testing.T, c *client) {
		for _, path := range []string{"/", "/timestamps", "/timestamp/", "//timestamp", "/TIMESTAMP", "/api/snowflake"} {
			wantFault(t, c.get(t, path), 404, isotone.CodeNotFound)
		}
		for path, methods := range map[string][]string{
			"/timestamp": {"POST", "PUT", "DELETE", "OPTIONS", "PATCH", "HEAD", "get"},
			"/members":   {"POST", "PUT", "DELETE", "OPTIONS", "PATCH", "get"},
		} {
			for _, method := range methods {
				a := c.do(t, method, path, nil)
				if a.StatusCode != 405 || !strings.HasPrefix(a.Header.Get("Allow"), "GET") {
					t.Errorf("%s %s: %d, Allow %q", method, path, a.StatusCode, a.Header.Get("Allow"))
				}
				if method != "HEAD" {
					wantFault(t, a, 405, isotone.CodeInvalidArgument)
				}
			}
		}
		if got := s.backend.submitted.Load(); got != 0 {
			t.Errorf("%d requests reached the backend", got)
		}
	})
}

func TestBodiesAreRefused(t *testing.T) {
	s := start(t)
	eachProtocol(t, s, func(t *testing.T, c *client) {
		wantFault(t, c.do(t, "GET", "/timestamp", strings.NewReader("n=5")), 400, isotone.CodeInvalidArgument)
		wantFault(t, c.do(t, "POST", "/timestamp", strings.NewReader("n=5")), 405, isotone.CodeInvalidArgument)
		wantFault(t, c.do(t, "GET", "/up", strings.NewReader("x")), 400, isotone.CodeInvalidArgument)
	})
	if got := s.backend.submitted.Load(); got != 0 {
		t.Errorf("%d requests reached the backend", got)
	}
}

func TestMetrics_NotConfigured(t *testing.T) {
	s := start(t, func(c *web.Config) { c.Metrics = nil })
	wantFault(t, s.client(t, "http1").get(t, "/metrics"), 404, isotone.CodeNotFound)
}

func TestAltSvc_OnlyUnderTLS(t *testing.T) {
	s := start(t)
	_, port, _ := net.SplitHostPort(s.addr)
	eachProtocol(t, s, func(t *testing.T, c *client) {
		want := ""
		if c.scheme == "https" {
			want = `h3=":` + port + `"; ma=86400`
		}
		if got := c.get(t, "/up").Header.Get("Alt-Svc"); got != want {
			t.Errorf("Alt-Svc %q, want %q", got, want)
		}
	})
}

func TestObserve_NamesProtocolAndCode(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	s := start(t, func(c *web.Config) {
		c.Observe = func(protocol, code string, wall time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			if wall >= 0 {
				seen[protocol+" "+code]++
			}
		}
	})
	for _, p := range protocols {
		c := s.client(t, p)
		c.get(t, "/timestamp")
		c.get(t, "/timestamp?n=0")
		await.Until(t, "both are observed over "+p, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return seen[p+" ok"] == 1 && seen[p+" invalid_argument"] == 1
		})
	}
}

func TestPanic_EndsOneRequestOnly(t *testing.T) {
	s := start(t, func(c *web.Config) {
		c.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("metrics") })
	})
	eachProtocol(t, s, func(t *testing.T, c *client) {
		if a, err := c.try("GET", "/metrics", nil); err == nil {
			t.Errorf("a panic was answered %d", a.StatusCode)
		}
		if a := c.get(t, "/timestamp"); a.StatusCode != 200 {
			t.Errorf("after a panic: %d", a.StatusCode)
		}
	})
}
