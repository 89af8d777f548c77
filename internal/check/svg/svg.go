// Package svg writes pictures of measurements: text, lines, bars and axes, in colours for light and
// dark backgrounds. It knows nothing of what was measured.
package svg

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Picture is a picture that is being drawn; the zero value is empty. Places and sizes are in pixels, from
// the top left. What it has no method for is written to it as an element. One goroutine uses it.
//
// A class is one or more of these: a colour of text, shapes and lines (ink, muted, page, grid, faint, gray,
// teal, green, purple, orange, red), "small" and "head" for text, "wide" and "dashed" for lines.
type Picture struct{ strings.Builder }

// Style has the colours of all classes, on light and on dark backgrounds. A page with pictures of [Picture.Inline] has
// it once.
const Style = `text { font: 13px system-ui, sans-serif } .small { font-size: 11px } .head { font-size: 15px; font-weight: 600 }
.wide { stroke-width: 2 } .dashed { stroke-dasharray: 3 2 }
svg * { fill: currentColor } line { stroke: currentColor }
text, .ink { color: #1f2328 } .small, .muted { color: #59636e } .page { color: #ffffff } .grid { color: #d1d9e0 }
.faint { color: #eaeef2 } .gray { color: #8c959f } .teal { color: #0b746c } .green { color: #1a7f37 }
.purple { color: #8250df } .orange { color: #bc4c00 } .red { color: #cf222e }
@media (prefers-color-scheme: dark) {
text, .ink { color: #f0f6fc } .small, .muted { color: #9198a1 } .page { color: #0d1117 } .grid { color: #3d444d }
.faint { color: #21262d } .gray { color: #6e7681 } .teal { color: #55cdbd } .green { color: #3fb950 }
.purple { color: #bc8cff } .orange { color: #f0883e } .red { color: #ff7b72 }
}
`

// SVG returns the picture in a size. The caption is what it shows, for readers who do not see it; rules are
// added to its style sheet.
func (p *Picture) SVG(width, height float64, caption, rules string) string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%[1]g" height="%[2]g" role="img" aria-label="%s">
<style>
%s%s</style>
<rect class="page" width="%[1]g" height="%[2]g" rx="6"/>
%[6]s</svg>
`, width, height, html.EscapeString(caption), Style, rules, p)
}

// Inline returns the picture in a size as an element of a page, in a class of that page and on its background. The page
// needs [Style].
func (p *Picture) Inline(class string, width, height float64, caption string) string {
	return fmt.Sprintf(`<svg class="%s" viewBox="0 0 %g %g" width="%[2]g" height="%[3]g" role="img" aria-label="%s">
%s</svg>
`, class, width, height, html.EscapeString(caption), p)
}

// Title writes a title, and smaller lines below it.
func (p *Picture) Title(title string, lines ...string) {
	p.Text("head", "start", 24, 30, title)
	for i, line := range lines {
		p.Text("small", "start", 24, 50+18*float64(i), line)
	}
}

// Text writes text at a place, which is its "start", "middle" or "end".
func (p *Picture) Text(class, anchor string, x, y float64, text string) {
	fmt.Fprintf(p, `<text class="%s" x="%g" y="%g" text-anchor="%s">%s</text>`+"\n", class, round(x), round(y), anchor, html.EscapeString(text))
}

// Line draws a line between two places.
func (p *Picture) Line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(p, `<line class="%s" x1="%g" y1="%g" x2="%g" y2="%g"/>`+"\n", class, round(x1), round(y1), round(x2), round(y2))
}

// Rect draws a rectangle with more attributes, such as rx="2".
func (p *Picture) Rect(class string, x, y, width, height float64, attributes string) {
	fmt.Fprintf(p, `<rect class="%s" x="%g" y="%g" width="%g" height="%g" %s/>`+"\n", class, round(x), round(y), round(width), round(height), attributes)
}

// round makes a number short.
func round(v float64) float64 { return math.Round(10*v) / 10 }

// Axis is a horizontal axis between two places.
type Axis struct {
	Left, Right float64
	// From and To are the values at its ends. From is above 0 if it is logarithmic.
	From, To float64
	Log      bool
}

// At returns where a value lies. One that is beyond the axis lies at its end.
func (a Axis) At(v float64) float64 {
	v = min(max(v, a.From), a.To)
	part := (v - a.From) / (a.To - a.From)
	if a.Log {
		part = math.Log(v/a.From) / math.Log(a.To/a.From)
	}
	return a.Left + part*(a.Right-a.Left)
}

// Marks draws lines from top to bottom at values, and below them the values and their unit.
func (p *Picture) Marks(a Axis, top, bottom float64, unit string, values ...float64) {
	for _, v := range values {
		p.Line("grid", a.At(v), top, a.At(v), bottom)
		p.Text("small", "middle", a.At(v), bottom+16, fmt.Sprintf("%g", v))
	}
	p.Text("small", "end", a.Right, bottom+34, unit)
}

// Top returns a round number that is at least as large as most, and at least 1: the upper end of an axis from 0.
func Top(most float64) float64 {
	if most <= 1 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(most)))
	for _, factor := range []float64{1, 1.2, 1.5, 2, 3, 4, 5, 6, 8} {
		if top := math.Round(factor * unit); top >= most {
			return top
		}
	}
	return 10 * unit
}

// Ticks returns multiples of a round step from one value to another: most of them, or fewer.
func Ticks(from, to float64, most int) []float64 {
	if !(to > from) || most < 1 {
		return nil
	}
	step := math.Pow(10, math.Floor(math.Log10((to-from)/float64(most))))
	for _, factor := range []float64{2, 2.5, 2} { // to 2, 5 and 10
		if (to-from)/step < float64(most) {
			break
		}
		step *= factor
	}
	var list []float64
	for i := math.Ceil(from / step); len(list) < most && i*step <= to; i++ {
		list = append(list, math.Round(1e9*i*step)/1e9) // 0.3 rather than 0.30000000000000004
	}
	return list
}
