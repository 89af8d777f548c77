package proxy_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/proxy"
	"github.com/isotone/isotone/internal/proxy/balance"
)

func TestTCP_CarriesBytesInBothDirections(t *testing.T) {
	b := startTCPBackend(t, echoBytes)
	for _, splices := range []int{0, 1} { // with as many pipes as needed, and with one for both directions
		s := startTCPSite(t, proxy.TCPConfig{Limits: proxy.TCPLimits{SplicesMax: splices}}, b.addr)
		total := 0
		for _, n := range []int{0, 1, 4095, 4096, 4097, 100_000, 8 << 20} {
			sent := make([]byte, n)
			_, _ = rand.NewChaCha8([32]byte{byte(n)}).Read(sent)
			c := s.dial(t)
			go func() {
				_, _ = c.Write(sent)
				_ = c.CloseWrite()
			}()
			got, err := io.ReadAll(c)
			if err != nil || !bytes.Equal(got, sent) {
				t.Errorf("%d bytes: %d came back, %v", n, len(got), err)
			}
			total += n
		}
		for _, e := range s.ended(t, 7) {
			if e.Outcome != proxy.TCPClosed || e.Up != e.Down || e.Backend != 0 {
				t.Errorf("%+v", e)
			}
		}
		if st := s.Status(); st.BytesUp != uint64(total) || st.BytesDown != uint64(total) || st.Backends[0].Requests != 7 {
			t.Errorf("%+v; want %d bytes each way", st, total)
		}
	}
}

// TestTCP_PassesOnHalfCloses of the client, after which the backend still answers, and of the
// backend, after which the client still sends.
func TestTCP_PassesOnHalfCloses(t *testing.T) {
	sums := startTCPBackend(t, func(c *net.TCPConn) {
		h := sha256.New()
		_, _ = io.Copy(h, c) // to the end: without the half-close it waits forever
		_, _ = c.Write(h.Sum(nil))
	})
	got := make(chan string, 1)
	first := startTCPBackend(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "hello")
		_ = c.CloseWrite()
		b, _ := io.ReadAll(c)
		got <- string(b)
	})
	c := startTCPSite(t, proxy.TCPConfig{}, sums.addr).dial(t)
	text := strings.Repeat("half ", 50_000)
	_, _ = io.WriteString(c, text)
	_ = c.CloseWrite()
	want := sha256.Sum256([]byte(text))
	if sum, err := io.ReadAll(c); err != nil || !bytes.Equal(sum, want[:]) {
		t.Errorf("the client's half-close: %x, %v", sum, err)
	}
	s := startTCPSite(t, proxy.TCPConfig{}, first.addr)
	c = s.dial(t)
	if b, err := io.ReadAll(c); err != nil || string(b) != "hello" {
		t.Errorf("%q, %v", b, err)
	}
	_, _ = io.WriteString(c, "and more")
	_ = c.CloseWrite()
	if b := <-got; b != "and more" {
		t.Errorf("after its half-close the backend got %q", b)
	}
	if e := s.ended(t, 1)[0]; e.Outcome != proxy.TCPClosed {
		t.Errorf("%+v", e)
	}
}

func TestTCP_ABackendThatDiesResetsItsConnections(t *testing.T) {
	b := startTCPBackend(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	s := startTCPSite(t, proxy.TCPConfig{}, b.addr)
	c := s.dial(t)
	_, _ = io.WriteString(c, "ping")
	readN(t, c, 4)
	b.die()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client reads %v: want a reset, which is not a complete answer", err)
	}
	if e := s.ended(t, 1)[0]; e.Outcome != proxy.TCPReset || e.Up != 4 || e.Down != 4 {
		t.Errorf("%+v", e)
	}
}

func TestTCP_AClientThatResetsItsConnectionResetsTheBackends(t *testing.T) {
	ended := make(chan error, 1)
	b := startTCPBackend(t, func(c *net.TCPConn) {
		_, err := io.Copy(io.Discard, c)
		ended <- err
	})
	s := startTCPSite(t, proxy.TCPConfig{}, b.addr)
	c := s.dial(t)
	_, _ = io.WriteString(c, "ping")
	await.Until(t, "the bytes are there", func() bool { return s.Status().BytesUp == 4 })
	_ = c.SetLinger(0)
	_ = c.Close()
	if err := <-ended; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the backend reads %v: want a reset", err)
	}
}

