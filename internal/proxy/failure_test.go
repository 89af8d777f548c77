package proxy_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/proxy"
	"github.com/isotone/isotone/internal/proxy/balance"
)

// nobody returns an address on which no server listens.
func nobody(t testing.TB) string {
	l := listen(t)
	defer l.Close()
	return l.Addr().String()
}

// get sends one request on each path, with GET or, if body is set, with POST.
func get(t *testing.T, s *site, method string) (statuses []int, codes []string) {
	t.Helper()
	for _, raw := range []string{
		method + " /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		// HTTP/1.0 takes the standard path.
		method + " /x HTTP/1.0\r\nHost: x\r\n\r\n",
	} {
		got := s.exchange(t, raw)
		status := 0
		_, _ = fmt.Sscanf(got, "HTTP/1.1 %d", &status)
		if status == 0 {
			_, _ = fmt.Sscanf(got, "HTTP/1.0 %d", &status)
		}
		code := ""
		if _, body, ok := strings.Cut(got, "\r\n\r\n"); ok && strings.HasPrefix(body, "{") {
			code = fault(t, body)
		}
		statuses, codes = append(statuses, status), append(codes, code)
	}
	return statuses, codes
}

func expect(t *testing.T, s *site, method string, status int, code string) {
	t.Helper()
	statuses, codes := get(t, s, method)
	for i, path := range []string{"fast path", "standard path"} {
		if statuses[i] != status || codes[i] != code {
			t.Errorf("%s: %d %q, want %d %q", path, statuses[i], codes[i], status, code)
		}
	}
	s.idle(t)
}

func TestServer_SaysWhatIsWrongWithBackends(t *testing.T) {
	t.Parallel()
	t.Run("nobody listens", func(t *testing.T) {
		expect(t, start(t, proxy.Config{}, nobody(t)), "GET", 502, "internal")
	})
	t.Run("hangs up", func(t *testing.T) {
		b := startScript(t, func(int, int, string) (string, bool) { return "", true })
		expect(t, start(t, proxy.Config{}, b.addr), "POST", 502, "internal")
	})
	t.Run("says nothing", func(t *testing.T) {
		b := startScript(t, func(int, int, string) (string, bool) { return "", false })
		s := start(t, proxy.Config{Limits: proxy.Limits{AnswerTimeout: 200 * time.Millisecond}}, b.addr)
		expect(t, s, "GET", 504, "deadline_exceeded")
	})
	t.Run("accepts nothing", func(t *testing.T) {
		s := start(t, proxy.Config{Limits: proxy.Limits{ConnectTimeout: 100 * time.Millisecond}}, "192.0.2.1:80")
		expect(t, s, "GET", 502, "internal")
	})
	t.Run("is down", func(t *testing.T) {
		s := start(t, proxy.Config{Health: proxy.Health{Path: "/up", Interval: time.Millisecond, Timeout: time.Second}}, nobody(t))
		await.Until(t, "the backend is down", func() bool { return s.Status().Backends[0].Down })
		expect(t, s, "GET", 503, "overloaded")
	})
}

// TestServer_RefusesBadAnswers has answers that could be read in two ways. No part of them may
// reach a client.
func TestServer_RefusesBadAnswers(t *testing.T) {
	for name, answer := range map[string]string{
		"nonsense":           "hello\r\n\r\n",
		"HTTP/2":             "HTTP/2.0 200 OK\r\n\r\n",
		"short status":       "HTTP/1.1 20 OK\r\n\r\n",
		"bare LF":            "HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
		"two lengths":        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nokk",
		"length and chunks":  "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"bad length":         "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
		"bad coding":         "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"folded":             "HTTP/1.1 200 OK\r\nX-A: b\r\n c\r\nContent-Length: 2\r\n\r\nok",
		"space before colon": "HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok",
		"switches":           "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
		"bare CR":            "HTTP/1.1 200 OK\r\nX-A: b\rc\r\nContent-Length: 2\r\n\r\nok",
		"too long":           "HTTP/1.1 200 OK\r\nX-A: " + strings.Repeat("b", 20_000) + "\r\n\r\n",
	} {
		b := startScript(t, func(int, int, string) (string, bool) { return answer, false })
		s := start(t, proxy.Config{RetriesMax: -1}, b.addr)
		got := s.exchange(t, last)
		if !strings.HasPrefix(got, "HTTP/1.1 502 ") || strings.Contains(got, "ok") {
			t.Errorf("%s: %.200q", name, got)
		}
		s.idle(t)
	}
}

