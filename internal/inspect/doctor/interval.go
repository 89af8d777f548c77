package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// intervals judges whether the nodes agree on INTERVAL_MS, and whether they read the cluster clock.
func (j *findings) intervals(c *Cluster) {
	by := c.Report.IntervalSettings()
	if len(by) == 0 || len(by) == 1 && by[0] != nil {
		return // off everywhere
	}
	if len(by) > 1 {
		var list []string
		for _, length := range slices.Sorted(maps.Keys(by)) {
			list = append(list, fmt.Sprintf("%d (node %s)", length.Milliseconds(), joined(by[length])))
		}
		j.add(Warning, "interval", "INTERVAL_MS", "differs: "+strings.Join(list, ", "), "set the same on all nodes: with 0 a node answers no intervals, and after a failover the leader's counts")
		return
	}
	good := true
	for _, v := range c.Report.Views {
		if v.State == nil || v.State.Interval.IsGood() {
			continue
		}
		good = false
		switch i := v.State.Interval; {
		case i.Broken:
			j.add(Warning, "interval", node(v.NodeID), "its steady clock, or the leader's, has a wrong rate, so it answers no intervals", "if this is said of most nodes, the leader's machine is at fault: transfer the leadership; else replace this machine")
		case !i.Running:
			j.add(Warning, "interval", node(v.NodeID), "the leader tells no readings of the cluster clock now", "wait for the next leader; if it lasts, see docs/operations.md, upgrade")
		default:
			j.add(Warning, "interval", node(v.NodeID), "it has no valid reading of the cluster clock", "check its connection to the leader; INTERVAL_MS has to exceed the round trip to it")
		}
	}
	if good {
		j.ok("interval", "", "all members answer intervals")
	}
}
