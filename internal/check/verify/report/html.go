package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"regexp"
	"strings"

	"github.com/isotone/isotone/internal/check/bench"
	"github.com/isotone/isotone/internal/check/svg"
	"github.com/isotone/isotone/internal/check/verify"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
)

var pageTemplate = template.Must(template.New("page").Parse(pageHTML))

// anomaliesOpen is how many anomalies are shown without a click.
const anomaliesOpen = 3

// A run of more than partsFrom columns is shown in parts as well, of partColumns columns or, if these were more than
// partsMax, of more.
const (
	partsFrom   = 1200
	partColumns = 360
	partsMax    = 12
)

// page is the data for page.html.
type page struct {
	CSS            template.CSS
	Title, About   string
	Class, Mark    string // of the verdict
	Verdict, More  string
	Orders         []pageOrder
	Limits         []string
	Anomalies      []pageAnomaly // the first of them
	MoreAnomalies  []pageAnomaly
	AnomaliesNote  string
	Figures        []pageRow
	Chart          template.HTML
	Parts          []pagePart
	Kinds          []pageKind
	Faults         []pageFault
	FaultsNote     string
	Errors, Repeat []pageRow
}

type pageRow struct{ Name, Value string }

type pageOrder struct{ Name, Meaning, Promised, Outcome, Class, Violations, Unverified string }

type pageAnomaly struct {
	Number                int
	Title, Text, Promised string
	Meanwhile             string
	Earlier, Later        string
	Picture               template.HTML
}

type pagePart struct {
	Title string
	Chart template.HTML
}

type pageKind struct{ Name, Count, Median, Worst, At string }

type pageFault struct {
	At, Fault, Lasted, Answers, Failed, Silence string
	Worst                                       bool
}

// HTML writes a page about a run. It is one file that loads no other, has no script, and is well-formed XML.
func HTML(w io.Writer, result *verify.Result) error {
	r := shown(result)
	p := page{
		CSS:    template.CSS(svg.Style + pageCSS),
		Title:  strings.TrimSpace("isotone verify: " + r.System),
		About:  r.about(),
		Limits: r.limits(),
	}
	verdict, more := r.headline()
	p.Verdict, p.More = together(verdict), together(strings.Join(more, " "))
	p.Class, p.Mark = r.mark()
	r.pageOrders(&p)
	r.pageAnomalies(&p)
	r.pageRun(&p)
	r.pageFaults(&p)
	for _, e := range r.Errors {
		p.Errors = append(p.Errors, pageRow{bench.Group(e.Count), e.Message})
	}
	for _, pair := range r.repeat() {
		p.Repeat = append(p.Repeat, pageRow{pair[0], pair[1]})
	}
	return pageTemplate.Execute(w, p)
}

// about says in a line what was run.
func (r run) about() string {
	parts := []string{strings.TrimSpace(r.System + " " + r.Version), count(len(r.Nodes), "node"), count(r.Clients, "client"), span(r.Seconds)}
	if !r.At.IsZero() {
		parts = append(parts, r.At.UTC().Format("2006-01-02 15:04 UTC"))
	}
	return strings.TrimPrefix(strings.Join(parts, " · "), " · ")
}

// mark returns the class and the sign of the verdict.
func (r run) mark() (class, mark string) {
	switch {
	case r.Broken():
		return "bad", "✗"
	case r.Answers == 0 || r.Held() == "":
		return "none", "–"
	}
	return "good", "✓"
}

// apart is a blank at which a number, or a number and its unit, would be torn apart.
var apart = regexp.MustCompile(`(\d) (\d{3}|ms|µs|s)\b`)

// together returns text in which numbers and their units stay in one line: with no-break spaces, and word joiners.
func together(text string) string {
	for range 2 { // 1 234 567 is found in two goes, as matches do not overlap
		text = apart.ReplaceAllString(text, "$1\u00a0$2")
	}
	return strings.ReplaceAll(text, "…", "…\u2060")
}

