package report

import (
	"cmp"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/isotone/isotone/internal/check/verify"
)

// lanesMax bounds the kinds of faults that have a lane in a chart. The last lane has all other kinds.
const lanesMax = 12

// lane has the faults of a kind.
type lane struct {
	name  string
	parts []stretch
}

// during returns the faults that were under way within a span of time, in the order in which they began.
func (r run) during(from, to float64) []*verify.Fault {
	var list []*verify.Fault
	for i := range r.Faults {
		if f := &r.Faults[i]; f.AtS <= to && r.end(f) >= from {
			list = append(list, f)
		}
	}
	slices.SortStableFunc(list, func(a, b *verify.Fault) int { return cmp.Compare(a.AtS, b.AtS) })
	return list
}

// stretch returns where a fault lies in the chart. It can be seen however short it is.
func (c *chart) stretch(f *verify.Fault) stretch {
	from := min(c.axis.At(f.AtS), c.axis.Right-1.5)
	return stretch{from: from, to: max(c.axis.At(c.end(f)), from+1.5), fault: f}
}

// lanes returns the kinds of faults that the chart shows.
func (c *chart) lanes() []*lane {
	var list []*lane
	for _, f := range c.during(c.axis.From, c.axis.To) {
		at := slices.IndexFunc(list, func(l *lane) bool { return l.name == f.Kind })
		switch {
		case at < 0 && len(list) < lanesMax:
			at = len(list)
			list = append(list, &lane{name: f.Kind})
		case at < 0:
			at = lanesMax - 1
			list[at].name = "others"
		}
		list[at].parts = join(list[at].parts, c.stretch(f))
	}
	return list
}

// shadedMax is the part of a chart that may be shaded: if a fault is under way nearly always, shades tell nothing.
const shadedMax = 0.7

// shade marks when faults were under way, from the top of the chart down.
func (c *chart) shade(bottom float64) {
	var all []stretch
	for _, f := range c.during(c.axis.From, c.axis.To) {
		all = join(all, c.stretch(f))
	}
	shaded := 0.0
	for _, s := range all {
		shaded += s.to - s.from
	}
	if shaded < shadedMax*(c.axis.Right-c.axis.Left) {
		c.blocks("orange shade", all, headHeight-4, bottom-headHeight+4)
	}
}

// blocks draws stretches as rectangles.
func (c *chart) blocks(class string, list []stretch, y, height float64) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(c, `<path class="%s" d="`, class)
	for _, s := range list {
		fmt.Fprintf(c, "M%.1f %gh%.1fv%gH%.1fz", s.from, y, s.to-s.from, height, s.from)
	}
	c.WriteString("\"/>\n")
}

// labelsMax is how many stretches of a lane may have labels. More of them confuse.
const labelsMax = 25

// drawLanes draws the faults above the panels, with the names of their nodes where there is room.
func (c *chart) drawLanes(lanes []*lane) {
	for _, l := range lanes {
		c.Text("small", "end", c.left-8, c.y+11, short(l.name, int((c.left-8)/letter)))
		c.blocks("orange", l.parts, c.y+3, laneHeight-6)
		for i, s := range l.parts {
			if s.fault != nil && len(l.parts) <= labelsMax {
				c.label(s.to+3, l.parts[i+1:], c.hit(s.fault))
			}
		}
		c.y += laneHeight
	}
}

// label writes a text into a lane if it ends before what comes next.
func (c *chart) label(x float64, later []stretch, text string) {
	end := c.axis.Right
	if len(later) > 0 {
		end = later[0].from
	}
	if x+letter*float64(utf8.RuneCountInString(text)) < end {
		c.Text("small", "start", x, c.y+11, text)
	}
}

// short returns a text of at most most letters.
func short(text string, most int) string {
	if letters := []rune(text); len(letters) > most {
		return string(letters[:most-1]) + "…"
	}
	return text
}
