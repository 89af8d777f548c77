package demoscale

import (
	"fmt"
	"strings"

	"github.com/isotone/isotone/internal/check/svg"
)

// Sizes in pixels.
const (
	phaseHeight = 16 // of the bar of one phase
	modelStep   = 84 // from one model to the next
)

// modelPicture returns the results as SVG: the rates of each phase as bars on a logarithmic axis, and
// who answers what before the first worker dies and while it is dead.
func modelPicture(s modelSettings, results []modelResult) string {
	axisAt := float64(barTop + modelStep*len(results) - 12)
	var all []result
	for _, r := range results {
		for _, phase := range []phaseResult{r.Healthy, r.Dead, r.Back} {
			all = append(all, result{Rate: phase.Rate})
		}
	}
	p := begin(s.settings, scaleOf(all), axisAt, ": before the first one dies, and while it is dead")
	for i, r := range results {
		drawPhases(p, r, scaleOf(all).axis(barLeft, barRight), float64(barTop+i*modelStep))
		for j, phase := range []phaseResult{r.Healthy, r.Dead} {
			name := []string{r.Name, "one dead"}[j]
			drawMap(p, result{trial: trial{Name: name, Workers: s.workers}, HitRate: phase.HitRate, Served: phase.Served}, float64(margin+(2*i+j)*mapStep), axisAt+mapsGap)
		}
	}
	return p.SVG(pictureWidth, axisAt+mapsGap+mapSize+34, modelCaption(results), "")
}

// modelCaption returns the rates as text.
func modelCaption(results []modelResult) string {
	var parts []string
	for _, r := range results {
		parts = append(parts, fmt.Sprintf("%s %s/s, with one worker dead %s/s and %d errors", r.Name, figure(r.Healthy.Rate), figure(r.Dead.Rate), r.Dead.Errors))
	}
	return "Requests per second: " + strings.Join(parts, "; ")
}

// drawPhases draws the three bars of a model, from the height y.
func drawPhases(p *svg.Picture, r modelResult, axis svg.Axis, y float64) {
	p.Text("", "end", barLeft-10, y+2*phaseHeight, r.Name)
	for j, phase := range []phaseResult{r.Healthy, r.Dead, r.Back} {
		end := axis.At(phase.Rate)
		p.Rect("teal", barLeft, y, end-barLeft, phaseHeight, fmt.Sprintf(`rx="2" opacity="%.1f"`, []float64{1, 0.5, 0.8}[j]))
		text := figure(phase.Rate) + []string{"", fmt.Sprintf(" one dead, %d errors", phase.Errors), " back"}[j]
		if end > barRight-120 { // no room beside the bar
			room := float64(8 * len(text))
			p.Rect("page", end-room-10, y+1, room+6, phaseHeight-2, `opacity="0.75"`)
			p.Text("small", "end", end-8, y+13, text)
		} else {
			p.Text("small", "start", end+8, y+13, text)
		}
		y += phaseHeight + 4
	}
}
