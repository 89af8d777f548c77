package head_test

import (
	"bufio"
	"bytes"
	"net/http"
	"net/textproto"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/front/head"
)

const (
	request  = "GET /a?b=c HTTP/1.1\r\nHost: x\r\nAccept: \t*/* \r\nX-Empty:\r\n\r\n"
	response = "HTTP/1.0 404 Not Found\r\nContent-Length: 2\r\nX-Long: " + "0123456789 \xe4 abcdefghij\r\n\r\nok"
)

// line is a field line, as name and value.
type line struct{ name, value string }

// fields scans the lines of b from at on, and returns where the body begins.
func fields(b []byte, at int) (list []line, end int, err *head.Error) {
	for {
		var f head.Field
		last, err := f.Scan(b, at)
		if err != nil || last {
			return list, int(f.End), err
		}
		list = append(list, line{string(f.Name(b)), string(f.Value(b))})
		at = int(f.End)
	}
}

func TestParseRequestLine_ReturnsItsParts(t *testing.T) {
	b := []byte(request)
	l, err := head.ParseRequestLine(b)
	if err != nil || string(l.Method(b)) != "GET" || string(l.Target(b)) != "/a?b=c" || l.Minor != 1 {
		t.Fatalf("%+v, %v", l, err)
	}
	got, end, err := fields(b, l.End)
	if want := []line{{"Host", "x"}, {"Accept", "*/*"}, {"X-Empty", ""}}; err != nil || end != len(b) || len(got) != 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("%q up to %d: %v", got, end, err)
	}
}

func TestParseStatusLine_ReturnsItsParts(t *testing.T) {
	b := []byte(response)
	l, err := head.ParseStatusLine(b)
	if err != nil || l.Status != 404 || l.Minor != 0 {
		t.Fatalf("%+v, %v", l, err)
	}
	got, end, err := fields(b, l.End)
	if err != nil || string(b[end:]) != "ok" || len(got) != 2 || got[1] != (line{"X-Long", "0123456789 \xe4 abcdefghij"}) {
		t.Errorf("%q up to %d: %v", got, end, err)
	}
}

func TestParse_RefusesWhatCanBeReadInTwoWays(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		line   string
	}{
		"a blank before the method": {400, " GET / HTTP/1.1"}, "two blanks": {400, "GET  / HTTP/1.1"}, "a tab": {400, "GET\t/ HTTP/1.1"},
		"no method": {400, "/ HTTP/1.1"}, "a long method": {400, strings.Repeat("G", 33) + " / HTTP/1.1"},
		"a whole URL": {400, "GET http://x/ HTTP/1.1"}, "a fragment": {400, "GET /#a HTTP/1.1"}, "no version": {400, "GET /"},
		"HTTP/2.0": {505, "GET / HTTP/2.0"}, "HTTP/1.2": {505, "GET / HTTP/1.2"}, "more after the version": {400, "GET / HTTP/1.1 "},
	} {
		if l, err := head.ParseRequestLine([]byte(c.line + "\r\n\r\n")); err == nil || err.Status != c.status {
			t.Errorf("%s: %+v, %v", name, l, err)
		}
	}
	for _, text := range []string{"HTTP/1.1 99 OK", "HTTP/1.1 099 OK", "HTTP/1.1 20", "HTTP/1.1 2000 OK", "HTTP/1.1  200", "HTTP/2.0 200 OK", "HTTP/1.1 200 O\x00K", "SSH-2.0-OpenSSH_9"} {
		if l, err := head.ParseStatusLine([]byte(text + "\r\n\r\n")); err == nil {
			t.Errorf("%q: %+v", text, l)
		}
	}
	for _, text := range []string{" a: b", "\ta: b", ": b", "a : b", "a", "a\x00: b", "ä: b", "a: b\x00", "a: b\x7f", "a: b\rc: d", "a: b\r", "\ra: b", "a: 12345678\x7f90"} {
		if list, _, err := fields([]byte(text+"\r\n\r\n"), 0); err == nil {
			t.Errorf("%q: %q", text, list)
		}
	}
}

