package live_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/front/httpapi"
	"github.com/isotone/isotone/internal/live"
)

const small = `{"a":1}` // gzip would make it larger

var large = `{"a":"` + strings.Repeat("abc ", 1000) + `"}`

// pair returns a set with both, loaded.
func pair(t testing.TB, change func(*live.Config)) *live.Set {
	t.Helper()
	cfg := live.Config{Interval: time.Hour, Sources: []live.Source{
		newVariable(small).source("small"), newVariable(large).source("large"), newVariable("{").source("broken"),
	}}
	if change != nil {
		change(&cfg)
	}
	s := open(t, cfg)
	reads(t, s, "small", small)
	reads(t, s, "large", large)
	return s
}

func gunzip(t testing.TB, b []byte) string {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestHandler_Get(t *testing.T) {
	s := pair(t, nil)
	plain, zipped := s.Lookup("large").ETag(), ask(s, "GET", "/live/large", "Accept-Encoding", "gzip").Header().Get("Etag")
	if plain == zipped || len(plain) != 34 || len(zipped) != 34 {
		t.Fatalf("tags %s, %s", plain, zipped)
	}
	for _, tt := range []struct {
		method, target string
		fields         []string
		status         int
		body           string // "" if none
		encoding, tag  string
	}{
		{"GET", "/live/large", nil, 200, large, "", plain},
		{"GET", "/live/large?_=1", nil, 200, large, "", plain},
		{"HEAD", "/live/large", nil, 200, "", "", plain},
		{"GET", "/live/large", []string{"Accept-Encoding", "gzip"}, 200, large, "gzip", zipped},
		{"HEAD", "/live/large", []string{"Accept-Encoding", "gzip"}, 200, "", "gzip", zipped},
		{"GET", "/live/large", []string{"Accept-Encoding", "br", "Accept-Encoding", "gzip;q=0.1"}, 200, large, "gzip", zipped},
		{"GET", "/live/large", []string{"Accept-Encoding", "gzip;q=0"}, 200, large, "", plain},
		{"GET", "/live/large", []string{"Accept-Encoding", "identity;q=0"}, 200, large, "", plain},
		{"GET", "/live/small", []string{"Accept-Encoding", "gzip"}, 200, small, "", s.Lookup("small").ETag()},
		{"GET", "/live/large", []string{"If-None-Match", plain}, 304, "", "", plain},
		{"HEAD", "/live/large", []string{"If-None-Match", plain}, 304, "", "", plain},
		{"GET", "/live/large", []string{"If-None-Match", "*"}, 304, "", "", plain},
		{"GET", "/live/large", []string{"If-None-Match", `"x", W/` + plain}, 304, "", "", plain},
		{"GET", "/live/large", []string{"If-None-Match", `"x"`, "If-None-Match", plain}, 304, "", "", plain},
		{"GET", "/live/large", []string{"If-None-Match", zipped}, 200, large, "", plain},
		{"GET", "/live/large", []string{"If-None-Match", zipped, "Accept-Encoding", "gzip"}, 304, "", "", zipped},
		{"GET", "/live/large", []string{"If-None-Match", plain, "Accept-Encoding", "gzip"}, 200, large, "gzip", zipped},
		{"GET", "/live/large", []string{"If-None-Match", `"x"`}, 200, large, "", plain},
		{"GET", "/live/large", []string{"Range", "bytes=0-1"}, 200, large, "", plain},
	} {
		w := ask(s, tt.method, tt.target, tt.fields...)
		h, body := w.Header(), w.Body.String()
		if h.Get("Content-Encoding") == "gzip" && body != "" {
			body = gunzip(t, w.Body.Bytes())
		}
		if w.Code != tt.status || body != tt.body || h.Get("Content-Encoding") != tt.encoding || h.Get("Etag") != tt.tag {
			t.Errorf("%s %s %q: %d %.20q %v", tt.method, tt.target, tt.fields, w.Code, body, h)
		}
		if h.Get("Vary") != "Accept-Encoding" || h.Get("Cache-Control") != "max-age=3600" || h.Get("Age") != "" {
			t.Errorf("%s %s %q: %v", tt.method, tt.target, tt.fields, h)
		}
		if tt.status == 200 && (h.Get("Content-Type") != "application/json" || h.Get("Content-Length") == "") {
			t.Errorf("%s %s %q: %v", tt.method, tt.target, tt.fields, h)
		}
	}
}

func TestHandler_Faults(t *testing.T) {
	s := pair(t, func(c *live.Config) { c.Interval = 1500 * time.Millisecond })
	for _, tt := range []struct {
		method, target string
		status         int
		code           isotone.Code
	}{
		{"GET", "/live/other", 404, isotone.CodeNotFound},
		{"GET", "/live/other/stream", 404, isotone.CodeNotFound},
		{"GET", "/live/", 404, isotone.CodeNotFound},
		{"GET", "/live/small/", 404, isotone.CodeNotFound},
		{"GET", "/live/small/other", 404, isotone.CodeNotFound},
		{"GET", "/live/SMALL", 404, isotone.CodeNotFound},
		{"GET", "/other/small", 404, isotone.CodeNotFound},
		{"POST", "/live/other", 404, isotone.CodeNotFound},
		{"POST", "/live/small", 405, isotone.CodeInvalidArgument},
		{"DELETE", "/live/small/stream", 405, isotone.CodeInvalidArgument},
		{"GET", "/live/broken", 503, isotone.CodeOverloaded},
		{"HEAD", "/live/broken", 503, isotone.CodeOverloaded},
	} {
		w := ask(s, tt.method, tt.target)
		h := w.Header()
		var body struct {
			Error struct{ Code, Message string }
		}
		if tt.method != "HEAD" {
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
				t.Errorf("%s: %v", tt.target, err)
			}
			if want := httpapi.Body(tt.code, body.Error.Message); body.Error.Message == "" || !bytes.Equal(w.Body.Bytes(), want) {
				t.Errorf("%s: %s, want %s", tt.target, w.Body, want)
			}
		}
		if w.Code != tt.status || h.Get("Content-Type") != "application/json" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s %s: %d %v", tt.method, tt.target, w.Code, h)
		}
		if (h.Get("Allow") == "GET, HEAD, OPTIONS") != (tt.status == 405) || (h.Get("Retry-After") == "2") != (tt.status == 503) {
			t.Errorf("%s %s: %v", tt.method, tt.target, h)
		}
	}
}

