package stats_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front/stats"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// logged returns a line as a node writes it.
func logged(id, path, code string, after, wall, user, system time.Duration) string {
	return fmt.Sprintf(`{"time":%q,"level":"INFO","msg":"request","request_id":%q,"trace_id":"4bf92f3577b34da6a3ce929d0e0e4736",`+
		`"protocol":"http1","method":"GET","path":%q,"status":200,"code":%q,"wall_us":%v,"user_us":%v,"system_us":%v,"stall_us":%v}`+"\n",
		noon.Add(after).Format(time.RFC3339Nano), id, path, code, us(wall), us(user), us(system), us(wall-user-system))
}

// us returns microseconds without an exponent.
func us(d time.Duration) string { return strconv.FormatFloat(float64(d)/1e3, 'f', -1, 64) }

// forwarded returns a line as a proxy writes it.
func forwarded(id string, after, wall time.Duration) string {
	return fmt.Sprintf(`{"time":%q,"level":"INFO","msg":"request","request_id":%q,"client":"127.0.0.1","status":200,"wall_us":%d,`+
		`"method":"GET","target":"/a?b=c","backend":"http://127.0.0.1:1"}`+"\n", noon.Add(after).Format(time.RFC3339Nano), id, wall.Microseconds())
}

// readLogs reads logs that are named a, b and so on.
func readLogs(t *testing.T, o stats.ReadOptions, logs ...string) *stats.Report {
	t.Helper()
	var sources []stats.Source
	for i, text := range logs {
		sources = append(sources, stats.Source{Name: string(rune('a' + i)), Reader: strings.NewReader(text)})
	}
	if o.Cores == 0 {
		o.Cores = 4
	}
	r, err := stats.Read(context.Background(), sources, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func near(got, want time.Duration) bool { return math.Abs(float64(got-want)) <= float64(want)/100 }

func TestRead_AnswersTheCapacityQuestion(t *testing.T) {
	var log strings.Builder
	for i := range 1000 {
		log.WriteString(logged(fmt.Sprint("id-", i), "/a", "ok", time.Duration(i)*10*time.Millisecond, 10*time.Millisecond, 1500*time.Microsecond, 500*time.Microsecond))
	}
	r := readLogs(t, stats.ReadOptions{Top: 3}, log.String())
	s, c := &r.Total, &r.Total.Capacity
	if s.Requests != 1000 || s.Measured != 1000 || s.Errors != 0 || !s.From.Equal(noon) || s.To.Sub(s.From) != 9990*time.Millisecond {
		t.Errorf("%+v", s)
	}
	if c.WorkersPerCore != 5 || c.Workers != 20 || c.PerCore != 500 || c.Wall != 10*time.Millisecond || c.CPU != 2*time.Millisecond ||
		c.User != 0.15 || c.System != 0.05 || c.Stall != 0.8 {
		t.Errorf("%+v", c)
	}
	if !near(s.Wall.P50, 10*time.Millisecond) || !near(s.Stall.P99, 8*time.Millisecond) || s.User.Mean != 1500*time.Microsecond || s.System.Sum != 500*time.Millisecond {
		t.Errorf("%+v", s)
	}
	if s.Rate < 100 || s.Rate > 101 || s.RatePeak < 100 || s.RateOver.Interval != time.Second || len(s.RateOver.Requests) != 10 || s.RateOver.Requests[3] != 100 {
		t.Errorf("rate %v, peak %v, %+v", s.Rate, s.RatePeak, s.RateOver)
	}
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"1,000 requests in 9.99 s, 100/s, 0 errors", "one core can keep 5.0 such requests in flight", "5.0·C workers: 20 for 4 cores",
		"at most 500 of them a second", "user 15.0 %", "system 5.0 %", "stall 80.0 %", "id-0", "10.0 ms",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, &text)
		}
	}
}

