//go:build linux

package failover_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/namespace"
	"github.com/isotone/isotone/internal/check/trial"
)

// regions are three regions, each with the IDs of its nodes. A group and a timeline have the name of each.
var regions = map[string][]uint64{"eu": {1, 2}, "us": {3, 4}, "ap": {5}}

// regionWait bounds waits for groups to move, which takes half a minute once nodes are connected.
const regionWait = 5 * time.Minute

// ownedGroup is a group as the leader has it.
type ownedGroup struct {
	Name   string
	NodeID uint64
	Grant  string
}

// atlas is a cluster in three regions.
type atlas struct {
	*chaos.Cluster
	t *testing.T
}

// newAtlas starts the nodes, each with a network of its own. Their ticks are those of a wide network, so that no owner counts as silent that the
// machine has only kept waiting.
func newAtlas(t *testing.T) atlas {
	t.Helper()
	if denied := namespace.NetworkDenied(); denied != "" {
		t.Skip(denied)
	}
	o := trial.Options()
	o.Nodes, o.Network = 5, true
	o.Env = map[string]string{"TIMELINES": "1", "RTT_MS": "100"}
	return atlas{chaos.StartCluster(t, o), t}
}

// of returns the nodes of a region.
func (a atlas) of(region string) (nodes []*chaos.Node) {
	for _, id := range regions[region] {
		nodes = append(nodes, a.Node(id))
	}
	return nodes
}

// change asks for a change of timelines until it is done.
func (a atlas) change(format string, args ...any) {
	a.t.Helper()
	await.Done(a.t, chaos.ReadyTimeout, func() (bool, string) {
		answer, err := chaos.Post(a.Nodes[4].HTTPAddr, "/admin/timelines", fmt.Sprintf(format, args...), trial.AnswerTimeout)
		return err == nil && answer.Status == 200, fmt.Sprintf(format+": %v, %v", append(args, answer, err)...)
	})
}

// groups returns the groups by name, as a node of ap, which is never cut off, and its leader know them.
func (a atlas) groups() (map[string]ownedGroup, error) {
	answer, err := chaos.Get(a.Nodes[4].HTTPAddr, "/admin/groups", trial.AnswerTimeout)
	if err != nil {
		return nil, err
	}
	var list struct{ Groups []ownedGroup }
	if err := json.Unmarshal(answer.Body, &list); err != nil || answer.Status != 200 {
		return nil, fmt.Errorf("%d %s: %v", answer.Status, answer.Body, err)
	}
	groups := map[string]ownedGroup{}
	for _, g := range list.Groups {
		groups[g.Name] = g
	}
	return groups, nil
}

// waitGroups waits until the groups are as they should be, and returns them.
func (a atlas) waitGroups(what string, are func(map[string]ownedGroup) bool) (groups map[string]ownedGroup) {
	a.t.Helper()
	await.Done(a.t, regionWait, func() (bool, string) {
		var err error
		groups, err = a.groups()
		return err == nil && are(groups), fmt.Sprintf("not so: %s: %v, %v", what, groups, err)
	})
	return groups
}

// atHome reports whether each group is owned by the first node of its region.
func atHome(groups map[string]ownedGroup) bool {
	for name, ids := range regions {
		if groups[name].NodeID != ids[0] {
			return false
		}
	}
	return true
}

// wantSame expects the groups of the regions that were not lost to have the owners that they had, since the same grants.
func (a atlas) wantSame(when string, before, now map[string]ownedGroup) {
	a.t.Helper()
	for _, name := range []string{"us", "ap"} {
		if before[name] != now[name] {
			a.t.Errorf("%s: the group of a region that was not lost has moved: %+v, before %+v", when, now[name], before[name])
		}
	}
}

// ask asks a node for the timeline of its region until the load ends, and gives no answer up.
func (a atlas) ask(region string, n *chaos.Node) *chaos.Load {
	return chaos.StartLoad(a.t, chaos.LoadOptions{Addrs: []string{n.HTTPAddr}, Callers: 4, Timeout: trial.AnswerTimeout, Queries: []string{"&timeline=" + region}, NoIDs: true})
}

// TestTimelines_StayInTheirRegions: groups come to the regions that they prefer. When one region is lost, whose nodes run on and are still
// asked, with the leader among them, its group alone moves, and comes back after the region does. The owners of the others answer
// all the while, each request.
func TestTimelines_StayInTheirRegions(t *testing.T) {
	t.Parallel()
	a := newAtlas(t)
	for name := range regions {
		a.change(`{"action":"make","group":%q}`, name)
		a.change(`{"action":"create","names":[%q],"group":%[1]q}`, name)
	}
	for name, stranger := range map[string]uint64{"eu": 5, "us": 1, "ap": 3} {
		a.change(`{"action":"grant","group":%q,"nodeID":%d}`, name, stranger)
	}
	for _, name := range slices.Sorted(maps.Keys(regions)) {
		prefer, err := json.Marshal(regions[name])
		if err != nil {
			t.Fatal(err)
		}
		a.change(`{"action":"prefer","group":%q,"prefer":%s}`, name, prefer)
	}
	a.waitGroups("each group is in its region", atHome)
	a.leadFrom(a.Nodes[0])
	before := a.waitGroups("each group stays in its region", atHome)

	us, ap := a.ask("us", a.Nodes[2]), a.ask("ap", a.Nodes[4]) // the owners alone
	all := trial.StartClientLoad(t, a.Cluster, 4)              // who reaches the nodes of all regions
	eu := all.StartTimeline(t, "eu", 4)
	each := func() {
		t.Helper()
		us.WaitAnswer(t)
		ap.WaitAnswer(t)
		eu.More(t, 50)
		all.More(t, 50)
	}
	each()
	heal := a.Part(a.of("eu")...)
	during := a.waitGroups("others own the group of the lost region", func(g map[string]ownedGroup) bool {
		return g["eu"].NodeID > 2 && g["eu"].Grant != before["eu"].Grant
	})
	each()
	a.wantSame("while eu is lost", before, during)
	heal()
	after := a.waitGroups("the group is in its region again", atHome)
	each()
	a.wantSame("after eu came back", before, after)
	for name, l := range map[string]*chaos.Load{"us": us, "ap": ap} {
		r := l.Stop()
		r.Verify(t, 1)
		if len(r.Outcomes) != 1 {
			t.Errorf("not all requests for %s were answered: %s", name, r)
		}
	}
	eu.Verify(t)
	all.Verify(t)
}

// leadFrom has a node lead.
func (a atlas) leadFrom(n *chaos.Node) {
	a.t.Helper()
	await.Done(a.t, regionWait, func() (bool, string) {
		if leader := a.Leader(); leader == nil || leader == n {
			return leader == n && a.WaitLeader() == n, "no leader"
		}
		answer, err := chaos.Post(n.HTTPAddr, "/admin/leader", fmt.Sprintf(`{"to":%d}`, n.ID), trial.AnswerTimeout)
		return false, fmt.Sprintf("node %d does not lead: %v, %v", n.ID, answer, err)
	})
}