// TestServer_GivesNobodyAnotherRequestsAnswer: bytes after an answer belong to no request.
func TestServer_GivesNobodyAnotherRequestsAnswer(t *testing.T) {
	b := startScript(t, func(int, int, string) (string, bool) {
		return okAnswer + "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison", false
	})
	s := start(t, proxy.Config{}, b.addr)
	for range 20 {
		if got := s.exchange(t, "GET /a HTTP/1.1\r\nHost: x\r\n\r\n"+last); strings.Contains(got, "poison") || strings.Count(got, "\r\n\r\nok") != 2 {
			t.Fatalf("%q", got)
		}
	}
}

func TestServer_CutsAnswersThatAreCut(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"length":     "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
		"chunks":     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
		"bad chunks": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcdefg\r\n0\r\n\r\n",
	} {
		b := startScript(t, func(int, int, string) (string, bool) { return answer, true })
		s := start(t, proxy.Config{}, b.addr)
		for path, body := range map[string]io.Reader{"fast path": nil, "standard path": unsized("x")} {
			resp, err := client(t).Do(request(t, "POST", "http://"+s.addr+"/", body))
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				resp.Body.Close()
			}
			if err == nil && resp.StatusCode != 502 { // it may have closed before it had the request
				t.Errorf("%s, %s: the client takes it for whole", name, path)
			}
		}
		s.idle(t)
	}
}

func TestServer_CutsAnswersThatPauseForTooLong(t *testing.T) {
	b := startScript(t, func(int, int, string) (string, bool) {
		return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc", false
	})
	s := start(t, proxy.Config{Limits: proxy.Limits{StreamTimeout: 200 * time.Millisecond}}, b.addr)
	for path, raw := range map[string]string{"fast path": last, "standard path": strings.Replace(last, "HTTP/1.1", "HTTP/1.0", 1)} {
		if got := s.exchange(t, raw); !strings.Contains(got, "200 OK") || !strings.Contains(got, "abc") {
			t.Errorf("%s: %q", path, got)
		}
	}
	s.idle(t)
}

func TestServer_ForwardsAnswersThatEndWithTheConnection(t *testing.T) {
	b := startScript(t, func(int, int, string) (string, bool) { return "HTTP/1.0 200 OK\r\n\r\nall of it", true })
	s := start(t, proxy.Config{}, b.addr)
	c := dial(t, s)
	in := bufio.NewReader(c)
	for range 2 { // the client's connection stays open
		_, _ = io.WriteString(c, "GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "all of it" {
			t.Errorf("%q, %v", body, err)
		}
	}
	s.idle(t)
}

func TestServer_TriesAgainElsewhereWhatDoesNoHarmTwice(t *testing.T) {
	good := startBackend(t, echo)
	bad := startScript(t, func(int, int, string) (string, bool) { return "", true })
	for _, other := range []string{bad.addr, nobody(t)} {
		s := start(t, proxy.Config{Strategy: balance.RoundRobin, Ejection: balance.EjectorConfig{FailuresMax: 1 << 30}}, other, good.addr)
		for range 10 {
			expect(t, s, "GET", 200, "")
		}
		st := s.Status()
		if st.Backends[0].Failures == 0 || st.Backends[1].Retries == 0 {
			t.Errorf("%+v", st.Backends)
		}
	}
	s := start(t, proxy.Config{Strategy: balance.RoundRobin, Ejection: balance.EjectorConfig{FailuresMax: 1 << 30}}, bad.addr, good.addr)
	failed := 0
	for range 10 {
		statuses, _ := get(t, s, "POST")
		for _, status := range statuses {
			if status == 502 {
				failed++
			}
		}
	}
	if failed != 10 {
		t.Errorf("%d of 20 POST requests failed, of which each second went to a backend that hangs up", failed)
	}
}

// TestServer_TriesAgainElsewhereWhatWasNotSent, even requests that are not idempotent and have
// a body, on each path.
func TestServer_TriesAgainElsewhereWhatWasNotSent(t *testing.T) {
	good := startBackend(t, echo)
	s := start(t, proxy.Config{Strategy: balance.RoundRobin, Ejection: balance.EjectorConfig{FailuresMax: 1 << 30}}, nobody(t), good.addr)
	long := strings.Repeat("x", 100_000)
	for name, tc := range map[string]struct {
		body   string
		reader func(string) io.Reader
	}{
		"on the fast path": {"short", func(s string) io.Reader { return strings.NewReader(s) }},
		"long":             {long, func(s string) io.Reader { return strings.NewReader(s) }},
		"in chunks":        {long, unsized},
		"none":             {"", func(string) io.Reader { return nil }},
	} {
		for range 4 {
			resp, got := do(t, client(t), request(t, "POST", "http://"+s.addr+"/", tc.reader(tc.body)))
			if resp.StatusCode != 200 || got != tc.body {
				t.Errorf("%s: %d %.100q", name, resp.StatusCode, got)
			}
		}
	}
	if st := s.Status(); st.Backends[0].Failures == 0 {
		t.Error("nothing was tried where nobody is")
	}
}

