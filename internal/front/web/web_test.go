package web_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"
	"go.uber.org/goleak"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/credential"
	"github.com/isotone/isotone/internal/check/parallel"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/http2"
	"github.com/isotone/isotone/internal/front/web"
	"github.com/isotone/isotone/internal/host/loop"
	"github.com/isotone/isotone/internal/host/secure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(parallel.Tests{M: m, N: 6}) }

// patience bounds waiting for what must happen; no test passes by its length.
const patience = time.Minute

// backend is a node in miniature. It answers within Submit unless it is held.
type backend struct {
	submitted atomic.Int64
	next      atomic.Uint64
	status    atomic.Pointer[front.Status]

	mu    sync.Mutex
	err   error
	held  []*front.Batch // nil: not holding
	modes []isotone.ReadMode
	// Of the latest batch:
	floor    isotone.Timestamp
	timeline string
}

const epoch = 1<<63 + 12345 // larger than a float64 or an int64 can hold

func newBackend() *backend {
	b := &backend{}
	b.status.Store(&front.Status{
		NodeID: 2, Term: 7, Role: "follower", Leader: 1, LeaderAddr: "127.0.0.1:8081",
		Members: []front.Member{
			{NodeID: 1, Addr: "127.0.0.1:8081", PeerAddr: "127.0.0.1:60001"},
			{NodeID: 2, Addr: "127.0.0.1:8082", PeerAddr: "127.0.0.1:60002", Learner: true},
		},
	})
	return b
}

func (b *backend) Status() *front.Status { return b.status.Load() }

func (b *backend) Submit(batch *front.Batch) {
	b.submitted.Add(1)
	b.mu.Lock()
	b.modes, b.floor, b.timeline = append(b.modes, batch.Mode), batch.Floor, batch.Timeline
	if b.held != nil {
		b.held = append(b.held, batch)
		b.mu.Unlock()
		return
	}
	err := b.err
	b.mu.Unlock()
	b.answer(batch, err)
}

func (b *backend) answer(batch *front.Batch, err error) {
	batch.Err = err
	for i, n := range batch.Counts {
		index := b.next.Add(n) - n
		batch.Ranges[i] = isotone.Range{First: isotone.Timestamp{Time: epoch, Index: index}, Count: n}
		if batch.U64 {
			first := isotone.Timestamp64From(isotone.Timestamp{Time: epoch}) + isotone.Timestamp64(index)
			batch.Ranges[i].First = first.Timestamp()
		}
	}
	batch.Done(batch)
}

func (b *backend) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

func (b *backend) hold() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = make([]*front.Batch, 0, 1)
}

func (b *backend) release() {
	b.mu.Lock()
	held := b.held
	b.held = nil
	b.mu.Unlock()
	for _, batch := range held {
		b.answer(batch, nil)
	}
}

func (b *backend) lastFloor() isotone.Timestamp {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.floor
}

func (b *backend) lastMode() isotone.ReadMode {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.modes[len(b.modes)-1]
}

// site is a running server and what a test needs to talk to it.
type site struct {
	*web.Server
	backend *backend
	addr    string
	roots   *x509.CertPool
	served  chan error
	h2      []*multiplexed // without and with TLS
	secured *tls.Config    // of HTTP/1; nil: there is no TLS
}

// multiplexed is HTTP/2 in a loop, in front of a server's handler.
type multiplexed struct {
	front *http2.Front
	host  *loop.Host
	addr  string
}

// startHTTP2 runs HTTP/2, within TLS unless server is nil.
func (s *site) startHTTP2(t testing.TB, cfg *web.Config, server *tls.Config) *multiplexed {
	m := &multiplexed{}
	m.host, m.addr = rig.Serve(t, loop.Limits{}, func(l *loop.Loop) loop.Service {
		m.front = http2.New(http2.Config{
			Loop: l, Handler: s.Handler(), Backend: &rig.InLoop{Backend: s.backend, Loop: l}, Refusing: cfg.Access.Refusing,
			Limits: http2.Limits{StreamsMax: cfg.Limits.StreamsMax, HeaderBytesMax: cfg.Limits.HeaderBytesMax, WriteTimeout: cfg.Limits.WriteTimeout},
		})
		service := loop.Service{Open: m.front.Open, Stop: m.front.Stop, Conns: m.front.Conns}
		if server != nil {
			service.Open = secure.New(secure.Config{Loop: l, TLS: server, Open: func(c *loop.Conn, _ string) loop.Handler { return m.front.Open(c) }}).Accept
		}
		return service
	})
	return m
}

