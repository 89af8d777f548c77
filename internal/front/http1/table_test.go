package http1_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
)

// reply is one answer as a client understands it.
type reply struct {
	Status string
	Header http.Header
	Body   string
	Close  bool
}

var dates = regexp.MustCompile(`\r\nDate: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT\r\n`)

// read takes what a server has sent apart.
func read(got string) (replies []reply, rest string) {
	got = dates.ReplaceAllString(got, "\r\nDate: now\r\n")
	in := bufio.NewReader(strings.NewReader(got))
	for {
		response, err := http.ReadResponse(in, nil)
		if err != nil {
			tail, _ := io.ReadAll(in)
			return replies, string(tail)
		}
		body, err := io.ReadAll(response.Body)
		if err != nil {
			body = append(body, err.Error()...)
		}
		replies = append(replies, reply{response.Proto + " " + response.Status, response.Header, string(body), response.Close})
	}
}

// sentinel shows whether a connection still takes requests, and ends it.
const sentinel = "GET /up HTTP/1.1\r\nHost: sentinel\r\nConnection: close\r\n\r\n"

const plain = "GET /timestamp HTTP/1.1\r\nHost: x\r\n\r\n"

// with is a request with header fields.
func with(fields ...string) string {
	return "GET /timestamp HTTP/1.1\r\nHost: x\r\n" + strings.Join(fields, "\r\n") + "\r\n\r\n"
}

// of is a request for a target.
func of(target string) string { return "GET " + target + " HTTP/1.1\r\nHost: x\r\n\r\n" }

