package loop_test

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/host/loop"
)

func TestConn_CloseDeliversTheLastAnswer(t *testing.T) {
	const said = 512 << 10
	for _, tt := range []struct {
		name string
		data func(c *loop.Conn, b []byte) (int, error)
		want string
	}{
		{"by an error", func(c *loop.Conn, b []byte) (int, error) {
			c.Write([]byte("bad request"))
			return 0, errTest
		}, "bad request"},
		{"by Close, before the output", func(c *loop.Conn, b []byte) (int, error) {
			c.Close(errTest)
			c.Write([]byte("bad request"))
			return 1, nil
		}, "bad request"},
		{"with much output", func(c *loop.Conn, b []byte) (int, error) {
			c.Write(make([]byte, more))
			return 1, errTest
		}, string(make([]byte, more))},
		{"with no output", func(c *loop.Conn, b []byte) (int, error) { return 0, errTest }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := serve(t, loop.Limits{}, tt.data)
			c := h.dial()
			// It reads only when it has said all, and the loop wants to hear none of it.
			c.say(strings.Repeat("x", said))
			c.expectEnd(tt.want)
			c.Close()
			if err := await.Receive(t, "Closed", h.closed); err != errTest {
				t.Error(err)
			}
			if n := h.conns(); n != 0 {
				t.Errorf("%d connections", n)
			}
		})
	}
}

func TestConn_ClosedIsReadForABoundedTime(t *testing.T) {
	h := serve(t, loop.Limits{}, func(c *loop.Conn, b []byte) (int, error) { return 0, errTest })
	c := h.dial()
	c.say("x")
	c.expectEnd("")
	h.pass(loop.LingerTime)
	if h.conns() != 1 {
		t.Fatal("closed too early")
	}
	h.pass(loop.SweepEvery)
	if err := await.Receive(t, "Closed", h.closed); err != errTest {
		t.Error(err)
	}
	if n := h.conns(); n != 0 {
		t.Errorf("%d connections", n)
	}
}

func TestConn_ClosedIsReadForBoundedBytes(t *testing.T) {
	h := serve(t, loop.Limits{}, func(c *loop.Conn, b []byte) (int, error) { return 0, errTest })
	c := h.dial()
	go io.WriteString(c, strings.Repeat("x", more))
	if err := await.Receive(t, "Closed", h.closed); err != errTest {
		t.Error(err)
	}
	c.expectReset()
}

func TestConn_WrittenAfterCloseIsLost(t *testing.T) {
	h := serve(t, loop.Limits{}, func(c *loop.Conn, b []byte) (int, error) { return len(b), nil })
	c := h.dial()
	conn := await.Receive(t, "the connection", h.opened)
	h.do(func() { conn.Write([]byte("last")); conn.Close(errTest); conn.Close(io.ErrNoProgress) })
	c.expectEnd("last")
	lost := func() {
		conn.Write([]byte("lost"))
		conn.SetBuffered(append(conn.Buffered(), "lost"...))
		conn.Pause()
		conn.Resume()
		conn.Close(io.ErrNoProgress)
		if _, err := conn.Detach(nil); err != net.ErrClosed {
			t.Errorf("Detach: %v", err)
		}
	}
	h.do(lost)
	c.Close()
	if err := await.Receive(t, "Closed", h.closed); err != errTest {
		t.Error(err)
	}
	h.do(lost)
	h.settle()
}

func TestConn_ClosedMayWriteToAnother(t *testing.T) {
	h := newHost(t)
	var first *loop.Conn
	open := func(c *loop.Conn) loop.Handler {
		if first == nil {
			first = c
			return &funcs{}
		}
		return &funcs{
			data:   func(c *loop.Conn, b []byte) (int, error) { return len(b), errTest },
			closed: func(*loop.Conn, error) { first.Write([]byte("gone")); first.Close(nil) },
		}
	}
	h.listen(listen(t, "tcp", "127.0.0.1:0"), loop.Limits{}, open)
	one := h.dial()
	await.Until(t, "the first is open", func() bool { return h.conns() == 1 })
	two := h.dial()
	two.say("x")
	two.closeWrite() // its end comes within Flush
	one.expectEnd("gone")
}

