package replica_test

import (
	"slices"
	"testing"

	"github.com/isotone/isotone/internal/core/replica"
)

// Two processes from copies of one directory may both shake hands before either has
// connected.
func TestReplica_AdmitsOneOfTwoClonesThatComeAtOnce(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.tick(100)
	first := c.nodes[l.id%3+1].Hello()
	c.turn(l, &replica.Input{Gone: []uint64{first.NodeID}})
	first.Boot++
	first.Session = 77
	second := first
	second.Session = 78
	if got := l.Admit(first); got != nil {
		t.Fatalf("the first: %v", got)
	}
	if got := l.Admit(second); got == nil || got.Code != replica.RefusedInUse {
		t.Errorf("the second: %v, want in_use", got)
	}
	if got := l.Admit(first); got != nil {
		t.Errorf("the first again: %v", got)
	}
}

func TestReplica_AdmitRefusesWhatIsNotTheMemberItKnows(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*replica.Hello)
		want   replica.RefusalCode
	}{
		"another cluster":    {func(h *replica.Hello) { h.ClusterID = 5 }, replica.RefusedCluster},
		"a wiped directory":  {func(h *replica.Hello) { h.Incarnation, h.ClusterID, h.Boot = 5, 0, 1 }, replica.RefusedWiped},
		"an older start":     {func(h *replica.Hello) { h.Boot = 0 }, replica.RefusedStale},
		"a second process":   {func(h *replica.Hello) { h.Session++ }, replica.RefusedCloned},
		"a shorter log":      {func(h *replica.Hello) { h.Boot, h.Session, h.LastIndex = 2, 9, 3 }, replica.RefusedStale},
		"a stranger":         {func(h *replica.Hello) { h.NodeID = 9 }, replica.RefusedMember},
		"another tick":       {func(h *replica.Hello) { h.TickNanos *= 2 }, replica.RefusedSettings},
		"a slow handshake":   {func(h *replica.Hello) { h.LastIndex = 3 }, ""},
		"a healthy restart":  {func(h *replica.Hello) { h.Boot, h.Session = 2, 9 }, ""},
		"a cluster unnamed":  {func(h *replica.Hello) { h.ClusterID = 0 }, ""},
		"other PEERS at all": {func(h *replica.Hello) { h.ClusterID, h.VotersHash = 5, 4 }, replica.RefusedCluster},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 3, nil)
			l := c.leader()
			c.tick(100)
			f := c.nodes[l.id%3+1]
			h := f.Hello()
			if got := l.Admit(h); got != nil {
				t.Fatalf("a healthy peer: %v", got)
			}
			other := c.nodes[f.id%3+1]
			if other == l {
				other = c.nodes[other.id%3+1]
			}
			tc.change(&h)
			for _, by := range []*node{l, other} {
				c.turn(by, &replica.Input{Gone: []uint64{f.id}})
				var code replica.RefusalCode
				if got := by.Admit(h); got != nil {
					code = got.Code
				}
				if code != tc.want {
					t.Errorf("node %d: %q, want %q", by.id, code, tc.want)
				}
			}
		})
	}
}

func TestReplica_AdmitRefusesALostVote(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	// A transfer makes the followers vote in a new term.
	var voter *node
	before := map[uint64]replica.Hello{}
	for _, n := range c.running() {
		before[n.id] = n.Hello()
	}
	c.turn(l, &replica.Input{Transfer: true})
	c.settle()
	next := c.leader()
	for _, n := range c.running() {
		if n != next && n.Hello().Term > before[n.id].Term {
			voter = n
		}
	}
	h := voter.Hello()
	h.Boot, h.Session, h.Term = h.Boot+1, h.Session+1, before[voter.id].Term
	c.turn(next, &replica.Input{Gone: []uint64{voter.id}})
	if got := next.Admit(h); got == nil || got.Code != replica.RefusedStale {
		t.Errorf("a voter that came back without its vote: %v, want stale", got)
	}
}

// A node that joins dials whoever makes itself known, as it may be the leader, until it knows the members.
func TestReplica_AJoiningNodeDialsWhomItMeets(t *testing.T) {
	c := newCluster(t, 1, nil)
	l := c.leader()
	if err := c.change(l, replica.AddLearner, 2, "peer2:1"); err != nil {
		t.Fatal(err)
	}
	c.settle()
	joiner, other := c.add(2, nil, nil), c.add(3, nil, nil)
	for _, h := range []replica.Hello{l.Hello(), other.Hello()} {
		if refusal := joiner.Admit(h); refusal != nil {
			t.Fatal(refusal)
		}
	}
	dials := func() (ids []uint64) {
		for _, p := range joiner.PeerAddrs(func(uint64) string { return "" }) {
			ids = append(ids, p.ID)
		}
		return ids
	}
	if got := dials(); !slices.Equal(got, []uint64{1, 3}) {
		t.Fatalf("before it knows the members, it dials %v", got)
	}
	c.greet()
	c.tick(50)
	if got := dials(); !slices.Equal(got, []uint64{1}) {
		t.Errorf("once it knows the members, it dials %v", got)
	}
}
