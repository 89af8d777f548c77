package stats_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/front/requestid"
	"github.com/isotone/isotone/internal/front/stats"
)

// fieldID is spelled as it is written, not as net/http would have it.
var fieldID = requestid.FieldID

// lines is a log that can be read while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) all(t *testing.T) (list []map[string]any) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		list = append(list, m)
	}
	return list
}

// measure sends one request through a measured handler.
func measure(t *testing.T, next http.HandlerFunc, r *http.Request) (stats.Record, *httptest.ResponseRecorder, map[string]any) {
	t.Helper()
	log := &lines{}
	var seen stats.Record
	recorder := stats.New(stats.Config{Log: slog.New(slog.NewJSONHandler(log, nil)), Observe: func(r *stats.Record) { seen = *r }})
	w := httptest.NewRecorder()
	func() {
		defer func() { _ = recover() }()
		stats.Handler(next, stats.Options{Recorder: recorder}).ServeHTTP(w, r)
	}()
	list := log.all(t)
	if len(list) != 1 {
		t.Fatalf("%d lines", len(list))
	}
	return seen, w, list[0]
}

func TestHandler_SleepIsStallAndLogsIt(t *testing.T) {
	r := httptest.NewRequest("GET", "/slow?secret=1", nil)
	r.Header.Set("X-Request-ID", "request-7")
	r.Header.Set("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	seen, w, line := measure(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Request-ID") != "request-7" || !strings.HasPrefix(r.Header.Get("Traceparent"), "00-4bf92f3577b34da6a3ce929d0e0e4736-") ||
			strings.Contains(r.Header.Get("Traceparent"), "00f067aa0ba902b7") {
			t.Errorf("the handler sees %v", r.Header)
		}
		time.Sleep(30 * time.Millisecond)
		_, _ = io.WriteString(w, "done")
	}, r)
	if ids := w.Header()[fieldID]; len(ids) != 1 || ids[0] != "request-7" {
		t.Errorf("the answer has %v", w.Header())
	}
	if r.Header.Get("Traceparent") != "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" {
		t.Error("the server's request was changed")
	}
	if seen.Wall < 30*time.Millisecond || seen.Measured && seen.Stall() < seen.Wall*3/4 {
		t.Errorf("%+v, stall %v", seen, seen.Stall())
	}
	want := map[string]any{
		"level": "INFO", "msg": "request", "request_id": "request-7", "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
		"protocol": "http1", "method": "GET", "path": "/slow", "status": 200.0, "code": "ok", "wall_us": float64(seen.Wall) / 1e3,
	}
	if seen.Measured {
		want["user_us"], want["system_us"], want["stall_us"] = float64(seen.User)/1e3, float64(seen.System)/1e3, float64(seen.Stall())/1e3
	}
	for key, value := range want {
		if line[key] != value {
			t.Errorf("%s is %v, want %v", key, line[key], value)
		}
	}
	if len(line) != len(want)+1 || line["time"] == nil {
		t.Errorf("the line is %v", line)
	}
}

func TestHandler_WorkIsCPU(t *testing.T) {
	var best float64
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline) && best < 0.6; {
		seen, _, _ := measure(t, func(http.ResponseWriter, *http.Request) {
			began := time.Now()
			burn(func() bool { return time.Since(began) > 5*time.Millisecond })
		}, httptest.NewRequest("GET", "/", nil))
		if !seen.Measured {
			t.Skip("CPU time is not known here")
		}
		best = max(best, float64(seen.CPU())/float64(seen.Wall))
	}
	if best < 0.6 {
		t.Errorf("of the work no more than %.0f %% is CPU", 100*best)
	}
}

func TestHandler_MakesWhatIsMissingOrInvalid(t *testing.T) {
	for _, id := range []string{"", "not valid", strings.Repeat("x", 200)} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Request-ID", id)
		r.Header.Set("Tracestate", "of=nothing")
		var inner string
		seen, w, _ := measure(t, func(_ http.ResponseWriter, r *http.Request) {
			inner = r.Header.Get("X-Request-ID")
			if r.Header.Get("Tracestate") != "" || r.Header.Get("Traceparent") == "" {
				t.Errorf("the handler sees %v", r.Header)
			}
		}, r)
		got := w.Header()[fieldID]
		if len(got) != 1 || got[0] == id || got[0] != inner || got[0] != seen.ID || len(got[0]) != 32 || seen.Trace == [16]byte{} {
			t.Errorf("%q became %q, %q, %+v", id, got, inner, seen)
		}
	}
}