// hotRequests are answered by the fast path.
var hotRequests = map[string]string{
	"plain":                   plain,
	"n":                       of("/timestamp?n=2"),
	"n is 64":                 of("/timestamp?n=64"),
	"empty query":             of("/timestamp?"),
	"empty pairs":             of("/timestamp?&&"),
	"unknown parameters":      of("/timestamp?x=1&y&z="),
	"range":                   of("/timestamp?format=range"),
	"largest range":           of("/timestamp?n=4294967296&format=range"),
	"json":                    of("/timestamp?format=json"),
	"json of 8":               of("/timestamp?format=json&n=8"),
	"u64":                     of("/timestamp?format=u64"),
	"u64 of 64":               of("/timestamp?n=64&format=u64&mode=lease"),
	"u64, accepts json":       "GET /timestamp?n=8&format=u64 HTTP/1.1\r\nAccept: application/json\r\nHost: x\r\n\r\n",
	"u64 above a floor":       of("/timestamp?format=u64&floor=12345678901234567890"),
	"u64 among others":        plain + of("/timestamp?format=u64") + of("/timestamp?format=u64&n=2") + plain,
	"quorum":                  of("/timestamp?mode=quorum"),
	"lease":                   of("/timestamp?mode=lease&n=3&format=range"),
	"floor":                   of("/timestamp?floor=0123456789abcdef00000000000000FF&n=2"),
	"floors":                  plain + of("/timestamp?floor=0123456789abcdef00000000000000ff") + of("/timestamp?floor=0123456789abcdef00000000000000ff") + of("/timestamp?floor=0123456789abcdef00000000000000ff&mode=lease") + plain,
	"timelines":               plain + of("/timestamp?timeline=a") + of("/timestamp?timeline=a&n=2&format=json") + of("/timestamp?format=u64&timeline=b") + plain,
	"accepts json":            with("Accept: application/json"),
	"accepts anything":        with("Accept: */*"),
	"accepts octets":          with("Accept: application/octet-stream"),
	"prefers json":            with("Accept: application/octet-stream;q=0.5, application/json, */*;q=0.1"),
	"prefers octets":          with("Accept: application/json;q=0.5, application/octet-stream"),
	"accepts nonsense":        with("Accept: ,;q=;=/"),
	"accepts json, range":     "GET /timestamp?format=range HTTP/1.1\r\nAccept: application/json\r\nHost: x\r\n\r\n",
	"accepts nothing":         with("Accept:"),
	"keep-alive":              with("Connection: keep-alive"),
	"Keep-Alive":              with("CONNECTION:  Keep-Alive\t "),
	"curl":                    "GET /timestamp HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n\r\n",
	"Go":                      "GET /timestamp HTTP/1.1\r\nHost: [::1]:8080\r\nUser-Agent: Go-http-client/1.1\r\nAccept-Encoding: gzip\r\n\r\n",
	"python":                  with("User-Agent: python-requests/2.28", "Accept-Encoding: gzip, deflate", "Accept: */*", "Connection: keep-alive"),
	"browser":                 with("Cache-Control: no-cache", "Pragma: no-cache", "Accept-Language: en", "Accept: text/html,*/*;q=0.8"),
	"traced":                  with("traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate: a=b", "Baggage: x=y"),
	"proxied":                 with("Via: 1.1 p", "X-Forwarded-For: 10.0.0.1", "X-Forwarded-Proto: https", "Forwarded: for=x", "X-Real-IP: 1.2.3.4"),
	"no space, many spaces":   "GET /timestamp HTTP/1.1\r\nHost:x\r\nUser-Agent: \t  a \t b \t \r\n\r\n",
	"lower-case names":        "GET /timestamp HTTP/1.1\r\nhost: x\r\nuser-agent: y\r\n\r\n",
	"Host comes last":         "GET /timestamp HTTP/1.1\r\nUser-Agent: y\r\nHost: x\r\n\r\n",
	"ignored twice":           with("Via: a", "Via: b", "Via:"),
	"all visible bytes":       with("User-Agent: !\"#$%&'()*+,-./09:;<=>?@AZ[\\]^_`az{|}~"),
	"two":                     plain + plain,
	"twenty":                  strings.Repeat(plain, 20),
	"kinds":                   plain + of("/timestamp?n=5") + of("/timestamp?format=json&n=2") + of("/timestamp?format=range&n=9") + plain,
	"modes":                   plain + of("/timestamp?mode=lease") + of("/timestamp?mode=lease") + of("/timestamp?mode=quorum") + plain,
	"more than one batch has": strings.Repeat(plain, 1500),
	"id":                      of("/api/snowflake"),
	"ids":                     of("/api/snowflake?n=64"),
	"ids in json":             of("/api/snowflake?n=2&format=json&x=y"),
	"ids, accepts json":       "GET /api/snowflake HTTP/1.1\r\nHost: x\r\nAccept: application/json\r\n\r\n",
	"state":                   of("/state"),
	"live state":              of("/live/state"),
	"document":                of("/live/scores-1"),
	"document, gzip":          "GET /live/scores-1 HTTP/1.1\r\nHost: x\r\nAccept-Encoding: deflate, gzip;q=0.5\r\n\r\n",
	"document, no gzip":       "GET /live/scores-1 HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip;q=0\r\n\r\n",
	"document, empty coding":  "GET /live/scores-1 HTTP/1.1\r\nHost: x\r\nAccept-Encoding:\r\n\r\n",
	"document that is tiny":   "GET /live/tiny HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n",
	"document of any tag":     "GET /live/tiny HTTP/1.1\r\nHost: x\r\nIf-None-Match: *\r\n\r\n",
	"document of other tag":   "GET /live/tiny HTTP/1.1\r\nHost: x\r\nIf-None-Match: \"x\", W/\"y\"\r\n\r\n",
	"document of no tag":      "GET /live/tiny HTTP/1.1\r\nHost: x\r\nIf-None-Match:\r\n\r\n",
	"documents between":       plain + of("/state") + of("/api/snowflake") + of("/live/tiny") + plain,
	"ids between":             plain + of("/api/snowflake") + of("/api/snowflake") + plain + of("/api/snowflake?n=2"),
	"reading":                 of("/interval"),
	"reading with a nonce":    of("/interval?nonce=18446744073709551615&x=y"),
	"reading in json":         of("/interval?format=json&nonce=5"),
	"reading, accepts json":   "GET /interval?nonce=5 HTTP/1.1\r\nHost: x\r\nAccept: application/json\r\n\r\n",
	"readings between":        plain + of("/interval?nonce=1") + of("/api/snowflake") + of("/interval?nonce=2") + plain,
	"many readings":           strings.Repeat(of("/interval?nonce=3"), 1500),
	"close":                   with("Connection: close"),
	"close and keep-alive":    with("Connection: keep-alive", "Connection: Close"),
	"hot, then close":         plain + plain + with("Connection: close") + plain,
	"an ID, then close":       of("/api/snowflake") + "GET /api/snowflake HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" + plain,
	"a document, then close":  plain + "GET /live/tiny HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" + of("/live/tiny"),
	"close before a cold one": with("Connection: close") + of("/up"),
	"more ids than one batch": strings.Repeat(of("/api/snowflake"), 1500),
}