func TestServer_StopsTryingWhenTheBudgetIsUsedUp(t *testing.T) {
	s := start(t, proxy.Config{
		Retry:    balance.BudgetConfig{Percent: -1, Reserve: 1}, // ten in ten seconds
		Ejection: balance.EjectorConfig{FailuresMax: 1 << 30},
	}, nobody(t), nobody(t), nobody(t))
	for range 20 {
		get(t, s, "GET")
	}
	st := s.Status()
	retries := uint64(0)
	for _, b := range st.Backends {
		retries += b.Retries
	}
	if retries < 10 || retries > 30 || st.RetriesRefused == 0 {
		t.Errorf("%d retries, %d refused, in at most a few windows of 10", retries, st.RetriesRefused)
	}
}

func TestServer_EjectsWhatFailsAndTakesItBack(t *testing.T) {
	var broken atomic.Bool
	broken.Store(true)
	b := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		if broken.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		echo(w, r)
	})
	good := startBackend(t, echo)
	s := start(t, proxy.Config{
		Strategy: balance.RoundRobin, Ejection: balance.EjectorConfig{FailuresMax: 3, Base: 200 * time.Millisecond},
	}, b.addr, good.addr)
	await.Until(t, "it is ejected", func() bool { get(t, s, "GET"); return s.Status().Backends[0].Ejected })
	broken.Store(false)
	await.Until(t, "it is in again", func() bool { return !s.Status().Backends[0].Ejected })
	before := len(b.requests())
	for range 4 {
		expect(t, s, "GET", 200, "")
	}
	if len(b.requests()) == before {
		t.Error("it gets no requests")
	}
}

func TestServer_FollowsHealthChecks(t *testing.T) {
	var sick atomic.Bool
	b := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		if sick.Load() && r.URL.Path == "/up" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	s := start(t, proxy.Config{Health: proxy.Health{Path: "/up", Interval: time.Millisecond}}, b.addr)
	for range 2 {
		expect(t, s, "GET", 200, "")
		sick.Store(true)
		await.Until(t, "it is down", func() bool { return s.Status().Backends[0].Down })
		expect(t, s, "GET", 503, "overloaded")
		sick.Store(false)
		await.Until(t, "it is up", func() bool { return !s.Status().Backends[0].Down })
	}
	await.Until(t, "the log says so", func() bool {
		log := s.log.String()
		return strings.Count(log, "a backend is down") == 2 && strings.Count(log, "up again") == 2
	})
}

// TestServer_SurvivesBackendsThatCloseKeptConnections: each closes after its answer, without
// Connection: close.
func TestServer_SurvivesBackendsThatCloseKeptConnections(t *testing.T) {
	b := startScript(t, func(int, int, string) (string, bool) { return okAnswer, true })
	s := start(t, proxy.Config{Retry: balance.BudgetConfig{Percent: 100}}, b.addr)
	c := client(t)
	for i := range 100 {
		if resp, body := do(t, c, request(t, "GET", "http://"+s.addr+"/", nil)); body != "ok" {
			t.Fatalf("request %d: %s", i, resp.Status)
		}
	}
	if s.Status().Backends[0].Failures > 0 {
		t.Error("that is taken for a failure")
	}
}

func TestServer_ForgetsClientsThatLeave(t *testing.T) {
	release := make(chan struct{})
	b := startBackend(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	s := start(t, proxy.Config{}, b.addr)
	for _, raw := range []string{last, chunkedFirst} {
		for name, leave := range map[string]func(*net.TCPConn){
			"reset":           func(c *net.TCPConn) { _ = c.SetLinger(0); _ = c.Close() },
			"closed":          func(c *net.TCPConn) { _ = c.Close() },
			"end of requests": func(c *net.TCPConn) { _ = c.CloseWrite() },
		} {
			c := dial(t, s)
			if _, err := io.WriteString(c, raw); err != nil {
				t.Fatal(err)
			}
			await.Until(t, "the request is out, "+name, func() bool { return s.Status().Backends[0].Load == 1 })
			leave(c)
			s.idle(t)
		}
	}
	if st := s.Status().Backends[0]; st.Failures > 0 {
		t.Errorf("the backend is blamed: %+v", st)
	}
	close(release)
	await.Until(t, "no connection is left", func() bool { return s.Connections() == 0 })
}

func TestServer_BoundsConnections(t *testing.T) {
	b := startBackend(t, echo)
	s := start(t, proxy.Config{Limits: proxy.Limits{ConnectionsMax: 3}}, b.addr) // two of one address
	first, second := dial(t, s), dial(t, s)
	defer second.Close()
	await.Until(t, "both are counted", func() bool { return s.Connections() == 2 })
	if got := s.exchange(t, last); !strings.HasPrefix(got, "HTTP/1.1 503 ") || !strings.Contains(got, `"overloaded"`) {
		t.Errorf("%q", got)
	}
	first.Close()
	await.Until(t, "there is room again", func() bool { return s.Connections() == 1 })
	if got := s.exchange(t, last); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
		t.Errorf("%q", got)
	}
}

