package web_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/front/web"
)

// exchange sends raw bytes, ends its output, and returns all that comes back.
func (s *site) exchange(t *testing.T, secure bool, raw string) string {
	t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if secure {
		c = tls.Client(c, &tls.Config{RootCAs: s.roots, ServerName: "localhost"})
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		// The server may well close in the middle of this.
		_, _ = io.WriteString(c, raw)
		_ = c.(interface{ CloseWrite() error }).CloseWrite()
	}()
	got, err := io.ReadAll(c)
	<-sent
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		t.Errorf("the connection stays open after %.60q", raw)
	}
	return string(got)
}

const okLine = "HTTP/1.1 200 OK\r\n"

// smuggled is a good request where a body should be, or after one.
const smuggled = "GET /timestamp HTTP/1.1\r\nHost: x\r\n\r\n"

var badRequests = map[string]string{
	"empty":                    "",
	"garbage":                  garbage(5000),
	"zeros":                    strings.Repeat("\x00", 100),
	"blank lines":              strings.Repeat("\r\n", 100),
	"no Host":                  "GET /timestamp HTTP/1.1\r\n\r\n",
	"two Hosts":                "GET /timestamp HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
	"two equal Hosts":          "GET /timestamp HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
	"bad Host":                 "GET /timestamp HTTP/1.1\r\nHost: a b\r\n\r\n",
	"CL and TE":                "GET /timestamp HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled,
	"TE and CL":                "GET /timestamp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + smuggled,
	"CL 0 and TE":              "GET /timestamp HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled,
	"TE":                       "GET /timestamp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled,
	"TE unknown":               "GET /timestamp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + smuggled,
	"TE twice":                 "GET /timestamp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + smuggled,
	"TE with a tab":            "GET /timestamp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n" + smuggled,
	"TE with a space":          "GET /timestamp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + smuggled,
	"CL":                       "GET /timestamp HTTP/1.1\r\nHost: x\r\nContent-Length: 38\r\n\r\n" + smuggled,
	"CL longer than the body":  "GET /timestamp HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + smuggled,
	"CL twice":                 "GET /timestamp HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 38\r\n\r\n" + smuggled,
	"CL list":                  "GET /timestamp HTTP/1.1\r\nHost: x\r\nContent-Length: 0, 38\r\n\r\n" + smuggled,
	"CL signed":                "GET /timestamp HTTP/1.1\r\nHost: x\r\nContent-Length: +38\r\n\r\n" + smuggled,
	"CL negative":              "GET /timestamp HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n" + smuggled,
	"POST with a body":         "POST /timestamp HTTP/1.1\r\nHost: x\r\nContent-Length: 38\r\n\r\n" + smuggled,
	"unknown path, body":       "POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 38\r\n\r\n" + smuggled,
	"expects 100, with a body": "GET /timestamp HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
	"expects the unheard-of":   "GET /timestamp HTTP/1.1\r\nHost: x\r\nExpect: miracles\r\n\r\n",
	"huge header":              "GET /timestamp HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("a", 2<<20) + "\r\n\r\n",
	"many headers":             "GET /timestamp HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X: a\r\n", 100_000) + "\r\n",
	"long request line":        "GET /timestamp?" + strings.Repeat("a", 64<<10) + " HTTP/1.1\r\nHost: x\r\n\r\n",
	"endless method":           strings.Repeat("G", 64<<10),
	"lower-case method":        "get /timestamp HTTP/1.1\r\nHost: x\r\n\r\n",
	"bad method":               "G(T /timestamp HTTP/1.1\r\nHost: x\r\n\r\n",
	"HTTP/0.9":                 "GET /timestamp\r\n\r\n",
	"HTTP/1.2 spelled badly":   "GET /timestamp HTTP/1.x\r\nHost: x\r\n\r\n",
	"HTTP/2.0 in text":         "GET /timestamp HTTP/2.0\r\nHost: x\r\n\r\n",
	"HTTP/9.9":                 "GET /timestamp HTTP/9.9\r\nHost: x\r\n\r\n",
	"lower-case version":       "GET /timestamp http/1.1\r\nHost: x\r\n\r\n",
	"two spaces":               "GET  /timestamp HTTP/1.1\r\nHost: x\r\n\r\n",
	"space in the query":       "GET /timestamp?n= 1 HTTP/1.1\r\nHost: x\r\n\r\n",
	"no slash":                 "GET timestamp HTTP/1.1\r\nHost: x\r\n\r\n",
	"asterisk":                 "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
	"CONNECT":                  "CONNECT /timestamp HTTP/1.1\r\nHost: x\r\n\r\n",
	"CONNECT authority":        "CONNECT host:80 HTTP/1.1\r\nHost: host:80\r\n\r\n",
	"header without a colon":   "GET /timestamp HTTP/1.1\r\nHost: x\r\nnothing\r\n\r\n",
	"header without a name":    "GET /timestamp HTTP/1.1\r\nHost: x\r\n: y\r\n\r\n",
	"NUL in a header":          "GET /timestamp HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n",
	"header begins folded":     "GET /timestamp HTTP/1.1\r\n Host: x\r\n\r\n",
	"header folded":            "GET /timestamp HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\n",
	"lines without CR":         "GET /timestamp HTTP/1.1\nHost: x\n\n",
	"CR within a line":         "GET /timestamp HTTP/1.1\r\nHost: x\r\nX: a\rY: b\r\n\r\n",
	"header cut short":         "GET /timestamp HTTP/1.1\r\nHost: x\r\n",
}

