package http2_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/front/http2"
	"github.com/isotone/isotone/internal/host/loop"
)

// transport speaks HTTP/2 without TLS, as net/http's client does.
func transport(t testing.TB) *http.Transport {
	tr := &http.Transport{Protocols: new(http.Protocols), DisableCompression: true}
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// roundTrip returns the answer, whose body the caller closes.
func roundTrip(t testing.TB, tr *http.Transport, method, url string, body io.Reader) *http.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	response, err := tr.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// pattern returns n bytes that do not repeat soon.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * i >> 7)
	}
	return b
}

// TestExchange_AnEarlyAnswerIsNotFollowedByAReset while the client sends the rest of its request, unless that is more than
// its window, or takes too long.
func TestExchange_AnEarlyAnswerIsNotFollowedByAReset(t *testing.T) {
	s := start(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "no") })
	answered := func() *client {
		c := s.dial(t)
		c.headers(1, false, c.encode("/cold", ":method", "POST"))
		if got, _, err := c.read(1); err != nil || got[1].body != "no" || !got[1].ended {
			t.Fatalf("%+v, %v", got[1], err)
		}
		return c
	}
	c := answered()
	_ = c.WriteData(1, false, pattern(1000))
	_ = c.WriteData(1, true, pattern(1000))
	_ = c.WritePing(false, [8]byte{1})
	if reset := c.resetBeforePing(); reset != nil {
		t.Error("the rest of the request is answered by", reset)
	}
	long := answered()
	for range 5 {
		_ = long.WriteData(1, false, pattern(65535/5))
	}
	for name, c := range map[string]*client{"a window": long, "a second": answered()} {
		if reset := c.resetBeforePing(); reset == nil || reset.StreamID != 1 || reset.ErrCode != xhttp2.ErrCodeNo {
			t.Errorf("after %s: %v", name, reset)
		}
	}
}

// resetBeforePing reads until a stream is reset, which it returns, or a PING comes.
func (c *client) resetBeforePing() *xhttp2.RSTStreamFrame {
	c.t.Helper()
	for {
		f, err := c.ReadFrame()
		if err != nil {
			c.t.Fatal(err)
		}
		if reset, ok := f.(*xhttp2.RSTStreamFrame); ok || f.Header().Type == xhttp2.FramePing {
			return reset
		}
	}
}

// TestExchange_MalformedRequestsAreRefused, and never served.
func TestExchange_MalformedRequestsAreRefused(t *testing.T) {
	s := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/fine" {
			if n, err := io.Copy(io.Discard, r.Body); err == nil {
				t.Errorf("served: %v %v, a body of %d", r.URL, r.Header, n)
			}
		}
	})
	c := s.dial(t)
	id := uint32(1)
	for name, fields := range map[string][]string{
		"no method":            {":method", ""},
		"no path":              {":path", ""},
		"no scheme":            {":scheme", ""},
		"strange scheme":       {":scheme", "ftp"},
		"unknown pseudo":       {":status", "200"},
		"upper case":           {"X-A", "1"},
		"space in a name":      {"x a", "1"},
		"empty name":           {"", "1"},
		"line end":             {"x-a", "1\r\nx-b: 2"},
		"NUL":                  {"x-a", "a\x00b"},
		"leading space":        {"x-a", " 1"},
		"trailing tab":         {"x-a", "1\t"},
		"connection":           {"connection", "close"},
		"keep-alive":           {"keep-alive", "1"},
		"transfer-encoding":    {"transfer-encoding", "chunked"},
		"upgrade":              {"upgrade", "h2c"},
		"te":                   {"te", "gzip"},
		"other host":           {"host", "y"},
		"length without body":  {"content-length", "3"},
		"two lengths":          {"content-length", "0", "content-length", "1"},
		"strange length":       {"content-length", "+1"},
		"CONNECT with a path":  {":method", "CONNECT"},
		"path without a slash": {":path", "timestamp"},
		"method with a space":  {":method", "GET /"},
		"line end in the path": {":path", "/timestamp HTTP/1.1\r\nx: y"},
		"smuggled":             {":authority", "x\r\n\r\nGET /fine HTTP/1.1"},
	} {
		c.ask(id, "/timestamp", fields...)
		got, bye, err := c.read(id)
		if err != nil || bye != nil || got[id].status != "" || got[id].reset != xhttp2.ErrCodeProtocol {
			t.Fatalf("%s: %+v, %v, %v", name, got[id], bye, err)
		}
		id += 2
	}
	for name, say := range map[string]func(id uint32){
		"short body": func(id uint32) {
			c.headers(id, false, c.encode("/x", ":method", "POST", "content-length", "3"))
			_ = c.WriteData(id, true, []byte("ab"))
		},
		"long body": func(id uint32) {
			c.headers(id, false, c.encode("/x", ":method", "POST", "content-length", "3"))
			_ = c.WriteData(id, false, []byte("abcd"))
		},
		"trailers with a pseudo field": func(id uint32) {
			c.headers(id, false, c.encode("/x", ":method", "POST"))
			c.headers(id, true, c.encode("/x"))
		},
		"trailers that do not end": func(id uint32) {
			c.headers(id, false, c.encode("/x", ":method", "POST"))
			c.headers(id, false, c.encode("", ":method", "", ":scheme", "", ":authority", "", "x-a", "1"))
		},
		"depends on itself": func(id uint32) {
			_ = c.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: id, BlockFragment: c.encode("/x"), EndStream: true, EndHeaders: true, Priority: xhttp2.PriorityParam{StreamDep: id}})
		},
	} {
		say(id)
		if got, _, err := c.read(id); err != nil || got[id].reset != xhttp2.ErrCodeProtocol {
			t.Errorf("%s: %+v, %v", name, got[id], err)
		}
		id += 2
	}
	c.ask(id, "/fine")
	if got, _, err := c.read(id); err != nil || got[id].status != "200" {
		t.Errorf("afterwards: %+v, %v", got[id], err)
	}
}

