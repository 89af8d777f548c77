package demo

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
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

// pictureStyle supports light and dark backgrounds. What moves ends in its normal state, so that
// programs without animations, and readers who want none, see the whole picture at once.
const pictureStyle = `<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.small { font-size: 11px; fill: #59636e }
.head { font-size: 15px; font-weight: 600 }
.page { fill: #ffffff }
.grid { stroke: #d1d9e0 }
.n1 { fill: #0969da } .n2 { fill: #1a7f37 } .n3 { fill: #8250df } .n0 { fill: #59636e }
.kill { stroke: #cf222e; stroke-dasharray: 3 2 }
.gap { fill: #cf222e; fill-opacity: 0.14 }
.wrong { fill: #cf222e; font-weight: 600 }
.cover { transform: scaleX(0); transform-origin: %dpx 0; animation: uncover %.1fs linear }
.late { animation: appear 0.4s ease-out backwards }
@keyframes uncover { from { transform: scaleX(1) } }
@keyframes appear { from { opacity: 0 } }
@media (prefers-reduced-motion: reduce) { .cover, .late { animation: none } }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc } .small { fill: #9198a1 } .page { fill: #0d1117 } .grid { stroke: #3d444d }
.n1 { fill: #58a6ff } .n2 { fill: #3fb950 } .n3 { fill: #bc8cff } .n0 { fill: #9198a1 }
.kill { stroke: #ff7b72 } .gap { fill: #ff7b72; fill-opacity: 0.25 } .wrong { fill: #ff7b72 }
}
</style>
`

// picture is an SVG that is being drawn.
type picture struct {
	strings.Builder
	r *Result
	// whole is the time that the chart shows, in seconds, and took how long the chart takes to appear.
	whole, took float64
}

// Picture returns the run as SVG: answers over time in the colour of the leader, and around the first
// five kills the answers in each millisecond. It appears from left to right.
func (r *Result) Picture() string {
	p := &picture{r: r, whole: float64(len(r.Columns)*r.ColumnMS) / 1000}
	p.took = min(p.whole, animationSeconds)
	fmt.Fprintf(p, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img" aria-label="%s">`+"\n",
		pictureWidth, pictureHeight, html.EscapeString(r.headline()+". "+r.verdict()))
	fmt.Fprintf(p, pictureStyle, chartRight+1, p.took)
	fmt.Fprintf(p, `<rect class="page" width="%d" height="%d" rx="6"/>`+"\n", pictureWidth, pictureHeight)
	p.text(24, 30, "head", "start", r.headline())
	p.text(24, 50, "small", "start", fmt.Sprintf("Answers a second to %d clients, in columns of %d ms. The colour says which node leads.", r.Clients, r.ColumnMS))
	p.chart()
	if len(r.Kills) > 0 {
		p.panels()
	}
	p.text(24, pictureHeight-14, "small", "start", r.verdict())
	p.text(chartRight, pictureHeight-14, "small", "end", fmt.Sprintf("isotone demo failover, %s, %d CPUs", r.At.Format("2006-01-02"), r.CPUs))
	p.WriteString("</svg>\n")
	return p.String()
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
	top := niceTop(slices.Max(rates))
	for _, mark := range []float64{0, top / 2, top} {
		y := chartBottom - mark/top*(chartBottom-chartTop)
		fmt.Fprintf(p, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%[3]f"/>`+"\n", chartLeft, chartRight, y)
		p.text(chartLeft-8, y+4, "small", "end", fmt.Sprintf("%g", mark))
	}
	p.bars(box{chartLeft, chartRight, chartTop, chartBottom}, rates, leaders, top)
	step := math.Ceil(p.whole / 15)
	for at := 0.0; at <= p.whole; at += step {
		p.text(p.at(at), chartBottom+16, "small", "middle", fmt.Sprintf("%g", at))
	}
	p.text(chartRight, chartBottom+32, "small", "end", "seconds")
	for _, k := range p.r.Kills {
		fmt.Fprintf(p, `<line class="kill" x1="%.1f" x2="%[1]f" y1="%d" y2="%d"/>`+"\n", p.at(k.AtS), chartTop-8, chartBottom)
		p.text(p.at(k.AtS), chartTop-12, "wrong", "middle", "✗ "+gapText(k.GapMS))
	}
	fmt.Fprintf(p, `<rect class="page cover" x="%d" y="%d" width="%d" height="%d"/>`+"\n", chartLeft+1, chartTop-26, chartRight-chartLeft, chartBottom-chartTop+26)
}

// at returns where a time in seconds lies in the chart.
func (p *picture) at(seconds float64) float64 {
	return chartLeft + seconds/p.whole*(chartRight-chartLeft)
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
	for leader := range uint64(p.r.Nodes + 1) {
		if path := paths[leader]; path != nil {
			fmt.Fprintf(p, `<path class="n%d" d="%s"/>`+"\n", leader, path)
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
	p.text(24, panelTop-22, "small", "start", fmt.Sprintf("Answers in each millisecond, from %d ms before a leader ends until %d ms after it; red: no client had an answer.", panelBefore, after))
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
		fmt.Fprintf(p, `<g class="late" style="animation-delay:%.2fs">`+"\n", k.AtS/p.whole*p.took)
		p.panel(box{left, left + width, panelTop, panelBottom}, k, after, most)
		p.WriteString("</g>\n")
	}
}

// panel draws one of them.
func (p *picture) panel(b box, k Kill, after int, most float64) {
	at := func(ms float64) float64 {
		return b.left + min(max(ms+panelBefore, 0), float64(panelBefore+after))/float64(panelBefore+after)*(b.right-b.left)
	}
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
	from, to := at(gapFrom), at(gapTo)
	fmt.Fprintf(p, `<rect class="gap" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`+"\n", from, b.top, to-from, b.bottom-b.top)
	p.bars(b, values, leaders, most)
	fmt.Fprintf(p, `<line class="grid" x1="%.1f" x2="%.1f" y1="%.1f" y2="%[3]f"/>`+"\n", b.left, b.right, b.bottom)
	fmt.Fprintf(p, `<line class="kill" x1="%.1f" x2="%[1]f" y1="%.1f" y2="%.1f"/>`+"\n", at(0), b.top, b.bottom)
	if later {
		p.text(b.left, b.bottom+16, "", "start", fmt.Sprintf("✗ %s, %.1f s later", gapText(k.GapMS), k.GapAtS-k.AtS))
		return
	}
	p.text(b.left, b.bottom+16, "", "start", "✗ "+gapText(k.GapMS))
	who := fmt.Sprintf("node %d → %d", k.Node, k.Successor)
	if k.Successor == 0 {
		who = fmt.Sprintf("node %d → none", k.Node)
	}
	p.text(b.right, b.bottom+16, "small", "end", who)
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

// niceTop returns a round number that is at least as large.
func niceTop(most float64) float64 {
	if most <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(most)))
	for _, factor := range []float64{1, 1.2, 1.5, 2, 3, 4, 5, 6, 8} {
		if factor*unit >= most {
			return math.Round(factor * unit)
		}
	}
	return 10 * unit
}

func (p *picture) text(x, y float64, class, anchor, text string) {
	fmt.Fprintf(p, `<text x="%.1f" y="%.1f" class="%s" text-anchor="%s">%s</text>`+"\n", x, y, class, anchor, html.EscapeString(text))
}
