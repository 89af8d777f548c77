package proxy_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/proxy"
)

const last = "GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

// smuggled are requests that servers read in different ways, or that none should accept.
var smuggled = map[string]string{
	"CL and TE":                  "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG",
	"TE and CL":                  "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
	"two CL":                     "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
	"two equal CL":               "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab",
	"CL list":                    "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2, 2\r\n\r\nab",
	"CL plus":                    "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: +2\r\n\r\nab",
	"CL negative":                "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: -2\r\n\r\nab",
	"CL hex":                     "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0x2\r\n\r\nab",
	"CL empty":                   "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n\r\nab",
	"CL huge":                    "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\nab",
	"CL with a blank":            "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1 2\r\n\r\nab",
	"space before colon":         "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length : 2\r\n\r\nab",
	"TE space before colon":      "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
	"TE twice":                   "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"TE list":                    "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
	"TE identity":                "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\n\r\n",
	"TE xchunked":                "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
	"TE quoted":                  "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n",
	"TE vertical tab":            "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: \vchunked\r\n\r\n0\r\n\r\n",
	"TE in HTTP/1.0":             "POST /a HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"TE folded":                  "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
	"folded line":                "GET /a HTTP/1.1\r\nHost: x\r\nX-A: b\r\n c\r\n\r\n",
	"folded first line":          "GET /a HTTP/1.1\r\n Host: x\r\nHost: y\r\n\r\n",
	"folded with a tab":          "GET /a HTTP/1.1\r\nHost: x\r\nX-A: b\r\n\tc\r\n\r\n",
	"bare CR in a value":         "GET /a HTTP/1.1\r\nHost: x\r\nX-A: b\rContent-Length: 5\r\n\r\n",
	"bare CR in a name":          "GET /a HTTP/1.1\r\nHost: x\r\nX-\rA: b\r\n\r\n",
	"bare CR ends the line":      "GET /a HTTP/1.1\r\nHost: x\r\nX-A: b\r\r\n\r\n",
	"bare LF":                    "GET /a HTTP/1.1\nHost: x\n\n",
	"bare LF in the middle":      "GET /a HTTP/1.1\r\nHost: x\nX-A: b\r\n\r\n",
	"NUL in a value":             "GET /a HTTP/1.1\r\nHost: x\r\nX-A: b\x00c\r\n\r\n",
	"NUL in a name":              "GET /a HTTP/1.1\r\nHost: x\r\nX\x00-A: b\r\n\r\n",
	"no colon":                   "GET /a HTTP/1.1\r\nHost: x\r\nX-A\r\n\r\n",
	"no name":                    "GET /a HTTP/1.1\r\nHost: x\r\n: b\r\n\r\n",
	"not ASCII in a name":        "GET /a HTTP/1.1\r\nHost: x\r\nX-Ä: b\r\n\r\n",
	"two Hosts":                  "GET /a HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
	"no Host":                    "GET /a HTTP/1.1\r\nX-A: b\r\n\r\n",
	"empty Host":                 "GET /a HTTP/1.1\r\nHost:\r\n\r\n",
	"Host with a path":           "GET /a HTTP/1.1\r\nHost: x/y\r\n\r\n",
	"Host with a user":           "GET /a HTTP/1.1\r\nHost: u@x\r\n\r\n",
	"absolute target":            "GET http://y/a HTTP/1.1\r\nHost: x\r\n\r\n",
	"no target":                  "GET  HTTP/1.1\r\nHost: x\r\n\r\n",
	"two spaces":                 "GET  /a HTTP/1.1\r\nHost: x\r\n\r\n",
	"space in the target":        "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
	"tab in the request line":    "GET\t/a HTTP/1.1\r\nHost: x\r\n\r\n",
	"fragment":                   "GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n",
	"target not ASCII":           "GET /ä HTTP/1.1\r\nHost: x\r\n\r\n",
	"no version":                 "GET /a\r\nHost: x\r\n\r\n",
	"blank line first":           "\r\nGET /a HTTP/1.1\r\nHost: x\r\n\r\n",
	"space first":                " GET /a HTTP/1.1\r\nHost: x\r\n\r\n",
	"Connection names Host":      "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close, Host\r\n\r\n",
	"Connection names CL":        "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nConnection: Content-Length\r\n\r\na",
	"Connection names nonsense":  "GET /a HTTP/1.1\r\nHost: x\r\nConnection: a b\r\n\r\n",
	"chunk size too large":       "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n100000000\r\nab\r\n0\r\n\r\n",
	"chunk size with a plus":     "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n+2\r\nab\r\n0\r\n\r\n",
	"chunk size with 0x":         "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0x2\r\nab\r\n0\r\n\r\n",
	"chunk size with a space":    "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2 \r\nab\r\n0\r\n\r\n",
	"chunk ends with LF":         "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\nab\r\n0\r\n\r\n",
	"chunk is longer":            "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
	"chunk is shorter":           "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab\r\n0\r\n\r\n",
	"no chunk size":              "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n\r\nab\r\n0\r\n\r\n",
	"LF in a chunk extension":    "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2;\nxx\r\nab\r\n0\r\n\r\n",
	"trailer":                    "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nHost: y\r\n\r\n",
	"bytes after the last chunk": "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nab\r\n",
}

