package demo

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/isotone/isotone/internal/check/svg"
)

// Sizes of the picture in pixels.
const (
	pictureWidth  = 900
	pictureHeight = 402
	chartLeft     = 64
	chartRight    = 876
	chartTop      = 88
	chartBottom   = 196
	panelTop      = 266
	panelBottom   = 346
	panelGap      = 14
	panelsMax     = 5
)

// panelBefore is how many milliseconds before a kill a panel shows, and panelAfter how many after it:
// the first of these that has room for the longest gap and panelRest more, or else the last.
const (
	panelBefore = 10
	panelRest   = 20
)

var panelAfter = []int{40, 80, aroundAfter}

// animationSeconds is how long the picture takes to appear, if the run took that long or longer.
const animationSeconds = 8.0

// pictureRules are for what only this picture has. What moves ends in its normal state, so that programs
// without animations, and readers who want none, see the whole picture at once.
const pictureRules = `.bold { font-weight: 600 }
.gap { fill-opacity: 0.14 }
.cover { transform: scaleX(0); transform-origin: %dpx 0; animation: uncover %.1fs linear }
.late { animation: appear 0.4s ease-out backwards }
@keyframes uncover { from { transform: scaleX(1) } }
@keyframes appear { from { opacity: 0 } }
@media (prefers-reduced-motion: reduce) { .cover, .late { animation: none } }
@media (prefers-color-scheme: dark) { .gap { fill-opacity: 0.25 } }
`

// leaderColours are those of the nodes, and that of none first.
var leaderColours = [Nodes + 1]string{"muted", "teal", "purple", "orange"}

// picture is an SVG that is being drawn.
type picture struct {
	svg.Picture
	r *Result
	// axis is that of the chart, in seconds, and took how long the chart takes to appear.
	axis svg.Axis
	took float64
}

// Picture returns the run as SVG: answers over time in the colour of the leader, and around the first
// five kills the answers in each millisecond. It appears from left to right.
func (r *Result) Picture() string {
	whole := float64(len(r.Columns)*r.ColumnMS) / 1000
	p := &picture{r: r, axis: svg.Axis{Left: chartLeft, Right: chartRight, To: whole}, took: min(whole, animationSeconds)}
	p.Title(r.headline(), fmt.Sprintf("Answers a second to %d clients, in columns of %d ms. The colour says which node leads.", r.Clients, r.ColumnMS))
	p.chart()
	if len(r.Kills) > 0 {
		p.panels()
	}
	p.Text("small", "start", 24, pictureHeight-14, r.verdict())
	p.Text("small", "end", chartRight, pictureHeight-14, fmt.Sprintf("isotone demo failover, %s, %d CPUs", r.At.Format("2006-01-02"), r.CPUs))
	return p.SVG(pictureWidth, pictureHeight, r.headline()+". "+r.verdict(), fmt.Sprintf(pictureRules, chartRight+1, p.took))
}

// headline says what was done and how that ended.
func (r *Result) headline() string {
	what := map[How]string{HowStop: "stopped", HowDrain: "drained"}[r.How]
	if what == "" {
		what = "killed"
	}
	leaders := "leaders"
	if len(r.Kills) == 1 {
		leaders = "leader"
	}
	s := fmt.Sprintf("%d %s %s in %.0f s: %d failed calls", len(r.Kills), leaders, what, r.Seconds, r.Failed)
	if gaps := r.gaps(); len(gaps) > 0 {
		s += fmt.Sprintf(", at most %s without an answer after one", gapText(slices.Max(gaps)))
	}
	return s
}

func (r *Result) verdict() string {
	if r.Violations > 0 {
		return fmt.Sprintf("%d of %d answers were wrong.", r.Violations, r.Checked)
	}
	return fmt.Sprintf("%d answers checked: all are unique and in real-time order.", r.Checked)
}

// chart draws the whole run.
func (p *picture) chart() {
	var rates []float64
	var leaders []uint64
	for _, c := range p.r.Columns {
		rates = append(rates, float64(c.Answers)*1000/float64(p.r.ColumnMS))
		leaders = append(leaders, c.Leader)
	}
	top := svg.Top(slices.Max(rates))
	for _, mark := range []float64{0, top / 2, top} {
		y := chartBottom - mark/top*(chartBottom-chartTop)
		p.Line("grid", chartLeft, y, chartRight, y)
		p.Text("small", "end", chartLeft-8, y+4, fmt.Sprintf("%g", mark))
	}
	p.bars(box{chartLeft, chartRight, chartTop, chartBottom}, rates, leaders, top)
	step := math.Ceil(p.axis.To / 15)
	for at := 0.0; at <= p.axis.To; at += step {
		p.Text("small", "middle", p.axis.At(at), chartBottom+16, fmt.Sprintf("%g", at))
	}
	p.Text("small", "end", chartRight, chartBottom+32, "seconds")
	for _, k := range p.r.Kills {
		x := p.axis.At(k.AtS)
		p.Line("red dashed", x, chartTop-8, x, chartBottom)
		p.Text("red bold", "middle", x, chartTop-12, "✗ "+gapText(k.GapMS))
	}
	p.Rect("page cover", chartLeft+1, chartTop-26, chartRight-chartLeft, chartBottom-chartTop+26, "")
}

