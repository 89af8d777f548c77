package http2_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"

	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/grpc"
	"github.com/isotone/isotone/internal/front/http2"
	"github.com/isotone/isotone/internal/host/loop"
)

// handing is a handler that reads one byte and hands the rest of the call over to e, once may is closed. It tells whether it could.
func handing(e *echo, may <-chan struct{}) (handler http.HandlerFunc, could <-chan bool) {
	told := make(chan bool, 1)
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", grpc.ContentType)
		_ = http.NewResponseController(w).Flush()
		_, _ = io.ReadFull(r.Body, make([]byte, 1))
		<-may
		post := w.(grpc.HandOver).HandOver(func(b front.Backend, to grpc.Sender) grpc.Duplex {
			if b == nil {
				panic("no backend")
			}
			e.to = to
			return e
		})
		told <- post != nil
	}, told
}

func hasBackend(cfg *http2.Config, _ *loop.Limits) { cfg.Backend = cfg.Hot.Backend }

// What the handler has not read belongs to the loop, whether it has come before or after, in whatever pieces.
func TestHandOver_TheLoopAnswersWhatTheHandlerHasNotRead(t *testing.T) {
	text := framed("one") + framed("") + framed("three")
	for early := range len(text) + 1 {
		e, may := &echo{times: 1}, make(chan struct{})
		handler, could := handing(e, may)
		c := start(t, handler, hasBackend).dial(t)
		c.begin(1, "/any", "application/grpc")
		c.data(1, early == len(text), "x"+text[:early])
		_ = c.WritePing(false, [8]byte{}) // its answer says that the loop has what came before
		for {
			f, err := c.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if h, ok := f.(*xhttp2.HeadersFrame); ok {
				c.note(&reply{}, h)
			}
			if _, ok := f.(*xhttp2.PingFrame); ok {
				break
			}
		}
		close(may)
		if early < len(text) {
			c.data(1, true, text[early:])
		}
		if got, _, err := c.read(1); err != nil || got[1].body != text || !got[1].ended {
			t.Fatalf("after %d bytes: got %+v, %v", early, got[1], err)
		}
		await.Until(t, "the call is closed", e.isClosed)
		if !await.Receive(t, "the handler", could) {
			t.Fatal("not handed over")
		}
	}
}

// A client that has left before is found out, and no call is opened.
func TestHandOver_NotAfterTheEnd(t *testing.T) {
	for name, leave := range map[string]func(*client){
		"reset":      func(c *client) { _ = c.WriteRSTStream(1, xhttp2.ErrCodeCancel) },
		"connection": func(c *client) { _ = c.Close() },
	} {
		e, may := &echo{times: 1}, make(chan struct{})
		handler, could := handing(e, may)
		left := make(chan struct{})
		s := start(t, func(w http.ResponseWriter, r *http.Request) {
			go func() { <-r.Context().Done(); close(left) }()
			handler(w, r)
		}, hasBackend)
		c := s.dial(t)
		c.begin(1, "/any", "application/grpc")
		c.data(1, false, "x")
		leave(c)
		await.Receive(t, name+": the end of the request", left)
		close(may)
		if await.Receive(t, name, could) || e.to != nil {
			t.Errorf("%s: a call was opened", name)
		}
	}
}

// A connection that ends already has the duplex end.
func TestHandOver_WhileTheConnectionEnds(t *testing.T) {
	e, may := &echo{times: 1}, make(chan struct{})
	handler, _ := handing(e, may)
	s := start(t, handler, hasBackend)
	c := s.dial(t)
	c.begin(1, "/any", "application/grpc")
	c.data(1, false, "x")
	r := &reply{}
	c.readUntil(t, r, func() bool { return r.status != "" })
	s.host.Call(s.front.Stop)
	close(may)
	c.readUntil(t, r, func() bool { return r.ended })
	if r.trailers["grpc-status"] != "14" {
		t.Errorf("got %+v, want UNAVAILABLE", r)
	}
	_ = c.Close()
	await.Until(t, "the connection is closed", func() bool { return s.front.Conns() == 0 })
}

