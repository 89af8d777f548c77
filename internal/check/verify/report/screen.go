package report

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/isotone/isotone/internal/check/bench"
	"github.com/isotone/isotone/internal/check/verify"
)

// barsMax is how many seconds of answers a terminal shows, each as one of levels. They fit into 80 characters.
const barsMax = 60

var levels = []rune("▁▂▃▄▅▆▇█")

// Colours as in ECMA-48.
const (
	colorReset = "\x1b[0m"
	colorWrong = "\x1b[31m"
	colorFault = "\x1b[33m"
)

// Screen shows a result that grows. In a terminal it draws a few lines again and again; elsewhere it writes a line for each
// second. One goroutine uses it.
type Screen struct {
	// W is written to; errors are ignored, because a run does not end with its reader.
	W io.Writer
	// Terminal: W understands control sequences. Color: it has colours, and they are wanted.
	Terminal, Color bool

	begun bool
	lines int // that are drawn again
	last  verify.Result
	rates []float64 // of answers, since each Show
}

// Show shows r, which has grown since the last call. A call that comes within the same second as the last one does
// nothing.
func (s *Screen) Show(result *verify.Result) {
	if s.begun && math.Floor(result.Seconds) == math.Floor(s.last.Seconds) {
		return
	}
	r := shown(result)
	if !s.begun {
		s.begin(r)
		return
	}
	seconds := max(r.Seconds-s.last.Seconds, 0.001)
	answers, failed := r.Answers-min(s.last.Answers, r.Answers), r.Failed-min(s.last.Failed, r.Failed)
	s.rates = append(s.rates, float64(answers)/seconds)
	s.rates = s.rates[max(len(s.rates)-barsMax, 0):]
	s.last = verify.Result{Seconds: r.Seconds, Answers: r.Answers, Failed: r.Failed}
	line := fmt.Sprintf("%6.0f s  %9s answers/s  %6s failed/s", r.Seconds, bench.Group(math.Round(float64(answers)/seconds)), bench.Group(math.Round(float64(failed)/seconds)))
	if !s.Terminal {
		fmt.Fprintf(s.W, "%s   %s; %s\n", line, r.faulty(), r.wrong())
		return
	}
	s.draw(line, r)
}

// End restores the terminal.
func (s *Screen) End() {
	if s.Terminal && s.begun {
		_, _ = io.WriteString(s.W, "\x1b[?7h\x1b[?25h")
	}
}

// begin says what is shown from now on.
func (s *Screen) begin(r run) {
	s.begun = true
	s.last = verify.Result{Seconds: r.Seconds, Answers: r.Answers, Failed: r.Failed}
	if s.Terminal {
		_, _ = io.WriteString(s.W, "\x1b[?25l\x1b[?7l") // hide the cursor, truncate long lines
	}
	fmt.Fprintf(s.W, "%s: %s, %s; every answer is checked.\n", r.System, count(len(r.Nodes), "node"), count(r.Clients, "client"))
}

// draw draws the lines of a terminal over the ones before.
func (s *Screen) draw(line string, r run) {
	var b strings.Builder
	if s.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", s.lines)
	}
	faulty, wrong := r.faulty(), r.wrong()
	if len(r.under()) > 0 {
		faulty = s.paint(colorFault, faulty)
	}
	if r.wrongs() > 0 {
		wrong = s.paint(colorWrong, wrong)
	}
	lines := []string{"", "          " + s.bars(), line, "          " + faulty, "          " + wrong}
	for _, l := range lines {
		b.WriteString(l + "\x1b[K\n")
	}
	s.lines = len(lines)
	_, _ = io.WriteString(s.W, b.String())
}

// bars shows the answers of the last seconds.
func (s *Screen) bars() string {
	most := 0.0
	for _, rate := range s.rates {
		most = max(most, rate)
	}
	var b strings.Builder
	for _, rate := range s.rates {
		if rate == 0 {
			b.WriteString(s.paint(colorWrong, "·"))
			continue
		}
		b.WriteRune(levels[min(int(rate/most*float64(len(levels))), len(levels)-1)])
	}
	return b.String()
}

// paint returns text in a colour, if there are colours.
func (s *Screen) paint(color, text string) string {
	if !s.Color {
		return text
	}
	return color + text + colorReset
}

// under returns the names of the faults that are under way.
func (r run) under() []string {
	var list []string
	for i := range r.Faults {
		if f := &r.Faults[i]; f.EndS == 0 || f.EndS > r.Seconds {
			list = append(list, fmt.Sprintf("%s for %s", r.fault(f), span(max(r.Seconds-f.AtS, 0))))
		}
	}
	return list
}

// faulty says which faults are under way.
func (r run) faulty() string {
	if under := r.under(); len(under) > 0 {
		return strings.Join(under, ", ")
	}
	return fmt.Sprintf("no fault under way, %s until now", bench.Group(len(r.Faults)))
}

// wrongs counts answers that were wrong, whether or not right ones are promised.
func (r run) wrongs() uint64 {
	n := r.Malformed
	for _, v := range r.Verdicts {
		n += v.Violations
	}
	return n
}

// wrong says how many answers were wrong.
func (r run) wrong() string {
	switch n := r.wrongs(); {
	case n == 0:
		return "no violation"
	case len(r.Anomalies) > 0:
		return fmt.Sprintf("%s; the first: %s", count(n, "violation"), lower(r.sentence(&r.Anomalies[0])))
	default:
		return count(n, "violation")
	}
}
