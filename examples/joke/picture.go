package main

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
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
)

// pictureStyle supports light and dark backgrounds.
const pictureStyle = `<style>
text { font: 13px system-ui, sans-serif; fill: #24292f }
.small { font-size: 11px; fill: #57606a }
.head { font-size: 15px; font-weight: 600 }
.page { fill: #ffffff }
.bar, .cell { fill: #0969da }
.none { fill: #eaeef2 }
.line { stroke: #d0d7de }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .small { fill: #9198a1 } .page { fill: #0d1117 }
.bar, .cell { fill: #58a6ff } .none { fill: #21262d } .line { stroke: #30363d }
}
</style>
`

// picture returns the results as SVG: the rates as bars on a logarithmic axis, and for each
// strategy which worker answered which word.
func picture(s settings, results []result) string {
	axisAt := barTop + barStep*len(results)
	mapsAt := axisAt + 78
	rows := (len(results) + mapsPerRow - 1) / mapsPerRow
	height := mapsAt + rows*(mapSize+34) + 12
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%d" role="img" aria-label="%s">`+"\n",
		pictureWidth, height, html.EscapeString(caption(results)))
	b.WriteString(pictureStyle)
	fmt.Fprintf(&b, `<rect class="page" width="%d" height="%d" rx="6"/>`+"\n", pictureWidth, height)
	label(&b, margin, 30, "head", "start", fmt.Sprintf("Requests per second: %d words, %d workers that keep %d each, %d clients", s.words, s.workers, s.cache, s.clients))
	drawBars(&b, results, axisAt)
	label(&b, margin, mapsAt-30, "head", "start", "Who answers what")
	label(&b, margin+176, mapsAt-30, "small", "start", "a row for each word, a column for each worker; the darker, the more of the answers to this word")
	for i, r := range results {
		drawMap(&b, r, margin+i%mapsPerRow*mapStep, mapsAt+i/mapsPerRow*(mapSize+34))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// caption returns the rates as text.
func caption(results []result) string {
	var parts []string
	for _, r := range results {
		parts = append(parts, r.Name+" "+figure(r.Rate)+"/s")
	}
	return "Requests per second: " + strings.Join(parts, ", ")
}

func label(b *strings.Builder, x, y int, class, anchor, text string) {
	fmt.Fprintf(b, `<text x="%d" y="%d" class="%s" text-anchor="%s">%s</text>`+"\n", x, y, class, anchor, html.EscapeString(text))
}

func drawBars(b *strings.Builder, results []result, axisAt int) {
	s := scaleOf(results)
	for _, mark := range s.marks() {
		x := barLeft + int(math.Round(s.at(mark)*(barRight-barLeft)))
		fmt.Fprintf(b, `<line class="line" x1="%d" x2="%[1]d" y1="%d" y2="%d"/>`+"\n", x, barTop-10, axisAt)
		label(b, x, axisAt+16, "small", "middle", fmt.Sprint(mark))
	}
	for i, r := range results {
		y, width := barTop+i*barStep, int(math.Round(s.at(r.Rate)*(barRight-barLeft)))
		label(b, barLeft-10, y+16, "", "end", r.Name)
		fmt.Fprintf(b, `<rect class="bar" x="%d" y="%d" width="%d" height="%d" rx="2"/>`+"\n", barLeft, y, width, barHeight)
		label(b, barLeft+width+8, y+16, "", "start", figure(r.Rate))
	}
}

// drawMap draws which worker answered which word.
func drawMap(b *strings.Builder, r result, x, y int) {
	label(b, x, y-6, "small", "start", fmt.Sprintf("%s: %.0f %% hits", r.Name, 100*r.HitRate))
	wide, high := float64(mapSize)/float64(r.Workers), float64(mapSize)/float64(len(r.Served))
	for word, row := range r.Served {
		most := slices.Max(row)
		for worker, n := range row {
			cell := fmt.Sprintf(`x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`+"\n",
				float64(x)+float64(worker)*wide, float64(y)+float64(word)*high, wide*0.92, high*0.92)
			b.WriteString(`<rect class="none" ` + cell)
			if n > 0 {
				fmt.Fprintf(b, `<rect class="cell" opacity="%.2f" %s`, 0.1+0.9*float64(n)/float64(most), cell)
			}
		}
	}
}