func TestServer_WaitsForAConnectionWithinBounds(t *testing.T) {
	entered, release := make(chan struct{}, 8), make(chan struct{})
	b := startBackend(t, func(w http.ResponseWriter, r *http.Request) { entered <- struct{}{}; <-release; echo(w, r) })
	s := start(t, proxy.Config{Limits: proxy.Limits{BackendConnectionsMax: 2, WaitingMax: 3}}, b.addr)
	var statuses sync.Map
	var asking sync.WaitGroup
	for i := range 8 {
		asking.Go(func() {
			got := s.exchange(t, last)
			count, _ := statuses.LoadOrStore(got[:len("HTTP/1.1 200")], new(atomic.Int64))
			count.(*atomic.Int64).Add(1)
		})
		if i < 2 {
			await.Receive(t, "the request at the backend", entered) // one whose connection is on its way waits for it, too
		}
		if i < 5 {
			await.Until(t, "it is in work", func() bool { return s.Status().Backends[0].Load == i+1 })
		}
	}
	await.Until(t, "three are refused", func() bool {
		n, ok := statuses.Load("HTTP/1.1 503")
		return ok && n.(*atomic.Int64).Load() == 3
	})
	close(release)
	asking.Wait()
	if n, ok := statuses.Load("HTTP/1.1 200"); !ok || n.(*atomic.Int64).Load() != 5 {
		t.Error("those that waited are not answered")
	}
	s.idle(t)
}

func TestServer_ShutsDownWithoutLosingAnswers(t *testing.T) {
	entered, release := make(chan struct{}, 2), make(chan struct{})
	b := startBackend(t, func(w http.ResponseWriter, r *http.Request) { entered <- struct{}{}; <-release; echo(w, r) })
	s := start(t, proxy.Config{}, b.addr)
	idle := dial(t, s)
	answers := make(chan string, 2)
	for _, raw := range []string{"GET /a HTTP/1.1\r\nHost: x\r\n\r\n", chunkedFirst} {
		go func() { answers <- s.exchange(t, raw) }()
		<-entered
	}
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(context.Background()) }()
	if _, err := idle.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("an idle connection: %v", err)
	}
	idle.Close()
	if _, err := net.DialTimeout("tcp", s.addr, time.Second); err == nil {
		t.Error("it still accepts")
	}
	close(release)
	for range 2 {
		if got := <-answers; !strings.HasPrefix(got, "HTTP/1.1 200 OK") {
			t.Errorf("%q", got)
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestNew_RefusesWhatMakesNoSense(t *testing.T) {
	for _, cfg := range []proxy.Config{
		{},
		{Backends: []proxy.Backend{{URL: "ftp://x"}}},
		{Backends: []proxy.Backend{{URL: "http://x/path"}}},
		{Backends: []proxy.Backend{{URL: "http://u@x"}}},
		{Backends: []proxy.Backend{{URL: "http://x:0"}}},
		{Backends: []proxy.Backend{{URL: "http://x:65536"}}},
		{Backends: []proxy.Backend{{URL: "http://x"}, {URL: "http://x:80/"}}},
		{Backends: []proxy.Backend{{URL: "http://x"}}, Strategy: "best"},
	} {
		if _, err := proxy.New(cfg); !errors.Is(err, isotone.ErrInvalidArgument) {
			t.Errorf("%+v: %v", cfg.Backends, err)
		}
	}
	for _, key := range []string{"", "header:", "header:a b", "query:", "query:a=b", "cookie:x", "x"} {
		if _, err := proxy.ParseKey(key); !errors.Is(err, isotone.ErrInvalidArgument) {
			t.Errorf("%q: %v", key, err)
		}
	}
}

func TestServer_ShutsDownAtOnceWhenNobodyHasAsked(t *testing.T) {
	for _, scheme := range []string{"http", "https"} { // with the fast path and without
		s := start(t, proxy.Config{}, scheme+"://127.0.0.1:1")
		c := dial(t, s)
		await.Until(t, "it is connected", func() bool { return s.Connections() == 1 })
		done := make(chan error, 1)
		go func() { done <- s.Shutdown(context.Background()) }()
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("%s: the connection stays", scheme)
		}
		c.Close()
		if err := <-done; err != nil {
			t.Errorf("%s: %v", scheme, err)
		}
	}
}
