package demoscale

import (
	"fmt"
	"slices"
	"strings"

	"github.com/isotone/isotone/internal/check/svg"
)

// Sizes in pixels.
const (
	actLeft   = 190 // where bars begin
	actRight  = 600 // where the longest one ends; figures are to the right of it
	actBar    = 16
	actStep   = 22
	actHead   = 58 // of title and text above the bars
	actGap    = 30 // below them
	actsTop   = 66
	actsWidth = 980
)

// rates returns what a plot needs of runs.
func rates(runs []Measured) (list []result) {
	for _, m := range runs {
		list = append(list, result{trial: trial{Name: m.Name}, Rate: m.Rate})
	}
	return list
}

// text returns the act as text: a table, bars, and what follows.
func (a *Act) text() string {
	rows := [][]string{{"", "req/s", "p50", "p99"}}
	cache := slices.ContainsFunc(a.Runs, func(m Measured) bool { return m.Cache > 0 })
	for i, head := range []string{"hits", "wall/CPU", "one dead: req/s", "errors"} {
		if []bool{cache, a.Runs[0].Log != nil, a.Runs[0].Model != nil, a.Runs[0].Model != nil}[i] {
			rows[0] = append(rows[0], head)
		}
	}
	for _, m := range a.Runs {
		row := []string{m.Name, figure(m.Rate), span(m.P50), span(m.P99)}
		if cache {
			row = append(row, fmt.Sprintf("%.1f %%", 100*m.HitRate))
		}
		if m.Log != nil {
			row = append(row, fmt.Sprintf("%.1f", m.Log.WorkersPerCore))
		}
		if m.Model != nil {
			row = append(row, figure(m.Model.Rate), fmt.Sprint(m.Model.Errors))
		}
		for len(row) < len(rows[0]) { // a run without requests in its log
			row = append(row, "–")
		}
		rows = append(rows, row)
	}
	return fmt.Sprintf("\nAct %d: %s\n%s\n\n%s\n%s\n%s\n", a.Number, a.Title, a.About, alignedTable(rows), plot(rates(a.Runs)), strings.Join(a.Says, "\n"))
}

// Picture returns all acts as SVG, with the rates as bars on a logarithmic axis for each act.
func (r *ScaleResult) Picture() string {
	p := new(svg.Picture)
	p.Title("Distribution, balance and locality: requests per second", "A logarithmic axis for each act.")
	y := float64(actsTop)
	var parts []string
	for _, a := range r.Acts {
		p.Text("head", "start", margin, y+20, fmt.Sprintf("%d. %s", a.Number, a.Title))
		p.Text("small", "start", margin, y+40, a.About)
		y += actHead
		axis := scaleOf(rates(a.Runs)).axis(actLeft, actRight)
		for _, m := range a.Runs {
			end := axis.At(m.Rate)
			p.Text("", "end", actLeft-10, y+13, m.Name)
			p.Rect("teal", actLeft, y, end-actLeft, actBar, `rx="2"`)
			p.Text("small", "start", end+8, y+13, m.figures())
			y += actStep
			parts = append(parts, fmt.Sprintf("act %d, %s: %s", a.Number, m.Name, figure(m.Rate)))
		}
		for _, line := range a.Says {
			p.Text("small", "start", margin, y+14, line)
			y += 18
		}
		y += actGap
	}
	return p.SVG(actsWidth, y, "Requests per second: "+strings.Join(parts, "; "), "")
}

// figures are those beside a bar.
func (m *Measured) figures() string {
	text := fmt.Sprintf("%s/s, p50 %s", figure(m.Rate), span(m.P50))
	if m.Cache > 0 {
		text += fmt.Sprintf(", %.0f %% hits", 100*m.HitRate)
	}
	if m.Log != nil {
		text += fmt.Sprintf(", wall/CPU %.1f", m.Log.WorkersPerCore)
	}
	if m.Model != nil {
		text += fmt.Sprintf("; one dead: %s/s, %d errors", figure(m.Model.Rate), m.Model.Errors)
	}
	return text
}
