package live_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/live"
)

// write writes a file of the test's.
func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// replace replaces a file in one step.
func replace(t testing.TB, path, text string) {
	t.Helper()
	write(t, path+".new", text)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func TestFile_VanishesIsTornAndComesBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.json")
	var log lines
	var got codes
	s := open(t, live.Config{Sources: parse(t, "doc=file:"+path), Log: log.logger(), Observe: live.Observer{Loaded: got.loaded}})
	await.Until(t, "the missing file to be noticed", func() bool { return got.count("doc not_found") > 1 })
	if s.Lookup("doc") != nil {
		t.Error("a document from nowhere")
	}
	write(t, path, `{"n":1}`)
	reads(t, s, "doc", `{"n":1}`)
	replace(t, path, `{"n":2}`)
	reads(t, s, "doc", `{"n":2}`)
	write(t, path, `{"n":`) // half way
	await.Until(t, "the torn file to be noticed", func() bool { return got.count("doc invalid_argument") > 1 })
	write(t, path, `{"n":3}`)
	reads(t, s, "doc", `{"n":3}`)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	missing := got.count("doc not_found")
	await.Until(t, "the vanished file to be noticed", func() bool { return got.count("doc not_found") > missing+1 })
	if d := s.Lookup("doc"); string(d.JSON()) != `{"n":3}` || d.Version() != 3 {
		t.Errorf("%s, version %d", d.JSON(), d.Version())
	}
	if log.count("cannot be loaded") != 3 || log.count("loaded again") != 2 {
		t.Errorf("the log:\n%s", log.String())
	}
}

func TestFile_RefusesWhatIsNoFile(t *testing.T) {
	var log lines
	var got codes
	dir := t.TempDir()
	s := open(t, live.Config{Sources: parse(t, "doc=file:"+dir), Log: log.logger(), Observe: live.Observer{Loaded: got.loaded}})
	await.Until(t, "the directory to be refused", func() bool { return log.count("cannot be loaded") == 1 })
	if runtime.GOOS != "windows" && log.count("not a regular file but a directory") != 1 {
		t.Errorf("the log:\n%s", log.String())
	}
	if s.Lookup("doc") != nil {
		t.Error("a directory is a document")
	}
}

// TestSource_OfAGigabyteIsNeverInMemory has a sparse file, which costs no disk, and a
// server that would send as much.
func TestSource_OfAGigabyteIsNeverInMemory(t *testing.T) {
	const size = 1 << 30
	path := filepath.Join(t.TempDir(), "x.json")
	write(t, path, "")
	if err := os.Truncate(path, size); err != nil {
		t.Skipf("no sparse files here: %v", err)
	}
	var sent atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/announced" {
			w.Header().Set("Content-Length", fmt.Sprint(size))
		}
		spaces := []byte(strings.Repeat(" ", 64<<10))
		for range size / len(spaces) {
			n, err := w.Write(spaces)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	}))
	defer server.Close()
	var got codes
	before := allocated()
	s := open(t, live.Config{
		Sources: parse(t, "file=file:"+path+",announced="+server.URL+"/announced,endless="+server.URL+"/"),
		Observe: live.Observer{Loaded: got.loaded}, Interval: live.IntervalMax,
	})
	for _, name := range []string{"file", "announced", "endless"} {
		await.Until(t, name+" to be refused", func() bool { return got.count(name+" invalid_argument") == 1 })
		if s.Lookup(name) != nil {
			t.Errorf("%s is a document", name)
		}
	}
	// One of them is read, up to 8 MiB, into a buffer that grows by copying.
	if now := allocated() - before; now > 96<<20 {
		t.Errorf("%d MiB were allocated", now>>20)
	}
	if sent.Load() > 64<<20 {
		t.Errorf("%d MiB were sent", sent.Load()>>20)
	}
}

// allocated returns how many bytes were allocated so far.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

func TestSource_AtTheLimitIsADocument(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.json")
	text := `"` + strings.Repeat("x", 98) + `"`
	write(t, path, text)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush() // without a length
		_, _ = w.Write([]byte(text))
	}))
	defer server.Close()
	setting := "file=file:" + path + ",url=" + server.URL
	s := open(t, live.Config{Sources: parse(t, setting), SizeMax: len(text)})
	reads(t, s, "file", text)
	reads(t, s, "url", text)
	var got codes
	open(t, live.Config{
		Sources: append(parse(t, setting), newVariable(text).source("func")),
		SizeMax: len(text) - 1, Observe: live.Observer{Loaded: got.loaded},
	})
	for _, name := range []string{"file", "url", "func"} {
		await.Until(t, name+" to be refused", func() bool { return got.count(name+" invalid_argument") > 0 })
	}
}

