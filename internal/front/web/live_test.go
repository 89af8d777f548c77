package web_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front/web"
)

// documents answers with what was asked, and refuses what is below /live/no.
func documents(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "max-age=1")
	switch {
	case strings.HasPrefix(r.URL.Path, "/live/no"):
		w.WriteHeader(http.StatusServiceUnavailable)
	case strings.HasSuffix(r.URL.Path, "/stream"):
		if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Hour)); err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = io.WriteString(w, "data: 1\n\n")
		_ = http.NewResponseController(w).Flush()
	default:
		_, _ = io.WriteString(w, r.Method+" "+r.URL.Path)
	}
}

func TestLive_IsServedOverEachProtocol(t *testing.T) {
	s := start(t, func(c *web.Config) { c.Live, c.Page = http.HandlerFunc(documents), http.HandlerFunc(documents) })
	eachProtocol(t, s, func(t *testing.T, c *client) {
		for target, want := range map[string]string{
			"/state": "GET /live/state", "/live/a": "GET /live/a", "/": "GET /", "/live/a/stream": "data: 1\n\n",
		} {
			a := c.get(t, target)
			if a.StatusCode != 200 || string(a.body) != want || a.Header.Get("Cache-Control") != "max-age=1" {
				t.Errorf("%s: %d %q %v", target, a.StatusCode, a.body, a.Header)
			}
		}
		if a := c.do(t, http.MethodOptions, "/live/a", nil); a.StatusCode != 200 || string(a.body) != "OPTIONS /live/a" {
			t.Errorf("OPTIONS: %d %q", a.StatusCode, a.body)
		}
		if a := c.do(t, http.MethodPost, "/", nil); a.StatusCode != 405 {
			t.Errorf("POST /: %d", a.StatusCode)
		}
		if a := c.get(t, "/live/no"); a.StatusCode != 503 {
			t.Errorf("/live/no: %d", a.StatusCode)
		}
	})
	wantFault(t, start(t).client(t, "http1").get(t, "/live/a"), 404, isotone.CodeNotFound)
	wantFault(t, start(t).client(t, "http1").get(t, "/"), 404, isotone.CodeNotFound)
}

func TestLive_ADocumentIsObservedAndAStreamIsNot(t *testing.T) {
	ended := make(chan string, 8)
	s := start(t, func(c *web.Config) {
		c.Live = http.HandlerFunc(documents)
		c.Observe = func(_, code string, _ time.Duration) { ended <- code }
	})
	c := s.client(t, "http1")
	for _, target := range []string{"/live/a/stream", "/live/stream", "/live/no/stream", "/live/stream/stream", "/up/stream"} {
		c.get(t, target)
	}
	for _, want := range []string{"ok", "overloaded", "not_found"} {
		select {
		case got := <-ended:
			if got != want {
				t.Errorf("observed %q, want %q", got, want)
			}
		case <-time.After(patience):
			t.Fatalf("%q was not observed", want)
		}
	}
}
