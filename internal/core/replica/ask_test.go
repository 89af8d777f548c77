package replica_test

import (
	"slices"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// asks records whom each round asks.
func (c *cluster) asks(silent ...uint64) *[]uint64 {
	var asked []uint64
	c.drop = func(m *raftpb.Message) bool {
		if m.GetType() == raftpb.MsgHeartbeat && len(m.GetContext()) > 0 {
			asked = append(asked, m.GetTo())
		}
		return slices.Contains(silent, m.GetTo())
	}
	return &asked
}

func TestReplica_ARoundAsksAsManyVotersAsItNeeds(t *testing.T) {
	for size, want := range map[int]int{1: 0, 3: 1, 4: 2, 5: 2} {
		c := newCluster(t, size, nil)
		l := c.leader()
		c.must(l) // the first round of a term asks everyone
		asked := c.asks()
		c.must(l)
		if len(*asked) != want {
			t.Errorf("of %d voters %v were asked, want %d", size, *asked, want)
		}
	}
}

func TestReplica_RoundsInFlightAskDifferentVoters(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.must(l)
	asked := c.asks()
	c.ask(l, 1)
	c.ask(l, 1)
	if a := *asked; len(a) != 2 || a[0] == a[1] {
		t.Fatalf("two rounds asked %v", a)
	}
}

func TestReplica_ASilentVoterDelaysOneRoundByATickAndIsNotAskedAgain(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.must(l)
	asked := c.asks()
	c.must(l)
	silent := (*asked)[0]
	asked = c.asks(silent)
	token := c.ask(l, 1)
	c.settle()
	if got := l.outcome(token); got != "" || (*asked)[0] != silent {
		t.Fatalf("answered %q; asked %v, not the voter that answered last", got, *asked)
	}
	c.tick(1)
	if got := l.outcome(token); got != "ok" {
		t.Fatalf("after a tick: %q", got)
	}
	*asked = nil
	for range 5 {
		c.must(l)
	}
	if slices.Contains(*asked, silent) {
		t.Errorf("the silent voter was asked again: %v", *asked)
	}
	asked = c.asks() // it is back, and a tick tells
	c.tick(1)
	*asked = nil
	c.ask(l, 1)
	c.ask(l, 1)
	if !slices.Contains(*asked, silent) {
		t.Errorf("the voter that is back is not asked: %v", *asked)
	}
}

// isRoundAnswer reports whether m answers a round.
func isRoundAnswer(m *raftpb.Message) bool {
	return m.GetType() == raftpb.MsgHeartbeatResp && len(m.GetContext()) > 0
}

// confirmsDeposed reports whether a leader answers requests that does not know yet that there is
// another one (I4): everyone hears it again, and it hears nothing but answers to its rounds.
func confirmsDeposed(t *testing.T) bool {
	c := newCluster(t, 3, nil)
	old := c.leader()
	c.must(old)
	c.isolate(old.id)
	next := c.leader(old)
	if s := old.Status(); s.Role != raft.StateLeader || s.Term == next.Status().Term {
		t.Fatalf("the old leader: %+v", s)
	}
	c.drop = func(m *raftpb.Message) bool { return m.GetTo() == old.id && !isRoundAnswer(m) }
	token := c.ask(old, 1)
	c.settle()
	return old.outcome(token) == "ok"
}

func TestReplica_OnlyTheTermThatIsAskedForConfirmsARound(t *testing.T) {
	if confirmsDeposed(t) {
		t.Error("a leader that was deposed has answered")
	}
}

// confirmsByNewVoters reports whether, between two configurations, the new voters alone confirm a
// round (I4). The old ones may have elected another leader, as they need not know of the new
// configuration.
func confirmsByNewVoters(t *testing.T) bool {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.tick(20)
	old := []uint64{c.followers(l)[0].id, c.followers(l)[1].id}
	if err := c.change(l, replica.ReplaceMember, old[0], "peer:1"); err != nil {
		t.Fatal(err)
	}
	c.settle()
	c.add(oracle.MemberID(old[0], 1), nil, nil)
	c.drop = func(m *raftpb.Message) bool {
		return l.InJoint() && (m.GetType() == raftpb.MsgAppResp || slices.Contains(old, m.GetFrom()) || slices.Contains(old, m.GetTo()))
	}
	c.greet()
	for range 500 {
		if l.InJoint() {
			token := c.ask(l, 1)
			c.tick(3)
			return l.outcome(token) == "ok"
		}
		c.tick(1)
	}
	t.Fatal("the replacement did not become a voter")
	return false
}

func TestReplica_BothConfigurationsConfirmARound(t *testing.T) {
	if confirmsByNewVoters(t) {
		t.Error("the new voters alone have confirmed a round")
	}
}

// A commit index is never dropped, whatever context the heartbeat has.
func TestReplica_HeartbeatsWithARoundAndACommitIndexReachRaft(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	f := c.followers(l)[0]
	c.tick(1)
	// The follower has an entry that it does not know to be committed.
	var commit uint64
	c.drop = func(m *raftpb.Message) bool {
		commit = max(commit, m.GetCommit())
		return m.GetTo() == f.id && m.GetType() == raftpb.MsgHeartbeat || m.GetTo() == f.id && m.GetType() == raftpb.MsgApp && len(m.GetEntries()) == 0
	}
	for range 200 {
		if c.tick(1); l.Status().Ceiling != f.Status().Ceiling {
			break
		}
	}
	before := f.Status().Ceiling
	if before == l.Status().Ceiling {
		t.Fatal("the follower knows of all commits")
	}
	c.turn(f, &replica.Input{Messages: []*raftpb.Message{{
		Type: raftpb.MsgHeartbeat.Enum(), From: new(l.id), To: new(f.id), Term: new(l.Status().Term),
		Commit: new(commit), Context: []byte("12345678"),
	}}})
	c.settle()
	if f.Status().Ceiling == before {
		t.Error("the commit index was not taken in")
	}
}
