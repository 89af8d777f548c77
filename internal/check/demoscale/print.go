package demoscale

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/isotone/isotone/internal/check/svg"
)

// table returns the results as an aligned Markdown table.
func table(results []result) string {
	rows := [][]string{{"", "req/s", "p50", "p99", "hits", "busiest", "idlest"}}
	for _, r := range results {
		rows = append(rows, []string{
			r.Name, figure(r.Rate), span(r.P50), span(r.P99), fmt.Sprintf("%.1f %%", 100*r.HitRate),
			fmt.Sprint(slices.Max(r.PerWorker)), fmt.Sprint(slices.Min(r.PerWorker)),
		})
	}
	return alignedTable(rows)
}

// alignedTable returns rows, of which the first is the header, as an aligned Markdown table.
func alignedTable(rows [][]string) string {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for n, row := range rows {
		for i, cell := range row {
			gap := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				b.WriteString("| " + cell + gap + " |")
			} else {
				b.WriteString(" " + gap + cell + " |")
			}
		}
		b.WriteByte('\n')
		if n == 0 {
			for i, w := range width {
				b.WriteString([]string{"|-", "-"}[min(i, 1)] + strings.Repeat("-", w) + []string{"-|", ":|"}[min(i, 1)])
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// figure formats a rate.
func figure(rate float64) string {
	if rate < 100 {
		return fmt.Sprintf("%.1f", rate)
	}
	return fmt.Sprintf("%.0f", rate)
}

// span formats a time with two or three digits.
func span(seconds float64) string {
	switch {
	case seconds < 0.001:
		return fmt.Sprintf("%.0f µs", seconds*1e6)
	case seconds < 0.01:
		return fmt.Sprintf("%.1f ms", seconds*1e3)
	case seconds < 1:
		return fmt.Sprintf("%.0f ms", seconds*1e3)
	}
	return fmt.Sprintf("%.1f s", seconds)
}

// scale is a logarithmic axis of whole decades.
type scale struct{ low, high int } // exponents of ten

// scaleOf returns an axis that covers all rates but 0.
func scaleOf(results []result) scale {
	s := scale{math.MaxInt, math.MinInt}
	for _, r := range results {
		if r.Rate > 0 {
			s.low = min(s.low, int(math.Floor(math.Log10(r.Rate))))
			s.high = max(s.high, int(math.Ceil(math.Log10(r.Rate))))
		}
	}
	if s.high < s.low {
		return scale{0, 1} // no answers
	}
	s.low = min(s.low, 0) // bars begin at 1/s or below
	s.high = max(s.high, s.low+1)
	return s
}

// axis returns the scale between two places, at which 0 is at the left end.
func (s scale) axis(left, right float64) svg.Axis {
	return svg.Axis{Left: left, Right: right, From: math.Pow10(s.low), To: math.Pow10(s.high), Log: true}
}

// marks returns the rates at whole decades.
func (s scale) marks() (marks []float64) {
	for e := s.low; e <= s.high; e++ {
		marks = append(marks, math.Pow10(e))
	}
	return marks
}

// plotWidth is the length of the longest bar, in characters.
const plotWidth = 60

// plot returns the rates as bars on a logarithmic axis.
func plot(results []result) string {
	eighths := []rune(" ▏▎▍▌▋▊▉")
	s := scaleOf(results)
	axis := s.axis(0, plotWidth)
	names := 0
	for _, r := range results {
		names = max(names, len(r.Name))
	}
	var b strings.Builder
	for _, r := range results {
		n := int(math.Round(axis.At(r.Rate) * 8))
		bar := strings.Repeat("█", n/8)
		if n%8 > 0 {
			bar += string(eighths[n%8])
		}
		fmt.Fprintf(&b, "%*s │%s %s\n", names, r.Name, bar, figure(r.Rate))
	}
	line, labels := []rune(strings.Repeat("─", plotWidth+1)), strings.Repeat(" ", names+2)
	for _, mark := range s.marks() {
		at := int(math.Round(axis.At(mark)))
		line[at] = '┴'
		labels += strings.Repeat(" ", max(names+2+at-len(labels), 0)) + fmt.Sprint(mark)
	}
	line[0] = '└'
	fmt.Fprintf(&b, "%*s %s\n%s req/s, logarithmic\n", names, "", string(line), labels)
	return b.String()
}
