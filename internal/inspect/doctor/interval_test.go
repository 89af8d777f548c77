package doctor_test

import (
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/inspect/doctor"
	"github.com/isotone/isotone/internal/inspect/survey"
)

// readClocks has all nodes read the cluster clock.
func readClocks(c *doctor.Cluster) {
	for _, v := range c.Report.Views {
		v.State.Interval = &survey.Interval{MaxSeconds: 0.1, Running: true, WidthSeconds: new(0.0002), LimitSeconds: new(0.09), AgeSeconds: new(0.01)}
	}
}

// untimely is what may be wrong with the cluster clock.
var untimely = []ailment{
	{"two INTERVAL_MS", func(_ *doctor.Local, c *doctor.Cluster) {
		readClocks(c)
		state(c, 3).Interval.MaxSeconds = 0.2
	}, doctor.Warning, "interval", "100 (node 1, 2), 200 (node 3)"},
	{"INTERVAL_MS on some", func(_ *doctor.Local, c *doctor.Cluster) {
		readClocks(c)
		state(c, 1).Interval = nil
	}, doctor.Warning, "interval", "0 (node 1), 100 (node 2, 3)"},
	{"a wrong rate", func(_ *doctor.Local, c *doctor.Cluster) {
		readClocks(c)
		state(c, 2).Interval.Broken = true
	}, doctor.Warning, "interval", "wrong rate"},
	{"no readings", func(_ *doctor.Local, c *doctor.Cluster) {
		readClocks(c)
		*state(c, 2).Interval = survey.Interval{MaxSeconds: 0.1}
	}, doctor.Warning, "interval", "tells no readings"},
	{"an old reading", func(_ *doctor.Local, c *doctor.Cluster) {
		readClocks(c)
		state(c, 2).Interval.LimitSeconds = new(-0.01)
	}, doctor.Warning, "interval", "no valid reading"},
}

func TestJudge_IntervalsOfAHealthyCluster(t *testing.T) {
	for _, on := range []bool{false, true} {
		c := cluster()
		if on {
			readClocks(c)
		}
		r := doctor.Judge(&doctor.Measurements{At: now, Local: local(), Cluster: c})
		told := false
		for _, f := range r.Findings {
			told = told || f.Check == "interval" && f.Status == doctor.OK && strings.Contains(f.Found, "all members")
		}
		if list := notOK(r); len(list) > 0 || told != on {
			t.Errorf("with intervals %v: %+v", on, r.Findings)
		}
	}
}
