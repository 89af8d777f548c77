package node_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/front"
)

// TestTimelines_OwnersTellWhatIsAskedFor, each for itself, with what quotas refuse.
func TestTimelines_OwnersTellWhatIsAskedFor(t *testing.T) {
	c := newTenant(t)
	limited := of(front.CreateTimelines, "limited")
	limited.Quota.Requests = 1
	c.must(limited)
	c.must(of(front.CreateTimelines, "idle", "busy"))
	owned := func(name string) uint64 {
		id := uint64(0)
		await.Until(t, name+" has an owner", func() bool { id = c.list(name, "", 1).Timelines[0].NodeID; return id != 0 })
		return id
	}
	owner := map[string]uint64{"limited": owned("limited"), "busy": owned("busy")}
	told := func(name string) (load front.BusyTimeline) {
		for id, n := range c.nodes {
			l, err := n.BusyTimelines(5)
			if err != nil || l.NodeID != id {
				t.Fatalf("node %d: %+v, %v", id, l, err)
			}
			for _, b := range l.Timelines {
				if b.Name == "idle" || id != owner[b.Name] {
					t.Errorf("node %d serves %+v", id, b)
				}
				if b.Name == name {
					load = b
				}
			}
		}
		return load
	}
	await.Until(t, "the owners tell", func() bool {
		for range 3 {
			_, _ = ask(c.nodes[owner["limited"]], "limited", 1)
			_, _ = ask(c.nodes[owner["busy"]], "busy", 7)
			_, _ = ask(c.nodes[owner["busy"]], "none", 1)
		}
		limited, busy := told("limited"), told("busy")
		return limited.Refused > 0 && busy.Requests > 0 && busy.Refused == 0 && int(busy.Timestamps/busy.Requests+0.5) == 7
	})
}

// TestTimelines_ReportsHaveTheirGroups at every node.
func TestTimelines_ReportsHaveTheirGroups(t *testing.T) {
	c := newTenant(t)
	c.must(front.TimelineChange{Action: front.MakeGroup, Group: "g", Prefer: []uint64{2}})
	create := of(front.CreateTimelines, "a", "b")
	create.Group = "g"
	c.must(create)
	for id, n := range c.nodes {
		await.Until(t, fmt.Sprintf("node %d knows the owner", id), func() bool {
			r, _ := n.Report()
			g := r.Groups
			return len(g) == 1 && g[0].Name == "g" && g[0].NodeID != 0 && g[0].Timelines == 2 && g[0].Made && slices.Equal(g[0].Prefer, []uint64{2})
		})
	}
}