func TestRead_CountsBrokenLinesAndPassesOthersOver(t *testing.T) {
	good := logged("x", "/a", "ok", 0, 1000, 1, 1)
	log := strings.Join([]string{
		`{"time":"2026-05-01T12:00:00Z","level":"INFO","msg":"serving","request":1}`, // 1: other
		"goroutine 1 [running]:",  // 2: other
		"",                        // 3: other
		`{"time":"2026-05-01T12:`, // 4: broken
		`{"msg":"request","request_id":"x","wall_us":1}`,                                                          // 5: no time
		`{"time":"2026-05-01T12:00:00Z","msg":"request","request_id":"x"}`,                                        // 6: no wall
		`{"time":"2026-05-01T12:00:00Z","msg":"request","request_id":"x","wall_us":-1}`,                           // 7
		`{"time":"2026-05-01T12:00:00Z","msg":"request","request_id":"x","wall_us":"1ms"}`,                        // 8
		`{"time":"2026-05-01T12:00:00Z","msg":"request","request_id":"x","wall_us":1,"user_us":1}`,                // 9
		`{"time":"yesterday","msg":"request","request_id":"x","wall_us":1}`,                                       // 10
		`{"time":"2026-05-01T12:00:00Z","msg":"request","request_id":"x","wall_us":1,"user_us":-1,"system_us":0}`, // 11
		`{"time":"2026-05-01T12:00:00Z","msg":"request","request_id":x}`,                                          // 12
		`{"time":1777636800000,"msg":"request","request_id":"x","status":200,"wall_us":2}`,                        // 13: good, LOG_TIME_MS
		`{"time": "2026-05-01T12:00:00Z", "msg": "request failed", "status": 502, "wall_us": 3} `,                 // 14: good, a proxy's
		strings.TrimSpace(good),                                                     // 15
		`{"msg":"request` + strings.Repeat("x", 300<<10) + `"}`,                     // 16: too long
		`{"time":"2026-05-01T12:00:00Z","msg":"other","wall_us":"1ms","request":2}`, // 17: other
		strings.TrimSpace(good),                                                     // 18, without an end of line
	}, "\n")
	r := readLogs(t, stats.ReadOptions{}, log)
	f := r.Files[0]
	if f.Lines != 18 || f.Others != 4 || f.Broken != 10 || r.Total.Requests != 4 {
		t.Errorf("%d lines, %d others, %d broken, %d requests", f.Lines, f.Others, f.Broken, r.Total.Requests)
	}
	var lines []uint64
	for _, b := range f.FirstBroken {
		lines = append(lines, b.Line)
	}
	if fmt.Sprint(lines) != "[4 5 6 7 8]" || !strings.Contains(f.FirstBroken[1].Why, "time is missing") || !strings.Contains(f.FirstBroken[4].Why, "mistyped") || !strings.Contains(f.FirstBroken[4].Why, "wall") {
		t.Errorf("%+v", f.FirstBroken)
	}
	if r.Total.Errors != 1 || r.Total.Measured != 2 || !r.Total.From.Equal(noon) || !r.Total.To.Equal(noon) {
		t.Errorf("%+v", r.Total)
	}
	var text bytes.Buffer
	_ = r.WriteText(&text)
	if !strings.Contains(text.String(), "10 lines cannot be read") || !strings.Contains(text.String(), "a:5: time is missing") {
		t.Errorf("%s", &text)
	}
}

func TestRead_JoinsProxyAndBackends(t *testing.T) {
	var proxy, one, two strings.Builder
	for i := range 300 {
		at := time.Duration(i) * time.Millisecond
		id := fmt.Sprint("id-", i)
		backend := &one
		if i%3 == 0 {
			backend = &two
		}
		backend.WriteString(logged(id, "/a", "ok", at, 2*time.Millisecond, time.Millisecond, 0))
		wall := 3 * time.Millisecond
		if i == 7 {
			wall = 50 * time.Millisecond
		}
		proxy.WriteString(forwarded(id, at+time.Millisecond, wall))
	}
	proxy.WriteString(forwarded("alone", time.Second, time.Millisecond))
	r := readLogs(t, stats.ReadOptions{Top: 2, By: "path"}, one.String(), proxy.String(), two.String())
	if len(r.Joins) != 2 || r.Joins[0].Requests != 200 || r.Joins[1].Requests != 100 {
		t.Fatalf("%+v", r.Joins)
	}
	j := &r.Joins[0]
	if j.Outer != "b" || j.Inner != "a" || r.Joins[1].Outer != "b" || r.Joins[1].Inner != "c" {
		t.Errorf("%s contains %s, %s contains %s", j.Outer, j.Inner, r.Joins[1].Outer, r.Joins[1].Inner)
	}
	if !near(j.OuterWall.P50, 3*time.Millisecond) || !near(j.InnerWall.P50, 2*time.Millisecond) || !near(j.Difference.P50, time.Millisecond) || !near(j.Difference.Max, 48*time.Millisecond) {
		t.Errorf("%+v", j)
	}
	if len(j.Farthest) != 2 || j.Farthest[0] != (stats.Joined{ID: "id-7", Outer: 50 * time.Millisecond, Inner: 2 * time.Millisecond}) {
		t.Errorf("%+v", j.Farthest)
	}
	if r.Files[1].Summary.Measured != 0 || r.Files[1].Summary.Requests != 301 || r.Files[0].Summary.Capacity.WorkersPerCore != 2 {
		t.Errorf("%+v", r.Files)
	}
	if len(r.Groups) != 1 || r.Groups[0].Name != "/a" || r.Groups[0].Requests != 601 {
		t.Errorf("%+v", r.Groups)
	}
	var text bytes.Buffer
	_ = r.WriteText(&text)
	for _, want := range []string{"200 requests are in both b and a", "difference", "largest differences", "id-7", "48.0 ms", "→ http://127.0.0.1:1", "CPU time of these requests is not known"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, &text)
		}
	}
}

