package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteSummary writes a summary of the result as text.
func (r *Result) WriteSummary(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	o := &r.Result
	fmt.Fprintf(t, "load\t%s\ntime\t%s\n", r.Settings, o.Length())
	fmt.Fprintf(t, "answers\t%s, %s a second", Group(o.Answers), Group(o.AnswersPerS))
	if r.Settings.Count != 1 {
		fmt.Fprintf(t, "; timestamps %s, %s a second", Group(o.Timestamps), Group(o.TimestampsPerS))
	}
	fmt.Fprintf(t, "\nlatency\t%s\n", o.Latency)
	if g := &o.GeneratorDelay; r.Settings.Loop == "open" {
		fmt.Fprintf(t, "sent late\tp50 %s  p99 %s  max %s: this much of the latency is the load generator's own\n", Micros(g.P50), Micros(g.P99), Micros(g.Max))
	}
	fmt.Fprintf(t, "errors\t%s\n", o.Errors)
	fmt.Fprintf(t, "longest gap\t%s without an answer, from %.2f s\n", Micros(float64(o.LongestGap.Length)*1e6), o.LongestGap.At)
	fmt.Fprintf(t, "%s\t%s\n", AnswererOf(r.Settings.Timeline), leaderText(o))
	fmt.Fprintf(t, "verdict\t%s\n", r.Verdict)
	if n := o.Errors[codeDropped]; n > 0 {
		fmt.Fprintf(t, "note\t%s arrivals found the backlog full and were never sent: the latencies are too good\n", Group(n))
	}
	return t.Flush()
}

// Length says how long the run was.
func (e *End) Length() string {
	if e.Interrupted {
		return fmt.Sprintf("%.2f s, interrupted", e.Elapsed)
	}
	return fmt.Sprintf("%.2f s", e.Elapsed)
}

// String describes the distribution.
func (s Summary) String() string {
	return fmt.Sprintf("p50 %s  p90 %s  p99 %s  p99.9 %s  max %s", Micros(s.P50), Micros(s.P90), Micros(s.P99), Micros(s.P999), Micros(s.Max))
}

// String describes the load.
func (s Settings) String() string {
	loop := "closed loop"
	if s.Loop == "open" {
		loop = fmt.Sprintf("open loop of %s arrivals a second", Group(s.Rate))
	}
	text := fmt.Sprintf("%s, %s, %s", s.Protocol, loop, plural(s.Connections, "connection"))
	if s.Pipeline > 1 {
		text += fmt.Sprintf(" × %d requests", s.Pipeline)
	}
	if s.Static != "" {
		return text + ", static file " + s.Static
	}
	if s.Count > 1 {
		text += fmt.Sprintf(", %s timestamps each", Group(s.Count))
	}
	if s.Timeline != "" {
		text += ", timeline " + s.Timeline
	}
	return text + ", mode " + s.Mode
}

// String lists the codes, the most frequent first.
func (e Errors) String() string {
	if len(e) == 0 {
		return "none"
	}
	codes := e.codes()
	for i, code := range codes {
		codes[i] = fmt.Sprintf("%s %s", code, Group(e[code]))
	}
	return strings.Join(codes, ", ")
}

func (e Errors) codes() []string {
	var codes []string
	for code := range e {
		codes = append(codes, code)
	}
	slices.SortFunc(codes, func(a, b string) int {
		switch {
		case e[a] > e[b]:
			return -1
		case e[a] < e[b]:
			return 1
		}
		return strings.Compare(a, b)
	})
	return codes
}

// leadersShown is how many leaders the summary lists.
const leadersShown = 5

// AnswererOf says what the node is that answers for a timeline, or "" for the default order.
func AnswererOf(timeline string) string {
	if timeline != "" {
		return "owner"
	}
	return "leader"
}

func leaderText(o *Outcome) string {
	var parts []string
	for i, turn := range o.Leaders {
		switch {
		case i == leadersShown:
			parts = append(parts, fmt.Sprintf("… %d in all", o.LeadersTotal))
		case i == 0:
			parts = append(parts, turn.Addr)
		case i < leadersShown:
			parts = append(parts, fmt.Sprintf("%s from %.2f s", turn.Addr, turn.At))
		}
	}
	return strings.Join(parts, ", ")
}

// String returns the verdict as one line.
func (v Verdict) String() string {
	switch {
	case v.Made:
		return fmt.Sprintf("none: this is no oracle; %s made-up timestamps were checked for the cost of it", Group(v.Checked))
	case !v.OK:
		return fmt.Sprintf("VIOLATION: %s of %s answers break the order or repeat a timestamp; see %s", Group(v.Violations), Group(v.Checked), v.File)
	case v.Unverified > 0:
		return fmt.Sprintf("in order: all %s answers; unique: all but perhaps %s, which were overtaken by more than %s others", Group(v.Checked), Group(v.Unverified), Group(v.Window))
	default:
		return fmt.Sprintf("ok: all %s answers are unique and in real-time order", Group(v.Checked))
	}
}

// Micros is a time in microseconds.
type Micros float64

// String returns three digits and a unit; from 100 s on, whole seconds.
func (m Micros) String() string {
	switch {
	case m < 999.5:
		return fmt.Sprintf("%.3g µs", float64(m))
	case m < 999.5e3:
		return fmt.Sprintf("%.3g ms", float64(m)/1e3)
	case m < 100e6:
		return fmt.Sprintf("%.3g s", float64(m)/1e6)
	}
	return time.Duration(float64(m) * 1e3).Round(time.Second).String()
}

// Group writes a whole number with spaces between groups of three digits.
func Group[T int | uint64 | float64](n T) string {
	digits := fmt.Sprintf("%.0f", float64(n))
	if f := float64(n); f < 10 && f != math.Trunc(f) {
		digits = fmt.Sprintf("%.3g", f)
	}
	if len(digits) <= 4 || strings.Contains(digits, ".") {
		return digits
	}
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteRune(' ')
		}
		b.WriteRune(d)
	}
	return b.String()
}
