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
	Tables []table
	Note   string
}

type pagePart struct {
	Name, Span, Sentence string
	Tiles                []pageTile
	Bars                 []pageBar
	BarLabel             string
	Rate, Curve          *chart
	Tables               []table
}

type pageTile struct{ Name, Value string }

type pageBar struct {
	Name  string
	Value float64
	Text  string
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
		p.Tables = append(p.Tables, r.Joins[i].times(), r.Joins[i].farthest())
	}
	if len(r.Groups) > 0 {
		p.Tables = append(p.Tables, r.groups())
	}
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
		part.Tables = append(part.Tables, s.times())
	}
	if len(s.Slowest) > 0 {
		part.Tables = append(part.Tables, s.slowest())
	}
	p.Parts = append(p.Parts, part)
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
