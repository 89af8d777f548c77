package gate_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/front/gate"
	"github.com/isotone/isotone/internal/host/loop"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

// echo answers everything with its name, and then the same.
type echo string

func (e echo) Data(c *loop.Conn, b []byte) (int, error) {
	c.Write([]byte(string(e) + ":" + string(b)))
	return len(b), nil
}

func (echo) Closed(*loop.Conn, error) {}

// port is a gate on a running loop.
type port struct {
	*gate.Gate
	loop      *loop.Loop
	addr      string
	elsewhere atomic.Int64
	calls     chan func()
}

// answer writes what came, with a name before it, and closes.
func answer(name string) func(net.Conn) {
	return func(nc net.Conn) {
		go func() {
			defer nc.Close()
			_ = nc.SetDeadline(time.Now().Add(patience))
			_, _ = io.WriteString(nc, name+":")
			b, _ := io.ReadAll(nc)
			_, _ = nc.Write(b)
		}()
	}
}

func start(t *testing.T, configure ...func(*port, *gate.Config)) *port {
	t.Helper()
	l, err := loop.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &port{loop: l, calls: make(chan func(), 1)}
	open := func(name string) func(*loop.Conn) loop.Handler {
		return func(*loop.Conn) loop.Handler { return echo(name) }
	}
	cfg := gate.Config{
		Loop: l, HTTP1: open("http1"), HTTP2: open("http2"), RESP: open("resp"), Commands: []string{"PING"},
		Rest: answer("rest"), Refuse: answer("refused"), ConnectionsMax: 5,
		Elsewhere: func() int { return int(p.elsewhere.Load()) },
	}
	for _, change := range configure {
		change(p, &cfg)
	}
	p.Gate = gate.New(cfg)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.addr = ln.Addr().String()
	if err := l.Listen(ln, loop.Limits{}, p.Open); err != nil {
		t.Fatal(err)
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if err := l.Wait(time.Second); err != nil {
				t.Error(err)
				return
			}
			select {
			case <-end:
				_ = l.Close()
				return
			case f := <-p.calls:
				f()
			default:
			}
			l.Flush()
		}
	}()
	t.Cleanup(func() {
		close(end)
		l.Wake()
		<-ended
	})
	return p
}

// do runs f on the loop's goroutine, after the loop has read what was sent before.
func (p *port) do(f func()) {
	done := make(chan struct{})
	p.calls <- func() { f(); close(done) }
	p.loop.Wake()
	<-done
}

func (p *port) dial(t *testing.T) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c.(*net.TCPConn)
}

func TestGate_LeadsEachProtocolToItsFront(t *testing.T) {
	p := start(t)
	for raw, want := range map[string]string{
		"GET / HTTP/1.1\r\n":      "http1",
		"*1\r\n$4\r\nPING\r\n":    "resp",
		"ping\r\n":                "resp",
		"PING / HTTP/1.1\r\n":     "rest",
		"POST / HTTP/1.1\r\n":     "rest",
		"\x16\x03\x01":            "rest",
		"PRI * HTTP/2.0\r\n\r\n":  "http2",
		"PIN":                     "rest", // and then the end
		"GET":                     "rest",
		strings.Repeat("PING", 9): "rest",
	} {
		for split := range len(raw) {
			c := p.dial(t)
			_, _ = io.WriteString(c, raw[:split])
			p.do(func() {})
			_, _ = io.WriteString(c, raw[split:])
			_ = c.CloseWrite()
			got, err := io.ReadAll(c)
			// A front in the loop answers each piece that it is given.
			if all := strings.ReplaceAll(string(got), want+":", ""); err != nil || !strings.HasPrefix(string(got), want+":") || all != raw {
				t.Errorf("%q, split at %d: %q, %v, want it at %s", raw, split, got, err, want)
			}
			_ = c.Close()
		}
	}
}

