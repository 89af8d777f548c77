package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/isotone/isotone/internal/core/timeline"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/inspect/survey"
)

const (
	// nearLimit is the part of a limit from which on there is a warning.
	nearLimit = 0.9
	// settled is how long a leader has led, and a node has run, before groups ought to be where they belong: the leader moves them to
	// nodes that have been connected with it for 30 s.
	settled = time.Minute
	spread  = "spread"
)

// timelines judges timelines, and who owns them.
func (j *findings) timelines(c *Cluster) {
	before := len(*j)
	j.timelineSettings(c)
	j.timelineLevel(c)
	s := c.view()
	if s == nil || s.Timelines == nil || s.Timelines.Total == 0 {
		return
	}
	j.timelineLimits(c, s.Timelines)
	j.ownerLags(s)
	if c.Groups != nil {
		p := newPlacement(c, s)
		j.orphans(p)
		j.preferences(p)
		j.spread(p)
	}
	if len(*j) == before {
		j.ok("timelines", "", "%s, owned by %s", count(s.Timelines.Total, "timeline"), count(len(s.Timelines.Owners), "node"))
	}
}

// timelineSettings judges whether the nodes agree on TIMELINES and GROUP_PLACEMENT.
func (j *findings) timelineSettings(c *Cluster) {
	permitted, placements := map[string][]uint64{}, map[string][]uint64{}
	for _, v := range c.Report.Views {
		if v.State == nil {
			continue
		}
		t, on := v.State.Timelines, "0"
		if t != nil && t.Permitted {
			on = "1"
		}
		permitted[on] = append(permitted[on], v.NodeID)
		if t != nil && t.Placement != "" {
			placements[t.Placement] = append(placements[t.Placement], v.NodeID)
		}
	}
	if len(permitted) > 1 {
		j.add(Warning, "timelines", "TIMELINES", "differs: "+valuesOf(permitted), fmt.Sprintf("restart node %s with TIMELINES=1: a leader without it changes no timelines", joined(permitted["0"])))
	}
	if len(placements) > 1 {
		j.add(Warning, "timelines", "GROUP_PLACEMENT", "differs: "+valuesOf(placements), "set the same on all nodes, and restart those with another: that of the leader counts")
	}
}

// valuesOf lists the values of a setting, and the nodes that have each.
func valuesOf(by map[string][]uint64) string {
	var list []string
	for _, value := range slices.Sorted(maps.Keys(by)) {
		list = append(list, fmt.Sprintf("%s (node %s)", value, joined(by[value])))
	}
	return strings.Join(list, ", ")
}

// timelineLevel judges whether the cluster may have timelines.
func (j *findings) timelineLevel(c *Cluster) {
	l := c.Levels
	on := slices.ContainsFunc(c.Report.Views, func(v survey.View) bool {
		return v.State != nil && v.State.Timelines != nil && v.State.Timelines.Permitted
	})
	if l == nil || !on || l.Level >= timeline.Level {
		return
	}
	do := "isotone upgrade finalize, once no older version is to be restored"
	if l.Next < timeline.Level {
		do = fmt.Sprintf("upgrade node %s; then: isotone upgrade finalize", joined(l.Missing))
	}
	j.add(Problem, "timelines", "feature level", fmt.Sprintf("TIMELINES=1, but the feature level is %d, and timelines need %d: none can be created", l.Level, timeline.Level), do)
}

// timelineLimits judges whether there is room for more.
func (j *findings) timelineLimits(c *Cluster, t *survey.Timelines) {
	const groupsMax = timeline.GroupsMax - timeline.SlotGroups
	drop := "isotone group list shows which have none; move or delete their timelines, then: isotone group drop GROUP"
	if c.Groups != nil {
		if at := slices.IndexFunc(c.Groups.Groups, func(g front.GroupRecord) bool { return g.Timelines == 0 && g.Made }); at >= 0 {
			drop = "remove those without timelines: isotone group drop " + c.Groups.Groups[at].Name
		}
	}
	for _, l := range []struct {
		what      string
		have, max int
		do        string
	}{
		{"timelines", t.Total, timeline.TimelinesMax, "delete those that nobody needs: isotone timeline delete NAME…"},
		{"groups, beside those of hash slots", t.GroupsMade, groupsMax, drop},
	} {
		found := fmt.Sprintf("%d of %d %s", l.have, l.max, l.what)
		switch {
		case l.have >= l.max:
			j.add(Problem, "timelines", "limits", found+": none can be created", l.do)
		case float64(l.have) >= nearLimit*float64(l.max):
			j.add(Warning, "timelines", "limits", found, l.do)
		}
	}
}

// ownerLags judges whether owners keep up with the log: what is new there keeps their timelines waiting.
func (j *findings) ownerLags(s *survey.State) {
	for _, o := range s.Timelines.Owners {
		at := slices.IndexFunc(s.Members, func(m survey.Member) bool { return m.NodeID == o.NodeID })
		if at < 0 {
			continue
		}
		m := s.Members[at]
		if m.LagEntries == nil || m.Self || !m.Connected || *m.LagEntries <= lagWarning {
			continue
		}
		status := Warning
		if *m.LagEntries > lagProblem {
			status = Problem
		}
		j.add(status, "timelines", node(o.NodeID), fmt.Sprintf("owns %s, and lacks %d log entries: its timelines wait for it at each change", count(o.Groups, "group"), *m.LagEntries),
			"look at its disk and network; until that is right, have others own its groups: isotone group move GROUP NODE")
	}
}

