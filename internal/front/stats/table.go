package stats

import "fmt"

// table is a table of the report. Text and HTML have the same ones.
type table struct {
	Title string
	Head  []string
	Rows  [][]string
}

var timesHead = []string{"mean", "p50", "p90", "p99", "p99.9", "max"}

func (t *table) addTimes(name string, times *Times) {
	row := []string{name}
	for _, d := range []Span{Span(times.Mean), Span(times.P50), Span(times.P90), Span(times.P99), Span(times.P999), Span(times.Max)} {
		row = append(row, d.String())
	}
	t.Rows = append(t.Rows, row)
}

// times has the known times.
func (s *Summary) times() table {
	t := table{Title: "Times", Head: append([]string{""}, timesHead...)}
	t.addTimes("wall", &s.Wall)
	if s.Measured > 0 {
		t.addTimes("user", &s.User)
		t.addTimes("system", &s.System)
		t.addTimes("stall", &s.Stall)
	}
	return t
}

// slowest has the slowest requests.
func (s *Summary) slowest() table {
	t := table{Title: "Slowest requests", Head: []string{"ID", "wall", "CPU", "stall", "at", "code", "request"}}
	for _, one := range s.Slowest {
		cpu, stall := "?", "?"
		if one.Measured {
			cpu, stall = Span(one.User+one.System).String(), Span(one.Stall).String()
		}
		t.Rows = append(t.Rows, []string{printable(one.ID), Span(one.Wall).String(), cpu, stall, one.at(), printable(one.Code), printable(one.request())})
	}
	return t
}

// times has the times in both files, and the differences.
func (j *Join) times() table {
	t := table{Title: fmt.Sprintf("%s in both %s and %s", many(j.Requests, "request"), j.Outer, j.Inner), Head: append([]string{"wall"}, timesHead...)}
	t.addTimes(j.Outer, &j.OuterWall)
	t.addTimes(j.Inner, &j.InnerWall)
	t.addTimes("difference", &j.Difference)
	return t
}

// farthest has the requests with the largest differences.
func (j *Join) farthest() table {
	t := table{Title: "Largest differences", Head: []string{"ID", j.Outer, j.Inner, "difference"}}
	for _, one := range j.Farthest {
		t.Rows = append(t.Rows, []string{printable(one.ID), Span(one.Outer).String(), Span(one.Inner).String(), signed(one.Outer - one.Inner)})
	}
	return t
}

// groups has the groups.
func (r *Report) groups() table {
	t := table{Title: "By " + r.By, Head: []string{"by " + r.By, "requests", "of wall", "of CPU", "mean", "p50", "p99", "max", "workers/core"}}
	for _, g := range r.Groups {
		t.Rows = append(t.Rows, []string{
			printable(g.Name), grouped(float64(g.Requests)), percent(g.WallShare), percent(g.CPUShare),
			Span(g.Wall.Mean).String(), Span(g.Wall.P50).String(), Span(g.Wall.P99).String(), Span(g.Wall.Max).String(), workersText(g.WorkersPerCore),
		})
	}
	return t
}
