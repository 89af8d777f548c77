package gate

import (
	"bytes"
	"net"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/host/loop"
)

var commands = strings.Fields("AUTH CLIENT CLUSTER COMMAND ECHO HELLO INFO PING QUIT RESET SELECT SNOWFLAKE TS")

func testGate(t testing.TB, withRESP bool) *Gate {
	l, err := loop.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	none := func(*loop.Conn) loop.Handler { return nil }
	cfg := Config{Loop: l, HTTP1: none, HTTP2: none, Commands: commands, Rest: func(net.Conn) {}, Refuse: func(net.Conn) {}}
	if withRESP {
		cfg.RESP = none
	}
	return New(cfg)
}

var detected = map[string]destination{
	"":                             undecided,
	"G":                            undecided,
	"GET":                          undecided,
	"GET ":                         undecided,
	"GET /":                        http1,
	"GET /timestamp HTTP/1.0\r\n":  http1,
	"GET /\xff":                    http1,
	"GET http://x/ HTTP/1.1":       rest,
	"GET *":                        rest,
	"GEX":                          rest,
	"get /":                        rest,
	"HEAD / HTTP/1.1":              rest,
	"HEAD":                         rest,
	"HE":                           undecided, // HELLO
	"POST":                         rest,
	"P":                            undecided,
	"PRI":                          undecided,
	"PRI * HTTP/2.":                undecided,
	"PRI * HTTP/2.0\r\n":           http2,
	"PRI * HTTP/2.0\n":             rest,
	"PRI /x HTTP/1.1\r\n":          rest,
	"OPTIONS * HTTP/1.1":           rest,
	"CONNECT x:1 HTTP/1.1":         rest,
	"C":                            undecided,
	"\x16":                         secure,
	"\x16\x03\x01":                 secure,
	"\x00":                         rest,
	"\r\n":                         rest,
	" PING\r\n":                    rest,
	"*":                            undecided,
	"*1":                           resp,
	"*3\r\n$3\r\nFOO":              resp,
	"*-1":                          rest,
	"*\r\n":                        rest,
	"* HTTP/1.1":                   rest,
	"$3\r\n":                       rest,
	"PING":                         undecided,
	"PING\r":                       undecided,
	"PING\r\n":                     resp,
	"ping\n":                       resp,
	"Ping hello\r\n":               resp,
	"PINGX\r\n":                    rest,
	"PING HTTP/1.1\r\n":            rest,
	"PING /x HTTP/1.1\r\n":         rest,
	"RESET /x HTTP/1.1\r\nHost: x": rest,
	"RESET\r\nGET / HTTP/1.1\r\n":  resp,
	"SET a b\r\n":                  rest,
	"TS 5 LEASE\r\n":               resp,
	"TS\t5\r\n":                    resp,
	"ECHO " + strings.Repeat("a", lineBytesMax-6):            undecided,
	"ECHO " + strings.Repeat("a", lineBytesMax-6) + "\n":     resp,
	"ECHO " + strings.Repeat("a", lineBytesMax-5):            rest,
	"ECHO " + strings.Repeat("a", lineBytesMax-5) + "\n":     rest,
	"ECHO" + strings.Repeat("a", 100_000):                    rest,
	"ECHO " + strings.Repeat("a", 100_000) + " HTTP/1.1\r\n": rest,
}

func TestDetect(t *testing.T) {
	g, without := testGate(t, true), testGate(t, false)
	for raw, want := range detected {
		if got := g.detect([]byte(raw)); got != want {
			t.Errorf("%.60q: %d, want %d", raw, got, want)
		}
		got := without.detect([]byte(raw))
		if got == resp || want != resp && want != undecided && got != want {
			t.Errorf("%.60q without RESP: %d", raw, got)
		}
	}
}

// FuzzDetect checks that what is decided stays decided when more comes, and that a
// connection cannot be left undecided for long.
func FuzzDetect(f *testing.F) {
	for raw := range detected {
		f.Add([]byte(raw), uint16(3))
	}
	g := testGate(f, true)
	f.Fuzz(func(t *testing.T, b []byte, split uint16) {
		whole := g.detect(b)
		part := g.detect(b[:int(split)%(len(b)+1)])
		if part != undecided && part != whole {
			t.Fatalf("%q: %d, but %d of a part", b, whole, part)
		}
		if whole == undecided && len(b) >= lineBytesMax {
			t.Fatalf("%d bytes and undecided", len(b))
		}
		if whole == http1 != bytes.HasPrefix(b, []byte(get)) {
			t.Fatalf("%q: %d", b, whole)
		}
		if line, _, _ := bytes.Cut(b, []byte("\n")); whole == resp && bytes.Contains(line, []byte(" HTTP/1.")) && b[0] != '*' {
			t.Fatalf("%q is a command", b)
		}
	})
}
