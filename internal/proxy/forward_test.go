package proxy_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/front/requestid"
	"github.com/isotone/isotone/internal/proxy"
	"github.com/isotone/isotone/internal/proxy/balance"
)

// paths sends the same request once on each path: one with a chunked body takes the standard
// path.
func paths(t *testing.T, s *site, prepare func(*http.Request), check func(t *testing.T, path string, resp *http.Response, body string)) {
	t.Helper()
	c := client(t)
	for _, path := range []string{"fast path", "standard path"} {
		var body io.Reader
		if path == "standard path" {
			body = unsized("body")
		}
		r := request(t, "POST", "http://"+s.addr+"/x?y=z", body)
		r.Host = "example.org"
		prepare(r)
		resp, got := do(t, c, r)
		check(t, path, resp, got)
	}
}

func TestServer_RemovesWhatEndsAtEachHop(t *testing.T) {
	b := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Connection", "X-Nominated")
		h.Set("X-Nominated", "1")
		h.Set("Keep-Alive", "timeout=5")
		h.Set("Proxy-Authenticate", "Basic")
		h.Set("X-Kept", "1")
		echo(w, r)
	})
	s := start(t, proxy.Config{}, b.addr)
	prepare := func(r *http.Request) {
		r.Header.Set("Connection", "keep-alive, X-Nominated, x-other")
		r.Header.Set("X-Nominated", "1")
		r.Header.Set("X-Other", "1")
		r.Header.Set("X-Kept", "1")
		for _, name := range []string{"Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "Te"} {
			r.Header.Set(name, "x")
		}
	}
	gone := []string{"Connection", "X-Nominated", "X-Other", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "Proxy-Authenticate", "Te"}
	paths(t, s, prepare, func(t *testing.T, path string, resp *http.Response, _ string) {
		seen := b.requests()
		r := seen[len(seen)-1]
		for _, name := range gone {
			if r.Header[name] != nil || resp.Header[name] != nil {
				t.Errorf("%s: %s is %q in the request, %q in the answer", path, name, r.Header[name], resp.Header[name])
			}
		}
		if r.Header.Get("X-Kept") != "1" || resp.Header.Get("X-Kept") != "1" {
			t.Errorf("%s: X-Kept is lost", path)
		}
		if r.Host != "example.org" || r.RequestURI != "/x?y=z" || r.Header.Get("Via") != "1.1 isotone" {
			t.Errorf("%s: Host %q, target %q, Via %q", path, r.Host, r.RequestURI, r.Header["Via"])
		}
	})
}

