package loop_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/host/loop"
)

// own is the new owner of a connection that was detached: it says what comes back.
func own(t *testing.T, nc net.Conn) *client {
	if err := nc.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Error(err)
	}
	return &client{Conn: nc, t: t}
}

func TestConn_DetachLosesNothing(t *testing.T) {
	for _, tt := range []struct {
		name   string
		data   func(c *loop.Conn, b []byte) []byte // returns what to call Detach with
		unread string                              // then read first
		output string                              // what the client reads first
	}{
		{"within Data, all unread", func(c *loop.Conn, b []byte) []byte { return b }, "abcdef", ""},
		{"within Data, partly unread", func(c *loop.Conn, b []byte) []byte { return b[2:] }, "cdef", ""},
		{"within Data, nothing unread", func(c *loop.Conn, b []byte) []byte { return nil }, "", ""},
		{"with output", func(c *loop.Conn, b []byte) []byte {
			c.Write([]byte("out"))
			return b[5:]
		}, "f", "out"},
		{"with much output", func(c *loop.Conn, b []byte) []byte {
			c.Write(make([]byte, more))
			return b
		}, "abcdef", string(make([]byte, more))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			detached := make(chan net.Conn, 1)
			h := serve(t, loop.Limits{}, func(c *loop.Conn, b []byte) (int, error) {
				nc, err := c.Detach(tt.data(c, b))
				if err != nil {
					t.Error(err)
				}
				c.Write([]byte("lost"))
				detached <- nc
				return 4711, io.ErrNoProgress // does not count
			})
			c := h.dial()
			c.say("abcdef")
			d := own(t, await.Receive(t, "the detached connection", detached))
			defer d.Close()
			d.expect(tt.unread)
			c.say("more")
			d.expect("more")
			wrote := make(chan error, 1)
			go func() {
				_, err := io.WriteString(d, "in")
				wrote <- err
			}()
			c.expect(tt.output + "in")
			if err := await.Receive(t, "Write", wrote); err != nil {
				t.Error(err)
			}
			if n := h.conns(); n != 0 {
				t.Errorf("%d connections", n)
			}
			c.closeWrite()
			d.expectEnd("")
			d.closeWrite()
			c.expectEnd("")
			if len(h.closed) > 0 {
				t.Error("the handler was told", <-h.closed)
			}
		})
	}
}

func TestConn_DetachedEndsItsOutputAfterWhatWasLeft(t *testing.T) {
	detached := make(chan net.Conn, 1)
	h := serve(t, loop.Limits{}, func(c *loop.Conn, b []byte) (int, error) {
		c.Write(make([]byte, more))
		nc, err := c.Detach(nil)
		if err != nil {
			t.Error(err)
		}
		detached <- nc
		return 0, nil
	})
	c := h.dial()
	c.say("x")
	d := own(t, await.Receive(t, "the detached connection", detached))
	defer d.Close()
	if d.Conn.(interface{ NetConn() net.Conn }).NetConn() == nil {
		t.Error("nothing beneath")
	}
	ended := make(chan struct{})
	go func() { defer close(ended); d.closeWrite() }()
	c.expectEnd(string(make([]byte, more)))
	await.Receive(t, "CloseWrite", ended)
}

func TestConn_DetachAfterDataTakesWhatWasKept(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before string // is said before, bit by bit
		after  string // is said, and not read by the loop if it is much
	}{
		{"one part", "abc", ""},
		{"many parts", "abcdefghi", ""},
		{"more than the loop reads", "abc", strings.Repeat("x", 200_000)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := serve(t, loop.Limits{}, func(c *loop.Conn, b []byte) (int, error) {
				c.Pause()
				return 1, nil
			})
			c := h.dial()
			conn := await.Receive(t, "the connection", h.opened)
			for _, b := range tt.before {
				c.say(string(b))
				h.settle()
			}
			c.say(tt.after)
			c.closeWrite()
			h.settle()
			var nc net.Conn
			h.do(func() {
				var err error
				if nc, err = conn.Detach(nil); err != nil {
					t.Error(err)
				}
			})
			d := own(t, nc)
			defer d.Close()
			d.expectEnd(tt.before[1:] + tt.after)
			d.say("bye")
			d.Close()
			c.expectEnd("bye")
		})
	}
}

func TestConn_DetachWithinOpen(t *testing.T) {
	detached := make(chan net.Conn, 1)
	h := newHost(t)
	h.listen(listen(t, "tcp", "127.0.0.1:0"), loop.Limits{}, func(c *loop.Conn) loop.Handler {
		c.Write([]byte("hello "))
		nc, err := c.Detach(nil)
		if err != nil {
			t.Error(err)
		}
		detached <- nc
		return nil
	})
	c := h.dial()
	d := own(t, await.Receive(t, "the detached connection", detached))
	defer d.Close()
	d.say("you")
	c.expect("hello you")
	c.say("and you")
	d.expect("and you")
}

func TestAttach_TakesWhatWasRead(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		h := newHost(t)
		ours, theirs := pair(t, network)
		c := newClient(t, theirs)
		ended := make(chan error, 1)
		h.do(func() {
			handler := &funcs{data: lines, closed: func(_ *loop.Conn, err error) { ended <- err }}
			if _, err := h.loop.Attach(ours, []byte("abc\nd"), loop.Limits{}, handler); err != nil {
				t.Error(err)
			}
		})
		c.expect("ABC\n")
		c.say("ef\n")
		c.expect("DEF\n")
		c.closeWrite()
		c.expectEnd("")
		if err := await.Receive(t, "Closed", ended); err != io.EOF {
			t.Error(err)
		}
	}
}

// pair returns the two ends of a connection.
func pair(t testing.TB, network string) (ours, theirs net.Conn) {
	t.Helper()
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = t.TempDir() + "/socket"
	}
	ln := listen(t, network, addr)
	defer ln.Close()
	theirs, err := net.Dial(network, ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if ours, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

func TestConn_SetHandlerHandsOn(t *testing.T) {
	ended := make(chan string, 1)
	second := &funcs{data: lines, closed: func(*loop.Conn, error) { ended <- "second" }}
	first := &funcs{closed: func(*loop.Conn, error) { ended <- "first" }}
	first.data = func(c *loop.Conn, b []byte) (int, error) {
		if b[0] == '#' {
			return len(b), nil
		}
		c.SetHandler(second)
		return second.Data(c, b)
	}
	h := newHost(t)
	h.listen(listen(t, "tcp", "127.0.0.1:0"), loop.Limits{}, func(*loop.Conn) loop.Handler { return first })
	c := h.dial()
	c.say("#")
	h.settle()
	c.say("a\nb")
	c.expect("A\n")
	c.say("\n#\n")
	c.expect("B\n#\n")
	c.Close()
	if got := await.Receive(t, "Closed", ended); got != "second" {
		t.Errorf("the %s handler was told", got)
	}
}
