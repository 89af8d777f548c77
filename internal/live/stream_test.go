package live_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/live"
)

// event is a server-sent event as a browser would hand it on.
type event struct{ id, name, data string }

// events reads a stream as the HTML standard says (§9.2.6). It returns the complete
// events, and how many comments there were.
func events(text string) (all []event, comments int) {
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	var e event
	var data []string
	for len(text) > 0 {
		line, rest, ended := strings.Cut(text, "\n")
		if !ended {
			break
		}
		text = rest
		if line == "" {
			if data != nil {
				e.data = strings.Join(data, "\n")
				all = append(all, e)
			}
			e, data = event{id: e.id}, nil
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "":
			comments++
		case "data":
			data = append(data, value)
		case "id":
			e.id = value
		case "event":
			e.name = value
		}
	}
	return all, comments
}

func TestAppendEvent_IsReadBackAsItWas(t *testing.T) {
	for _, tt := range []struct{ data, want string }{
		{`{"a":1}`, `{"a":1}`},
		{"{\n \"a\": 1\n}", "{\n \"a\": 1\n}"},
		{"{\n\n}\n", "{\n\n}\n"},
		{"\n1", "\n1"},
		{" 1", " 1"},
		{"{\r\n}", "{\n}"},
		{"[\r1,\r\r2\r\n\n]", "[\n1,\n\n2\n\n]"},
		{"1\r", "1\n"},
		{"[\n\"data: x\",\n\"id: y\"]", "[\n\"data: x\",\n\"id: y\"]"},
	} {
		got, comments := events(string(live.AppendEvent(nil, "i", []byte(tt.data))))
		if len(got) != 1 || got[0] != (event{"i", "", tt.want}) || comments != 0 {
			t.Errorf("%q: %+v", tt.data, got)
		}
	}
}

func FuzzAppendEvent(f *testing.F) {
	f.Add([]byte("{\r\n\"a\":\r1\n}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		want := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(data))
		got, _ := events(string(live.AppendEvent(nil, "i", data)))
		if len(got) != 1 || got[0].data != want {
			t.Fatalf("%q: %q", data, got)
		}
	})
}

// reader is the server's side of a stream, in memory.
type reader struct {
	set    *live.Set
	header http.Header
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	text    strings.Builder
	status  int
	writes  int
	flushed int
	blocked chan struct{} // while not nil, writes wait for it
}

// follow opens a stream that the test ends with the set.
func follow(s *live.Set, target string, fields ...string) *reader {
	ctx, cancel := context.WithCancel(context.Background())
	w := &reader{set: s, header: http.Header{}, cancel: cancel, done: make(chan struct{})}
	r := httptest.NewRequest("GET", target, nil).WithContext(ctx)
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	go func() {
		defer close(w.done)
		s.Handler().ServeHTTP(w, r)
	}()
	return w
}

func (w *reader) Header() http.Header              { return w.header }
func (w *reader) SetWriteDeadline(time.Time) error { return nil }
func (w *reader) WriteHeader(status int)           { w.status = status }

func (w *reader) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flushed = w.text.Len()
	return nil
}

func (w *reader) Write(b []byte) (int, error) {
	w.mu.Lock()
	blocked := w.blocked
	w.mu.Unlock()
	if blocked != nil {
		<-blocked
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes++
	return w.text.Write(b)
}

func (w *reader) block(c chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blocked = c
}

// got returns the data of the events that were flushed, with blanks between them, and
// the comments.
func (w *reader) got() (data string, comments int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all, comments := events(w.text.String()[:w.flushed])
	var texts []string
	for _, e := range all {
		texts = append(texts, e.data)
	}
	return strings.Join(texts, " "), comments
}

func TestStream_HasTheDocumentAndThenEachChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVariable("x")
		s := open(t, live.Config{Interval: time.Second, KeepAlive: 15 * time.Second, Sources: []live.Source{v.source("doc")}})
		passes(500 * time.Millisecond)
		early := follow(s, "/live/doc/stream")
		passes(0)
		if data, comments := early.got(); data != "" || comments != 1 || early.status != 200 {
			t.Errorf("before the first load: %q, %d comments", data, comments)
		}
		for _, text := range []string{"1", "2", "2", "2", "3"} {
			v.set(text)
			passes(time.Second)
		}
		late := follow(s, "/live/doc/stream")
		passes(0)
		if data, _ := late.got(); data != "3" {
			t.Errorf("at once: %q", data)
		}
		v.fail(errGone)
		passes(31 * time.Second)
		v.set("4")
		passes(time.Second)
		if data, comments := early.got(); data != "1 2 3 4" || comments != 3 {
			t.Errorf("%q, %d comments", data, comments)
		}
		if data, comments := late.got(); data != "3 4" || comments != 2 {
			t.Errorf("late: %q, %d comments", data, comments)
		}
		h := late.header
		if h.Get("Content-Type") != "text/event-stream" || h.Get("Cache-Control") != "no-store" || h.Get("X-Accel-Buffering") != "no" {
			t.Errorf("%v", h)
		}
		if s.Streams() != 2 {
			t.Errorf("%d streams", s.Streams())
		}
		late.cancel()
		<-late.done
		s.Close()
		<-early.done
		if s.Streams() != 0 {
			t.Errorf("%d streams", s.Streams())
		}
		after := follow(s, "/live/doc/stream")
		<-after.done
	})
}

