package server

import (
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
)

// TestWaiting_AnswersInTheProtocolOfTheClient that it is no member yet: clients of the Redis protocol take no answer of HTTP.
func TestWaiting_AnswersInTheProtocolOfTheClient(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	w := beginWaiting([]net.Listener{ln}, "the reason", slog.New(slog.DiscardHandler))
	defer w.end()
	for request, want := range map[string]string{
		"TS 1\r\n":                 "-CLUSTERDOWN not a member yet: the log of this node says why\r\n",
		"*1\r\n$4\r\nPING\r\n":     "-CLUSTERDOWN not a member yet: the log of this node says why\r\n",
		"GET /up HTTP/1.0\r\n\r\n": "HTTP/1.0 200 OK\r\n",
		"GET /timestamp HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n": "HTTP/1.1 503 Service Unavailable\r\n",
	} {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.WriteString(c, request)
		answer, err2 := io.ReadAll(c)
		if err != nil || err2 != nil || !strings.HasPrefix(string(answer), want) {
			t.Errorf("%q: %q, %v, %v; want %q", request, answer, err, err2, want)
		}
		_ = c.Close()
	}
}
