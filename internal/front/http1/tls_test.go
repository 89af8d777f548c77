package http1_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/front/web"
	"github.com/isotone/isotone/internal/host/loop"
	"github.com/isotone/isotone/internal/host/secure"
)

// startSecure runs the front under TLS.
func startSecure(t *testing.T, configure ...func(*config)) *site {
	t.Helper()
	server, client := certificate(t)
	s := startFront(t, append([]func(*config){func(c *config) {
		c.secure.TLS = server
		c.web = append(c.web, func(c *web.Config) { c.TLS = server })
		c.front.Observe = func(protocol, code string, _ int, _ time.Duration) { c.site.observed <- protocol + " " + code }
	}}, configure...)...)
	s.tls = client
	return s
}

// conns returns how many connections shake hands, and how many the loop has.
func (s *site) conns() (shaking, all int) {
	s.do(func() { shaking, all = s.secure.Conns(), s.loop.Conns() })
	return shaking, all
}

// One port, four protocols, all of them in the loop.
func TestTLS_EveryProtocolOnOnePort(t *testing.T) {
	s := startSecure(t)
	for _, tt := range []struct {
		name, scheme string
		set          func(*http.Protocols)
	}{
		{"http1", "http", func(p *http.Protocols) { p.SetHTTP1(true) }},
		{"https1", "https", func(p *http.Protocols) { p.SetHTTP1(true) }},
		{"h2c", "http", func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }},
		{"h2", "https", func(p *http.Protocols) { p.SetHTTP2(true) }},
	} {
		transport := &http.Transport{TLSClientConfig: s.tls.Clone(), Protocols: new(http.Protocols)}
		tt.set(transport.Protocols)
		client := &http.Client{Transport: transport, Timeout: patience}
		for _, target := range []string{"/timestamp", "/timestamp?n=3&format=json", "/timestamp"} {
			response, err := client.Get(tt.scheme + "://" + s.addr + target)
			if err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
			body, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode != 200 || len(body) < 16 {
				t.Errorf("%s: %s %q, %v", tt.name, response.Status, body, err)
			}
			_ = response.Body.Close()
			if got := response.ProtoMajor; got == 2 != strings.HasPrefix(tt.name, "h2") {
				t.Errorf("%s: HTTP/%d", tt.name, got)
			}
		}
		transport.CloseIdleConnections()
		if got := s.detached.Load(); got != 0 {
			t.Errorf("%s: %d connections detached", tt.name, got)
		}
	}
	await.Until(t, "no connection is counted any more", func() bool {
		_, all := s.conns()
		return all == 0 && s.gate.Connections() == 0 && s.web.Connections() == 0
	})
}

func TestTLS_IsObservedAsItself(t *testing.T) {
	s := startSecure(t, func(c *config) { c.front.AltSvc = `h3=":1"` })
	for _, tt := range []struct {
		tls          *tls.Config
		want, altSvc string
	}{{nil, "http1 ok", ""}, {s.tls, "https1 ok", `h3=":1"`}} {
		s.tls = tt.tls
		replies, rest := read(s.exchange(t, true, plain))
		if len(replies) != 1 || rest != "" {
			t.Fatalf("%v and %q", replies, rest)
		}
		if got := replies[0].Header.Get("Alt-Svc"); got != tt.altSvc {
			t.Errorf("Alt-Svc is %q, want %q", got, tt.altSvc)
		}
		if got := <-s.observed; got != tt.want {
			t.Errorf("observed %q, want %q", got, tt.want)
		}
	}
}

// TestFront_TellsTheCluster on every answer but documents, from the turn on in which the
// node learns it, and without waiting for the date to change.
func TestFront_TellsTheCluster(t *testing.T) {
	const timestamp, json, id, fault, document, general = "/timestamp", "/timestamp?n=2&format=json", "/api/snowflake", "/timestamp?n=3", "/live/tiny", "/members"
	s := startSecure(t)
	for _, config := range []*tls.Config{nil, s.tls} {
		s.tls = config
		for _, known := range []uint64{0, clusterID, clusterID + 1} {
			s.cluster.Store(known)
			want := ""
			if known != 0 {
				want = isotone.ClusterID(known).String()
			}
			for _, target := range []string{timestamp, json, id, fault, document, general} {
				s.reset(nil)
				if target == fault {
					s.reset(isotone.ErrOverloaded)
				}
				replies, rest := read(s.exchange(t, true, of(target)))
				if len(replies) != 1 || rest != "" {
					t.Fatalf("%s: %v and %q", target, replies, rest)
				}
				if got := replies[0].Header.Get("Isotone-Cluster"); got != want && target != document || target == document && got != "" {
					t.Errorf("%s, TLS %v: %q, want %q", target, config != nil, got, want)
				}
			}
		}
	}
}

