//go:build linux

package failover_test

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
)

// shortScenarios are those of a short run. It judges no time: "make failover" measures against the
// targets.
var shortScenarios = []string{"kill", "stop", "lease-kill", "term", "timeline-kill", "timeline-leader-kill"}

// TestFailover ends leaders in some ways, a few times each. With -v it prints a table.
func TestFailover(t *testing.T) {
	t.Parallel()
	report := &chaos.FailoverReport{Began: time.Now()}
	var err error
	if report.Machine, err = chaos.ThisMachine(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	for _, name := range shortScenarios {
		s := scenarioNamed(t, name)
		t.Run(s.Name, func(t *testing.T) {
			runScenario(t.Context(), t, s, 2, func(r *chaos.FailoverTimes) {
				report.Scenarios = append(report.Scenarios, r)
			})
		})
	}
	t.Log("\n" + report.Markdown())
}

func scenarioNamed(t *testing.T, name string) chaos.Scenario {
	t.Helper()
	list := chaos.Scenarios()
	i := slices.IndexFunc(list, func(s chaos.Scenario) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("no scenario %q", name)
	}
	return list[i]
}

// TestFailover_Report is "make failover". FAILOVER_EVENTS is how often a leader ends in each
// scenario, FAILOVER_KINDS which ones, FAILOVER_MINUTES how long the cluster is watched without an
// event, FAILOVER_DIR where the report is written.
func TestFailover_Report(t *testing.T) {
	events, dir := trial.Number(t, "FAILOVER_EVENTS", 0, 0), cmp.Or(os.Getenv("FAILOVER_DIR"), filepath.Join(os.TempDir(), "isotone-failover"))
	if events == 0 {
		t.Skip(`run "make failover"`)
	}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	report := newFailoverReport(t)
	defer func() {
		report.Interrupted = ctx.Err() != nil
		t.Log("\n" + report.Markdown())
		if err := report.Write(dir); err != nil {
			t.Error(err)
		}
		missed := report.Missed()
		t.Logf("written: failover.md, failover.json and failover.svg in %s; targets missed: %v", dir, missed)
		if len(missed) > 0 && os.Getenv("FAILOVER_STRICT") == "1" {
			t.Errorf("targets missed: %v", missed)
		}
	}()
	reportScenarios(ctx, t, report, events)
	reportClients(ctx, t, report, events)
	if isSelected(t, "stability") && ctx.Err() == nil {
		t.Run("stability", func(t *testing.T) {
			watchStability(ctx, t, time.Duration(trial.Number(t, "FAILOVER_MINUTES", 30, 30))*time.Minute, func(s *chaos.Stability) { report.Stability = s })
		})
	}
}

// newFailoverReport describes the machine before anything is measured.
func newFailoverReport(t *testing.T) *chaos.FailoverReport {
	t.Helper()
	r := &chaos.FailoverReport{Began: time.Now(), Scenarios: []*chaos.FailoverTimes{}, Clients: []*chaos.ClientCalls{}}
	var err error
	if r.Machine, err = chaos.ThisMachine(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output(); err == nil {
		r.Commit = strings.TrimSpace(string(out))
	}
	return r
}

func isSelected(t *testing.T, name string) bool {
	t.Helper()
	yes, err := chaos.Selected(os.Getenv("FAILOVER_KINDS"), name)
	if err != nil {
		t.Fatalf("FAILOVER_KINDS: %v", err)
	}
	return yes
}

// reportScenarios measures the selected scenarios; those without a target a fifth as often.
func reportScenarios(ctx context.Context, t *testing.T, report *chaos.FailoverReport, events int) {
	for _, s := range chaos.Scenarios() {
		if !isSelected(t, s.Name) || ctx.Err() != nil {
			continue
		}
		count := events
		if s.MedianMax == 0 && s.P99Max == 0 {
			count = max(1, events/5)
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Logf("%s: %s, %d events, load average %.1f", s.Name, s.Title, count, chaos.LoadAverage())
			runScenario(ctx, t, s, count, func(r *chaos.FailoverTimes) {
				if r.Events > 0 || r.Broken {
					report.Scenarios = append(report.Scenarios, r)
				}
				t.Logf("%s: %d events, p50 %.1f, p90 %.1f, p99 %.1f, worst %.1f ms; reached: %s", s.Name, r.Events, r.P50, r.P90, r.P99, r.Worst, r.Reached)
			})
		})
	}
}

// clientCases are the deadlines that no call of the Go client may miss.
var clientCases = []struct {
	name, title string
	event       chaos.Event
	deadline    time.Duration
}{
	{"client-term", "deadlines of 100 ms, SIGTERM", chaos.EventTerm, 100 * time.Millisecond},
	{"client-kill", "deadlines of 500 ms, kill -9", chaos.EventKill, 500 * time.Millisecond},
}

// failoverCallers is how many goroutines call the Go client.
const failoverCallers = 8

// reportClients counts the calls of the Go client that fail while leaders end.
func reportClients(ctx context.Context, t *testing.T, report *chaos.FailoverReport, events int) {
	for _, o := range clientCases {
		if !isSelected(t, o.name) || ctx.Err() != nil {
			continue
		}
		t.Run(o.name, func(t *testing.T) {
			r := &chaos.ClientCalls{Name: o.name, Title: o.title, Load: chaos.LoadAverage(), Deadline: float64(o.deadline.Milliseconds())}
			t.Logf("%s: %s, %d events, load average %.1f", o.name, o.title, events, r.Load)
			report.Clients = append(report.Clients, r)
			callDuringEvents(ctx, t, o.event, o.deadline, events, r)
			t.Logf("%s: %d calls, %d failed, the slowest took %.1f ms. %s", o.name, r.Calls, r.Failed, r.Slowest, r.Failures)
		})
	}
}

// callDuringEvents has the Go client called while leaders end, and counts into r.
func callDuringEvents(ctx context.Context, t *testing.T, event chaos.Event, deadline time.Duration, events int, r *chaos.ClientCalls) {
	c := chaos.StartCluster(t, trial.Options())
	l := trial.StartClientLoadWithin(t, c.Addrs(), failoverCallers, deadline)
	run := &failoverRun{t: t, scenario: chaos.Scenario{Event: event, Nodes: 3}, cluster: c}
	for ; r.Events < events && ctx.Err() == nil; r.Events++ {
		leader := run.leader()
		recover := run.cause(leader)
		l.More(t, 20*failoverCallers)
		recover()
	}
	l.End()
	r.Failed = l.Expired.Load()
	r.Calls = l.Answered.Load() + r.Failed
	r.Slowest = float64(l.Slowest) / float64(time.Millisecond)
	for i, err := range l.Faults {
		if i < 3 {
			r.Failures += err.Error() + ". "
		}
	}
	if s := l.Online.Stats(); s.Violations > 0 || s.Unverified > 0 {
		t.Errorf("%+v", s)
	}
}

// stabilityBusy is how many busy loops run beside a cluster whose leader should not change.
const stabilityBusy = 3

// watchStability watches a cluster to which nothing happens.
func watchStability(ctx context.Context, t *testing.T, minutes time.Duration, record func(*chaos.Stability)) {
	c := chaos.StartCluster(t, trial.Options())
	s := &chaos.Stability{Busy: stabilityBusy, Load: chaos.LoadAverage()}
	chaos.BusyLoops(t, s.Busy)
	w := chaos.StartWatch(t, c.Addrs(), "")
	c.Settle()
	before, began := clusterCounts(t, c), time.Now()
	count := func() {
		now := clusterCounts(t, c)
		s.Minutes = time.Since(began).Minutes()
		s.Changes, s.Suspects, s.Stalls = now.changes-before.changes, now.suspects-before.suspects, now.stalls-before.stalls
		t.Logf("stability: %.1f of %.0f minutes, %d leader changes, leaders suspected %d times, %d stalls, load average %.1f",
			s.Minutes, minutes.Minutes(), s.Changes, s.Suspects, s.Stalls, chaos.LoadAverage())
	}
	for left := minutes; left > 0 && ctx.Err() == nil; left = minutes - time.Since(began) {
		select {
		case <-ctx.Done():
		case <-time.After(min(left, time.Minute)):
		}
		count()
	}
	answered, gap := w.Stop(t)
	s.Answered, s.Gap = answered, float64(gap)/float64(time.Millisecond)
	record(s)
}

// clusterCount is what the nodes of a cluster have counted together; of the changes of leader, each
// of which all see, the largest count.
type clusterCount struct{ changes, suspects, stalls int }

func clusterCounts(t *testing.T, c *chaos.Cluster) (all clusterCount) {
	t.Helper()
	for _, n := range c.Nodes {
		all.changes = max(all.changes, counter(t, n, "isotone_elections_total"))
		all.suspects += counter(t, n, "isotone_leader_suspected_total")
		all.stalls += counter(t, n, "isotone_stalls_total")
	}
	return all
}

func counter(t *testing.T, n *chaos.Node, name string) int {
	t.Helper()
	value, err := chaos.Metric(n.HTTPAddr, name)
	if err != nil {
		t.Fatalf("node %d: %s: %v", n.ID, name, err)
	}
	return int(value)
}