func TestServer_SaysWhoHasAsked(t *testing.T) {
	// Others are about the client as well. Gateways may take alike for the fields that the proxy sets.
	others := []string{"X-Real-Ip", "X-Forwarded-Port", "X-Forwarded-Client-Cert"}
	alike := []string{"X_forwarded_for", "X-Forwarded_proto", "X_real_ip", "X_request_id", "X_forwarded_client_cert", "Content_length"}
	b := startBackend(t, echo)
	prepare := func(r *http.Request) {
		r.Header.Set("X-Forwarded-For", "6.6.6.6")
		r.Header.Set("X-Forwarded-Proto", "gopher")
		r.Header.Set("X-Forwarded-Host", "evil")
		r.Header.Set("Forwarded", "for=6.6.6.6")
		for _, name := range append(slices.Clone(alike), others...) {
			r.Header[name] = []string{"6.6.6.6"}
		}
		r.Header["X_kept"] = []string{"1"}
	}
	for _, trust := range []bool{false, true} {
		s := start(t, proxy.Config{TrustForwarded: trust}, b.addr)
		want := "127.0.0.1 http example.org "
		if trust {
			want = "6.6.6.6, 127.0.0.1 gopher evil for=6.6.6.6"
		}
		paths(t, s, prepare, func(t *testing.T, path string, _ *http.Response, _ string) {
			seen := b.requests()
			h := seen[len(seen)-1].Header
			if got := fmt.Sprint(h.Get("X-Forwarded-For"), " ", h.Get("X-Forwarded-Proto"), " ", h.Get("X-Forwarded-Host"), " ", h.Get("Forwarded")); got != want {
				t.Errorf("%s, trust %v: %q, want %q", path, trust, got, want)
			}
			for _, name := range alike {
				if h[name] != nil {
					t.Errorf("%s, trust %v: %s was forwarded", path, trust, name)
				}
			}
			for _, name := range others {
				if (h[name] != nil) != trust {
					t.Errorf("%s, trust %v: %s is %q", path, trust, name, h[name])
				}
			}
			if h["X_kept"] == nil {
				t.Errorf("%s, trust %v: X_kept is lost", path, trust)
			}
		})
	}
}

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestServer_GivesEveryRequestATransaction(t *testing.T) {
	b := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-ID", "the backend's own")
		echo(w, r)
	})
	s := start(t, proxy.Config{LogRequests: true}, b.addr)
	for _, tc := range []struct {
		id, parent   string
		keeps, joins bool
	}{
		{"", "", false, false},
		{"my-id", traceparent, true, true},
		{"my id", strings.ToUpper(traceparent), false, false},
		{strings.Repeat("x", 129), traceparent + "-x", false, false},
	} {
		prepare := func(r *http.Request) {
			if tc.id != "" {
				r.Header.Set("X-Request-ID", tc.id)
				r.Header.Set("Traceparent", tc.parent)
				r.Header.Set("Tracestate", "a=b")
			}
		}
		paths(t, s, prepare, func(t *testing.T, path string, resp *http.Response, _ string) {
			seen := b.requests()
			h := seen[len(seen)-1].Header
			id := h.Get("X-Request-ID")
			if (id == tc.id) != tc.keeps || !requestid.ValidID(id) {
				t.Errorf("%s: %q became %q", path, tc.id, id)
			}
			if got := resp.Header["X-Request-Id"]; len(got) != 1 || got[0] != id || len(h["X-Request-Id"]) != 1 {
				t.Errorf("%s: the client is told %q, the backend %q", path, got, h["X-Request-Id"])
			}
			trace, ok := requestid.ParseTraceparent(h.Get("Traceparent"))
			parent, _ := requestid.ParseTraceparent(tc.parent)
			if !ok || (trace.ID == parent.ID) != tc.joins || trace.Span == parent.Span || resp.Header.Get("Traceparent") != h.Get("Traceparent") {
				t.Errorf("%s: %q became %q for the backend, %q for the client", path, tc.parent, h.Get("Traceparent"), resp.Header.Get("Traceparent"))
			}
			if (h.Get("Tracestate") == "a=b") != tc.joins {
				t.Errorf("%s: tracestate %q of a trace that is joined: %v", path, h.Get("Tracestate"), tc.joins)
			}
			await.Until(t, "the log has the ID", func() bool { return strings.Contains(s.log.String(), `"request_id":"`+id+`"`) })
			if !strings.Contains(s.log.String(), `"method":"POST","target":"/x?y=z"`) {
				t.Errorf("%s: log %s", path, s.log)
			}
		})
	}
}

func TestServer_StreamsAnswersAsTheyCome(t *testing.T) {
	next := make(chan string)
	b := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for event := range next {
			if event == "end" {
				return
			}
			fmt.Fprintf(w, "data: %s\n\n", event)
			w.(http.Flusher).Flush()
		}
	})
	s := start(t, proxy.Config{}, b.addr)
	for path, raw := range map[string]string{"fast path": "GET /events HTTP/1.1\r\nHost: x\r\n\r\n", "standard path": chunkedFirst[:len(chunkedFirst)-len("2\r\nab\r\n0\r\n\r\n")] + "0\r\n\r\n"} {
		c := dial(t, s)
		if _, err := io.WriteString(c, raw); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(c)
		next <- "first"
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatal(path, resp, err)
		}
		body := bufio.NewReader(resp.Body)
		for i := range 5 {
			line, err := body.ReadString('\n')
			if _, err2 := body.ReadString('\n'); err != nil || err2 != nil || i == 0 && line != "data: first\n" || i > 0 && line != fmt.Sprintf("data: %d\n", i) {
				t.Fatalf("%s: event %d: %q, %v, %v", path, i, line, err, err2)
			}
			if i < 4 {
				next <- fmt.Sprint(i + 1)
			}
		}
		next <- "end"
		if rest, err := io.ReadAll(body); err != nil || len(rest) > 0 {
			t.Errorf("%s: %q, %v after the end", path, rest, err)
		}
	}
	s.idle(t)
}