// TestTCP_AnEarlyAnswerArrives: a backend that answers and closes while a client sends a lot, as an
// HTTP server that refuses an upload.
func TestTCP_AnEarlyAnswerArrives(t *testing.T) {
	const answer = "too large"
	b := startTCPBackend(t, func(c *net.TCPConn) {
		_, _ = io.CopyN(io.Discard, c, 1<<20)
		_, _ = io.WriteString(c, answer)
	})
	c := startTCPSite(t, proxy.TCPConfig{}, b.addr).dial(t)
	got := make(chan string, 1)
	go func() { // a client that reads while it writes
		text := make([]byte, len(answer))
		n, _ := io.ReadFull(c, text)
		got <- string(text[:n])
	}()
	block := make([]byte, 64<<10)
	for {
		if _, err := c.Write(block); err != nil {
			break // as it should: the backend has gone
		}
	}
	if text := <-got; text != answer {
		t.Errorf("the answer is %q", text)
	}
}

func TestTCP_TriesAnotherBackendIfOneRefuses(t *testing.T) {
	b := startTCPBackend(t, named("b"))
	s := startTCPSite(t, proxy.TCPConfig{Strategy: balance.RoundRobin, Ejection: balance.EjectorConfig{FailuresMax: 3}}, refusing(t), b.addr)
	for range 20 {
		c := s.dial(t)
		if got := readN(t, c, 1); got != "b" {
			t.Fatal(got)
		}
		_ = c.Close()
	}
	s.ended(t, 20)
	st := s.Status()
	dead, good := st.Backends[0], st.Backends[1]
	if !dead.Ejected || dead.Failures != 3 || dead.Ejections != 1 || good.Failures != 0 || good.Requests != 20 || good.Retries != 3 {
		t.Errorf("%+v", st)
	}
}

func TestTCP_ResetsAClientWithoutABackend(t *testing.T) {
	s := startTCPSite(t, proxy.TCPConfig{}, refusing(t))
	for i := range 3 {
		s.isReset(t)
		if e := s.ended(t, i+1)[i]; e.Outcome != proxy.TCPNoBackend || e.Backend != balance.None {
			t.Errorf("%+v", e)
		}
	}
	if !strings.Contains(s.log.String(), "connection refused") {
		t.Errorf("the log does not say why: %s", s.log)
	}
}

func TestTCP_HealthChecksTakeBackendsDownAndUp(t *testing.T) {
	var healthy atomic.Bool
	pages := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/up" || !healthy.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer pages.Close()
	port := pages.Listener.Addr().(*net.TCPAddr).Port
	a, b := startTCPBackend(t, named("a")), startTCPBackend(t, named("b"))
	often := proxy.Health{Interval: 5 * time.Millisecond}
	byConnecting, byPage := often, often
	byConnecting.Connect, byPage.Path, byPage.Port = true, "/up", port
	s, p := startTCPSite(t, proxy.TCPConfig{Health: byConnecting}, a.addr, b.addr), startTCPSite(t, proxy.TCPConfig{Health: byPage}, b.addr)
	down := func(s *tcpSite, i int) func() bool { return func() bool { return s.Status().Backends[i].Down } }
	await.Until(t, "the backend with a bad page is down", down(p, 0))
	healthy.Store(true)
	await.Until(t, "it is up again", func() bool { return !down(p, 0)() })
	a.die()
	await.Until(t, "the dead backend is down", down(s, 0))
	for range 4 {
		if got := readN(t, s.dial(t), 1); got != "b" {
			t.Fatal(got)
		}
	}
	if st := s.Status(); st.Backends[0].Failures != 0 || st.Backends[1].Retries != 0 {
		t.Errorf("clients met the dead backend: %+v", st)
	}
}

func TestTCP_SpreadsByStrategy(t *testing.T) {
	const backends, clients = 3, 30
	for _, strategy := range balance.Strategies() {
		var addrs []string
		var list []*tcpBackend
		for range backends {
			b := startTCPBackend(t, named("x"))
			list, addrs = append(list, b), append(addrs, b.addr)
		}
		s := startTCPSite(t, proxy.TCPConfig{Strategy: strategy, StickyPercent: balance.StickyPercentMax}, addrs...)
		for range clients { // all of them stay open
			readN(t, s.dial(t), 1)
		}
		var most, least int64 = 0, clients
		for _, b := range list {
			most, least = max(most, b.accepted.Load()), min(least, b.accepted.Load())
		}
		switch strategy {
		case balance.RoundRobin, balance.LeastBusy:
			if most != least {
				t.Errorf("%s: from %d to %d; want the same for all", strategy, least, most)
			}
		case balance.TwoChoices:
			if most-least > 6 {
				t.Errorf("p2c: from %d to %d", least, most)
			}
		case balance.Random: // at least one is used beside another
			if most == clients {
				t.Error("random: all go to one")
			}
		case balance.Sticky:
			if most != clients {
				t.Errorf("sticky: %d of %d connections from one address go to one backend", most, clients)
			}
		}
	}
}