// coldRequests are left to the standard servers, as a whole or after some hot ones.
var coldRequests = map[string]string{
	"up":                       of("/up"),
	"ready":                    of("/ready"),
	"members":                  of("/members"),
	"unknown path":             of("/nowhere"),
	"root":                     of("/"),
	"longer path":              of("/timestamps"),
	"longer path of ids":       of("/api/snowflakes"),
	"path above ids":           of("/api"),
	"ids of a mode":            of("/api/snowflake?mode=x"),
	"ids in a range":           of("/api/snowflake?format=range"),
	"65 ids":                   of("/api/snowflake?n=65"),
	"65537 ids":                of("/api/snowflake?n=65537"),
	"ids by HEAD":              "HEAD /api/snowflake HTTP/1.1\r\nHost: x\r\n\r\n",
	"document of two tags":     "GET /live/tiny HTTP/1.1\r\nHost: x\r\nIf-None-Match: a\r\nIf-None-Match: *\r\n\r\n",
	"document, two codings":    "GET /live/scores-1 HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip;q=0\r\nAccept-Encoding: gzip\r\n\r\n",
	"document with a query":    of("/live/tiny?x=y"),
	"document of an origin":    "GET /live/tiny HTTP/1.1\r\nHost: x\r\nOrigin: http://a\r\n\r\n",
	"document by HEAD":         "HEAD /live/tiny HTTP/1.1\r\nHost: x\r\n\r\n",
	"document by POST":         "POST /live/tiny HTTP/1.1\r\nHost: x\r\n\r\n",
	"preflight":                "OPTIONS /live/tiny HTTP/1.1\r\nHost: x\r\nOrigin: http://a\r\nAccess-Control-Request-Method: GET\r\n\r\n",
	"no document":              of("/live/nothing"),
	"no document's name":       of("/live/"),
	"document never loaded":    of("/live/never"),
	"document, long name":      of("/live/" + strings.Repeat("a", 65)),
	"document, bad name":       of("/live/a_b"),
	"states":                   of("/states"),
	"hot, then large document": of("/live/tiny") + plain + of("/live/large"),
	"tag for a timestamp":      "GET /timestamp HTTP/1.1\r\nHost: x\r\nIf-None-Match: \"x\"\r\n\r\n",
	"id, then up":              of("/api/snowflake") + of("/up"),
	"path below":               of("/timestamp/"),
	"two slashes":              of("//timestamp"),
	"dots":                     of("/./timestamp"),
	"fragment":                 of("/timestamp#x"),
	"fragment in the query":    of("/timestamp?n=1#x"),
	"semicolon":                of("/timestamp;n=1"),
	"escaped path":             of("/%74imestamp"),
	"escaped query":            of("/timestamp?%6e=2"),
	"plus in the query":        of("/timestamp?x=+"),
	"bad escape":               of("/timestamp?n=%"),
	"semicolon in the query":   of("/timestamp?n=1;n=2"),
	"n is 0":                   of("/timestamp?n=0"),
	"n is empty":               of("/timestamp?n="),
	"n twice":                  of("/timestamp?n=1&n=1"),
	"n has a zero":             of("/timestamp?n=01"),
	"n is too large":           of("/timestamp?n=65537"),
	"range is too large":       of("/timestamp?n=4294967297&format=range"),
	"bad format":               of("/timestamp?format=xml"),
	"u64 of too many":          of("/timestamp?format=u64&n=65537"),
	"u64 of 65":                of("/timestamp?format=u64&n=65"),
	"u64 of 9 in json":         "GET /timestamp?n=9&format=u64 HTTP/1.1\r\nAccept: application/json\r\nHost: x\r\n\r\n",
	"bad decimal floor":        of("/timestamp?floor=18446744073709551616"),
	"bad mode":                 of("/timestamp?mode=fast"),
	"bad floor":                of("/timestamp?floor=1"),
	"floor twice":              of("/timestamp?floor=0123456789abcdef00000000000000ff&floor=0123456789abcdef00000000000000ff"),
	"escaped floor":            of("/timestamp?fl%6For=0123456789abcdef00000000000000ff"),
	"n is 65":                  of("/timestamp?n=65"),
	"n is 65536":               of("/timestamp?n=65536"),
	"json of 9":                of("/timestamp?n=9&format=json"),
	"json of 1000":             of("/timestamp?n=1000&format=json"),
	"accepts json of 9":        "GET /timestamp?n=9 HTTP/1.1\r\nHost: x\r\nAccept: application/json\r\n\r\n",
	"accepts twice":            with("Accept: application/json", "Accept: application/octet-stream"),
	"HEAD":                     "HEAD /timestamp HTTP/1.1\r\nHost: x\r\n\r\n",
	"POST":                     "POST /timestamp HTTP/1.1\r\nHost: x\r\n\r\n",
	"DELETE":                   "DELETE /timestamp HTTP/1.1\r\nHost: x\r\n\r\n",
	"lower-case method":        "get /timestamp HTTP/1.1\r\nHost: x\r\n\r\n",
	"bad method":               "G(T /timestamp HTTP/1.1\r\nHost: x\r\n\r\n",
	"method like a command":    "PING /timestamp HTTP/1.1\r\nHost: x\r\n\r\n",
	"HTTP/1.0":                 "GET /timestamp HTTP/1.0\r\nHost: x\r\n\r\n",
	"HTTP/1.0, no Host":        "GET /timestamp HTTP/1.0\r\n\r\n",
	"HTTP/0.9":                 "GET /timestamp\r\n\r\n",
	"HTTP/1.2":                 "GET /timestamp HTTP/1.2\r\nHost: x\r\n\r\n",
	"HTTP/1.10":                "GET /timestamp HTTP/1.10\r\nHost: x\r\n\r\n",
	"HTTP/2.0 in text":         "GET /timestamp HTTP/2.0\r\nHost: x\r\n\r\n",
	"HTTP/9.9":                 "GET /timestamp HTTP/9.9\r\nHost: x\r\n\r\n",
	"lower-case version":       "GET /timestamp http/1.1\r\nHost: x\r\n\r\n",
	"no version":               "GET /timestamp \r\nHost: x\r\n\r\n",
	"two spaces":               "GET  /timestamp HTTP/1.1\r\nHost: x\r\n\r\n",
	"two later spaces":         "GET /timestamp  HTTP/1.1\r\nHost: x\r\n\r\n",
	"space after the version":  "GET /timestamp HTTP/1.1 \r\nHost: x\r\n\r\n",
	"space in the query":       "GET /timestamp?n= 1 HTTP/1.1\r\nHost: x\r\n\r\n",
	"tab":                      "GET\t/timestamp\tHTTP/1.1\r\nHost: x\r\n\r\n",
	"no slash":                 "GET timestamp HTTP/1.1\r\nHost: x\r\n\r\n",
	"absolute-form":            "GET http://other/timestamp HTTP/1.1\r\nHost: x\r\n\r\n",
	"asterisk":                 "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
	"asterisk for GET":         "GET * HTTP/1.1\r\nHost: x\r\n\r\n",
	"CONNECT":                  "CONNECT host:80 HTTP/1.1\r\nHost: host:80\r\n\r\n",
	"bare LF":                  "GET /timestamp HTTP/1.1\nHost: x\n\n",
	"bare LF in the end":       "GET /timestamp HTTP/1.1\r\nHost: x\r\n\n",
	"bare LF after a field":    "GET /timestamp HTTP/1.1\r\nHost: x\n\r\n",
	"bare CR":                  "GET /timestamp HTTP/1.1\rHost: x\r\r",
	"CR in a field":            with("User-Agent: a\rb"),
	"CR CR LF":                 "GET /timestamp HTTP/1.1\r\nHost: x\r\r\n\r\n",
	"blank line first":         "\r\n" + plain,
	"obs-fold":                 with("User-Agent: a", " b"),
	"obs-fold with a tab":      with("User-Agent: a", "\tb"),
	"obs-fold of Host":         "GET /timestamp HTTP/1.1\r\nHost:\r\n x\r\n\r\n",
	"folded at once":           "GET /timestamp HTTP/1.1\r\n Host: x\r\n\r\n",
	"no Host":                  "GET /timestamp HTTP/1.1\r\n\r\n",
	"no Host but others":       "GET /timestamp HTTP/1.1\r\nUser-Agent: x\r\n\r\n",
	"two Hosts":                "GET /timestamp HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
	"two equal Hosts":          "GET /timestamp HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n",
	"empty Host":               "GET /timestamp HTTP/1.1\r\nHost:\r\n\r\n",
	"Host with a space":        "GET /timestamp HTTP/1.1\r\nHost: a b\r\n\r\n",
	"Host with a slash":        "GET /timestamp HTTP/1.1\r\nHost: a/b\r\n\r\n",
	"Host with user":           "GET /timestamp HTTP/1.1\r\nHost: u@a\r\n\r\n",
	"Host with a comma":        "GET /timestamp HTTP/1.1\r\nHost: a,b\r\n\r\n",
	"Host with a zero":         "GET /timestamp HTTP/1.1\r\nHost: a\x00b\r\n\r\n",
	"close, keep-alive":        with("Connection: keep-alive, close"),
	"Connection of others":     with("Connection: X-A"),
	"upgrade":                  with("Connection: Upgrade", "Upgrade: websocket"),
	"h2c upgrade":              with("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA"),
	"cookie":                   with("Cookie: a=b"),
	"authorization":            with("Authorization: Basic YTpi"),
	"range":                    with("Range: bytes=0-3"),
	"If-None-Match":            with("If-None-Match: *"),
	"TE":                       with("TE: trailers"),
	"Trailer":                  with("Trailer: X"),
	"unknown field":            with("X: y"),
	"length 0":                 with("Content-Length: 0"),
	"length empty":             with("Content-Length:"),
	"length of a body":         with("Content-Length: 38") + plain,
	"length longer":            with("Content-Length: 1000") + plain,
	"length twice":             with("Content-Length: 0", "Content-Length: 38") + plain,
	"length list":              with("Content-Length: 0, 38") + plain,
	"length signed":            with("Content-Length: +38") + plain,
	"length negative":          with("Content-Length: -1") + plain,
	"length and chunked":       with("Content-Length: 5", "Transfer-Encoding: chunked") + "0\r\n\r\n" + plain,
	"chunked":                  with("Transfer-Encoding: chunked") + "0\r\n\r\n" + plain,
	"chunked, not 1.1":         "GET /timestamp HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n" + plain,
	"chunked with a tab":       with("Transfer-Encoding:\tchunked") + "0\r\n\r\n" + plain,
	"chunked with a space":     with("Transfer-Encoding : chunked") + "0\r\n\r\n" + plain,
	"chunked, hidden by a CR":  with("User-Agent: a\rTransfer-Encoding: chunked") + "0\r\n\r\n" + plain,
	"chunked, hidden by an LF": with("User-Agent: a\nTransfer-Encoding: chunked") + "0\r\n\r\n" + plain,
	"chunked, folded":          with("User-Agent: a", " Transfer-Encoding: chunked") + "0\r\n\r\n" + plain,
	"xchunked":                 with("Transfer-Encoding: xchunked") + "0\r\n\r\n" + plain,
	"chunked twice":            with("Transfer-Encoding: chunked", "Transfer-Encoding: identity") + "0\r\n\r\n" + plain,
	"expects 100":              with("Expect: 100-continue", "Content-Length: 3") + "abc",
	"expects the unheard-of":   with("Expect: miracles"),
	"field with a space":       with("User-Agent : x"),
	"field without a colon":    with("nothing"),
	"field without a name":     with(": y"),
	"field of high bytes":      with("User-Agent: caf\xc3\xa9"),
	"field with a zero":        with("User-Agent: a\x00b"),
	"field with DEL":           with("User-Agent: a\x7fb"),
	"name of high bytes":       with("\xffser-Agent: a"),
	"name that is long":        with(strings.Repeat("a", 5000) + ": b"),
	"value that is long":       with("User-Agent: " + strings.Repeat("a", 5000)),
	"values that are long":     with("Via: "+strings.Repeat("a", 2000), "Via: "+strings.Repeat("b", 2000), "Via: c"),
	"value beyond the limit":   with("User-Agent: " + strings.Repeat("a", 100_000)),
	"query that is long":       of("/timestamp?" + strings.Repeat("a", 5000)),
	"query beyond the limit":   of("/timestamp?" + strings.Repeat("a", 64<<10)),
	"many fields":              with(strings.Split(strings.Repeat("Via: a\n", 700)+"Via: b", "\n")...),
	"high byte in the query":   of("/timestamp?x=\xff"),
	"control in the query":     of("/timestamp?x=\x01"),
	"quote in the query":       of("/timestamp?x=\""),
	"nothing":                  "",
	"G":                        "G",
	"GET":                      "GET /timest",
	"first line only":          "GET /timestamp HTTP/1.1\r\n",
	"cut in the version":       "GET /timestamp HTTP/1.",
	"cut in a name":            "GET /timestamp HTTP/1.1\r\nHo",
	"cut in a value":           "GET /timestamp HTTP/1.1\r\nHost: x",
	"cut after a field":        "GET /timestamp HTTP/1.1\r\nHost: x\r\n",
	"cut in the end":           "GET /timestamp HTTP/1.1\r\nHost: x\r\n\r",
	"zeros":                    strings.Repeat("\x00", 100),
	"blank lines":              strings.Repeat("\r\n", 100),
	"garbage":                  garbage(5000),
	"endless method":           strings.Repeat("G", 64<<10),
	"TLS without TLS":          "\x16\x03\x01\x00\x05hello",
	"array":                    "*1\r\n$4\r\nPING\r\n",
	"star":                     "*",
	"inline command":           "PING\r\n",

	"hot, then up":             plain + of("/up"),
	"hot, then bad":            plain + plain + of("/timestamp?n=0") + plain,
	"hot, then cut":            plain + plain[:20],
	"hot, then cut in the end": plain + plain[:len(plain)-1],
	"hot, then garbage":        plain + garbage(100),
	"hot, then blank":          plain + "\r\n" + plain,
	"hot, then chunked":        plain + with("Transfer-Encoding: chunked") + "0\r\n\r\n" + plain,
	"hot, then too long":       plain + with("User-Agent: "+strings.Repeat("a", 5000)) + plain,
	"hot, then a large answer": plain + of("/timestamp?n=5000&format=json") + plain,
	"cold, then hot":           of("/up") + plain + plain,
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

// slow are those in coldRequests that only a timeout ends, heavy those with large answers.
var (
	slow  = []string{"length longer"}
	heavy = []string{"n is 65536", "json of 1000", "hot, then a large answer"}
)

// agree runs raw on both sites and compares what a client understands.
func agree(t *testing.T, alone, fronted *site, err error, halfClose bool, pieces ...string) {
	t.Helper()
	raw := strings.Join(pieces, "")
	alone.reset(err)
	wantReplies, wantRest := read(alone.exchange(t, halfClose, raw))
	fronted.reset(err)
	compare(t, fronted, wantReplies, wantRest, halfClose, pieces...)
	want, _ := alone.submitted()
	if got, _ := fronted.submitted(); got != want {
		t.Errorf("%.200q: %d requests reached the backend, want %d", pieces, got, want)
	}
}

func compare(t *testing.T, fronted *site, wantReplies []reply, wantRest string, halfClose bool, pieces ...string) {
	t.Helper()
	replies, rest := read(fronted.exchange(t, halfClose, pieces...))
	if len(replies) != len(wantReplies) || rest != wantRest {
		t.Errorf("%.200q:\n got %d answers and %q: %.300v\nwant %d answers and %q: %.300v",
			pieces, len(replies), rest, replies, len(wantReplies), wantRest, wantReplies)
		return
	}
	for i := range replies {
		if !reflect.DeepEqual(replies[i], wantReplies[i]) {
			t.Errorf("%.200q: answer %d\n got %.600q\nwant %.600q", pieces, i, fmt.Sprint(replies[i]), fmt.Sprint(wantReplies[i]))
		}
	}
}

func TestTable_BothPathsAgree(t *testing.T) {
	t.Parallel()
	agreeOnTables(t, startWeb(t), startFront(t))
}

// agreeOnTables compares the sites over all requests in the tables.
func agreeOnTables(t *testing.T, alone, fronted *site) {
	agreeOn(t, alone, fronted, map[string]map[string]string{"hot": hotRequests, "cold": coldRequests})
}

// agreeOn compares the sites over the requests in tables, of which those in "hot" are answered by
// the fast path.
func agreeOn(t *testing.T, alone, fronted *site, tables map[string]map[string]string) {
	for what, table := range tables {
		for _, name := range slices.Sorted(maps.Keys(table)) {
			t.Run(what+" "+name, func(t *testing.T) {
				before := fronted.detached.Load()
				agree(t, alone, fronted, nil, true, table[name])
				if detached := fronted.detached.Load() - before; what == "hot" && detached != 0 {
					t.Errorf("%q was detached", table[name])
				}
				if slices.Contains(slow, name) {
					return
				}
				agree(t, alone, fronted, nil, false, table[name], sentinel)
				agree(t, alone, fronted, nil, false, table[name]+sentinel)
			})
		}
	}
}

// One that answers within Submit goes another way through the fast path.
func TestTable_BothPathsAgreeWithAPromptBackend(t *testing.T) {
	t.Parallel()
	alone, fronted := startWeb(t), startFront(t, func(c *config) { c.front.Backend = c.front.Backend.(later).oracle })
	for _, table := range []map[string]string{hotRequests, coldRequests} {
		for _, name := range slices.Sorted(maps.Keys(table)) {
			t.Run(name, func(t *testing.T) { agree(t, alone, fronted, nil, true, table[name]) })
		}
	}
}

func TestTable_BothPathsAgreeOnFaults(t *testing.T) {
	alone, fronted := startWeb(t), startFront(t)
	for _, err := range []error{
		isotone.ErrOverloaded,
		&isotone.Error{Code: isotone.CodeOverloaded, Message: "full", RetryAfter: 2100 * time.Millisecond},
		isotone.ErrNoLeader,
		&isotone.Error{Code: isotone.CodeNotLeader, Message: `ask "node" <1>`, Leader: "10.0.0.1:8080"},
		&isotone.Error{Code: isotone.CodeNotLeader, Message: "ask node 2", Leader: "[::1]:8080"},
		&isotone.Error{Code: isotone.CodeNotLeader, Message: "leaderless"},
		&isotone.Error{Code: isotone.CodeNotLeader, Message: "split", Leader: "a\r\nX: y"},
		isotone.ErrDeadlineExceeded, isotone.ErrClock, isotone.ErrInternal, isotone.ErrUnauthorized, isotone.ErrNotFound,
		isotone.ErrWrongCluster, isotone.ErrRegressed, isotone.ErrForbidden, isotone.ErrQuotaExceeded, isotone.ErrNoWorker, isotone.ErrNoQuorum,
		&isotone.Error{Code: "unheard_of", Message: "\x00\xff\u2028"},
		&isotone.Error{},
		fmt.Errorf("wrapped: %w", isotone.ErrOverloaded),
		errors.New(`a "strange" error`),
	} {
		agreeOnFault(t, alone, fronted, err)
	}
}

// agreeOnFault compares the sites while the backend fails with err, over some requests and more.
func agreeOnFault(t *testing.T, alone, fronted *site, err error, more ...string) {
	t.Run(err.Error(), func(t *testing.T) {
		for _, raw := range append(more, plain, of("/timestamp?n=2&format=json&x=y"), plain+of("/timestamp?a")+plain, plain+of("/up"),
			of("/api/snowflake?n=2")+plain+of("/api/snowflake")+of("/api/snowflake")) {
			before := fronted.detached.Load()
			agree(t, alone, fronted, err, true, raw)
			if detached := fronted.detached.Load() - before; detached != 0 && !strings.Contains(raw, "/up") {
				t.Errorf("%q was detached", raw)
			}
		}
	})
}

// However a stream is cut into reads, the same answers come out.
func TestTable_BothPathsAgreeAtEverySplit(t *testing.T) {
	t.Parallel()
	alone, fronted := startWeb(t), startFront(t)
	for _, table := range []map[string]string{hotRequests, coldRequests} {
		for _, name := range slices.Sorted(maps.Keys(table)) {
			raw := table[name]
			if len(raw) > 160 || slices.Contains(slices.Concat(slow, heavy), name) {
				continue
			}
			agreeAtEverySplit(t, alone, fronted, name, raw)
		}
	}
}

// agreeAtEverySplit compares the sites over raw, cut in two at each byte, and into bytes. With -short, as under the race
// detector, it cuts at each fourth byte.
func agreeAtEverySplit(t *testing.T, alone, fronted *site, name, raw string) {
	t.Run(name, func(t *testing.T) {
		alone.reset(nil)
		replies, rest := read(alone.exchange(t, true, raw))
		step := 1
		if testing.Short() {
			step = 4
		}
		for i := 0; i < len(raw); i += step {
			fronted.reset(nil)
			compare(t, fronted, replies, rest, true, raw[:i], raw[i:])
		}
		fronted.reset(nil)
		compare(t, fronted, replies, rest, true, strings.Split(raw, "")...)
	})
}
