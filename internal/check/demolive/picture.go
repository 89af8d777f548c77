package demolive

import (
	"fmt"
	"math"

	"github.com/isotone/isotone/internal/check/bench"
	"github.com/isotone/isotone/internal/check/svg"
)

// Sizes of the picture in pixels.
const (
	pictureWidth  = 900
	pictureHeight = 352
	left          = 64
	right         = 876
	chartTop      = 84
	chartBottom   = 190
	costTop       = 248
)

// colours are those of phases, without TLS and with it.
var colours = map[bool]string{false: "teal", true: "purple"}

// Picture returns the run as SVG: events in each second, and the processor time for 1,000 events in each phase.
func (r *Result) Picture() string {
	p := new(svg.Picture)
	title := fmt.Sprintf("%s readers of a document that changes each second", bench.Group(r.Settings.Connections))
	p.Title(title, "Events that all readers together get in a second; teal: plain, purple: TLS. In the seconds without, readers connect.")
	r.chart(p)
	r.costs(p)
	p.Text("small", "start", 24, pictureHeight-14, r.verdict())
	p.Text("small", "end", right, pictureHeight-14, fmt.Sprintf("isotone demo live, %s, %d CPUs", r.Began.Format("2006-01-02"), r.Environment.CPUs))
	return p.SVG(pictureWidth, pictureHeight, title+". "+r.verdict(), "")
}

// chart draws the events.
func (r *Result) chart(p *svg.Picture) {
	most, end := 1.0, 1.0
	for _, s := range r.Result.Seconds {
		most, end = max(most, float64(s.Events)), max(end, s.AtS)
	}
	axis := svg.Axis{Left: left, Right: right, To: math.Ceil(end)}
	for _, part := range []float64{0, 0.5, 1} {
		y := chartBottom - part*(chartBottom-chartTop)
		p.Line("grid", left, y, right, y)
		p.Text("small", "end", left-8, y+4, bench.Group(math.Round(part*most)))
	}
	width := (axis.At(1) - axis.At(0)) * 0.8
	for _, s := range r.Result.Seconds {
		height := float64(s.Events) / most * (chartBottom - chartTop)
		p.Rect(colours[s.TLS], max(left, axis.At(s.AtS)-width), chartBottom-height, width, height, `rx="1"`)
	}
	step := math.Ceil(axis.To / 15)
	for at := 0.0; at <= axis.To; at += step {
		p.Text("small", "middle", axis.At(at), chartBottom+16, fmt.Sprintf("%g", at))
	}
	p.Text("small", "end", right, chartBottom+32, "seconds")
}

// costs draws the processor time of the node.
func (r *Result) costs(p *svg.Picture) {
	p.Text("small", "start", 24, costTop-10, "Processor time of the node for 1,000 events, in ms")
	most := 0.001
	for _, phase := range r.Result.Phases {
		most = max(most, phase.CPUEach)
	}
	axis := svg.Axis{Left: left + 10, Right: 400, To: most}
	for i, phase := range r.Result.Phases {
		y := costTop + 34*float64(i)
		p.Text("", "end", left, y+16, name(phase.TLS))
		p.Rect(colours[phase.TLS], axis.Left, y, axis.At(phase.CPUEach)-axis.Left, 22, `rx="2"`)
		p.Text("", "start", axis.At(phase.CPUEach)+8, y+16, fmt.Sprintf("%.1f ms", phase.CPUEach))
		p.Text("small", "end", right, y+16, fmt.Sprintf("%s events/s, CPU %.0f %%; from the first reader to the last: %.0f ms",
			bench.Group(math.Round(phase.EventsPerS)), phase.CPU, phase.LastMS-phase.FirstMS))
	}
}
