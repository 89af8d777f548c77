package stats

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"
	"time"
)

var (
	//go:embed page/page.html
	pageHTML string
	//go:embed page/page.css
	pageCSS string
)

var pageTemplate = template.Must(template.New("page").Parse(pageHTML))

// page is the data for page.html.
type page struct {
	CSS    template.CSS
	Parts  []pagePart
	Tables []pageTable
	Note   string
}

type pagePart struct {
	Name, Span, Sentence string
	Tiles                []pageTile
	Bars                 []pageBar
	BarLabel             string
	Rate, Curve          *chart
	Tables               []pageTable
}

type pageTile struct{ Name, Value string }

type pageBar struct {
	Name  string
	Value float64
	Text  string
}

type pageTable struct {
	Title string
	Head  []string
	Rows  [][]string
}

// chart is a line chart, drawn without scripts.
type chart struct {
	Label        string
	Lines        []chartLine
	Ticks, Marks []chartTick // of the vertical axis, of the horizontal one
}

type chartLine struct{ Class, Points string }

type chartTick struct {
	At   float64
	Text string
}

// The frame of a chart, in the units of its viewBox.
const (
	chartLeft, chartRight = 70.0, 790.0
	chartTop, chartBottom = 10.0, 175.0
)

// WriteHTML writes the report as a single HTML file without scripts, which loads nothing.
func (r *Report) WriteHTML(w io.Writer) error {
	p := page{CSS: template.CSS(pageCSS)}
	switch {
	case len(r.Files) == 1:
		p.part(r.Files[0].Name, &r.Total, r.Cores)
	case r.Joined():
		for _, f := range r.Files {
			p.part(f.Name, f.Summary, r.Cores)
		}
	default:
		p.part(fmt.Sprintf("%d files", len(r.Files)), &r.Total, r.Cores)
	}
	for i := range r.Joins {
		p.join(&r.Joins[i])
	}
	p.groups(r)
	if r.Interrupted {
		p.Note = "Interrupted: the rest of the log was not read."
	}
	return pageTemplate.Execute(w, p)
}

func (p *page) part(name string, s *Summary, cores int) {
	part := pagePart{Name: name, Span: fmt.Sprintf("%s, %s, %s UTC",
		many(s.Requests, "request"), many(s.Errors, "error"), s.From.UTC().Format("2006-01-02 15:04:05"))}
	if s.Rate > 0 {
		part.Span += " and the next " + Span(s.To.Sub(s.From)).String()
		part.Tiles = []pageTile{{"requests a second", grouped(s.Rate)}}
	}
	part.Tiles = append(part.Tiles, pageTile{"wall p50", Span(s.Wall.P50).String()}, pageTile{"wall p99", Span(s.Wall.P99).String()})
	if c := &s.Capacity; c.WorkersPerCore > 0 {
		part.Sentence = c.sentence(cores)
		part.Tiles = append(part.Tiles, pageTile{"CPU each", Span(c.CPU).String()}, pageTile{"workers per core", decimal(c.WorkersPerCore)})
		part.Bars = []pageBar{{"user", c.User, percent(c.User)}, {"system", c.System, percent(c.System)}, {"stall", c.Stall, percent(c.Stall)}}
		part.BarLabel = fmt.Sprintf("user %s, system %s, stall %s", percent(c.User), percent(c.System), percent(c.Stall))
	}
	if len(s.RateOver.Requests) > 2 {
		part.Rate = rateChart(s)
	}
	if s.Requests > 0 {
		part.Curve = curveChart(s)
		times := pageTable{Title: "Times", Head: []string{"", "mean", "p50", "p90", "p99", "p99.9", "max"}}
		for _, each := range s.rows() {
			times.Rows = append(times.Rows, append([]string{each.Name}, each.Times.cells()...))
		}
		part.Tables = append(part.Tables, times)
	}
	if len(s.Slowest) > 0 {
		slowest := pageTable{Title: "Slowest transactions", Head: []string{"ID", "wall", "CPU", "stall", "at", "code", "request"}}
		for _, one := range s.Slowest {
			slowest.Rows = append(slowest.Rows, []string{
				one.ID, Span(one.Wall).String(), Span(one.User + one.System).String(), Span(one.Stall).String(), one.at(), one.Code, one.request(),
			})
		}
		part.Tables = append(part.Tables, slowest)
	}
	p.Parts = append(p.Parts, part)
}