func TestStream_RepeatsNothingAfterLastEventID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVariable(`"a"`)
		s := open(t, live.Config{Interval: time.Second, Sources: []live.Source{v.source("doc")}})
		defer s.Close()
		passes(0)
		first := follow(s, "/live/doc/stream")
		passes(0)
		all, _ := events(first.text.String())
		if len(all) != 1 || `"`+all[0].id+`"` != s.Lookup("doc").ETag() || all[0].name != "" {
			t.Fatalf("%+v", all)
		}
		again := follow(s, "/live/doc/stream", "Last-Event-ID", all[0].id)
		other := follow(s, "/live/doc/stream", "Last-Event-ID", "other")
		passes(time.Second)
		if data, comments := again.got(); data != "" || comments != 1 {
			t.Errorf("repeated: %q, %d comments", data, comments)
		}
		v.set(`"b"`)
		passes(time.Second)
		if data, _ := again.got(); data != `"b"` {
			t.Errorf("%q", data)
		}
		if data, _ := other.got(); data != `"a" "b"` {
			t.Errorf("unknown id: %q", data)
		}
		s.Close()
		<-first.done
		<-again.done
		<-other.done
	})
}

func TestStream_SlowReaderSkipsToTheNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVariable("0")
		s := open(t, live.Config{Interval: time.Second, Sources: []live.Source{v.source("doc")}})
		passes(500 * time.Millisecond)
		slow, fast := follow(s, "/live/doc/stream"), follow(s, "/live/doc/stream")
		passes(0)
		release := make(chan struct{})
		slow.block(release)
		for i := 1; i <= 5; i++ {
			v.set(fmt.Sprint(i))
			passes(time.Second)
		}
		slow.block(nil)
		close(release)
		passes(0)
		if data, _ := slow.got(); data != "0 1 5" {
			t.Errorf("slow: %q", data)
		}
		if data, _ := fast.got(); data != "0 1 2 3 4 5" {
			t.Errorf("fast: %q", data)
		}
		s.Close()
		<-slow.done
		<-fast.done
	})
}

func TestStream_NumberIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open1, most atomic.Int64
		s := open(t, live.Config{
			Interval: time.Second, StreamsMax: 2, Sources: []live.Source{newVariable("1").source("a"), newVariable("2").source("b")},
			Observe: live.Observer{Streams: func(_ string, change int) { most.Store(max(most.Load(), open1.Add(int64(change)))) }},
		})
		passes(0)
		first, second := follow(s, "/live/a/stream"), follow(s, "/live/b/stream")
		passes(0)
		w := &deadlined{httptest.NewRecorder()}
		s.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/live/a/stream", nil))
		if w.Code != 503 || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), `"overloaded"`) {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		first.cancel()
		<-first.done
		third := follow(s, "/live/a/stream")
		passes(0)
		if data, _ := third.got(); data != "1" || most.Load() != 2 {
			t.Errorf("%q, %d at once", data, most.Load())
		}
		s.Close()
		<-second.done
		<-third.done
		if open1.Load() != 0 {
			t.Errorf("%d streams", open1.Load())
		}
	})
}

func TestStream_HeadEndsAndAServerWithoutDeadlinesIsRefused(t *testing.T) {
	s := pair(t, nil)
	w := &deadlined{httptest.NewRecorder()}
	s.Handler().ServeHTTP(w, httptest.NewRequest("HEAD", "/live/small/stream", nil))
	if w.Code != 200 || w.Body.Len() != 0 || w.Header().Get("Content-Type") != "text/event-stream" {
		t.Errorf("HEAD: %d %v", w.Code, w.Header())
	}
	if got := ask(s, "GET", "/live/small/stream"); got.Code != 500 || s.Streams() != 0 {
		t.Errorf("%d, %d streams", got.Code, s.Streams())
	}
}