// placement is who owns groups, and who could.
type placement struct {
	groups []front.GroupRecord // with timelines
	spread bool                // GROUP_PLACEMENT of the leader
	// up are the nodes that run and are connected, settled those that have been for so long that they ought to have groups.
	up, settled []uint64
}

func newPlacement(c *Cluster, s *survey.State) *placement {
	p := &placement{spread: s.Timelines.Placement == spread}
	for _, g := range c.Groups.Groups {
		if g.Timelines > 0 {
			p.groups = append(p.groups, g)
		}
	}
	led := time.Duration(0)
	if n := len(s.Elections); n > 0 {
		led = s.Now.Sub(s.Elections[n-1].At)
	}
	for _, m := range s.Members {
		if !m.Self && !m.Connected {
			continue
		}
		p.up = append(p.up, m.NodeID)
		at := slices.IndexFunc(c.Report.Views, func(v survey.View) bool { return v.NodeID == m.NodeID && v.State != nil })
		if at >= 0 && led > settled && c.Report.Views[at].State.Node.UptimeSeconds > settled.Seconds() && !c.Report.Views[at].State.Node.Draining {
			p.settled = append(p.settled, m.NodeID)
		}
	}
	return p
}

// owned returns the groups of a node, those that prefer no node first.
func (p *placement) owned(by uint64) []front.GroupRecord {
	var list []front.GroupRecord
	for _, g := range p.groups {
		if g.NodeID == by {
			list = append(list, g)
		}
	}
	slices.SortStableFunc(list, func(a, b front.GroupRecord) int { return cmp.Compare(len(a.Prefer), len(b.Prefer)) })
	return list
}

// least returns the node of a list with the fewest groups, or 0.
func (p *placement) least(of []uint64) (id uint64) {
	for _, n := range of {
		if id == 0 || len(p.owned(n)) < len(p.owned(id)) {
			id = n
		}
	}
	return id
}

// orphans judges groups that nobody serves. The leader gives such a group away within some ticks.
func (j *findings) orphans(p *placement) {
	gone := map[uint64][]string{}
	for _, g := range p.groups {
		if !slices.Contains(p.up, g.NodeID) {
			gone[g.NodeID] = append(gone[g.NodeID], g.Name)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(gone)) {
		why := "have no owner"
		if id != 0 {
			why = fmt.Sprintf("belong to node %d, which is not connected", id)
		}
		groups := gone[id]
		j.add(Problem, "timelines", "owners", fmt.Sprintf("groups with timelines %s, so that nobody serves them: %d, %s first", why, len(groups), groups[0]),
			fmt.Sprintf("look again in some seconds; if it lasts, read the log of the leader, and: isotone group move %s %d", groups[0], p.least(p.up)))
	}
}

// groupsTold bounds the findings about single groups.
const groupsTold = 5

// preferences judges groups that another node owns than the first of those that they prefer and that are up.
func (j *findings) preferences(p *placement) {
	found := 0
	for _, g := range p.groups {
		better := p.better(g)
		if better == 0 {
			continue
		}
		if found++; found <= groupsTold {
			j.add(Warning, "timelines", "group "+g.Name, fmt.Sprintf("node %d owns it, and it prefers node %d, which is up", g.NodeID, better), p.move(g.Name, better))
		}
	}
	if found > groupsTold {
		j.add(Warning, "timelines", "groups", fmt.Sprintf("%d more are not owned by the node that they prefer, which is up", found-groupsTold), "isotone group list shows them, with what they prefer; isotone group move GROUP NODE")
	}
}

// better returns the node that is to own a group rather than its owner, or 0.
func (p *placement) better(g front.GroupRecord) uint64 {
	if !slices.Contains(p.up, g.NodeID) {
		return 0 // nobody serves it, which is judged already
	}
	for _, id := range g.Prefer {
		switch {
		case id == g.NodeID:
			return 0
		case slices.Contains(p.settled, id):
			return id
		}
	}
	return 0
}

// move says how a group comes to a node.
func (p *placement) move(group string, to uint64) string {
	do := fmt.Sprintf("isotone group move %s %d", group, to)
	if p.spread {
		return "the leader moves it to a node that has been connected for 30 s, if that lacks no log entries; at once: " + do
	}
	return "with GROUP_PLACEMENT=leader nobody else moves it: " + do
}

// spread judges whether the nodes own about as many groups each, if they are to: by the rule of the leader.
func (j *findings) spread(p *placement) {
	if !p.spread || len(p.settled) < 2 {
		return
	}
	most, least := uint64(0), p.least(p.settled)
	for _, id := range p.settled {
		if most == 0 || len(p.owned(id)) > len(p.owned(most)) {
			most = id
		}
	}
	have := p.owned(most)
	if !timeline.IsUneven(len(have), len(p.owned(least))) || len(have[0].Prefer) > 0 {
		return
	}
	j.add(Warning, "timelines", "owners", fmt.Sprintf("uneven: node %d owns %s, node %d %d", most, count(len(have), "group"), least, len(p.owned(least))), p.move(have[0].Name, least))
}
