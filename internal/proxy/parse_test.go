package proxy

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/front/requestid"
)

const curl = "GET /index.html HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n\r\n"

var requestSeeds = []string{
	curl,
	"POST /a?b=c HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nConnection: keep-alive, X-A\r\nX-A: b\r\n\r\nabcde",
	"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
	"OPTIONS * HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 1.2.3.4\r\nTraceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n\r\n",
	"GET /a HTTP/1.0\r\n\r\n",
	"GET /a HTTP/1.1\r\nHost: x\r\nX-A: b\r\n c\r\n\r\n",
	"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
}

// FuzzParseRequest compares with net/http: it must read whatever is whole here in the same way,
// and also what the proxy sends to the backend.
func FuzzParseRequest(f *testing.F) {
	for _, s := range requestSeeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r request
		v, err := parseRequest(b, &r)
		if (v == invalid) != (err != nil) {
			t.Fatalf("%v with %v", v, err)
		}
		var again request
		for n := range min(len(b), 300) { // what is decided stays decided, and is decided by the head alone
			if v2, _ := parseRequest(b[:n], &again); v2 == invalid && v == whole && n >= r.size || v2 == whole && v != whole {
				t.Fatalf("%v, of the first %d bytes %v", v, n, v2)
			} else if v2 == whole && n < r.size {
				t.Fatalf("whole at %d of %d", n, r.size)
			}
		}
		if v != whole || r.refusal(b) != nil {
			return
		}
		theirs, e := http.ReadRequest(bufio.NewReader(bytes.NewReader(b)))
		if e != nil {
			if strings.Contains(e.Error(), "parse") { // bad percent-encoding: refused by net/http, forwarded by the fast path
				return
			}
			t.Fatalf("net/http: %v", e)
		}
		if theirs.Method != string(r.Method(b)) || theirs.RequestURI != string(r.Target(b)) || theirs.ProtoMinor != int(r.Minor) {
			t.Fatalf("%s %s, net/http: %s %s", r.Method(b), r.Target(b), theirs.Method, theirs.RequestURI)
		}
		if chunked := len(theirs.TransferEncoding) > 0; chunked != r.chunked || !chunked && theirs.ContentLength != r.length {
			t.Fatalf("length %d, chunked %v; net/http: %d, %v", r.length, r.chunked, theirs.ContentLength, theirs.TransferEncoding)
		}
		if r.Minor == 0 || r.chunked {
			return
		}
		out := append(r.appendRequest(nil, b, "10.0.0.1", false, false), "\r\n"...)
		if v, err := parseRequest(out, &again); v != whole || again.size != len(out) || again.length != r.length || again.chunked {
			t.Fatalf("%q became %q: %v", b, out, err)
		}
		for i := range again.fields {
			if k := again.fields[i].kind; k == kindHop || k == kindConnection || k == kindTransfer || k == kindUpgrade || k == kindTracestate {
				t.Fatalf("%q became %q", b, out)
			}
		}
	})
}

