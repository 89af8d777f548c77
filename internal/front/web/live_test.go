package web_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
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

// TestLive_AStreamEndsWithTheRightToIt in each protocol, when the list of users changes.
func TestLive_AStreamEndsWithTheRightToIt(t *testing.T) {
	const secret = "correct horse battery staple"
	list := filepath.Join(t.TempDir(), "users.json")
	modified := time.Now()
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(list, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		modified = modified.Add(time.Second) // two versions within one tick of the file system's clock look alike
		if err := os.Chtimes(list, modified, modified); err != nil {
			t.Fatal(err)
		}
	}
	one := `{"users": {"reader": {"roles": ["live"], "secrets": ["` + access.HashSecret(secret) + `"]}}}`
	write(one)
	users, err := access.Open(access.Config{File: list, Setting: "ACL_FILE"})
	if err != nil {
		t.Fatal(err)
	}
	begun := make(chan struct{}, 1)
	s := start(t, func(c *web.Config) {
		c.Access = users
		c.Live = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			begun <- struct{}{}
			<-r.Context().Done()
		})
	})
	eachProtocol(t, s, func(t *testing.T, c *client) {
		write(one)
		users.Check()
		ended := make(chan error, 1)
		go func() {
			a, err := c.try(http.MethodGet, "/live/a/stream", nil, "Authorization", "Bearer reader~"+secret)
			if err == nil && a.StatusCode != 200 {
				err = fmt.Errorf("status %d", a.StatusCode)
			}
			ended <- err
		}()
		select {
		case <-begun:
		case <-time.After(patience):
			t.Fatal("the stream does not begin")
		}
		write(`{"users": {"reader": {"roles": ["ids"]}}}`)
		users.Check()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("the stream: %v", err)
			}
		case <-time.After(patience):
			t.Fatal("the stream goes on without the right to it")
		}
	})
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
