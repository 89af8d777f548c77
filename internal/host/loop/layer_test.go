package loop_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/host/loop"
)

// shifted is a layer that shows what a layer may do: it says every byte plus one, in
// frames that end with a zero, and a lone zero ends the output. It answers a frame "?" by
// itself, and takes "bad" for an error.
type shifted struct {
	conn *loop.Conn
	held []byte
	ends int
}

var errBad = errors.New("bad frame")

func shift(b []byte, by byte) []byte {
	b = bytes.Clone(b)
	for i := range b {
		b[i] += by
	}
	return b
}

func frame(s string) string { return string(shift([]byte(s), 1)) + "\x00" }

func (s *shifted) Open(plain, raw []byte) ([]byte, error) {
	s.held = append(s.held, raw...)
	for {
		end := bytes.IndexByte(s.held, 0)
		if end < 0 {
			return plain, nil
		}
		said := string(shift(s.held[:end], 255))
		s.held = s.held[end+1:]
		switch said {
		case "":
			return plain, io.EOF
		case "bad":
			s.conn.Send([]byte(frame("alert")))
			return plain, errBad
		case "?":
			s.conn.Send([]byte(frame("!")))
		default:
			plain = append(plain, said...)
		}
	}
}

func (s *shifted) Partial() bool { return len(s.held) > 0 }

func (s *shifted) Seal(plain []byte) error {
	if bytes.Contains(plain, []byte("unspeakable")) {
		return errBad
	}
	s.conn.Send([]byte(frame(string(plain))))
	return nil
}

func (s *shifted) End() {
	s.ends++
	s.conn.Send([]byte{0})
}

func (s *shifted) Detach(socket net.Conn, unread []byte) net.Conn {
	return &unshifted{Conn: socket, unread: append(unread, "|held:"+string(s.held)...)}
}

// unshifted is a connection that has left its layer.
type unshifted struct {
	net.Conn
	unread []byte
}

func (u *unshifted) Read(p []byte) (int, error) {
	if len(u.unread) > 0 {
		n := copy(p, u.unread)
		u.unread = u.unread[n:]
		return n, nil
	}
	return u.Conn.Read(p)
}

// serveLayered starts a host whose connections get the layer after their first byte.
func serveLayered(t testing.TB, limits loop.Limits, data func(c *loop.Conn, b []byte) (int, error)) *host {
	t.Helper()
	h := newHost(t)
	inner := &funcs{data: data, closed: func(_ *loop.Conn, err error) { h.closed <- err }}
	outer := &funcs{data: func(c *loop.Conn, b []byte) (int, error) {
		first := bytes.Clone(b)
		c.Pause()
		h.loop.Post(func() {
			c.SetHandler(inner)
			c.SetLayer(&shifted{conn: c}, first[1:])
			c.Resume()
		})
		return len(b), nil
	}}
	h.listen(listen(t, "tcp", "127.0.0.1:0"), limits, func(c *loop.Conn) loop.Handler {
		h.opened <- c
		return outer
	})
	return h
}

func TestLayer_TranslatesBothWays(t *testing.T) {
	h := serveLayered(t, loop.Limits{}, echo)
	c := h.dial()
	c.say("x" + frame("first"))
	c.expect(frame("first"))
	for _, piece := range frame("second") {
		c.say(string(piece))
	}
	c.expect(frame("second"))
	c.say(frame("one") + frame("two"))
	c.expect(frame("onetwo"))
	c.say(frame("?"))
	c.expect(frame("!"))
	large := strings.Repeat("large ", 100_000)
	var all sync.WaitGroup
	all.Go(func() { c.say(frame(large)) })
	got := make([]byte, 0, len(large))
	for buf := make([]byte, 64<<10); len(got) < len(large); {
		n, err := c.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, shift(bytes.ReplaceAll(buf[:n], []byte{0}, nil), 255)...)
	}
	if string(got) != large {
		t.Error("what is large came back changed")
	}
	all.Wait()
}

