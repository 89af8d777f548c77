package live

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/isotone/isotone"
)

func TestIsLinkLocal(t *testing.T) {
	for addr, want := range map[string]bool{
		"169.254.169.254": true, "169.254.0.1": true, "::ffff:169.254.169.254": true, "64:ff9b::a9fe:a9fe": true, "::169.254.1.2": true,
		"::ffff:0:a9fe:a9fe": true, "64:ff9b:1::a9fe:a9fe": true, "64:ff9b:1:2:3:4:a9fe:a9fe": true, "2002:a9fe:a9fe::1": true,
		"2002:6464:64c8::": true, "::ffff:192.0.0.192": true,
		"fe80::1": true, "fe80::1%eth0": true, "febf::1": true, "fd00:ec2::254": true, "fd20:ce::254": true, "fd00:42::42": true,
		"100.100.100.200": true, "168.63.129.16": true, "192.0.0.192": true,
		"127.0.0.1": false, "::1": false, "::": false, "0.0.0.0": false, "169.253.255.255": false, "169.255.0.0": false, "10.0.0.1": false,
		"192.168.1.1": false, "fec0::1": false, "fd00::1": false, "fd20:ce::253": false, "64:ff9b::808:808": false, "2001:db8::1": false,
		"100.100.100.201": false, "fd00:42::43": false, "192.0.0.193": false, "2002:808:808::a9fe:a9fe": false, "64:ff9b:2::a9fe:a9fe": false,
	} {
		if got := isLinkLocal(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
}

func TestIsOwn(t *testing.T) {
	for addr, want := range map[string]bool{
		"127.0.0.1": true, "127.9.9.9": true, "::1": true, "::": true, "0.0.0.0": true, "::ffff:127.0.0.1": true, "::127.0.0.1": true,
		"64:ff9b::7f00:1": true, "64:ff9b:1::7f00:1": true, "2002:7f00:1::": true, "::ffff:0:7f00:1": true,
		"192.0.2.1": false, "198.51.100.7": false, "2001:db8::1": false, "2002:808:808::": false,
	} {
		if got := isOwn(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
	own, err := net.InterfaceAddrs()
	if err != nil || len(own) == 0 {
		t.Fatal(own, err)
	}
	for _, a := range own {
		if ip, ok := netip.AddrFromSlice(a.(*net.IPNet).IP); !ok || !isOwn(ip) {
			t.Errorf("%v is an address of this machine", a)
		}
	}
}

// TestRedirect_StaysOnTheHost has what an answer may redirect to.
func TestRedirect_StaysOnTheHost(t *testing.T) {
	for _, c := range []struct {
		from, to string
		allowed  bool
	}{
		{"http://feed.example/a", "http://feed.example/b?token=x", true},
		{"http://feed.example/a", "http://FEED.example.:80/b", true},
		{"http://feed.example/a", "https://feed.example/b", false},
		{"http://feed.example:8080/a", "https://feed.example:8080/b", false},
		{"https://[2001:db8::1]/a", "https://[2001:DB8::1]:443/b", true},
		{"https://feed.example/a", "http://feed.example/a", false},
		{"http://feed.example/a", "http://feed.example:6379/", false},
		{"http://feed.example:8080/a", "https://feed.example/", false},
		{"http://feed.example/a", "http://feed.example.evil.example/", false},
		{"http://feed.example/a", "http://feed.example@evil.example/", false},
		{"http://feed.example/a", "http://other.example/", false},
		{"http://feed.example/a", "http://169.254.169.254/latest/meta-data/", false},
		{"http://feed.example/a", "http://[fd00:ec2::254]/", false},
		{"http://feed.example/a", "http://metadata.google.internal/", false},
		{"http://feed.example/a", "http://localhost/", false},
		{"http://127.0.0.1/a", "http://localhost/", false},
	} {
		from, to := parsed(t, c.from), parsed(t, c.to)
		err := newDestination(from.Hostname()).checkRedirect(from, to)
		var refused *RefusedError
		if c.allowed && err != nil || !c.allowed && (!errors.As(err, &refused) || !errors.Is(err, isotone.ErrForbidden)) {
			t.Errorf("from %s to %s: %v", c.from, c.to, err)
		}
	}
}

func parsed(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := parseURL(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return u
}

// TestDestination_NamesAddresses has what a host in LIVE means, and not only resolves to.
func TestDestination_NamesAddresses(t *testing.T) {
	for _, c := range []struct {
		host, addr string
		want       bool
	}{
		{"169.254.1.2", "169.254.1.2", true}, {"169.254.1.2", "::ffff:169.254.1.2", true}, {"fe80::1%eth0", "fe80::1%eth0", true},
		{"Metadata.Google.Internal.", "169.254.169.254", true}, {"127.0.0.1", "127.0.0.1", true}, {"::1", "::1", true},
		{"localhost", "127.0.0.1", true}, {"LocalHost.", "::1", true}, {"app.localhost", "127.0.0.1", true}, {"0.0.0.0", "127.0.0.1", true},
		{"169.254.1.2", "169.254.1.3", false}, {"127.0.0.1", "127.0.0.2", false}, {"127.0.0.1", "169.254.1.2", false},
		{"localhost", "169.254.1.2", false}, {"localhost", "10.0.0.1", false}, {"metadata", "127.0.0.1", false},
		{"feed.example", "127.0.0.1", false}, {"169.254.1.2.example", "169.254.1.2", false}, {"localhost.example", "127.0.0.1", false},
		{"", "127.0.0.1", false},
	} {
		if got := newDestination(c.host).names(netip.MustParseAddr(c.addr)); got != c.want {
			t.Errorf("%q names %s: %v", c.host, c.addr, got)
		}
	}
}

// TestDial_RefusesLocalAddresses before a packet is sent, whatever the spelling, and only if LIVE
// names another host.
func TestDial_RefusesLocalAddresses(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // an allowed dial ends at once
	for _, c := range []struct {
		named, addr string
		refused     bool
	}{
		{"feed.example", "169.254.169.254:80", true},
		{"feed.example", "[::ffff:169.254.169.254]:80", true},
		{"feed.example", "[fd00:ec2::254]:80", true},
		{"169.254.1.1", "169.254.169.254:80", true}, // named is another one
		{"169.254.1.1", "169.254.1.1:80", false},
		{"feed.example", "127.0.0.1:80", true},
		{"feed.example", "[::1]:80", true},
		{"feed.example", "0.0.0.0:80", true},
		{"127.0.0.2", "127.0.0.1:80", true},
		{"127.0.0.1", "127.0.0.1:80", false},
	} {
		// The context of the check itself is not cancelled.
		_, err := newDestination(c.named).dial(t.Context(), "tcp", c.addr)
		if !c.refused {
			_, err = newDestination(c.named).dial(ctx, "tcp", c.addr)
		}
		var refused *RefusedError
		if errors.As(err, &refused) != c.refused {
			t.Errorf("%s, with %s in LIVE: %v", c.addr, c.named, err)
		}
	}
}

// names is a DNS server that answers requests for addresses of IPv4 with those in addrs, one for
// each question, and then with the last one again.
type names struct {
	conn  net.PacketConn
	addrs [][4]byte
	asked atomic.Int64
	ended sync.WaitGroup
}

// serveNames starts a server, and returns a resolver that asks it.
func serveNames(t *testing.T, addrs ...[4]byte) (*names, *net.Resolver) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &names{conn: conn, addrs: addrs}
	n.ended.Go(n.run)
	t.Cleanup(func() { _ = conn.Close(); n.ended.Wait() })
	return n, &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

func (n *names) run() {
	b := make([]byte, 1500)
	for {
		size, from, err := n.conn.ReadFrom(b)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(b[:size]) != nil || len(m.Questions) != 1 {
			continue
		}
		m.Response, m.Authoritative, m.Additionals = true, true, nil
		if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
			i := min(int(n.asked.Add(1)), len(n.addrs)) - 1
			m.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1},
				Body:   &dnsmessage.AResource{A: n.addrs[i]},
			}}
		}
		if answer, err := m.Pack(); err == nil {
			_, _ = n.conn.WriteTo(answer, from)
		}
	}
}

// loads loads once, with time enough.
func loads(t *testing.T, l loader) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	b, err := l.load(ctx, 1000)
	return string(b), err
}