func TestHandler_CodeIsOfTheAnswer(t *testing.T) {
	for _, tt := range []struct {
		name   string
		next   http.HandlerFunc
		status int
		code   string
	}{
		{"nothing is written", func(http.ResponseWriter, *http.Request) {}, 200, "ok"},
		{"a body", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(nil) }, 200, "ok"},
		{"created", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201); w.WriteHeader(500) }, 201, "ok"},
		{"hints first", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(404) }, 404, "not_found"},
		{"teapot", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(418) }, 418, "invalid_argument"},
		{"overloaded", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, 503, "overloaded"},
		{"forbidden", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) }, 403, "forbidden"},
		{"broken", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) }, 502, "internal"},
		{"says its code", func(w http.ResponseWriter, _ *http.Request) {
			w.(interface{ SetCode(string) }).SetCode("no_leader")
			w.WriteHeader(503)
		}, 503, "no_leader"},
		{"cut", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200); panic(http.ErrAbortHandler) }, 0, "internal"},
	} {
		seen, _, line := measure(t, tt.next, httptest.NewRequest("GET", "/", nil))
		if seen.Status != tt.status || seen.Code != tt.code || line["code"] != tt.code {
			t.Errorf("%s: %d %s, want %d %s", tt.name, seen.Status, seen.Code, tt.status, tt.code)
		}
	}
}

func TestHandler_SamplesByTheID(t *testing.T) {
	counts := [2]int{}
	var chosen [2]map[string]bool
	for process := range counts {
		chosen[process] = map[string]bool{}
		recorder := stats.New(stats.Config{Sample: 10, Observe: func(r *stats.Record) { counts[process]++; chosen[process][r.ID] = true }})
		h := stats.Handler(http.NotFoundHandler(), stats.Options{Recorder: recorder})
		for i := range 2000 {
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("X-Request-ID", fmt.Sprint("request-", i))
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != 404 || len(w.Header()[fieldID]) != 1 {
				t.Fatalf("%d %v", w.Code, w.Header())
			}
		}
	}
	if counts[0] < 100 || counts[0] > 300 {
		t.Errorf("%d of 2000 were measured, one in 10 was asked for", counts[0])
	}
	for id := range chosen[0] {
		if !chosen[1][id] {
			t.Fatalf("%s was chosen by one process only", id)
		}
	}
}

func TestHandler_SkipsWhatItIsTold(t *testing.T) {
	recorder := stats.New(stats.Config{Observe: func(r *stats.Record) { t.Errorf("measured: %+v", r) }})
	h := stats.Handler(http.NotFoundHandler(), stats.Options{Recorder: recorder, Skip: func(r *http.Request) bool { return r.URL.Path == "/stream" }})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/stream", nil))
	if len(w.Header()[fieldID]) != 1 {
		t.Errorf("the answer has no ID: %v", w.Header())
	}
}

func TestHandler_BoundsItsThreads(t *testing.T) {
	var measured, all atomic.Int64
	recorder := stats.New(stats.Config{Observe: func(r *stats.Record) {
		all.Add(1)
		if r.Measured {
			measured.Add(1)
		}
	}})
	const clients, threads = 20, 3
	var inside, done sync.WaitGroup
	inside.Add(clients)
	h := stats.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		inside.Done()
		inside.Wait()
	}), stats.Options{Recorder: recorder, ThreadsMax: threads})
	for range clients {
		done.Go(func() { h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)) })
	}
	done.Wait()
	if all.Load() != clients || measured.Load() > threads {
		t.Errorf("%d of %d were measured with %d threads", measured.Load(), all.Load(), threads)
	}
	before := measured.Load()
	inside.Add(1)
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	if before > 0 && measured.Load() != before+1 {
		t.Error("the threads are not given back")
	}
}

// TestHandler_PassesOnWhatTheServerCan asks a real server for what goes beyond writing.
func TestHandler_PassesOnWhatTheServerCan(t *testing.T) {
	recorder := stats.New(stats.Config{})
	mux := http.NewServeMux()
	mux.HandleFunc("/flush", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "first ")
		w.(http.Flusher).Flush()
		if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Error(err)
		}
		_, _ = io.Copy(w, strings.NewReader("second"))
	})
	mux.HandleFunc("/own", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Request-ID", "own") })
	mux.HandleFunc("/hijack", func(w http.ResponseWriter, _ *http.Request) {
		nc, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(nc, "HTTP/1.0 200 OK\r\n\r\nby hand")
		_ = nc.Close()
	})
	server := httptest.NewServer(stats.Handler(mux, stats.Options{Recorder: recorder}))
	defer server.Close()
	for path, want := range map[string]string{"/flush": "first second", "/hijack": "by hand", "/own": ""} {
		answer, err := server.Client().Get(server.URL + path)
		if err != nil {
			t.Fatal(path, err)
		}
		body, err := io.ReadAll(answer.Body)
		if err != nil || string(body) != want {
			t.Errorf("%s: %q, %v", path, body, err)
		}
		if ids := answer.Header.Values("X-Request-ID"); path == "/own" && (len(ids) != 1 || ids[0] != "own") {
			t.Errorf("the handler's own ID became %v", ids)
		}
		_ = answer.Body.Close()
	}
}

func BenchmarkHandler(b *testing.B) {
	recorder := stats.New(stats.Config{})
	h := stats.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), stats.Options{Recorder: recorder})
	r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(w, r)
	}
}