func TestLayer_EndsAreTold(t *testing.T) {
	t.Run("by the client", func(t *testing.T) {
		h := serveLayered(t, loop.Limits{}, echo)
		c := h.dial()
		c.say("x" + frame("last") + "\x00")
		c.expectEnd(frame("last") + "\x00")
		if err := await.Receive(t, "the end", h.closed); err != io.EOF {
			t.Error(err)
		}
	})
	t.Run("by the handler", func(t *testing.T) {
		h := serveLayered(t, loop.Limits{}, func(c *loop.Conn, b []byte) (int, error) {
			c.Write([]byte("bye"))
			return len(b), errBad
		})
		c := h.dial()
		c.say("x" + frame("hello"))
		c.expectEnd(frame("bye") + "\x00")
		c.Close()
		if err := await.Receive(t, "the end", h.closed); err != errBad {
			t.Error(err)
		}
	})
	t.Run("by the layer", func(t *testing.T) {
		h := serveLayered(t, loop.Limits{}, echo)
		c := h.dial()
		c.say("x" + frame("first"))
		c.expect(frame("first"))
		c.say(frame("good") + frame("bad"))
		got, err := io.ReadAll(c)
		c.Close()
		if err != nil || !strings.Contains(string(got), frame("alert")) || !strings.Contains(string(got), frame("good")) || strings.HasSuffix(string(got), "\x00\x00") {
			t.Errorf("%q, %v", got, err)
		}
		if err := await.Receive(t, "the end", h.closed); err != errBad {
			t.Error(err)
		}
	})
	t.Run("by what cannot be said", func(t *testing.T) {
		h := serveLayered(t, loop.Limits{}, func(c *loop.Conn, b []byte) (int, error) {
			c.Write([]byte("unspeakable"))
			return len(b), nil
		})
		c := h.dial()
		c.say("x" + frame("hello"))
		c.expectReset()
		if err := await.Receive(t, "the end", h.closed); err != errBad {
			t.Error(err)
		}
	})
}

// A frame that has begun and does not end is something half said.
func TestLayer_HalfAFrameIsCut(t *testing.T) {
	limits := loop.Limits{PartialTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	for name, said := range map[string]string{"nothing": "x", "half a frame": "x" + frame("whole") + "hal"} {
		t.Run(name, func(t *testing.T) {
			h := serveLayered(t, limits, func(_ *loop.Conn, b []byte) (int, error) { return len(b), nil })
			c := h.dial()
			c.say(said)
			conn := await.Receive(t, "the connection", h.opened)
			await.Until(t, "it has its layer", func() (ok bool) {
				h.do(func() {
					s, layered := conn.Layer().(*shifted)
					ok = layered && (len(said) == 1 || s.Partial())
				})
				return ok
			})
			h.pass(9 * time.Second)
			h.pass(3 * time.Second)
			h.pass(time.Second)
			if err := await.Receive(t, "the end", h.closed); err != loop.ErrPartialTimeout {
				t.Error(err)
			}
		})
	}
}

func TestLayer_DetachLosesNothing(t *testing.T) {
	detached := make(chan net.Conn, 1)
	h := serveLayered(t, loop.Limits{}, func(c *loop.Conn, b []byte) (int, error) {
		if !bytes.Contains(b, []byte("go")) {
			return 0, nil
		}
		c.Write([]byte("out"))
		nc, err := c.Detach(b[2:])
		if err != nil {
			t.Error(err)
		}
		detached <- nc
		return 0, nil
	})
	c := h.dial()
	c.say("x" + frame("abcd") + frame("go") + "xyz")
	d := own(t, await.Receive(t, "the detached connection", detached))
	defer d.Close()
	d.expect("cdgo|held:xyz")
	c.say("raw")
	d.expect("raw")
	d.say("answer")
	c.expect(frame("out") + "answer")
}

func TestPost_RunsOnTheLoop(t *testing.T) {
	h := newHost(t)
	const callers, each = 8, 100
	sum := 0 // of the loop's goroutine
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range each {
				h.loop.Post(func() { sum++ })
			}
		})
	}
	all.Wait()
	await.Until(t, "all have run", func() (ok bool) {
		h.do(func() { ok = sum == callers*each })
		return ok
	})
	h.settle()
	h.stop()
	h.loop.Post(func() { t.Error("run after Close") })
}