// garbage returns n bytes, the same ones every time, that begin no protocol.
func garbage(n int) string {
	b := make([]byte, n)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	b[0] = 0x80
	return string(b)
}

func TestRaw_BadRequestsAreNeverAnswered200(t *testing.T) {
	s := start(t, func(c *web.Config) { c.Limits.ReadHeaderTimeout = 2 * time.Second })
	for name, raw := range badRequests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, secure := range []bool{false, true} {
				got := s.exchange(t, secure, raw)
				if strings.Contains(got, " 200 ") {
					t.Errorf("TLS %v: answered %.300q", secure, got)
				}
			}
		})
	}
	t.Cleanup(func() {
		if got := s.backend.submitted.Load(); got != 0 {
			t.Errorf("%d bad requests reached the backend", got)
		}
	})
}

func TestRaw_OddButValidRequestsAreAnswered(t *testing.T) {
	s := start(t)
	const timestamps = 1
	for name, raw := range map[string]string{
		"absolute-form":  "GET http://other/timestamp HTTP/1.1\r\nHost: x\r\n\r\n", // RFC 9112 §3.2.2: must accept
		"HTTP/1.0":       "GET /timestamp HTTP/1.0\r\n\r\n",
		"HTTP/1.0 alive": "GET /timestamp HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n" + "GET /timestamp HTTP/1.0\r\n\r\n",
		"length 0":       "GET /timestamp HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
		"escaped path":   "GET /%74imestamp HTTP/1.1\r\nHost: x\r\n\r\n",
		"empty Host":     "GET /timestamp HTTP/1.1\r\nHost:\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			for _, secure := range []bool{false, true} {
				before := s.backend.submitted.Load()
				got := s.exchange(t, secure, raw)
				if strings.Count(got, " 200 OK\r\n") != 1 {
					t.Errorf("TLS %v: got %.300q", secure, got)
				}
				if n := s.backend.submitted.Load() - before; n != timestamps {
					t.Errorf("TLS %v: %d requests reached the backend", secure, n)
				}
			}
		})
	}
}

func TestRaw_PipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	s := start(t)
	for _, secure := range []bool{false, true} {
		got := s.exchange(t, secure, strings.Repeat("GET /timestamp?format=json HTTP/1.1\r\nHost: x\r\n\r\n", 20)+
			"GET /timestamp?n=0 HTTP/1.1\r\nHost: x\r\n\r\n"+"GET /up HTTP/1.1\r\nHost: x\r\n\r\n")
		in := bufio.NewReader(strings.NewReader(got))
		var last []byte
		for i := range 22 {
			response, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatalf("TLS %v: answer %d: %v", secure, i, err)
			}
			body, _ := io.ReadAll(response.Body)
			switch {
			case i < 20:
				at := bytes.Index(body, []byte(`"hex":`))
				if at < 0 || bytes.Compare(last, body[at:]) >= 0 {
					t.Errorf("answer %d, %q, after %q", i, body, last)
				}
				last = body[at:]
			case i == 20 && response.StatusCode != 400, i == 21 && response.StatusCode != 200:
				t.Errorf("answer %d: %d", i, response.StatusCode)
			}
		}
	}
}

func TestRaw_ASlowBodyDoesNotHoldTheConnection(t *testing.T) {
	t.Parallel()
	s := start(t)
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, "POST /timestamp HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc")
	_ = c.SetReadDeadline(time.Now().Add(patience))
	got, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 405 ") {
		t.Errorf("%q, %v", got, err)
	}
}

func TestRaw_TLSWithoutTLSIsClosed(t *testing.T) {
	s := start(t, func(c *web.Config) { c.TLS = nil })
	c, err := tls.Dial("tcp", s.addr, &tls.Config{RootCAs: s.roots})
	if err == nil {
		_ = c.Close()
		t.Fatal("a handshake succeeded")
	}
	if got := s.exchange(t, false, "GET /up HTTP/1.1\r\nHost: x\r\n\r\n"); !strings.HasPrefix(got, okLine) {
		t.Errorf("plain HTTP: %q", got)
	}
}
