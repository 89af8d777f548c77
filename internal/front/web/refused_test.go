package web_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/front/web"
)

// refusedMost is how many refused requests an address is answered one by one.
const refusedMost = 256

// guarded starts a server on which nobody may do anything, and a clock that stands still.
func guarded(t *testing.T) (*site, *atomic.Int64) {
	t.Helper()
	clock, none := new(atomic.Int64), access.Roles(0)
	control, err := access.Open(access.Config{Anonymous: &none, Now: func() time.Duration { return time.Duration(clock.Load()) }})
	if err != nil {
		t.Fatal(err)
	}
	return start(t, func(c *web.Config) { c.Access = control }), clock
}

// flooder is a client of HTTP/2 without TLS that counts its connections.
type flooder struct {
	http.Client
	dialed atomic.Int64
}

// refuseMost has as many requests refused as are answered one by one, all on one connection.
func refuseMost(t *testing.T, s *site) *flooder {
	t.Helper()
	f := &flooder{}
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		f.dialed.Add(1)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	f.Transport, f.Timeout = transport, patience
	t.Cleanup(transport.CloseIdleConnections)
	for i := range refusedMost {
		if status, err := f.ask(s); err != nil || status != http.StatusUnauthorized || f.dialed.Load() != 1 {
			t.Fatalf("request %d: %d, %v, on connection %d", i, status, err, f.dialed.Load())
		}
	}
	return f
}

func (f *flooder) ask(s *site) (status int, err error) {
	a, err := f.Get("http://" + s.h2[0].addr + "/timestamp")
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, a.Body)
	return a.StatusCode, a.Body.Close()
}

// TestRefused_ABurstIsToldAndAFloodEnds: each request of a burst is answered, and only a client
// that does not stop loses its connection, after an answer too.
func TestRefused_ABurstIsToldAndAFloodEnds(t *testing.T) {
	s, _ := guarded(t)
	f := refuseMost(t, s)
	if status, err := f.ask(s); status != http.StatusUnauthorized {
		t.Errorf("the last request: %d, %v", status, err)
	}
	await.Until(t, "GOAWAY ends the connection", func() bool {
		_, err := f.ask(s)
		return err != nil && f.dialed.Load() > 1 // the one that follows is not served
	})
}

// TestRefused_NewConnectionsAreToldToWait in the form of their protocol, and are served again
// after that time.
func TestRefused_NewConnectionsAreToldToWait(t *testing.T) {
	s, clock := guarded(t)
	refuseMost(t, s)
	a := s.client(t, "http1").get(t, "/up")
	wantFault(t, a, http.StatusTooManyRequests, isotone.CodeQuotaExceeded)
	if a.Header.Get("Retry-After") != "8" || !a.Close {
		t.Errorf("%v", a.Header)
	}
	for _, p := range []string{"h2c", "h2"} {
		if _, err := s.client(t, p).try("GET", "/up", nil); err == nil || !strings.Contains(err.Error(), "ENHANCE_YOUR_CALM") {
			t.Errorf("%s: %v", p, err)
		}
	}
	if _, err := s.client(t, "h3").try("GET", "/up", nil); err == nil {
		t.Error("a QUIC connection was served")
	}
	clock.Add(int64(time.Minute))
	for _, p := range protocols {
		if a := s.client(t, p).get(t, "/up"); a.StatusCode != http.StatusOK {
			t.Errorf("%s after a while: %d", p, a.StatusCode)
		}
	}
}

// TestRefused_ResetRequestsCount: to take back requests before they are answered is no way around
// the limit.
func TestRefused_ResetRequestsCount(t *testing.T) {
	s, _ := guarded(t)
	reset, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range refusedMost + 1 {
		r := httptest.NewRequestWithContext(reset, http.MethodGet, "/up", nil)
		r.ProtoMajor, r.RemoteAddr = 2, "192.0.2.1:5"
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		if closes := strings.EqualFold(w.Header().Get("Connection"), "close"); closes != (i == refusedMost) {
			t.Fatalf("request %d: %v", i, w.Header())
		}
	}
	if a := s.client(t, "http1").get(t, "/up"); a.StatusCode != http.StatusOK {
		t.Errorf("another address: %d", a.StatusCode)
	}
}

// TestTake_AConnectionWithoutAnAddress was reset by its client before it was taken.
func TestTake_AConnectionWithoutAnAddress(t *testing.T) {
	s, _ := guarded(t)
	near, far := net.Pipe()
	defer far.Close()
	go func() { _, _ = io.WriteString(far, "GET /up HTTP/1.1\r\nHost: x\r\n\r\n") }()
	s.Take(nameless{near})
	_ = far.SetDeadline(time.Now().Add(patience))
	b := make([]byte, len(okLine))
	if _, err := io.ReadFull(far, b); err != nil || string(b) != okLine {
		t.Errorf("%q, %v", b, err)
	}
}

// nameless has no address any more.
type nameless struct{ net.Conn }

func (nameless) RemoteAddr() net.Addr { return nil }
