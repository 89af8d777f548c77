package stats

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Span is a time printed with three significant digits: 1.23 ms.
type Span time.Duration

// String returns the time with its unit.
func (s Span) String() string {
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "µs"}} {
		value := float64(s) / float64(unit.size)
		if value < 0.9995 {
			continue
		}
		places := max(0, 2-int(math.Log10(value*1.0005)))
		return strconv.FormatFloat(value, 'f', places, 64) + " " + unit.name
	}
	return strconv.FormatInt(int64(s), 10) + " ns"
}

// grouped returns a number with commas.
func grouped(n float64) string {
	digits := strconv.FormatFloat(math.Round(n), 'f', 0, 64)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

func many(n uint64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return grouped(float64(n)) + " " + one + "s"
}

func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 1, 64) + " %" }

// Joined reports whether requests are in several files, so that the total counts them
// more than once.
func (r *Report) Joined() bool { return len(r.Joins) > 0 }

// WriteText writes the report as text.
func (r *Report) WriteText(w io.Writer) error {
	t := &text{}
	switch {
	case len(r.Files) == 1:
		t.summary(r.Files[0].Name, &r.Total, r.Cores)
	case r.Joined():
		for _, f := range r.Files {
			t.summary(f.Name, f.Summary, r.Cores)
		}
		for i := range r.Joins {
			t.join(&r.Joins[i])
		}
	default:
		t.summary(fmt.Sprintf("%d files", len(r.Files)), &r.Total, r.Cores)
		t.files(r.Files)
	}
	if len(r.Groups) > 0 {
		t.table(r.groups())
	}
	t.broken(r)
	if r.Interrupted {
		t.line("Interrupted: the rest of the log was not read.")
	}
	_, err := io.WriteString(w, t.String())
	return err
}

// text collects the output.
type text struct{ strings.Builder }

func (t *text) line(format string, args ...any) { fmt.Fprintf(t, format+"\n", args...) }

// table writes a table with aligned columns: the first column and those in left to the left, the
// others, which are numbers, to the right.
func (t *text) table(of table, left ...int) {
	rows := append([][]string{of.Head}, of.Rows...)
	width := make([]int, len(of.Head))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i == 0 || slices.Contains(left, i) {
				line.WriteString("  " + cell + pad)
			} else {
				line.WriteString("  " + pad + cell)
			}
		}
		t.line("%s", strings.TrimRight("  "+line.String(), " "))
	}
	t.line("")
}

func (t *text) summary(name string, s *Summary, cores int) {
	if s.Requests == 0 {
		t.line("%s: no requests\n", name)
		return
	}
	in := ""
	if s.Rate > 0 {
		in = fmt.Sprintf(" in %s, %s", Span(s.To.Sub(s.From)), rateText(s.Rate))
	}
	t.line("%s: %s%s, %s\n", name, many(s.Requests, "request"), in, many(s.Errors, "error"))
	if chart := sparkline(s.RateOver.Requests, sparkColumns); chart != "" {
		t.line("  rate  %s  peak %s\n", chart, rateText(s.RatePeak))
	}
	t.times(s)
	c := &s.Capacity
	if c.WorkersPerCore == 0 {
		t.line("  The CPU time of these requests is not known, so neither is their stall.\n")
		t.slowest(s)
		return
	}
	t.line("  where the time goes  %s", bar(c, barColumns))
	t.line("                       █ user %s   ▒ system %s   · stall %s\n", percent(c.User), percent(c.System), percent(c.Stall))
	t.line("  %s\n", c.sentence(cores))
	t.slowest(s)
}

// sentence says how many workers there should be.
func (c *Capacity) sentence(cores int) string {
	of := "this core"
	if cores != 1 {
		of = fmt.Sprintf("%d cores", cores)
	}
	return fmt.Sprintf("A request takes %s and a CPU works %s of it: one core can keep %s such requests in flight.\n"+
		"  With C cores use about %s·C workers: %d for %s. One core can do at most %s of them a second.",
		Span(c.Wall), Span(c.CPU), decimal(c.WorkersPerCore), decimal(c.WorkersPerCore), c.Workers, of, grouped(c.PerCore))
}

