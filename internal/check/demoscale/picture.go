package demoscale

import (
	"fmt"
	"slices"
	"strings"

	"github.com/isotone/isotone/internal/check/svg"
)

// Sizes in pixels.
const (
	pictureWidth = 860
	margin       = 24
	barLeft      = 120 // where bars begin
	barRight     = 740 // where the axis ends; figures are to the right of bars
	barHeight    = 22
	barStep      = 32
	barTop       = 62
	mapStep      = 136 // from one map to the next
	mapSize      = 112 // of the cells of one
	mapsPerRow   = 6
	mapsGap      = 92 // from the axis to the maps
)

// picture returns the results as SVG: the rates as bars on a logarithmic axis, and for each
// strategy which worker answered which word.
func picture(s settings, results []result) string {
	scale, axisAt := scaleOf(results), float64(barTop+barStep*len(results))
	p := begin(s, scale, axisAt, "; the darker, the more of the answers to this word")
	for i, r := range results {
		y, end := float64(barTop+i*barStep), scale.axis(barLeft, barRight).At(r.Rate)
		p.Text("", "end", barLeft-10, y+16, r.Name)
		p.Rect("teal", barLeft, y, end-barLeft, barHeight, `rx="2"`)
		p.Text("", "start", end+8, y+16, figure(r.Rate))
		drawMap(p, r, float64(margin+i%mapsPerRow*mapStep), axisAt+mapsGap+float64(i/mapsPerRow*(mapSize+34)))
	}
	rows := (len(results) + mapsPerRow - 1) / mapsPerRow
	return p.SVG(pictureWidth, axisAt+mapsGap+float64(rows*(mapSize+34)), caption(results), "")
}

// begin begins a picture with its texts and its axis, which lies at the height axisAt.
func begin(s settings, scale scale, axisAt float64, legend string) *svg.Picture {
	p := new(svg.Picture)
	p.Title(fmt.Sprintf("Requests per second: %d words, %d workers that keep %d each, %d clients", s.words, s.workers, s.cache, s.clients))
	p.Marks(scale.axis(barLeft, barRight), barTop-10, axisAt, "logarithmic", scale.marks()...)
	p.Text("head", "start", margin, axisAt+mapsGap-30, "Who answers what")
	p.Text("small", "start", margin+176, axisAt+mapsGap-30, "a row for each word, a column for each worker"+legend)
	return p
}

// caption returns the rates as text.
func caption(results []result) string {
	var parts []string
	for _, r := range results {
		parts = append(parts, r.Name+" "+figure(r.Rate)+"/s")
	}
	return "Requests per second: " + strings.Join(parts, ", ")
}

// drawMap draws which worker answered which word.
func drawMap(p *svg.Picture, r result, x, y float64) {
	p.Text("small", "start", x, y-6, fmt.Sprintf("%s: %.0f %% hits", r.Name, 100*r.HitRate))
	wide, high := float64(mapSize)/float64(r.Workers), float64(mapSize)/float64(len(r.Served))
	for word, row := range r.Served {
		most := slices.Max(row)
		for worker, n := range row {
			cell := func(class, attributes string) {
				p.Rect(class, x+float64(worker)*wide, y+float64(word)*high, wide*0.92, high*0.92, attributes)
			}
			cell("faint", "")
			if n > 0 {
				cell("teal", fmt.Sprintf(`opacity="%.2f"`, 0.1+0.9*float64(n)/float64(most)))
			}
		}
	}
}
