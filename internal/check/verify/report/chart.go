package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/isotone/isotone/internal/check/bench"
	"github.com/isotone/isotone/internal/check/svg"
	"github.com/isotone/isotone/internal/check/verify"
)

// form is a size in which pictures are drawn: each once for wide windows and once for phones, because text that is
// scaled down cannot be read.
type form struct {
	class string // in page.css
	width float64
	left  float64 // where axes begin
	ticks int     // on an axis of time
	bins  int     // in a chart, at most
	tips  bool    // has texts for a pointer
}

var forms = []form{
	{class: "desk", width: 820, left: 84, ticks: 16, bins: 360, tips: true},
	{class: "phone", width: 340, left: 66, ticks: 5, bins: 130},
}

// Heights in a chart, in pixels.
const (
	laneHeight    = 15
	headHeight    = 28 // what is above a panel, with its title
	answersHeight = 100
	failedHeight  = 40
	latencyHeight = 120
	axisHeight    = 40
)

// rightMargin is what is right of axes, and letter about the width of a small letter, both in pixels.
const (
	rightMargin = 10
	letter      = 6.2
)

// chart is the picture of a run, or of a part of it.
type chart struct {
	svg.Picture
	run
	form
	axis    svg.Axis        // in seconds
	columns []verify.Column // that it shows
	bins    []bin
	y       float64 // where the next panel begins
}

// charts returns the picture of the columns from one on until another, in all forms.
func (r run) charts(from, to int) string {
	var b strings.Builder
	for _, f := range forms {
		width := float64(r.ColumnMS) / 1000
		c := &chart{run: r, form: f, columns: r.Columns[from:to]}
		c.axis = svg.Axis{Left: f.left, Right: f.width - rightMargin, From: float64(from) * width, To: float64(to) * width}
		c.bins = merge(c.columns, c.axis.From, width, r.Seconds, f.bins)
		b.WriteString(c.draw())
	}
	return b.String()
}

// draw returns the picture.
func (c *chart) draw() string {
	lanes := c.lanes()
	bottom := float64(2*headHeight + answersHeight + latencyHeight)
	if len(lanes) > 0 {
		bottom += headHeight + float64(len(lanes))*laneHeight
	}
	if c.Failed > 0 {
		bottom += headHeight + failedHeight
	}
	c.shade(bottom)
	c.Marks(c.axis, bottom, bottom+4, "seconds", svg.Ticks(c.axis.From, c.axis.To, c.ticks)...)
	if len(lanes) > 0 {
		c.head("faults")
		c.drawLanes(lanes)
	}
	top := c.y
	c.head("answers a second")
	c.bars("teal area", answersHeight, func(b *bin) float64 { return b.answers })
	c.silences()
	if c.Failed > 0 {
		c.head("failed calls a second")
		c.bars("red area", failedHeight, func(b *bin) float64 { return b.failed })
	}
	c.latencies()
	if c.tips {
		c.tipBins(top, bottom)
	}
	caption := fmt.Sprintf("Faults, answers, failed calls and latencies from %g s to %g s", c.axis.From, c.axis.To)
	return c.Inline("chart "+c.class, c.width, bottom+axisHeight, caption)
}

// head begins a panel with a title.
func (c *chart) head(title string) {
	c.Text("small", "start", c.left, c.y+headHeight-9, title)
	c.y += headHeight
}

// bars draws a panel of values from 0 on, as steps.
func (c *chart) bars(class string, height float64, value func(*bin) float64) {
	most := 0.0
	for i := range c.bins {
		most = max(most, value(&c.bins[i]))
	}
	bottom := c.y + height
	axis := svg.Axis{Left: bottom, Right: c.y, To: svg.Top(most)}
	for _, part := range []float64{0, 0.5, 1} {
		if y := axis.At(part * axis.To); part != 0.5 || height >= answersHeight {
			c.Line("grid", c.axis.Left, y, c.axis.Right, y)
			c.Text("small", "end", c.left-8, y+4, bench.Group(part*axis.To))
		}
	}
	if len(c.bins) > 0 {
		fmt.Fprintf(c, `<path class="%s" d="M%.1f %.1f`, class, c.axis.Left, bottom)
		for i := range c.bins {
			fmt.Fprintf(c, "V%.1fH%.1f", axis.At(value(&c.bins[i])), c.axis.At(c.bins[i].to))
		}
		fmt.Fprintf(c, `V%.1fz"/>`+"\n", bottom)
	}
	c.y = bottom
}

