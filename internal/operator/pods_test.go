package operator_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/operator"
)

// wanted returns a set of replicas with these flags.
func wanted(t *testing.T, replicas uint64, ids string, minimum int) operator.Pods {
	t.Helper()
	parsed, err := config.ParseNodeIDs(ids)
	set, ok := operator.NewPods("pod-{ordinal}.svc:1", replicas, minimum, parsed.Of)
	if err != nil || !ok {
		t.Fatal(err, ok)
	}
	return set
}

// membersOf returns connected voters by their IDs, each on the pod with the ordinal before it.
func membersOf(ids ...uint64) (l front.MemberList) {
	for _, id := range ids {
		l.Members = append(l.Members, front.MemberRecord{NodeID: id, Role: "voter", PeerAddr: fmt.Sprintf("pod-%d.svc:1", id-1), Connected: true, Incarnation: "x"})
	}
	return l
}

func TestPods_PlansWhatIsMissingAndTooMany(t *testing.T) {
	learner := func(m front.MemberRecord) front.MemberRecord {
		m.Role, m.Connected = "learner", false
		return m
	}
	for name, tt := range map[string]struct {
		replicas uint64
		ids      string
		change   func(*front.MemberList)
		members  []uint64
		want     string
		blocked  string
		note     string
	}{
		"nothing":            {replicas: 3, members: []uint64{1, 2, 3}},
		"grow":               {replicas: 5, members: []uint64{1, 2, 3}, want: "add 4 pod-3.svc:1, add 5 pod-4.svc:1"},
		"half grown":         {replicas: 5, members: []uint64{1, 2, 3, 5}, want: "add 4 pod-3.svc:1"},
		"shrink":             {replicas: 3, members: []uint64{1, 2, 3, 4, 5}, want: "remove 5, remove 4"},
		"half shrunk":        {replicas: 3, members: []uint64{1, 2, 3, 5}, want: "remove 5"},
		"elsewhere":          {replicas: 3, members: []uint64{1, 2, 3, 9}, change: func(l *front.MemberList) { l.Members[3].PeerAddr = "10.0.0.9:1" }, note: "node 9, at 10.0.0.9:1, is none of these"},
		"elsewhere, similar": {replicas: 3, members: []uint64{1, 2, 3, 9}, change: func(l *front.MemberList) { l.Members[3].PeerAddr = "pod-x.svc:1" }, note: "node 9, at pod-x.svc:1"},
		"moved, and replaced": {replicas: 3, members: []uint64{1, 2, 2, 3}, change: func(l *front.MemberList) {
			l.Members[1].PeerAddr, l.Members[2].Replaces, l.Members[2].Generation = "pod-1.old:1", 2, 1
		}},
		"not registered":               {replicas: 3, members: []uint64{1, 2, 3}, change: func(l *front.MemberList) { l.Members[1].PeerAddr = "" }},
		"other IDs":                    {replicas: 5, ids: "3=104,4=105", members: []uint64{1, 2, 3}, change: func(l *front.MemberList) { l.Removed = []uint64{4, 5} }, want: "add 104 pod-3.svc:1, add 105 pod-4.svc:1"},
		"another ID":                   {replicas: 4, ids: "3=104", members: []uint64{1, 2, 3, 4}, want: "remove 4, add 104 pod-3.svc:1"},
		"a voter stays away":           {replicas: 3, members: []uint64{1, 2, 3, 4}, change: func(l *front.MemberList) { l.Members[1].Connected = false }, want: "remove 4", blocked: "node 2 stays and is not connected"},
		"one that goes does not count": {replicas: 3, members: []uint64{1, 2, 3, 4}, change: func(l *front.MemberList) { l.Members[3].Connected = false }, want: "remove 4"},
		"learners go at once": {replicas: 3, members: []uint64{1, 2, 3, 4, 5}, want: "remove 4, remove 5",
			change: func(l *front.MemberList) { l.Members[3] = learner(l.Members[3]) }},
		"learners only": {replicas: 1, members: []uint64{1, 2}, want: "remove 2", change: func(l *front.MemberList) { l.Members[1], l.Members[0].Connected = learner(l.Members[1]), false }},
		"a replacement": {replicas: 3, members: []uint64{1, 2, 3, 4, 4}, want: "give up 4, remove 4",
			change: func(l *front.MemberList) {
				l.Members[4] = learner(l.Members[4])
				l.Members[4].Generation, l.Members[4].Replaces = 1, 4
			}},
	} {
		t.Run(name, func(t *testing.T) {
			l := membersOf(tt.members...)
			if tt.change != nil {
				tt.change(&l)
			}
			p, err := wanted(t, tt.replicas, tt.ids, 3).Plan(l)
			if err != nil {
				t.Fatal(err)
			}
			var steps []string
			for _, s := range p.Steps {
				switch {
				case s.Change.Action == front.AddMember:
					steps = append(steps, fmt.Sprintf("add %d %s", s.Change.NodeID, s.Change.PeerAddr))
				case s.Change.MemberID>>48 > 0 && strings.Contains(s.What, "given up"):
					steps = append(steps, fmt.Sprintf("give up %d", s.Change.NodeID))
				default:
					steps = append(steps, fmt.Sprintf("remove %d", s.Change.NodeID))
				}
			}
			if got := strings.Join(steps, ", "); got != tt.want || !strings.Contains(p.Blocked, tt.blocked) || (p.Blocked == "") != (tt.blocked == "") {
				t.Errorf("%q, blocked %q", got, p.Blocked)
			}
			if notes := strings.Join(p.Notes, "; "); !strings.Contains(notes, tt.note) || (notes == "") != (tt.note == "") {
				t.Errorf("notes %q", notes)
			}
		})
	}
}

func TestPods_RefusesAsAWhole(t *testing.T) {
	l := membersOf(1, 2, 3)
	if _, err := wanted(t, 2, "", 3).Plan(l); err == nil || !strings.Contains(err.Error(), "of 3 voters 2 would be left, and the minimum is 3") {
		t.Error(err)
	}
	if p, err := wanted(t, 2, "", 2).Plan(l); err != nil || len(p.Steps) != 1 {
		t.Error(p, err)
	}
	moved, strangers := membersOf(1, 2, 3), membersOf(1, 2, 3)
	for i := range 3 {
		strangers.Members[i].NodeID, strangers.Members[i].PeerAddr = uint64(i+7), fmt.Sprintf("127.0.0.1:%d", i+1)
	}
	moved.Members[1].PeerAddr = "pod-1.old:1"
	for want, l := range map[string]front.MemberList{
		"node 2 is on record at pod-1.old:1, and is to be at pod-1.svc:1":   moved,
		"no member is one of these nodes, which are at pod-{ordinal}.svc:1": strangers,
	} {
		if p, err := wanted(t, 5, "", 1).Plan(l); err == nil || !strings.Contains(err.Error(), want) || len(p.Steps) > 0 {
			t.Errorf("%v, %v, want %q", p, err, want)
		}
	}
	l.Removed = []uint64{4}
	l.Members = append(l.Members, membersOf(7).Members...) // to be removed, if all were well
	if _, err := wanted(t, 4, "", 3).Plan(l); err == nil || !strings.Contains(err.Error(), "node 4, at pod-3.svc:1, was removed before, and an ID is used once") {
		t.Error(err)
	}
}
