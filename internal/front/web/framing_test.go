package web_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
)

// legacyRequest is a request of HTTP/1.0 with header fields.
func legacyRequest(method, target string, fields ...string) string {
	return method + " " + target + " HTTP/1.0\r\n" + strings.Join(append(fields, "\r\n"), "\r\n")
}

const keepAlive = "Connection: keep-alive"

// TestFraming_AConnectionOfHTTP10IsKeptIfAsked, unless the end of the request is in doubt.
func TestFraming_AConnectionOfHTTP10IsKeptIfAsked(t *testing.T) {
	s := start(t)
	next := legacyRequest("GET", "/up")
	for name, tt := range map[string]struct {
		raw     string
		answers int
	}{
		"not asked":             {legacyRequest("GET", "/up"), 1},
		"asked":                 {legacyRequest("GET", "/up", keepAlive), 2},
		"asked twice":           {legacyRequest("GET", "/up", keepAlive) + legacyRequest("GET", "/timestamp?n=9", "connection:Keep-Alive "), 3},
		"an error":              {legacyRequest("GET", "/nothing", keepAlive), 2},
		"HEAD":                  {legacyRequest("HEAD", "/up", keepAlive), 2},
		"members":               {legacyRequest("GET", "/members", keepAlive), 2},
		"close, too":            {legacyRequest("GET", "/up", "Connection: keep-alive, close"), 1},
		"close, in its own":     {legacyRequest("GET", "/up", keepAlive, "Connection: close"), 1},
		"a body":                {legacyRequest("POST", "/up", keepAlive, "Content-Length: 1") + "x", 1},
		"chunked":               {legacyRequest("GET", "/up", keepAlive, "TRANSFER-ENCODING: chunked"), 1},
		"chunked, oddly":        {legacyRequest("GET", "/up", keepAlive, "Transfer-Encoding:\tidentity"), 1},
		"chunked, soon after":   {legacyRequest("GET", "/up", keepAlive) + legacyRequest("GET", "/up", keepAlive, "Transfer-Encoding: x"), 2},
		"HTTP/1.1 is kept":      {"GET /up HTTP/1.1\r\nHost: x\r\n\r\n", 2},
		"HTTP/1.1, then legacy": {"GET /up HTTP/1.1\r\nHost: x\r\n\r\n" + legacyRequest("GET", "/up", keepAlive), 3},
	} {
		t.Run(name, func(t *testing.T) {
			got := s.exchange(t, false, tt.raw+next)
			if n := strings.Count(got, "HTTP/1."); n > tt.answers || n < tt.answers && name != "chunked, soon after" {
				t.Errorf("%d answers, want %d: %q", n, tt.answers, got)
			}
		})
	}
}

// TestFraming_TheAnswerSaysSo in the words of HTTP/1.0, and has a length.
func TestFraming_TheAnswerSaysSo(t *testing.T) {
	s := start(t)
	raw := legacyRequest("GET", "/timestamp?n=1000", keepAlive) + legacyRequest("GET", "/up", keepAlive) + legacyRequest("GET", "/up")
	in := bufio.NewReader(strings.NewReader(s.exchange(t, false, raw)))
	for i := range 3 {
		r, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		kept := r.Header.Get("Connection") == "keep-alive"
		if err != nil || r.Proto != "HTTP/1.0" || r.ContentLength != int64(len(body)) && i < 2 || kept != (i < 2) {
			t.Errorf("answer %d: %v, %v", i, r, err)
		}
	}
}
