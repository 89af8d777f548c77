package main

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
	"time"
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

// pictureStyle supports light and dark backgrounds.
const pictureStyle = `<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.small { font-size: 11px; fill: #59636e }
.head { font-size: 15px; font-weight: 600 }
.page { fill: #ffffff }
.grid { stroke: #d1d9e0 }
.oracle { fill: #bc4c00 }
.interval { fill: #0969da }
.median { stroke: #1f2328; stroke-width: 2 }
.write { stroke: #1a7f37; stroke-width: 2; stroke-dasharray: 3 2 }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc } .small { fill: #9198a1 } .page { fill: #0d1117 } .grid { stroke: #3d444d }
.oracle { fill: #f0883e } .interval { fill: #58a6ff } .median { stroke: #f0f6fc } .write { stroke: #3fb950 }
}
</style>
`

// picture returns the latencies as SVG: for each region the distribution of both kinds.
func picture(s settings, r results) string {
	bottom := plotTop + regions*regionStep - 14
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%d" role="img" aria-label="%s">`+"\n",
		pictureWidth, bottom+46, html.EscapeString(caption(r)))
	b.WriteString(pictureStyle)
	fmt.Fprintf(&b, `<rect class="page" width="%d" height="%d" rx="6"/>`+"\n", pictureWidth, bottom+46)
	label(&b, margin, 30, "head", "start", "How long a transaction takes: a timestamp, and a write to the nearest other region")
	label(&b, margin, 50, "small", "start", fmt.Sprintf("one way A–B %s, A–C %s, B–C %s; %d workers of each kind in each region; INTERVAL_MS %s, RTT_MS %s",
		figure(s.delays[0][1]), figure(s.delays[0][2]), figure(s.delays[1][2]), s.workers, milliseconds(s.interval), milliseconds(s.tick)))
	label(&b, margin, 68, "small", "start", "the higher, the more transactions; a bar at the median, a dashed bar at the median of the write alone")
	axis := axisOf(r)
	for mark := time.Duration(0); mark <= axis.end; mark += axis.step {
		x := axis.at(mark)
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" x2="%[1]f" y1="%d" y2="%d"/>`+"\n", x, plotTop-8, bottom)
		label(&b, x, bottom+16, "small", "middle", fmt.Sprint(mark.Milliseconds()))
	}
	label(&b, plotRight, bottom+34, "small", "end", "milliseconds")
	for i, f := range r.regions {
		top := plotTop + i*regionStep
		name := fmt.Sprintf("Region %s", regionNames[i])
		where := "the leader is here"
		if i != 0 {
			where = figure(f.leader) + " to the leader"
		}
		label(&b, margin, top+30, "", "start", name)
		label(&b, margin, top+46, "small", "start", where)
		for k := range kinds {
			drawTimes(&b, axis, k, f.latencies[k], top+int(k)*(rowHeight+4))
		}
		x := axis.at(f.write)
		fmt.Fprintf(&b, `<line class="write" x1="%.1f" x2="%[1]f" y1="%d" y2="%d"/>`+"\n", x, top, top+2*rowHeight+4)
	}
	b.WriteString("</svg>\n")
	return b.String()
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

func label(b *strings.Builder, x float64, y int, class, anchor, text string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%d" class="%s" text-anchor="%s">%s</text>`+"\n", x, y, class, anchor, html.EscapeString(text))
}

// drawTimes draws the distribution of one kind below the height top.
func drawTimes(b *strings.Builder, a axis, k kind, sorted []time.Duration, top int) {
	counts := make([]int, int(plotRight-plotLeft)/binWidth+1)
	for _, took := range sorted {
		counts[int((a.at(took)-plotLeft)/binWidth)]++
	}
	most, base := float64(slices.Max(counts)), float64(top+rowHeight)
	fmt.Fprintf(b, `<path class="%v" d="M%d %.0f`, k, plotLeft, base)
	for i, n := range counts {
		if n > 0 || i > 0 && counts[i-1] > 0 {
			fmt.Fprintf(b, "H%dV%.1f", plotLeft+i*binWidth, base-math.Sqrt(float64(n)/most)*(rowHeight-6))
		}
	}
	fmt.Fprintf(b, `H%dV%.0fZ"/>`+"\n", plotRight+binWidth, base)
	median := quantile(sorted, 0.5)
	fmt.Fprintf(b, `<line class="median" x1="%.1f" x2="%[1]f" y1="%d" y2="%.0f"/>`+"\n", a.at(median), top, base)
	label(b, plotRight+14, top+15, "", "start", fmt.Sprintf("%v %s", k, figure(median)))
	label(b, plotRight+14, top+30, "small", "start", "p99 "+figure(quantile(sorted, 0.99)))
}

// axis is a linear axis of times from 0.
type axis struct{ end, step time.Duration }

// axisOf returns an axis that has nearly all times of r. Longer ones are drawn at its end.
func axisOf(r results) axis {
	var most time.Duration
	for _, f := range r.regions {
		for _, list := range f.latencies {
			most = max(most, quantile(list, 0.99))
		}
	}
	most += most / 10
	for step := time.Millisecond; ; step *= 10 {
		for _, factor := range []time.Duration{1, 2, 5} {
			if s := step * factor; most <= marksMax*s {
				return axis{(most + s - 1) / s * s, s}
			}
		}
	}
}

// at returns where a time lies, at the end of the axis at most.
func (a axis) at(d time.Duration) float64 {
	return plotLeft + min(float64(d)/float64(a.end), 1)*(plotRight-plotLeft)
}
