package node_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/core/timeline"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/node"
)

func withTimelines(cfg *node.Config) { cfg.Timelines = true }

// ask asks a node for timestamps of a timeline.
func ask(n *node.Node, timeline string, count uint64) (isotone.Range, error) {
	return askIn(isotone.ReadQuorum, n, timeline, count)
}

func askIn(mode isotone.ReadMode, n *node.Node, timeline string, count uint64) (isotone.Range, error) {
	done := make(chan *front.Batch, 1)
	n.Submit(&front.Batch{Mode: mode, Timeline: timeline, Counts: []uint64{count}, Ranges: make([]isotone.Range, 1), Done: func(b *front.Batch) { done <- b }})
	b := <-done
	return b.Ranges[0], b.Err
}

// tenant is a cluster whose timelines a test changes by its leader, whichever that is.
type tenant struct {
	*cluster
	t *testing.T
}

func newTenant(t *testing.T) tenant { return tenant{newCluster(t, 3, withTimelines), t} }

// lead has the leader do something, again while there is none, or it does not know the time yet.
func (c tenant) lead(do func(*node.Node) error) error {
	for {
		err := do(c.nodes[c.leader()])
		if !errors.Is(err, isotone.ErrNotLeader) && !errors.Is(err, isotone.ErrNoLeader) && !errors.Is(err, isotone.ErrClock) {
			return err
		}
	}
}

func (c tenant) change(change front.TimelineChange) error {
	return c.lead(func(n *node.Node) error {
		ctx, cancel := context.WithTimeout(c.t.Context(), liveness)
		defer cancel()
		_, err := n.ChangeTimelines(ctx, change)
		return err
	})
}

func (c tenant) must(change front.TimelineChange) {
	c.t.Helper()
	if err := c.change(change); err != nil {
		c.t.Fatalf("%+v: %v", change, err)
	}
}

func (c tenant) refused(change front.TimelineChange, code *isotone.Error, words string) {
	c.t.Helper()
	if err := c.change(change); !errors.Is(err, code) || !strings.Contains(err.Error(), words) {
		c.t.Errorf("%+v: %v, want %s with %q", change, err, code.Code, words)
	}
}

func (c tenant) list(prefix, after string, limit int) (l front.TimelineList) {
	c.t.Helper()
	if err := c.lead(func(n *node.Node) (err error) { l, err = n.Timelines(prefix, after, limit); return err }); err != nil {
		c.t.Fatal(err)
	}
	return l
}

func (c tenant) next(timeline string) (r isotone.Range, err error) {
	err = c.lead(func(n *node.Node) (err error) { r, err = ask(n, timeline, 2); return err })
	return r, err
}

func of(action string, names ...string) front.TimelineChange {
	return front.TimelineChange{Action: action, Names: names}
}

