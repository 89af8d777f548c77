//go:build linux

package chaos

import (
	"fmt"
	"slices"
	"time"
)

// stormTimelines are the timelines of a storm. Each has a load, and an order of its own, and is moved from node to node.
var stormTimelines = []string{"storm/1", "storm/2"}

// timelineCallers is how many requests are open at a time for each of them.
const timelineCallers = 4

// stormTimeline is a timeline under load, in a group of the same name.
type stormTimeline struct {
	name string
	load *Load
}

func hasTimelines(c *Cluster) bool { return c.options.Env["TIMELINES"] == "1" }

// startTimelines creates the timelines, if the cluster has any, and asks for them.
func (s *Storm) startTimelines() {
	s.t.Helper()
	if !hasTimelines(s.c) {
		return
	}
	for _, name := range stormTimelines {
		for began := time.Now(); !s.changeTimelines(`{"action":"make","group":%q}`, name) || !s.changeTimelines(`{"action":"create","names":[%q],"group":%q}`, name, name); {
			if time.Since(began) > ReadyTimeout {
				s.t.Fatalf("%s: the timeline %s cannot be created", s.clock(), name)
			}
			time.Sleep(pollInterval)
		}
		s.timelines = append(s.timelines, &stormTimeline{name, StartLoad(s.t, LoadOptions{
			Addrs: s.c.Addrs(), Callers: timelineCallers, Pause: 2 * time.Millisecond, ShortTimeout: 25 * time.Millisecond, Queries: []string{"&timeline=" + name}, NoIDs: true, NodesMayFail: true,
		})})
	}
}

// changeTimelines asks the leader for a change, and reports whether it is done.
func (s *Storm) changeTimelines(format string, args ...any) bool {
	a, err := Post(s.c.WaitLeader().HTTPAddr, "/admin/timelines", fmt.Sprintf(format, args...), time.Second)
	return err == nil && a.Status == 200
}

// eachLoad calls f with each load, that of the default order first.
func (s *Storm) eachLoad(f func(*Load)) {
	f(s.load)
	for _, l := range s.timelines {
		f(l.load)
	}
}

// planMove has another node, or the same one again, own a timeline. The leader may refuse that, or be down.
func (s *Storm) planMove() *fault {
	line, n := s.timelines[s.rand.IntN(len(s.timelines))], s.c.Nodes[s.rand.IntN(len(s.c.Nodes))]
	leader := s.load.Leader()
	return &fault{
		note: fmt.Sprintf("%s to node %d", line.name, n.ID), harmless: true, about: []string{line.name},
		begin: func() {
			if slices.Contains(s.c.Addrs(), leader) {
				body := fmt.Sprintf(`{"action":"grant","group":%q,"nodeID":%d}`, line.name, n.ID)
				go func() { _, _ = Post(leader, "/admin/timelines", body, time.Second) }() // the timeline is judged by its answers
			}
		},
		end: func() {},
	}
}