func TestHandler_CacheControlIsTheInterval(t *testing.T) {
	for interval, want := range map[time.Duration]string{
		100 * time.Millisecond: "no-cache", 999 * time.Millisecond: "no-cache", time.Second: "max-age=1", 2500 * time.Millisecond: "max-age=2",
	} {
		s := pair(t, func(c *live.Config) { c.Interval = interval })
		if got := ask(s, "GET", "/live/small").Header().Get("Cache-Control"); got != want {
			t.Errorf("%v: %s, want %s", interval, got, want)
		}
		s.Close()
	}
}

func TestHandler_Origins(t *testing.T) {
	const ours, other = "https://a.example", "https://b.example"
	for _, tt := range []struct {
		allowed []string
		origin  string
		want    string // Access-Control-Allow-Origin
		vary    bool
	}{
		{nil, ours, "", false},
		{[]string{"*"}, ours, "*", false},
		{[]string{"*"}, "", "*", false},
		{[]string{ours, "http://c"}, ours, ours, true},
		{[]string{ours, "http://c"}, other, "", true},
		{[]string{ours, "http://c"}, "", "", true},
		{[]string{ours}, "https://a.example.evil", "", true},
		{[]string{ours}, "null", "", true},
	} {
		s := pair(t, func(c *live.Config) { c.Origins = tt.allowed })
		for _, target := range []string{"GET /live/small", "HEAD /live/large", "GET /live/broken", "GET /live/other", "POST /live/small", "HEAD /live/small/stream", "OPTIONS /live/small", "OPTIONS /live/small/stream"} {
			method, path, _ := strings.Cut(target, " ")
			r := httptest.NewRequest(method, path, nil)
			if tt.origin != "" {
				r.Header.Set("Origin", tt.origin)
			}
			w := &deadlined{ResponseRecorder: httptest.NewRecorder()}
			s.Handler().ServeHTTP(w, r)
			h := w.Header()
			if got := h.Get("Access-Control-Allow-Origin"); got != tt.want {
				t.Errorf("%v, %s from %q: %q, want %q", tt.allowed, target, tt.origin, got, tt.want)
			}
			if vary := strings.Join(h.Values("Vary"), ", "); strings.Contains(vary, "Origin") != tt.vary || strings.Count(vary, "Origin") > 1 {
				t.Errorf("%v, %s: Vary %q", tt.allowed, target, vary)
			}
			if got := h.Get("Access-Control-Expose-Headers"); (got == "ETag, Age") != (tt.want != "") {
				t.Errorf("%v, %s: exposed %q", tt.allowed, target, got)
			}
			preflight := method == "OPTIONS" && tt.want != ""
			if (h.Get("Access-Control-Allow-Methods") != "") != preflight || method == "OPTIONS" && (w.Code != 204 || h.Get("Allow") == "") {
				t.Errorf("%v, %s: %d %v", tt.allowed, target, w.Code, h)
			}
		}
		s.Close()
	}
}