// box is a rectangle in pixels.
type box struct{ left, right, top, bottom float64 }

// bars draws values in a box, as one path for each leader.
func (p *picture) bars(b box, values []float64, leaders []uint64, top float64) {
	width := (b.right - b.left) / float64(len(values))
	paths := map[uint64]*strings.Builder{}
	for i, v := range values {
		if v == 0 {
			continue
		}
		if paths[leaders[i]] == nil {
			paths[leaders[i]] = new(strings.Builder)
		}
		height := min(v/top, 1) * (b.bottom - b.top)
		fmt.Fprintf(paths[leaders[i]], "M%.2f %.1fv%.1fh%.2fv%.1fz", b.left+float64(i)*width, b.bottom, -height, width*0.9, height)
	}
	for leader, colour := range leaderColours {
		if path := paths[uint64(leader)]; path != nil {
			fmt.Fprintf(p, `<path class="%s" d="%s"/>`+"\n", colour, path)
		}
	}
}

// panels draws what surrounds each kill.
func (p *picture) panels() {
	var after int
	for _, after = range panelAfter {
		if slices.Max(p.r.gaps())+panelRest <= float64(after) {
			break
		}
	}
	p.Text("small", "start", 24, panelTop-22, fmt.Sprintf("Answers in each millisecond, from %d ms before a leader ends until %d ms after it; red: no client had an answer.", panelBefore, after))
	most := 1.0
	shown := p.r.Kills[:min(len(p.r.Kills), panelsMax)]
	for _, k := range shown {
		for _, n := range k.Around {
			most = max(most, float64(n))
		}
	}
	width := (float64(chartRight) - 24 - panelGap*(panelsMax-1)) / panelsMax
	for i, k := range shown {
		left := 24 + float64(i)*(width+panelGap)
		fmt.Fprintf(p, `<g class="late" style="animation-delay:%.2fs">`+"\n", k.AtS/p.axis.To*p.took)
		p.panel(box{left, left + width, panelTop, panelBottom}, k, after, most)
		p.WriteString("</g>\n")
	}
}

// panel draws one of them.
func (p *picture) panel(b box, k Kill, after int, most float64) {
	axis := svg.Axis{Left: b.left, Right: b.right, From: -panelBefore, To: float64(after)}
	gapFrom, gapTo, later := k.silence(after)
	values := make([]float64, panelBefore+after)
	leaders := make([]uint64, panelBefore+after)
	for ms := range values {
		if i := ms - panelBefore + k.AroundMS; i >= 0 && i < len(k.Around) {
			values[ms] = float64(k.Around[i])
		}
		leaders[ms] = k.Node
		if float64(ms-panelBefore) > (gapFrom+gapTo)/2 {
			leaders[ms] = k.Successor
		}
	}
	from, to := axis.At(gapFrom), axis.At(gapTo)
	p.Rect("red gap", from, b.top, to-from, b.bottom-b.top, "")
	p.bars(b, values, leaders, most)
	p.Line("grid", b.left, b.bottom, b.right, b.bottom)
	p.Line("red dashed", axis.At(0), b.top, axis.At(0), b.bottom)
	if later {
		p.Text("", "start", b.left, b.bottom+16, fmt.Sprintf("✗ %s, %.1f s later", gapText(k.GapMS), k.GapAtS-k.AtS))
		return
	}
	p.Text("", "start", b.left, b.bottom+16, "✗ "+gapText(k.GapMS))
	who := fmt.Sprintf("node %d → %d", k.Node, k.Successor)
	if k.Successor == 0 {
		who = fmt.Sprintf("node %d → none", k.Node)
	}
	p.Text("small", "end", b.right, b.bottom+16, who)
}

// silence returns from when until when no client had an answer, in milliseconds from the kill. If the
// longest such time is later than the given number of milliseconds, it is the longest before that.
func (k *Kill) silence(after int) (from, to float64, later bool) {
	if start := (k.GapAtS - k.AtS) * 1000; start < float64(after) {
		return start, start + k.GapMS, false
	}
	begun := 0
	for i, n := range k.Around[:min(len(k.Around), k.AroundMS+after)] {
		if n != 0 || i < k.AroundMS {
			begun = i + 1
		} else if float64(i+1-begun) > to-from {
			from, to = float64(begun-k.AroundMS), float64(i+1-k.AroundMS)
		}
	}
	return from, to, true
}
