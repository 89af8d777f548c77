package clockbench

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/isotone/isotone/internal/check/bench"
)

// Schema identifies the JSON format of a [Result].
const Schema = "isotone-bench-interval/1"

// Result is the full result of a run.
type Result struct {
	bench.Head
	Settings Settings `json:"settings"`
	Result   Outcome  `json:"result"`
	Verdict  Verdict  `json:"verdict"`
}

// Settings are the options of the run.
type Settings struct {
	bench.Load
	Processes  int `json:"processes"`
	Generators int `json:"generators"`
}

// Outcome is what was measured.
type Outcome struct {
	bench.End
	// Timestamps a second.
	PerSecond PerSecond `json:"timestamps_per_s"`
	// The cluster clock, as it was read while there were operations.
	Width bench.Summary `json:"width_us"`
	Age   bench.Summary `json:"age_us"`
	Left  bench.Summary `json:"limit_left_us"`
	// Commit is the time for a timestamp of a generator and the wait for it, Oracle that for one of the
	// oracle.
	Commit   bench.Summary `json:"commit_wait_us"`
	Oracle   bench.Summary `json:"oracle_us"`
	Readings Readings      `json:"readings"`
}

// PerSecond is how many timestamps generators make a second, one by one and in batches of 256: one
// generator alone, and those of all processes together.
type PerSecond struct {
	One          float64 `json:"one"`
	OneInBatches float64 `json:"one_in_batches"`
	All          float64 `json:"all"`
	AllInBatches float64 `json:"all_in_batches"`
}

// Readings is how many readings a node answers.
type Readings struct {
	Node string `json:"node"`
	bench.Readings
}

// Verdict is the result of the checks.
type Verdict struct {
	bench.Judgement
	Operations int    `json:"operations"` // of generators and of the oracle
	Reads      int    `json:"reads"`      // of the cluster clock
	Generators int    `json:"generators"` // whose timestamps were compared, and
	Timestamps uint64 `json:"timestamps"` // how many they made
}

func newResult(o *Options) *Result {
	return &Result{
		Head:     bench.NewHead(Schema, time.Now(), o.Threads),
		Settings: Settings{o.Load(), o.Processes, o.Generators},
		Result:   Outcome{End: bench.End{Errors: bench.Errors{}}, Readings: Readings{Readings: bench.Readings{Errors: bench.Errors{}}}},
	}
}

// finish judges what was recorded, and completes the result.
func (r *run) finish(interrupted bool) (*Result, error) {
	res, o := r.result, &r.result.Result
	o.Elapsed = bench.Seconds(time.Since(r.start).Round(time.Microsecond).Seconds())
	o.Interrupted = interrupted
	list, _ := r.options.steps()
	for i, to := range []*float64{nil, &o.PerSecond.One, &o.PerSecond.OneInBatches, &o.PerSecond.All, &o.PerSecond.AllInBatches} {
		if to != nil {
			*to = math.Round(r.perSecond[list[i].name])
		}
	}
	for name, to := range map[string]*bench.Summary{
		histogramWidth: &o.Width, histogramAge: &o.Age, histogramLeft: &o.Left, histogramCommit: &o.Commit, histogramOracle: &o.Oracle,
	} {
		if h := r.histograms[name]; h != nil {
			*to = bench.Summarize(h)
		}
	}
	for _, errors := range []bench.Errors{r.errors, o.Readings.Errors} {
		for _, n := range errors {
			o.ErrorsTotal += n
		}
	}
	o.Errors = r.errors
	return res, r.judge()
}

// judge checks the evidence, and writes violations to the file for them.
func (r *run) judge() error {
	e, v := &r.evidence, &r.result.Verdict
	v.Operations, v.Reads, v.Generators = len(e.Operations), len(e.Reads), len(e.Generators)
	for _, g := range e.Generators {
		v.Timestamps += g.Count
	}
	list, count := e.Check()
	if readings := &r.result.Result.Readings; readings.Violations > 0 {
		count += readings.Violations
		list = append(list, bench.Violation{Kind: ReadOrder, Message: readings.First, Later: readings})
	}
	if v.Violations, v.OK = count, count == 0; !v.OK {
		v.File, v.First = r.options.Violations, list[0].Message
		file := bench.Violations{Name: v.File}
		for _, found := range list {
			file.Add(found)
		}
		return file.Close()
	}
	if v.Operations == 0 && v.Reads == 0 {
		return bench.TargetError(fmt.Sprintf("nothing was read or answered; errors: %s", r.errors))
	}
	return nil
}

// WriteSummary writes a summary of the result as text.
func (r *Result) WriteSummary(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	o, s := &r.Result, &r.Settings
	fmt.Fprintf(t, "load\tthe cluster clock, %d processes with %d generators each\ntime\t%s\n", s.Processes, s.Generators, o.Length())
	fmt.Fprintf(t, "width\t%s\nage\t%s\n", o.Width, o.Age)
	fmt.Fprintf(t, "limit left\tmin %s  p50 %s  max %s\n", bench.Micros(o.Left.Min), bench.Micros(o.Left.P50), bench.Micros(o.Left.Max))
	fmt.Fprintf(t, "commit wait\t%s\noracle\t%s\n", o.Commit, o.Oracle)
	fmt.Fprintf(t, "one generator\t%s timestamps a second; in batches of %d: %s\n", bench.Group(o.PerSecond.One), batchSize, bench.Group(o.PerSecond.OneInBatches))
	fmt.Fprintf(t, "all generators\t%s timestamps a second; in batches of %d: %s\n", bench.Group(o.PerSecond.All), batchSize, bench.Group(o.PerSecond.AllInBatches))
	fmt.Fprintf(t, "readings\t%s a second from %s, %s, %d connections × %d; p50 %s  p99 %s  max %s\n", bench.Group(o.Readings.AnswersPerS), o.Readings.Node,
		s.Protocol, s.Connections, s.Pipeline, bench.Micros(o.Readings.Latency.P50), bench.Micros(o.Readings.Latency.P99), bench.Micros(o.Readings.Latency.Max))
	fmt.Fprintf(t, "errors\t%s\n", o.allErrors())
	fmt.Fprintf(t, "verdict\t%s\n", r.Verdict)
	return t.Flush()
}

// allErrors describes the errors, with those of readings last.
func (o *Outcome) allErrors() string {
	if len(o.Readings.Errors) == 0 {
		return o.Errors.String()
	}
	parts := []string{"of readings " + o.Readings.Errors.String()}
	if len(o.Errors) > 0 {
		parts = append([]string{o.Errors.String()}, parts...)
	}
	return strings.Join(parts, "; ")
}

// String returns the verdict as one line.
func (v Verdict) String() string {
	if !v.OK {
		return fmt.Sprintf("VIOLATION: %s; see %s", bench.Group(v.Violations), v.File)
	}
	return fmt.Sprintf("ok: %s operations are in one order, %s reads agree, and the %s timestamps of %s generators are unique",
		bench.Group(v.Operations), bench.Group(v.Reads), bench.Group(v.Timestamps), bench.Group(v.Generators))
}