func TestGate_CountsConnectionsHereAndElsewhere(t *testing.T) {
	p := start(t)
	p.elsewhere.Store(3)
	refused := func() bool {
		c := p.dial(t)
		defer c.Close()
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\n")
		_ = c.CloseWrite()
		got, err := io.ReadAll(c)
		if err != nil {
			t.Fatal(err)
		}
		return strings.HasPrefix(string(got), "refused:")
	}
	one, two := p.dial(t), p.dial(t)
	await.Until(t, "both are counted", func() bool { return p.Connections() == 2 })
	if !refused() {
		t.Error("a sixth connection was let in")
	}
	p.elsewhere.Store(0)
	if refused() {
		t.Error("a third connection was refused")
	}
	_, _ = io.WriteString(one, "GET /") // so that a front has it
	_, _ = one.Read(make([]byte, 5))
	_, _ = one.Close(), two.Close()
	await.Until(t, "both are gone", func() bool { return p.Connections() == 0 })
}

func TestGate_StopClosesWhatIsNotToldApart(t *testing.T) {
	p := start(t)
	silent, half, http1 := p.dial(t), p.dial(t), p.dial(t)
	_, _ = io.WriteString(half, "GE")
	_, _ = io.WriteString(http1, "GET /")
	b := make([]byte, len("http1:GET /"))
	if _, err := io.ReadFull(http1, b); err != nil {
		t.Fatal(err)
	}
	p.do(p.Stop)
	for _, c := range []net.Conn{silent, half} {
		if got, err := io.ReadAll(c); len(got) != 0 || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
	_, _ = io.WriteString(http1, "x")
	b = b[:len("http1:x")]
	if _, err := io.ReadFull(http1, b); err != nil || string(b) != "http1:x" {
		t.Errorf("one that was told apart: %q, %v", b, err)
	}
	late := p.dial(t)
	if got, _ := io.ReadAll(late); len(got) != 0 {
		t.Errorf("after Stop: %q", got)
	}
}

// inside is a handler of TLS that takes a handshake of five bytes, and encrypts nothing.
type inside struct{ *port }

func (i inside) Data(c *loop.Conn, b []byte) (int, error) {
	if len(b) < 5 {
		return 0, nil
	}
	negotiated := map[byte]string{'h': "h2"}[b[1]]
	h := i.Inside(c, negotiated)
	if h == nil {
		return len(b), io.ErrClosedPipe
	}
	c.SetHandler(h)
	used, err := h.Data(c, b[5:])
	return used + 5, err
}

func (inside) Closed(*loop.Conn, error) {}

func withTLS(p *port, c *gate.Config) {
	c.TLS = func(*loop.Conn) loop.Handler { return inside{p} }
}

func TestGate_TellsApartWhatIsWithinTLS(t *testing.T) {
	p := start(t, withTLS)
	for said, want := range map[string]string{
		"\x16....GET /x":             "http1:GET /x",
		"\x16....*1":                 "resp:*1",
		"\x16....PING\r\n":           "resp:PING\r\n",
		"\x16....POST /":             "rest:POST /",
		"\x16....\x16....GET /":      "rest:\x16....GET /",
		"\x16....PRI * HTTP/2":       "rest:PRI * HTTP/2",
		"\x16....PRI * HTTP/2.0\r\n": "http2:PRI * HTTP/2.0\r\n",
		"\x16h...GET /":              "http2:GET /",
	} {
		c := p.dial(t)
		_, _ = io.WriteString(c, said)
		_ = c.CloseWrite()
		if got, err := io.ReadAll(c); string(got) != want || err != nil {
			t.Errorf("%q: %q, %v; want %q", said, got, err, want)
		}
	}
	p.do(func() {})
	if n := p.Connections(); n != 0 {
		t.Errorf("%d connections are counted", n)
	}
}

func TestGate_StopClosesWhatComesOutOfAHandshake(t *testing.T) {
	p := start(t, withTLS)
	c := p.dial(t)
	_, _ = io.WriteString(c, "\x16..")
	p.do(func() {})
	p.do(p.Stop)
	_, _ = io.WriteString(c, "..GET /")
	// A reset is a close, too: the gate may close the connection with bytes that it has not read.
	if got, err := io.ReadAll(c); len(got) != 0 || err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%q, %v", got, err)
	}
}