func TestListen_OpenDecides(t *testing.T) {
	closed := make(chan error, 1)
	handler := &funcs{closed: func(_ *loop.Conn, err error) { closed <- err }}
	for _, tt := range []struct {
		name string
		open func(c *loop.Conn) loop.Handler
		want string
		err  error
	}{
		{"a handler after a greeting", func(c *loop.Conn) loop.Handler {
			c.Write([]byte("hello"))
			return &funcs{data: func(c *loop.Conn, b []byte) (int, error) { return len(b), io.EOF }, closed: handler.closed}
		}, "hello", io.EOF},
		{"a handler that is closed", func(c *loop.Conn) loop.Handler {
			c.Write([]byte("no"))
			c.Close(errTest)
			return handler
		}, "no", errTest},
		{"no handler", func(*loop.Conn) loop.Handler { return nil }, "", nil},
		{"no handler, but words", func(c *loop.Conn) loop.Handler {
			c.Write([]byte("too many"))
			return nil
		}, "too many", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			h.listen(listen(t, "tcp", "127.0.0.1:0"), loop.Limits{}, tt.open)
			c := h.dial()
			c.say("x")
			if tt.want != "" {
				c.expectEnd(tt.want)
			} else {
				c.expectReset()
			}
			c.Close()
			if tt.err != nil {
				if err := await.Receive(t, "Closed", closed); err != tt.err {
					t.Error(err)
				}
			}
			await.Until(t, "it is gone", func() bool { return h.conns() == 0 })
		})
	}
}

func TestLoop_CloseTellsAllHandlers(t *testing.T) {
	h := serve(t, loop.Limits{}, nil)
	var clients []*client
	for range 3 {
		clients = append(clients, h.dial())
		await.Receive(t, "the connection", h.opened)
	}
	h.stop()
	for _, c := range clients {
		c.expectReset()
		if err := await.Receive(t, "Closed", h.closed); err != loop.ErrClosed {
			t.Error(err)
		}
	}
	if err := h.loop.Close(); err != nil {
		t.Error("a second Close:", err)
	}
	if err := h.loop.Wait(0); err != loop.ErrClosed {
		t.Error("Wait after Close:", err)
	}
	h.loop.Wake()
	h.loop.Flush()
	ln := listen(t, "tcp", "127.0.0.1:0")
	defer ln.Close()
	if err := h.loop.Listen(ln, loop.Limits{}, nil); err != loop.ErrClosed {
		t.Error("Listen after Close:", err)
	}
	one, two := net.Pipe()
	defer one.Close()
	defer two.Close()
	if _, err := h.loop.Attach(one, nil, loop.Limits{}, nil); err != loop.ErrClosed {
		t.Error("Attach after Close:", err)
	}
}

func TestLoop_CloseWithinAHandler(t *testing.T) {
	for _, where := range []string{"open", "Data", "Closed"} {
		t.Run(where, func(t *testing.T) {
			h := newHost(t)
			end := func(at string) {
				if at == where {
					if err := h.loop.Close(); err != nil {
						t.Error(err)
					}
				}
			}
			h.listen(listen(t, "tcp", "127.0.0.1:0"), loop.Limits{}, func(*loop.Conn) loop.Handler {
				end("open")
				return &funcs{
					data:   func(c *loop.Conn, b []byte) (int, error) { end("Data"); return 1, errTest },
					closed: func(*loop.Conn, error) { end("Closed") },
				}
			})
			var clients []*client
			for range 4 {
				nc, err := net.Dial("tcp", h.addr.String())
				if err != nil {
					break // the port is closed already
				}
				clients = append(clients, newClient(t, nc))
			}
			for _, c := range clients {
				_, _ = io.WriteString(c, "abc")
			}
			for _, c := range clients {
				c.expectReset()
				c.Close()
			}
			await.Receive(t, "the loop to end", h.ended)
		})
	}
}
