package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"runtime"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/lincheck"
)

// Schema identifies the JSON format of a [Result]. It changes whenever readers could
// misunderstand a result; adding fields does not change it.
const Schema = "isotone-bench/1"

// Result is the full result of a run. Times have their unit in the name of the JSON field
// and count from the end of the warm-up.
type Result struct {
	Schema      string       `json:"schema"`
	Isotone     string       `json:"isotone"` // version of the load generator
	Began       time.Time    `json:"began"`
	Environment Environment  `json:"environment"`
	Settings    Settings     `json:"settings"`
	Result      Outcome      `json:"result"`
	Verdict     Verdict      `json:"verdict"`
	Intervals   []Interval   `json:"intervals"`
	Percentiles []Percentile `json:"percentiles"`
}

// Environment describes the machine of the load generator.
type Environment struct {
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	CPUs    int    `json:"cpus"`
	Threads int    `json:"threads"`
	Go      string `json:"go"`
}

// Settings are the options of the run.
type Settings struct {
	Targets     []string `json:"targets"`
	Protocol    string   `json:"protocol"`
	Loop        string   `json:"loop"` // "closed" or "open"
	Connections int      `json:"connections"`
	Pipeline    int      `json:"pipeline"`
	Rate        float64  `json:"rate"`
	Count       uint64   `json:"count"`
	Mode        string   `json:"mode"`
	Duration    Seconds  `json:"duration_s"`
	Requests    uint64   `json:"requests"`
	Warmup      Seconds  `json:"warmup_s"`
	Timeout     Seconds  `json:"timeout_s"`
	Backlog     int      `json:"backlog"`
	Static      string   `json:"static,omitempty"`
}

// Outcome is what was measured.
type Outcome struct {
	Elapsed Seconds `json:"elapsed_s"`
	// Interrupted means that the run was ended early.
	Interrupted    bool    `json:"interrupted"`
	Answers        uint64  `json:"answers"`
	AnswersPerS    float64 `json:"answers_per_s"`
	Timestamps     uint64  `json:"timestamps"`
	TimestampsPerS float64 `json:"timestamps_per_s"`
	Latency        Summary `json:"latency_us"`
	ErrorsTotal    uint64  `json:"errors_total"`
	Errors         Errors  `json:"errors"`
	LongestGap     Gap     `json:"longest_gap"`
	Leaders        []Turn  `json:"leaders"`
	LeadersTotal   uint64  `json:"leaders_total"`
	GeneratorDelay Summary `json:"generator_delay_us"`
}

// Errors counts failures by code.
type Errors map[string]uint64

// Summary describes a distribution of times in microseconds.
type Summary struct {
	Min  float64 `json:"min"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99_9"`
	Max  float64 `json:"max"`
}

// Gap is a time without an answer.
type Gap struct {
	Length Seconds `json:"length_s"`
	At     Seconds `json:"at_s"` // its beginning
}

// Verdict is the result of the online checker. It covers every answer, including those of
// the warm-up.
type Verdict struct {
	OK         bool   `json:"ok"`
	Checked    uint64 `json:"checked"`
	Violations uint64 `json:"violations"`
	// Unverified is the number of answers that were overtaken by more than Window others.
	// They are in order, but could repeat an answer that is no longer remembered.
	Unverified uint64 `json:"unverified"`
	Window     int    `json:"window"`
	Highest    string `json:"highest"`
	// File is the file with the offending operations, First describes the first of them.
	File  string `json:"file,omitempty"`
	First string `json:"first,omitempty"`
	// Made means that the timestamps were made up; see Options.Static.
	Made bool `json:"made_up,omitempty"`
}

// Interval is a part of the run.
type Interval struct {
	At      Seconds `json:"at_s"`
	Length  Seconds `json:"length_s"`
	Answers uint64  `json:"answers"`
	Errors  uint64  `json:"errors"`
	// The latencies are in microseconds, and null if there was no answer.
	P50  *float64 `json:"p50_us"`
	P90  *float64 `json:"p90_us"`
	P99  *float64 `json:"p99_us"`
	P999 *float64 `json:"p99_9_us"`
	Max  *float64 `json:"max_us"`
}

// Percentile is one point of the distribution: this percentage of the answers had at most
// this latency. Count is their number.
type Percentile struct {
	Percentile float64 `json:"percentile"`
	Latency    float64 `json:"latency_us"`
	Count      int64   `json:"count"`
}