// TestExchange_AClientThatLeavesEndsTheHandler: its context ends, and its writes and reads fail.
func TestExchange_AClientThatLeavesEndsTheHandler(t *testing.T) {
	for name, leave := range map[string]func(c *client){
		"reset": func(c *client) { _ = c.WriteRSTStream(1, xhttp2.ErrCodeCancel) },
		"gone":  func(c *client) { _ = c.Conn.Close() },
		"wrong": func(c *client) { _ = c.WriteRawFrame(xhttp2.FramePing, 0, 0, []byte("short")) },
	} {
		for _, does := range []string{"waits", "reads", "writes"} {
			begun, ended := make(chan struct{}), make(chan error, 1)
			s := start(t, func(w http.ResponseWriter, r *http.Request) {
				close(begun)
				var err error
				switch does {
				case "waits":
					<-r.Context().Done()
					err = r.Context().Err()
				case "reads":
					_, err = io.Copy(io.Discard, r.Body)
				case "writes":
					for err == nil {
						_, err = w.Write(pattern(10_000))
					}
				}
				<-r.Context().Done()
				ended <- err
			})
			c := s.dial(t)
			c.headers(1, false, c.encode("/x", ":method", "POST"))
			<-begun
			leave(c)
			if err := <-ended; err == nil {
				t.Errorf("%s, %s: no error", name, does)
			}
		}
	}
}

// TestExchange_Deadlines that a handler sets.
func TestExchange_Deadlines(t *testing.T) {
	t.Parallel()
	result := make(chan error, 1)
	s := start(t, func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		var err error
		switch r.URL.Path {
		case "/read":
			_ = control.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
			_, err = r.Body.Read(make([]byte, 1))
		case "/write":
			_ = control.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
			for err == nil {
				_, err = w.Write(pattern(10_000))
			}
		case "/never":
			_ = control.SetWriteDeadline(time.Time{})
			_ = control.Flush()
		}
		result <- err
	}, func(c *http2.Config, _ *loop.Limits) { c.Limits.WriteTimeout = time.Hour })
	c := s.dial(t)
	c.headers(1, false, c.encode("/read", ":method", "POST"))
	if err := <-result; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	c.ask(3, "/write")
	if err := <-result; err == nil {
		t.Error("no error")
	}
	got, _, err := c.read(3)
	if err != nil || got[3].reset != xhttp2.ErrCodeInternal {
		t.Errorf("%+v, %v", got[3].reset, err)
	}
	c.ask(5, "/never")
	<-result
	if got, _, err := c.read(5); err != nil || got[5].status != "200" {
		t.Errorf("%+v, %v", got[5], err)
	}
}

// TestExchange_AClientThatReadsInSmallPieces has the whole of a long answer, although it enlarges the windows every 4 KiB.
func TestExchange_AClientThatReadsInSmallPieces(t *testing.T) {
	const size = 16 << 20
	s := start(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) })
	response := roundTrip(t, transport(t), http.MethodGet, "http://"+s.addr+"/large", nil)
	defer response.Body.Close()
	n, buffer := 0, make([]byte, 4<<10)
	for {
		read, err := response.Body.Read(buffer)
		if n += read; err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("%v after %d bytes", err, n)
		}
	}
	if n != size {
		t.Errorf("%d bytes", n)
	}
}

// TestExchange_AClientThatReadsLate enlarges the windows when all of a long answer was sent.
func TestExchange_AClientThatReadsLate(t *testing.T) {
	const size = 4 << 20
	s := start(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) })
	c := s.dial(t)
	_ = c.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: size})
	_ = c.WriteWindowUpdate(0, size)
	c.ask(1, "/large")
	for got := 0; got < size; {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch f := f.(type) {
		case *xhttp2.DataFrame:
			got += len(f.Data())
		case *xhttp2.HeadersFrame:
			c.note(&reply{}, f) // its fields enter the table
		}
	}
	for range size >> 12 {
		_ = c.WriteWindowUpdate(0, 4<<10)
		_ = c.WriteWindowUpdate(1, 4<<10)
	}
	c.ask(3, "/timestamp")
	if got, bye, err := c.read(3); err != nil || got[3].status != "200" || bye != nil {
		t.Errorf("%+v, %v, %v", got[3], bye, err)
	}
}

