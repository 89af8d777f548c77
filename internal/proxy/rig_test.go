package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/parallel"
	"github.com/isotone/isotone/internal/proxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(parallel.Tests{M: m, N: 6}) }

// patience bounds every wait for what must happen. No test depends on its length to pass.
const patience = time.Minute

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// site is a proxy that runs until the test ends.
type site struct {
	*proxy.Server
	addr string
	log  *safeBuffer
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// start runs a proxy in front of backends.
func start(t testing.TB, cfg proxy.Config, backends ...string) *site {
	t.Helper()
	log := &safeBuffer{}
	s := startLogging(t, cfg, slog.New(slog.NewJSONHandler(log, nil)), backends...)
	s.log = log
	return s
}

// startLogging runs a proxy with another log.
func startLogging(t testing.TB, cfg proxy.Config, log *slog.Logger, backends ...string) *site {
	t.Helper()
	for _, b := range backends {
		if !strings.Contains(b, "://") {
			b = "http://" + b
		}
		cfg.Backends = append(cfg.Backends, proxy.Backend{URL: b})
	}
	s := &site{log: &safeBuffer{}}
	cfg.Log = log
	var err error
	if s.Server, err = proxy.New(cfg); err != nil {
		t.Fatal(err)
	}
	l := listen(t)
	s.addr = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if t.Failed() {
			t.Logf("log:\n%.1500s", s.log)
		}
	})
	return s
}

// idle waits until no request is in progress, and fails if a backend still counts one.
func (s *site) idle(t testing.TB) {
	t.Helper()
	await.Until(t, "no request is in work", func() bool {
		st := s.Status()
		load := 0
		for _, b := range st.Backends {
			load += b.Load
		}
		return st.FastPath == 0 && st.StandardPath == 0 && load == 0
	})
}

// backend is an HTTP server in the test.
type backend struct {
	addr   string
	server *http.Server
	mu     sync.Mutex
	seen   []*http.Request
}

// startBackend runs h until the test ends.
func startBackend(t testing.TB, h http.HandlerFunc) *backend {
	t.Helper()
	l := listen(t)
	b := &backend{addr: l.Addr().String()}
	b.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		b.seen = append(b.seen, r)
		b.mu.Unlock()
		h(w, r)
	}), DisableGeneralOptionsHandler: true, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = b.server.Serve(l) }()
	t.Cleanup(func() { _ = b.server.Close(); <-ended })
	return b
}

func (b *backend) requests() []*http.Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]*http.Request(nil), b.seen...)
}

// echo answers with the request.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("X-Method", r.Method)
	w.Header().Set("X-Target", r.RequestURI)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
}

// script is a backend that reads heads and answers with fixed bytes.
type script struct {
	addr  string
	heads chan string // those that it has read
}

// startScript runs a backend that calls say for each request on each connection. It sends the
// text that say returns, and closes the connection if say returns true.
func startScript(t testing.TB, say func(conn, request int, head string) (answer string, end bool)) *script {
	t.Helper()
	s := &script{heads: make(chan string, 1000)}
	var conns atomic.Int64
	s.addr = startTCP(t, func(nc net.Conn) {
		conn := int(conns.Add(1)) - 1
		in := bufio.NewReader(nc)
		for request := 0; ; request++ {
			head := ""
			for !strings.HasSuffix(head, "\r\n\r\n") {
				line, err := in.ReadString('\n')
				if err != nil {
					return
				}
				head += line
			}
			select {
			case s.heads <- head:
			default:
			}
			answer, end := say(conn, request, head)
			if _, err := io.WriteString(nc, answer); err != nil || end {
				return
			}
		}
	})
	return s
}

// startTCP serves each connection with serve and then closes it. The end of the test closes all.
func startTCP(t testing.TB, serve func(net.Conn)) (addr string) {
	t.Helper()
	l := listen(t)
	var running sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	running.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[nc] = true
			mu.Unlock()
			running.Go(func() {
				defer nc.Close()
				serve(nc)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for nc := range open {
			_ = nc.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	return l.Addr().String()
}

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func dial(t testing.TB, s *site) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c.(*net.TCPConn)
}

// exchange sends raw bytes and returns all that comes back until the proxy closes.
func (s *site) exchange(t testing.TB, pieces ...string) string {
	t.Helper()
	c := dial(t, s)
	defer c.Close()
	for i, piece := range pieces {
		if i > 0 {
			time.Sleep(5 * time.Millisecond) // so that it arrives separately
		}
		if _, err := io.WriteString(c, piece); err != nil {
			break // the proxy may close in the middle of this
		}
	}
	got, err := io.ReadAll(c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection stays open after %.80q; got %.200q", pieces, got)
	}
	return string(got)
}

// client is an HTTP client with connections of its own.
func client(t testing.TB) *http.Client {
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

// do sends a request and reads the answer.
func do(t testing.TB, c *http.Client, r *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("body: %v", err)
	}
	return resp, string(body)
}

func request(t testing.TB, method, url string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequest(method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// unsized hides a reader's length, so that it is sent in chunks, on the standard path.
func unsized(s string) io.Reader { return io.MultiReader(strings.NewReader(s)) }