// deadlined is a recorder that can have a stream.
type deadlined struct{ *httptest.ResponseRecorder }

func (deadlined) SetWriteDeadline(time.Time) error { return nil }

// TestResponse_IsWhatNetHTTPSays compares the answers that stand ready with those of
// the handler on a server.
func TestResponse_IsWhatNetHTTPSays(t *testing.T) {
	t.Parallel()
	for _, allowed := range [][]string{nil, {"*"}, {"https://a.example"}} {
		v := newVariable(large)
		s := open(t, live.Config{Interval: time.Second, Origins: allowed, Sources: []live.Source{v.source("doc")}})
		reads(t, s, "doc", large)
		server := httptest.NewServer(s.Handler())
		compare := func(what string) {
			for _, fields := range []string{"", "Accept-Encoding: gzip\r\n"} {
				plain := s.Lookup("doc").Response(fields != "", true, "")
				tag := headOf(t, plain).Get("Etag")
				for _, method := range []string{"GET", "HEAD"} {
					for _, none := range []string{"", `"x"`, tag} {
						ready := s.Lookup("doc").Response(fields != "", method == "HEAD", none)
						want := exchange(t, server.Listener.Addr().String(), fmt.Sprintf("%s /live/doc HTTP/1.1\r\nHost: a\r\n%sIf-None-Match: %s\r\n\r\n", method, fields, none), method)
						got := readAnswer(t, ready, method)
						if got != want {
							t.Errorf("%s, %v, %s %q %q:\n got %s\nwant %s", what, allowed, method, fields, none, got, want)
						}
					}
				}
			}
		}
		compare("fresh")
		v.fail(errGone)
		await.Until(t, "it to be stale", func() bool { _, stale := s.Lookup("doc").Age(); return stale })
		compare("stale")
		server.Close()
		s.Close()
	}
}

func headOf(t testing.TB, b []byte) http.Header {
	t.Helper()
	r, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(b)), &http.Request{Method: "HEAD"})
	if err != nil {
		t.Fatal(err)
	}
	return r.Header
}

// exchange sends a request to a server and returns what readAnswer does of the answer.
func exchange(t testing.TB, addr, request, method string) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, strings.Replace(request, "Host:", "Connection: close\r\nHost:", 1)); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return readAnswer(t, bytes.Replace(b, []byte("Connection: close\r\n"), nil, 1), method)
}

