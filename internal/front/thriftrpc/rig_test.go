package thriftrpc_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/isotone/isotone/internal/check/parallel"
	"github.com/isotone/isotone/internal/front/thriftrpc"
	"github.com/isotone/isotone/snowflake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(parallel.Tests{M: m, N: 6}) }

// patience is how long a test waits for what must happen.
const patience = time.Minute

// What the fake node says.
const (
	firstID    = snowflake.ID(1 << 60)
	datacenter = 3
	worker     = 7
	nowMillis  = 1_700_000_000_123
)

// ids hands out consecutive ids.
type ids struct {
	made    atomic.Int64
	failure atomic.Pointer[error]
	hold    chan struct{} // NextID waits for it to be closed, if it is not nil
	held    chan struct{} // has a token when NextID waits; if not nil
}

func (f *ids) fail(err error) { f.failure.Store(&err) }

func (f *ids) NextID() (snowflake.ID, error) {
	if f.hold != nil {
		select {
		case f.held <- struct{}{}:
		default:
		}
		<-f.hold
	}
	if err := f.failure.Load(); err != nil && *err != nil {
		return 0, *err
	}
	return firstID + snowflake.ID(f.made.Add(1)-1), nil
}

func (f *ids) Worker() (int, int, error) {
	if err := f.failure.Load(); err != nil && *err != nil {
		return 0, 0, *err
	}
	return datacenter, worker, nil
}

func (f *ids) NowMillis() int64 { return nowMillis }

// seen counts what a server observes.
type seen struct {
	mu     sync.Mutex
	counts map[[3]string]int
}

func (s *seen) observe(method, agent, code string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[[3]string{method, agent, code}]++
}

func (s *seen) of(method, agent, code string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[[3]string{method, agent, code}]
}

// site is a server that runs.
type site struct {
	addr   string
	server *thriftrpc.Server
	ids    *ids
	seen   *seen
	ended  chan error
}

func start(t testing.TB, change ...func(*thriftrpc.Config)) *site {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return startOn(t, l, change...)
}

func startOn(t testing.TB, l net.Listener, change ...func(*thriftrpc.Config)) *site {
	t.Helper()
	s := &site{addr: l.Addr().String(), ids: &ids{}, seen: &seen{counts: map[[3]string]int{}}, ended: make(chan error, 1)}
	certificate, _ := certify(t)
	cfg := thriftrpc.Config{
		IDs: s.ids, Observe: s.seen.observe,
		TLS: &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}},
	}
	for _, f := range change {
		f(&cfg)
	}
	s.server = thriftrpc.New(cfg)
	go func() { s.ended <- s.server.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.server.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-s.ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return s
}

var certified = sync.OnceValues(func() (*ecdsa.PrivateKey, []byte) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "127.0.0.1"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return key, der
})

// certify returns the certificate of all servers here, and the same as PEM.
func certify(t testing.TB) (tls.Certificate, []byte) {
	t.Helper()
	key, der := certified()
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// trust is what a client needs to know the certificate.
func trust(t testing.TB) *tls.Config {
	t.Helper()
	_, text := certify(t)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		t.Fatal("the certificate is none")
	}
	return &tls.Config{RootCAs: pool, ServerName: "127.0.0.1"}
}

// dial opens a connection whose reads and writes end.
func dial(t testing.TB, s *site) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c
}

func dialTLS(t testing.TB, s *site) net.Conn {
	t.Helper()
	return tls.Client(dial(t, s), trust(t))
}

func send(t testing.TB, c net.Conn, b []byte) {
	t.Helper()
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
}

// wantClosed reads to the end, which must come, and returns what was read.
func wantClosed(t testing.TB, c net.Conn, what string) []byte {
	t.Helper()
	got, err := io.ReadAll(c)
	if err != nil && !isReset(err) {
		t.Errorf("%s: %v", what, err)
	}
	return got
}

// isReset: the server closed while something that it did not read was on its way.
func isReset(err error) bool { return strings.Contains(err.Error(), "reset by peer") }
