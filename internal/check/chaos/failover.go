//go:build linux

package chaos

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// Scenario is one way in which a leader ends, and what happens beside it.
type Scenario struct {
	// Name selects it, as in "kill-slow-one-50ms"; Title describes it.
	Name, Title string
	// Event is what befalls the leader.
	Event Event
	// Nodes is their number.
	Nodes int
	// Lease has clients ask in lease mode.
	Lease bool
	// Interval is the INTERVAL_MS of the nodes; 0: no cluster clock.
	Interval time.Duration
	// Busy is how many busy loops run beside the cluster.
	Busy int
	// SlowNodes have every sync of their disk delayed by SyncDelay: nodes 1 to SlowNodes. The leader
	// is not one of them unless all are. Node 1 campaigns first when it ends.
	SlowNodes int
	SyncDelay time.Duration
	// Timeline, if set, has requests for a timeline be measured, whose owner does not lead.
	Timeline TimelineEvent
	// Logs has the nodes log at debug level, so that the steps of each failover are known.
	Logs bool
	// Targets for the median and for 99 of 100 events; 0: none.
	MedianMax, P99Max time.Duration
}

// Event is what befalls a leader.
type Event string

// The events.
const (
	EventKill     Event = "kill"     // SIGKILL
	EventStop     Event = "stop"     // SIGSTOP, until its successor has answered
	EventCut      Event = "cut"      // it is cut off from all others, and no connection is reset
	EventTerm     Event = "term"     // SIGTERM
	EventTransfer Event = "transfer" // a command transfers the leadership
)

// EventMove grants the group of a timeline to another node.
const EventMove Event = "move"

// TimelineEvent says whom an event befalls when a timeline is measured.
type TimelineEvent string

// Whom an event befalls: the owner, the leader while another node owns the timeline, or a node that neither leads nor owns it.
const (
	OfOwner  TimelineEvent = "owner"
	OfLeader TimelineEvent = "leader"
	OfOther  TimelineEvent = "other"
)

// CountsGap reports whether the longest time without an answer counts, and not the time from the event.
func (s *Scenario) CountsGap() bool {
	return s.Event.IsOrderly() || s.Timeline == OfLeader || s.Timeline == OfOther
}

// IsOrderly reports whether the leader transfers its leadership, or another node is made the owner. Then the time without an answer
// counts; otherwise the time from the event, which the leader cannot answer after.
func (e Event) IsOrderly() bool { return e == EventTerm || e == EventTransfer || e == EventMove }

// busyLoops is how many busy loops compete with the nodes in some scenarios, busyFactor how much
// longer a failover may take then.
const (
	busyLoops  = 2
	busyFactor = 3
)

// clockLimit is the INTERVAL_MS of scenarios with a cluster clock: a new leader waits for so long.
const clockLimit = 100 * time.Millisecond

