package web_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/front/web"
)

func dial(t *testing.T, s *site) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

// wantClosed checks that the server closes c without answering 200.
func wantClosed(t *testing.T, c net.Conn, what string) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	got, err := io.ReadAll(c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s: the connection stays open", what)
	}
	if strings.Contains(string(got), " 200 ") {
		t.Errorf("%s: answered %q", what, got)
	}
}

func TestLimit_SlowHeadersAreCutAndHoldUpNobody(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *web.Config) { c.Limits.ReadHeaderTimeout = time.Second })
	for what, sent := range map[string]string{
		"part of a header":  "GET /timestamp HTTP/1.1\r\nHost: x\r\nX-A: ",
		"part of a preface": "PRI * HT",
	} {
		c := dial(t, s)
		_, _ = io.WriteString(c, sent)
		defer wantClosed(t, c, what)
	}
	for _, p := range protocols {
		if a := s.client(t, p).get(t, "/timestamp"); a.StatusCode != 200 {
			t.Errorf("%s beside slow clients: %d", p, a.StatusCode)
		}
	}
}

func TestLimit_IdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *web.Config) { c.Limits.IdleTimeout = time.Second })
	c := dial(t, s)
	_, _ = io.WriteString(c, "GET /up HTTP/1.1\r\nHost: x\r\n\r\n")
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if got, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(got), okLine) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestLimit_ConnectionsBeyondTheMostAreRefused(t *testing.T) {
	s := startTaking(t, func(s *site, c net.Conn) {
		if s.Connections() < 2 {
			giveSome(s, c)
		} else {
			s.Refuse(c)
		}
	}, func(c *web.Config) { c.Limits.ConnectionsMax = 2 })
	first, second := dial(t, s), dial(t, s)
	for _, c := range []net.Conn{first, second} {
		_, _ = io.WriteString(c, "GET /up HTTP/1.1\r\nHost: x\r\n\r\n")
		_ = c.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.ReadFull(c, make([]byte, len(okLine))); err != nil {
			t.Fatal(err)
		}
	}
	// Neither a TCP nor a QUIC connection fits now.
	wantFault(t, s.client(t, "http1").get(t, "/timestamp"), 503, isotone.CodeOverloaded)
	if a := s.client(t, "http1").get(t, "/timestamp"); a.Header.Get("Retry-After") != "1" || !a.Close {
		t.Errorf("refusal: %v", a.Header)
	}
	if _, err := s.client(t, "h3").try("GET", "/timestamp", nil); err == nil {
		t.Error("a QUIC connection beyond the most was served")
	}
	if got := s.backend.submitted.Load(); got != 0 {
		t.Errorf("%d requests reached the backend", got)
	}
	_ = first.Close()
	for _, p := range protocols {
		c := s.client(t, p)
		await.Until(t, "the place is free again for "+p, func() bool {
			a, err := c.try("GET", "/timestamp", nil)
			c.CloseIdleConnections()
			return err == nil && a.StatusCode == 200
		})
		if closer, ok := c.Transport.(io.Closer); ok {
			_ = closer.Close()
		}
	}
}

func TestLimit_RequestsBeyondTheMostAreOverloaded(t *testing.T) {
	s := start(t, func(c *web.Config) { c.Limits.RequestsMax, c.Limits.RequestTimeout = 1, time.Hour })
	s.backend.hold()
	held := make(chan answer, 1)
	c := s.client(t, "http1")
	go func() {
		a, _ := c.try("GET", "/timestamp", nil)
		held <- a
	}()
	await.Until(t, "one request is in work", func() bool { return s.backend.submitted.Load() == 1 })
	for _, p := range protocols {
		a := s.client(t, p).get(t, "/timestamp")
		wantFault(t, a, 503, isotone.CodeOverloaded)
		if a.Header.Get("Retry-After") != "1" {
			t.Errorf("%s: Retry-After %q", p, a.Header.Get("Retry-After"))
		}
		// Health checks are answered: a supervisor would end the process otherwise.
		for _, path := range []string{"/up", "/livez"} {
			if a := s.client(t, p).get(t, path); a.StatusCode != 200 {
				t.Errorf("%s: %s: %d", p, path, a.StatusCode)
			}
		}
	}
	s.backend.release()
	if a := <-held; a.Response == nil || a.StatusCode != 200 {
		t.Errorf("the first request: %+v", a.Response)
	}
}

