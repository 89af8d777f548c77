package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/isotone/isotone/internal/check/bench"
)

// progressLogEvery is how often progress is written to what is no terminal.
const progressLogEvery = 10 * time.Second

// benchProgress shows how a load goes: on a terminal each second in one line that is
// written over, elsewhere every ten seconds in a line of its own.
type benchProgress struct {
	w        io.Writer
	terminal bool
	of       string // how long it will take
	shown    time.Duration
	sum      bench.Progress // since shown
	line     string         // on a terminal: what is to be written over
}

func newBenchProgress(w io.Writer, o *bench.Options) *benchProgress {
	p := &benchProgress{w: w, terminal: isTerminal(w)}
	if o.Duration > 0 {
		p.of = " of " + o.Duration.String()
	}
	if p.terminal && o.Warmup > 0 {
		p.line = fmt.Sprintf("\rwarming up for %v", o.Warmup)
		fmt.Fprint(w, p.line)
	}
	return p
}

// show is for bench.Options.Progress.
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

// elsewhere is for bench.Options.Elsewhere. It has a line of its own, above the progress.
func (p *benchProgress) elsewhere(addr string) {
	p.end()
	fmt.Fprintf(p.w, "the leader is at %s, which is none of --target: the load goes there directly\n", addr)
	if p.terminal {
		fmt.Fprint(p.w, p.line)
	}
}

// end takes the line away from what is written next.
func (p *benchProgress) end() {
	if p.terminal && p.line != "" {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

// isTerminal reports whether w is a terminal, or something else that takes characters one
// by one and keeps none.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
