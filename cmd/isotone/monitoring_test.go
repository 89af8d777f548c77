package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/host/telemetry"
	"github.com/isotone/isotone/internal/server"
)

//go:generate go test -run ^TestMetricsPage_IsCurrent$ -update .

var update = flag.Bool("update", false, "write docs/metrics.md and testdata/dev.txt")

const (
	metricsPage   = "../../docs/metrics.md"
	alertsPage    = "../../docs/alerts.md"
	monitoringDir = "../../monitoring"
)

// nodeDescriptions are all metrics that a node can have.
func nodeDescriptions() []telemetry.Description {
	m := telemetry.NewMetrics("")
	m.NewRequestStats()
	telemetry.WatchConnections(m.Registry(), 1, 1, nil)
	telemetry.WatchUsers(m.Registry(), nil)
	telemetry.WatchSpans(m.Registry(), nil)
	(&telemetry.Log{}).Watch(m.Registry())
	return m.Registry().Descriptions()
}

// pageOfMetrics is docs/metrics.md.
func pageOfMetrics() string {
	var b strings.Builder
	b.WriteString(`# Metrics

` + "`GET /metrics`" + ` of a node, on the client port, ` + "`ADMIN_ADDR`" + ` and ` + "`METRICS_ADDR`" + `, and of a proxy, on the port of
` + "`--admin`" + `, answers in the text format of Prometheus. On the first two it takes the role ` + "`metrics`" + `, which clients on the machine
of the node have unless it has [users](security.md#clients). Names and labels never change once released; new ones may come.
[alerts.md](alerts.md) has rules for alerts, and [monitoring/grafana.json](../monitoring/grafana.json) is a dashboard.

This page is generated from the program: ` + "`go generate ./cmd/isotone`" + `.

Beside these there are the usual metrics of the process (` + "`process_…`" + `: CPU time, memory, file descriptors, start) and of the
Go runtime (` + "`go_…`" + `). The metrics ` + "`isotone_request_…_seconds`" + ` except ` + "`isotone_request_duration_seconds`" + ` are there with
` + "`REQUEST_STATS=1`" + ` only; see [stats.md](stats.md).

## Node
`)
	writeTable(&b, nodeDescriptions())
	b.WriteString("\n## Proxy\n\n`isotone proxy --backend`, `--tcp` and `--node` have different ones; see [proxy.md](proxy.md).\n")
	writeTable(&b, server.ProxyMetrics())
	return b.String()
}

