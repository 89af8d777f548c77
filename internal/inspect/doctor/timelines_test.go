package doctor_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/core/timeline"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/inspect/doctor"
	"github.com/isotone/isotone/internal/inspect/survey"
)

// own gives each node groups with one timeline each, and one that prefers it. The leader has led for long.
func own(c *doctor.Cluster, groups ...int) {
	t := &survey.Timelines{Permitted: true, Placement: "spread"}
	c.Groups = &front.GroupList{}
	for i, n := range groups {
		id := uint64(i + 1)
		for k := range n {
			c.Groups.Groups = append(c.Groups.Groups, front.GroupRecord{Name: fmt.Sprintf("h%d%02d", id, k), NodeID: id, Timelines: 1})
		}
		c.Groups.Groups = append(c.Groups.Groups, front.GroupRecord{Name: fmt.Sprint("region", id), NodeID: id, Timelines: 1, Prefer: []uint64{id}})
		t.Owners = append(t.Owners, survey.GroupOwner{NodeID: id, Groups: n + 1, Timelines: n + 1})
		t.Total += n + 1
		t.GroupsMade++
	}
	for _, v := range c.Report.Views {
		copied := *t
		v.State.Timelines, v.State.Now, v.State.Node.UptimeSeconds = &copied, now, 3600
		v.State.Elections = []survey.Election{{At: now.Add(-time.Hour), Term: 7, Leader: 1}}
	}
}

// region returns the group that prefers a node.
func region(c *doctor.Cluster, id uint64) *front.GroupRecord {
	at := slices.IndexFunc(c.Groups.Groups, func(g front.GroupRecord) bool { return g.Name == fmt.Sprint("region", id) })
	return &c.Groups.Groups[at]
}

// leadersPlacement has all nodes say GROUP_PLACEMENT=leader.
func leadersPlacement(c *doctor.Cluster) {
	for _, v := range c.Report.Views {
		v.State.Timelines.Placement = "leader"
	}
}

// misplaced is what may be wrong with timelines, and what is to be done.
var misplaced = []struct {
	name   string
	wrong  func(c *doctor.Cluster)
	status doctor.Status
	found  string
	do     string
}{
	{"no owner", func(c *doctor.Cluster) { region(c, 2).NodeID = 0 }, doctor.Problem, "have no owner, so that nobody serves them: 1, region2 first", "isotone group move region2 2"},
	{"an owner that left", func(c *doctor.Cluster) { region(c, 2).NodeID = 9 }, doctor.Problem, "belong to node 9, which is not connected", "isotone group move region2 2"},
	{"uneven", func(c *doctor.Cluster) { own(c, 2, 5, 2) }, doctor.Warning, "uneven: node 2 owns 6 groups, node 1 3", "isotone group move h200 1"},
	{"not preferred", func(c *doctor.Cluster) { region(c, 2).NodeID = 3 }, doctor.Warning, "node 3 owns it, and it prefers node 2", "at once: isotone group move region2 2"},
	{"less preferred", func(c *doctor.Cluster) { region(c, 2).Prefer = []uint64{3, 2} }, doctor.Warning, "node 2 owns it, and it prefers node 3", "isotone group move region2 3"},
	{"not preferred by the leader's placement", func(c *doctor.Cluster) {
		leadersPlacement(c)
		region(c, 2).NodeID = 3
	}, doctor.Warning, "it prefers node 2", "nobody else moves it: isotone group move region2 2"},
	{"many timelines", func(c *doctor.Cluster) { state(c, 1).Timelines.Total = timeline.TimelinesMax * 9 / 10 }, doctor.Warning, "90000 of 100000 timelines", "isotone timeline delete"},
	{"all timelines", func(c *doctor.Cluster) { state(c, 1).Timelines.Total = timeline.TimelinesMax }, doctor.Problem, "none can be created", "isotone timeline delete"},
	{"many groups", func(c *doctor.Cluster) {
		state(c, 1).Timelines.GroupsMade = 700
		c.Groups.Groups = append(c.Groups.Groups, front.GroupRecord{Name: "h255"}, front.GroupRecord{Name: "idle", Made: true})
	}, doctor.Warning, "700 of 768 groups", "isotone group drop idle"},
	{"all groups", func(c *doctor.Cluster) { state(c, 1).Timelines.GroupsMade = 768 }, doctor.Problem, "none can be created", "isotone group drop GROUP"},
	{"no level", func(c *doctor.Cluster) { *c.Levels = front.Levels{Level: 1, Newest: 1, Next: 1} }, doctor.Problem, "the feature level is 1, and timelines need 2", "upgrade node"},
	{"TIMELINES", func(c *doctor.Cluster) { state(c, 3).Timelines.Permitted = false }, doctor.Warning, "differs: 0 (node 3), 1 (node 1, 2)", "restart node 3 with TIMELINES=1"},
	{"TIMELINES of an older version", func(c *doctor.Cluster) { state(c, 3).Timelines = nil }, doctor.Warning, "differs: 0 (node 3), 1 (node 1, 2)", "restart node 3 with TIMELINES=1"},
	{"GROUP_PLACEMENT", func(c *doctor.Cluster) { state(c, 3).Timelines.Placement = "leader" }, doctor.Warning, "differs: leader (node 3), spread (node 1, 2)", "that of the leader counts"},
}