func TestTimelines_LiveAsOperatorsSay(t *testing.T) {
	c := newTenant(t)
	c.must(of(front.CreateTimelines, "b", "a/1", "a/2"))
	c.refused(of(front.CreateTimelines, "a/1"), isotone.ErrInvalidArgument, `the timeline "a/1" exists`)
	c.refused(of(front.CreateTimelines, "new", "b", "b"), isotone.ErrInvalidArgument, `1 of 3 were created; the timeline "b" exists`)
	if l := c.list("a/", "", 1); l.Total != 4 || len(l.Timelines) != 1 || l.Timelines[0].Name != "a/1" || l.After != "a/1" {
		t.Errorf("the first page: %+v", l)
	}
	if l := c.list("a/", "a/1", 1); len(l.Timelines) != 1 || l.Timelines[0].Name != "a/2" || l.After != "" {
		t.Errorf("the last page: %+v", l)
	}
	first, err := c.next("b")
	if err != nil || first.Count != 2 {
		t.Fatalf("%v, %v", first, err)
	}
	old := c.list("b", "", 1).Timelines[0]
	if old.NodeID == 0 || old.Addr != fmt.Sprintf("client%d:1", old.NodeID) {
		t.Errorf("a timeline that answers is owned by %+v", old)
	}

	stale := of(front.DeleteTimeline, "b")
	stale.ID = old.ID
	c.must(stale)
	c.refused(stale, isotone.ErrNotFound, `no timeline "b"`)
	if _, err := c.next("b"); !errors.Is(err, isotone.ErrNotFound) || !strings.Contains(err.Error(), "isotone timeline create b") {
		t.Errorf("deleted: %v", err)
	}
	c.must(of(front.CreateTimelines, "b"))
	c.refused(stale, isotone.ErrNotFound, "another ID") // the one that came after is not meant
	stale.Action = front.SealTimeline
	c.refused(stale, isotone.ErrNotFound, "another ID")
	second, err := c.next("b")
	if err != nil || !first.Last().Before(second.First) {
		t.Errorf("created again: %v after %v, %v", second, first, err)
	}

	c.must(of(front.SealTimeline, "b"))
	c.refused(of(front.SealTimeline, "b"), isotone.ErrInvalidArgument, "is sealed")
	if _, err := c.next("b"); !errors.Is(err, isotone.ErrNotFound) || !strings.Contains(err.Error(), "sealed") {
		t.Errorf("sealed: %v", err)
	}
	if r := c.list("b", "", 1).Timelines[0]; !r.Sealed || r.Bound <= second.Last().Time {
		t.Errorf("a sealed timeline whose last timestamp is %v: %+v", second.Last(), r)
	}
}

func TestTimelines_GroupsAreMadeAndDropped(t *testing.T) {
	c := newTenant(t)
	group := func(action, name string) front.TimelineChange {
		return front.TimelineChange{Action: action, Group: name}
	}
	c.must(of(front.CreateTimelines, "a"))
	move := of(front.MoveTimeline, "a")
	move.Group = "eu"
	c.refused(move, isotone.ErrNotFound, `no group "eu"`)
	c.must(group(front.MakeGroup, "eu"))
	c.must(group(front.MakeGroup, "eu"))
	first, err := c.next("a")
	if err != nil {
		t.Fatal(err)
	}
	c.must(move)
	if second, err := c.next("a"); err != nil || !first.Last().Before(second.First) {
		t.Errorf("moved: %v after %v, %v", second, first, err)
	}
	c.refused(group(front.DropGroup, "eu"), isotone.ErrInvalidArgument, "has timelines")
	c.refused(group(front.DropGroup, "h001"), isotone.ErrInvalidArgument, "which stay")
	c.refused(group(front.DropGroup, "us"), isotone.ErrNotFound, `no group "us"`)
	var l front.GroupList
	if err := c.lead(func(n *node.Node) (err error) { l, err = n.Groups(); return err }); err != nil {
		t.Fatal(err)
	}
	if g := l.Groups[0]; g.Name != "eu" || g.Timelines != 1 || g.Addr != fmt.Sprintf("client%d:1", g.NodeID) || g.Grant == 0 {
		t.Errorf("%+v", g)
	}
	c.must(of(front.DeleteTimeline, "a"))
	c.must(group(front.DropGroup, "eu"))
	create := of(front.CreateTimelines, "x", "y")
	create.Group = "eu"
	c.refused(create, isotone.ErrNotFound, `0 of 2 were created; there is no group "eu"`)
}