// An answer that ends the connection leaves calls alone, until the node stops.
func TestHandOver_GoesOnAfterTheConnectionIsToEnd(t *testing.T) {
	e := &echo{times: 1, busy: true}
	handing, _ := handing(e, closed())
	s := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/cold" {
			w.Header().Set("Connection", "close")
			return
		}
		handing(w, r)
	}, hasBackend)
	c := s.dial(t)
	c.begin(1, "/any", "application/grpc")
	c.data(1, false, "x"+framed("before"))
	r := &reply{}
	c.readUntil(t, r, func() bool { return r.body == framed("before") })
	c.headers(3, true, c.encode("/cold"))
	cold := &reply{}
	c.readUntilOf(t, 3, cold, func() bool { return cold.ended })
	c.data(1, false, framed("after"))
	c.readUntil(t, r, func() bool { return r.body == framed("before")+framed("after") })
	s.host.Call(s.front.Stop)
	c.readUntil(t, r, func() bool { return r.ended })
	if r.trailers["grpc-status"] != "14" {
		t.Errorf("got %+v, want UNAVAILABLE", r)
	}
}

// A silent call keeps its connection, unlike one of Config.Duplex.
func TestHandOver_ASilentCallIsNotIdle(t *testing.T) {
	e := &echo{times: 1}
	handler, could := handing(e, closed())
	s := start(t, handler, hasBackend, func(_ *http2.Config, limits *loop.Limits) { limits.IdleTimeout = time.Millisecond })
	c := s.dial(t)
	c.begin(1, "/any", "application/grpc")
	c.data(1, false, "x")
	if !await.Receive(t, "the handler", could) {
		t.Fatal("not handed over")
	}
	s.dial(t).wantGone(xhttp2.ErrCodeNo) // as nothing is on it
	c.data(1, true, framed("late"))
	if got, _, err := c.read(1); err != nil || got[1].body != framed("late") || !got[1].ended {
		t.Errorf("got %+v, %v", got[1], err)
	}
}

// Clients end streams that they do not need any more by a reset: that is no flood unless answers are under way.
func TestHandOver_ResetsOfSilentCallsAreNoFlood(t *testing.T) {
	control, err := access.Open(access.Config{Now: func() time.Duration { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	opened := make(chan *echo, 1)
	s := start(t, func(w http.ResponseWriter, _ *http.Request) {
		e := &echo{times: 1}
		w.(grpc.HandOver).HandOver(func(_ front.Backend, to grpc.Sender) grpc.Duplex {
			e.to = to
			return e
		})
		opened <- e
	}, hasBackend)
	s.host.Call(func() { s.control = control })
	c := s.dial(t)
	const resets = 257
	for i := range resets {
		c.begin(uint32(2*i+1), "/any", "application/grpc")
		e := await.Receive(t, "the call", opened)
		_ = c.WriteRSTStream(uint32(2*i+1), xhttp2.ErrCodeCancel)
		await.Until(t, "it is closed", e.isClosed)
	}
	c.ask(2*resets+1, "/timestamp")
	if got, bye, err := c.read(2*resets + 1); err != nil || bye != nil || got[2*resets+1].status != "200" {
		t.Errorf("after the resets: %+v, GOAWAY %v, %v", got[2*resets+1], bye, err)
	}
}

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// readUntil adds what comes on stream 1 to r.
func (c *client) readUntil(t *testing.T, r *reply, done func() bool) {
	t.Helper()
	c.readUntilOf(t, 1, r, done)
}

func (c *client) readUntilOf(t *testing.T, stream uint32, r *reply, done func() bool) {
	t.Helper()
	for !done() {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if f.Header().StreamID == stream {
			c.note(r, f)
		} else if h, ok := f.(*xhttp2.HeadersFrame); ok {
			c.note(&reply{}, h)
		}
	}
}
