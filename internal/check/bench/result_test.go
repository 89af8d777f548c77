package bench

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
)

var rewriteGolden = flag.Bool("rewrite", false, "write the results of the golden tests to testdata")

// knownRun is a finished run with fixed values.
func knownRun() *run {
	o := Default()
	o.Targets, o.Duration, o.Warmup, o.Rate, o.Threads = []string{"127.0.0.1:8081"}, 400*time.Millisecond, time.Second, 100, 2
	r := newRun(&o, newHTTP1(&o, nil), newRoute(o.Targets), nil)
	r.load = newClosedLoop(r)
	second := int64(time.Second)
	r.gap.open(r.warmup)
	r.route.confirm("127.0.0.1:8082", 0, 0)
	r.route.confirm("127.0.0.1:8083", 0.2, 0.25)
	for i := range 40 {
		at := second + int64(i)*int64(10*time.Millisecond)
		issued := isotone.Range{First: isotone.Timestamp{Time: 1, Index: uint64(i)}, Count: 1}
		floor := r.online.Begin()
		latency := int64(i+1) * int64(100*time.Microsecond)
		r.shards[0].answered(operation{issued: issued, sent: at, answered: at + latency}, latency, true)
		r.shards[0].wasLate(int64(i) * 1000)
		r.gap.note(at + latency)
		if err := r.online.End(floor, issued); err != nil {
			panic(err)
		}
		if i == 25 {
			r.shards[0].failed("not_leader", 3)
			r.shards[0].failed("connection", 1)
		}
		if i%10 == 9 {
			r.total.sweep(r.shards, r.warmup, at+int64(10*time.Millisecond))
		}
	}
	return r
}

func knownResult() *Result {
	r := knownRun()
	end := r.warmup + int64(400*time.Millisecond)
	result := r.result(time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC), end, false)
	result.Isotone = "v1.2.3"
	result.Environment = Environment{OS: "linux", Arch: "amd64", CPUs: 2, Threads: 2, Go: "go1.26"}
	return result
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewriteGolden {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s differs (%v); if that is intended: go test ./internal/check/bench -rewrite\n%s", path, err, got)
	}
}

func TestResult_HasTheDocumentedJSON(t *testing.T) {
	var b bytes.Buffer
	if err := WriteJSON(&b, knownResult()); err != nil {
		t.Fatal(err)
	}
	golden(t, "result.json", b.Bytes())
	doc, err := os.ReadFile("../../../docs/bench.md")
	if err != nil {
		t.Fatal(err)
	}
	missing := map[string]bool{}
	for _, name := range regexp.MustCompile(`"([a-z_0-9]+)":`).FindAllStringSubmatch(b.String(), -1) {
		missing[name[1]] = !bytes.Contains(doc, []byte("`"+name[1]+"`"))
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		if missing[name] {
			t.Errorf("docs/bench.md does not mention the field `%s`", name)
		}
	}
}

func TestResult_Summary(t *testing.T) {
	var b bytes.Buffer
	if err := knownResult().WriteSummary(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "summary.txt", b.Bytes())
}

func TestReadResult_RefusesOtherFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"not-json": "hello", "other-schema": `{"schema":"isotone-bench/99"}`, "other-json": `{}`} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadResult(path); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ReadResult(filepath.Join(dir, "missing")); err == nil {
		t.Error("a missing file was read")
	}
	r, err := ReadResult("testdata/result.json")
	if err != nil || r.Result.Answers != 40 {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestComparison_ShowsRatiosAndJudges(t *testing.T) {
	a, b := knownResult(), knownResult()
	b.Result.AnswersPerS *= 2
	b.Result.Latency.P99 *= 2
	var out bytes.Buffer
	if err := WriteComparison(&out, a, b); err != nil {
		t.Fatal(err)
	}
	golden(t, "compare.txt", out.Bytes())
	if strings.Contains(out.String(), "NOT COMPARABLE") {
		t.Error("two runs of one load are called not comparable")
	}
}

func TestComparison_SaysWhenTheLoadsDiffer(t *testing.T) {
	a := knownResult()
	for name, change := range map[string]func(*Result){
		"connections": func(r *Result) { r.Settings.Connections++ },
		"protocol":    func(r *Result) { r.Settings.Protocol = "h3" },
		"mode":        func(r *Result) { r.Settings.Mode = "lease" },
		"rate":        func(r *Result) { r.Settings.Rate++ },
		"CPUs":        func(r *Result) { r.Environment.CPUs++ },
	} {
		b := knownResult()
		b.Result.AnswersPerS *= 2
		change(b)
		var out, page bytes.Buffer
		if err := WriteComparison(&out, a, b); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "NOT COMPARABLE") || !strings.Contains(out.String(), name) || strings.Contains(out.String(), "better") {
			t.Errorf("%s: %s", name, out.String())
		}
		if err := WriteHTML(&page, a, b); err != nil || !strings.Contains(page.String(), "Not comparable") {
			t.Errorf("%s: the page does not say so: %v", name, err)
		}
	}
}

