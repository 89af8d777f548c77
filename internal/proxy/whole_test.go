package proxy_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/proxy"
)

// chunkedPost sends a request that takes the standard path.
const chunkedPost = "POST /file HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"

// TestServer_TakesNoBodyForAnError: net/http writes some errors by itself, which the proxy
// replaces, and writes bodies in pieces. A piece that looks like such an error must pass.
func TestServer_TakesNoBodyForAnError(t *testing.T) {
	const own = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
	body := bytes.Repeat([]byte(own+strings.Repeat(".", 128-len(own))), 128)
	b := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		shift, _ := strconv.Atoi(r.Header.Get("X-Shift"))
		w.Header().Set("Content-Length", strconv.Itoa(len(body)-shift))
		_, _ = w.Write(body[shift:])
	})
	s := start(t, proxy.Config{}, b.addr)
	c := dial(t, s)
	in := bufio.NewReader(c)
	for shift := range 128 { // one of them has it where a piece begins
		_, _ = io.WriteString(c, strings.Replace(chunkedPost, "Host: a", fmt.Sprintf("Host: a\r\nX-Shift: %d", shift), 1))
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("shift %d: %v", shift, err)
		}
		if got, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(got, body[shift:]) {
			t.Fatalf("shift %d: another body, %v", shift, err)
		}
	}
	if in.Buffered() > 0 {
		t.Error("there is more than the answers")
	}
}

// TestServer_SendsAllOfABodyWhoseAnswerHasBegun, and forwards the answer at once.
func TestServer_SendsAllOfABodyWhoseAnswerHasBegun(t *testing.T) {
	got := make(chan []byte, 1)
	b := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.EnableFullDuplex()
		first := make([]byte, 10)
		_, _ = io.ReadFull(r.Body, first)
		_, _ = io.WriteString(w, "begun\n")
		_ = control.Flush()
		rest, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("the backend gets %v", err)
		}
		got <- append(first, rest...)
		_, _ = io.WriteString(w, "done\n")
	})
	s := start(t, proxy.Config{}, b.addr)
	c := dial(t, s)
	in := bufio.NewReader(c)
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
	var want []byte
	var resp *http.Response
	for i := range 100 {
		line := fmt.Sprintf("line %04d\n", i)
		want = append(want, line...)
		_, _ = fmt.Fprintf(c, "%x\r\n%s\r\n", len(line), line)
		if i == 10 {
			var err error
			if resp, err = http.ReadResponse(in, nil); err != nil {
				t.Fatal(err)
			}
			begun := make([]byte, len("begun\n"))
			if _, err := io.ReadFull(resp.Body, begun); err != nil || string(begun) != "begun\n" {
				t.Fatalf("%q, %v", begun, err)
			}
		}
	}
	_, _ = io.WriteString(c, "0\r\n\r\n")
	if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "done\n" {
		t.Errorf("%q, %v", rest, err)
	}
	if body := <-got; !bytes.Equal(body, want) {
		t.Errorf("the backend got %d of %d bytes: %.60q", len(body), len(want), body)
	}
}

// TestServer_EarlyAnswersComeEarly: a backend may answer without waiting for the body.
func TestServer_EarlyAnswersComeEarly(t *testing.T) {
	b := startScript(t, func(int, int, string) (string, bool) {
		return "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno", false
	})
	s := start(t, proxy.Config{Limits: proxy.Limits{HeadTimeout: time.Minute}}, b.addr)
	for _, body := range []string{"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "Content-Length: 100000\r\n\r\nhello"} {
		c := dial(t, s) // with a deadline that is shorter than a minute
		_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\n"+body)
		if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 401 {
			t.Errorf("%v, %v", resp, err)
		}
		_ = c.Close()
	}
}

