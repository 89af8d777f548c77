package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Measures of a picture in pixels. It is narrow, so that it can be read on a phone.
const (
	width     = 480
	left      = 16
	barHeight = 15
	barGap    = 3
	labelLine = 20
	groupGap  = 10
	textRoom  = 92 // to the right of the longest bar, for its value
)

const style = `<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.small { font-size: 11px; fill: #59636e }
.head { font-size: 14px; font-weight: 600 }
.page { fill: #ffffff }
.a { fill: #8c959f }
.b { fill: #0969da }
.c { fill: #8250df }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc } .small { fill: #9198a1 } .page { fill: #0d1117 } .a { fill: #6e7681 } .b { fill: #58a6ff } .c { fill: #bc8cff }
}
</style>`

// draw returns the picture as SVG.
func (p *plot) draw(root string) (string, error) {
	groups, err := p.read(root)
	if err != nil {
		return "", err
	}
	largest, smallest := 0.0, math.Inf(1)
	for _, g := range groups {
		for _, v := range g.values {
			if v > 0 {
				largest, smallest = max(largest, v), min(smallest, v)
			}
		}
	}
	var b strings.Builder
	y := 24
	fmt.Fprintf(&b, "<text class=\"head\" x=\"%d\" y=\"%d\">%s</text>\n", left, y, html.EscapeString(p.title))
	if p.log {
		y += 17
		fmt.Fprintf(&b, "<text class=\"small\" x=\"%d\" y=\"%d\">logarithmic: a bar twice as long is more than twice as much</text>\n", left, y)
	}
	if len(p.series) > 1 {
		y = p.legend(&b, y+20)
	}
	for _, g := range groups {
		y += labelLine
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\">%s</text>\n", left, y, html.EscapeString(g.label))
		y += 5
		for i, v := range g.values {
			if v == 0 {
				continue
			}
			length := p.length(v, smallest, largest)
			fmt.Fprintf(&b, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"2\"/>\n", p.series[i].class, left, y, length, barHeight)
			fmt.Fprintf(&b, "<text class=\"small\" x=\"%.1f\" y=\"%d\">%s</text>\n", left+length+5, y+barHeight-3, html.EscapeString(g.texts[i]))
			y += barHeight + barGap
		}
		y += groupGap - barGap
	}
	y += 8
	head := fmt.Sprintf("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\" aria-label=\"%s\">\n%s\n<rect class=\"page\" width=\"%d\" height=\"%d\"/>\n",
		width, y, width, y, html.EscapeString(p.title+". The values are those of the table in "+p.file), style, width, y)
	return head + b.String() + "</svg>\n", nil
}

// legend writes the names of the series, and returns where it ends.
func (p *plot) legend(b *strings.Builder, y int) int {
	for _, s := range p.series {
		fmt.Fprintf(b, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" rx=\"2\"/>\n<text class=\"small\" x=\"%d\" y=\"%d\">%s</text>\n",
			s.class, left, y-10, left+18, y, html.EscapeString(s.name))
		y += 17
	}
	return y - 5
}

// length returns how long the bar of a value is. A logarithmic axis begins at half of the smallest value.
func (p *plot) length(v, smallest, largest float64) float64 {
	room := float64(width - left - textRoom)
	if !p.log {
		return room * v / largest
	}
	first := smallest / 2
	return room * math.Log(v/first) / math.Log(largest/first)
}
