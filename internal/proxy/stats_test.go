package proxy_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/proxy"
	"github.com/isotone/isotone/internal/stats"
)

// TestServer_MeasuresRequests on each path: what they cost here is told, and in the log.
func TestServer_MeasuresRequests(t *testing.T) {
	b := startBackend(t, echo)
	var mu sync.Mutex
	var sum stats.Section
	requests := 0
	s := start(t, proxy.Config{Measured: func(one stats.Section) {
		mu.Lock()
		defer mu.Unlock()
		sum = sum.Plus(one)
		if requests++; one.Measured != (runtime.GOOS == "linux") || one.CPU() > one.Wall+one.Wall/100+1000 {
			t.Errorf("%+v", one)
		}
	}}, b.addr)
	const rounds = 50
	for range rounds {
		paths(t, s, func(*http.Request) {}, func(t *testing.T, path string, resp *http.Response, _ string) {
			if resp.StatusCode != http.StatusOK {
				t.Errorf("%s: %s", path, resp.Status)
			}
		})
	}
	var ended int
	eventually(t, "all are told", func() bool {
		mu.Lock()
		defer mu.Unlock()
		ended = len(b.requests())
		return requests == ended
	})
	if ended < 2*rounds || sum.Measured && (sum.User == 0 || sum.System == 0) {
		t.Errorf("%d requests were %+v", ended, sum)
	}
	eventually(t, "all are logged", func() bool { return strings.Count(s.log.String(), `"msg":"request"`) == ended })
	for line := range strings.Lines(s.log.String()) {
		var times struct {
			Wall   *float64 `json:"wall_us"`
			User   *float64 `json:"user_us"`
			System *float64 `json:"system_us"`
			Stall  *float64 `json:"stall_us"`
		}
		if err := json.Unmarshal([]byte(line), &times); err != nil || times.Wall == nil ||
			sum.Measured && (times.User == nil || times.System == nil || times.Stall == nil) {
			t.Fatalf("%v: %s", err, line)
		}
	}
}

// TestServer_MeasuresASample: the same requests as every other process does.
func TestServer_MeasuresASample(t *testing.T) {
	const sample, all = 4, 200
	b := startBackend(t, echo)
	var mu sync.Mutex
	got := 0
	s := start(t, proxy.Config{Sample: sample, Measured: func(stats.Section) {
		mu.Lock()
		defer mu.Unlock()
		got++
	}}, b.addr)
	want := 0
	c := client(t)
	for i := range all {
		r := request(t, "GET", "http://"+s.addr+"/", nil)
		id := fmt.Sprint("request-", i)
		if stats.Sampled(id, sample) {
			want++
		}
		r.Header.Set("X-Request-ID", id)
		do(t, c, r)
	}
	if want == 0 || want == all {
		t.Fatalf("%d of %d are in the sample", want, all)
	}
	eventually(t, "the sample is told", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return got == want
	})
	eventually(t, "the sample is logged", func() bool { return strings.Count(s.log.String(), `"msg":"request"`) == want })
}

// stuck is a log that hangs until it is let go.
type stuck struct {
	slog.Handler
	free chan struct{}
}

func (l stuck) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "request" {
		<-l.free
	}
	return l.Handler.Handle(ctx, r)
}

// TestServer_ALogThatHangsDelaysNothing, and what has no line is counted.
func TestServer_ALogThatHangsDelaysNothing(t *testing.T) {
	b := startScript(t, func(int, int, string) (string, bool) { return okAnswer, false })
	lines := &safeBuffer{}
	log := stuck{slog.NewJSONHandler(lines, nil), make(chan struct{})}
	var dropped atomic.Int64
	s := startLogging(t, proxy.Config{Measured: func(stats.Section) {}, Dropped: func() { dropped.Add(1) }}, slog.New(log), b.addr)
	let := sync.OnceFunc(func() { close(log.free) })
	t.Cleanup(let)
	c := dial(t, s)
	in := bufio.NewReader(c)
	const batch, batches, room = 100, 50, 4096
	for range batches {
		if _, err := c.Write([]byte(strings.Repeat("GET / HTTP/1.1\r\nHost: x\r\n\r\n", batch))); err != nil {
			t.Fatal(err)
		}
		for range batch {
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
		}
	}
	let()
	eventually(t, "what there was room for is written", func() bool { return strings.Count(lines.String(), `"msg":"request"`) >= room })
	eventually(t, "the others are counted", func() bool {
		_, text, _ := strings.Cut(lines.String(), `"msg":"requests were not logged: the log is too slow","requests":`)
		var lost int
		_, err := fmt.Sscan(strings.TrimSpace(strings.SplitN(text, "}", 2)[0]), &lost)
		return err == nil && int64(lost) == dropped.Load() && lost+strings.Count(lines.String(), `"msg":"request"`) == batch*batches
	})
}

// TestServer_ALogThatHangsHoldsItsEndForSecondsOnly, whatever else there would be to say.
func TestServer_ALogThatHangsHoldsItsEndForSecondsOnly(t *testing.T) {
	b := startScript(t, func(int, int, string) (string, bool) { return okAnswer, false })
	log := stuck{slog.NewJSONHandler(&safeBuffer{}, nil), make(chan struct{})}
	defer close(log.free)
	s := startLogging(t, proxy.Config{LogRequests: true}, slog.New(log), b.addr)
	do(t, client(t), request(t, "GET", "http://"+s.addr+"/", nil))
	ended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		ended <- s.Shutdown(ctx)
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("it hangs with the log")
	}
}
