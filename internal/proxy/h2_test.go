package proxy_test

import (
	"bytes"
	"io"
	"net"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/isotone/isotone/internal/proxy"
)

// framed is an HTTP/2 connection on which any frame can be sent.
type framed struct {
	framer *http2.Framer
	stream uint32
}

func dialFramed(t *testing.T, s *site) *framed {
	t.Helper()
	var c net.Conn = dial(t, s)
	_, _ = io.WriteString(c, http2.ClientPreface)
	f := http2.NewFramer(c, c)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return &framed{f, 1}
}

// ask sends a request to authority a, and returns the status or the error.
func (f *framed) ask(t *testing.T, body, method, path string, fields ...string) string {
	t.Helper()
	var head bytes.Buffer
	e := hpack.NewEncoder(&head)
	fields = append([]string{":method", method, ":scheme", "http", ":authority", "a", ":path", path}, fields...)
	for i := 0; i < len(fields); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	stream := f.stream
	f.stream += 2
	_ = f.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: head.Bytes(), EndHeaders: true, EndStream: body == ""})
	if body != "" {
		_ = f.framer.WriteData(stream, true, []byte(body))
	}
	for {
		frame, err := f.framer.ReadFrame()
		if err != nil {
			t.Fatalf("%s %q: %v", method, path, err)
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.framer.WriteSettingsAck()
			}
		case *http2.MetaHeadersFrame:
			if frame.StreamID == stream {
				return frame.PseudoValue("status")
			}
		case *http2.RSTStreamFrame:
			if frame.StreamID == stream {
				return frame.ErrCode.String()
			}
		}
	}
}

// TestServer_FaultsOfHTTP2ClientsAreTheirs: they do not count as failures of a backend.
func TestServer_FaultsOfHTTP2ClientsAreTheirs(t *testing.T) {
	s := start(t, proxy.Config{}, startBackend(t, echo).addr, startBackend(t, echo).addr)
	f := dialFramed(t, s)
	for range 12 {
		if got := f.ask(t, "short", "POST", "/", "content-length", "10"); got != "400" && got != http2.ErrCodeProtocol.String() {
			t.Errorf("less than was announced: %s", got)
		}
		if got := f.ask(t, "", "G T", "/"); got != "400" && got != http2.ErrCodeProtocol.String() {
			t.Errorf("no method: %s", got)
		}
	}
	s.idle(t)
	for _, b := range s.Status().Backends {
		if b.Failures > 0 || b.Ejected {
			t.Errorf("%d failures, ejected %v", b.Failures, b.Ejected)
		}
	}
	if got := f.ask(t, "all", "POST", "/", "content-length", "3"); got != "200" {
		t.Errorf("a good one: %s", got)
	}
}

// TestServer_HTTP2HasNoMoreInATargetThanHTTP1: bytes that end a word of an HTTP/1 request line
// must not be in a target of HTTP/2.
func TestServer_HTTP2HasNoMoreInATargetThanHTTP1(t *testing.T) {
	b := startScript(t, func(int, int, string) (string, bool) { return okAnswer, false })
	s := start(t, proxy.Config{}, b.addr)
	f := dialFramed(t, s)
	for _, path := range []string{"/?a b", "/x?y HTTP/1.0", "/?a#b", "/?q=\xff\xfe", "/a b", "*", "/?a\tb", "/a\x01", "//evil/?x y"} {
		if got := f.ask(t, "", "GET", path); got != "400" && got != http2.ErrCodeProtocol.String() {
			t.Errorf("%q: %s", path, got)
		}
	}
	if len(b.heads) > 0 {
		t.Errorf("the backend got %q", <-b.heads)
	}
	if got := f.ask(t, "", "GET", "/a|b?c|d"); got != "200" {
		t.Errorf("a good one: %s", got)
	}
}