func TestJudge_FindsWhatIsWrongWithTimelines(t *testing.T) {
	for _, a := range misplaced {
		c := cluster()
		own(c, 2, 2, 2)
		a.wrong(c)
		list := notOK(doctor.Judge(&doctor.Measurements{At: now, Cluster: c}))
		if len(list) != 1 || list[0].Check != "timelines" || list[0].Status != a.status || !strings.Contains(list[0].Found, a.found) || !strings.Contains(list[0].Do, a.do) {
			t.Errorf("%s: %+v, want one %s with %q, and to do %q", a.name, list, a.status, a.found, a.do)
		}
	}
}

// TestJudge_AnUpgradeComesBeforeTimelines: what is not finalized is a warning of its own.
func TestJudge_AnUpgradeComesBeforeTimelines(t *testing.T) {
	c := cluster()
	own(c, 0, 0, 0)
	*c.Levels = front.Levels{Level: 1, Newest: 2, Next: 2}
	list := notOK(doctor.Judge(&doctor.Measurements{At: now, Cluster: c}))
	if len(list) != 2 || list[0].Check != "timelines" || list[0].Do != "isotone upgrade finalize, once no older version is to be restored" || list[1].Check != "version" {
		t.Errorf("%+v", list)
	}
}

// TestJudge_OwnersFarBehindAreSaidToBe, beside what that is of any member.
func TestJudge_OwnersFarBehindAreSaidToBe(t *testing.T) {
	for lag, status := range map[uint64]doctor.Status{101: doctor.Warning, 4097: doctor.Problem} {
		c := cluster()
		own(c, 1, 1, 1)
		*state(c, 1).Members[2].LagEntries = lag
		list := notOK(doctor.Judge(&doctor.Measurements{At: now, Cluster: c}))
		if len(list) != 2 || list[0].Check != "timelines" || list[0].Status != status || list[0].Subject != "node 3" || list[1].Check != "lag" ||
			!strings.Contains(list[0].Found, fmt.Sprintf("owns 2 groups, and lacks %d log entries", lag)) || !strings.Contains(list[0].Do, "isotone group move GROUP NODE") {
			t.Errorf("%d: %+v", lag, list)
		}
	}
}

// TestJudge_GroupsAreGivenTimeToMove: the leader moves them to nodes that have been there for a while.
func TestJudge_GroupsAreGivenTimeToMove(t *testing.T) {
	for name, soon := range map[string]func(c *doctor.Cluster){
		"the preferred node has just started": func(c *doctor.Cluster) { state(c, 2).Node.UptimeSeconds = 20 },
		"the leader has just been elected":    func(c *doctor.Cluster) { state(c, 1).Elections[0].At = now.Add(-20 * time.Second) },
		"GROUP_PLACEMENT=leader": func(c *doctor.Cluster) {
			leadersPlacement(c)
			region(c, 2).NodeID = 2
		},
		"by a fifth only": func(c *doctor.Cluster) {
			own(c, 15, 12, 12)
		},
	} {
		c := cluster()
		own(c, 9, 1, 9)
		region(c, 2).NodeID = 3
		soon(c)
		if list := notOK(doctor.Judge(&doctor.Measurements{At: now, Cluster: c})); len(list) > 0 {
			t.Errorf("%s: %+v", name, list)
		}
	}
}

func TestJudge_FewGroupsAreNamed(t *testing.T) {
	c := cluster()
	own(c, 0, 0, 0)
	for i := range 12 {
		c.Groups.Groups = append(c.Groups.Groups, front.GroupRecord{Name: fmt.Sprint("g", i), NodeID: 3, Timelines: 1, Prefer: []uint64{2}})
	}
	list := notOK(doctor.Judge(&doctor.Measurements{At: now, Cluster: c}))
	if len(list) != 6 || !strings.HasPrefix(list[5].Found, "7 more") {
		t.Errorf("%+v", list)
	}
}

func TestJudge_TimelinesOfAHealthyCluster(t *testing.T) {
	for _, groups := range []bool{true, false} { // what only an operator is told
		c := cluster()
		own(c, 2, 2, 2)
		if !groups {
			c.Groups = nil
		}
		r := doctor.Judge(&doctor.Measurements{At: now, Local: local(), Cluster: c})
		at := slices.IndexFunc(r.Findings, func(f doctor.Finding) bool { return f.Check == "timelines" })
		if list := notOK(r); len(list) > 0 || at < 0 || r.Findings[at].Found != "9 timelines, owned by 3 nodes" {
			t.Errorf("groups told %v: %+v", groups, r.Findings)
		}
	}
}
