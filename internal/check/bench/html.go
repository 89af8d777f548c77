package bench

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"strings"
)

// The parts of the page; for their origin see report/README.md.
var (
	//go:embed report/page.html
	pageHTML string
	//go:embed report/page.css
	pageCSS string
	//go:embed report/page.js
	pageJS string
	//go:embed report/uplot.min.js
	libraryJS string
	//go:embed report/uplot.min.css
	libraryCSS string
	//go:embed report/uplot.LICENSE
	libraryLicense string
)

var pageTemplate = template.Must(template.New("page").Parse(pageHTML))

// page is the data for page.html. Only the plots need JavaScript.
type page struct {
	Title           string
	CSS, LibraryCSS template.CSS
	Script, Library template.JS
	Data            template.JS
	Runs            []pageRun
	Tiles           []tile
	Comparison      []comparison
	Differences     string
	Tables          []pageTable
	Note            string
}

type pageRun struct {
	Label, Load, Began, Where string
	Judgement, Mark, Verdict  string // Judgement is a class: ok, violated or none
	First                     string
}

type tile struct{ Name, Value, Unit, Note, Class string }

type pageTable struct {
	Title string
	Rows  []pageRow
}

type pageRow struct{ Name, Value string }

// WriteHTML writes a page about one result, or a comparison of two. The page is a single
// file that loads no other.
func WriteHTML(w io.Writer, results ...*Result) error {
	data, err := json.Marshal(results) // escapes <, > and &
	if err != nil {
		return err
	}
	p := page{
		Title:      "isotone bench",
		CSS:        template.CSS(pageCSS),
		LibraryCSS: template.CSS(libraryCSS),
		Script:     template.JS(pageJS),
		Library:    template.JS("/*! uPlot\n" + libraryLicense + "*/\n" + libraryJS),
		Data:       template.JS(data),
	}
	for i, r := range results {
		run := pageRun{
			Load: r.Settings.String(), Began: r.Began.Format("2006-01-02 15:04:05 UTC"), Where: r.where(),
			Judgement: "ok", Mark: "✓", Verdict: capital(r.Verdict.String()), First: r.Verdict.First,
		}
		switch {
		case r.Verdict.Made:
			run.Judgement, run.Mark = "none", "–"
		case !r.Verdict.OK:
			run.Judgement, run.Mark = "violated", "!"
		}
		if len(results) > 1 {
			run.Label = string(rune('A' + i))
		}
		p.Runs = append(p.Runs, run)
		p.Tables = append(p.Tables, tables(r, run.Label)...)
	}
	p.Note = "Latency counts from when a request was sent."
	if results[0].Settings.Loop == "open" {
		p.Note = "Latency counts from when a request was due, whether or not it could be sent then."
	}
	p.Note += " The shaded area is the longest time without an answer. Drag in a plot to zoom, double-click to reset."
	if len(results) == 2 {
		p.Title = "isotone bench: A and B"
		p.Comparison = compareResults(results[0], results[1])
		p.Differences = strings.Join(differences(results[0], results[1]), ", ")
	} else {
		p.Tiles = tiles(results[0])
	}
	return pageTemplate.Execute(w, p)
}

func (r *Result) where() string {
	e := &r.Environment
	return fmt.Sprintf("isotone %s, %s/%s, %s, %s, %s", r.Isotone, e.OS, e.Arch, plural(e.CPUs, "CPU"), plural(e.Threads, "thread"), e.Go)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func tiles(r *Result) []tile {
	o := &r.Result
	list := []tile{{Name: "answers a second", Value: Group(o.AnswersPerS), Note: fmt.Sprintf("%s in %.1f s", Group(o.Answers), o.Elapsed)}}
	if r.Settings.Count > 1 {
		list = append(list, tile{Name: "timestamps a second", Value: Group(o.TimestampsPerS)})
	}
	for _, t := range []struct {
		name  string
		value float64
	}{{"p50", o.Latency.P50}, {"p99", o.Latency.P99}, {"p99.9", o.Latency.P999}, {"max", o.Latency.Max}} {
		value, unit, _ := strings.Cut(Micros(t.value).String(), " ")
		list = append(list, tile{Name: t.name, Value: value, Unit: unit})
	}
	value, unit, _ := strings.Cut(Micros(float64(o.LongestGap.Length)*1e6).String(), " ")
	list = append(list, tile{Name: "longest gap", Value: value, Unit: unit, Note: fmt.Sprintf("from %.1f s", o.LongestGap.At)})
	errors := tile{Name: "errors", Value: Group(o.ErrorsTotal)}
	if o.ErrorsTotal > 0 {
		errors.Class, errors.Note = "warn", o.Errors.String()
	}
	return append(list, errors)
}

func tables(r *Result, label string) []pageTable {
	o, s := &r.Result, &r.Settings
	if label != "" {
		label += ": "
	}
	numbers := pageTable{Title: capital(label + "latency")}
	for _, row := range []struct {
		name  string
		value float64
	}{
		{"min", o.Latency.Min}, {"mean", o.Latency.Mean}, {"p50", o.Latency.P50}, {"p90", o.Latency.P90},
		{"p99", o.Latency.P99}, {"p99.9", o.Latency.P999}, {"max", o.Latency.Max},
	} {
		numbers.Rows = append(numbers.Rows, pageRow{row.name, Micros(row.value).String()})
	}
	if s.Loop == "open" {
		g := &o.GeneratorDelay
		numbers.Rows = append(numbers.Rows, pageRow{"of which load generator", fmt.Sprintf("p50 %s, p99 %s, max %s", Micros(g.P50), Micros(g.P99), Micros(g.Max))})
	}
	outcome := pageTable{Title: capital(label + "outcome"), Rows: []pageRow{
		{"answers", Group(o.Answers)},
		{"timestamps", Group(o.Timestamps)},
		{AnswererOf(s.Timeline), leaderText(o)},
	}}
	for _, code := range o.Errors.codes() {
		outcome.Rows = append(outcome.Rows, pageRow{"error " + code, Group(o.Errors[code])})
	}
	outcome.Rows = append(outcome.Rows,
		pageRow{"checked", Group(r.Verdict.Checked) + " answers"},
		pageRow{"not verified as unique", Group(r.Verdict.Unverified)},
		pageRow{"highest timestamp", r.Verdict.Highest})
	settings := pageTable{Title: capital(label + "settings"), Rows: []pageRow{
		{"targets", strings.Join(s.Targets, ", ")},
		{"protocol", s.Protocol},
		{"connections", fmt.Sprintf("%d × %d", s.Connections, s.Pipeline)},
		{"timestamps each", Group(s.Count)},
		{"mode", s.Mode},
		{"duration", fmt.Sprintf("%v s, after %v s of warm-up", s.Duration, s.Warmup)},
		{"timeout", fmt.Sprintf("%v s", s.Timeout)},
	}}
	if s.Timeline != "" {
		settings.Rows = append(settings.Rows, pageRow{"timeline", s.Timeline})
	}
	if s.Loop == "open" {
		settings.Rows = append(settings.Rows, pageRow{"rate", Group(s.Rate) + " a second"}, pageRow{"backlog", Group(s.Backlog)})
	}
	return []pageTable{numbers, outcome, settings}
}