// FuzzParseAnswer compares with net/http in the same way.
func FuzzParseAnswer(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"HTTP/1.0 404 Not Found\r\nConnection: X-A\r\nX-A: b\r\nHost: x\r\n\r\n", "HTTP/1.1 304 x\r\n\r\n",
		"HTTP/1.1 204 x\r\nContent-Length: 2\r\n\r\n", "HTTP/1.1 204 x\r\nTransfer-Encoding: chunked\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var a answer
		v, err := parseAnswer(b, &a)
		if (v == invalid) != (err != nil) {
			t.Fatalf("%v with %v", v, err)
		}
		if v != whole {
			return
		}
		theirs, e := http.ReadResponse(bufio.NewReader(bytes.NewReader(b)), nil)
		if e != nil {
			t.Fatalf("net/http: %v", e)
		}
		want := int64(-1)
		switch a.framing(false) {
		case framingNone:
			want = 0
		case framingLength:
			want = a.length
		}
		if theirs.StatusCode != a.Status || theirs.ContentLength != want && a.Status >= 200 && a.Status != 204 && a.Status != 304 || (len(theirs.TransferEncoding) > 0) != a.chunked {
			t.Fatalf("status %d, length %d, framing %d; net/http: %d, %d, %v", a.Status, want, a.framing(false), theirs.StatusCode, theirs.ContentLength, theirs.TransferEncoding)
		}
		out := append(a.appendAnswer(nil, b, nil, a.framing(false), false), "\r\n"...)
		chunked, length := a.chunked || a.framing(false) == framingClose, a.length
		if a.Status == 204 {
			chunked, length = false, 0
		}
		var again answer
		if v, _ := parseAnswer(out, &again); v != whole || again.size != len(out) || again.Status != a.Status || again.chunked != chunked || again.length != length || again.hasLength && a.Status == 204 {
			t.Fatalf("%q became %q", b, out)
		}
	})
}

// FuzzChunks compares with net/http's reader of chunks, and cuts the input everywhere.
func FuzzChunks(f *testing.F) {
	f.Add([]byte("2\r\nab\r\n0\r\n\r\nrest"))
	f.Add([]byte("A;x=y\r\n0123456789\r\n00\r\nX-A: b\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := chunks{trailers: true}
		n, err := c.scan(b)
		if n > len(b) || err == nil && !c.done() && n != len(b) {
			t.Fatalf("%d of %d bytes, done %v", n, len(b), c.done())
		}
		var cut chunks
		cut.trailers = true
		at := 0
		for at < len(b) && !cut.done() {
			m, cutErr := cut.scan(b[at : at+1])
			if at += m; cutErr != nil {
				if err == nil {
					t.Fatalf("%v at byte %d, but not at once", cutErr, at)
				}
				return
			}
		}
		if err != nil || at != n || cut.done() != c.done() {
			t.Fatalf("%d bytes, done %v; one by one %d, %v; at once %v", n, c.done(), at, cut.done(), err)
		}
		if c.done() {
			if _, err := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(b[:n]))); err != nil {
				t.Fatalf("net/http: %v", err)
			}
		}
	})
}

// pieces is a connection that returns its input in pieces.
type pieces struct {
	net.Conn
	b    []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.b[:min(len(p.b), p.size)])
	p.b = p.b[n:]
	return n, nil
}

// FuzzValidatingConn cuts the same input in many ways: what passes must be the same, and a
// prefix of the input.
func FuzzValidatingConn(f *testing.F) {
	for _, s := range requestSeeds {
		f.Add([]byte(s+s), 3)
	}
	f.Add([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nanything"), 5)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		through := func(size int) (string, *httpError, error) {
			s := &validatingConn{Conn: &pieces{b: b, size: size}}
			got, err := io.ReadAll(s)
			return string(got), s.refusal.Load(), err
		}
		got, refusal, err := through(1 << 20)
		got2, refusal2, err2 := through(1 + size&0xff)
		if got != got2 || (err == nil) != (err2 == nil) || (refusal == nil) != (refusal2 == nil) {
			t.Fatalf("%q, %v, %v; in pieces of %d: %q, %v, %v", got, err, refusal, 1+size&0xff, got2, err2, refusal2)
		}
		if !strings.HasPrefix(string(b), strings.TrimSuffix(got, refusedRequest)) {
			t.Fatalf("%q came through as %q", b, got)
		}
		if refusal == nil && err == nil && len(got) != len(b) {
			t.Fatalf("%d of %d bytes came through", len(got), len(b))
		}
	})
}

