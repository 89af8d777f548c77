package loop_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/host/loop"
)

// more is so much that sockets and buffers on the way cannot hold it.
const more = 16 << 20

var errTest = errors.New("closed by the test")

// lines answers each line with the same in upper case.
func lines(c *loop.Conn, b []byte) (used int, err error) {
	for !c.Choked() {
		i := bytes.IndexByte(b[used:], '\n')
		if i < 0 {
			break
		}
		c.Write(bytes.ToUpper(b[used : used+i+1]))
		used += i + 1
	}
	return used, nil
}

func TestConn_AnswersWhatItRead(t *testing.T) {
	for _, size := range []int{1, 100, 64 << 10, 1 << 20} {
		h := serve(t, loop.Limits{}, echo)
		c := h.dial()
		want := strings.Repeat("0123456789abcde\n", size/16+1)[:size]
		go io.WriteString(c, want)
		c.expect(want)
	}
}

func TestConn_KeepsWhatTheHandlerDidNotUse(t *testing.T) {
	h := serve(t, loop.Limits{}, lines)
	c := h.dial()
	for _, part := range []string{"a", "b", "c\nd", "ef", "\n", "\n\ng"} {
		c.say(part)
		h.settle()
	}
	c.expect("ABC\nDEF\n\n\n")
	c.say("\n")
	c.expect("G\n")
}

func TestConn_PausedGetsDataAfterResume(t *testing.T) {
	var given []string
	h := serve(t, loop.Limits{}, func(c *loop.Conn, b []byte) (int, error) {
		given = append(given, string(b))
		c.Pause()
		return 1, nil
	})
	c := h.dial()
	conn := await.Receive(t, "the connection", h.opened)
	c.say("abc")
	resume := func() {
		h.settle()
		h.do(func() {
			if !conn.Paused() {
				t.Error("not paused")
			}
			conn.Resume()
		})
	}
	resume()
	h.settle()
	c.say("d")
	resume()
	resume()
	h.settle()
	h.do(func() {
		if want := []string{"abc", "bc", "cd", "d"}; !slices.Equal(given, want) {
			t.Errorf("Data was given %q, want %q", given, want)
		}
	})
}

func TestConn_ResumedWithinDataGetsTheRest(t *testing.T) {
	h := serve(t, loop.Limits{}, func(c *loop.Conn, b []byte) (int, error) {
		c.Write(b[:1])
		c.Pause()
		c.Resume()
		return 1, nil
	})
	c := h.dial()
	c.say("hello")
	c.expect("hello")
	h.settle()
}

func TestConn_HalfClosedClientGetsAllAnswers(t *testing.T) {
	// asked is what one client sends before it shuts down its side.
	const asked = "one\ntwo\nthree\nrest"
	const want = "ONE\nTWO\nTHREE\n"
	t.Run("at once", func(t *testing.T) {
		h := serve(t, loop.Limits{}, lines)
		c := h.dial()
		c.say(asked)
		c.closeWrite()
		c.expectEnd(want)
		if err := await.Receive(t, "Closed", h.closed); err != io.EOF {
			t.Error(err)
		}
	})
	t.Run("paused at the end of input", func(t *testing.T) {
		h := serve(t, loop.Limits{}, func(c *loop.Conn, b []byte) (int, error) {
			n := bytes.IndexByte(b, '\n') + 1
			if n > 0 {
				c.Write(bytes.ToUpper(b[:n]))
				c.Pause()
			}
			return n, nil
		})
		c := h.dial()
		conn := await.Receive(t, "the connection", h.opened)
		c.say(asked)
		c.closeWrite()
		for range strings.Count(want, "\n") {
			h.settle()
			h.do(conn.Resume)
		}
		c.expectEnd(want)
		if err := await.Receive(t, "Closed", h.closed); err != io.EOF {
			t.Error(err)
		}
	})
	t.Run("answered after the end of input", func(t *testing.T) {
		h := serve(t, loop.Limits{}, func(c *loop.Conn, b []byte) (int, error) {
			c.Pause()
			return len(b), nil
		})
		c := h.dial()
		conn := await.Receive(t, "the connection", h.opened)
		c.say(asked)
		c.closeWrite()
		h.settle()
		h.do(func() { conn.Write([]byte("late")); conn.Resume() })
		c.expectEnd("late")
	})
	t.Run("choked", func(t *testing.T) {
		h := serve(t, loop.Limits{OutputMax: 1000}, func(c *loop.Conn, b []byte) (used int, err error) {
			for used < len(b) && !c.Choked() {
				c.Write(bytes.Repeat(b[used:used+1], more/8))
				used++
			}
			return used, nil
		})
		c := h.dial()
		c.say("abcdefghi")
		c.closeWrite()
		h.settle()
		for b := byte('a'); b <= 'i'; b++ {
			c.expect(strings.Repeat(string(b), more/8))
		}
		c.expectEnd("")
	})
	t.Run("while an answer is written to one that is closed", func(t *testing.T) {
		h := serve(t, loop.Limits{}, func(c *loop.Conn, b []byte) (int, error) {
			c.Write(make([]byte, more))
			return len(b), errTest
		})
		c := h.dial()
		c.say("x")
		h.settle()
		c.closeWrite()
		h.settle()
		c.expectEnd(string(make([]byte, more)))
		if err := await.Receive(t, "Closed", h.closed); err != errTest {
			t.Error(err)
		}
	})
}