// Scenarios returns all scenarios.
func Scenarios() []Scenario {
	const ms = time.Millisecond
	base := []Scenario{
		{Name: "kill", Title: "kill -9", Event: EventKill, MedianMax: 10 * ms, P99Max: 50 * ms},
		{Name: "stop", Title: "stopped (SIGSTOP)", Event: EventStop, P99Max: 150 * ms},
		{Name: "cut", Title: "cut off, no reset", Event: EventCut, P99Max: 150 * ms},
		{Name: "lease-kill", Title: "kill -9, lease mode", Event: EventKill, Lease: true, P99Max: 120 * ms},
		{Name: "lease-stop", Title: "stopped, lease mode", Event: EventStop, Lease: true, P99Max: 150 * ms},
		{Name: "term", Title: "SIGTERM", Event: EventTerm, P99Max: 10 * ms},
		{Name: "transfer", Title: "leadership transferred", Event: EventTransfer, P99Max: 10 * ms},
	}
	list := slices.Clone(base)
	for _, s := range base {
		s.Name, s.Title, s.Busy = s.Name+"-busy", s.Title+fmt.Sprintf(", %d busy loops", busyLoops), busyLoops
		s.MedianMax *= busyFactor
		s.P99Max *= busyFactor
		list = append(list, s)
	}
	for _, s := range []Scenario{
		{Name: "interval-kill", Title: "kill -9", Event: EventKill, P99Max: clockLimit + 20*ms},
		{Name: "interval-stop", Title: "stopped", Event: EventStop, P99Max: clockLimit + 50*ms},
		{Name: "interval-term", Title: "SIGTERM", Event: EventTerm, P99Max: 20 * ms},
		{Name: "interval-transfer", Title: "transferred", Event: EventTransfer, P99Max: 20 * ms},
	} {
		s.Title, s.Interval = s.Title+fmt.Sprintf(", INTERVAL_MS=%d", clockLimit.Milliseconds()), clockLimit
		list = append(list, s)
	}
	// The targets are those of decision 40. A tick is 10 ms.
	list = append(list,
		Scenario{Name: "timeline-kill", Title: "a timeline, its owner killed (-9)", Event: EventKill, Timeline: OfOwner, MedianMax: 8 * ms, P99Max: 15 * ms},
		Scenario{Name: "timeline-stop", Title: "a timeline, its owner stopped", Event: EventStop, Timeline: OfOwner, P99Max: 150 * ms},
		Scenario{Name: "timeline-move", Title: "a timeline, its group moved", Event: EventMove, Timeline: OfOwner, P99Max: 3 * ms},
		Scenario{Name: "timeline-term", Title: "a timeline, its owner drained", Event: EventTerm, Timeline: OfOwner, P99Max: 3 * ms},
		Scenario{Name: "timeline-leader-kill", Title: "a timeline, the leader killed (-9)", Event: EventKill, Timeline: OfLeader, P99Max: 11 * ms},
		Scenario{Name: "timeline-leader-stop", Title: "a timeline, the leader stopped", Event: EventStop, Timeline: OfLeader, P99Max: 11 * ms},
		Scenario{Name: "timeline-other-kill", Title: "a timeline, a third node killed (-9)", Event: EventKill, Timeline: OfOther, MedianMax: 2 * ms, P99Max: 11 * ms},
	)
	list = append(list,
		Scenario{Name: "kill-five", Title: "kill -9, five nodes", Event: EventKill, Nodes: 5, MedianMax: 10 * ms, P99Max: 50 * ms},
		Scenario{Name: "kill-steps", Title: "kill -9, debug logs", Event: EventKill, Logs: true},
		Scenario{Name: "kill-steps-busy", Title: fmt.Sprintf("kill -9, debug logs, %d busy loops", busyLoops), Event: EventKill, Busy: busyLoops, Logs: true},
	)
	for count, who := range []string{"one", "two", "all"} {
		for _, delay := range []time.Duration{5 * ms, 20 * ms, 50 * ms, 200 * ms} {
			s := Scenario{
				Name: fmt.Sprintf("kill-slow-%s-%v", who, delay), Title: fmt.Sprintf("kill -9, syncs %v longer on %s", delay, who),
				Event: EventKill, SlowNodes: count + 1, SyncDelay: delay,
			}
			if delay == 50*ms {
				s.P99Max, s.Logs = 300*ms, true
			}
			list = append(list, s)
		}
	}
	for i := range list {
		if list[i].Nodes == 0 {
			list[i].Nodes = 3
		}
	}
	return list
}

// Selected reports whether a name matches one of the comma-separated patterns, as those of
// path.Match. No pattern matches everything.
func Selected(patterns, name string) (bool, error) {
	if patterns == "" {
		return true, nil
	}
	for _, pattern := range strings.Split(patterns, ",") {
		if ok, err := path.Match(strings.TrimSpace(pattern), name); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// Quantile returns the smallest time that at least the given part of the times do not exceed: 0.99
// of 100 times is the second largest. It is 0 without times.
func Quantile(times []time.Duration, part float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	rank := 0
	for float64(rank+1) < part*float64(len(sorted)) {
		rank++
	}
	return sorted[rank]
}