func (p *page) join(j *Join) {
	t := pageTable{
		Title: fmt.Sprintf("%s in both %s and %s", many(j.Requests, "request"), j.Outer, j.Inner),
		Head:  []string{"wall", "mean", "p50", "p90", "p99", "p99.9", "max"},
	}
	for _, each := range []timesRow{{j.Outer, &j.OuterWall}, {j.Inner, &j.InnerWall}, {"difference", &j.Difference}} {
		t.Rows = append(t.Rows, append([]string{each.Name}, each.Times.cells()...))
	}
	far := pageTable{Title: "Largest differences", Head: []string{"ID", j.Outer, j.Inner, "difference"}}
	for _, one := range j.Farthest {
		far.Rows = append(far.Rows, []string{one.ID, Span(one.Outer).String(), Span(one.Inner).String(), signed(one.Outer - one.Inner)})
	}
	p.Tables = append(p.Tables, t, far)
}

func (p *page) groups(r *Report) {
	if len(r.Groups) == 0 {
		return
	}
	t := pageTable{Title: "By " + r.By, Head: []string{r.By, "requests", "of wall", "of CPU", "mean", "p50", "p99", "max", "workers/core"}}
	for _, g := range r.Groups {
		t.Rows = append(t.Rows, []string{
			g.Name, grouped(float64(g.Requests)), percent(g.WallShare), percent(g.CPUShare), Span(g.Wall.Mean).String(),
			Span(g.Wall.P50).String(), Span(g.Wall.P99).String(), Span(g.Wall.Max).String(), workersText(g.WorkersPerCore),
		})
	}
	p.Tables = append(p.Tables, t)
}

// rateChart draws the rate over time.
func rateChart(s *Summary) *chart {
	over := &s.RateOver
	most := 0.0
	for _, n := range over.Requests {
		most = max(most, float64(n)/over.Interval.Seconds())
	}
	c := &chart{Label: fmt.Sprintf("at most %s requests a second", grouped(most))}
	for _, share := range []float64{0, 0.5, 1} {
		c.Ticks = append(c.Ticks, chartTick{chartBottom - share*(chartBottom-chartTop), grouped(share * most)})
	}
	last := len(over.Requests) - 1
	var points strings.Builder
	for i, n := range over.Requests {
		fmt.Fprintf(&points, "%.1f,%.1f ", chartLeft+(chartRight-chartLeft)*float64(i)/float64(last),
			chartBottom-float64(n)/over.Interval.Seconds()/most*(chartBottom-chartTop))
	}
	for _, i := range []int{0, last / 2, last} {
		x := chartLeft + (chartRight-chartLeft)*float64(i)/float64(last)
		c.Marks = append(c.Marks, chartTick{min(x, chartRight-24), over.From.Add(time.Duration(i) * over.Interval).Format("15:04:05")})
	}
	c.Lines = []chartLine{{"wall", points.String()}}
	return c
}

// curveChart draws times by percentile, both axes logarithmic.
func curveChart(s *Summary) *chart {
	const nines = 4 // the right end is 99.99 %
	low, high := math.Inf(1), float64(s.Wall.Max)
	for _, p := range s.Curve {
		if p.Wall > 0 {
			low = min(low, float64(p.Wall))
		}
		if cpu := min(p.User, p.Stall); cpu > 0 {
			low = min(low, float64(cpu))
		}
	}
	low = math.Pow(10, math.Floor(math.Log10(max(100, min(low, high)))))
	high = math.Pow(10, math.Ceil(math.Log10(max(high, 10*low))))
	y := func(d time.Duration) float64 {
		return chartBottom - math.Log10(max(float64(d), low)/low)/math.Log10(high/low)*(chartBottom-chartTop)
	}
	x := func(percentile float64) float64 {
		return chartLeft + (chartRight-chartLeft)*min(nines, -math.Log10(max(1-percentile/100, 1e-9)))/nines
	}
	c := &chart{Label: fmt.Sprintf("wall: half within %s, 99 %% within %s", Span(s.Wall.P50), Span(s.Wall.P99))}
	for at := low; at <= high*1.01; at *= 10 {
		c.Ticks = append(c.Ticks, chartTick{y(time.Duration(at)), Span(at).String()})
	}
	for _, p := range []float64{0, 90, 99, 99.9, 99.99} {
		c.Marks = append(c.Marks, chartTick{min(max(x(p), chartLeft+10), chartRight-20), fmt.Sprintf("%v %%", p)})
	}
	line := func(class string, value func(CurvePoint) time.Duration) {
		var points strings.Builder
		for _, p := range s.Curve {
			fmt.Fprintf(&points, "%.1f,%.1f ", x(p.Percentile), y(value(p)))
		}
		c.Lines = append(c.Lines, chartLine{class, points.String()})
	}
	line("wall", func(p CurvePoint) time.Duration { return p.Wall })
	if s.Measured > 0 {
		line("user", func(p CurvePoint) time.Duration { return p.User })
		line("system", func(p CurvePoint) time.Duration { return p.System })
		line("stall", func(p CurvePoint) time.Duration { return p.Stall })
	}
	return c
}