func TestConn_ChokedGetsDataWhenTheOtherSideHasRead(t *testing.T) {
	h := serve(t, loop.Limits{OutputMax: 10_000, UnreadMax: 5000}, echo)
	c := h.dial()
	conn := await.Receive(t, "the connection", h.opened)
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(bytes.Repeat([]byte("0123456789abcdef"), more/16))
		sent <- err
	}()
	await.Until(t, "choked", func() (choked bool) {
		h.do(func() { choked = conn.Choked() })
		return choked
	})
	h.settle()
	h.do(func() {
		if n := len(conn.Buffered()); n > 20_000 {
			t.Errorf("%d bytes of output wait, bound is 10000", n)
		}
	})
	c.expect(strings.Repeat("0123456789abcdef", more/16))
	if err := await.Receive(t, "the writer", sent); err != nil {
		t.Error(err)
	}
}

func TestConn_OutputTakesNoMoreRoomThanItNeeds(t *testing.T) {
	const step = 100_000
	h := serve(t, loop.Limits{}, nil)
	c := h.dial()
	conn := await.Receive(t, "the connection", h.opened)
	h.do(func() { conn.Write(make([]byte, more)) })
	// The other side reads as much as is added: some output always waits.
	read := make([]byte, step)
	for range 2 * more / step {
		h.do(func() { conn.Write(make([]byte, step)) })
		if _, err := io.ReadFull(c, read); err != nil {
			t.Fatal(err)
		}
	}
	h.do(func() {
		if n := loop.OutputRoom(conn); n > 3*more {
			t.Errorf("%d bytes for %d of output", n, len(conn.Buffered()))
		}
	})
	go io.Copy(io.Discard, c)
	await.Until(t, "all is written", func() (ok bool) {
		h.do(func() { ok = loop.OutputRoom(conn) == 0 })
		return ok
	})
	h.do(func() {
		if n := loop.Lent(h.loop); n > 2*loop.LentMax {
			t.Errorf("%d bytes are kept", n)
		}
	})
}

