package http2_test

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"

	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/front/grpc"
	"github.com/isotone/isotone/internal/front/http2"
	"github.com/isotone/isotone/internal/host/loop"
)

// echo is a call that sends back each message times times. It belongs to the loop, but for what mu guards.
type echo struct {
	to      grpc.Sender
	times   int
	held    bool // take nothing
	busy    bool // as long as it is open
	stopped bool
	takes   int

	mu     sync.Mutex
	closed bool
}

func (e *echo) Take(b []byte, last bool) (used int, end error) {
	if e.takes++; e.held {
		return 0, nil
	}
	message, rest, err := grpc.ParseFrame(b)
	switch {
	case err != nil:
		return 0, err
	case message != nil:
		e.to.Send(bytes.Repeat([]byte(framed(string(message))), e.times))
		return len(b) - len(rest), nil
	case e.stopped:
		return 0, errNotLeader
	case last:
		return 0, io.EOF
	}
	return 0, nil
}

func (e *echo) IsBusy() bool { return e.held || e.busy }

func (e *echo) Stop() { e.stopped = true }

func (e *echo) Closed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		panic("Closed is called twice")
	}
	e.closed = true
}

func (e *echo) isClosed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

// startEcho runs a front whose first call of /echo is e, and each later one another one.
func startEcho(t *testing.T, e *echo) *site {
	return start(t, nil, func(cfg *http2.Config, _ *loop.Limits) {
		cfg.Duplex = func(path string, _ *access.Session, to grpc.Sender) grpc.Duplex {
			if path != "/echo" {
				return nil
			}
			one := e
			if e.to != nil {
				one = &echo{times: e.times}
			}
			one.to = to
			return one
		}
	})
}

func (c *client) begin(stream uint32, path, kind string) {
	c.headers(stream, false, c.encode(path, ":method", "POST", "content-type", kind, "te", "trailers"))
}

func (c *client) data(stream uint32, ends bool, b string) {
	if err := c.WriteData(stream, ends, []byte(b)); err != nil {
		c.t.Error(err)
	}
}

func TestDuplex_AnswersEachMessage(t *testing.T) {
	e := &echo{times: 1}
	c := startEcho(t, e).dial(t)
	c.begin(1, "/echo", "application/grpc")
	text := framed("one") + framed("") + framed("three")
	for i := range len(text) {
		c.data(1, i == len(text)-1, text[i:i+1])
	}
	got, _, err := c.read(1)
	r := got[1]
	if err != nil || r.status != "200" || r.fields["content-type"] != "application/grpc" || r.body != text || r.trailers["grpc-status"] != "0" || !r.ended {
		t.Fatalf("got %+v, %v", r, err)
	}
	await.Until(t, "the call is closed", e.isClosed)
}

// More than all windows, both ways: what was taken is given back to the client, and what is sent waits for the client's.
func TestDuplex_GoesOnBeyondTheWindows(t *testing.T) {
	e := &echo{times: 40}
	c := startEcho(t, e).dial(t)
	c.begin(1, "/echo", "application/grpc")
	const messages = 200
	message := framed(strings.Repeat("x", 1000))
	received, sent, room := 0, 0, map[uint32]int{0: 65535, 1: 65535}
	for received < messages*e.times*len(message) {
		for sent < messages && min(room[0], room[1]) >= len(message) {
			c.data(1, false, message)
			sent++
			room[0] -= len(message)
			room[1] -= len(message)
		}
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch f := f.(type) {
		case *xhttp2.DataFrame:
			received += len(f.Data())
			_ = c.WriteWindowUpdate(0, uint32(len(f.Data())))
			_ = c.WriteWindowUpdate(1, uint32(len(f.Data())))
		case *xhttp2.WindowUpdateFrame:
			room[f.StreamID] += int(f.Increment)
		case *xhttp2.RSTStreamFrame, *xhttp2.GoAwayFrame:
			t.Fatalf("got %v", f)
		}
	}
	c.data(1, true, "")
	if got, _, err := c.read(1); err != nil || got[1].body != "" {
		t.Errorf("after the last: %+v, %v", got[1], err)
	}
}

func TestDuplex_AnErrorEndsTheCall(t *testing.T) {
	c := startEcho(t, &echo{times: 1}).dial(t)
	c.begin(1, "/echo", "application/grpc")
	c.data(1, false, framed("a")+"\x01\x00\x00\x00\x00"+framed("b"))
	got, _, err := c.read(1)
	if r := got[1]; err != nil || r.body != framed("a") || r.trailers["grpc-status"] != "12" {
		t.Errorf("got %+v, %v; want the answer to a, and UNIMPLEMENTED", r, err)
	}
	c.begin(3, "/echo", "application/grpc") // the connection goes on
	c.data(3, true, "")
	if got, _, err = c.read(3); err != nil || got[3].status != "200" {
		t.Errorf("the next call: %+v, %v", got[3], err)
	}
}

// TestDuplex_IsResumedInTheNextWait: Resume may be called by the Done of a batch, where nothing may be submitted.
func TestDuplex_IsResumedInTheNextWait(t *testing.T) {
	e := &echo{times: 1, held: true}
	s := startEcho(t, e)
	c := s.dial(t)
	c.begin(1, "/echo", "application/grpc")
	c.data(1, true, framed("kept"))
	await.Until(t, "the call has the message", func() (has bool) {
		s.host.Call(func() { has = e.takes > 0 })
		return has
	})
	s.host.Call(func() {
		before := e.takes
		e.held = false
		if e.to.Resume(); e.takes != before {
			t.Error("Take was called within Resume")
		}
	})
	if got, _, err := c.read(1); err != nil || got[1].body != framed("kept") || !got[1].ended {
		t.Errorf("got %+v, %v", got[1], err)
	}
}

