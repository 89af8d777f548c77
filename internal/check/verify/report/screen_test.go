package report_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/verify"
	"github.com/isotone/isotone/internal/check/verify/report"
)

// growing returns what a run looks like from second to second: a fault comes and goes, then an answer is wrong.
func growing() []*verify.Result {
	var list []*verify.Result
	answers, failed := uint64(0), uint64(0)
	for second := range 6 {
		r := broken()
		r.Seconds, r.Malformed, r.Anomalies, r.Faults = float64(second)+0.02, 0, nil, r.Faults[:1]
		r.Faults[0].EndS = 0
		r.Verdicts = verdicts()
		switch second {
		case 0, 1:
			r.Faults = nil
		case 2:
			failed += 31
		case 3:
			answers += 5000
		case 5:
			r.Verdicts = verdicts(0, 0, 2)
			r.Anomalies = broken().Anomalies[:1]
			fallthrough
		default:
			r.Faults[0].EndS = 3.7
		}
		if second == 1 || second > 3 {
			answers += 20_100
		}
		r.Answers, r.Failed = answers, failed
		list = append(list, r)
	}
	return list
}

// shownOn returns what a screen has written after a run that grows.
func shownOn(s *report.Screen) string {
	var b bytes.Buffer
	s.W = &b
	for _, r := range growing() {
		s.Show(r)
		s.Show(r) // within the same second: nothing
	}
	s.End()
	return b.String()
}

func TestScreen_WritesALineForEachSecond(t *testing.T) {
	golden(t, "screen-plain.txt", shownOn(&report.Screen{}))
}

func TestScreen_RedrawsInATerminal(t *testing.T) {
	got := shownOn(&report.Screen{Terminal: true, Color: true})
	for _, sequence := range []string{"\x1b[?7l", "\x1b[?25l"} {
		back := strings.Replace(sequence, "l", "h", 1)
		if !strings.Contains(got, sequence) || strings.LastIndex(got, back) < strings.Index(got, sequence) {
			t.Errorf("%q is not there, or %q after it", sequence, back)
		}
	}
	golden(t, "screen-terminal.txt", strings.ReplaceAll(got, "\x1b", "␛"))
	if strings.Contains(shownOn(&report.Screen{Terminal: true}), "\x1b[3") {
		t.Error("colours, though none are wanted")
	}
	drawn := strings.SplitAfter(got, "\x1b[5A")
	for _, part := range drawn[:len(drawn)-1] {
		if n := strings.Count(part, "\x1b[K\n"); n != 5 {
			t.Errorf("%d lines are drawn between two moves up, want 5: %q", n, part)
		}
	}
	if len(drawn) != 5 {
		t.Errorf("%d moves up, want 4", len(drawn)-1)
	}
}
