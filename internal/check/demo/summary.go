package demo

import (
	"fmt"
	"strings"
)

// Summary returns what a complete run has shown, as a few lines of text.
func (r *Result) Summary() string {
	var b strings.Builder
	if len(r.Kills) > 0 {
		b.WriteString("                at   leader     next     longest time without an answer to any client\n")
	}
	for i, k := range r.Kills {
		successor := "none  "
		if k.Successor != 0 {
			successor = fmt.Sprintf("node %d", k.Successor)
		}
		fmt.Fprintf(&b, "%-6s%-4d %6.2f s   node %d  →  %s   %s\n", r.How.noun(), i+1, k.AtS, k.Node, successor, gapText(k.GapMS))
	}
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s "+format+"\n", append([]any{name}, args...)...)
	}
	if gaps := r.gaps(); len(gaps) > 0 {
		b.WriteByte('\n')
		line("gaps", "p50 %s  longest %s, in the whole run %s", gapText(gaps[(len(gaps)-1)/2]), gapText(gaps[len(gaps)-1]), gapText(r.LongestMS))
	}
	line("calls", "%d answered, %d failed, in %.1f s", r.Answers, r.Failed, r.Seconds)
	line("latency", "p50 %.2f ms  p99 %.2f ms  max %s", r.P50MS, r.P99MS, gapText(r.MaxMS))
	for _, failure := range r.Failures {
		line("failed", "%s", failure)
	}
	switch {
	case r.Violations > 0:
		line("verdict", "%d VIOLATIONS in %d answers; the first: %s", r.Violations, r.Checked, r.Violation)
	case r.Checked == 0:
		line("verdict", "none: there was no answer to check")
	default:
		line("verdict", "ok: all %d answers are unique and in real-time order; 0 violations", r.Checked)
	}
	if r.Unverified > 0 {
		line("", "%d came so late that only their order was checked", r.Unverified)
	}
	if r.Interrupted {
		b.WriteString("Interrupted before its end.\n")
	}
	return b.String()
}