// What was read ahead of the handshake's end is no less a request.
func TestTLS_RequestsThatComeWithTheHandshakeAreAnswered(t *testing.T) {
	s := startSecure(t)
	for range 50 {
		c := tls.Client(dial(t, s), s.tls)
		// Its handshake ends when it has sent its last message, and so this follows at once.
		if _, err := io.WriteString(c, plain+plain); err != nil {
			t.Fatal(err)
		}
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(c)
		if replies, rest := read(string(got)); len(replies) != 2 || rest != "" || err != nil {
			t.Fatalf("%v and %q, %v", replies, rest, err)
		}
		_ = c.Close()
	}
}

func TestTLS_SessionsAreResumed(t *testing.T) {
	s := startSecure(t)
	s.tls = s.tls.Clone()
	s.tls.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	for i := range 3 {
		c := s.open(t).(*tls.Conn)
		_, _ = io.WriteString(c, plain)
		_ = c.CloseWrite()
		if _, err := io.ReadAll(c); err != nil { // the ticket is among it
			t.Fatal(err)
		}
		if got := c.ConnectionState().DidResume; got != (i > 0) {
			t.Errorf("connection %d: resumed: %v", i, got)
		}
	}
}

// A client that has begun a handshake and says no more holds up no other, and is cut.
func TestTLS_SlowHandshakesAreCut(t *testing.T) {
	s := startSecure(t, func(c *config) {
		c.secure.Limits = secure.Limits{HandshakesMax: 1, HandshakeTimeout: 300 * time.Millisecond}
	})
	var silent []net.Conn
	for i := range 5 {
		c := dial(t, s)
		if i%2 == 0 {
			_, _ = c.Write([]byte{0x16, 3, 1, 2}) // not even a header
		} else {
			hello := make(chan []byte, 1)
			_ = tls.Client(recorder{hello: hello}, s.tls).Handshake()
			_, _ = c.Write(<-hello)
		}
		silent = append(silent, c)
	}
	await.Until(t, "five shake hands", func() bool { shaking, _ := s.conns(); return shaking == 5 })
	if replies, rest := read(s.exchange(t, true, plain)); len(replies) != 1 || rest != "" {
		t.Errorf("beside them: %v and %q", replies, rest)
	}
	for i, c := range silent {
		if _, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d stays open", i)
		}
	}
	if shaking, all := s.conns(); shaking != 0 || all != 0 {
		t.Errorf("%d shake hands, %d are open", shaking, all)
	}
}

// recorder is a connection of which only the first words matter.
type recorder struct {
	net.Conn
	hello chan []byte
}

func (r recorder) Write(p []byte) (int, error) {
	r.hello <- append([]byte(nil), p...)
	return len(p), nil
}

func (r recorder) Read([]byte) (int, error)         { return 0, io.EOF }
func (r recorder) Close() error                     { return nil }
func (r recorder) SetWriteDeadline(time.Time) error { return nil }

func TestTLS_HandshakesThatFailAreTold(t *testing.T) {
	t.Parallel()
	s := startSecure(t)
	old := s.tls.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	var alert tls.AlertError
	if err := tls.Client(dial(t, s), old).Handshake(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("an old version: %v, want an alert", err)
	}
	strange := s.tls.Clone()
	strange.RootCAs = x509.NewCertPool()
	if err := tls.Client(dial(t, s), strange).Handshake(); err == nil || errors.As(err, &alert) {
		t.Errorf("a client that does not trust: %v", err)
	}
	c := dial(t, s)
	_, _ = io.WriteString(c, "\x16 is no handshake")
	if _, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("garbage: the connection stays open")
	}
	await.Until(t, "nothing is left", func() bool { shaking, all := s.conns(); return shaking == 0 && all == 0 })
}

// A client without a certificate cannot come in where one is asked for.
func TestTLS_ClientsCertificatesAreChecked(t *testing.T) {
	server, client := certificate(t)
	s := startSecure(t, func(c *config) {
		asking := server.Clone()
		asking.ClientAuth, asking.ClientCAs = tls.RequireAndVerifyClientCert, client.RootCAs
		c.secure.TLS = asking
	})
	s.tls = client
	c := tls.Client(dial(t, s), client)
	_, _ = io.WriteString(c, plain) // in TLS 1.3 the client learns with its first read
	if got, err := io.ReadAll(c); err == nil || len(got) > 0 {
		t.Errorf("%q, %v", got, err)
	}
	if n, _ := s.submitted(); n != 0 {
		t.Errorf("%d requests reached the backend", n)
	}
}

