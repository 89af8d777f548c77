package report

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/isotone/isotone/internal/check/bench"
	"github.com/isotone/isotone/internal/check/verify"
)

// What a summary has at most of each kind. The page has the rest.
const (
	summaryFaults    = 20
	summaryAnomalies = 3
	summaryErrors    = 5
)

// Summary returns what a run has shown, as text for a terminal.
func Summary(result *verify.Result) string {
	r := shown(result)
	var b strings.Builder
	verdict, more := r.headline()
	b.WriteString(strings.Join(append([]string{verdict}, more...), " ") + "\n\n")
	r.summaryOrders(&b)
	for _, limit := range r.limits() {
		fmt.Fprintf(&b, "- %s\n", limit)
	}
	r.summaryAnomalies(&b)
	b.WriteByte('\n')
	columns(&b, func(row func(cells ...string)) {
		answers := count(r.Answers, "answer")
		if r.Numbers > 0 {
			answers += " with " + count(r.Numbers, "number")
		}
		row("calls", fmt.Sprintf("%s, %s failed, in %s", answers, bench.Group(r.Failed), span(r.Seconds)))
		row("latency", fmt.Sprintf("p50 %s, p99 %s, max %s", millis(r.P50MS), millis(r.P99MS), millis(r.MaxMS)))
		row("silence", fmt.Sprintf("at most %s without an answer to any client", millis(r.LongestMS)))
	})
	r.summaryFaults(&b)
	r.summaryErrors(&b)
	b.WriteByte('\n')
	columns(&b, func(row func(cells ...string)) {
		for _, pair := range r.repeat() {
			row(pair...)
		}
	})
	return b.String()
}

// columns writes rows of cells with even columns. The last cell of a row has any length.
func columns(w io.Writer, write func(row func(cells ...string))) {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	write(func(cells ...string) { fmt.Fprintln(table, strings.Join(cells, "\t")) })
	_ = table.Flush() // w is a strings.Builder
}

// summaryOrders writes which orders held.
func (r run) summaryOrders(b *strings.Builder) {
	if len(r.Verdicts) == 0 {
		return
	}
	columns(b, func(row func(cells ...string)) {
		row("order", "promised", "outcome", "violations", "not verified")
		for _, v := range r.verdicts() {
			row(names[v.Order], v.promised, v.outcome, bench.Group(v.Violations), bench.Group(v.Unverified))
		}
	})
	b.WriteByte('\n')
}

// summaryAnomalies writes the first of them.
func (r run) summaryAnomalies(b *strings.Builder) {
	for i := range r.Anomalies[:min(len(r.Anomalies), summaryAnomalies)] {
		a := &r.Anomalies[i]
		fmt.Fprintf(b, "\nViolation %d, of %s: %s", i+1, names[a.Order], r.sentence(a))
		if text := r.meanwhile(a); text != "" {
			b.WriteString(" " + text)
		}
		b.WriteByte('\n')
	}
}

// summaryFaults writes a table of all faults, or of their kinds if there are many.
func (r run) summaryFaults(b *strings.Builder) {
	if len(r.Faults) == 0 {
		return
	}
	b.WriteByte('\n')
	columns(b, func(row func(cells ...string)) {
		row("fault", "count", "median silence", "worst silence")
		for _, k := range r.kinds() {
			row(k.name, bench.Group(k.faults), millis(k.median), fmt.Sprintf("%s (%s, at %.1f s)", millis(k.worst), r.hit(k.of), k.of.AtS))
		}
	})
	if len(r.Faults) > summaryFaults {
		return
	}
	b.WriteByte('\n')
	worst := r.worst()
	columns(b, func(row func(cells ...string)) {
		row("at", "fault", "lasted", "answers", "failed", "longest silence")
		for i := range r.Faults {
			f := &r.Faults[i]
			silence := millis(f.SilentMS)
			if f == worst {
				silence += " (the worst)"
			}
			row(fmt.Sprintf("%.1f s", f.AtS), r.noted(f), span(r.end(f)-f.AtS), bench.Group(f.Answers), bench.Group(f.Failed), silence)
		}
	})
}

// summaryErrors writes the most frequent errors.
func (r run) summaryErrors(b *strings.Builder) {
	if len(r.Errors) == 0 {
		return
	}
	b.WriteByte('\n')
	columns(b, func(row func(cells ...string)) {
		row("failed", "with")
		for _, e := range r.Errors[:min(len(r.Errors), summaryErrors)] {
			row(bench.Group(e.Count), e.Message)
		}
	})
}

// verdictRow is a row in the table of orders.
type verdictRow struct {
	verify.Verdict
	promised, outcome string
}

// verdicts returns the rows of the table of orders.
func (r run) verdicts() []verdictRow {
	var rows []verdictRow
	violated := false
	for _, v := range r.Verdicts {
		row := verdictRow{Verdict: v, promised: "no", outcome: "held"}
		if v.Promised {
			row.promised = "yes"
		}
		switch {
		case v.Violations > 0:
			row.outcome, violated = "violated", true
		case violated:
			row.outcome = "violated, because it includes the above"
		case r.Answers == 0:
			row.outcome = "not tested"
		case v.Unverified > 0:
			row.outcome = "held as far as verified"
		}
		rows = append(rows, row)
	}
	return rows
}

// repeat returns what one needs to know to repeat the run, as names and values.
func (r run) repeat() [][]string {
	began := ""
	if !r.At.IsZero() {
		began = r.At.UTC().Format("2006-01-02 15:04:05 UTC")
	}
	list := [][]string{
		{"command", quoted(r.Command)},
		{"seed", fmt.Sprint(r.Seed)},
		{"system", strings.TrimSpace(r.System + " " + r.Version)},
		{"isotone", r.Isotone},
		{"load", fmt.Sprintf("%s in %s", count(r.Clients, "client"), count(r.Processes, "process"))},
		{"machine", strings.TrimPrefix(r.Machine+", ", ", ") + count(r.CPUs, "CPU")},
		{"began", began},
	}
	return slices.DeleteFunc(list, func(pair []string) bool { return pair[1] == "" })
}

// plain are the arguments that a shell takes as they are.
var plain = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// quoted returns a command as one writes it in a shell.
func quoted(command []string) string {
	words := make([]string, len(command))
	for i, word := range command {
		if !plain.MatchString(word) {
			word = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
		words[i] = word
	}
	return strings.Join(words, " ")
}
