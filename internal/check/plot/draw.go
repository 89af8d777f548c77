package main

import (
	"math"

	"github.com/isotone/isotone/internal/check/svg"
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
	var b svg.Picture
	y := 24.0
	b.Text("head", "start", left, y, p.title)
	if p.log {
		y += 17
		b.Text("small", "start", left, y, "logarithmic: a bar twice as long is more than twice as much")
	}
	if len(p.series) > 1 {
		y = p.legend(&b, y+20)
	}
	axis := svg.Axis{Left: left, Right: width - textRoom, To: largest, Log: p.log}
	if p.log {
		axis.From = smallest / 2
	}
	for _, g := range groups {
		y += labelLine
		b.Text("", "start", left, y, g.label)
		y += 5
		for i, v := range g.values {
			if v == 0 {
				continue
			}
			b.Rect(p.series[i].class, left, y, axis.At(v)-left, barHeight, `rx="2"`)
			b.Text("small", "start", axis.At(v)+5, y+barHeight-3, g.texts[i])
			y += barHeight + barGap
		}
		y += groupGap - barGap
	}
	return b.SVG(width, y+8, p.title+". The values are those of the table in "+p.file, ""), nil
}

// legend writes the names of the series, and returns where it ends.
func (p *plot) legend(b *svg.Picture, y float64) float64 {
	for _, s := range p.series {
		b.Rect(s.class, left, y-10, 12, 12, `rx="2"`)
		b.Text("small", "start", left+18, y, s.name)
		y += 17
	}
	return y - 5
}