// TestTCP_StickyOverflowsAtItsBound: one address cannot fill one backend beyond the load bound.
func TestTCP_StickyOverflowsAtItsBound(t *testing.T) {
	a, b := startTCPBackend(t, named("a")), startTCPBackend(t, named("b"))
	s := startTCPSite(t, proxy.TCPConfig{Strategy: balance.Sticky, StickyPercent: 125}, a.addr, b.addr)
	for range 40 {
		readN(t, s.dial(t), 1)
	}
	if most := max(a.accepted.Load(), b.accepted.Load()); most < 22 || most > 26 {
		t.Errorf("%d of 40 are at one backend; want about 125 %% of 20", most)
	}
}

func TestTCP_KeepsToItsLimits(t *testing.T) {
	a, b := startTCPBackend(t, named("a")), startTCPBackend(t, named("b"))
	s := startTCPSite(t, proxy.TCPConfig{Limits: proxy.TCPLimits{ConnectionsMax: 7, BackendConnectionsMax: 2}}, a.addr, b.addr)
	var open []*net.TCPConn
	for range 4 {
		c := s.dial(t)
		readN(t, c, 1)
		open = append(open, c)
	}
	if st := s.Status(); st.Backends[0].Load != 2 || st.Backends[1].Load != 2 {
		t.Errorf("%+v", st)
	}
	refused := func(want proxy.TCPOutcome, n int) {
		t.Helper()
		s.isReset(t)
		if e := s.ended(t, n)[n-1]; e.Outcome != want {
			t.Errorf("%+v: want %s", e, want)
		}
	}
	refused(proxy.TCPNoBackend, 1) // both are full
	_ = open[0].Close()
	s.ended(t, 2)
	readN(t, s.dial(t), 1)
	small := startTCPSite(t, proxy.TCPConfig{Limits: proxy.TCPLimits{ConnectionsMax: 1}}, a.addr)
	readN(t, small.dial(t), 1)
	s = small
	refused(proxy.TCPRefused, 1)
}

// TestTCP_EndsIdleConnections, but not a busy one beside it.
func TestTCP_EndsIdleConnections(t *testing.T) {
	t.Parallel()
	b := startTCPBackend(t, echoBytes)
	s := startTCPSite(t, proxy.TCPConfig{Limits: proxy.TCPLimits{IdleTimeout: time.Second}}, b.addr)
	idle, busy := s.dial(t), s.dial(t)
	await.Until(t, "the idle one is ended", func() bool {
		_, _ = io.WriteString(busy, "x")
		readN(t, busy, 1)
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.ends) == 1
	})
	if _, err := idle.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v: want a reset", err)
	}
	if e := s.ended(t, 1)[0]; e.Outcome != proxy.TCPIdle || e.Wall < time.Second || e.Up != 0 {
		t.Errorf("%+v", e)
	}
}