// protocols are the ways over TCP; each returns a client for a server.
var protocols = map[string]func(*httptest.Server){
	"http1":  func(s *httptest.Server) { s.Start() },
	"https1": func(s *httptest.Server) { s.StartTLS() },
	"h2":     func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() },
}

func TestStream_OverRealConnections(t *testing.T) {
	for name, start := range protocols {
		t.Run(name, func(t *testing.T) {
			v := newVariable("{\n\"n\": 1\n}\n")
			s := open(t, live.Config{KeepAlive: 20 * time.Millisecond, Sources: []live.Source{v.source("doc")}})
			reads(t, s, "doc", "{\n\"n\": 1\n}\n")
			server := httptest.NewUnstartedServer(s.Handler())
			start(server)
			defer server.Close()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			r, _ := http.NewRequestWithContext(ctx, "GET", server.URL+"/live/doc/stream", nil)
			answer, err := server.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = answer.Body.Close() }()
			if major := map[bool]int{true: 2, false: 1}[name == "h2"]; answer.ProtoMajor != major {
				t.Fatalf("HTTP/%d", answer.ProtoMajor)
			}
			var text strings.Builder
			lines := bufio.NewReader(answer.Body)
			next := func(want string, comments int) {
				t.Helper()
				for {
					line, err := lines.ReadString('\n')
					if err != nil {
						t.Fatalf("%v after %q", err, text.String())
					}
					text.WriteString(line)
					all, quiet := events(text.String())
					if len(all) == 1 && quiet >= comments {
						if all[0].data != want {
							t.Fatalf("%q, want %q", all[0].data, want)
						}
						text.Reset()
						return
					}
				}
			}
			next("{\n\"n\": 1\n}\n", 3)
			for i := range 3 {
				v.set(fmt.Sprint(i))
				next(fmt.Sprint(i), 0)
			}
			s.Close()
			for err = nil; err == nil; {
				_, err = lines.ReadString('\n')
			}
			if err.Error() != "EOF" {
				t.Errorf("the stream ends with %v", err)
			}
			await.Until(t, "no streams", func() bool { return s.Streams() == 0 })
		})
	}
}

// TestStream_ReaderThatNeverReadsIsCut has one such reader in each protocol.
func TestStream_ReaderThatNeverReadsIsCut(t *testing.T) {
	t.Parallel()
	for name, start := range protocols {
		t.Run(name, func(t *testing.T) {
			var n, cut atomic.Int64
			pad := strings.Repeat("x", 256<<10)
			s := open(t, live.Config{
				WriteTimeout: 200 * time.Millisecond, Observe: live.Observer{Cut: func(string) { cut.Add(1) }},
				Sources: []live.Source{live.Func("doc", func(context.Context) ([]byte, error) {
					return fmt.Appendf(nil, `[%d,"%s"]`, n.Add(1), pad), nil
				})},
			})
			server := httptest.NewUnstartedServer(s.Handler())
			server.Listener = smallBuffers{server.Listener, 16 << 10}
			start(server)
			defer server.Close()
			client := server.Client()
			transport := client.Transport.(*http.Transport)
			transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := new(net.Dialer).DialContext(ctx, network, addr)
				if err == nil {
					_ = c.(*net.TCPConn).SetReadBuffer(16 << 10)
				}
				return c, err
			}
			r, _ := http.NewRequestWithContext(t.Context(), "GET", server.URL+"/live/doc/stream", nil)
			answer, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = answer.Body.Close() }()
			await.Until(t, "the reader to be cut", func() bool { return cut.Load() == 1 && s.Streams() == 0 })
		})
	}
}

// smallBuffers bounds what the kernel holds for a connection, as a server should.
type smallBuffers struct {
	net.Listener
	size int
}

func (l smallBuffers) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		_ = c.(*net.TCPConn).SetWriteBuffer(l.size)
	}
	return c, err
}

func TestStream_GoneReaderIsNoticed(t *testing.T) {
	s := pair(t, func(c *live.Config) { c.KeepAlive = 10 * time.Millisecond })
	server := httptest.NewServer(s.Handler())
	defer server.Close()
	c, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.Write([]byte("GET /live/small/stream HTTP/1.1\r\nHost: a\r\n\r\n"))
	await.Until(t, "the stream", func() bool { return s.Streams() == 1 })
	_ = c.Close()
	await.Until(t, "no stream", func() bool { return s.Streams() == 0 })
}