func TestFastPath_HotPathDoesNotAllocate(t *testing.T) {
	var r request
	var a answer
	m := requestid.NewMaker()
	raw, got := []byte(curl), []byte("HTTP/1.1 200 OK\r\nServer: nginx\r\nDate: Sat, 21 Nov 2026 20:48:29 GMT\r\nContent-Length: 16\r\nConnection: keep-alive\r\n\r\n")
	out := make([]byte, 0, 4096)
	work := func() {
		if v, _ := parseRequest(raw, &r); v != whole {
			t.Fatal(v)
		}
		out = r.appendRequest(out[:0], raw, "10.0.0.1", false, false)
		out = m.New().Append(m.AppendID(out))
		if v, _ := parseAnswer(got, &a); v != whole {
			t.Fatal(v)
		}
		out = a.appendAnswer(out, got, nil, a.framing(false), false)
	}
	work()
	if got := testing.AllocsPerRun(200, work); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func BenchmarkParse(b *testing.B) {
	raw, got := []byte(curl), []byte("HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Sat, 21 Nov 2026 20:48:29 GMT\r\nContent-Type: text/html\r\nContent-Length: 16\r\nLast-Modified: Sat, 21 Nov 2026 20:48:28 GMT\r\nConnection: keep-alive\r\nETag: \"6b02039c-10\"\r\nAccept-Ranges: bytes\r\n\r\n")
	var r request
	var a answer
	out := make([]byte, 0, 4096)
	b.Run("request", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = parseRequest(raw, &r)
			out = r.appendRequest(out[:0], raw, "10.0.0.1", false, false)
		}
	})
	b.Run("answer", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = parseAnswer(got, &a)
			out = a.appendAnswer(out[:0], got, nil, a.framing(false), false)
		}
	})
	b.Run("chunks", func(b *testing.B) {
		body := []byte(strings.Repeat("400\r\n"+strings.Repeat("x", 1024)+"\r\n", 32))
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			var c chunks
			_, _ = c.scan(body)
		}
	})
}

func TestQueue_IsFairAndForgets(t *testing.T) {
	var q queue
	hs := make([]*clientConn, 50)
	next := 0
	for i := range hs {
		hs[i] = &clientConn{}
		q.put(hs[i])
		if i%3 == 2 { // the oldest that is left goes, and one in between gives up
			for hs[next] == nil {
				next++
			}
			if got := q.take(); got != hs[next] {
				t.Fatalf("took another than %d", next)
			}
			hs[next] = nil
			q.drop(hs[i])
			hs[i] = nil
		}
	}
	live := 0
	for _, h := range hs {
		if h != nil {
			live++
		}
	}
	if q.live != live {
		t.Errorf("%d live, want %d", q.live, live)
	}
	for _, h := range hs {
		if h != nil {
			if got := q.take(); got != h {
				t.Fatal("out of order")
			}
		}
	}
	if q.take() != nil || q.live != 0 {
		t.Error("something is left")
	}
}

func TestRecorder_BoundsLines(t *testing.T) {
	var w requestLog
	admitted := 0
	for range 1000 {
		if ok, dropped := w.admit(7); ok && dropped == 0 {
			admitted++
		}
	}
	if ok, dropped := w.admit(8); admitted != linesMax || dropped != 1000-linesMax || !ok {
		t.Errorf("%d lines, %d dropped, then %v", admitted, dropped, ok)
	}
}

// TestQueue_OfThoseWhoGaveUpIsShort, although nobody is taken.
func TestQueue_OfThoseWhoGaveUpIsShort(t *testing.T) {
	var q queue
	stays := []*clientConn{{}, {}, {}}
	for i := range 100_000 {
		if i%10_000 == 5_000 && len(stays) > i/10_000 && i/10_000 < 3 {
			q.put(stays[i/10_000])
		}
		cc := &clientConn{}
		q.put(cc)
		q.drop(cc)
	}
	if cap(q.list) > 64 || q.live != len(stays) {
		t.Errorf("%d places for %d who wait", cap(q.list), q.live)
	}
	for i, want := range stays {
		if q.take() != want {
			t.Errorf("number %d is another one", i)
		}
	}
	if q.take() != nil {
		t.Error("something is left")
	}
}
