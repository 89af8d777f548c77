package replica_test

import (
	"slices"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// ledBy1 returns a cluster of n nodes that has run for a while and that node 1 leads.
func ledBy1(t *testing.T, n int) (*cluster, *node) {
	t.Helper()
	c := newCluster(t, n, nil)
	c.lead(1)
	c.tick(30)
	return c, c.nodes[1]
}

// lead has a node lead.
func (c *cluster) lead(id uint64) {
	c.t.Helper()
	if l := c.leader(); l.id != id {
		c.tick(1)
		c.turn(l, &replica.Input{Transfer: true, TransferTo: id})
		c.settle()
	}
	if !c.nodes[id].Status().Serving {
		c.t.Fatalf("node %d does not lead", id)
	}
}

// kill ends the process of a node. The others do not notice.
func (c *cluster) kill(id uint64) {
	n := c.nodes[id]
	n.down, n.inbox, n.hellos, n.flying = true, nil, nil, nil
}

// refuse tells nodes that their connection to another has ended and that its address refuses new
// ones.
func (c *cluster) refuse(id uint64, at ...*node) {
	for _, n := range at {
		c.turn(n, &replica.Input{Gone: []uint64{id}, Refused: []uint64{id}})
	}
}

// tickOnly lets ticks pass on some nodes only.
func (c *cluster) tickOnly(count int, nodes ...*node) {
	for range count {
		c.mono += tick
		for _, n := range nodes {
			c.turn(n, &replica.Input{Ticks: 1})
		}
		c.settle()
	}
}

// notesVotes has the returned function report whether a node has asked for votes or pre-votes since it
// was last called.
func (c *cluster) notesVotes(id uint64) func() bool {
	asked := false
	c.drop = func(m *raftpb.Message) bool {
		asked = asked || m.GetFrom() == id && (m.GetType() == raftpb.MsgPreVote || m.GetType() == raftpb.MsgVote)
		return false
	}
	return func() bool {
		was := asked
		asked = false
		return was
	}
}

// wantLeader expects a node to serve in a term.
func (c *cluster) wantLeader(id, term uint64) {
	c.t.Helper()
	if got := c.nodes[id].Status(); !got.Serving || got.Term != term {
		c.t.Errorf("node %d is %v in term %d, serving: %v; want a leader that serves in term %d", id, got.Role, got.Term, got.Serving, term)
	}
}

func TestSuccession_TheFirstInRankLeadsWithoutATick(t *testing.T) {
	c, l := ledBy1(t, 3)
	before, term := c.must(l), l.Status().Term
	c.kill(1)
	c.refuse(1, c.nodes[3], c.nodes[2])
	c.settle()
	c.wantLeader(2, term+1)
	if after := c.must(c.nodes[2]); !before.Before(after) {
		t.Errorf("I2: %v after %v", after, before)
	}
}

// TestSuccession_TwoWritesOneAfterTheOther counts what takes long between the death of a leader
// and the next answer.
func TestSuccession_TwoWritesOneAfterTheOther(t *testing.T) {
	c, l := ledBy1(t, 3)
	term := l.Status().Term
	var first *raftpb.Message
	c.drop = func(m *raftpb.Message) bool {
		if first == nil && m.GetType() == raftpb.MsgApp && m.GetTerm() == term+1 {
			first = m
		}
		return false
	}
	for _, n := range c.nodes {
		n.stalled = true
	}
	c.kill(1)
	c.refuse(1, c.nodes[2], c.nodes[3])
	c.settle()
	var token uint64
	writes := 0
	for ; writes < 10 && (token == 0 || c.nodes[2].outcome(token) == ""); writes++ {
		for _, n := range c.followers(l) { // what is under way on both ends at the same time
			if w := n.flying; w != nil {
				n.disk.save(w)
				n.flying = nil
				c.turn(n, &replica.Input{Persisted: w})
			}
		}
		c.settle()
		if token == 0 && c.nodes[2].Status().Role == raft.StateLeader {
			token = c.ask(c.nodes[2], 1)
		}
	}
	if writes != 2 || token == 0 || c.nodes[2].outcome(token) != "ok" {
		t.Errorf("%d writes before the answer; want 2: the candidate's term beside the voter's vote, and the reservation", writes)
	}
	if !carriesReservation(first) {
		t.Errorf("the first append has %v; want the entry that opens the term, and the reservation", first.GetEntries())
	}
}

func TestSuccession_EachFurtherRankWaitsTwoTicks(t *testing.T) {
	c, _ := ledBy1(t, 3)
	c.kill(1)
	asks := c.notesVotes(3)
	c.refuse(1, c.nodes[3]) // node 2 campaigns before it, and has not noticed
	if c.tickOnly(1, c.nodes[3]); asks() {
		t.Error("node 3 asks for votes after a tick: want it to leave two to node 2")
	}
	if c.tickOnly(1, c.nodes[3]); !asks() {
		t.Error("node 3 does not ask for votes after two ticks")
	}
}

func TestSuccession_WhoIsNotConnectedHasNoRank(t *testing.T) {
	c, l := ledBy1(t, 5)
	term := l.Status().Term
	c.kill(1)
	c.kill(2)
	c.refuse(2, c.followers(l)...)
	c.refuse(1, c.followers(l)...)
	c.settle()
	c.wantLeader(3, term+1)
	c.must(c.nodes[3])
}

// TestSuccession_OneThatOnlySeemsConnectedCostsTwoTicks: of five nodes two have died, and the
// machine of one of them with it, so that nobody refuses connections for it.
func TestSuccession_OneThatOnlySeemsConnectedCostsTwoTicks(t *testing.T) {
	c, l := ledBy1(t, 5)
	term := l.Status().Term
	c.kill(1)
	c.kill(2)
	c.refuse(1, c.followers(l)...)
	c.tick(2)
	c.wantLeader(3, term+1)
}

// TestSuccession_TheLongerLogLeadsAtOnce: node 2 campaigns first, but lacks an entry of node 3.
func TestSuccession_TheLongerLogLeadsAtOnce(t *testing.T) {
	c, l := ledBy1(t, 3)
	term := l.Status().Term
	c.drop = func(m *raftpb.Message) bool { return m.GetTo() == 2 && m.GetType() == raftpb.MsgApp }
	c.turn(l, &replica.Input{Reserve: true})
	c.settle()
	c.drop = nil
	c.kill(1)
	c.refuse(1, c.nodes[2], c.nodes[3])
	c.settle()
	c.wantLeader(3, term+1)
}

// TestSuccession_AVoterWithALeaderHoldsARequest, and answers it as soon as it has none.
func TestSuccession_AVoterWithALeaderHoldsARequest(t *testing.T) {
	c, l := ledBy1(t, 3)
	term := l.Status().Term
	c.kill(1)
	c.refuse(1, c.nodes[3])
	c.tickOnly(3, c.nodes[3])
	if two, three := c.nodes[2], c.nodes[3].Status(); two.Status().Leader != 1 || !slices.Contains(two.HeldVotes(), 3) || three.Role != raft.StatePreCandidate {
		t.Fatalf("node 2 follows %d and holds requests of %d, node 3 is %v", two.Status().Leader, two.HeldVotes(), three.Role)
	}
	c.refuse(1, c.nodes[2])
	c.settle()
	c.wantLeader(3, term+1)
}

// TestSuccession_ALateRequestMakesNobodyStand: it is refused for its term, not because the
// candidate lacks entries.
func TestSuccession_ALateRequestMakesNobodyStand(t *testing.T) {
	c, l := ledBy1(t, 3)
	term := l.Status().Term
	c.kill(1)
	c.nodes[2].stalled = true
	c.refuse(1, c.nodes[2], c.nodes[3])
	c.settle()
	campaigns := c.notesVotes(3)
	for late := range term {
		c.turn(c.nodes[3], &replica.Input{Messages: []*raftpb.Message{voteRequest(raftpb.MsgPreVote, 2, 3, late+1)}})
	}
	if campaigns() {
		t.Error("node 3 campaigns against the candidate that it has granted a pre-vote")
	}
}

// TestSuccession_AVoterLeavesACandidateTime: the candidate's disk is slow.
func TestSuccession_AVoterLeavesACandidateTime(t *testing.T) {
	c, l := ledBy1(t, 3)
	term := l.Status().Term
	c.kill(1)
	asks := c.notesVotes(3)
	c.nodes[2].stalled = true
	c.refuse(1, c.nodes[2], c.nodes[3])
	c.settle()
	c.tick(19)
	if asks() {
		t.Error("node 3 asks for votes within 20 ticks after it granted a pre-vote")
	}
	c.nodes[2].stalled = false
	c.settle()
	c.wantLeader(2, term+1)
}

// TestSuccession_ACandidateWaitsForItsDisk: its election timeout begins with the write.
func TestSuccession_ACandidateWaitsForItsDisk(t *testing.T) {
	c, l := ledBy1(t, 3)
	term := l.Status().Term
	c.kill(1)
	c.nodes[2].stalled = true
	c.refuse(1, c.nodes[2], c.nodes[3])
	c.settle()
	c.tickOnly(100, c.nodes[2])
	if got := c.nodes[2].Status(); got.Role != raft.StateCandidate || got.Term != term+1 {
		t.Errorf("%v in term %d, want a candidate in term %d", got.Role, got.Term, term+1)
	}
	c.nodes[2].stalled = false
	c.settle()
	c.wantLeader(2, term+1)
}

// TestSuccession_AnotherLeadsBesideADiskThatHangs: a candidate whose disk hangs delays the others
// by the time that they leave it, not for ever.
func TestSuccession_AnotherLeadsBesideADiskThatHangs(t *testing.T) {
	c, _ := ledBy1(t, 5)
	c.kill(1)
	c.nodes[2].stalled = true
	c.refuse(1, c.nodes[2], c.nodes[3], c.nodes[4], c.nodes[5])
	c.settle()
	c.leader() // three of five are left, so a split of their votes costs an election timeout
}

// TestSuccession_SplitVotesCostNoElectionTimeout: both candidates have voted for themselves.
func TestSuccession_SplitVotesCostNoElectionTimeout(t *testing.T) {
	c, l := ledBy1(t, 3)
	term := l.Status().Term
	c.kill(1)
	c.refuse(1, c.nodes[3])
	for range 2 {
		c.turn(c.nodes[3], &replica.Input{Ticks: 1}) // its requests are slow
	}
	c.refuse(1, c.nodes[2])
	split := false
	c.drop = func(m *raftpb.Message) bool {
		split = split || m.GetType() == raftpb.MsgVoteResp && m.GetReject()
		return false
	}
	c.settle()
	if !split {
		t.Fatal("the votes were not split")
	}
	c.tick(2)
	c.wantLeader(2, term+2)
}

// TestSuccession_RanksCountFromTheEndOfThePromise: all promises end at the same time, however long
// before the followers have forgotten the leader.
func TestSuccession_RanksCountFromTheEndOfThePromise(t *testing.T) {
	c, l := ledBy1(t, 3)
	term := l.Status().Term
	c.askMode(l, isotone.ReadLease, 1)
	c.settle()
	c.tick(1)
	c.kill(1)
	c.refuse(1, c.nodes[2], c.nodes[3])
	c.tick(9)
	if got := c.nodes[2].Status(); got.Role != raft.StateFollower {
		t.Errorf("%v while its promise lasts", got.Role)
	}
	c.tick(1)
	c.wantLeader(2, term+1)
}

// TestSuccession_OneFollowerDeposesNobody: it alone finds that the leader's address refuses
// connections, and hears nothing of the leader.
func TestSuccession_OneFollowerDeposesNobody(t *testing.T) {
	c, l := ledBy1(t, 3)
	term := l.Status().Term
	c.drop = func(m *raftpb.Message) bool { return m.GetFrom() == 1 && m.GetTo() == 3 }
	c.refuse(1, c.nodes[3])
	c.tick(500)
	c.wantLeader(1, term)
	if got := c.nodes[3].Status(); got.Role != raft.StatePreCandidate || got.Term != term {
		t.Errorf("node 3 is %v in term %d, want a pre-candidate in term %d", got.Role, got.Term, term)
	}
	c.drop = nil
	c.tick(1)
	c.wantLeader(1, term)
	if got := c.nodes[3].Status(); got.Leader != 1 || got.Term != term {
		t.Errorf("node 3 follows %d in term %d", got.Leader, got.Term)
	}
}

func TestSuccession_ALeaderThatIsSilentFor9TicksKeepsTheLead(t *testing.T) {
	c, l := ledBy1(t, 3)
	term, others := l.Status().Term, c.followers(l)
	c.tickOnly(9, others...)
	c.tickOnly(1, l)
	c.tick(50)
	c.wantLeader(1, term)
	for _, n := range others {
		if got := n.Status().Counters.LeadersForgotten; got != 0 {
			t.Errorf("node %d has forgotten %d leaders", n.id, got)
		}
	}
}

func TestSuccession_ALeaderThatIsSilentFor10TicksIsReplaced(t *testing.T) {
	c, l := ledBy1(t, 3)
	term, others := l.Status().Term, c.followers(l)
	c.tickOnly(10, others...)
	c.wantLeader(2, term+1)
	for _, n := range others {
		if got := n.Status().Counters.LeadersForgotten; got != 1 {
			t.Errorf("node %d has forgotten %d leaders", n.id, got)
		}
	}
}

// silence returns after how many ticks without a word the followers of l have forgotten it.
func (c *cluster) silence(l *node) (ticks int) {
	others := c.followers(l)
	forgotten := func() bool {
		return slices.ContainsFunc(others, func(n *node) bool { return n.Status().Leader != l.id })
	}
	for ; ticks < 40 && !forgotten(); ticks++ {
		c.tickOnly(1, others...)
	}
	return ticks
}

// TestSuccession_WaitsLongerForALeaderThatWasSlowLately: three times as long as it was silent, and
// at most 20 ticks.
func TestSuccession_WaitsLongerForALeaderThatWasSlowLately(t *testing.T) {
	for _, test := range []struct{ pause, then, want int }{
		{0, 0, 10},
		{2, 1, 10},
		{4, 1, 12},
		{6, 1, 18},
		{9, 1, 20},
		{9, 1900, 20},
		{9, 4100, 10},
	} {
		c, l := ledBy1(t, 3)
		c.tickOnly(test.pause, c.followers(l)...)
		c.tickOnly(1, l)
		c.tick(test.then)
		if got := c.silence(l); got != test.want {
			t.Errorf("%d ticks after it was silent for %d the leader is forgotten after %d silent ones, want %d", test.then, test.pause, got, test.want)
		}
	}
}

// TestSuccession_ATransferOverridesPromises: the leader has given up its lease.
func TestSuccession_ATransferOverridesPromises(t *testing.T) {
	c, l := ledBy1(t, 3)
	term := l.Status().Term
	c.askMode(l, isotone.ReadLease, 1)
	c.settle()
	c.tick(1)
	if !l.Status().Leased {
		t.Fatal("no lease")
	}
	c.turn(l, &replica.Input{Transfer: true, TransferTo: 3})
	c.settle()
	c.wantLeader(3, term+1)
}

// TestSuccession_ALearnerStandsForNothing: Raft would log a warning each time.
func TestSuccession_ALearnerStandsForNothing(t *testing.T) {
	c, l := ledBy1(t, 3)
	warnings := &warned{}
	c.add(4, nil, func(cfg *replica.Config) { cfg.Log = warnings })
	if err := c.changeMember(l, replica.AddLearner, oracle.Member{ID: 4, PeerAddr: "peer4:1"}); err != nil {
		t.Fatal(err)
	}
	c.settle()
	c.greet()
	c.tick(30)
	if c.nodes[4].Status().Leader != 1 {
		t.Fatal("the learner follows nobody")
	}
	warnings.count = 0
	c.isolate(4)
	c.refuse(1, c.nodes[4])
	c.tick(500)
	if warnings.count > 0 {
		t.Errorf("%d warnings, the last one: %s", warnings.count, warnings.last)
	}
}

// warned is a raft.Logger that counts warnings.
type warned struct {
	quiet
	count int
	last  string
}

func (w *warned) Warningf(format string, _ ...any) { w.count, w.last = w.count+1, format }