func writeTable(b *strings.Builder, list []telemetry.Description) {
	b.WriteString("\n| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, d := range list {
		labels := ""
		if len(d.Labels) > 0 {
			labels = "`" + strings.Join(d.Labels, "`, `") + "`"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", d.Name, d.Type, labels, strings.ReplaceAll(d.Help, "|", `\|`))
	}
}

func TestMetricsPage_IsCurrent(t *testing.T) {
	want := pageOfMetrics()
	if *update {
		if err := os.WriteFile(metricsPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(t, metricsPage); got != want {
		t.Errorf("docs/metrics.md is not what the program has: run go generate ./cmd/isotone")
	}
}

// knownSeries are the names by which series can be asked for.
func knownSeries() map[string]bool {
	known := map[string]bool{}
	for _, d := range append(nodeDescriptions(), server.ProxyMetrics()...) {
		known[d.Name] = true
		if d.Type == "histogram" {
			delete(known, d.Name) // has no series of its own
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				known[d.Name+suffix] = true
			}
		}
	}
	for _, name := range []string{"process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds", "process_max_fds", "go_goroutines"} {
		known[name] = true
	}
	return known
}

var seriesName = regexp.MustCompile(`\b(?:isotone|process|go)_[a-z0-9_]+`)

// wantKnown fails for each name in an expression that no program has.
func wantKnown(t *testing.T, where, expression string) {
	t.Helper()
	known := knownSeries()
	for _, name := range seriesName.FindAllString(expression, -1) {
		if !known[name] {
			t.Errorf("%s: there is no metric %s", where, name)
		}
	}
}

// rule is an alert in alerts.yml.
type rule struct{ name, expr, severity, summary, description, runbook string }

// alertRules reads alerts.yml, whose lines are as simple as this needs; promtool checks that
// Prometheus reads it in the same way.
func alertRules(t *testing.T) []rule {
	var rules []rule
	for line := range strings.Lines(read(t, filepath.Join(monitoringDir, "alerts.yml"))) {
		key, value, _ := strings.Cut(strings.TrimLeft(strings.TrimSpace(line), "- "), ": ")
		if key == "alert" {
			rules = append(rules, rule{name: value})
		}
		if len(rules) == 0 {
			continue
		}
		r := &rules[len(rules)-1]
		switch key {
		case "expr":
			r.expr = value
		case "severity":
			r.severity = value
		case "summary":
			r.summary = value
		case "description":
			r.description = value
		case "runbook_url":
			r.runbook = value
		}
	}
	return rules
}

func TestAlerts_AreCompleteAndExplained(t *testing.T) {
	rules := alertRules(t)
	if len(rules) < 30 {
		t.Fatalf("only %d alerts are found", len(rules))
	}
	page := read(t, alertsPage)
	tests := read(t, filepath.Join(monitoringDir, "alerts_test.yml")) + read(t, filepath.Join(monitoringDir, "alerts_slow_test.yml"))
	var names []string
	for _, r := range rules {
		names = append(names, r.name)
		wantKnown(t, r.name, r.expr)
		if !strings.HasPrefix(r.name, "Isotone") || r.expr == "" || r.summary == "" || r.description == "" {
			t.Errorf("%s lacks something: %+v", r.name, r)
		}
		if r.severity != "critical" && r.severity != "warning" {
			t.Errorf("%s has the severity %q", r.name, r.severity)
		}
		if want := "https://github.com/isotone/isotone/blob/main/docs/alerts.md#" + strings.ToLower(r.name); r.runbook != want {
			t.Errorf("%s links to %s, want %s", r.name, r.runbook, want)
		}
		_, section, found := strings.Cut(page, "\n### "+r.name+"\n")
		section, _, _ = strings.Cut(section, "\n### ")
		if !found || !strings.Contains(strings.ToLower(section), "*"+r.severity+"*.") || !strings.Contains(section, "\n- ") {
			t.Errorf("docs/alerts.md has no section for %s with its severity and what to do", r.name)
		}
		for _, test := range []string{"fires", "stays silent"} {
			if !strings.Contains(tests, "- name: "+r.name+" "+test+"\n") {
				t.Errorf("the tests of the rules have none named %q", r.name+" "+test)
			}
		}
	}
	for line := range strings.Lines(page) {
		if name, ok := strings.CutPrefix(line, "### "); ok && !slices.Contains(names, strings.TrimSpace(name)) {
			t.Errorf("docs/alerts.md explains %s, which does not exist", strings.TrimSpace(name))
		}
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != len(rules) {
		t.Error("two alerts have one name")
	}
	for _, link := range regexp.MustCompile(`\(#([a-z]+)\)`).FindAllStringSubmatch(page, -1) {
		if !slices.ContainsFunc(rules, func(r rule) bool { return strings.ToLower(r.name) == link[1] }) {
			t.Errorf("docs/alerts.md links to #%s", link[1])
		}
	}
}

// promtool runs promtool in the directory of the rules. CONTRIBUTING.md says where to get it.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed: the rules are not run (.ci/run installs it on Debian)")
	}
	c := exec.Command(path, args...)
	c.Dir = monitoringDir
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// The tests of the rules take longer: .ci/run alerts.
func TestAlerts_AreRulesOfPrometheus(t *testing.T) { promtool(t, "check", "rules", "alerts.yml") }

// grafana is what the test reads of a dashboard.
type grafana struct {
	UID, Title string
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
	Annotations struct{ List []struct{ Expr string } }
	Panels      []struct {
		ID          int
		Type, Title string
		GridPos     struct{ X, Y, W, H int }
		Targets     []struct{ RefID, Expr, LegendFormat string }
	}
}

func TestDashboard_AsksForWhatThereIs(t *testing.T) {
	var d grafana
	if err := json.Unmarshal([]byte(read(t, filepath.Join(monitoringDir, "grafana.json"))), &d); err != nil {
		t.Fatal(err)
	}
	if d.UID == "" || d.Title == "" || len(d.Panels) < 30 {
		t.Fatalf("%q, %q, %d panels", d.UID, d.Title, len(d.Panels))
	}
	var expressions []string
	variables := []string{"__rate_interval"}
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
		wantKnown(t, "variable "+v.Name, v.Definition)
	}
	for _, a := range d.Annotations.List {
		expressions = append(expressions, a.Expr)
	}
	taken := map[[2]int]string{}
	ids := map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || (p.Type != "row") != (len(p.Targets) > 0) {
			t.Errorf("panel %d %q: its ID is taken, or it has no title or no query", p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("panel %q lies over %q, or outside", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		for _, target := range p.Targets {
			expressions = append(expressions, target.Expr)
			if target.LegendFormat == "" || target.RefID == "" {
				t.Errorf("panel %q: a query without a legend", p.Title)
			}
		}
	}
	var rules strings.Builder
	rules.WriteString("groups:\n  - name: dashboard\n    rules:\n")
	for i, e := range expressions {
		wantKnown(t, "the dashboard", e)
		if !seriesName.MatchString(e) {
			t.Errorf("%q asks for no metric", e)
		}
		for _, v := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(e, -1) {
			if !slices.Contains(variables, v[1]) {
				t.Errorf("%q uses the unknown variable %s", e, v[1])
			}
		}
		e = strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$instance", ".*").Replace(e)
		fmt.Fprintf(&rules, "      - record: dashboard:q%d\n        expr: '%s'\n", i, strings.ReplaceAll(e, "'", "''"))
	}
	file := filepath.Join(t.TempDir(), "dashboard.yml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", file)
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