// TestTCP_ASlowReaderStopsTheBackend, so that the proxy and the system hold a bounded number of
// bytes for it, and then gets all of them.
func TestTCP_ASlowReaderStopsTheBackend(t *testing.T) {
	const total = 64 << 20
	var sent atomic.Int64
	b := startTCPBackend(t, func(c *net.TCPConn) {
		block := make([]byte, 64<<10)
		for range total / len(block) {
			n, err := c.Write(block)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	s := startTCPSite(t, proxy.TCPConfig{}, b.addr)
	c := s.dial(t)
	var latest int64 = -1
	await.Until(t, "the backend stops sending", func() bool {
		before := latest
		latest = sent.Load()
		time.Sleep(50 * time.Millisecond) // nothing within that time is taken for a stop
		return latest > 0 && latest == before
	})
	if latest > total/2 {
		t.Errorf("%d MiB were taken for a client that reads nothing", latest>>20)
	}
	if n, err := io.Copy(io.Discard, c); n != total || err != nil {
		t.Errorf("%d bytes arrive, %v", n, err)
	}
}

func TestTCP_DrainsBeforeItEnds(t *testing.T) {
	b := startTCPBackend(t, echoBytes)
	s := startTCPSite(t, proxy.TCPConfig{}, b.addr)
	brief, long := s.dial(t), s.dial(t)
	for _, c := range []*net.TCPConn{brief, long} {
		_, _ = io.WriteString(c, "x")
		readN(t, c, 1)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(ctx) }()
	await.Until(t, "it accepts no more", func() bool {
		c, err := net.Dial("tcp", s.addr)
		if err == nil {
			_ = c.Close()
		}
		return err != nil && s.Status().Draining
	})
	_, _ = io.WriteString(brief, "y") // goes on
	readN(t, brief, 1)
	_ = brief.CloseWrite()
	if _, err := io.ReadAll(brief); err != nil {
		t.Error(err)
	}
	s.ended(t, 1)
	select {
	case err := <-ended:
		t.Fatalf("it ends before its last connection: %v", err)
	default:
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := long.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v: want a reset", err)
	}
	last := s.ended(t, 2)
	if last[len(last)-1].Outcome != proxy.TCPCut {
		t.Errorf("%+v", last)
	}
}

func TestTCP_AnnouncesClients(t *testing.T) {
	for version, length := range map[int]int{1: 0, 2: 28} {
		got := make(chan []byte, 1)
		b := startTCPBackend(t, func(c *net.TCPConn) {
			all, _ := io.ReadAll(c)
			got <- all
		})
		s := startTCPSite(t, proxy.TCPConfig{Announce: version}, b.addr)
		c := s.dial(t)
		_, _ = io.WriteString(c, "data")
		from, to := c.LocalAddr().(*net.TCPAddr), c.RemoteAddr().(*net.TCPAddr)
		_ = c.CloseWrite()
		want := fmt.Sprintf("PROXY TCP4 127.0.0.1 127.0.0.1 %d %d\r\ndata", from.Port, to.Port)
		if version == 2 {
			want = "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\x7f\x00\x00\x01\x7f\x00\x00\x01" +
				string([]byte{byte(from.Port >> 8), byte(from.Port), byte(to.Port >> 8), byte(to.Port)}) + "data"
		}
		if all := <-got; string(all) != want || length > 0 && len(all) != length+4 {
			t.Errorf("version %d: %q, want %q", version, all, want)
		}
	}
}

func TestTCP_RefusesWhatMakesNoSense(t *testing.T) {
	good := []proxy.Backend{{URL: "x:1"}}
	for name, cfg := range map[string]proxy.TCPConfig{
		"no backend":   {},
		"a URL":        {Backends: []proxy.Backend{{URL: "http://x:1"}}},
		"no port":      {Backends: []proxy.Backend{{URL: "x"}}},
		"no host":      {Backends: []proxy.Backend{{URL: ":1"}}},
		"port 0":       {Backends: []proxy.Backend{{URL: "x:0"}}},
		"twice":        {Backends: append(good, good...)},
		"a strategy":   {Backends: good, Strategy: "best"},
		"a bound":      {Backends: good, StickyPercent: 99},
		"announcement": {Backends: good, Announce: 3},
	} {
		if _, err := proxy.NewTCP(cfg); !errors.Is(err, isotone.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTCP_ManyConnectionsAtOnce, of which a part is broken off, leave nothing behind.
func TestTCP_ManyConnectionsAtOnce(t *testing.T) {
	a, b := startTCPBackend(t, echoBytes), startTCPBackend(t, echoBytes)
	s := startTCPSite(t, proxy.TCPConfig{Strategy: balance.TwoChoices}, a.addr, b.addr, refusing(t))
	const clients, each = 20, 15
	var running sync.WaitGroup
	for i := range clients {
		running.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for range each {
				nc, err := net.DialTimeout("tcp", s.addr, patience)
				if err != nil {
					t.Error(err)
					return
				}
				c := nc.(*net.TCPConn)
				_ = c.SetDeadline(time.Now().Add(patience))
				if random.IntN(4) == 0 {
					_ = c.SetLinger(0)
					_ = c.Close()
					continue
				}
				sent := make([]byte, random.IntN(20_000))
				running.Go(func() {
					_, _ = c.Write(sent)
					_ = c.CloseWrite()
				})
				if got, err := io.ReadAll(c); err != nil || len(got) != len(sent) {
					t.Errorf("%d of %d bytes come back, %v", len(got), len(sent), err)
				}
				_ = c.Close()
			}
		})
	}
	running.Wait()
	s.ended(t, clients*each)
	await.Until(t, "no connection is left", func() bool {
		st := s.Status()
		return st.Connections == 0 && st.Backends[0].Load+st.Backends[1].Load == 0
	})
}
