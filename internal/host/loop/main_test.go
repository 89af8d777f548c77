package loop_test

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/host/loop"
)

// patience is how long a test waits for what must happen. It only ever runs out
// when the test fails.
const patience = time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// funcs is a handler made of functions; one that is nil does nothing.
type funcs struct {
	data   func(c *loop.Conn, b []byte) (int, error)
	closed func(c *loop.Conn, err error)
}

func (f *funcs) Data(c *loop.Conn, b []byte) (int, error) {
	if f.data == nil {
		return len(b), nil
	}
	return f.data(c, b)
}

func (f *funcs) Closed(c *loop.Conn, err error) {
	if f.closed != nil {
		f.closed(c, err)
	}
}

// echo gives back what it gets, as far as the other side reads.
func echo(c *loop.Conn, b []byte) (int, error) {
	used := 0
	for used < len(b) && !c.Choked() {
		n := min(1000, len(b)-used)
		c.Write(b[used : used+n])
		used += n
	}
	return used, nil
}

// host runs a loop that serves one listener, with a clock that stands still.
type host struct {
	testing.TB
	loop  *loop.Loop
	addr  net.Addr
	clock atomic.Int64 // what the loop believes
	turns atomic.Int64
	calls chan func()
	ended chan struct{}

	opened chan *loop.Conn // every connection, when it was accepted
	closed chan error      // what handlers that were made by serve were told
}

// serve starts a host whose connections have data as their Data.
func serve(t testing.TB, limits loop.Limits, data func(c *loop.Conn, b []byte) (int, error)) *host {
	t.Helper()
	h := newHost(t)
	handler := &funcs{data: data, closed: func(_ *loop.Conn, err error) { h.closed <- err }}
	h.listen(listen(t, "tcp", "127.0.0.1:0"), limits, func(c *loop.Conn) loop.Handler {
		h.opened <- c
		return handler
	})
	return h
}

// newHost starts a host that does not listen yet.
func newHost(t testing.TB) *host {
	t.Helper()
	l, err := loop.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	h := &host{
		TB: t, loop: l, calls: make(chan func()), ended: make(chan struct{}),
		opened: make(chan *loop.Conn, 1024), closed: make(chan error, 1024),
	}
	loop.SetClock(l, func() time.Duration { return time.Duration(h.clock.Load()) })
	go h.run()
	t.Cleanup(h.stop)
	return h
}

func (h *host) run() {
	defer close(h.ended)
	for h.loop.Wait(time.Second) == nil {
		h.turns.Add(1)
		select {
		case f := <-h.calls:
			f()
		default:
		}
		h.loop.Flush()
	}
}

// do has the loop's goroutine run f, between Wait and Flush, and waits for it.
func (h *host) do(f func()) {
	h.Helper()
	done := make(chan struct{})
	call := func() { defer close(done); f() }
	for {
		h.loop.Wake()
		select {
		case h.calls <- call:
			await.Receive(h, "the loop", done)
			return
		case <-h.ended:
			return
		case <-time.After(time.Millisecond): // the turn that Wake began is over
		}
	}
}

func (h *host) stop() {
	h.do(func() {
		if err := h.loop.Close(); err != nil {
			h.Error(err)
		}
	})
	await.Receive(h, "the loop to end", h.ended)
}

func (h *host) listen(ln net.Listener, limits loop.Limits, open func(c *loop.Conn) loop.Handler) {
	h.Helper()
	h.addr = ln.Addr()
	h.do(func() {
		if err := h.loop.Listen(ln, limits, open); err != nil {
			h.Error(err)
		}
	})
}

func listen(t testing.TB, network, addr string) net.Listener {
	t.Helper()
	ln, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// pass lets time pass, and the loop look at its timeouts.
func (h *host) pass(d time.Duration) {
	h.Helper()
	h.clock.Add(int64(d))
	h.do(func() {}) // that turn has read the new time, or the next one will
	h.do(func() {})
}

// conns returns how many connections the loop has.
func (h *host) conns() (n int) {
	h.Helper()
	h.do(func() { n = h.loop.Conns() })
	return n
}

// settle waits until the loop has seen what has arrived, has nothing to do and sleeps: one that
// spins never settles.
func (h *host) settle() {
	h.Helper()
	h.do(func() {}) // otherwise it may have slept only because others had the processor
	h.do(func() {})
	await.Until(h, "the loop sleeps", func() bool {
		before := h.turns.Load()
		time.Sleep(20 * time.Millisecond)
		return h.turns.Load()-before <= 1
	})
}

// client is one end of a connection whose other end the loop has.
type client struct {
	net.Conn
	t testing.TB
}

func (h *host) dial() *client {
	h.Helper()
	nc, err := net.Dial(h.addr.Network(), h.addr.String())
	if err != nil {
		h.Fatal(err)
	}
	return newClient(h, nc)
}

func newClient(t testing.TB, nc net.Conn) *client {
	t.Cleanup(func() { nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return &client{Conn: nc, t: t}
}

func (c *client) say(b string) {
	c.t.Helper()
	if _, err := io.WriteString(c, b); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) expect(want string) {
	c.t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c, got); err != nil || string(got) != want {
		c.t.Fatalf("read %q, %v; want %q", clip(got[:n]), err, clip([]byte(want)))
	}
}

// expectEnd fails unless all that the other side has still to say is want.
func (c *client) expectEnd(want string) {
	c.t.Helper()
	if got, err := io.ReadAll(c); err != nil || string(got) != want {
		c.t.Fatalf("read %q, %v; want %q and the end", clip(got), err, clip([]byte(want)))
	}
}

// expectReset fails unless the connection is, or was, cut.
func (c *client) expectReset() {
	c.t.Helper()
	_, err := io.Copy(io.Discard, c)
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		c.t.Fatal("the connection stays open")
	}
}

func (c *client) closeWrite() {
	c.t.Helper()
	if err := c.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		c.t.Fatal(err)
	}
}

// reset cuts the connection without the usual end.
func (c *client) reset() {
	c.t.Helper()
	if err := c.Conn.(*net.TCPConn).SetLinger(0); err != nil {
		c.t.Fatal(err)
	}
	c.Close()
}

func clip(b []byte) []byte { return b[:min(len(b), 100)] }
