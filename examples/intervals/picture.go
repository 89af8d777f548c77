package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/isotone/isotone/internal/check/svg"
)

// Sizes in pixels.
const (
	pictureWidth = 860
	margin       = 24
	plotLeft     = 150 // where the axis begins
	plotRight    = 720 // and ends; figures are to the right of it
	plotTop      = 96
	rowHeight    = 34 // of one distribution
	regionStep   = 98 // from one region to the next
	binWidth     = 3  // of the axis
)

// marksMax bounds the marks of the axis.
const marksMax = 8

// colours are those of the kinds.
var colours = [kinds]string{fromOracle: "orange", fromClock: "teal"}

// picture returns the latencies as SVG: for each region the distribution of both kinds.
func picture(s settings, r results) string {
	const bottom = plotTop + regions*regionStep - 14
	var p svg.Picture
	p.Title("How long a transaction takes: a timestamp, and a write to the nearest other region",
		fmt.Sprintf("one way A–B %s, A–C %s, B–C %s; %d workers of each kind in each region; INTERVAL_MS %s, RTT_MS %s",
			figure(s.delays[0][1]), figure(s.delays[0][2]), figure(s.delays[1][2]), s.workers, milliseconds(s.interval), milliseconds(s.tick)),
		"the higher, the more transactions; a bar at the median, a dashed bar at the median of the write alone")
	axis, marks := axisOf(r)
	p.Marks(axis, plotTop-8, bottom, "milliseconds", marks...)
	for i, f := range r.regions {
		top := float64(plotTop + i*regionStep)
		where := "the leader is here"
		if i != 0 {
			where = figure(f.leader) + " to the leader"
		}
		p.Text("", "start", margin, top+30, fmt.Sprintf("Region %s", regionNames[i]))
		p.Text("small", "start", margin, top+46, where)
		for k := range kinds {
			drawTimes(&p, axis, k, f.latencies[k], top+float64(k)*(rowHeight+4))
		}
		x := axis.At(inMS(f.write))
		p.Line("green wide dashed", x, top, x, top+2*rowHeight+4)
	}
	return p.SVG(pictureWidth, bottom+46, caption(r), "")
}

// caption returns the medians as text.
func caption(r results) string {
	var parts []string
	for i, f := range r.regions {
		parts = append(parts, fmt.Sprintf("region %s: oracle %s, interval %s", regionNames[i],
			figure(quantile(f.latencies[fromOracle], 0.5)), figure(quantile(f.latencies[fromClock], 0.5))))
	}
	return "Median latencies. " + strings.Join(parts, "; ")
}

// inMS returns a time as a value of the axis.
func inMS(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// drawTimes draws the distribution of one kind below the height top.
func drawTimes(p *svg.Picture, a svg.Axis, k kind, sorted []time.Duration, top float64) {
	counts := make([]int, int(plotRight-plotLeft)/binWidth+1)
	for _, took := range sorted {
		counts[int((a.At(inMS(took))-plotLeft)/binWidth)]++
	}
	most, base := float64(slices.Max(counts)), top+rowHeight
	fmt.Fprintf(p, `<path class="%s" d="M%d %.0f`, colours[k], plotLeft, base)
	for i, n := range counts {
		if n > 0 || i > 0 && counts[i-1] > 0 {
			fmt.Fprintf(p, "H%dV%.1f", plotLeft+i*binWidth, base-math.Sqrt(float64(n)/most)*(rowHeight-6))
		}
	}
	fmt.Fprintf(p, `H%dV%.0fZ"/>`+"\n", plotRight+binWidth, base)
	median := quantile(sorted, 0.5)
	p.Line("ink wide", a.At(inMS(median)), top, a.At(inMS(median)), base)
	p.Text("", "start", plotRight+14, top+15, fmt.Sprintf("%v %s", k, figure(median)))
	p.Text("small", "start", plotRight+14, top+30, "p99 "+figure(quantile(sorted, 0.99)))
}

// axisOf returns an axis in milliseconds that has nearly all times of r, and its marks. Longer ones are
// drawn at its end.
func axisOf(r results) (a svg.Axis, marks []float64) {
	var most float64
	for _, f := range r.regions {
		for _, list := range f.latencies {
			most = max(most, 1.1*inMS(quantile(list, 0.99)))
		}
	}
	for unit := 1.0; ; unit *= 10 {
		for _, factor := range []float64{1, 2, 5} {
			if step := unit * factor; most <= marksMax*step {
				n := math.Ceil(most / step)
				for i := range int(n) + 1 {
					marks = append(marks, float64(i)*step)
				}
				return svg.Axis{Left: plotLeft, Right: plotRight, To: n * step}, marks
			}
		}
	}
}
