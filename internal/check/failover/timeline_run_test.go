//go:build linux

package failover_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
)

// timelineName and timelineGroup are of the timeline whose answers are measured.
const (
	timelineName  = "measured"
	timelineGroup = "measured-group"
)

// gapWindow is how long the answers of a timeline are watched from an event on that should not interrupt them: longer than an election takes, also of a
// leader that is silent.
const gapWindow = 250 * time.Millisecond

// measuredTimeline is the timeline of a scenario.
type measuredTimeline struct {
	t       *testing.T
	cluster *chaos.Cluster
}

func newMeasuredTimeline(t *testing.T, c *chaos.Cluster) *measuredTimeline {
	t.Helper()
	m := &measuredTimeline{t, c}
	addr := c.WaitLeader().HTTPAddr
	for _, args := range [][]string{{"group", "create", timelineGroup}, {"timeline", "create", timelineName, "--group", timelineGroup}} {
		if code, _, text := trial.Command(t, append(args, "--endpoint", addr)...); code != 0 {
			t.Fatalf("%q: %s", args, text)
		}
	}
	return m
}

// moveTo makes a node the owner, and waits until it answers.
func (m *measuredTimeline) moveTo(n *chaos.Node) {
	m.t.Helper()
	await.Done(m.t, chaos.ReadyTimeout, func() (bool, string) {
		m.grant(n)
		a, err := chaos.Get(n.HTTPAddr, "/timestamp?timeline="+timelineName, trial.AnswerTimeout)
		return err == nil && a.Status == 200, fmt.Sprintf("node %d does not answer on the timeline: %v %v", n.ID, a, err)
	})
}

// grant asks the leader, whichever that is, to make a node the owner.
func (m *measuredTimeline) grant(n *chaos.Node) {
	m.t.Helper()
	body := fmt.Sprintf(`{"action":"grant","group":%q,"nodeID":%d}`, timelineGroup, n.ID)
	_, _ = chaos.Post(m.cluster.WaitLeader().HTTPAddr, "/admin/timelines", body, trial.AnswerTimeout) // the caller waits for its effect
}

// onceOnTimeline causes one event under requests for the timeline, and has the cluster recover from it.
func (r *failoverRun) onceOnTimeline(leader *chaos.Node) {
	r.t.Helper()
	others := r.cluster.Others(leader)
	owner, victim := others[0], others[0]
	switch r.scenario.Timeline {
	case chaos.OfLeader:
		victim = leader
	case chaos.OfOther:
		victim = others[1]
	}
	r.timeline.moveTo(owner)
	time.Sleep(calmBefore)
	gap := r.scenario.Timeline != chaos.OfOwner
	var outage *chaos.Outage
	if gap {
		outage = r.watch.PrepareGap()
	} else {
		outage = r.watch.Prepare(owner.HTTPAddr, !r.scenario.Event.IsOrderly())
	}
	r.watch.Begin()
	recovers := func() {}
	if r.scenario.Event == chaos.EventMove {
		r.timeline.grant(others[1])
	} else {
		recovers = r.cause(victim)
	}
	if gap {
		time.Sleep(gapWindow)
		r.outcomes = append(r.outcomes, r.watch.EndGap(r.t, outage, chaos.ReadyTimeout))
	} else {
		r.outcomes = append(r.outcomes, r.watch.End(r.t, outage, chaos.ReadyTimeout))
	}
	recovers()
}
