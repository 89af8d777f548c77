//go:build linux

package service_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
)

// oneNode is a cluster of one node, whose epochs are so long that a gap in the indexes shows
// timestamps that were issued and not delivered.
func oneNode(t *testing.T) *chaos.Node {
	t.Helper()
	o := trial.Options()
	o.Nodes = 1
	o.Env = map[string]string{"EPOCH_INTERVAL_MS": "60000"}
	return chaos.StartCluster(t, o).Node(1)
}

// wantNothingTaken runs a function that must not use up any timestamp of a new node.
func wantNothingTaken(t *testing.T, n *chaos.Node, do func()) {
	t.Helper()
	first := trial.Timestamps(t, n, 3).Last()
	trial.WantMetric(t, n, "isotone_timestamps_total", 3)
	do()
	trial.WantMetric(t, n, "isotone_timestamps_total", 3)
	want := isotone.Timestamp{Time: first.Time, Index: first.Index + 1}
	if next := trial.Timestamps(t, n, 1).First; next != want {
		t.Errorf("the next timestamp is %v, want %v", next, want)
	}
}

func TestRequest_BadArgumentsTakeNothing(t *testing.T) {
	t.Parallel()
	n := oneNode(t)
	wantNothingTaken(t, n, func() {
		for _, query := range []string{
			"n=0", "n=-1", "n=65537", "n=9223372036854775808", "n=18446744073709551617", "n=x", "n=", "n=1.5", "n=+1", "n=01", "n=1&n=2",
			"n=0&format=range", "n=4294967297&format=range", "n=65537&format=json", "format=xml", "mode=none", "n=%zz",
		} {
			a := trial.Get(t, n, "/timestamp?"+query)
			if a.Status != 400 || a.Code() != isotone.CodeInvalidArgument || !strings.HasPrefix(a.Header.Get("Content-Type"), "application/json") {
				t.Errorf("%s: %d %v %s", query, a.Status, a.Header, a.Body)
			}
		}
	})
	if r := trial.Timestamps(t, n, 65536); r.Count != 65536 {
		t.Errorf("%d timestamps", r.Count)
	}
	if a := trial.Get(t, n, "/timestamp?n=4294967296&format=range"); a.Status != 200 || len(a.Body) != isotone.RangeSize {
		t.Errorf("the largest range: %d, %d bytes", a.Status, len(a.Body))
	}
}

// tlsAlert is how the answer of a TLS server to garbage begins.
const tlsAlert = 0x15

// TestRequest_WhatIsNoRequestIsRefused sends invalid requests. Most of them are requests for
// timestamps that a lenient server might accept.
func TestRequest_WhatIsNoRequestIsRefused(t *testing.T) {
	n := oneNode(t)
	garbage := make([]byte, 64<<10)
	random := rand.NewChaCha8([32]byte{7})
	_, _ = random.Read(garbage)
	garbage[0] = 0x80
	const smuggled = "0\r\n\r\nGET /timestamp HTTP/1.1\r\nHost: a\r\n\r\n"
	cases := map[string]string{
		"header of 2 MB":      "GET /timestamp HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 2<<20) + "\r\n\r\n",
		"binary":              string(garbage),
		"binary, as TLS":      "\x16\x03\x01\xff\xff" + string(garbage),
		"two lengths":         "GET /timestamp HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n" + smuggled,
		"length and chunked":  "GET /timestamp HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + smuggled,
		"no host":             "GET /timestamp HTTP/1.1\r\n\r\n",
		"two hosts":           "GET /timestamp HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
		"space before colon":  "GET /timestamp HTTP/1.1\r\nHost : a\r\n\r\n",
		"bare CR in a header": "GET /timestamp HTTP/1.1\r\nHost: a\rb\r\n\r\n",
		"unknown version":     "GET /timestamp HTTP/9.1\r\nHost: a\r\n\r\n",
		"no version":          "GET /timestamp\r\n\r\n",
		"half, then the end":  "GET /timestamp HTTP/1.1\r\nHost:",
	}
	wantNothingTaken(t, n, func() {
		for name, text := range cases {
			answer := exchange(t, n, text)
			status, _, _ := bytes.Cut(answer, []byte("\r\n"))
			t.Logf("%s: %q", name, status)
			if bytes.Contains(answer, []byte("HTTP/1.1 2")) {
				t.Errorf("%s was answered: %q", name, answer)
			}
			if !isRefusal(answer) {
				t.Errorf("%s: neither closed nor refused: %q", name, answer)
			}
		}
	})
}

// isRefusal reports whether the connection was closed without an answer, or with one
// that refuses.
func isRefusal(answer []byte) bool {
	return len(answer) == 0 || answer[0] == tlsAlert ||
		bytes.HasPrefix(answer, []byte("HTTP/1.1 4")) || bytes.HasPrefix(answer, []byte("HTTP/1.1 505"))
}

// exchange sends bytes, ends its side, and returns all that comes back until the
// node closes the connection, which it must do.
func exchange(t *testing.T, n *chaos.Node, text string) []byte {
	t.Helper()
	c, err := net.Dial("tcp", n.HTTPAddr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(trial.AnswerTimeout))
	go func() {
		_, _ = io.WriteString(c, text) // the node may close before it has read all
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	answer, err := io.ReadAll(c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%.40q: the connection is still open", text)
	}
	return answer
}
