//go:build linux

package chaos

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Sizes of the picture in pixels.
const (
	pictureWidth = 900
	axisLeft     = 270
	axisRight    = 870
	rowsTop      = 70
	rowHeight    = 26
)

// The axis is logarithmic, from a time in milliseconds to another.
const (
	axisFrom = 1.0
	axisTo   = 3000.0
)

// pictureStyle supports light and dark backgrounds.
const pictureStyle = `<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.small { font-size: 11px; fill: #59636e }
.head { font-size: 15px; font-weight: 600 }
.page { fill: #ffffff }
.grid { stroke: #d1d9e0 }
.event { fill: #0969da; fill-opacity: 0.35 }
.median { stroke: #1f2328; stroke-width: 2 }
.target { stroke: #cf222e; stroke-width: 2; stroke-dasharray: 3 2 }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc } .small { fill: #9198a1 } .page { fill: #0d1117 } .grid { stroke: #3d444d }
.event { fill: #58a6ff } .median { stroke: #f0f6fc } .target { stroke: #ff7b72 }
}
</style>
`

// Picture returns the times of all scenarios as SVG: a row for each, a dot for each event.
func (r *FailoverReport) Picture() string {
	bottom := rowsTop + rowHeight*len(r.Scenarios)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img" aria-label="Times of failovers">`+"\n", pictureWidth, bottom+46)
	b.WriteString(pictureStyle)
	fmt.Fprintf(&b, `<rect class="page" width="%d" height="%d" rx="6"/>`+"\n", pictureWidth, bottom+46)
	pictureText(&b, 20, 28, "head", "start", "From the end of a leader to the first answer")
	pictureText(&b, 20, 46, "small", "start",
		fmt.Sprintf("a dot for each event, a bar at the median, a dashed bar at the target for 99 of 100 events; load average %.0f before the start", r.Machine.Load))
	for _, mark := range []float64{1, 3, 10, 30, 100, 300, 1000, 3000} {
		x := axisAt(mark)
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" x2="%[1]f" y1="%d" y2="%d"/>`+"\n", x, rowsTop-8, bottom)
		pictureText(&b, x, float64(bottom)+16, "small", "middle", fmt.Sprintf("%g", mark))
	}
	pictureText(&b, axisRight, float64(bottom)+34, "small", "end", "milliseconds")
	for i, s := range r.Scenarios {
		drawTimes(&b, s, float64(rowsTop+rowHeight*i)+rowHeight/2)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// drawTimes draws one scenario around the height y. Dots lie on several lines, so that equal times
// are seen as many.
func drawTimes(b *strings.Builder, s *FailoverTimes, y float64) {
	pictureText(b, axisLeft-12, y+4, "", "end", s.Title)
	for i, took := range s.Times {
		fmt.Fprintf(b, `<circle class="event" cx="%.1f" cy="%.1f" r="2.5"/>`+"\n", axisAt(took), y-6+float64(i%5)*3)
	}
	bar := func(class string, at float64) {
		if at > 0 {
			fmt.Fprintf(b, `<line class="%s" x1="%.1f" x2="%[2]f" y1="%.1f" y2="%.1f"/>`+"\n", class, axisAt(at), y-10, y+10)
		}
	}
	bar("median", s.P50)
	bar("target", s.P99Max)
}

// axisAt returns where a time in milliseconds lies.
func axisAt(ms float64) float64 {
	part := math.Log(min(max(ms, axisFrom), axisTo)/axisFrom) / math.Log(axisTo/axisFrom)
	return axisLeft + part*(axisRight-axisLeft)
}

func pictureText(b *strings.Builder, x, y float64, class, anchor, text string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" class="%s" text-anchor="%s">%s</text>`+"\n", x, y, class, anchor, html.EscapeString(text))
}
