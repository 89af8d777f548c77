package http1_test

import (
	"strings"
	"testing"

	"github.com/isotone/isotone"
)

// legacy is a request of HTTP/1.0 that keeps its connection.
func legacy(target string, fields ...string) string {
	return "GET " + target + " HTTP/1.0\r\n" + strings.Join(append(fields, "Host: x", "Connection: keep-alive"), "\r\n") + "\r\n\r\n"
}

// once is a request of HTTP/1.0 whose answer ends the connection.
func once(target string) string { return "GET " + target + " HTTP/1.0\r\nHost: x\r\n\r\n" }

// legacyRequests are of HTTP/1.0. The fast path answers those in hot.
var legacyRequests = map[string]map[string]string{
	"hot": {
		"timestamp":        legacy("/timestamp"),
		"ab":               "GET /timestamp HTTP/1.0\r\nConnection: Keep-Alive\r\nHost: 127.0.0.1:8080\r\nUser-Agent: ApacheBench/2.3\r\nAccept: */*\r\n\r\n",
		"twice":            legacy("/timestamp", "Connection: keep-alive"),
		"reading":          legacy("/interval?nonce=4") + of("/interval"),
		"many":             legacy("/timestamp") + legacy("/timestamp?n=3") + legacy("/timestamp?format=json") + legacy("/timestamp?format=range"),
		"among others":     plain + legacy("/timestamp") + plain + plain + legacy("/timestamp") + legacy("/timestamp"),
		"ids":              legacy("/api/snowflake") + of("/api/snowflake") + legacy("/api/snowflake?n=3&format=json"),
		"documents":        legacy("/live/tiny") + legacy("/state", "Accept-Encoding: gzip") + of("/live/tiny") + legacy("/live/tiny", "If-None-Match: *"),
		"of all kinds":     legacy("/timestamp") + legacy("/api/snowflake") + legacy("/timestamp") + legacy("/live/tiny"),
		"a document there": legacy("/live/tiny", "If-None-Match: \"x\""),
		"not kept":         once("/timestamp"),
		"kept, then not":   legacy("/timestamp") + once("/timestamp") + plain,
		"kept, then close": legacy("/timestamp") + legacy("/timestamp", "Connection: close") + plain,
		"nginx":            "GET /timestamp HTTP/1.0\r\nHost: isotone\r\nConnection: close\r\nX-Forwarded-For: 127.0.0.1\r\n\r\n",
		"an ID not kept":   legacy("/api/snowflake") + once("/api/snowflake") + plain,
		"a document once":  legacy("/live/tiny") + once("/live/tiny") + plain,
		"JSON not kept":    once("/timestamp?format=json&n=3"),
	},
	"cold": {
		"up":                legacy("/up"),
		"no Host":           "GET /timestamp HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
		"hot, then up":      legacy("/timestamp") + legacy("/up"),
		"up, then hot":      legacy("/up") + legacy("/timestamp"),
		"large":             legacy("/timestamp?n=5000"),
		"bad":               legacy("/timestamp?n=0"),
		"keep-alive, close": "GET /timestamp HTTP/1.0\r\nHost: x\r\nConnection: keep-alive, close\r\n\r\n" + plain,
		"chunked":           legacy("/timestamp", "Transfer-Encoding: chunked") + plain,
		"a body":            legacy("/timestamp", "Content-Length: 3") + "abc" + plain,
		"HEAD":              strings.Replace(legacy("/up"), "GET", "HEAD", 1),
		"HTTP/1.00":         strings.Replace(legacy("/timestamp"), "1.0", "1.00", 1),
		"HTTP/0.9":          strings.Replace(legacy("/timestamp"), "1.0", "0.9", 1),
		"bare LF":           strings.Replace(legacy("/timestamp"), "1.0\r", "1.0", 1),
	},
}

func TestTable_BothPathsAgreeOnHTTP10(t *testing.T) {
	t.Parallel()
	alone, fronted := startWeb(t), startFront(t)
	agreeOn(t, alone, fronted, legacyRequests)
	agreeOnFault(t, alone, fronted, isotone.ErrOverloaded, legacy("/timestamp")+legacy("/api/snowflake"))
	agreeOnFault(t, alone, fronted, &isotone.Error{Code: isotone.CodeNotLeader, Message: "m", Leader: "10.0.0.1:8080"}, legacy("/timestamp")+plain+legacy("/timestamp?a"))
	for _, table := range legacyRequests {
		for name, raw := range table {
			if name != "large" {
				agreeAtEverySplit(t, alone, fronted, name, raw)
			}
		}
	}
}

// TestTable_AnHTTP10RequestWithAnUncertainEndIsTheLast, also behind one that kept the connection.
// net/http alone may close earlier, because it has read ahead.
func TestTable_AnHTTP10RequestWithAnUncertainEndIsTheLast(t *testing.T) {
	s := startFront(t)
	raw := legacy("/timestamp") + legacy("/timestamp", "Transfer-Encoding: chunked") + "0\r\n\r\n" + plain
	if replies, rest := read(s.exchange(t, false, raw)); len(replies) != 2 || replies[0].Close || !replies[1].Close || rest != "" {
		t.Errorf("%v, %q", replies, rest)
	}
}