// TestServer_HoldsBackABackendWhoseClientDoesNotRead sends more than all buffers hold.
func TestServer_HoldsBackABackendWhoseClientDoesNotRead(t *testing.T) {
	const size = 64 << 20
	var sent atomic.Int64
	b := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(size))
		chunk := bytes.Repeat([]byte("x"), 64<<10)
		for range size / len(chunk) {
			if _, err := w.Write(chunk); err != nil {
				return
			}
			sent.Add(int64(len(chunk)))
		}
	})
	s := start(t, proxy.Config{}, b.addr)
	c := dial(t, s)
	if _, err := io.WriteString(c, last); err != nil {
		t.Fatal(err)
	}
	held := int64(-1)
	await.Until(t, "the backend has to wait", func() bool {
		time.Sleep(50 * time.Millisecond)
		before := held
		held = sent.Load()
		return held > 0 && held == before
	})
	if held > size/2 {
		t.Errorf("%d MiB of %d were taken from the backend, and none by the client", held>>20, size>>20)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, resp.Body); n != size || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	s.idle(t)
}

func TestServer_BoundsBodies(t *testing.T) {
	b := startBackend(t, echo)
	s := start(t, proxy.Config{Limits: proxy.Limits{BodyMax: 100_000}}, b.addr)
	c := client(t)
	for name, tc := range map[string]struct {
		body   io.Reader
		status int
	}{
		"announced": {strings.NewReader(strings.Repeat("x", 100_001)), 413},
		"in chunks": {unsized(strings.Repeat("x", 200_000)), 413},
		"allowed":   {unsized(strings.Repeat("x", 100_000)), 200},
	} {
		if resp, _ := do(t, c, request(t, "PUT", "http://"+s.addr+"/", tc.body)); resp.StatusCode != tc.status {
			t.Errorf("%s: %s", name, resp.Status)
		}
	}
	s.idle(t)
}

func TestServer_BoundsSlowClients(t *testing.T) {
	t.Parallel()
	b := startBackend(t, echo)
	s := start(t, proxy.Config{Limits: proxy.Limits{HeadTimeout: 200 * time.Millisecond, IdleTimeout: 300 * time.Millisecond}}, b.addr)
	for name, tc := range map[string]struct{ raw, want string }{
		"nothing":                {"", ""},
		"half a head":            {"GET /a HTTP/1.1\r\nHost", ""},
		"half a body":            {"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc", ""},
		"half a long body":       {"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nabc", "HTTP/1.1 408 "},
		"half a chunk":           {"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc", "HTTP/1.1 408 "},
		"half a head, then":      {chunkedFirst + "GET /a HTTP/1.1\r\nHost", "HTTP/1.1 200 "},
		"nothing after a first":  {"GET /a HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 "},
		"nothing after a chunky": {chunkedFirst, "HTTP/1.1 200 "},
	} {
		if got := s.exchange(t, tc.raw); !strings.HasPrefix(got, tc.want) || tc.want == "" && got != "" {
			t.Errorf("%s: %.100q", name, got)
		}
	}
	s.idle(t)
}

func TestServer_SpeaksHTTP2AndTLS(t *testing.T) {
	b := startBackend(t, echo)
	// httptest provides a certificate.
	theirs := httptest.NewUnstartedServer(nil)
	theirs.StartTLS()
	certificate := theirs.TLS.Certificates[0]
	theirs.Close()
	s := start(t, proxy.Config{TLS: &tls.Config{Certificates: []tls.Certificate{certificate}}}, b.addr)
	for name, tc := range map[string]struct {
		scheme    string
		protocols func(*http.Protocols)
		major     int
	}{
		"http1":  {"http", func(p *http.Protocols) { p.SetHTTP1(true) }, 1},
		"h2c":    {"http", func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }, 2},
		"https1": {"https", func(p *http.Protocols) { p.SetHTTP1(true) }, 1},
		"h2":     {"https", func(p *http.Protocols) { p.SetHTTP2(true) }, 2},
	} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, Protocols: new(http.Protocols)}
		tc.protocols(transport.Protocols)
		c := &http.Client{Transport: transport, Timeout: patience}
		for _, body := range []string{"", "short", strings.Repeat("long", 50_000)} {
			resp, got := do(t, c, request(t, "POST", tc.scheme+"://"+s.addr+"/x", strings.NewReader(body)))
			seen := b.requests()
			r := seen[len(seen)-1]
			if got != body || resp.ProtoMajor != tc.major || r.Header.Get("X-Forwarded-Proto") != tc.scheme {
				t.Errorf("%s: %s with %d bytes, of %s", name, resp.Proto, len(got), r.Header.Get("X-Forwarded-Proto"))
			}
		}
		transport.CloseIdleConnections()
	}
	c := tls.Client(dial(t, s), &tls.Config{InsecureSkipVerify: true})
	if _, err := io.WriteString(c, smuggled["CL and TE"]); err != nil {
		t.Fatal(err)
	}
	if got, _ := io.ReadAll(c); !strings.HasPrefix(string(got), "HTTP/1.1 400 ") {
		t.Errorf("smuggling within TLS: %.200q", got)
	}
}