func TestHTML_LoadsNothingFromElsewhere(t *testing.T) {
	evil := knownResult()
	evil.Settings.Targets = []string{`</script><script>alert(1)</script>`}
	evil.Verdict.OK, evil.Verdict.Violations, evil.Verdict.First = false, 3, `<img src="http://example.org/x">`
	for _, results := range [][]*Result{{knownResult()}, {evil}, {knownResult(), evil}} {
		var b bytes.Buffer
		if err := WriteHTML(&b, results...); err != nil {
			t.Fatal(err)
		}
		page := b.String()
		// One address is allowed: the comment with the origin of the library.
		page = strings.Replace(page, "/*! https://github.com/leeoniya/uPlot (v1.6.32) */", "", 1)
		for _, pattern := range []string{`https?://[^\s]*\.(js|css|png|woff)`, `(?i)<(link|img|iframe|script)[^>]*(src|href)=`, `@import`, `url\(`, `fetch\(`, `XMLHttpRequest`, `alert\(1\)</script>`} {
			if found := regexp.MustCompile(pattern).FindString(page); found != "" {
				t.Errorf("the page has %q", found)
			}
		}
		if n := strings.Count(page, "https://"); n != 0 {
			t.Errorf("the page has %d addresses", n)
		}
		for _, want := range []string{"Content-Security-Policy", "default-src 'none'", "Permission is hereby granted", "40 answers", `id="percentiles"`} {
			if !strings.Contains(page, want) {
				t.Errorf("the page lacks %q", want)
			}
		}
		data := regexp.MustCompile(`(?s)<script type="application/json" id="data">(.*?)</script>`).FindStringSubmatch(page)
		var back []*Result
		if data == nil || json.Unmarshal([]byte(data[1]), &back) != nil || len(back) != len(results) {
			t.Error("the data in the page cannot be read")
		}
	}
}

func TestHTML_WorksWithoutAnyAnswer(t *testing.T) {
	r := knownResult()
	r.Intervals, r.Percentiles, r.Result.Latency, r.Result.Leaders = []Interval{}, []Percentile{}, Summary{}, nil
	if err := WriteHTML(&bytes.Buffer{}, r); err != nil {
		t.Error(err)
	}
}

func TestSeries_BecomesCoarserInsteadOfLonger(t *testing.T) {
	s := series{turns: 1}
	c := newCounts()
	c.answers, c.timestamps, c.errors["x"] = 1, 2, 3
	record(c.latency, 1000)
	const turns = 5 * intervalsMax
	for i := range int64(turns) {
		s.add(i*int64(tick), (i+1)*int64(tick), &c)
	}
	if len(s.list) > intervalsMax || len(s.list) < intervalsMax/2 {
		t.Fatalf("%d intervals", len(s.list))
	}
	var answers, timestamps, errors uint64
	var latencies, to int64
	for _, i := range s.list {
		if i.from != to {
			t.Fatalf("an interval begins at %d, the one before ended at %d", i.from, to)
		}
		if to = i.to; to != turns*int64(tick) && i.to-i.from != 8*int64(tick) {
			t.Errorf("an interval of %d ns, want 8 ticks as all others", i.to-i.from)
		}
		answers, timestamps, errors = answers+i.answers, timestamps+i.timestamps, errors+i.errors
		latencies += i.latency.TotalCount()
	}
	if answers != turns || timestamps != 2*turns || errors != 3*turns || latencies != turns || to != turns*int64(tick) {
		t.Errorf("%d answers, %d timestamps, %d errors, %d latencies, until %d", answers, timestamps, errors, latencies, to)
	}
}

func TestMicros_HasThreeDigits(t *testing.T) {
	for us, want := range map[Micros]string{0: "0 µs", 0.5: "0.5 µs", 12.345: "12.3 µs", 999.4: "999 µs", 999.6: "1 ms", 1234: "1.23 ms", 999_600: "1 s", 31_234_567: "31.2 s", 125e6: "2m5s"} {
		if got := us.String(); got != want {
			t.Errorf("%v: %q, want %q", float64(us), got, want)
		}
	}
}

func TestGroup(t *testing.T) {
	for n, want := range map[float64]string{0: "0", 0.25: "0.25", 1234: "1234", 12345: "12 345", 1234567.8: "1 234 568"} {
		if got := Group(n); got != want {
			t.Errorf("%v: %q, want %q", n, got, want)
		}
	}
}