func TestComplete_BoundsTheHead(t *testing.T) {
	for text, want := range map[string]struct {
		ok     bool
		status int
	}{
		"":                                      {},
		"GET":                                   {},
		"a\r\n":                                 {},
		"a\n":                                   {status: 400},
		"\n":                                    {status: 400},
		request:                                 {ok: true},
		response:                                {ok: true},
		strings.Repeat("a", 100):                {status: 431},
		strings.Repeat("a", 97) + "\r\n\r\n":    {status: 431},
		strings.Repeat("a", 96) + "\r\n\r\nabc": {ok: true},
	} {
		ok, err := head.Complete([]byte(text), 100)
		if ok != want.ok || (err != nil) != (want.status != 0) || err != nil && err.Status != want.status {
			t.Errorf("%q: %v, %v", text, ok, err)
		}
	}
}

func TestScan_DoesNotAllocate(t *testing.T) {
	b := []byte(request)
	if n := testing.AllocsPerRun(100, func() {
		if ok, err := head.Complete(b, len(b)); !ok || err != nil {
			t.Fatal(err)
		}
		l, _ := head.ParseRequestLine(b)
		var f head.Field
		for at, last := l.End, false; !last; at = int(f.End) {
			last, _ = f.Scan(b, at)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzHead compares with the standard library: what is accepted here means the same there.
func FuzzHead(f *testing.F) {
	for _, text := range []string{request, response, "OPTIONS * HTTP/1.0\r\n\r\n", "GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", "a: b\x7f\r\n\r\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		const most = 1 << 10
		ok, err := head.Complete(b, most)
		for n := range min(len(b), 200) { // once complete or refused, so with whatever follows
			if before, beforeErr := head.Complete(b[:n], most); before && !ok || beforeErr != nil && !ok && err == nil {
				t.Fatalf("%v, %v; of the first %d bytes %v, %v", ok, err, n, before, beforeErr)
			}
		}
		if !ok {
			return
		}
		if l, err := head.ParseRequestLine(b); err == nil {
			want := string(l.Method(b)) + " " + string(l.Target(b)) + " HTTP/1." + string('0'+l.Minor) + "\r\n"
			if string(b[:l.End]) != want {
				t.Fatalf("%q, not %q", b[:l.End], want)
			}
			checkFields(t, b, l.End)
		}
		if l, err := head.ParseStatusLine(b); err == nil {
			r, err := http.ReadResponse(bufio.NewReader(strings.NewReader(string(b[:l.End])+"\r\n")), nil)
			if err != nil || r.StatusCode != l.Status || r.ProtoMinor != int(l.Minor) {
				t.Fatalf("%q: %+v; net/http: %+v, %v", b[:l.End], l, r, err)
			}
			checkFields(t, b, l.End)
		}
		checkFields(t, b, 0)
	})
}

// checkFields compares the fields of b from at on with those that net/textproto reads.
func checkFields(t *testing.T, b []byte, at int) {
	list, end, err := fields(b, at)
	if err != nil {
		return
	}
	theirs, e := textproto.NewReader(bufio.NewReader(bytes.NewReader(b[at:end]))).ReadMIMEHeader()
	if e != nil {
		t.Fatalf("%q: net/textproto: %v", b[at:end], e)
	}
	n := 0
	for _, values := range theirs {
		n += len(values)
	}
	if n != len(list) {
		t.Fatalf("%q; net/textproto: %q", list, theirs)
	}
	for _, l := range list {
		name := textproto.CanonicalMIMEHeaderKey(l.name)
		if len(theirs[name]) == 0 || theirs[name][0] != l.value {
			t.Fatalf("%q; net/textproto: %q", list, theirs)
		}
		theirs[name] = theirs[name][1:]
	}
}

func BenchmarkScan(b *testing.B) {
	text := []byte("HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Sat, 21 Nov 2026 20:48:29 GMT\r\nContent-Type: text/html\r\nContent-Length: 16\r\nConnection: keep-alive\r\n\r\n")
	b.ReportAllocs()
	for b.Loop() {
		_, _ = head.Complete(text, len(text))
		l, _ := head.ParseStatusLine(text)
		var f head.Field
		for at, last := l.End, false; !last; at = int(f.End) {
			last, _ = f.Scan(text, at)
		}
	}
}