// TestRead_JoinsOnceThoughClientsRepeatIDs: an ID is what a client says.
func TestRead_JoinsOnceThoughClientsRepeatIDs(t *testing.T) {
	var a, b strings.Builder
	for i := range 1000 {
		at := time.Duration(i) * time.Millisecond
		a.WriteString(logged("same", "/", "ok", at, 1000, 1, 1))
		b.WriteString(forwarded("same", at, 2000))
	}
	r := readLogs(t, stats.ReadOptions{}, a.String(), b.String())
	if len(r.Joins) != 1 || r.Joins[0].Requests > 1000 || r.Joins[0].Requests < 900 {
		t.Errorf("%+v", r.Joins)
	}
}

func TestRead_RotatedFilesAreOneLog(t *testing.T) {
	r := readLogs(t, stats.ReadOptions{Top: 1}, logged("2", "/", "ok", time.Hour, 2000, 1, 1), logged("1", "/", "not_leader", 0, 1000, 1, 1))
	if r.Joined() || r.Total.Requests != 2 || r.Total.Errors != 1 || r.Total.To.Sub(r.Total.From) != time.Hour || len(r.Total.Slowest) != 1 || r.Total.Slowest[0].ID != "2" {
		t.Errorf("%+v", r.Total)
	}
	if n := len(r.Total.RateOver.Requests); n > 240 || r.Total.RateOver.Interval < 15*time.Second {
		t.Errorf("an hour has %d intervals of %v", n, r.Total.RateOver.Interval)
	}
	var text bytes.Buffer
	_ = r.WriteText(&text)
	if !strings.Contains(text.String(), "2 files: 2 requests") || !strings.Contains(text.String(), "workers/core") {
		t.Errorf("%s", &text)
	}
}

func TestRead_KeepsTheSlowest(t *testing.T) {
	var log strings.Builder
	for i := range 500 {
		wall := time.Duration(i*7919%500) * time.Microsecond
		log.WriteString(logged(fmt.Sprint(wall), "/", "ok", time.Duration(i), wall, 0, 0))
	}
	r := readLogs(t, stats.ReadOptions{Top: 20}, log.String())
	for i, s := range r.Total.Slowest {
		if want := time.Duration(499-i) * time.Microsecond; s.Wall != want || s.ID != want.String() {
			t.Errorf("the slowest %d is %+v", i, s)
		}
	}
	if len(r.Total.Slowest) != 20 {
		t.Errorf("%d", len(r.Total.Slowest))
	}
}

func TestRead_BoundsGroupsAndTime(t *testing.T) {
	var log strings.Builder
	for i := range 1000 {
		log.WriteString(logged("x", fmt.Sprint("/", i), "ok", time.Duration(i*7919%1000)*time.Duration(i*7919%1000)*time.Hour, 1000, 500, 0))
	}
	r := readLogs(t, stats.ReadOptions{By: "path"}, log.String())
	sum, other := uint64(0), uint64(0)
	for _, g := range r.Groups {
		if sum += g.Requests; g.Name == "(other)" {
			other = g.Requests
		}
	}
	if len(r.Groups) > 201 || sum != 1000 || other != 800 || r.Groups[0].WorkersPerCore != 2 {
		t.Errorf("%d groups of %d requests, %d in the rest", len(r.Groups), sum, other)
	}
	counted := uint64(0)
	for _, n := range r.Total.RateOver.Requests {
		counted += n
	}
	if counted != 1000 || len(r.Total.RateOver.Requests) > 240 {
		t.Errorf("%d requests in %d intervals", counted, len(r.Total.RateOver.Requests))
	}
}

// endless is a log that never ends.
type endless struct{ line string }

func (e endless) Read(b []byte) (int, error) { return copy(b, e.line), nil }

