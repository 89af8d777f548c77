package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/isotone/isotone/internal/check/bench"
)

// progressLogEvery is how often progress is written where there is no terminal.
const progressLogEvery = 10 * time.Second

// benchProgress shows the progress of a run: on a terminal in one line, updated every
// second, otherwise a line every ten seconds.
type benchProgress struct {
	w        io.Writer
	terminal bool
	of       string // the length of the run, if known
	answerer string // what the node is that answers
	shown    time.Duration
	sum      bench.Progress // since shown
	line     string         // on a terminal: the line to overwrite
}

func newBenchProgress(w io.Writer, o *bench.Options) *benchProgress {
	p := &benchProgress{w: w, terminal: isTerminal(w), answerer: bench.AnswererOf(o.Timeline)}
	if o.Duration > 0 {
		p.of = " of " + o.Duration.String()
	}
	if p.terminal && o.Warmup > 0 {
		p.line = fmt.Sprintf("\rwarming up for %v", o.Warmup)
		fmt.Fprint(w, p.line)
	}
	return p
}

// show implements bench.Options.Progress.
func (p *benchProgress) show(now bench.Progress) {
	p.sum.Span += now.Span
	p.sum.Answers += now.Answers
	p.sum.Errors += now.Errors
	begin, end := "", "\n"
	if p.terminal {
		begin, end = "\r\x1b[K", ""
	} else if now.Passed-p.shown < progressLogEvery-progressLogEvery/100 {
		return
	}
	p.shown = now.Passed
	violations := ""
	if now.Violations > 0 {
		violations = fmt.Sprintf("  %d VIOLATIONS", now.Violations)
	}
	p.line = fmt.Sprintf("%s%v%s  %.0f answers/s  p50 %v  p99 %v  errors %d%s%s", begin, now.Passed.Round(time.Second), p.of,
		float64(p.sum.Answers)/p.sum.Span.Seconds(), bench.Micros(now.P50.Microseconds()), bench.Micros(now.P99.Microseconds()),
		p.sum.Errors, violations, end)
	fmt.Fprint(p.w, p.line)
	p.sum = bench.Progress{}
}

// elsewhere implements bench.Options.Elsewhere. Its line stays above the progress.
func (p *benchProgress) elsewhere(addr string) {
	p.end()
	fmt.Fprintf(p.w, "the %s is at %s, which is none of --target: the load goes there directly\n", p.answerer, addr)
	if p.terminal {
		fmt.Fprint(p.w, p.line)
	}
}

// end clears the line of progress.
func (p *benchProgress) end() {
	if p.terminal && p.line != "" {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

// isTerminal reports whether w is a terminal or another character device, but not the null
// device, from which services get their input.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}
