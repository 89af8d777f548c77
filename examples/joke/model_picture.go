package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Sizes in pixels.
const (
	phaseHeight = 16 // of the bar of one phase
	modelStep   = 84 // from one model to the next
)

// modelPicture returns the results as SVG: the rates of each phase as bars on a logarithmic axis, and
// who answers what before the first worker dies and while it is dead.
func modelPicture(s modelSettings, results []modelResult) string {
	axisAt := barTop + modelStep*len(results) - 12
	mapsAt := axisAt + 78
	var all []result
	for _, r := range results {
		for _, phase := range []phaseResult{r.Healthy, r.Dead, r.Back} {
			all = append(all, result{Rate: phase.Rate})
		}
	}
	height := mapsAt + mapSize + 46
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%d" role="img" aria-label="%s">`+"\n",
		pictureWidth, height, html.EscapeString(modelCaption(results)))
	b.WriteString(pictureStyle)
	fmt.Fprintf(&b, `<rect class="page" width="%d" height="%d" rx="6"/>`+"\n", pictureWidth, height)
	label(&b, margin, 30, "head", "start", fmt.Sprintf("Requests per second: %d words, %d workers that keep %d each, %d clients", s.words, s.workers, s.cache, s.clients))
	drawPhases(&b, results, scaleOf(all), axisAt)
	label(&b, margin, mapsAt-30, "head", "start", "Who answers what")
	label(&b, margin+176, mapsAt-30, "small", "start", "a row for each word, a column for each worker: before the first one dies, and while it is dead")
	for i, r := range results {
		for j, phase := range []phaseResult{r.Healthy, r.Dead} {
			name := []string{r.Name, "one dead"}[j]
			drawMap(&b, result{trial: trial{Name: name, Workers: s.workers}, HitRate: phase.HitRate, Served: phase.Served}, margin+(2*i+j)*mapStep, mapsAt)
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// modelCaption returns the rates as text.
func modelCaption(results []modelResult) string {
	var parts []string
	for _, r := range results {
		parts = append(parts, fmt.Sprintf("%s %s/s, with one worker dead %s/s and %d errors", r.Name, figure(r.Healthy.Rate), figure(r.Dead.Rate), r.Dead.Errors))
	}
	return "Requests per second: " + strings.Join(parts, "; ")
}

// drawPhases draws three bars for each model.
func drawPhases(b *strings.Builder, results []modelResult, s scale, axisAt int) {
	for _, mark := range s.marks() {
		x := barLeft + int(math.Round(s.at(mark)*(barRight-barLeft)))
		fmt.Fprintf(b, `<line class="line" x1="%d" x2="%[1]d" y1="%d" y2="%d"/>`+"\n", x, barTop-10, axisAt)
		label(b, x, axisAt+16, "small", "middle", fmt.Sprint(mark))
	}
	for i, r := range results {
		label(b, barLeft-10, barTop+i*modelStep+2*phaseHeight, "", "end", r.Name)
		for j, phase := range []phaseResult{r.Healthy, r.Dead, r.Back} {
			y, width := barTop+i*modelStep+j*(phaseHeight+4), int(math.Round(s.at(phase.Rate)*(barRight-barLeft)))
			fmt.Fprintf(b, `<rect class="bar" opacity="%.1f" x="%d" y="%d" width="%d" height="%d" rx="2"/>`+"\n", []float64{1, 0.5, 0.8}[j], barLeft, y, width, phaseHeight)
			text := figure(phase.Rate) + []string{"", fmt.Sprintf(" one dead, %d errors", phase.Errors), " back"}[j]
			if width > barRight-barLeft-120 { // no room beside the bar
				fmt.Fprintf(b, `<rect class="page" x="%d" y="%d" width="%d" height="%d" opacity="0.75"/>`+"\n", barLeft+width-8*len(text)-10, y+1, 8*len(text)+6, phaseHeight-2)
				label(b, barLeft+width-8, y+13, "small", "end", text)
				continue
			}
			label(b, barLeft+width+8, y+13, "small", "start", text)
		}
	}
}
