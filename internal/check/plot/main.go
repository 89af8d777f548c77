// Command plot draws the plots of the documentation from the tables that stand in it, so both have
// the same numbers. Without arguments it writes docs/images/plot-*.svg; the test fails when they differ.
//
//	go run ./internal/check/plot
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// plot is one picture: bars in groups, one group for each row of a table, or for each value of a column.
type plot struct {
	name, title string
	unit        string // behind every value, with its space
	file        string // from the root of the repository
	header      string // how the table's first line begins
	log         bool   // a logarithmic axis
	group       string // the column whose value names the group; "" for the row's own label
	series      []series
	rows        func(label string) bool // which rows count; nil for all
}

// series is one bar of each group.
type series struct {
	name   string // as the legend has it
	column string
	row    string // with a group: which rows it takes its values from
	class  string // its colour
}

// plots are all plots, by file name.
var plots = []plot{
	{
		name: "plot-http", title: "HTTP requests per second, by connections", file: "docs/performance.md", header: "| HTTP/1.1 (`wrk -t1`) |", group: "connections",
		series: []series{{"nginx, a static file", "req/s", "nginx", "gray"}, {"timestamps, quorum mode", "req/s", "quorum", "teal"}, {"timestamps, lease mode", "req/s", "lease", "purple"}},
	},
	{
		name: "plot-failover", title: "Time without an answer when the leader ends", unit: " ms", file: "docs/failover.md", header: "| leader | load | events | p50, ms |", log: true,
		series: []series{{"median", "p50, ms", "", "teal"}, {"99th percentile", "p99", "", "purple"}},
		rows:   func(label string) bool { return !strings.Contains(label, "debug") },
	},
	{
		name: "plot-client", title: "The Go client: timestamps per second, by goroutines", file: "docs/clients.md", header: "| goroutines | timestamps/s |", log: true,
		series: []series{{"timestamps per second", "timestamps/s", "", "teal"}},
	},
	{
		name: "plot-pd", title: "Timestamps per second beside TiKV's PD, by callers", file: "adapters/tikv/README.md", header: "| callers | PD |", log: true,
		series: []series{{"PD", "PD", "", "gray"}, {"isotone-pd, quorum", "isotone-pd, quorum", "", "purple"}, {"Isotone's client, quorum", "Isotone's client, quorum", "", "teal"}},
	},
}

func main() {
	for _, p := range plots {
		text, err := p.draw(".")
		if err == nil {
			err = os.WriteFile(p.picture("."), []byte(text), 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// picture returns the file of the picture.
func (p *plot) picture(root string) string {
	return filepath.Join(root, "docs", "images", p.name+".svg")
}

// bars is one group.
type bars struct {
	label  string
	values []float64 // by series; 0 if there is none
	texts  []string  // as the table has them
}

// table returns the cells of the first table of a text whose first line begins with header.
func table(text, header string) [][]string {
	_, rest, found := strings.Cut(text, "\n"+header)
	if !found {
		return nil
	}
	var cells [][]string
	for i, line := range strings.Split(header+rest, "\n") {
		if !strings.HasPrefix(line, "|") {
			break
		}
		if i == 1 {
			continue // the rule below the head
		}
		var row []string
		for _, cell := range strings.Split(strings.Trim(line, "|"), "|") {
			row = append(row, strings.TrimSpace(cell))
		}
		cells = append(cells, row)
	}
	return cells
}

// read returns the groups in the order of the table.
func (p *plot) read(root string) ([]bars, error) {
	text, err := os.ReadFile(filepath.Join(root, p.file))
	if err != nil {
		return nil, err
	}
	cells := table(string(text), p.header)
	if len(cells) < 2 {
		return nil, fmt.Errorf("%s has no table that begins with %q", p.file, p.header)
	}
	columns := map[string]int{}
	for i, name := range cells[0] {
		columns[name] = i
	}
	var groups []bars
	for _, row := range cells[1:] {
		label := strings.ReplaceAll(row[0], "`", "")
		if p.rows != nil && !p.rows(label) {
			continue
		}
		if p.group != "" {
			label = row[columns[p.group]]
		}
		if len(groups) == 0 || groups[len(groups)-1].label != label {
			groups = append(groups, bars{label, make([]float64, len(p.series)), make([]string, len(p.series))})
		}
		g := &groups[len(groups)-1]
		for i, s := range p.series {
			column, ok := columns[s.column]
			if !ok {
				return nil, fmt.Errorf("%s: the table %q has no column %q", p.file, p.header, s.column)
			}
			if s.row != "" && !strings.HasPrefix(row[0], s.row) {
				continue
			}
			value, err := strconv.ParseFloat(strings.ReplaceAll(row[column], ",", ""), 64)
			if err != nil || value <= 0 {
				return nil, fmt.Errorf("%s: %q in column %q: want a number above 0", p.file, row[column], s.column)
			}
			g.values[i], g.texts[i] = value, row[column]+p.unit
		}
	}
	return groups, nil
}