// TestExchange_FlushWaits until the client has given a window for all, or until the deadline.
func TestExchange_FlushWaits(t *testing.T) {
	flushed := make(chan error, 1)
	s := start(t, func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		deadline := time.Time{}
		if r.URL.Path == "/late" {
			deadline = time.Now().Add(50 * time.Millisecond)
		}
		_ = control.SetWriteDeadline(deadline)
		_, _ = io.WriteString(w, "0123456789")
		flushed <- control.Flush()
	})
	c := s.dial(t)
	_ = c.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 0})
	c.ask(1, "/late")
	if err := <-flushed; err == nil {
		t.Error("what has no window was sent")
	}
	c.ask(3, "/patient")
	_ = c.WriteWindowUpdate(3, 10)
	if got, _, err := c.read(1, 3); err != nil || got[1].reset == 0 || got[3].body != "0123456789" {
		t.Errorf("%+v, %v", got, err)
	}
	if err := <-flushed; err != nil {
		t.Error(err)
	}
}

// TestExchange_APanicEndsTheStream only, and is told, unless the handler has meant it.
func TestExchange_APanicEndsTheStream(t *testing.T) {
	var said atomic.Int64
	s := start(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/abort":
			panic(http.ErrAbortHandler)
		case "/panic":
			panic("test")
		case "/short":
			w.Header().Set("Content-Length", "5")
			_, _ = io.WriteString(w, "1234")
		}
	}, func(c *http2.Config, _ *loop.Limits) { c.Log = slog.New(slog.NewTextHandler(counter{&said}, nil)) })
	c := s.dial(t)
	for i, path := range []string{"/abort", "/panic", "/short"} {
		id := uint32(2*i + 1)
		c.ask(id, path)
		if got, _, err := c.read(id); err != nil || got[id].reset != xhttp2.ErrCodeInternal || got[id].ended {
			t.Errorf("%s: %+v, %v", path, got[id], err)
		}
	}
	if said.Load() != 1 {
		t.Errorf("%d lines in the log", said.Load())
	}
	c.ask(9, "/timestamp")
	if got, _, err := c.read(9); err != nil || got[9].status != "200" {
		t.Errorf("%+v, %v", got[9], err)
	}
}

// counter counts what is written.
type counter struct{ *atomic.Int64 }

func (c counter) Write(b []byte) (int, error) {
	c.Add(1)
	return len(b), nil
}

// TestExchange_ConnectionCloseEndsTheConnection after what runs.
func TestExchange_ConnectionCloseEndsTheConnection(t *testing.T) {
	s := start(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		_, _ = io.WriteString(w, "bye")
	})
	s.set(func() { s.held = true })
	c := s.dial(t)
	c.ask(1, "/timestamp")
	c.ask(3, "/x")
	got, bye, err := c.read(3)
	if err != nil || got[3].body != "bye" || bye == nil || bye.LastStreamID != 3 || got[3].fields["connection"] != "" {
		t.Errorf("%+v, %v, %v", got[3], bye, err)
	}
	s.release()
	if got, _, err = c.read(1); err != nil || got[1].status != "200" {
		t.Errorf("%+v, %v", got[1], err)
	}
	if _, err := c.ReadFrame(); err == nil {
		t.Error("the connection stays open")
	}
}

// TestExchange_ConnectionCloseOfATakenBackRequest ends the connection, too: so do those of clients that take back too many.
func TestExchange_ConnectionCloseOfATakenBackRequest(t *testing.T) {
	begun := make(chan struct{})
	s := start(t, func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		w.Header().Set("Connection", "close")
	})
	c := s.dial(t)
	c.ask(1, "/x")
	<-begun
	_ = c.WriteRSTStream(1, xhttp2.ErrCodeCancel)
	c.wantGone(xhttp2.ErrCodeNo)
}

// TestExchange_AHandlerThatIsSlowHoldsUpNobody: neither the other streams nor the loop.
func TestExchange_AHandlerThatIsSlowHoldsUpNobody(t *testing.T) {
	end := make(chan struct{})
	s := start(t, func(_ http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/slow") {
			<-end
		}
	})
	c := s.dial(t)
	for i := range 50 {
		c.ask(uint32(2*i+1), "/slow")
	}
	c.ask(101, "/timestamp")
	c.ask(103, "/fast")
	if got, _, err := c.read(101, 103); err != nil || got[101].status != "200" || got[103].status != "200" {
		t.Errorf("%v, %v", got, err)
	}
	close(end)
	await.Until(t, "the connection is closed", func() bool { _ = c.Close(); return s.front.Conns() == 0 })
}