func TestTimelines_BadChangesAreRefused(t *testing.T) {
	c := newTenant(t)
	many := make([]string, front.TimelinesAtOnce+1)
	for i := range many {
		many[i] = fmt.Sprintf("many/%d", i)
	}
	c.must(of(front.CreateTimelines, many[1:]...))
	soon := fmt.Sprint(time.Now().UnixNano())
	far := fmt.Sprint(time.Now().Add(48 * time.Hour).UnixNano())
	for _, tt := range []struct {
		change front.TimelineChange
		words  string
	}{
		{front.TimelineChange{}, "action: want create"},
		{of("rename", "a"), "action: want create"},
		{of(front.CreateTimelines), "want 1 to 256"},
		{of(front.CreateTimelines, many...), "want 1 to 256"},
		{of(front.CreateTimelines, many[1:]...), "and so on, 256 in all"},
		{of(front.CreateTimelines, ""), "a name of 0 bytes"},
		{of(front.CreateTimelines, "a b"), "letters, digits"},
		{of(front.CreateTimelines, strings.Repeat("a", 65)), "a name of 65 bytes"},
		{front.TimelineChange{Action: front.CreateTimelines, Names: []string{"a"}, ID: 5}, "id: create"},
		{front.TimelineChange{Action: front.CreateTimelines, Names: []string{"a"}, Group: "a b"}, "group: "},
		{front.TimelineChange{Action: front.CreateTimelines, Names: []string{"a"}, Time: far}, "use force"},
		{of(front.DeleteTimeline), "takes one timeline"},
		{of(front.DeleteTimeline, "a", "b"), "takes one timeline"},
		{front.TimelineChange{Action: front.DeleteTimeline, Names: []string{"a"}, Group: "eu"}, "group: delete takes none"},
		{front.TimelineChange{Action: front.SealTimeline, Names: []string{"a"}, Time: soon}, "seal takes neither"},
		{front.TimelineChange{Action: front.SealTimeline, Names: []string{"a"}, Force: true}, "seal takes neither"},
		{of(front.MoveTimeline, "a"), "group: move needs"},
		{of(front.RaiseTimeline, "a"), "time: want"},
		{front.TimelineChange{Action: front.RaiseTimeline, Names: []string{"many/1"}, Time: "soon"}, "time: "},
		{front.TimelineChange{Action: front.RaiseTimeline, Names: []string{"many/1"}, Time: far}, "use force"},
		{front.TimelineChange{Action: front.MakeGroup}, "group: make needs"},
		{front.TimelineChange{Action: front.MakeGroup, Group: "eu", Names: []string{"a"}}, "is about a group"},
		{front.TimelineChange{Action: front.DropGroup, Group: "eu", ID: 5}, "id: drop"},
		{front.TimelineChange{Action: front.PreferNodes, Group: "eu", Prefer: []uint64{9}}, "node 9 is no member"},
		{front.TimelineChange{Action: front.PreferNodes, Group: "eu", Prefer: []uint64{1, 2, 3, 1, 2, 3, 1, 2, 3}}, "at most 8"},
		{front.TimelineChange{Action: front.GrantGroup, Group: "eu", NodeID: 1, Prefer: []uint64{1}}, "prefer: grant takes none"},
		{front.TimelineChange{Action: front.SealTimeline, Names: []string{"a"}, Quota: front.TimelineQuota{Requests: 1}}, "quota: seal takes none"},
		{front.TimelineChange{Action: front.LimitTimeline, Names: []string{"a"}, Quota: front.TimelineQuota{Requests: 1e12}}, "quota: a rate is at most"},
	} {
		c.refused(tt.change, isotone.ErrInvalidArgument, tt.words)
	}
	if l := c.list("", "", 1); l.Total != front.TimelinesAtOnce {
		t.Errorf("%d timelines", l.Total)
	}
}

func TestTimelines_AFloorCountsForOne(t *testing.T) {
	c := newTenant(t)
	c.must(of(front.CreateTimelines, "a", "b"))
	ahead := uint64(time.Now().Add(time.Hour).UnixNano())
	floor := of(front.RaiseTimeline, "a")
	floor.Time = fmt.Sprint(ahead)
	for range 2 { // also repeated
		c.must(floor)
		if r, err := c.next("a"); err != nil || r.First.Time <= ahead {
			t.Errorf("above %d: %v, %v", ahead, r, err)
		}
	}
	for _, other := range []string{"b", ""} {
		if r, err := c.next(other); err != nil || r.First.Time >= ahead {
			t.Errorf("the floor of another timeline moves %q: %v, %v", other, r, err)
		}
	}
}