func TestFetch_TellsWhatIsWrong(t *testing.T) {
	t.Parallel()
	var log lines
	var got codes
	var status atomic.Int64
	status.Store(http.StatusOK)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "u" || password != "hidden" || r.URL.RawQuery != "token=hidden" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.WriteHeader(int(status.Load()))
		_, _ = w.Write([]byte(`{"ok":true}`))
	}))
	from := strings.Replace(server.URL, "http://", "http://u:hidden@", 1) + "/feed?token=hidden"
	s := open(t, live.Config{Sources: parse(t, "doc="+from), Log: log.logger(), Observe: live.Observer{Loaded: got.loaded}})
	reads(t, s, "doc", `{"ok":true}`)
	for code, want := range map[int]string{404: "not_found", 403: "unauthorized", 500: "internal", 503: "overloaded", 304: "internal", 204: "internal"} {
		status.Store(int64(code))
		await.Until(t, want, func() bool { return got.count("doc "+want) > 0 })
		status.Store(http.StatusOK)
		await.Until(t, "the source to recover", func() bool { _, stale := s.Lookup("doc").Age(); return !stale })
		got.mu.Lock()
		clear(got.got)
		got.mu.Unlock()
	}
	server.Close()
	await.Until(t, "the closed server to be noticed", func() bool { _, stale := s.Lookup("doc").Age(); return stale })
	await.Until(t, "its line", func() bool { return log.count("refused") == 1 })
	if log.count("hidden") != 0 {
		t.Errorf("a secret in the log:\n%s", log.String())
	}
	if string(s.Lookup("doc").JSON()) != `{"ok":true}` || s.Lookup("doc").Version() != 1 {
		t.Error("the last good document is not kept")
	}
}

func TestFetch_HangingServerCostsATimeout(t *testing.T) {
	for name, answer := range map[string]string{"silent": "", "half an answer": "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{\"a\""} {
		t.Run(name, func(t *testing.T) {
			addr, connections := hang(t, answer)
			var got codes
			s := open(t, live.Config{
				Sources: parse(t, "doc=http://"+addr+"/"), Timeout: 50 * time.Millisecond, Observe: live.Observer{Loaded: got.loaded},
			})
			await.Until(t, "three timeouts", func() bool { return got.count("doc deadline_exceeded") >= 3 })
			began := time.Now()
			s.Close()
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("Close took %v", took)
			}
			if connections.Load() < 3 {
				t.Errorf("%d connections", connections.Load())
			}
		})
	}
}

// hang starts a server that says something and then nothing more.
func hang(t testing.TB, says string) (addr string, connections *atomic.Int64) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	connections = new(atomic.Int64)
	accepted := make(chan struct{})
	var conns []net.Conn
	go func() {
		defer close(accepted)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			conns = append(conns, c)
			connections.Add(1)
			_, _ = c.Write([]byte(says))
		}
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		<-accepted
		for _, c := range conns {
			_ = c.Close()
		}
	})
	return ln.Addr().String(), connections
}

func TestFetch_AsksWhetherAnythingHasChanged(t *testing.T) {
	var fetched, unchanged atomic.Int64
	var body atomic.Value
	body.Store(`1`)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := body.Load().(string)
		tag := `"` + text + `"`
		if r.Header.Get("If-None-Match") == tag {
			unchanged.Add(1)
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fetched.Add(1)
		w.Header().Set("ETag", tag)
		_, _ = w.Write([]byte(text))
	}))
	defer server.Close()
	s := open(t, live.Config{Sources: parse(t, "doc="+server.URL)})
	for _, text := range []string{"1", "2"} {
		body.Store(text)
		reads(t, s, "doc", text)
		before := unchanged.Load()
		await.Until(t, "a 304", func() bool { return unchanged.Load() > before+1 })
	}
	if fetched.Load() != 2 || s.Lookup("doc").Version() != 2 {
		t.Errorf("fetched %d times, version %d", fetched.Load(), s.Lookup("doc").Version())
	}
	if _, stale := s.Lookup("doc").Age(); stale {
		t.Error("a 304 makes it stale")
	}
}

func TestFetch_FollowsFewRedirects(t *testing.T) {
	var got codes
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/once":
			http.Redirect(w, r, "/end", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		default:
			_, _ = w.Write([]byte("1"))
		}
	}))
	defer server.Close()
	s := open(t, live.Config{
		Sources: parse(t, "once="+server.URL+"/once,loop="+server.URL+"/loop"), Observe: live.Observer{Loaded: got.loaded},
	})
	reads(t, s, "once", "1")
	await.Until(t, "the loop to be refused", func() bool { return got.count("loop internal") > 0 })
}
