package report

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/isotone/isotone/internal/check/svg"
	"github.com/isotone/isotone/internal/check/verify"
)

// Measures of a timeline, in pixels.
const (
	timelineMargin = 28 // room for half of a label
	callLane       = 46
	callBar        = 12
	callText       = 18 // above its bar
	faultRow       = 18
	wide           = 7.2 // about the width of a letter
)

// timelineFaults bounds the faults that a timeline names.
const timelineFaults = 4

// timeline is the picture of an anomaly.
type timeline struct {
	svg.Picture
	run
	form
	*verify.Anomaly
	axis svg.Axis // in seconds
}

// timeline returns the picture of an anomaly, in all forms: its two calls as bars, one below the other, and the faults
// that were under way. It is "" if nothing is known of when that was.
func (r run) timeline(a *verify.Anomaly) string {
	if !a.Later.Known {
		return ""
	}
	from, to := window(a)
	margin := max((to-from)/12, 1e-6)
	axis := svg.Axis{Left: timelineMargin, From: from - margin, To: to + margin}
	var b strings.Builder
	for _, f := range forms {
		axis.Right = f.width - timelineMargin
		t := &timeline{run: r, form: f, Anomaly: a, axis: axis}
		b.WriteString(t.draw())
	}
	return b.String()
}

// draw returns the picture.
func (t *timeline) draw() string {
	faults := t.during(t.axis.From, t.axis.To)
	more := max(len(faults)-timelineFaults, 0)
	faults = faults[:len(faults)-more]
	top := float64(faultRow * len(faults))
	bottom := top + 2*callLane + 8
	t.Line("grid", t.axis.Left, bottom, t.axis.Right, bottom)
	t.Marks(t.axis, bottom, bottom+5, "seconds", svg.Ticks(t.axis.From, t.axis.To, int(t.width/110))...)
	for i, f := range faults {
		t.fault(f, float64(i*faultRow), bottom)
	}
	if more > 0 {
		t.Text("small", "start", t.axis.Left, bottom+38, fmt.Sprintf("and %s more", count(more, "fault")))
	}
	if t.Earlier.Known {
		if t.Order != verify.Unique {
			t.Line("gray dashed", t.axis.At(t.Earlier.EndedS), top+callText, t.axis.At(t.Earlier.EndedS), bottom)
		}
		t.call("teal", &t.Earlier, &t.Later, top)
	} else {
		t.Text("small", "start", t.axis.Left, top+callText, fmt.Sprintf("%s: a call that is not known, long before", elided(t.Earlier.First, t.Later.First)))
	}
	t.call("red", &t.Later, &t.Earlier, top+callLane)
	return t.Inline("timeline "+t.class, t.width, bottom+42, t.sentence(t.Anomaly))
}

// fault shades the time in which a fault was under way, below its name.
func (t *timeline) fault(f *verify.Fault, y, bottom float64) {
	from, to := t.axis.At(f.AtS), t.axis.At(t.end(f))
	t.Rect("orange shade", from, y, max(to-from, 1.5), bottom-y, "")
	t.place("small", from+4, y+13, t.run.fault(f), letter)
}

// call draws a call as a bar, and above it who made it and what came.
func (t *timeline) call(class string, c, other *verify.Call, y float64) {
	from, to := t.axis.At(c.BeganS), t.axis.At(c.EndedS)
	number := elided(c.First, other.First)
	switch {
	case t.Order != verify.Intervals:
	case c == &t.Earlier:
		number = "at least " + elided(c.First, latest(other))
	default:
		number = "at most " + elided(latest(c), other.First)
	}
	text := fmt.Sprintf("client %d asked %s, got %s", c.Client, t.node(c.Node), number)
	if c.Count > 1 && t.Order != verify.Intervals {
		text += fmt.Sprintf(" and %s more", count(c.Count-1, "number"))
	}
	if !t.fits(text, wide) {
		text = fmt.Sprintf("client %d → %s: %s", c.Client, t.node(c.Node), number)
	}
	t.place("", from, y+callText, text, wide)
	t.Rect(class, from, y+callText+6, max(to-from, 3), callBar, `rx="2"`)
}

// place writes a text that begins at x if it fits there, or else ends where the axis ends.
func (t *timeline) place(class string, x, y float64, text string, letter float64) {
	text = short(text, int((t.axis.Right-t.axis.Left)/letter))
	if x+letter*float64(utf8.RuneCountInString(text)) > t.axis.Right {
		t.Text(class, "end", t.axis.Right, y, text)
		return
	}
	t.Text(class, "start", x, y, text)
}

// fits reports whether a text is not longer than the axis.
func (t *timeline) fits(text string, letter float64) bool {
	return letter*float64(utf8.RuneCountInString(text)) <= t.axis.Right-t.axis.Left
}

// digitsMax is how many digits of a number a timeline has.
const digitsMax = 16

// elided returns the digits of a long number around the first in which it differs from another of the same length.
func elided(number, other string) string {
	if len(number) <= digitsMax || len(number) != len(other) {
		return number
	}
	same := 0
	for same < len(number) && number[same] == other[same] {
		same++
	}
	from := min(max(same-digitsMax/2, 0), len(number)-digitsMax)
	text := number[from:]
	if from > 0 {
		text = "…" + text
	}
	if len(number)-from > digitsMax {
		text = text[:len(text)-(len(number)-from-digitsMax)] + "…"
	}
	return text
}