func TestDuplex_AClientThatLeavesClosesIt(t *testing.T) {
	for name, leave := range map[string]func(*client){
		"reset":      func(c *client) { _ = c.WriteRSTStream(1, xhttp2.ErrCodeCancel) },
		"connection": func(c *client) { _ = c.Close() },
	} {
		e := &echo{held: true}
		c := startEcho(t, e).dial(t)
		c.begin(1, "/echo", "application/grpc")
		c.data(1, false, framed("kept"))
		leave(c)
		await.Until(t, name+": the call is closed", e.isClosed)
	}
}

// TestDuplex_AFloodOfResetsEndsTheConnection if answers were under way, as it does for other requests.
func TestDuplex_AFloodOfResetsEndsTheConnection(t *testing.T) {
	for _, held := range []bool{true, false} {
		control, err := access.Open(access.Config{Now: func() time.Duration { return 0 }})
		if err != nil {
			t.Fatal(err)
		}
		s := start(t, nil, func(cfg *http2.Config, _ *loop.Limits) {
			cfg.Duplex = func(_ string, _ *access.Session, to grpc.Sender) grpc.Duplex {
				return &echo{to: to, times: 1, held: held}
			}
		})
		s.host.Call(func() { s.control = control })
		c := s.dial(t)
		const resets = 257
		for i := range resets {
			c.begin(uint32(2*i+1), "/echo", "application/grpc")
			_ = c.WriteRSTStream(uint32(2*i+1), xhttp2.ErrCodeCancel)
		}
		if held {
			c.wantGone(xhttp2.ErrCodeEnhanceYourCalm)
			continue
		}
		c.ask(2*resets+1, "/timestamp")
		if got, bye, err := c.read(2*resets + 1); err != nil || bye != nil || got[2*resets+1].status != "200" {
			t.Errorf("after calls that waited for their client: %+v, GOAWAY %v, %v", got[2*resets+1], bye, err)
		}
	}
}

func TestDuplex_IsOnlyWhatTheConfigurationNames(t *testing.T) {
	c := startEcho(t, &echo{times: 1}).dial(t)
	c.begin(1, "/other", "application/grpc")
	c.begin(3, "/echo", "text/plain")
	c.data(1, true, framed("a"))
	c.data(3, true, framed("a"))
	got, _, err := c.read(1, 3)
	if err != nil || got[1].status != "404" || got[3].status != "404" {
		t.Errorf("got %+v and %+v, %v; want those of the handler", got[1], got[3], err)
	}
}

func TestDuplex_StopEndsWhatIsIdle(t *testing.T) {
	s := startEcho(t, &echo{times: 1})
	c := s.dial(t)
	c.begin(1, "/echo", "application/grpc")
	c.data(1, false, framed("a"))
	for body := ""; body == ""; {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if d, ok := f.(*xhttp2.DataFrame); ok {
			body = string(d.Data())
		}
		if h, ok := f.(*xhttp2.HeadersFrame); ok {
			c.note(&reply{}, h)
		}
	}
	s.host.Call(s.front.Stop)
	r := &reply{status: "200"}
	for !r.ended {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if f.Header().StreamID == 1 {
			c.note(r, f)
		}
	}
	if r.trailers["grpc-status"] != "14" || !strings.Contains(r.trailers["grpc-message"], errNotLeader.Message) {
		t.Errorf("got %+v, want UNAVAILABLE, and why", r)
	}
	await.Until(t, "the connection is closed", func() bool { return s.front.Conns() == 0 })
}

// A client that has vanished does not hold a connection for ever.
func TestDuplex_AnIdleOneEnds(t *testing.T) {
	e := &echo{times: 1}
	s := start(t, nil, func(cfg *http2.Config, limits *loop.Limits) {
		limits.IdleTimeout = time.Millisecond
		cfg.Duplex = func(_ string, _ *access.Session, to grpc.Sender) grpc.Duplex { e.to = to; return e }
	})
	c := s.dial(t)
	c.begin(1, "/echo", "application/grpc")
	got, bye, err := c.read(1)
	if err != nil || bye == nil || got[1].trailers["grpc-status"] != "14" {
		t.Errorf("got %+v, GOAWAY %v, %v", got[1], bye, err)
	}
}

func TestDuplex_ABusyOneKeepsTheConnection(t *testing.T) {
	e := &echo{times: 1, held: true}
	s := start(t, nil, func(cfg *http2.Config, limits *loop.Limits) {
		limits.IdleTimeout = time.Millisecond
		cfg.Duplex = func(_ string, _ *access.Session, to grpc.Sender) grpc.Duplex { e.to = to; return e }
	})
	c, other := s.dial(t), s.dial(t)
	c.begin(1, "/echo", "application/grpc")
	c.data(1, true, framed("a"))
	other.wantGone(xhttp2.ErrCodeNo) // a sweep has looked at all
	s.host.Call(func() { e.held = false; e.to.Resume() })
	if got, bye, err := c.read(1); err != nil || bye != nil || got[1].body != framed("a") {
		t.Errorf("got %+v, GOAWAY %v, %v", got[1], bye, err)
	}
}