// decimal formats a number with one decimal place, unless it is large.
func decimal(f float64) string {
	if f >= 100 {
		return grouped(f)
	}
	return strconv.FormatFloat(f, 'f', 1, 64)
}

func (t *text) times(s *Summary) {
	t.table(s.times())
	if s.Measured < s.Requests && s.Measured > 0 {
		t.line("  Of %s only wall is known.\n", many(s.Requests-s.Measured, "request"))
	}
}

func (t *text) slowest(s *Summary) {
	if len(s.Slowest) > 0 {
		t.line("  slowest requests")
		t.table(s.slowest(), 5, 6)
	}
}

func (s *Slow) at() string { return s.Time.UTC().Format("15:04:05.000") }

func (s *Slow) request() string {
	what := strings.TrimSpace(s.Method + " " + s.Path)
	if s.Backend != "" {
		what += " → " + s.Backend
	}
	return what
}

func (t *text) files(files []File) {
	of := table{Head: []string{"file", "requests", "rate", "wall p50", "wall p99", "CPU mean", "workers/core"}}
	for _, f := range files {
		s := f.Summary
		of.Rows = append(of.Rows, []string{
			f.Name, grouped(float64(s.Requests)), rateText(s.Rate), Span(s.Wall.P50).String(), Span(s.Wall.P99).String(),
			Span(s.Capacity.CPU).String(), workersText(s.Capacity.WorkersPerCore),
		})
	}
	t.table(of)
}

// rateText formats a rate, or ? if it is not known.
func rateText(perSecond float64) string {
	if perSecond == 0 {
		return "?"
	}
	return grouped(perSecond) + "/s"
}

// workersText formats a number of workers, or ? if it is not known.
func workersText(f float64) string {
	if f == 0 {
		return "?"
	}
	return decimal(f)
}

func (t *text) join(j *Join) {
	are := "are"
	if j.Requests == 1 {
		are = "is"
	}
	t.line("%s %s in both %s and %s\n", many(j.Requests, "request"), are, j.Outer, j.Inner)
	t.table(j.times())
	if len(j.Farthest) > 0 {
		t.line("  largest differences")
		t.table(j.farthest())
	}
}

// signed formats a difference, which may be negative.
func signed(d time.Duration) string {
	if d < 0 {
		return "−" + Span(-d).String()
	}
	return Span(d).String()
}

func (t *text) broken(r *Report) {
	for _, f := range r.Files {
		if f.Broken == 0 {
			continue
		}
		t.line("%s cannot be read:", many(f.Broken, "line"))
		for _, b := range f.FirstBroken {
			t.line("  %s:%d: %s", f.Name, b.Line, printable(b.Why))
		}
		if f.Broken > uint64(len(f.FirstBroken)) {
			t.line("  …")
		}
	}
}

// printable replaces control characters in strings from clients.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if !strconv.IsPrint(c) {
			return '�'
		}
		return c
	}, s)
}

const (
	sparkColumns = 60
	barColumns   = 50
)

// sparkline draws counts in at most so many columns, or nothing for fewer than three.
func sparkline(counts []uint64, columns int) string {
	if len(counts) < 3 {
		return ""
	}
	each := (len(counts) + columns - 1) / columns
	var sums []float64
	most := 0.0
	for from := 0; from < len(counts); from += each {
		part := counts[from:min(from+each, len(counts))]
		sum := 0.0
		for _, n := range part {
			sum += float64(n)
		}
		sum /= float64(len(part))
		sums, most = append(sums, sum), max(most, sum)
	}
	levels := []rune(" ▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, sum := range sums {
		level := int(math.Ceil(sum / most * float64(len(levels)-1)))
		b.WriteRune(levels[level])
	}
	return b.String()
}

// bar draws the shares of user, system and stall.
func bar(c *Capacity, columns int) string {
	user := min(columns, int(c.User*float64(columns)+0.5))
	both := min(columns, max(user, int((c.User+c.System)*float64(columns)+0.5)))
	return strings.Repeat("█", user) + strings.Repeat("▒", both-user) + strings.Repeat("·", columns-both)
}