func TestConn_UnreadMaxBoundsWhatIsKept(t *testing.T) {
	const bound = 1000
	t.Run("paused", func(t *testing.T) {
		var most, all atomic.Int64
		h := serve(t, loop.Limits{UnreadMax: bound}, func(c *loop.Conn, b []byte) (int, error) {
			most.Store(max(most.Load(), int64(len(b))))
			all.Add(int64(len(b)))
			c.Pause()
			return len(b), nil
		})
		c := h.dial()
		conn := await.Receive(t, "the connection", h.opened)
		const size = 100_000
		c.say(strings.Repeat("x", size))
		h.settle()
		for all.Load() < size {
			h.do(conn.Resume)
		}
		if n := most.Load(); n > bound {
			t.Errorf("Data was given %d bytes", n)
		}
	})
	t.Run("waiting for the end of something too long", func(t *testing.T) {
		h := serve(t, loop.Limits{UnreadMax: bound}, lines)
		c := h.dial()
		c.say("a\n" + strings.Repeat("x", bound))
		if err := await.Receive(t, "Closed", drained(c, h)); err != loop.ErrTooLong {
			t.Error(err)
		}
	})
	t.Run("just as long as allowed", func(t *testing.T) {
		h := serve(t, loop.Limits{UnreadMax: bound}, lines)
		c := h.dial()
		line := strings.Repeat("X", bound-1) + "\n"
		for range 3 {
			c.say(line + "A\n")
		}
		for range 3 {
			c.expect(line + "A\n")
		}
	})
}

// drained has c read to its end and closed; it returns what the handler is told.
func drained(c *client, h *host) <-chan error {
	go func() { _, _ = io.Copy(io.Discard, c); c.Close() }()
	return h.closed
}

// TestConn_HeldBackDoesNotSpin: none of these has anything to do, whatever the other
// side has sent.
func TestConn_HeldBackDoesNotSpin(t *testing.T) {
	pause := func(c *loop.Conn, b []byte) (int, error) { c.Pause(); return 0, nil }
	flood := func(c *client) { go io.WriteString(c, strings.Repeat("x", more)) }
	for _, tt := range []struct {
		name string
		data func(c *loop.Conn, b []byte) (int, error)
		do   func(c *client)
	}{
		{"paused", pause, func(c *client) { c.say("x") }},
		{"paused, with more than UnreadMax", pause, flood},
		{"paused, at the end of input", pause, func(c *client) { c.say("x"); c.closeWrite() }},
		{"choked", echo, flood},
		{"choked, at the end of input", func(c *loop.Conn, b []byte) (int, error) {
			c.Write(make([]byte, more))
			return 1, nil
		}, func(c *client) { c.say("xx"); c.closeWrite() }},
		{"closed with output, while more comes", func(c *loop.Conn, b []byte) (int, error) {
			c.Write(make([]byte, more))
			return len(b), errTest
		}, flood},
		{"closed, while nothing comes", func(c *loop.Conn, b []byte) (int, error) { return len(b), errTest },
			func(c *client) { c.say("x") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := serve(t, loop.Limits{}, tt.data)
			c := h.dial()
			tt.do(c)
			h.settle()
			if h.conns() != 1 {
				t.Error("it is closed")
			}
		})
	}
}

func TestConn_ResetIsNoticed(t *testing.T) {
	pause := func(c *loop.Conn, b []byte) (int, error) { c.Pause(); return 0, nil }
	for _, tt := range []struct {
		name   string
		data   func(c *loop.Conn, b []byte) (int, error)
		before func(c *client)
		early  bool // needs a poller that notices what it does not read
	}{
		{"idle", nil, func(*client) {}, false},
		{"paused", pause, func(c *client) { c.say("x") }, false},
		{"paused, at the end of input", pause, func(c *client) { c.say("x"); c.closeWrite() }, true},
		{"paused, with more than UnreadMax", pause, func(c *client) { c.say(strings.Repeat("x", 200_000)) }, true},
		{"choked", echo, func(c *client) { go io.WriteString(c, strings.Repeat("x", more)) }, false},
		{"closing", func(c *loop.Conn, b []byte) (int, error) {
			c.Write(make([]byte, more))
			return 1, errTest
		}, func(c *client) { c.say("x") }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.early && portable {
				t.Skip("the portable poller does not look ahead")
			}
			h := serve(t, loop.Limits{}, tt.data)
			c := h.dial()
			await.Receive(t, "the connection", h.opened)
			tt.before(c)
			h.settle()
			c.reset()
			err := await.Receive(t, "Closed", h.closed)
			if err == nil || (err == errTest) != (tt.name == "closing") {
				t.Error(err)
			}
			if n := h.conns(); n != 0 {
				t.Errorf("%d connections", n)
			}
		})
	}
}
