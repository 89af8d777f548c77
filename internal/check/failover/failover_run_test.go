//go:build linux

package failover_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/namespace"
	"github.com/isotone/isotone/internal/check/trial"
)

const (
	// progressEvery is after how many events a scenario tells how far it is.
	progressEvery = 10
	// calmBefore lets the load of a calm cluster become what it is, for instance a lease be held, before
	// the next event.
	calmBefore = 50 * time.Millisecond
	// retransmission and the length of a cut are how long after it TCP may wait before it tries again: it
	// doubles its waits, beginning with 200 ms. Before that the node is still cut off.
	retransmission = 300 * time.Millisecond
	// busyPause replaces chaos.OutagePause where processors are busy: answering the watch would take
	// the nodes' share of them.
	busyPause = time.Millisecond
)

// failoverRun causes the events of one scenario.
type failoverRun struct {
	t        *testing.T
	scenario chaos.Scenario
	cluster  *chaos.Cluster
	watch    *chaos.Watch
	timeline *measuredTimeline // nil: the default order is measured
	outcomes []chaos.Outcome
	steps    chaos.StepTimes
}

// runScenario measures one scenario, fewer events if ctx ends or the test fails.
func runScenario(ctx context.Context, t *testing.T, s chaos.Scenario, events int, record func(*chaos.FailoverTimes)) {
	r, load := &failoverRun{t: t, scenario: s}, chaos.LoadAverage()
	defer func() {
		times := chaos.NewFailoverTimes(s, load, r.outcomes)
		times.Steps, times.Broken = r.steps.Medians(), t.Failed()
		record(times)
	}()
	r.cluster = failoverCluster(t, s)
	query := ""
	if s.Lease {
		query = "&mode=lease"
	}
	if s.Timeline != "" {
		r.timeline, query = newMeasuredTimeline(t, r.cluster), "&timeline="+timelineName
	}
	r.watch = chaos.StartWatch(t, r.cluster.Addrs(), query)
	if s.Busy > 0 {
		r.watch.Pause = busyPause
	}
	chaos.BusyLoops(t, s.Busy)
	for i := range events {
		if ctx.Err() != nil {
			return
		}
		r.once()
		if done := i + 1; done%progressEvery == 0 && done < events {
			so := chaos.NewFailoverTimes(s, load, r.outcomes)
			t.Logf("%s: %d of %d events, p50 %.1f ms, worst %.1f ms so far", s.Name, done, events, so.P50, so.Worst)
		}
	}
	r.watch.Stop(t)
}

func failoverCluster(t *testing.T, s chaos.Scenario) *chaos.Cluster {
	o := trial.Options()
	o.Nodes, o.Network, o.Env = s.Nodes, s.Event == chaos.EventCut, map[string]string{}
	if denied := namespace.NetworkDenied(); o.Network && denied != "" {
		t.Skip(denied)
	}
	if s.Logs {
		o.Env["DEBUG"] = "1"
	}
	if s.Timeline != "" {
		o.Env["TIMELINES"] = "1"
	}
	if s.Interval > 0 {
		o.Env["INTERVAL_MS"] = fmt.Sprint(s.Interval.Milliseconds())
	}
	c := chaos.NewCluster(t, o)
	for _, n := range c.Nodes[:s.SlowNodes] {
		chaos.DelaySyncs(t, n, s.SyncDelay)
	}
	c.Start()
	c.WaitReady()
	return c
}

// once causes one event and has the cluster recover from it.
func (r *failoverRun) once() {
	r.t.Helper()
	leader := r.leader()
	if r.timeline != nil {
		r.onceOnTimeline(leader)
		return
	}
	time.Sleep(calmBefore)
	isSilent := !r.scenario.Event.IsOrderly()
	outage := r.watch.Prepare(leader.HTTPAddr, isSilent)
	began := r.watch.Begin()
	recover := r.cause(leader)
	outcome := r.watch.End(r.t, outage, chaos.ReadyTimeout)
	r.outcomes = append(r.outcomes, outcome)
	if r.scenario.Logs {
		r.addSteps(began, outcome)
	}
	recover()
}

// leaderTries bounds how often the leadership is transferred before an event. On slow disks the node
// that gets it may lose it again.
const leaderTries = 10

// leader returns the leader of a cluster that has recovered. Where only some nodes are slow, it is one
// of the others.
func (r *failoverRun) leader() *chaos.Node {
	r.t.Helper()
	slow := uint64(r.scenario.SlowNodes)
	for range leaderTries {
		r.cluster.Settle()
		leader := r.cluster.WaitLeader()
		if leader.ID > slow || slow == uint64(r.scenario.Nodes) {
			return leader
		}
		if code, _, text := trial.Command(r.t, "leader", "transfer", fmt.Sprint(slow+1), "--endpoint", leader.HTTPAddr); code != 0 {
			r.t.Logf("transfer to node %d: %s", slow+1, text)
		}
	}
	r.t.Fatalf("node %d does not lead after %d transfers", slow+1, leaderTries)
	return nil
}

// cause causes the event, and returns what undoes it.
func (r *failoverRun) cause(leader *chaos.Node) (recover func()) {
	r.t.Helper()
	switch r.scenario.Event {
	case chaos.EventKill:
		leader.Kill()
		return leader.Start
	case chaos.EventStop:
		leader.Stop()
		return leader.Cont
	case chaos.EventCut:
		began, heal := time.Now(), r.cluster.CutOff(leader)
		return func() {
			heal()
			time.Sleep(time.Since(began) + retransmission)
		}
	case chaos.EventTerm:
		leader.Term()
		return func() {
			if code := leader.WaitExit(chaos.ExitTimeout); code != 0 {
				r.t.Errorf("exit code %d after SIGTERM", code)
			}
			leader.Start()
		}
	case chaos.EventTransfer:
		transfer(r.t, leader, r.cluster.Others(leader)[0])
		return func() {}
	}
	r.t.Fatalf("no event %q", r.scenario.Event)
	return nil
}

// transfer asks the leader to transfer its leadership.
func transfer(t *testing.T, leader, to *chaos.Node) {
	t.Helper()
	a, err := chaos.Post(leader.HTTPAddr, "/admin/leader", fmt.Sprintf(`{"to":%d}`, to.ID), trial.AnswerTimeout)
	if err != nil || a.Status != 200 {
		t.Fatalf("transfer to node %d: %v %v", to.ID, a, err)
	}
}

// logDelay is how late a node may write a line of its log.
const logDelay = 50 * time.Millisecond

// addSteps reads the log of the successor.
func (r *failoverRun) addSteps(event time.Time, o chaos.Outcome) {
	time.Sleep(logDelay)
	for _, n := range r.cluster.Nodes {
		if n.HTTPAddr == o.Winner {
			r.steps.Add(n.Log(), event, o.At)
		}
	}
}
