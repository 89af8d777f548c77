package replica_test

import (
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// TestChange_ALeaderThatIsReplacedGivesWay: killed between the old members and the new, a leader may
// be followed by the one that is on its way out, which does not know yet that the change is
// committed. It adds nothing to its log, and so never serves: it must not keep the leadership
// until it has missed enough reservations.
func TestChange_ALeaderThatIsReplacedGivesWay(t *testing.T) {
	c := newCluster(t, 3, func(cfg *replica.Config) { cfg.ReservationsMissedMax = 1 << 30 })
	first := c.leader()
	old, other := c.nodes[1+first.id%3], c.nodes[1+(first.id+1)%3]
	if err := c.change(first, replica.ReplaceMember, old.id, "peer9:1"); err != nil {
		t.Fatal(err)
	}
	c.settle()
	next, added := oracle.MemberID(old.id, 1), first.Hello().LastIndex
	c.add(next, nil, nil)
	// Nobody but the leader learns that the change is committed, and it dies.
	isVoter := func(m replica.Member) bool { return m.ID == next && !m.Learner }
	joint := uint64(0)
	c.drop = func(m *raftpb.Message) bool {
		for _, e := range m.GetEntries() {
			if e.GetType() == raftpb.EntryConfChangeV2 && e.GetIndex() > added && joint == 0 {
				joint = e.GetIndex()
			}
		}
		return joint > 0 && m.GetCommit() >= joint
	}
	c.greet()
	for range 500 {
		if slices.ContainsFunc(first.Members(), isVoter) {
			break
		}
		c.tick(1)
	}
	if !slices.ContainsFunc(first.Members(), isVoter) || slices.ContainsFunc(other.Members(), isVoter) {
		t.Fatal("the leader has not applied the change, or another member has")
	}
	c.crash(first, true)
	c.drop = func(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgPreVote && m.GetFrom() != old.id }
	c.greet()
	for range 500 {
		if old.Status().Role == raft.StateLeader {
			break
		}
		c.tick(1)
	}
	if old.Status().Role != raft.StateLeader {
		t.Fatal("the member that leaves was not elected")
	}
	c.drop = nil
	for range 60 {
		c.tick(1)
	}
	for _, n := range c.running() {
		if n.Status().Serving {
			c.must(n)
			return
		}
	}
	t.Errorf("nobody serves 60 ticks after the election; node %d: %+v", old.id, old.Status())
}

// leavesInTurns reports whether two members that are to be replaced lead in turns again and again, because each reaches its own next generation and not that of the other.
func leavesInTurns(t *testing.T) bool {
	c := newCluster(t, 3, nil)
	l := c.leader()
	f, away := c.followers(l)[0], c.followers(l)[1]
	next := map[uint64]uint64{}
	for _, n := range []*node{l, f} {
		if err := c.change(l, replica.ReplaceMember, n.id, fmt.Sprintf("next%d:1", n.id)); err != nil {
			t.Fatal(err)
		}
		c.settle()
		next[n.id] = oracle.MemberID(n.id, 1)
		c.add(next[n.id], nil, nil)
	}
	apart := func(a, b uint64) bool {
		return a == away.id || b == away.id || a == l.id && b == next[f.id] || a == f.id && b == next[l.id]
	}
	c.drop = func(m *raftpb.Message) bool { return apart(m.GetFrom(), m.GetTo()) || apart(m.GetTo(), m.GetFrom()) }
	c.greet()
	terms := map[uint64]bool{}
	for range 2500 {
		c.tick(1)
		for _, n := range c.running() {
			if s := n.Status(); s.Serving {
				terms[s.Term] = true
			}
		}
	}
	if len(terms) == 1 {
		t.Fatal("no leader has given way to be replaced")
	}
	return len(terms) > 8
}

func TestChange_LeadersThatAreReplacedDoNotLeadInTurns(t *testing.T) {
	if leavesInTurns(t) {
		t.Error("two leaders transfer the leadership to each other again and again")
	}
}