// others are requests that are refused with another status.
var others = map[string]struct {
	status int
	raw    string
}{
	"HTTP/2.0":         {505, "GET /a HTTP/2.0\r\nHost: x\r\n\r\n"},
	"HTTP/1.2":         {505, "GET /a HTTP/1.2\r\nHost: x\r\n\r\n"},
	"upgrade":          {501, "GET /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"},
	"upgrade alone":    {501, "GET /a HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\n\r\n"},
	"CONNECT":          {501, "CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n"},
	"TRACE":            {501, "TRACE /a HTTP/1.1\r\nHost: x\r\n\r\n"},
	"expects":          {417, "GET /a HTTP/1.1\r\nHost: x\r\nExpect: miracles\r\n\r\n"},
	"too many fields":  {431, "GET /a HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("A: b\r\n", 100) + "\r\n"},
	"too long a field": {431, "GET /a HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("b", 17<<10) + "\r\n\r\n"},
	"too long a line":  {431, "GET /" + strings.Repeat("b", 17<<10) + " HTTP/1.1\r\nHost: x\r\n\r\n"},
}

// chunkedFirst moves a connection to the standard path: what follows goes through validatingConn.
const chunkedFirst = "POST /first HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"

func TestServer_RefusesWhatCanBeReadInTwoWays(t *testing.T) {
	b := startBackend(t, echo)
	s := start(t, proxy.Config{}, b.addr)
	check := func(t *testing.T, raw string, status int) {
		for path, before := range map[string]string{"fast path": "", "fast path, second": "GET /first HTTP/1.1\r\nHost: x\r\n\r\n", "standard path": chunkedFirst} {
			got := s.exchange(t, before+raw+last)
			if before != "" {
				first, rest, ok := strings.Cut(got, "HTTP/1.1 "+fmt.Sprint(status))
				if !ok || strings.Contains(before, "GET") && !strings.Contains(first, "200 OK") {
					t.Errorf("%s: want %d at last, got %.300q", path, status, got)
					continue
				}
				got = "HTTP/1.1 " + fmt.Sprint(status) + rest
			}
			head, body, _ := strings.Cut(got, "\r\n\r\n")
			var e struct {
				Error struct{ Code, Message string }
			}
			if err := json.Unmarshal([]byte(body), &e); err != nil || e.Error.Code != "invalid_argument" || e.Error.Message == "" {
				t.Errorf("%s: body %.300q: %v", path, body, err)
			}
			if !strings.HasPrefix(head, fmt.Sprintf("HTTP/1.1 %d ", status)) || !strings.Contains(head, "X-Request-ID: ") ||
				!strings.Contains(head, "Traceparent: 00-") || !strings.Contains(head, "Connection: close") {
				t.Errorf("%s: head %.300q", path, head)
			}
		}
	}
	for name, raw := range smuggled {
		t.Run(name, func(t *testing.T) { check(t, raw, http.StatusBadRequest) })
	}
	for name, other := range others {
		t.Run(name, func(t *testing.T) { check(t, other.raw, other.status) })
	}
	for _, r := range b.requests() {
		if r.URL.Path != "/first" && !(r.URL.Path == "/a" && len(r.TransferEncoding) > 0) {
			t.Errorf("the backend got %s %s %v", r.Method, r.URL, r.Header)
		}
	}
}

// TestServer_ForwardsWhatIsPlain has unusual requests that are unambiguous.
func TestServer_ForwardsWhatIsPlain(t *testing.T) {
	t.Parallel()
	b := startBackend(t, echo)
	s := start(t, proxy.Config{}, b.addr)
	for name, tc := range map[string]struct{ raw, target, body string }{
		"plain":                              {"GET /a HTTP/1.1\r\nHost: x\r\n\r\n", "/a", ""},
		"query":                              {"GET /a?b=c&d HTTP/1.1\r\nHost: x\r\n\r\n", "/a?b=c&d", ""},
		"empty query":                        {"GET /a? HTTP/1.1\r\nHost: x\r\n\r\n", "/a?", ""},
		"escapes":                            {"GET /a%2fb%20c/%E4 HTTP/1.1\r\nHost: x\r\n\r\n", "/a%2fb%20c/%E4", ""},
		"two slashes":                        {"GET //y/../a HTTP/1.1\r\nHost: x\r\n\r\n", "//y/../a", ""},
		"asterisk":                           {"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", "*", ""},
		"body":                               {"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabcde", "/a", "abcde"},
		"no body":                            {"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", "/a", ""},
		"GET with a body":                    {"GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab", "/a", "ab"},
		"chunks":                             {"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n", "/a", "ab0123456789"},
		"CHUNKED":                            {"POST /a HTTP/1.1\r\nHost: x\r\ntransfer-encoding:CHUNKED \r\n\r\n1\r\na\r\n00\r\n\r\n", "/a", "a"},
		"HTTP/1.0":                           {"GET /a HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n", "/a", ""},
		"long body":                          {"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("b", 100000), "/a", strings.Repeat("b", 100000)},
		"body at the limit of the fast path": {"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 16384\r\n\r\n" + strings.Repeat("b", 16384), "/a", strings.Repeat("b", 16384)},
		"odd method":                         {"PROPFIND /a HTTP/1.1\r\nHost: x\r\n\r\n", "/a", ""},
		"IPv6":                               {"GET /a HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", "/a", ""},
		"bytes in a value":                   {"GET /a HTTP/1.1\r\nHost: x\r\nX-A: \xe4\t \"\\,;\r\n\r\n", "/a", ""},
	} {
		for path, before := range map[string]string{"fast path": "", "standard path": chunkedFirst} {
			for _, cut := range []int{0, 1, len(tc.raw) / 2, len(tc.raw) - 1} {
				got := s.exchange(t, before+tc.raw[:cut], tc.raw[cut:]+last)
				want := "X-Target: " + tc.target + "\r\n"
				if !strings.Contains(got, want) || !strings.Contains(got, "\r\n\r\n"+tc.body) || !strings.Contains(got, "X-Target: /last") {
					t.Errorf("%s, %s, cut at %d: %.300q", name, path, cut, got)
				}
			}
		}
	}
	s.idle(t)
}