// Connections returns how many there are of all protocols.
func (s *site) Connections() int {
	n := s.Server.Connections()
	for _, m := range s.h2 {
		n += m.front.Conns()
	}
	return n
}

// Shutdown ends everything, in the order of a node.
func (s *site) Shutdown(ctx context.Context) error {
	for _, m := range s.h2 {
		rig.StopServing(ctx, m.host)
		if ctx.Err() != nil {
			m.host.Stop()
		}
	}
	return s.Server.Shutdown(ctx)
}

// start runs a server with TLS and HTTP/3 until the test ends.
func start(t testing.TB, configure ...func(*web.Config)) *site {
	t.Helper()
	return startTaking(t, giveSome, configure...)
}

func startOn(t testing.TB, udp net.PacketConn, configure ...func(*web.Config)) *site {
	t.Helper()
	dir := t.TempDir()
	pair, err := credential.Open(credential.Config{
		CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem"), SelfSigned: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{backend: newBackend(), roots: x509.NewCertPool(), served: make(chan error, 1)}
	s.roots.AddCert(pair.Certificate())
	cfg := web.Config{
		Backend: s.backend,
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "isotone_up 1\n") }),
		TLS:     pair.TLS(),
	}
	for _, c := range configure {
		c(&cfg)
	}
	s.Server = web.New(cfg)
	s.addr = udp.LocalAddr().String()
	go func() { s.served <- s.Serve(udp) }()
	s.h2 = []*multiplexed{s.startHTTP2(t, &cfg, nil)}
	if cfg.TLS != nil {
		s.secured = cfg.TLS.Clone()
		s.secured.NextProtos = []string{"http/1.1"}
		secured := cfg.TLS.Clone()
		secured.NextProtos = []string{"h2"}
		s.h2 = append(s.h2, s.startHTTP2(t, &cfg, secured))
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = s.Shutdown(ctx) // by then a test may have left clients that never go
		if err := <-s.served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return s
}

// listen opens TCP and UDP on one port.
func listen(t testing.TB) (net.Listener, net.PacketConn) {
	t.Helper()
	for range 50 {
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if udp, err := net.ListenPacket("udp", tcp.Addr().String()); err == nil {
			return tcp, udp
		}
		_ = tcp.Close()
	}
	t.Fatal("no port is free for both TCP and UDP")
	return nil, nil
}

// protocols are the names that Observe uses.
var protocols = []string{"http1", "h2c", "https1", "h2", "h3"}

// client speaks exactly one protocol.
type client struct {
	*http.Client
	scheme string
	addr   string
}

func (s *site) client(t testing.TB, protocol string) *client {
	t.Helper()
	config := &tls.Config{RootCAs: s.roots}
	c := &client{Client: &http.Client{Timeout: patience}, scheme: "https", addr: s.addr}
	if protocol == "h3" {
		transport := &http3.Transport{TLSClientConfig: config}
		c.Transport = transport
		t.Cleanup(func() { _ = transport.Close() })
		return c
	}
	transport := &http.Transport{TLSClientConfig: config, Protocols: new(http.Protocols)}
	switch protocol {
	case "http1":
		c.scheme = "http"
		transport.Protocols.SetHTTP1(true)
	case "h2c":
		c.scheme = "http"
		transport.Protocols.SetUnencryptedHTTP2(true)
		c.addr = s.h2[0].addr
	case "https1":
		transport.Protocols.SetHTTP1(true)
	case "h2":
		transport.Protocols.SetHTTP2(true)
		c.addr = s.h2[1].addr
	}
	c.Transport = transport
	t.Cleanup(transport.CloseIdleConnections)
	return c
}

// answer is a response read to its end.
type answer struct {
	*http.Response
	body []byte
}

func (c *client) do(t testing.TB, method, target string, body io.Reader, header ...string) answer {
	t.Helper()
	a, err := c.try(method, target, body, header...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, target, err)
	}
	return a
}

func (c *client) get(t testing.TB, target string, header ...string) answer {
	t.Helper()
	return c.do(t, http.MethodGet, target, nil, header...)
}

func (c *client) try(method, target string, body io.Reader, header ...string) (answer, error) {
	r, err := http.NewRequest(method, c.scheme+"://"+c.addr+target, body)
	if err != nil {
		return answer{}, err
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	response, err := c.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	return answer{response, read}, err
}