// TestServer_HalfAnAnswerIsNoWholeOne, even where the end of the backend's connection ends the
// answer.
func TestServer_HalfAnAnswerIsNoWholeOne(t *testing.T) {
	t.Parallel()
	for name, breakOff := range map[string]func(*net.TCPConn){
		"reset": func(nc *net.TCPConn) { _ = nc.SetLinger(0) },
		"pause": func(nc *net.TCPConn) { _, _ = io.Copy(io.Discard, nc) }, // until the proxy has enough
	} {
		backend := startTCP(t, func(nc net.Conn) {
			if _, err := http.ReadRequest(bufio.NewReader(nc)); err != nil {
				return
			}
			_, _ = io.WriteString(nc, "HTTP/1.1 200 OK\r\n\r\n"+strings.Repeat("half of it\n", 100))
			time.Sleep(10 * time.Millisecond) // a reset can overtake what was sent
			breakOff(nc.(*net.TCPConn))
		})
		s := start(t, proxy.Config{Limits: proxy.Limits{StreamTimeout: 200 * time.Millisecond}}, backend)
		for path, ask := range map[string]string{"fast path": "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "standard path": chunkedPost, "HTTP/1.0": "GET / HTTP/1.0\r\n\r\n"} {
			c := dial(t, s)
			_, _ = io.WriteString(c, ask)
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				continue // that is not a complete answer either
			}
			if got, err := io.ReadAll(resp.Body); err == nil {
				t.Errorf("%s, %s: %d bytes, and no error", name, path, len(got))
			}
		}
	}
}

// TestServer_StreamsWhatHasALength, on each path.
func TestServer_StreamsWhatHasALength(t *testing.T) {
	later := make(chan struct{})
	b := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "10")
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		<-later
		_, _ = io.WriteString(w, "later")
	})
	s := start(t, proxy.Config{}, b.addr)
	for _, ask := range []string{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", chunkedPost} {
		c := dial(t, s)
		_, _ = io.WriteString(c, ask)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		first := make([]byte, len("first"))
		if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "first" {
			t.Errorf("%q, %v", first, err)
		}
		later <- struct{}{}
		if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "later" {
			t.Errorf("%q, %v", rest, err)
		}
	}
}

// TestServer_APauseOfTheClientIsNotTheBackends.
func TestServer_APauseOfTheClientIsNotTheBackends(t *testing.T) {
	t.Parallel()
	const size = 16 << 20
	b := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Length", strconv.Itoa(size))
		for piece := make([]byte, 64<<10); ; {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	})
	const pause = 200 * time.Millisecond
	s := start(t, proxy.Config{Limits: proxy.Limits{StreamTimeout: pause}}, b.addr)
	for name, ask := range map[string]string{"fast path": "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "standard path": chunkedPost} {
		c := dial(t, s)
		_ = c.SetReadBuffer(64 << 10)
		_, _ = io.WriteString(c, ask)
		time.Sleep(3 * pause)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != size {
			t.Errorf("%s: %d of %d bytes, %v", name, n, size, err)
		}
	}
}

