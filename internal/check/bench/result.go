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

// Head begins every result, whatever was measured; its parts are a head, settings with a [Load], what was
// measured with an [End], and a verdict with a [Judgement]. Times have their unit in the name of the
// JSON field.
type Head struct {
	Schema      string      `json:"schema"`
	Isotone     string      `json:"isotone"` // version of the load generator
	Began       time.Time   `json:"began"`
	Environment Environment `json:"environment"`
}

// NewHead returns the head of a result of this machine, without the version.
func NewHead(schema string, began time.Time, threads int) Head {
	return Head{Schema: schema, Began: began.UTC().Truncate(time.Millisecond), Environment: Environment{
		OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Threads: threads, Go: runtime.Version(),
	}}
}

// Result is the full result of a run. Times count from the end of the warm-up.
type Result struct {
	Head
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

// Load is the settings that every run has.
type Load struct {
	Targets     []string `json:"targets"`
	Protocol    string   `json:"protocol"`
	Connections int      `json:"connections"`
	Pipeline    int      `json:"pipeline"`
	Duration    Seconds  `json:"duration_s"`
	Timeout     Seconds  `json:"timeout_s"`
}

// Load returns the settings that every run has.
func (o *Options) Load() Load {
	return Load{o.Targets, o.Protocol, o.Connections, o.Pipeline, Seconds(o.Duration.Seconds()), Seconds(o.Timeout.Seconds())}
}

// Settings are the options of the run.
type Settings struct {
	Load
	Loop     string  `json:"loop"` // "closed" or "open"
	Rate     float64 `json:"rate"`
	Count    uint64  `json:"count"`
	Mode     string  `json:"mode"`
	Timeline string  `json:"timeline,omitempty"`
	Requests uint64  `json:"requests"`
	Warmup   Seconds `json:"warmup_s"`
	Backlog  int     `json:"backlog"`
	Static   string  `json:"static,omitempty"`
}

// End is how a run ended.
type End struct {
	Elapsed Seconds `json:"elapsed_s"`
	// Interrupted means that the run was ended early.
	Interrupted bool   `json:"interrupted"`
	ErrorsTotal uint64 `json:"errors_total"`
	Errors      Errors `json:"errors"`
}

// Outcome is what was measured.
type Outcome struct {
	End
	Answers        uint64  `json:"answers"`
	AnswersPerS    float64 `json:"answers_per_s"`
	Timestamps     uint64  `json:"timestamps"`
	TimestampsPerS float64 `json:"timestamps_per_s"`
	Latency        Summary `json:"latency_us"`
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

// Judgement says whether all promises were kept.
type Judgement struct {
	OK         bool   `json:"ok"`
	Violations uint64 `json:"violations"`
	// File is the file with the violations, First describes the first of them.
	File  string `json:"file,omitempty"`
	First string `json:"first,omitempty"`
}

// Verdict is the result of the online checker. It covers every answer, including those of
// the warm-up.
type Verdict struct {
	Judgement
	Checked uint64 `json:"checked"`
	// Unverified is the number of answers that were overtaken by more than Window others.
	// They are in order, but could repeat an answer that is no longer remembered.
	Unverified uint64 `json:"unverified"`
	Window     int    `json:"window"`
	Highest    string `json:"highest"`
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
		Head:     NewHead(Schema, began, o.Threads),
		Settings: settingsOf(o),
		Result: Outcome{
			End:            End{seconds(elapsed), interrupted, sum(t.errors), maps.Clone(t.errors)},
			Answers:        t.answers,
			AnswersPerS:    perSecond(t.answers, elapsed),
			Timestamps:     t.timestamps,
			TimestampsPerS: perSecond(t.timestamps, elapsed),
			Latency:        Summarize(t.latency),
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
		Load: o.Load(), Loop: "closed", Rate: o.Rate, Count: o.Count, Mode: o.Mode.String(), Timeline: o.Timeline,
		Requests: o.Requests, Warmup: Seconds(o.Warmup.Seconds()), Static: o.Static,
	}
	if o.Rate > 0 {
		s.Loop, s.Backlog = "open", o.Backlog
	}
	return s
}

func (r *run) verdict() Verdict {
	stats := r.online.Stats()
	v := Verdict{
		Judgement: Judgement{OK: stats.Violations == 0, Violations: stats.Violations}, Checked: stats.Checked, Unverified: stats.Unverified,
		Window: r.options.Window, Made: r.options.Static != "",
	}
	if v.Window <= 0 {
		v.Window = lincheck.WindowDefault
	}
	if stats.Highest != (isotone.Timestamp{}) && !v.Made {
		v.Highest = stats.Highest.String()
	}
	if !v.OK {
		v.File, v.First = r.violations.Name, r.violations.first
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

// WriteJSON writes a result in the format of docs/bench.md.
func WriteJSON(w io.Writer, result any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(result)
}

// ReadResult reads a [Result] that WriteJSON wrote to a file.
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
