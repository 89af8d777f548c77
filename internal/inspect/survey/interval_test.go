package survey_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/fakecluster"
	"github.com/isotone/isotone/internal/inspect/survey"
)

func goodInterval() *survey.Interval {
	return &survey.Interval{MaxSeconds: 0.1, Running: true, WidthSeconds: new(0.00025), LimitSeconds: new(0.0), AgeSeconds: new(0.01)}
}

func TestSurvey_WarnsOfIntervals(t *testing.T) {
	c := fakecluster.New(t, 3, time.Second, nil)
	for _, tt := range []struct {
		change   func(id uint64, s *survey.State)
		warnings []string
	}{
		{func(_ uint64, s *survey.State) { s.Interval = nil }, nil},
		{func(_ uint64, s *survey.State) { s.Interval = goodInterval() }, nil},
		{func(id uint64, s *survey.State) {
			if s.Interval = nil; id > 1 {
				s.Interval = goodInterval()
				s.Interval.MaxSeconds = float64(id) / 10
			}
		}, []string{"the nodes have different INTERVAL_MS: 0 ms on node 1, 200 ms on node 2, 300 ms on node 3"}},
		{func(id uint64, s *survey.State) {
			s.Interval = goodInterval()
			s.Interval.Broken = id == 3
		}, []string{"node 3 reads no interval: its steady clock, or the leader's, has a wrong rate"}},
		{func(id uint64, s *survey.State) {
			s.Interval = goodInterval()
			s.Interval.Blamed = id == 2
		}, []string{"node 2 hands over the leadership: most of the others find that its steady clock has a wrong rate"}},
	} {
		for _, n := range c.Nodes {
			n.Change(func(s *survey.State) { tt.change(n.ID, s) })
		}
		r := ask(t, surveyOf(t, 5*time.Second), c.Nodes[0].Addr)
		if err := r.Err(); err != nil || !slices.Equal(r.Warnings, tt.warnings) {
			t.Errorf("%v, %q, want %q", err, r.Warnings, tt.warnings)
		}
	}
}

func TestTable_ShowsIntervalsWhereThereAreAny(t *testing.T) {
	r := &survey.Report{}
	for id := range uint64(6) {
		s := fakecluster.Read(t, "testdata/state.json")
		s.Node.ID, s.Interval = id+1, nil
		r.Views = append(r.Views, survey.View{NodeID: id + 1, State: s})
	}
	write := func() []string {
		var b strings.Builder
		if err := survey.WriteTable(&b, r); err != nil {
			t.Fatal(err)
		}
		return strings.Split(b.String(), "\n")[2:]
	}
	if lines := write(); strings.Contains(lines[0], "INTERVAL") {
		t.Errorf("off everywhere: %s", lines[0])
	}
	for i, change := range []func(*survey.Interval){
		func(*survey.Interval) {}, func(i *survey.Interval) { i.Broken = true }, func(i *survey.Interval) { i.LimitSeconds = new(-0.001) },
		func(i *survey.Interval) { i.WidthSeconds, i.LimitSeconds = nil, nil },
	} {
		s := r.Views[i].State
		s.Interval = goodInterval()
		change(s.Interval)
	}
	r.Views[5].State = nil
	lines := write()
	at := strings.Index(lines[0], "INTERVAL")
	for i, want := range []string{"INTERVAL", "250 µs", "wrong rate", "none", "none", "off", "-"} {
		if cell := strings.TrimSpace(string([]rune(lines[i])[at:][:len("wrong rate")])); cell != want && !strings.HasPrefix(cell, want+"  ") {
			t.Errorf("%q, want %q in\n%s", cell, want, strings.Join(lines, "\n"))
		}
	}
}

func TestTable_ShowsBoundsAgainstUTCIfAnyMachineTells(t *testing.T) {
	r := &survey.Report{}
	for id, u := range []*survey.UTC{
		nil, {Source: "kernel"}, {Source: "kernel", Synchronized: true, ErrorSeconds: new(0.002)}, {Source: "clockbound", ErrorSeconds: new(0.00003)},
	} {
		s := fakecluster.Read(t, "testdata/state.json")
		s.Node.ID, s.Clock.UTC = uint64(id)+1, u
		r.Views = append(r.Views, survey.View{NodeID: uint64(id) + 1, State: s})
	}
	write := func() string {
		var b strings.Builder
		if err := survey.WriteTable(&b, r); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	want := "UTC, as the machines tell: node 2 not synchronized (kernel), node 3 within 2.00 ms (kernel), node 4 within 30.0 µs, running free (clockbound).\n"
	if text := write(); !strings.Contains(text, want) {
		t.Errorf("%s\nwant %s", text, want)
	}
	r.Views = r.Views[:2]
	if text := write(); strings.Contains(text, "UTC") {
		t.Errorf("nobody knows:\n%s", text)
	}
}
