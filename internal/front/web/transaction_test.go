package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/front/web"
)

func TestRequestID_ComesBackIfItIsValid(t *testing.T) {
	s := start(t)
	for sent, want := range map[string]string{
		"": "", "request-1": "request-1", "a b": "", strings.Repeat("x", 129): "", "f81d4fae-7dec-11d0-a765-00a0c91e6bf6": "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
	} {
		for _, path := range []string{"/up", "/timestamp", "/nowhere"} {
			r, err := http.NewRequest("GET", "http://"+s.addr+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if sent != "" {
				r.Header.Set("X-Request-ID", sent)
			}
			answer, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			if got := answer.Header.Get("X-Request-ID"); got != want {
				t.Errorf("%s with ID %q: the answer has %q, want %q", path, sent, got, want)
			}
		}
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// told is a writer that wants to know the code.
type told struct {
	http.ResponseWriter
	codes chan string
}

func (w told) SetCode(code string)         { w.codes <- code }
func (w told) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func TestWrap_IsToldTheCodeOfEveryAnswer(t *testing.T) {
	codes := make(chan string, 1)
	s := start(t, func(c *web.Config) {
		c.Wrap = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(told{w, codes}, r) })
		}
	})
	for path, want := range map[string]string{"/up": "ok", "/nowhere": "not_found", "/timestamp?n=0": "invalid_argument"} {
		answer, err := http.Get("http://" + s.addr + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if got := <-codes; got != want {
			t.Errorf("%s: code %q, want %q", path, got, want)
		}
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}