// result makes the report after the run has ended.
func (r *run) result(began time.Time, end int64, interrupted bool) *Result {
	o := r.options
	elapsed := max(0, end-r.warmup)
	t := &r.total.counts
	turns, _ := r.route.leaders()
	res := &Result{
		Schema: Schema,
		Began:  began.UTC().Truncate(time.Millisecond),
		Environment: Environment{
			OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Threads: o.Threads, Go: runtime.Version(),
		},
		Settings: settingsOf(o),
		Result: Outcome{
			Elapsed:        seconds(elapsed),
			Interrupted:    interrupted,
			Answers:        t.answers,
			AnswersPerS:    perSecond(t.answers, elapsed),
			Timestamps:     t.timestamps,
			TimestampsPerS: perSecond(t.timestamps, elapsed),
			Latency:        Summarize(t.latency),
			ErrorsTotal:    sum(t.errors),
			Errors:         maps.Clone(t.errors),
			LongestGap:     Gap{seconds(r.gap.longest.Load()), seconds(r.gap.began - r.warmup)},
			Leaders:        turns,
			LeadersTotal:   r.route.changes,
			GeneratorDelay: Summarize(t.late),
		},
		Verdict:     r.verdict(),
		Intervals:   r.intervals(),
		Percentiles: distribution(t.latency),
	}
	return res
}

func settingsOf(o *Options) Settings {
	s := Settings{
		Targets: o.Targets, Protocol: o.Protocol, Loop: "closed", Connections: o.Connections, Pipeline: o.Pipeline,
		Rate: o.Rate, Count: o.Count, Mode: o.Mode.String(), Duration: Seconds(o.Duration.Seconds()),
		Requests: o.Requests, Warmup: Seconds(o.Warmup.Seconds()), Timeout: Seconds(o.Timeout.Seconds()), Static: o.Static,
	}
	if o.Rate > 0 {
		s.Loop, s.Backlog = "open", o.Backlog
	}
	return s
}

func (r *run) verdict() Verdict {
	stats := r.online.Stats()
	v := Verdict{
		OK: stats.Violations == 0, Checked: stats.Checked, Violations: stats.Violations, Unverified: stats.Unverified,
		Window: r.options.Window, Made: r.options.Static != "",
	}
	if v.Window <= 0 {
		v.Window = lincheck.WindowDefault
	}
	if stats.Highest != (isotone.Timestamp{}) && !v.Made {
		v.Highest = stats.Highest.String()
	}
	if !v.OK {
		v.File, v.First = r.offences.name, r.offences.first
	}
	return v
}

func (r *run) intervals() []Interval {
	list := make([]Interval, 0, len(r.total.series.list))
	for _, i := range r.total.series.list {
		if i.to <= i.from {
			continue
		}
		point := Interval{At: seconds(i.from - r.warmup), Length: seconds(i.to - i.from), Answers: i.answers, Errors: i.errors}
		if i.latency.TotalCount() > 0 {
			s := Summarize(i.latency)
			point.P50, point.P90, point.P99, point.P999, point.Max = &s.P50, &s.P90, &s.P99, &s.P999, &s.Max
		}
		list = append(list, point)
	}
	return list
}

// Summarize describes a histogram of nanoseconds.
func Summarize(h *hdrhistogram.Histogram) Summary {
	if h.TotalCount() == 0 {
		return Summary{}
	}
	return Summary{
		Min: micros(h.Min()), Mean: round(h.Mean() / 1e3),
		P50: micros(h.ValueAtQuantile(50)), P90: micros(h.ValueAtQuantile(90)), P99: micros(h.ValueAtQuantile(99)),
		P999: micros(h.ValueAtQuantile(99.9)), Max: micros(h.Max()),
	}
}

// ticksPerHalf is the number of points of the distribution for each halving of the distance
// to 100 %.
const ticksPerHalf = 5

func distribution(h *hdrhistogram.Histogram) []Percentile {
	list := []Percentile{}
	if h.TotalCount() == 0 {
		return list
	}
	for _, b := range h.CumulativeDistributionWithTicks(ticksPerHalf) {
		list = append(list, Percentile{math.Round(b.Quantile*1e6) / 1e6, micros(b.ValueAt), b.Count})
	}
	return list
}

func micros(ns int64) float64 { return round(float64(ns) / 1e3) }

// round rounds to three decimal places.
func round(f float64) float64 { return math.Round(f*1e3) / 1e3 }

func perSecond(n uint64, ns int64) float64 {
	if ns <= 0 {
		return 0
	}
	return math.Round(float64(n)/(float64(ns)/1e9)*10) / 10
}

// WriteJSON writes the result in the format of docs/bench.md.
func (r *Result) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// ReadResult reads a file that WriteJSON wrote.
func ReadResult(name string) (*Result, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	r := new(Result)
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s is not a benchmark result in JSON: %w", name, err)
	}
	if r.Schema != Schema {
		return nil, fmt.Errorf("%s has the schema %q; this version reads %q, written by --json", name, r.Schema, Schema)
	}
	return r, nil
}
