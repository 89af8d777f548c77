package http2_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"
)

// TestExchange_TheAnswerIsWhatNetHTTPWouldSend: lengths, types, statuses, HEAD, trailers.
func TestExchange_TheAnswerIsWhatNetHTTPWouldSend(t *testing.T) {
	handlers := map[string]http.HandlerFunc{
		"/nothing": func(http.ResponseWriter, *http.Request) {},
		"/small":   func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>hello") },
		"/typed": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "x/y")
			fmt.Fprint(w, "{}")
		},
		"/large": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(pattern(100_000)) },
		"/none":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"/unchanged": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Etag", `"x"`)
			w.WriteHeader(http.StatusNotModified)
		},
		"/fails": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusTeapot) },
		"/twice": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			w.WriteHeader(http.StatusOK)
		},
		"/flushed": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "a")
			w.(http.Flusher).Flush()
			fmt.Fprint(w, "b")
		},
		"/late": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(201)
			w.Header().Set("X-Late", "1")
			fmt.Fprint(w, "a")
		},
		"/length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "3")
			fmt.Fprint(w, "abc")
		},
		"/values": func(w http.ResponseWriter, _ *http.Request) { w.Header()["X-Y"] = []string{"1", "2"} },
		"/trailers": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "a")
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		},
		"/declared": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum, X-Other")
			fmt.Fprint(w, "a")
			w.Header().Set("X-Sum", "1")
		},
	}
	serve := func(w http.ResponseWriter, r *http.Request) { handlers[r.URL.Path](w, r) }
	ours, theirs := start(t, serve).addr, reference(t, http.HandlerFunc(serve))
	tr := transport(t)
	for path := range handlers {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
			var said [2]string
			for i, addr := range []string{ours, theirs} {
				response := roundTrip(t, tr, method, "http://"+addr+path, nil)
				b, err := io.ReadAll(response.Body)
				_ = response.Body.Close()
				if response.Header.Get("Date") == "" {
					t.Errorf("%s: no date", path)
				}
				delete(response.Header, "Date")
				said[i] = fmt.Sprint(response.Status, response.Header, response.ContentLength, response.Trailer, len(b), err)
			}
			if said[0] != said[1] {
				t.Errorf("%s %s:\n%s\nnet/http:\n%s", method, path, said[0], said[1])
			}
		}
	}
}

// TestExchange_TheRequestIsWhatNetHTTPWouldRead.
func TestExchange_TheRequestIsWhatNetHTTPWouldRead(t *testing.T) {
	serve := func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		fmt.Fprintln(w, r.Method, r.URL, r.RequestURI, r.Host, r.Proto, r.ProtoMajor, r.ProtoMinor, r.ContentLength, len(b), err, r.TLS == nil, len(r.TransferEncoding))
		for _, name := range []string{"Cookie", "Accept", "User-Agent", "X-A", "Te"} {
			fmt.Fprintln(w, name, r.Header[name])
		}
	}
	ours, theirs := start(t, serve).addr, reference(t, http.HandlerFunc(serve))
	ask := func(c *client, body string, fields ...string) string {
		c.headers(1, body == "", c.encode("/p?q=1", fields...))
		for i := range len(body) {
			_ = c.WriteData(1, i == len(body)-1, []byte{body[i]})
		}
		got, _, err := c.read(1)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprint(got[1].status, got[1].body, got[1].reset)
	}
	for name, fields := range map[string][]string{
		"plain":      {},
		"cookies":    {"cookie", "a=1", "cookie", "b=2", "accept", "x", "accept", "y"},
		"host":       {":authority", "", "host", "h.example"},
		"both":       {"host", "x"},
		"options":    {":method", "OPTIONS", ":path", "*"},
		"connect":    {":method", "CONNECT", ":path", "", ":scheme", "", ":authority", "y:1"},
		"escaped":    {":path", "/a%2fb/../c?x=%zz;y"},
		"te":         {"te", "trailers"},
		"length":     {":method", "POST", "content-length", "3"},
		"no length":  {":method", "POST"},
		"unknown":    {":method", "BREW"},
		"upper path": {":path", "/P"},
		"https":      {":scheme", "https"},
		"empty":      {"x-a", ""},
		"spaces":     {"x-a", "a b\tc"},
		"raw bytes":  {"x-a", "\x80\xff"},
	} {
		for _, body := range []string{"", "abc"} {
			if body == "" && name == "length" {
				continue // malformed
			}
			if a, b := ask(dialTo(t, ours), body, fields...), ask(dialTo(t, theirs), body, fields...); a != b {
				t.Errorf("%s, body %q:\n%s\nnet/http:\n%s", name, body, a, b)
			}
		}
	}
}