func TestTLS_StopEndsWhatShakesHands(t *testing.T) {
	t.Parallel()
	s := startSecure(t)
	c := dial(t, s)
	_, _ = c.Write([]byte{0x16})
	await.Until(t, "it shakes hands", func() bool { shaking, _ := s.conns(); return shaking == 1 })
	idle := s.open(t)
	_, _ = io.WriteString(idle, plain)
	answers(t, idle, 1)
	s.do(func() {
		s.gate.Stop()
		s.secure.Stop()
		s.front.Stop()
	})
	for name, c := range map[string]net.Conn{"shaking hands": c, "idle": idle} {
		if got, err := io.ReadAll(c); len(got) != 0 || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	await.Until(t, "nothing is left", func() bool {
		left := 0
		s.do(func() { left = s.secure.Conns() + s.front.Conns() })
		return left == 0
	})
}

// Many clients at once that come and go, some in the middle of a handshake.
func TestTLS_ManyClientsGetWhatIsTheirs(t *testing.T) {
	s := startSecure(t)
	var mu sync.Mutex
	seen := map[string]bool{}
	var all sync.WaitGroup
	for client := range 16 {
		all.Go(func() {
			for round := range 5 {
				raw, err := net.Dial("tcp", s.addr)
				if err != nil {
					t.Error(err)
					return
				}
				_ = raw.SetDeadline(time.Now().Add(patience))
				if (client+round)%4 == 0 {
					_, _ = raw.Write([]byte{0x16, 3, 1})
					_ = raw.Close()
					continue
				}
				c := tls.Client(raw, s.tls)
				_, _ = io.WriteString(c, strings.Repeat(plain, 20)+of("/timestamp?n=100")+of("/up"))
				_ = c.CloseWrite()
				got, err := io.ReadAll(c)
				replies, rest := read(string(got))
				if len(replies) != 22 || rest != "" || err != nil {
					t.Errorf("%d answers and %q, %v", len(replies), rest, err)
				}
				mu.Lock()
				for _, r := range replies[:min(20, len(replies))] {
					if seen[r.Body] {
						t.Errorf("%q is told twice", r.Body)
					}
					seen[r.Body] = true
				}
				mu.Unlock()
				_ = c.Close()
			}
		})
	}
	all.Wait()
}

// A client that asks and does not read is held up, and its answers do not pile up.
func TestTLS_AClientThatDoesNotReadIsHeldUp(t *testing.T) {
	t.Parallel()
	s := startSecure(t, func(c *config) {
		c.limits = loop.Limits{WriteTimeout: 300 * time.Millisecond, OutputMax: 64 << 10, UnsentMax: 16 << 10}
	})
	c := s.open(t)
	_ = c.(*tls.Conn).NetConn().(*net.TCPConn).SetReadBuffer(4 << 10)
	wrote := make(chan error)
	go func() {
		var err error
		for err == nil {
			_, err = io.WriteString(c, strings.Repeat(plain, 100))
		}
		wrote <- err
	}()
	// The client may not notice for a while: the system still tries to send what it cannot take.
	await.Until(t, "it asks, and is cut", func() (cut bool) {
		asked, _ := s.submitted()
		s.do(func() { cut = asked > 0 && s.loop.Conns() == 0 })
		return cut
	})
	if asked, _ := s.submitted(); asked > 20_000 {
		t.Errorf("%d requests reached the backend", asked)
	}
	_ = c.(*tls.Conn).NetConn().Close()
	<-wrote
}

// TestTLS_HandshakesMayBeRefusedBeforeTheyCost: nothing is computed for one that is refused, and
// one that succeeds is told.
func TestTLS_HandshakesMayBeRefusedBeforeTheyCost(t *testing.T) {
	var refuse atomic.Bool
	var hellos, done atomic.Int64
	s := startSecure(t, func(c *config) {
		c.secure.TLS = c.secure.TLS.Clone()
		c.secure.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			hellos.Add(1)
			return nil, nil
		}
		c.secure.Begin = func(*loop.Conn) bool { return !refuse.Load() }
		c.secure.Done = func(*loop.Conn) { done.Add(1) }
	})
	shake := func() error {
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		return tls.Client(c, s.tls).Handshake()
	}
	if err := shake(); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the success is told", func() bool { return done.Load() == 1 })
	refuse.Store(true)
	if err := shake(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("refused: %v", err)
	}
	if hellos.Load() != 1 || done.Load() != 1 {
		t.Errorf("%d handshakes were begun and %d have succeeded, want 1", hellos.Load(), done.Load())
	}
	await.Until(t, "no connection is left", func() bool {
		shaking, all := s.conns()
		return shaking == 0 && all == 0
	})
}
