package bench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// comparison is one line of the comparison of two results.
type comparison struct {
	Name, A, B, Ratio string
	// Class is "better" or "worse" if the second differs clearly from the first, else "".
	Class string
}

// clearly is the relative difference above which a line counts as better or worse. Two runs
// of the same load on an idle machine differ by less.
const clearly = 0.05

// compareResults returns the lines. If the loads differ, no line counts as better or worse.
func compareResults(a, b *Result) []comparison {
	var lines []comparison
	judge := len(differences(a, b)) == 0
	add := func(name string, x, y float64, write func(float64) string, lessIsBetter bool) {
		c := comparison{Name: name, A: write(x), B: write(y), Ratio: "–"}
		if x > 0 && y > 0 {
			ratio := y / x
			c.Ratio = fmt.Sprintf("%.2f", ratio)
			if judge && (ratio > 1+clearly || ratio < 1/(1+clearly)) {
				c.Class = map[bool]string{true: "better", false: "worse"}[(ratio < 1) == lessIsBetter]
			}
		}
		lines = append(lines, c)
	}
	whole := func(f float64) string { return Group(f) }
	micros := func(f float64) string { return Micros(f).String() }
	x, y := &a.Result, &b.Result
	add("answers a second", x.AnswersPerS, y.AnswersPerS, whole, false)
	if a.Settings.Count != 1 || b.Settings.Count != 1 {
		add("timestamps a second", x.TimestampsPerS, y.TimestampsPerS, whole, false)
	}
	add("p50", x.Latency.P50, y.Latency.P50, micros, true)
	add("p90", x.Latency.P90, y.Latency.P90, micros, true)
	add("p99", x.Latency.P99, y.Latency.P99, micros, true)
	add("p99.9", x.Latency.P999, y.Latency.P999, micros, true)
	add("max", x.Latency.Max, y.Latency.Max, micros, true)
	add("longest gap", float64(x.LongestGap.Length)*1e6, float64(y.LongestGap.Length)*1e6, micros, true)
	add("errors", float64(x.ErrorsTotal), float64(y.ErrorsTotal), whole, true)
	add("violations", float64(a.Verdict.Violations), float64(b.Verdict.Violations), whole, true)
	return lines
}

// differences lists the settings whose difference makes two results incomparable.
func differences(a, b *Result) []string {
	var list []string
	differ := func(name string, x, y any) {
		if x != y {
			list = append(list, fmt.Sprintf("%s %v and %v", name, x, y))
		}
	}
	s, t := &a.Settings, &b.Settings
	differ("protocol", s.Protocol, t.Protocol)
	differ("loop", s.Loop, t.Loop)
	differ("rate", s.Rate, t.Rate)
	differ("connections", s.Connections, t.Connections)
	differ("pipeline", s.Pipeline, t.Pipeline)
	differ("count", s.Count, t.Count)
	differ("mode", s.Mode, t.Mode)
	differ("timeline", s.Timeline, t.Timeline)
	differ("static", s.Static, t.Static)
	e, f := &a.Environment, &b.Environment
	differ("threads", e.Threads, f.Threads)
	differ("CPUs", e.CPUs, f.CPUs)
	differ("system", e.OS+"/"+e.Arch, f.OS+"/"+f.Arch)
	return list
}

// WriteComparison writes two results side by side, as text.
func WriteComparison(w io.Writer, a, b *Result) error {
	fmt.Fprintf(w, "A  %s, %s\nB  %s, %s\n", a.Began.Format("2006-01-02 15:04:05"), a.Settings, b.Began.Format("2006-01-02 15:04:05"), b.Settings)
	if list := differences(a, b); len(list) > 0 {
		fmt.Fprintf(w, "NOT COMPARABLE, because the loads differ: %s\n", strings.Join(list, ", "))
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tA\tB\tB / A\t")
	for _, c := range compareResults(a, b) {
		if c.Class != "" {
			c.Class = " " + c.Class
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", c.Name, c.A, c.B, c.Ratio, c.Class)
	}
	return t.Flush()
}