// TestFetch_RefusesANameThatIsRebound to a local address after it was a good one.
func TestFetch_RefusesANameThatIsRebound(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close") // the next load dials
		_, _ = io.WriteString(w, "1")
	}))
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	_, resolver := serveNames(t, [4]byte{127, 0, 0, 1}, [4]byte{169, 254, 169, 254})
	f := newFetch(parsed(t, "http://feed.example:"+port+"/?token=hidden"))
	f.to.resolver = resolver
	f.to.own = func(netip.Addr) bool { return false } // as if the server were on another machine
	f.transport.Proxy = nil
	defer f.close()
	if got, err := loads(t, f); got != "1" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	_, err := loads(t, f)
	var refused *RefusedError
	if !errors.As(err, &refused) || codeOf(err) != isotone.CodeForbidden || !strings.Contains(err.Error(), `"feed.example" leads to 169.254.169.254:`) {
		t.Errorf("rebound: %v", err)
	}
	if err != nil && strings.Contains(err.Error(), "hidden") {
		t.Errorf("a secret in %q", err)
	}
}

// TestFetch_RefusesANameOfThisMachine, where its own ports and those of others listen.
func TestFetch_RefusesANameOfThisMachine(t *testing.T) {
	var reached atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	_, resolver := serveNames(t, [4]byte{127, 0, 0, 1})
	f := newFetch(parsed(t, "http://feed.example:"+port+"/"))
	f.to.resolver = resolver
	f.transport.Proxy = nil
	defer f.close()
	_, err := loads(t, f)
	var refused *RefusedError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), `"feed.example" leads to 127.0.0.1:`) || reached.Load() != 0 {
		t.Errorf("%v, %d requests", err, reached.Load())
	}
}

