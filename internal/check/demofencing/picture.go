package demofencing

import (
	"fmt"

	"github.com/isotone/isotone/internal/check/svg"
)

// Sizes of the picture in pixels, and where its rows begin.
const (
	pictureWidth  = 900
	pictureHeight = 378
	left          = 84
	right         = 876
	barHeight     = 22
	rowA          = 106
	rowB          = 160
	rowFenced     = 214
	rowPlain      = 268
	bottom        = 312
)

// colours are those of the holders, in their own rows and in those of the keys.
var colours = map[string]string{"A": "teal", "B": "purple"}

// picture is an SVG of a round that is being drawn.
type picture struct {
	svg.Picture
	axis svg.Axis
	end  float64 // of the time that is shown, in seconds
}

// Picture returns the first round as SVG: what the holders do, and whose value the keys have.
func (r *Result) Picture() string {
	const title = "A lock needs a token: a holder that was paused writes late"
	p := &picture{}
	p.Title(title, "Teal: holder A, purple: holder B. The two lower rows show whose value is in Redis, with a fence that compares tokens and without.")
	if len(r.Result.Rounds) > 0 {
		p.draw(r.Result.Rounds[0])
	}
	p.Text("small", "start", 24, pictureHeight-14, r.verdict())
	p.Text("small", "end", right, pictureHeight-14, fmt.Sprintf("isotone demo fencing, %s, %d CPUs", r.Began.Format("2006-01-02"), r.Environment.CPUs))
	return p.SVG(pictureWidth, pictureHeight, title+". "+r.verdict(), "")
}

// draw draws a round that is done.
func (p *picture) draw(r *Round) {
	late, granted, paused, resumed := r.last("A", Wrote), r.last("B", Locked).AtS, r.last("A", Paused).AtS, r.last("A", Resumed).AtS
	p.end = late.AtS * 1.1 // room for what the keys have in the end
	p.axis = svg.Axis{Left: left, Right: right, To: p.end}
	p.Marks(p.axis, rowA-14, bottom, "seconds", svg.Ticks(0, p.end, 10)...)
	p.holders(r, paused, granted, resumed)
	p.key("fenced key", rowFenced, r, r.Fenced, late)
	p.key("plain key", rowPlain, r, r.Plain, late)
	for _, mark := range []struct {
		at, to float64
		text   string
	}{{paused, rowA, "SIGSTOP"}, {granted, rowB, "A's session has ended"}, {resumed, rowA, "SIGCONT"}} {
		x := p.axis.At(mark.at)
		p.Line("gray dashed", x, rowA-14, x, mark.to+barHeight)
		p.Text("small", "middle", x, rowA-20, mark.text)
	}
}

// holders draws what the holders do.
func (p *picture) holders(r *Round, paused, granted, resumed float64) {
	a, b := r.last("A", Locked), r.last("B", Locked)
	p.Text("", "end", left-8, rowA+16, "A")
	p.Text("", "end", left-8, rowB+16, "B")
	p.bar("teal", a.AtS, paused, rowA)
	p.bar("faint", paused, resumed, rowA)
	p.bar("teal", resumed, p.end, rowA)
	p.Text("small", "start", p.axis.At(paused)+8, rowA+15, "paused; as far as it knows, it holds the lock")
	p.Text("small", "start", p.axis.At(a.AtS), rowA+barHeight+14, fmt.Sprintf("token %d", a.Token))
	waits := r.last("B", Waited).AtS
	p.Line("purple wide dashed", p.axis.At(waits), rowB+barHeight/2, p.axis.At(granted), rowB+barHeight/2)
	p.Text("small", "start", p.axis.At(waits), rowB+3, "waits for the lock")
	p.bar("purple", granted, p.end, rowB)
	p.Text("small", "end", right, rowB+barHeight+14, fmt.Sprintf("token %d", b.Token))
}

// key draws whose value a key has, and what it has in the end.
func (p *picture) key(name string, y float64, r *Round, value string, late Event) {
	p.Text("", "end", left-8, y+16, name)
	for _, e := range r.Events {
		if e.What == Wrote && (e.AtS < late.AtS || value == valueLate) {
			p.bar(colours[e.Holder], e.AtS, p.end, y)
		}
	}
	text := fmt.Sprintf("✗ refused: token %d", late.Token)
	if value == valueLate {
		text = "B's work is lost"
	}
	x := p.axis.At(late.AtS)
	p.Line("red wide", x, y-4, x, y+barHeight+4)
	p.Text("red", "end", right, y+barHeight+16, text)
}

// bar draws a bar of a row.
func (p *picture) bar(class string, from, to, y float64) {
	p.Rect(class, p.axis.At(from), y, p.axis.At(to)-p.axis.At(from), barHeight, `rx="2"`)
}