func TestServer_ForwardsToBackendsWithTLS(t *testing.T) {
	b := httptest.NewUnstartedServer(http.HandlerFunc(echo))
	b.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	b.StartTLS()
	defer b.Close()
	roots := x509.NewCertPool()
	roots.AddCert(b.Certificate())
	for name, tc := range map[string]struct {
		roots  *x509.CertPool
		status int
	}{"known": {roots, 200}, "unknown": {x509.NewCertPool(), 502}} {
		s := start(t, proxy.Config{BackendTLS: &tls.Config{RootCAs: tc.roots}}, b.URL)
		for path, raw := range map[string]string{"plain": "", "chunks": chunkedFirst} {
			got := s.exchange(t, raw+last)
			answers := 1 // a failed request with a body is the last
			if tc.status == 200 {
				answers += strings.Count(raw, "POST")
			}
			if status := fmt.Sprintf("HTTP/1.1 %d ", tc.status); strings.Count(got, status) != answers {
				t.Errorf("%s, %s: %.300q", name, path, got)
			}
		}
	}
}

func TestServer_SticksToTheKeyOnBothPaths(t *testing.T) {
	var addrs []string
	for range 4 {
		b := startBackend(t, nil)
		b.server.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, b.addr) })
		addrs = append(addrs, b.addr)
	}
	for _, name := range []string{"header:X-User", "query:user"} {
		key, err := proxy.ParseKey(name)
		if err != nil {
			t.Fatal(err)
		}
		s := start(t, proxy.Config{Strategy: balance.Sticky, StickyKey: key}, addrs...)
		c, used := client(t), map[string]bool{}
		for user := range 60 {
			var first string
			for i := range 4 {
				var body io.Reader
				if i%2 == 1 {
					body = unsized("x")
				}
				r := request(t, "POST", fmt.Sprintf("http://%s/?a=b&%s=u%d", s.addr, []string{"user", "us%65r"}[i/2], user), body)
				r.Header.Set("X-User", fmt.Sprint("u", user))
				_, got := do(t, c, r)
				if first == "" {
					first = got
				}
				if got != first {
					t.Errorf("%s: user %d went to %s and %s", name, user, first, got)
				}
				used[got] = true
			}
		}
		if len(used) != len(addrs) {
			t.Errorf("%s: 60 users went to %d backends of %d", name, len(used), len(addrs))
		}
	}
}

func TestServer_ForwardsAnswersWithoutABody(t *testing.T) {
	b := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/204":
			w.WriteHeader(http.StatusNoContent)
		case "/304":
			w.WriteHeader(http.StatusNotModified)
		case "/hints":
			w.Header().Set("Link", "</style.css>")
			w.WriteHeader(http.StatusEarlyHints)
			_, _ = io.WriteString(w, "body")
		default:
			w.Header().Set("Content-Length", "1000")
			if r.Method != "HEAD" {
				_, _ = io.WriteString(w, strings.Repeat("x", 1000))
			}
		}
	})
	s := start(t, proxy.Config{}, b.addr)
	raw := ""
	for _, line := range []string{"GET /204", "GET /304", "HEAD /", "GET /hints", "HEAD /204"} {
		raw += line + " HTTP/1.1\r\nHost: x\r\n\r\n"
	}
	got := s.exchange(t, raw+last)
	in := bufio.NewReader(strings.NewReader(got))
	for _, want := range []struct {
		method string
		status int
		body   int
	}{{"GET", 204, 0}, {"GET", 304, 0}, {"HEAD", 200, 0}, {"GET", 200, 4}, {"HEAD", 204, 0}, {"GET", 200, 1000}} {
		resp, err := http.ReadResponse(in, &http.Request{Method: want.method})
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if resp.StatusCode != want.status || len(body) != want.body || err != nil {
			t.Errorf("%v: %s, %d bytes, %v", want, resp.Status, len(body), err)
		}
	}
}

func fault(t *testing.T, body string) string {
	t.Helper()
	var e struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal([]byte(body), &e); err != nil {
		t.Errorf("%.200q: %v", body, err)
	}
	return e.Error.Code
}