func TestRead_EndsWhenItIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	told := uint64(0)
	r, err := stats.Read(ctx, []stats.Source{{Name: "a", Reader: endless{logged("x", "/", "ok", 0, 1000, 1, 1)}}}, stats.ReadOptions{Cores: 1, Progress: func(bytes int64, requests uint64) {
		if told = requests; bytes > 1<<20 {
			cancel()
		}
	}})
	if err != nil || !r.Interrupted || r.Total.Requests < told || told == 0 {
		t.Errorf("%v, %+v", err, r)
	}
	var text bytes.Buffer
	_ = r.WriteText(&text)
	if !strings.Contains(text.String(), "Interrupted") {
		t.Errorf("%s", &text)
	}
}

// failing is a log on a disk that fails.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestRead_NamesTheFileThatFails(t *testing.T) {
	_, err := stats.Read(context.Background(), []stats.Source{{Name: "a.log", Reader: failing{}}}, stats.ReadOptions{Cores: 1})
	if !errors.Is(err, io.ErrClosedPipe) || !strings.Contains(err.Error(), "a.log") {
		t.Error(err)
	}
}

func TestReadOptions_SayWhatIsWrong(t *testing.T) {
	for want, o := range map[string]stats.ReadOptions{
		"top": {Top: -1, Cores: 1}, "by": {By: "colour", Cores: 1}, "cores": {},
	} {
		if err := o.Validate(1); !errors.Is(err, isotone.ErrInvalidArgument) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if err := (stats.ReadOptions{Cores: 1}).Validate(stats.FilesMax + 1); err == nil {
		t.Error("there is no bound on files")
	}
}

// TestRead_ReadsWhatTheRecorderWrites ties the two ends together.
func TestRead_ReadsWhatTheRecorderWrites(t *testing.T) {
	log := &lines{}
	recorder := stats.New(stats.Config{Log: slog.New(slog.NewJSONHandler(log, nil))})
	want := stats.Record{Time: noon, ID: "x", Protocol: "h2", Method: "GET", Path: "/\x1b[2J\"", Status: 409, Code: "not_leader"}
	want.Section = stats.Section{Wall: 5 * time.Millisecond, User: time.Millisecond, System: 2 * time.Millisecond, Measured: true}
	recorder.Observe(want)
	recorder.Observe(stats.Record{Time: noon, Code: "ok", Section: stats.Section{Wall: time.Second}})
	r := readLogs(t, stats.ReadOptions{Top: 2, By: "code"}, log.text.String())
	if r.Total.Requests != 2 || r.Total.Measured != 1 || r.Total.Errors != 1 || r.Files[0].Broken != 0 || r.Total.Capacity.WorkersPerCore != 5./3 {
		t.Fatalf("%+v", r)
	}
	if got := r.Total.Slowest[1]; got.ID != want.ID || got.Path != want.Path || got.Protocol != "h2" || got.Status != 409 || got.Stall != 2*time.Millisecond || !got.Time.Equal(noon) {
		t.Errorf("%+v", got)
	}
	var text bytes.Buffer
	_ = r.WriteText(&text)
	if strings.ContainsRune(text.String(), '\x1b') {
		t.Error("a path drives the terminal")
	}
}

func TestSpan_HasThreeDigits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 ns", 999: "999 ns", 1000: "1.00 µs", 9999: "10.0 µs", 99949: "99.9 µs", 99951: "100 µs", 999400: "999 µs", 999999: "1.00 ms",
		1234567: "1.23 ms", 12345678: "12.3 ms", 123456789: "123 ms", time.Second: "1.00 s", 90 * time.Second: "90.0 s", time.Hour: "3600 s",
	} {
		if got := stats.Span(d).String(); got != want {
			t.Errorf("%d: %q, want %q", d, got, want)
		}
	}
}

func TestScan_ReadsWhatThisProgramWrites(t *testing.T) {
	for line, want := range map[string]bool{
		strings.TrimSpace(logged("x", "/a", "ok", 0, 1000, 1, 1)): true,
		strings.TrimSpace(forwarded("x", 0, 1000)):                true,
		`{"time":1777636800000,"wall_us":0,"status":-1}`:          true,
		`{"wall_us":01}`: false, `{"wall_us":-}`: false, `{"wall_us":1.5}`: true, `{"wall_us":1.}`: false, `{"wall_us":1.5e3}`: false, `{"status":1.5}`: false, `{"status":12345678901234567890}`: false, `{"wall_us":"1"}`: false, `{"msg":1}`: false, `{"WALL_US":1}`: false, `{}`: false,
		`{"wall_us":1}}`: false, `{"wall_us":1`: false, `{"wall_us":1,}`: false, `{"wall_us": 1}`: false, `{"path":"\u0041"}`: false, `{"path":"ä"}`: false,
		`{"wall_us":9223372036854775808}`: true, `{"wall_us":{}}`: false, `{"wall_us":null}`: false, "{\"path\":\"\x01\"}": false,
	} {
		if differs, read := stats.ScanDiffers([]byte(line)); differs || read != want {
			t.Errorf("%s: read %v, differs %v", line, read, differs)
		}
	}
}