// TestLimit_ABodyThatDoesNotComeEndsItsRequest, in every protocol: the handler that reads it gets an error.
func TestLimit_ABodyThatDoesNotComeEndsItsRequest(t *testing.T) {
	ended := make(chan error, 1)
	s := start(t, func(c *web.Config) {
		c.Admin = func(w http.ResponseWriter, r *http.Request) string {
			_, err := io.ReadAll(r.Body)
			ended <- err
			w.WriteHeader(http.StatusBadRequest)
			return string(isotone.CodeInvalidArgument)
		}
	})
	for _, p := range protocols {
		c := s.client(t, p)
		body, write := io.Pipe()
		tried := make(chan struct{})
		go func() {
			defer close(tried)
			_, _ = c.try("POST", "/admin/x", body)
		}()
		if err := await.Receive(t, "the handler's end with "+p, ended); err == nil {
			t.Errorf("%s: the whole body was read", p)
		}
		_ = write.Close()
		<-tried
	}
}

// A client that pipelines and never reads fills the two socket buffers; then the
// server stops reading, the client's writes block, and WriteTimeout ends it.
func TestLimit_AClientThatNeverReadsIsBoundedAndCut(t *testing.T) {
	s := start(t, func(c *web.Config) {
		c.Limits.UnreadBytesMax = 16 << 10
		c.Limits.WriteTimeout = 500 * time.Millisecond
	})
	c := dial(t, s)
	_ = c.SetReadBuffer(4 << 10)
	_ = c.SetWriteBuffer(16 << 10)
	_ = c.SetWriteDeadline(time.Now().Add(patience))
	batch := []byte(strings.Repeat("GET /timestamp HTTP/1.1\r\nHost: x\r\n\r\n", 100))
	var sent int
	var err error
	for err == nil && sent < 64<<20 {
		var n int
		n, err = c.Write(batch)
		sent += n
	}
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after %d bytes the write ended with %v, want the server to cut", sent, err)
	}
	// 16 KiB doubled, and as much on the client's side, hold some 400 answers.
	if got := s.backend.submitted.Load(); got == 0 || got > 5000 {
		t.Errorf("%d requests reached the backend", got)
	}
	if sent > 32<<20 {
		t.Errorf("the server accepted %d bytes of requests", sent)
	}
	t.Logf("%d bytes sent, %d requests reached the backend", sent, s.backend.submitted.Load())
}

func TestLimit_ALargeAnswerNobodyReadsIsCut(t *testing.T) {
	t.Parallel()
	ended := make(chan string, 1)
	s := start(t, func(c *web.Config) {
		c.Limits.UnreadBytesMax = 16 << 10
		c.Limits.WriteTimeout = 500 * time.Millisecond
		c.Observe = func(protocol, code string, _ time.Duration) { ended <- protocol + " " + code }
	})
	for _, p := range protocols {
		c := s.client(t, p)
		// Larger than every window and buffer on the way.
		response, err := c.Get(c.scheme + "://" + c.addr + "/timestamp?n=65536&format=json")
		if err != nil {
			t.Fatalf("%s: %v", p, err)
		}
		select {
		case got := <-ended:
			if got != p+" deadline_exceeded" {
				t.Errorf("%s: observed %q", p, got)
			}
		case <-time.After(patience):
			t.Errorf("%s: the handler is still writing", p)
		}
		if body, err := io.ReadAll(response.Body); err == nil {
			t.Errorf("%s: a cut answer looks whole, %d bytes", p, len(body))
		}
		_ = response.Body.Close()
	}
}