func TestTimelines_OnlyTheLeaderKnows(t *testing.T) {
	c := newTenant(t)
	c.must(of(front.CreateTimelines, "a"))
	for asked := false; !asked; { // again if the leadership moves
		leader := c.leader()
		n := c.nodes[leader%3+1]
		_, change := n.ChangeTimelines(t.Context(), of(front.CreateTimelines, "b"))
		_, list := n.Timelines("", "", 1)
		_, groups := n.Groups()
		asked = c.leader() == leader
		for what, err := range map[string]error{"a change": change, "a list": list, "groups": groups} {
			var e *isotone.Error
			if asked && (!errors.As(err, &e) || e.Code != isotone.CodeNotLeader || e.Leader != fmt.Sprintf("client%d:1", leader)) {
				t.Errorf("%s of a follower: %v", what, err)
			}
		}
	}
}

// TestTimelines_AreAnsweredByTheirOwner: the node that is granted their group, until it is gone.
func TestTimelines_AreAnsweredByTheirOwner(t *testing.T) {
	c := newTenant(t)
	c.must(of(front.CreateTimelines, "orders"))
	last, err := c.next("orders")
	if err != nil {
		t.Fatal(err)
	}
	above := func(by uint64, r isotone.Range, err error) bool {
		if err == nil && !last.Last().Before(r.First) {
			t.Errorf("node %d issues %v after %v", by, r, last)
		}
		if err == nil {
			last = r
		}
		return err == nil
	}
	group := c.list("", "", 1).Timelines[0].Group
	c.refused(front.TimelineChange{Action: front.GrantGroup, Group: group, NodeID: 9}, isotone.ErrInvalidArgument, "node 9 is no member")
	c.refused(front.TimelineChange{Action: front.GrantGroup, Group: group}, isotone.ErrInvalidArgument, "nodeID")
	c.refused(front.TimelineChange{Action: front.GrantGroup, Group: "none", NodeID: 1}, isotone.ErrNotFound, "no group")
	for owner := range uint64(3) {
		owner++
		await.Until(t, fmt.Sprintf("node %d owns the group and answers", owner), func() bool {
			_ = c.change(front.TimelineChange{Action: front.GrantGroup, Group: group, NodeID: owner}) // a busy node may seem to be gone
			r, err := ask(c.nodes[owner], "orders", 3)
			return above(owner, r, err)
		})
		for id, n := range c.nodes {
			await.Until(t, fmt.Sprintf("node %d tells that node %d owns the group", id, owner), func() bool {
				told := n.Status().SlotOwners
				state, _ := n.Timeline("orders")
				return told != nil && told[timeline.Slot("orders")/(timeline.Slots/timeline.SlotGroups)] == owner && state.NodeID == owner
			})
		}
	}
	if err := c.stop(3); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "another node answers", func() bool {
		r, err := c.next("orders")
		return above(0, r, err)
	})
}

// TestTimelines_OwnersAnswerByLeases where operators allow that, and give it up at once where they end it.
func TestTimelines_OwnersAnswerByLeases(t *testing.T) {
	c := newTenant(t)
	c.must(of(front.CreateTimelines, "orders"))
	group := front.TimelineChange{Group: c.list("", "", 1).Timelines[0].Group}
	act := func(action string, node uint64) front.TimelineChange {
		group.Action, group.NodeID = action, node
		return group
	}
	served := func(id uint64) float64 { return series(c.cluster, id)[`lease_requests_total{answered_by="lease"}`] }
	last := isotone.Timestamp{}
	await.Until(t, "an owner that does not lead answers by a lease", func() bool {
		leader := c.leader()
		owner := leader%3 + 1
		c.must(act(front.LeaseGroup, 0)) // also where that is so already
		before := served(owner)
		r, err := askIn(isotone.ReadLease, c.nodes[owner], "orders", 3)
		if err != nil {
			_ = c.change(act(front.GrantGroup, owner))
			return false
		}
		if !last.Before(r.First) {
			t.Errorf("node %d issues %v after %v", owner, r, last)
		}
		last = r.Last()
		return served(owner) > before && c.leader() == leader
	})
	c.refused(of(front.SealTimeline, "orders"), isotone.ErrInvalidArgument, "isotone group lease GROUP off")
	c.must(act(front.UnleaseGroup, 0))
	c.must(act(front.UnleaseGroup, 0))
	c.must(of(front.SealTimeline, "orders"))
}