func FuzzScan(f *testing.F) {
	f.Add([]byte(strings.TrimSpace(logged("x", "/a", "ok", 0, 1000, 1, 1))))
	f.Add([]byte(strings.TrimSpace(forwarded("x", 0, 1000))))
	f.Add([]byte(`{"time":1777636800000,"WALL_US":-1,"wall_us":1.5e3,"x":"\u0000"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if differs, _ := stats.ScanDiffers(b); differs {
			t.Errorf("%q is read in two ways", b)
		}
	})
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(logged("x", "/a", "ok", 0, 1000, 1, 1)))
	f.Add([]byte(forwarded("x", 0, 1000) + "{\n\n{}"))
	f.Add([]byte(`{"time":-9223372036854775808,"msg":"request","request_id":"","wall_us":9223372036854775807,"user_us":9223372036854775807,"system_us":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := stats.Read(context.Background(), []stats.Source{{Name: "a", Reader: bytes.NewReader(b)}, {Name: "b", Reader: bytes.NewReader(b)}}, stats.ReadOptions{Top: 3, By: "path", Cores: 2})
		if err != nil {
			t.Fatal(err)
		}
		var sum uint64
		for _, f := range r.Files {
			sum += f.Summary.Requests
			if f.Summary.Requests+f.Others+f.Broken != f.Lines {
				t.Errorf("%+v", f)
			}
		}
		if sum != r.Total.Requests {
			t.Errorf("%d requests, %d in all", sum, r.Total.Requests)
		}
		if err := errors.Join(r.WriteText(io.Discard), r.WriteHTML(io.Discard)); err != nil {
			t.Error(err)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
	})
}

func BenchmarkRead(b *testing.B) {
	log := []byte(strings.Repeat(logged("4bf92f3577b34da6a3ce929d0e0e4736", "/timestamp", "ok", 0, 100_000, 10_000, 5_000), 10_000))
	b.SetBytes(int64(len(log)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := stats.Read(context.Background(), []stats.Source{{Name: "a", Reader: bytes.NewReader(log)}}, stats.ReadOptions{Top: 10, Cores: 1}); err != nil {
			b.Fatal(err)
		}
	}
}

// TestRead_EndsWhileTheLogPauses, with what there is so far.
func TestRead_EndsWhileTheLogPauses(t *testing.T) {
	in, out := io.Pipe()
	defer out.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_, _ = io.WriteString(out, `{"time":"2026-11-21T10:00:00Z","msg":"request","request_id":"a","wall_us":5}`+"\n")
		_, _ = io.WriteString(out, "{}\n") // is read when the first line has been
		cancel()
	}()
	report, err := stats.Read(ctx, []stats.Source{{Name: "paused", Reader: in}}, stats.ReadOptions{Cores: 1})
	if err != nil || !report.Interrupted || report.Total.Requests != 1 {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestRead_KeepsLittleOfLongLines: what is kept of a line must not keep the line.
func TestRead_KeepsLittleOfLongLines(t *testing.T) {
	const lines = 400
	long := strings.Repeat("x", 200_000)
	in, out := io.Pipe()
	go func() {
		for n := range lines {
			fmt.Fprintf(out, `{"time":"2026-11-21T10:00:00Z","msg":"request","request_id":"%d","path":"/%d%s","note":"%s","wall_us":%d}`+"\n", n, n, long[:2000], long, n+1)
		}
		_ = out.Close()
	}()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	report, err := stats.Read(t.Context(), []stats.Source{{Name: "long", Reader: in}}, stats.ReadOptions{Cores: 1, Top: lines, By: "path"})
	runtime.GC()
	runtime.ReadMemStats(&after)
	if err != nil || report.Total.Requests != lines {
		t.Fatalf("%+v, %v", report, err)
	}
	if kept := int64(after.HeapAlloc) - int64(before.HeapAlloc); kept > lines*20_000 {
		t.Errorf("%d bytes are kept of %d lines", kept, lines)
	}
	runtime.KeepAlive(report)
}