// TestFetch_RedirectGoesToTheSameMachine although the name has changed its address, on a new connection and
// after one that was kept from the load before.
func TestFetch_RedirectGoesToTheSameMachine(t *testing.T) {
	var requests []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r.URL.Path)
		if r.URL.Path == "/end" {
			_, _ = io.WriteString(w, "1")
			return
		}
		w.Header().Set("Connection", "close") // the redirect dials
		http.Redirect(w, r, "/end", http.StatusFound)
	}))
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	// The second address is where nothing answers.
	n, resolver := serveNames(t, [4]byte{127, 0, 0, 1}, [4]byte{192, 0, 2, 1})
	f := newFetch(parsed(t, "http://feed.example:"+port+"/"))
	f.to.resolver = resolver
	f.to.own = func(netip.Addr) bool { return false }
	f.transport.Proxy = nil
	defer f.close()
	for range 2 { // the second load begins on the connection of the first, which the answer has left open
		if got, err := loads(t, f); got != "1" || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if n.asked.Load() != 1 || strings.Join(requests, " ") != "/ /end / /end" {
		t.Errorf("the name was resolved %d times, requests for %s", n.asked.Load(), requests)
	}
}

func TestRedis_RefusesANameWithALocalAddress(t *testing.T) {
	for _, scheme := range []string{"redis", "rediss"} {
		n, resolver := serveNames(t, [4]byte{169, 254, 0, 7})
		open, err := parseRedis(parsed(t, scheme+"://:hidden@db.example/0#k"))
		if err != nil {
			t.Fatal(err)
		}
		k := open().(*key)
		k.to.resolver = resolver
		_, err = loads(t, k)
		var refused *RefusedError
		if !errors.As(err, &refused) || codeOf(err) != isotone.CodeForbidden || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", scheme, err)
		}
		if n.asked.Load() == 0 {
			t.Errorf("%s: the name was not resolved", scheme)
		}
	}
}

// TestFetch_RedirectElsewhereReachesNobody follows real redirects.
func TestFetch_RedirectElsewhereReachesNobody(t *testing.T) {
	var reached atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer other.Close()
	for _, to := range []string{other.URL + "/x", "http://169.254.169.254/latest", "http://[fe80::1]/", "http://metadata.google.internal/", "//localhost/"} {
		server := httptest.NewServer(http.RedirectHandler(to, http.StatusFound))
		f := newFetch(parsed(t, server.URL+"/?token=hidden"))
		_, err := loads(t, f)
		var refused *RefusedError
		if !errors.As(err, &refused) || !strings.HasPrefix(err.Error(), "a redirect to ") || strings.Contains(err.Error(), "hidden") {
			t.Errorf("to %s: %v", to, err)
		}
		f.close()
		server.Close()
	}
	if reached.Load() != 0 {
		t.Errorf("another server was reached %d times", reached.Load())
	}
}

// TestSet_TellsThatASourceIsRefused in the answer, the log and the observer.
func TestSet_TellsThatASourceIsRefused(t *testing.T) {
	server := httptest.NewServer(http.RedirectHandler("http://secret-place.example/", http.StatusFound))
	defer server.Close()
	sources, err := Parse("doc=" + server.URL)
	if err != nil {
		t.Fatal(err)
	}
	loaded := make(chan string, 100)
	s, err := New(Config{Sources: sources, Interval: IntervalMax, Observe: Observer{Loaded: func(_, code string, _ time.Duration) { loaded <- code }}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if code := <-loaded; code != "forbidden" {
		t.Errorf("counted as %s", code)
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/live/doc", nil))
	body := w.Body.String()
	if w.Code != 503 || !strings.Contains(body, "its source fails with forbidden") || strings.Contains(body, "secret-place") {
		t.Errorf("%d %s", w.Code, body)
	}
}

// TestDialer_RefusesLocalAddressesThatTheURLDoesNotHave is what drivers of databases dial with.
func TestDialer_RefusesLocalAddressesThatTheURLDoesNotHave(t *testing.T) {
	d := NewDialer("DB.example.", "169.254.1.1")
	if !d.Named("db.example") || !d.Named("169.254.1.1") || d.Named("other.example") {
		t.Error("which hosts the URL has")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel() // an allowed dial ends at once
	for addr, want := range map[string]error{"169.254.1.1:1": context.Canceled, "169.254.1.2:1": isotone.ErrForbidden, "[fe80::1]:1": isotone.ErrForbidden} {
		ctx := t.Context()
		if want == context.Canceled {
			ctx = ended
		}
		if _, err := d.DialContext(ctx, "tcp", addr); err == nil || errors.Is(err, isotone.ErrForbidden) != (want == isotone.ErrForbidden) {
			t.Errorf("%s: %v, want %v", addr, err, want)
		}
	}
}