// TestTimelines_LeaveANodeThatDrains before it ends, and others answer.
func TestTimelines_LeaveANodeThatDrains(t *testing.T) {
	c := tenant{newCluster(t, 3, func(cfg *node.Config) { cfg.Timelines, cfg.GroupSettle = true, 20*cfg.Tick }), t}
	var names []string
	for i := range 12 {
		names = append(names, fmt.Sprint("orders-", i))
	}
	c.must(of(front.CreateTimelines, names...))
	leaving := uint64(0)
	await.Until(t, "a follower owns groups", func() bool {
		leaving = c.leader()%3 + 1
		return c.nodes[leaving].GroupsToLeave() > 0
	})
	await.Until(t, "a leader has none to leave", func() bool { return c.nodes[c.leader()].GroupsToLeave() == 0 })
	c.nodes[leaving].Drain()
	await.Until(t, "it owns none", func() bool { return c.nodes[leaving].GroupsToLeave() == 0 })
	for _, name := range names {
		await.Until(t, "another node answers for "+name, func() bool {
			for id, n := range c.nodes {
				if _, err := ask(n, name, 1); err == nil && id != leaving {
					return true
				}
			}
			return false
		})
	}
}

// TestTimelines_GoToTheNodesThatTheyPrefer: at once to the first, and to the second if that is gone.
func TestTimelines_GoToTheNodesThatTheyPrefer(t *testing.T) {
	c := tenant{newCluster(t, 3, func(cfg *node.Config) { cfg.Timelines, cfg.GroupSettle = true, 20*cfg.Tick }), t}
	c.leader()
	c.must(front.TimelineChange{Action: front.MakeGroup, Group: "eu"})
	c.refused(front.TimelineChange{Action: front.PreferNodes, Group: "eX", Prefer: []uint64{1}}, isotone.ErrNotFound, `no group "eX"`)
	orders := of(front.CreateTimelines, "orders")
	orders.Group = "eu"
	c.must(orders)
	group := func() (r front.GroupRecord) {
		if err := c.lead(func(n *node.Node) error {
			l, err := n.Groups()
			if i := slices.IndexFunc(l.Groups, func(r front.GroupRecord) bool { return r.Name == "eu" }); err == nil {
				r = l.Groups[i]
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, order := range [][]uint64{{3, 1}, {1, 2}, {2, 3}} {
		c.must(front.TimelineChange{Action: front.PreferNodes, Group: "eu", Prefer: order})
		c.must(front.TimelineChange{Action: front.MakeGroup, Group: "eu"}) // which exists, and keeps them
		if got := group().Prefer; !slices.Equal(got, order) {
			t.Errorf("the group prefers %v, want %v", got, order)
		}
		await.Until(t, fmt.Sprintf("node %d owns the group and answers", order[0]), func() bool {
			_, err := ask(c.nodes[order[0]], "orders", 3)
			return err == nil
		})
	}
	if err := c.stop(2); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "node 3 answers", func() bool {
		_, err := ask(c.nodes[3], "orders", 3)
		return err == nil
	})
	c.must(front.TimelineChange{Action: front.PreferNodes, Group: "eu"})
	if got := group().Prefer; len(got) > 0 {
		t.Errorf("the group prefers %v still", got)
	}
}

// TestTimelines_QuotasCountAtTheOwner, for each timeline by itself.
func TestTimelines_QuotasCountAtTheOwner(t *testing.T) {
	c := newTenant(t)
	c.must(front.TimelineChange{Action: front.MakeGroup, Group: "both"})
	small, free := of(front.CreateTimelines, "small"), of(front.CreateTimelines, "free")
	small.Group, free.Group, small.Quota.Timestamps = "both", "both", 1
	c.must(small)
	c.must(free)
	owner := func() uint64 {
		l := c.list("small", "", 1)
		return l.Timelines[0].NodeID
	}
	next := func(name string, count uint64) error {
		return c.lead(func(*node.Node) error {
			id := owner()
			if id == 0 {
				return isotone.ErrNoLeader
			}
			_, err := ask(c.nodes[id], name, count)
			return err
		})
	}
	if err := next("small", 100_000); err != nil { // a day's worth: one that exceeds the quota is served, and used up for long
		t.Fatal(err)
	}
	err := next("small", 1)
	var e *isotone.Error
	if !errors.As(err, &e) || e.Code != isotone.CodeQuotaExceeded || e.RetryAfter < time.Hour || !strings.Contains(e.Message, `"small" has a quota of 1 timestamps`) {
		t.Fatalf("beyond its quota: %v", err)
	}
	for id := range uint64(3) {
		if _, err := ask(c.nodes[id+1], "small", 1); id+1 != owner() && errors.Is(err, isotone.ErrQuotaExceeded) {
			t.Errorf("node %d, which does not own the timeline, refuses by its quota", id+1)
		}
	}
	if err := next("free", 100_000); err != nil {
		t.Errorf("another timeline of the owner: %v", err)
	}
	if r := c.list("small", "", 1).Timelines[0]; r.Quota != (front.TimelineQuota{Timestamps: 1}) {
		t.Errorf("its record: %+v", r)
	}
	c.must(of(front.LimitTimeline, "small")) // none
	if err := next("small", 1); err != nil {
		t.Errorf("without a quota: %v", err)
	}
}

func TestTimelines_NobodyChangesThemWithoutTheSetting(t *testing.T) {
	c := newCluster(t, 1, nil)
	n := c.nodes[c.leader()]
	if _, err := n.ChangeTimelines(t.Context(), of(front.CreateTimelines, "a")); !errors.Is(err, isotone.ErrInvalidArgument) || !strings.Contains(err.Error(), "TIMELINES=1") {
		t.Errorf("a change: %v", err)
	}
	if _, err := ask(n, "a", 1); !errors.Is(err, isotone.ErrNotFound) {
		t.Errorf("a timestamp: %v", err)
	}
}

// TestTimelines_AreForwarded by nodes that do not own them, also of which they do not know that they exist.
func TestTimelines_AreForwarded(t *testing.T) {
	c := tenant{newCluster(t, 3, func(cfg *node.Config) {
		cfg.Timelines, cfg.Loops = true, 2
		cfg.Forward = func(wake func()) node.Forwarder { return &elsewhere{wake: wake} }
	}), t}
	c.must(of(front.CreateTimelines, "a"))
	owner := func() uint64 { return c.list("a", "", 1).Timelines[0].NodeID }
	for name, has := range map[string]func() uint64{"a": owner, "nothing": c.leader} { // the leader says that there is none
		for asked := false; !asked; {
			at := has()
			r, err := ask(c.nodes[at%3+1], name, 1)
			if asked = at != 0 && has() == at; asked && (err != nil || r.First.Time != 1) {
				t.Errorf("another node, of timeline %s: %v, %v", name, r, err)
			}
		}
	}
	if r, err := c.next("a"); err != nil || r.First.Time == 1 {
		t.Errorf("the leader: %v, %v", r, err)
	}
	if _, err := c.next("nothing"); !errors.Is(err, isotone.ErrNotFound) {
		t.Errorf("the leader, of a timeline that there is not: %v", err)
	}
}