// readAnswer reads an answer and spells it, with sorted fields. Of date and age, which
// go on, it only says that they are well formed.
func readAnswer(t testing.TB, b []byte, method string) string {
	t.Helper()
	reader := bufio.NewReader(bytes.NewReader(b))
	r, err := http.ReadResponse(reader, &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%q: %v", b, err)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || reader.Buffered() > 0 {
		t.Fatalf("%q: %v, %d bytes too many", b, err, reader.Buffered())
	}
	date, err := http.ParseTime(r.Header.Get("Date"))
	if away := time.Since(date); err != nil || away < -time.Second || away > patience {
		t.Errorf("the date %q is %v away: %v", r.Header.Get("Date"), away, err)
	}
	r.Header.Set("Date", "well formed")
	if age := r.Header.Get("Age"); age != "" && strings.Trim(age, "0123456789") == "" {
		r.Header.Set("Age", "well formed")
	}
	text := r.Proto + " " + r.Status + fmt.Sprintf(" %d bytes\n", r.ContentLength)
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		text += fmt.Sprintf("%s: %q\n", name, r.Header[name])
	}
	return text + fmt.Sprintf("%x", body)
}

func TestResponse_OfMoreThanTheLimitIsLeftToTheHandler(t *testing.T) {
	random := make([]byte, live.ReadyBytesMax/4)
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	fits := `"` + strings.Repeat("x", live.ReadyBytesMax-2) + `"`
	beyond := `"` + strings.Repeat("x", live.ReadyBytesMax-1) + `"`
	noise := fmt.Sprintf(`"%x%x%x%x%x%x"`, random, random, random, random, random, random) // repeats beyond the window
	s := open(t, live.Config{Interval: time.Hour, Sources: []live.Source{
		newVariable(fits).source("fits"), newVariable(beyond).source("beyond"), newVariable(noise).source("noise"),
	}})
	for name, text := range map[string]string{"fits": fits, "beyond": beyond, "noise": noise} {
		reads(t, s, name, text)
		d := s.Lookup(name)
		if got := d.Response(false, false, ""); (got != nil) != (name == "fits") {
			t.Errorf("%s: %d bytes stand ready", name, len(got))
		}
		if got := d.Response(true, false, ""); (got != nil) != (name != "noise") {
			t.Errorf("%s, gzip: %d bytes stand ready", name, len(got))
		}
		if d.Response(false, true, "") == nil || d.Response(false, false, d.ETag()) == nil {
			t.Errorf("%s: HEAD or 304 does not stand ready", name)
		}
		if w := ask(s, "GET", "/live/"+name); w.Body.String() != text {
			t.Errorf("%s: %d bytes", name, w.Body.Len())
		}
	}
}

func TestResponse_CannotBeAppendedTo(t *testing.T) {
	d := pair(t, nil).Lookup("large")
	whole := string(d.Response(true, false, ""))
	for _, b := range [][]byte{d.Response(true, false, ""), d.Response(true, true, ""), d.Response(true, false, "*")} {
		_ = append(b, "overwritten"...)
	}
	if string(d.Response(true, false, "")) != whole {
		t.Error("an append writes into a shared answer")
	}
}

func TestLookup_AllocatesNothing(t *testing.T) {
	s := pair(t, nil)
	d := s.Lookup("large")
	none := `"x", W/"y", ` + d.ETag()
	if got := testing.AllocsPerRun(100, func() {
		d := s.Lookup("large")
		if len(d.Response(acceptsGzip("br;q=0.5, gzip;q=0.9"), false, "")) == 0 || len(d.Response(false, false, none)) == 0 {
			t.Fatal("no answer")
		}
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

// acceptsGzip has the call as the fast path makes it.
func acceptsGzip(line string) bool { return live.AcceptsGzip(line) }
