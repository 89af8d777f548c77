//go:build linux

package chaos

import (
	"fmt"

	"github.com/isotone/isotone/internal/check/svg"
)

// Sizes of the picture in pixels.
const (
	pictureWidth = 900
	rowsTop      = 70
	rowHeight    = 26
)

// pictureAxis is that of all times, in milliseconds.
var pictureAxis = svg.Axis{Left: 270, Right: 870, From: 1, To: 3000, Log: true}

// Picture returns the times of all scenarios as SVG: a row for each, a dot for each event.
func (r *FailoverReport) Picture() string {
	bottom := float64(rowsTop + rowHeight*len(r.Scenarios))
	var p svg.Picture
	p.Title("From the end of a leader to the first answer",
		fmt.Sprintf("a dot for each event, a bar at the median, a dashed bar at the target for 99 of 100 events; load average %.0f before the start", r.Machine.Load))
	p.Marks(pictureAxis, rowsTop-8, bottom, "milliseconds", 1, 3, 10, 30, 100, 300, 1000, 3000)
	for i, s := range r.Scenarios {
		drawTimes(&p, s, float64(rowsTop+rowHeight*i)+rowHeight/2)
	}
	return p.SVG(pictureWidth, bottom+46, "Times of failovers", "")
}

// drawTimes draws one scenario around the height y. Dots lie on several lines, so that equal times
// are seen as many.
func drawTimes(p *svg.Picture, s *FailoverTimes, y float64) {
	p.Text("", "end", pictureAxis.Left-12, y+4, s.Title)
	for i, took := range s.Times {
		fmt.Fprintf(p, `<circle class="teal" cx="%.1f" cy="%.1f" r="2.5" fill-opacity="0.35"/>`+"\n", pictureAxis.At(took), y-6+float64(i%5)*3)
	}
	bar := func(class string, at float64) {
		if at > 0 {
			p.Line(class, pictureAxis.At(at), y-10, pictureAxis.At(at), y+10)
		}
	}
	bar("ink wide", s.P50)
	bar("red wide dashed", s.P99Max)
}