// A hand-written h2c client opens more streams than allowed and reads nothing.
func TestLimit_HTTP2StreamsAreBounded(t *testing.T) {
	const streamsMax = 4
	s := start(t, func(c *web.Config) { c.Limits.StreamsMax = streamsMax })
	s.backend.hold()
	c, err := net.Dial("tcp", s.h2[0].addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(c, http2.ClientPreface)
	framer := http2.NewFramer(c, c)
	_ = framer.WriteSettings()
	var block strings.Builder
	encoder := hpack.NewEncoder(&block)
	for i := range 10 {
		block.Reset()
		for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "x"}, {":path", "/timestamp"}} {
			_ = encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		_ = framer.WriteHeaders(http2.HeadersFrameParam{
			StreamID: uint32(2*i + 1), BlockFragment: []byte(block.String()), EndStream: true, EndHeaders: true,
		})
	}
	refused := false
	for !refused {
		frame, err := framer.ReadFrame()
		if err != nil {
			break // the server may also end the connection
		}
		switch f := frame.(type) {
		case *http2.RSTStreamFrame:
			refused = f.StreamID > 2*streamsMax
		case *http2.GoAwayFrame:
			refused = true
		}
	}
	if got := s.backend.submitted.Load(); !refused || got > streamsMax {
		t.Errorf("refused %v; %d requests reached the backend", refused, got)
	}
	s.backend.release()
}

func TestLimit_HTTP3StreamsAreBounded(t *testing.T) {
	const streamsMax, requests = 2, 6
	s := start(t, func(c *web.Config) {
		c.Limits.StreamsMax = streamsMax
		c.Limits.RequestTimeout = time.Hour
	})
	s.backend.hold()
	c := s.client(t, "h3")
	var all sync.WaitGroup
	for range requests {
		all.Go(func() {
			if a, err := c.try("GET", "/timestamp", nil); err != nil || a.StatusCode != 200 {
				t.Errorf("%v, %v", a.Response, err)
			}
		})
	}
	await.Until(t, "the first are submitted", func() bool { return s.backend.submitted.Load() >= streamsMax })
	time.Sleep(50 * time.Millisecond) // for a wrong one to show itself
	if got := s.backend.submitted.Load(); got > streamsMax {
		t.Errorf("%d requests of one connection in work", got)
	}
	s.backend.release()
	all.Wait()
}

func TestLimit_LargeHeadersOverHTTP2AndHTTP3(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, p := range protocols {
		c := s.client(t, p)
		if a, err := c.try("GET", "/timestamp", nil, "X", strings.Repeat("a", 64<<10)); err == nil && a.StatusCode/100 != 4 {
			t.Errorf("%s: %d", p, a.StatusCode)
		}
		if a := s.client(t, p).get(t, "/timestamp"); a.StatusCode != http.StatusOK {
			t.Errorf("%s afterwards: %d", p, a.StatusCode)
		}
	}
}

func TestDisconnect_AbandonsTheRequest(t *testing.T) {
	ended := make(chan string, 1)
	s := start(t, func(c *web.Config) {
		c.Limits.RequestTimeout = time.Hour
		c.Observe = func(protocol, code string, _ time.Duration) { ended <- protocol + " " + code }
	})
	for _, p := range protocols {
		s.backend.hold()
		before := s.backend.submitted.Load()
		ctx, cancel := context.WithCancel(context.Background())
		c := s.client(t, p)
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			r, _ := http.NewRequestWithContext(ctx, "GET", c.scheme+"://"+c.addr+"/timestamp", nil)
			if response, err := c.Do(r); err == nil {
				_ = response.Body.Close()
				// Closing takes several steps, and the refusal may come in between.
				if response.StatusCode != http.StatusGatewayTimeout {
					t.Errorf("%s: %s from a backend that is held", p, response.Status)
				}
			}
		}()
		await.Until(t, "the request is submitted", func() bool { return s.backend.submitted.Load() == before+1 })
		cancel()
		<-gone
		select {
		case got := <-ended:
			if got != p+" deadline_exceeded" {
				t.Errorf("observed %q over %s", got, p)
			}
		case <-time.After(patience):
			t.Fatalf("%s: the handler still waits", p)
		}
		s.backend.release()
	}
}
