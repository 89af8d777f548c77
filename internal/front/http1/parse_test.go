package http1

import (
	"bufio"
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front/httpapi"
)

const plain = "GET /timestamp HTTP/1.1\r\nHost: x\r\n\r\n"

func TestParse_DecidesAsEarlyAsItCan(t *testing.T) {
	for raw, want := range map[string]verdict{
		"":                                      partial,
		"G":                                     partial,
		"GET /s":                                partial,
		"GET /stat":                             partial,
		"GET /state":                            partial,
		"GET /statex":                           cold,
		"GET /l":                                partial,
		"GET /live/":                            partial,
		"GET /live/ ":                           cold,
		"GET /live/a?":                          cold,
		"GET /live/a HTTP/1.1\r\nIf-None-Match": partial,
		"GET /timestam":                         partial,
		"GET /timestamp":                        partial,
		"GET /timestamp?":                       partial,
		"GET /timestamp?n=":                     partial,
		"GET /timestamp HTTP/1.1\r\n":           partial,
		plain[:len(plain)-1]:                    partial,
		plain:                                   hot,
		plain + "\xff":                          hot,
		"g":                                     cold,
		"GET /":                                 partial,
		"GET /a":                                partial,
		"GET /api/snowflak":                     partial,
		"GET /ap/":                              cold,
		"GET /api/snowflake HTTP/1.1\r\nHost: x\r\n\r\n": hot,
		"GET /api/snowflake?n=64 HTTP/1.1\r\n":           partial,
		"GET /api/snowflake?n=65 HTTP/1.1\r\n":           cold,
		"GET /api/snowflake?format=range HTTP/1.1\r\n":   cold,
		"GET /interva":   partial,
		"GET /intervals": cold,
		"GET /interval HTTP/1.1\r\nHost: x\r\n\r\n":                        hot,
		"GET /interval?nonce=7 HTTP/1.1\r\n":                               partial,
		"GET /interval?n=64 HTTP/1.1\r\n":                                  partial,
		"GET /interval?n=65 HTTP/1.1\r\n":                                  cold,
		"GET /interval?n=9&format=json HTTP/1.1\r\n":                       cold,
		"GET /interval?nonce=x HTTP/1.1\r\n":                               cold,
		"GET /interval?wait=0123456789abcdef0123456789abcdef HTTP/1.1\r\n": cold,
		"GET /u":                                     cold,
		"GET /timestampx":                            cold,
		"GET /timestamp?%":                           cold,
		"GET /timestamp HTTP/1.0":                    partial,
		"GET /timestamp HTTP/1.2":                    cold,
		"GET /timestamp HTTP/1.0\r\nHost: x\r\n\r":   partial,
		"GET /timestamp HTTP/1.0\r\nHost: x\r\n\r\n": hot,
		"GET /state HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n":                            hot,
		"GET /timestamp HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n":                        hot,
		"GET /timestamp HTTP/1.0\r\nConnection: keep-alive\r\n\r\n":                                   cold,
		"GET /timestamp HTTP/1.1\n":                                                                   cold,
		"GET /timestamp?n=0 HTTP/1.1\r\n":                                                             cold,
		"GET /timestamp?n=65 HTTP/1.1\r\n":                                                            cold,
		"GET /timestamp HTTP/1.1\r\n\r":                                                               partial,
		"GET /timestamp HTTP/1.1\r\n\r\n":                                                             cold,
		"GET /timestamp HTTP/1.1\r\n ":                                                                cold,
		"GET /timestamp HTTP/1.1\r\nno field\r\n\r\n":                                                 cold,
		"GET /timestamp HTTP/1.1\r\nno\n":                                                             cold,
		"GET /timestamp HTTP/1.1\r\nCookie:":                                                          cold,
		"GET /timestamp HTTP/1.1\r\nHost: a b":                                                        partial,
		"GET /timestamp HTTP/1.1\r\nHost: a b\r\n":                                                    cold,
		"GET /timestamp HTTP/1.1\r\nHost: a\rb":                                                       cold,
		"GET /timestamp HTTP/1.1\r\nConnection: close\r\n":                                            partial,
		"GET /timestamp HTTP/1.1\r\n" + strings.Repeat("a", fieldNameMax):                             partial,
		"GET /timestamp HTTP/1.1\r\n" + strings.Repeat("a", fieldNameMax+1):                           cold,
		"GET /timestamp?" + strings.Repeat("a", requestBytesMax-16):                                   partial,
		"GET /timestamp?" + strings.Repeat("a", requestBytesMax-15):                                   cold,
		plain[:len(plain)-4] + "\r\nVia: " + strings.Repeat("a", requestBytesMax-43) + "\r\n\r\n":     hot,
		plain[:len(plain)-4] + "\r\nVia: " + strings.Repeat("a", requestBytesMax-42) + "\r\n\r\n":     cold,
		"GET /timestamp?n=9 HTTP/1.1\r\nHost: x\r\nAccept: application/json\r\nUser-Agent: x\r\n":     partial,
		"GET /timestamp?n=9 HTTP/1.1\r\nHost: x\r\nAccept: application/json\r\nUser-Agent: x\r\n\r\n": cold,
	} {
		var r request
		if got := parse([]byte(raw), &r); got != want {
			t.Errorf("%.80q, %d bytes: %d, want %d", raw, len(raw), got, want)
		}
	}
}