func (r run) pageOrders(p *page) {
	for _, v := range r.verdicts() {
		row := pageOrder{Name: names[v.Order], Meaning: meanings[v.Order], Promised: v.promised, Outcome: v.outcome,
			Violations: bench.Group(v.Violations), Unverified: bench.Group(v.Unverified)}
		if v.Violations > 0 && v.Promised {
			row.Class = "red"
		}
		p.Orders = append(p.Orders, row)
	}
}

func (r run) pageAnomalies(p *page) {
	var all []pageAnomaly
	for i := range r.Anomalies {
		a := &r.Anomalies[i]
		one := pageAnomaly{Number: i + 1, Title: names[a.Order], Text: together(r.sentence(a)), Meanwhile: together(r.meanwhile(a)),
			Picture: template.HTML(r.timeline(a)), Earlier: r.record(&a.Earlier), Later: r.record(&a.Later)}
		if !r.promised(a.Order) {
			one.Promised = ", which is not promised"
		}
		all = append(all, one)
	}
	open := min(len(all), anomaliesOpen)
	p.Anomalies, p.MoreAnomalies = all[:open], all[open:]
	switch violations := r.wrongs() - r.Malformed; {
	case violations == 0 && r.Malformed == 0:
		p.AnomaliesNote = "None."
	case len(all) == 0 && violations > 0:
		p.AnomaliesNote = fmt.Sprintf("Of %s nothing was recorded.", count(violations, "violation"))
	case uint64(len(all)) < violations:
		p.AnomaliesNote = fmt.Sprintf("The first %s of %s. Those that follow the first may be its consequences.", bench.Group(len(all)), bench.Group(violations))
	}
	if r.Malformed > 0 {
		p.AnomaliesNote += fmt.Sprintf(" %s had no number at all; see the errors.", count(r.Malformed, "answer"))
	}
}

func (r run) pageRun(p *page) {
	p.Figures = []pageRow{{"answers", bench.Group(r.Answers)}}
	if r.Numbers > 0 {
		p.Figures = append(p.Figures, pageRow{"numbers", bench.Group(r.Numbers)})
	}
	p.Figures = append(p.Figures, []pageRow{
		{"failed calls", bench.Group(r.Failed)},
		{"latency p50", millis(r.P50MS)}, {"p99", millis(r.P99MS)}, {"max", millis(r.MaxMS)}, {"longest silence", millis(r.LongestMS)},
	}...)
	n := len(r.Columns)
	if n == 0 {
		return
	}
	p.Chart = template.HTML(r.charts(0, n))
	if n <= partsFrom {
		return
	}
	each := max(partColumns, (n+partsMax-1)/partsMax)
	for from := 0; from < n; from += each {
		to := min(from+each, n)
		second := func(i int) string { return bench.Group(float64(i*r.ColumnMS) / 1000) }
		p.Parts = append(p.Parts, pagePart{fmt.Sprintf("%s s to %s s", second(from), second(to)), template.HTML(r.charts(from, to))})
	}
}

func (r run) pageFaults(p *page) {
	for _, k := range r.kinds() {
		p.Kinds = append(p.Kinds, pageKind{k.name, bench.Group(k.faults), millis(k.median), millis(k.worst), fmt.Sprintf("%s, %.1f s", r.hit(k.of), k.of.AtS)})
	}
	worst := r.worst()
	for _, f := range r.listed(faultsMax) {
		p.Faults = append(p.Faults, pageFault{At: fmt.Sprintf("%.1f", f.AtS), Fault: r.noted(f), Lasted: span(r.end(f) - f.AtS),
			Answers: bench.Group(f.Answers), Failed: bench.Group(f.Failed), Silence: millis(f.SilentMS), Worst: f == worst})
	}
	if len(r.Faults) > faultsMax {
		p.FaultsNote = fmt.Sprintf("The %d of %s with the longest silences.", faultsMax, count(len(r.Faults), "fault"))
	}
}