// silences marks columns without an answer, below the answers.
func (c *chart) silences() {
	width := float64(c.ColumnMS) / 1000
	var list []stretch
	for i := range c.columns {
		if at := c.axis.From + float64(i)*width; c.columns[i].Answers == 0 && at < c.Seconds {
			x := c.axis.At(at)
			list = join(list, stretch{from: x, to: max(c.axis.At(at+width), x+1.5)})
		}
	}
	c.blocks("red", list, c.y-1, 4)
}

// curves are the lines in the panel of latencies.
var curves = []struct {
	name, class string
	value       func(*bin) float64
}{
	{"max", "orange curve", func(b *bin) float64 { return b.max }},
	{"p99", "purple curve", func(b *bin) float64 { return b.p99 }},
	{"p50", "teal curve wide", func(b *bin) float64 { return b.p50 }},
}

// latencies draws the panel of latencies, which is logarithmic.
func (c *chart) latencies() {
	c.head("latency")
	x := c.left + 60
	for _, curve := range slices.Backward(curves) {
		c.Line(curve.class, x, c.y-13, x+16, c.y-13)
		c.Text("small", "start", x+20, c.y-9, curve.name)
		x += 56
	}
	bottom := c.y + latencyHeight
	from, to := c.decades()
	axis := svg.Axis{Left: bottom, Right: c.y, From: math.Pow10(from), To: math.Pow10(to), Log: true}
	for ten := from; ten <= to; ten++ {
		y := axis.At(math.Pow10(ten))
		c.Line("grid", c.axis.Left, y, c.axis.Right, y)
		c.Text("small", "end", c.left-8, y+4, millis(math.Pow10(ten)))
	}
	for _, curve := range curves {
		c.curve(curve.class, axis, curve.value)
	}
	c.y = bottom
}

// curve draws latencies as steps, with gaps where there was no answer.
func (c *chart) curve(class string, axis svg.Axis, value func(*bin) float64) {
	fmt.Fprintf(c, `<path class="%s" d="`, class)
	joined := false
	for i := range c.bins {
		b := &c.bins[i]
		switch y := axis.At(value(b)); {
		case !b.answered:
		case joined:
			fmt.Fprintf(c, "V%.1fH%.1f", y, c.axis.At(b.to))
		default:
			fmt.Fprintf(c, "M%.1f %.1fH%.1f", c.axis.At(b.from), y, c.axis.At(b.to))
		}
		joined = b.answered
	}
	c.WriteString("\"/>\n")
}

// decades returns the powers of ten around all latencies, in milliseconds: from 1 µs to 10,000 s, and at least two.
func (c *chart) decades() (from, to int) {
	least, most := math.Inf(1), 0.0
	for _, b := range c.bins {
		if b.answered {
			least, most = min(least, b.p50), max(most, b.max)
		}
	}
	if most == 0 {
		return -1, 1
	}
	from = int(math.Floor(tens(least)))
	return from, max(int(math.Ceil(tens(most))), from+1)
}

// tens returns the logarithm of a latency in milliseconds, within the bounds of decades.
func tens(ms float64) float64 {
	if !(ms > 1e-3) { // also NaN
		return -3
	}
	return math.Log10(min(ms, 1e7))
}

// tipBins covers each bin with its figures, for a pointer.
func (c *chart) tipBins(top, bottom float64) {
	c.WriteString(`<g class="tips">` + "\n")
	for i := range c.bins {
		b := &c.bins[i]
		text := fmt.Sprintf("%.6g s: %s/s", b.from, bench.Group(math.Round(b.answers)))
		if b.failed > 0 {
			text += fmt.Sprintf(", %s/s failed", bench.Group(math.Ceil(b.failed)))
		}
		if b.answered {
			text += fmt.Sprintf(", p50 %s, p99 %s, max %s", millis(b.p50), millis(b.p99), millis(b.max))
		}
		fmt.Fprintf(c, `<rect x="%.1f" y="%g" width="%.1f" height="%g"><title>%s</title></rect>`+"\n",
			c.axis.At(b.from), top, c.axis.At(b.to)-c.axis.At(b.from), bottom-top, text)
	}
	c.WriteString("</g>\n")
}