func TestParse_ReadsWhatIsAsked(t *testing.T) {
	var r request
	raw := "GET /timestamp?n=7&mode=lease HTTP/1.1\r\nHost: x\r\nAccept: application/json\r\n\r\n"
	if v := parse([]byte(raw+raw), &r); v != hot {
		t.Fatal(v)
	}
	want := request{size: len(raw), query: len("n=7&mode=lease"), count: 7, format: httpapi.JSON, mode: isotone.ReadLease}
	if r != want {
		t.Errorf("%+v, want %+v", r, want)
	}
	raw = "GET /interval?nonce=7 HTTP/1.1\r\nHost: x\r\nAccept: application/json\r\n\r\n"
	want = request{target: targetInterval, size: len(raw), query: len("nonce=7"), nonce: 7, format: httpapi.JSON}
	if v := parse([]byte(raw), &r); v != hot || r != want {
		t.Errorf("%d, %+v, want %+v", v, r, want)
	}
	// What was read before must leave no trace.
	if v := parse([]byte(plain), &r); v != hot || r != (request{size: len(plain), count: 1}) {
		t.Errorf("%d, %+v", v, r)
	}
}

// FuzzParse holds the parser against net/http: what it takes, net/http reads the same
// way, to the byte; and against itself: its verdict does not depend on how the bytes came.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		plain, plain + plain, "GET /timestamp HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n", "GET /api/snowflake?n=3&format=json HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /interval?nonce=3&format=json HTTP/1.1\r\nHost: x\r\n\r\n", "GET /interval?n=3 HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /live/a-1 HTTP/1.1\r\nHost: x\r\nIf-None-Match: \"i\"\r\nAccept-Encoding: gzip\r\n\r\n", "GET /state HTTP/1.1\r\nHost: x\r\n\r\n", "GET /timestamp?n=2&format=json HTTP/1.1\r\nhost:[::1]:80 \r\nAccept: */*\r\nConnection: keep-alive\r\n\r\nGET",
		"GET /timestamp?format=range HTTP/1.1\r\nUser-Agent: a\r\nVia: b\r\nHost: x\r\n\r\n",
		"GET /timestamp HTTP/1.1\r\nHost: x\r\nAccept: application/json;q=0.5, application/octet-stream\r\n\r\n",
		"GET /timestamp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"GET /timestamp HTTP/1.1\r\nHost: x\r\nUser-Agent: a\r\n b\r\n\r\n", "GET /timestamp HTTP/1.1\nHost: x\n\n",
		"GET /timestamp?a=%41;b HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
	} {
		f.Add([]byte(seed), uint16(5))
	}
	f.Fuzz(func(t *testing.T, b []byte, split uint16) {
		var r, part request
		v := parse(b, &r)
		at := int(split) % (len(b) + 1)
		switch early := parse(b[:at], &part); {
		case early == partial:
		case early != v, v == hot && part != r:
			t.Fatalf("%q: %d %+v, but %d %+v of the first %d bytes", b, v, r, early, part, at)
		}
		if v == partial && len(b) >= requestBytesMax {
			t.Fatalf("%d bytes and no verdict", len(b))
		}
		if v != hot {
			return
		}
		if early := parse(b[:r.size-1], &part); early != partial {
			t.Fatalf("%q: %d before the last byte", b, early)
		}
		checkAgainstNetHTTP(t, b, r)
	})
}

// isPath reports whether net/http's path is that of r.
func isPath(path string, b []byte, r *request) bool {
	if r.target != targetLive {
		return path == paths[r.target]
	}
	return path == paths[targetLive]+r.document(b) || path == statePath && r.document(b) == stateName
}

func checkAgainstNetHTTP(t *testing.T, b []byte, r request) {
	t.Helper()
	in := bufio.NewReader(bytes.NewReader(b))
	read, err := http.ReadRequest(in)
	if err != nil {
		t.Fatalf("%q: taken, but net/http says %v", b, err)
	}
	if rest := len(b) - r.size; in.Buffered() != rest {
		t.Fatalf("%q: net/http leaves %d bytes, not %d", b, in.Buffered(), rest)
	}
	proto := "HTTP/1.1"
	if r.legacy {
		proto = "HTTP/1.0"
	}
	if read.Close != r.last {
		t.Fatalf("%q: net/http closes after the answer: %v, the fast path: %v", b, read.Close, r.last)
	}
	if read.Method != "GET" || !isPath(read.URL.Path, b, &r) || read.URL.RawQuery != text(r.rawQuery(b)) || read.Proto != proto {
		t.Fatalf("%q: %s %s %s to net/http", b, read.Method, read.URL, read.Proto)
	}
	if read.ContentLength != 0 || read.TransferEncoding != nil || read.Host == "" || read.Header.Get("Expect") != "" {
		t.Fatalf("%q: to net/http %+v", b, read)
	}
	if r.target == targetLive {
		if read.Header.Get("If-None-Match") != r.tag.of(b) || read.Header.Get("Accept-Encoding") != r.encoding.of(b) || len(read.Header["If-None-Match"]) > 1 {
			t.Fatalf("%q: tag %q, coding %q; to net/http %v", b, r.tag.of(b), r.encoding.of(b), read.Header)
		}
		return
	}
	var q httpapi.Query
	var nonce uint64
	switch r.target {
	case targetIDs:
		q, err = parseIDQuery(read.URL.RawQuery)
	case targetInterval:
		var waits bool
		if q, nonce, waits, err = parseIntervalQuery(read.URL.RawQuery); waits {
			t.Fatalf("%q: taken, but it waits", b)
		}
	default:
		q, err = httpapi.ParseQuery(read.URL.RawQuery)
	}
	if err != nil {
		t.Fatalf("%q: %v", b, err)
	}
	q = q.Accepting(read.Header["Accept"]...)
	if q.Count != r.count || q.Format != r.format || q.Mode != r.mode || nonce != r.nonce {
		t.Fatalf("%q: %+v, but net/http's asks %+v", b, r, q)
	}
}