// TestServer_AnAnswerFromBeforeTheRequestIsNobodys: a backend has sent bytes on an idle
// connection, and the loop finds a request for it in the same turn.
func TestServer_AnAnswerFromBeforeTheRequestIsNobodys(t *testing.T) {
	conns := make(chan net.Conn, 10)
	b := startTCP(t, func(nc net.Conn) {
		in := bufio.NewReader(nc)
		for {
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
			_, _ = io.WriteString(nc, okAnswer)
			conns <- nc
		}
	})
	hold, held := make(chan struct{}), make(chan struct{})
	s := start(t, proxy.Config{Observe: func(_, status int, _ time.Duration) {
		if status == http.StatusNotImplemented { // makes this turn of the loop long
			held <- struct{}{}
			<-hold
		}
	}}, b)
	ask := func(c net.Conn, method string) {
		_, _ = io.WriteString(c, method+" / HTTP/1.1\r\nHost: a\r\n\r\n")
	}
	first, second, busy := dial(t, s), dial(t, s), dial(t, s)
	ask(second, "GET")
	resp, err := http.ReadResponse(bufio.NewReader(second), nil)
	if err != nil || resp.ContentLength != 2 {
		t.Fatal(resp, err)
	}
	_ = first
	idle := <-conns
	s.idle(t)
	ask(busy, "TRACE")
	<-held
	ask(first, "GET") // found first in the next turn, with the bytes of the backend
	time.Sleep(20 * time.Millisecond)
	_, _ = io.WriteString(idle, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nEXTRA")
	time.Sleep(20 * time.Millisecond)
	close(hold)
	if resp, err = http.ReadResponse(bufio.NewReader(first), nil); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != "ok" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestServer_TargetsStayAsTheyWere, on each path.
func TestServer_TargetsStayAsTheyWere(t *testing.T) {
	b := startScript(t, func(int, int, string) (string, bool) { return okAnswer, false })
	s := start(t, proxy.Config{}, b.addr)
	for _, target := range []string{"/a|b", "/a{b}", "/a^b", `/a"b`, "/a%2fb", "/a?x|y", "//a/../b", "/a;b?", `/a\b`, "/[x]", "/%7e"} {
		for _, version := range []string{"1", "0"} {
			got := s.exchange(t, "POST "+target+" HTTP/1."+version+"\r\nHost: a\r\nConnection: close\r\n\r\n")
			if !strings.Contains(got, " 200 ") {
				t.Errorf("%s: %.100q", target, got)
				continue
			}
			if line, _, _ := strings.Cut(<-b.heads, "\r\n"); line != "POST "+target+" HTTP/1.1" {
				t.Errorf("%s became %q", target, line)
			}
		}
	}
	if got := s.exchange(t, "OPTIONS * HTTP/1.0\r\nHost: a\r\n\r\n"); !strings.Contains(got, " 200 ") {
		t.Errorf("%.100q", got)
	} else if line, _, _ := strings.Cut(<-b.heads, "\r\n"); line != "OPTIONS * HTTP/1.1" {
		t.Errorf("* became %q", line)
	}
}

// TestServer_StatusesThatAreNone are a 502 on each path.
func TestServer_StatusesThatAreNone(t *testing.T) {
	for _, answer := range []string{"HTTP/1.1 099 A\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 000 A\r\nContent-Length: 0\r\n\r\n", "HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n"} {
		b := startScript(t, func(int, int, string) (string, bool) { return answer, true })
		s := start(t, proxy.Config{RetriesMax: -1}, b.addr)
		statuses, _ := get(t, s, "POST")
		if slices.ContainsFunc(statuses, func(status int) bool { return status != 502 }) {
			t.Errorf("%q: %v", answer, statuses)
		}
	}
}

// TestServer_TheRestOfABodyIsNoRequest: when the answer comes before the end of the body, the
// connection is closed after it, and the rest of the body is not parsed as a request.
func TestServer_TheRestOfABodyIsNoRequest(t *testing.T) {
	t.Parallel()
	b := startScript(t, func(int, int, string) (string, bool) {
		return "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno", true
	})
	s := start(t, proxy.Config{LogRequests: true, Limits: proxy.Limits{HeadTimeout: 200 * time.Millisecond}}, b.addr)
	const inner = "TRACE /inner HTTP/1.1\r\nHost: evil\r\nX-A: 1\r\n folded\r\n\r\n"
	for name, tc := range map[string]struct{ begin, rest string }{
		"in chunks":     {"Transfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\nhello", len("hello")+len(inner)), inner + "\r\n0\r\n\r\n"},
		"with a length": {fmt.Sprintf("Content-Length: %d\r\n\r\nhello", 20_000+len(inner)), inner},
	} {
		for range 5 {
			c := dial(t, s)
			in := bufio.NewReader(c)
			_, _ = io.WriteString(c, "POST /outer HTTP/1.1\r\nHost: a\r\n"+tc.begin)
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if _, err := io.ReadAll(resp.Body); err != nil || !resp.Close {
				t.Errorf("%s: the connection is to go on: %v, %v", name, !resp.Close, err)
			}
			time.Sleep(5 * time.Millisecond)
			_, _ = io.WriteString(c, tc.rest)
			if resp, err := http.ReadResponse(in, nil); err == nil {
				t.Errorf("%s: a part of the body is answered with %s", name, resp.Status)
			}
			_ = c.Close()
		}
	}
	s.idle(t)
	if strings.Contains(s.log.String(), "/inner") {
		t.Error("a part of the body is in the log")
	}
}

// TestServer_WhoSendsNoMoreOfABodyIsNotWaitedFor after an answer of the backend or the proxy.
func TestServer_WhoSendsNoMoreOfABodyIsNotWaitedFor(t *testing.T) {
	b := startScript(t, func(int, int, string) (string, bool) {
		return "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno", false
	})
	for name, backend := range map[string]string{"the backend's": b.addr, "the proxy's": nobody(t)} {
		s := start(t, proxy.Config{RetriesMax: -1, Limits: proxy.Limits{HeadTimeout: 200 * time.Millisecond}}, backend)
		c := dial(t, s)
		_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nhello")
		if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.ContentLength <= 0 {
			t.Fatalf("%s: %v, %v", name, resp, err)
		}
		await.Until(t, "the connection ends after an answer of "+name, func() bool { return s.Connections() == 0 })
	}
}

// TestServer_ATooLongBodyIsNotTheBackends fault, even when it has begun to answer.
func TestServer_ATooLongBodyIsNotTheBackends(t *testing.T) {
	backend := startTCP(t, func(nc net.Conn) {
		in := bufio.NewReader(nc)
		if _, err := http.ReadRequest(in); err == nil {
			_, _ = io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhi")
			_, _ = io.Copy(io.Discard, in)
		}
	})
	s := start(t, proxy.Config{Limits: proxy.Limits{BodyMax: 1 << 10}}, backend, startBackend(t, echo).addr)
	for range 12 {
		c := dial(t, s)
		_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
		time.Sleep(5 * time.Millisecond)
		_, _ = io.WriteString(c, "800\r\n"+strings.Repeat("x", 0x800)+"\r\n0\r\n\r\n")
		_, _ = io.ReadAll(c)
		_ = c.Close()
	}
	s.idle(t)
	for _, st := range s.Status().Backends {
		if st.Failures > 0 {
			t.Errorf("blamed: %+v", st)
		}
	}
}

// TestServer_WhoLeavesGetsEarlierAnswers: a client that stops sending still gets the answers
// that were complete.
func TestServer_WhoLeavesGetsEarlierAnswers(t *testing.T) {
	const size = 900 << 10
	slow := make(chan struct{}, 1)
	b := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			slow <- struct{}{}
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(size))
		_, _ = w.Write(make([]byte, size))
	})
	s := start(t, proxy.Config{}, b.addr)
	c := dial(t, s)
	_ = c.SetReadBuffer(16 << 10)
	_, _ = io.WriteString(c, "GET /big HTTP/1.1\r\nHost: a\r\n\r\nGET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := 0
	for piece, waits := make([]byte, 8<<10), true; waits && got < size; { // until the second is in progress
		n, err := resp.Body.Read(piece)
		if got += n; err != nil {
			break
		}
		select {
		case <-slow:
			waits = false
		case <-time.After(2 * time.Millisecond):
		}
	}
	_ = c.CloseWrite()
	time.Sleep(20 * time.Millisecond)
	if n, err := io.Copy(io.Discard, resp.Body); err != nil || got+int(n) != size {
		t.Errorf("%d of %d bytes, %v", got+int(n), size, err)
	}
	s.idle(t)
}
