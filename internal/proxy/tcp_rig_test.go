package proxy_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/proxy"
)

// tcpSite is a TCP proxy that runs until the test ends.
type tcpSite struct {
	*proxy.TCPServer
	addr string
	log  *safeBuffer

	mu   sync.Mutex
	ends []proxy.TCPEnd
}

// startTCPSite runs a TCP proxy in front of backends.
func startTCPSite(t testing.TB, cfg proxy.TCPConfig, backends ...string) *tcpSite {
	t.Helper()
	s := &tcpSite{log: &safeBuffer{}}
	for _, b := range backends {
		cfg.Backends = append(cfg.Backends, proxy.Backend{URL: b})
	}
	cfg.Log = slog.New(slog.NewJSONHandler(s.log, nil))
	cfg.Observe = func(e proxy.TCPEnd) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ends = append(s.ends, e)
	}
	var err error
	if s.TCPServer, err = proxy.NewTCP(cfg); err != nil {
		t.Fatal(err)
	}
	l := listen(t)
	s.addr = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		for _, b := range s.Status().Backends {
			if b.Load != 0 {
				t.Errorf("%s has a load of %d at the end", b.URL, b.Load)
			}
		}
		if t.Failed() {
			t.Logf("log:\n%.1500s", s.log)
		}
	})
	return s
}

// dial connects to the proxy until the test ends.
func (s *tcpSite) dial(t testing.TB) *net.TCPConn {
	t.Helper()
	nc, err := net.DialTimeout("tcp", s.addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(patience))
	return nc.(*net.TCPConn)
}

// isReset checks that the proxy resets a new connection, be it before or after it is established.
func (s *tcpSite) isReset(t testing.TB) {
	t.Helper()
	nc, err := net.DialTimeout("tcp", s.addr, patience)
	if err == nil {
		_ = nc.SetDeadline(time.Now().Add(patience))
		_, err = nc.Read(make([]byte, 1))
		_ = nc.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v: want a reset", err)
	}
}

// ended waits for n connections to end and returns how.
func (s *tcpSite) ended(t testing.TB, n int) []proxy.TCPEnd {
	t.Helper()
	var ends []proxy.TCPEnd
	await.Until(t, "connections have ended", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		ends = append([]proxy.TCPEnd(nil), s.ends...)
		return len(ends) >= n
	})
	return ends
}

// tcpBackend is a TCP server in the test.
type tcpBackend struct {
	addr     string
	accepted atomic.Int64
	listener net.Listener
	mu       sync.Mutex
	conns    map[*net.TCPConn]bool
	running  sync.WaitGroup
}

// startTCPBackend has serve serve each connection until the test ends.
func startTCPBackend(t testing.TB, serve func(*net.TCPConn)) *tcpBackend {
	t.Helper()
	l := listen(t)
	b := &tcpBackend{addr: l.Addr().String(), listener: l, conns: map[*net.TCPConn]bool{}}
	b.running.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			c := nc.(*net.TCPConn)
			b.mu.Lock()
			b.conns[c] = true
			b.mu.Unlock()
			b.accepted.Add(1)
			b.running.Go(func() {
				serve(c)
				_ = c.Close()
				b.mu.Lock()
				delete(b.conns, c)
				b.mu.Unlock()
			})
		}
	})
	t.Cleanup(b.die)
	return b
}

// die closes the listener and resets all connections, as a process that is killed.
func (b *tcpBackend) die() {
	_ = b.listener.Close()
	b.mu.Lock()
	for c := range b.conns {
		_ = c.SetLinger(0)
		_ = c.Close()
	}
	b.mu.Unlock()
	b.running.Wait()
}

// echoBytes sends back what it gets, until the client has closed its sending side.
func echoBytes(c *net.TCPConn) { _, _ = io.Copy(c, c) }

// named sends a name, and then waits for the client to close the connection.
func named(name string) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		_, _ = io.WriteString(c, name)
		_, _ = io.Copy(io.Discard, c)
	}
}

// refusing returns an address at which nothing listens.
func refusing(t testing.TB) string {
	t.Helper()
	l := listen(t)
	defer l.Close()
	return l.Addr().String()
}

// readN reads n bytes.
func readN(t testing.TB, c net.Conn, n int) string {
	t.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(c, b); err != nil {
		t.Fatalf("reading %d bytes: %v", n, err)
	}
	return string(b)
}
