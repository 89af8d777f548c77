package replica_test

import (
	"fmt"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/timeline"
)

// owned is a cluster with the timeline "orders", which a node owns that does not lead, and a third node.
type owned struct {
	*cluster
	leader, owner, third *node
}

func newOwned(t *testing.T, mutate func(*replica.Config)) *owned {
	c := newCluster(t, 3, mutate)
	l := c.leader()
	c.tick(20)
	o := &owned{cluster: c, leader: l, owner: c.followers(l)[0], third: c.followers(l)[1]}
	c.does(l, creates("orders"))
	c.mustOn(l, "orders")
	o.grant(o.owner)
	c.tick(2)
	return o
}

// grant has the leader make a node the owner.
func (o *owned) grant(to *node) {
	o.t.Helper()
	o.does(o.leader, timeline.Command{Kind: timeline.KindGrant, Grants: []timeline.Grant{{Group: timeline.GroupOf("orders"), Member: to.id}}})
}

// takeBack makes the leader the owner, of which the former one does not hear, and has it issue a timestamp. The third node hears no commit index
// of that. cut says which other messages get lost.
func (o *owned) takeBack(cut func(m *raftpb.Message) bool) {
	o.t.Helper()
	o.drop = func(m *raftpb.Message) bool {
		ofOwner := m.GetFrom() == o.owner.id || m.GetTo() == o.owner.id
		toldCommit := m.GetType() == raftpb.MsgApp && len(m.GetEntries()) == 0 || m.GetType() == raftpb.MsgHeartbeat && m.GetCommit() > 0
		return ofOwner && (m.Type != nil || m.GetFrom() == o.leader.id || m.GetTo() == o.leader.id) || m.Type != nil && m.GetTo() == o.third.id && toldCommit ||
			cut != nil && cut(m)
	}
	o.grant(o.leader)
	token := o.on(o.leader, "orders", isotone.Timestamp{}, 1)
	o.settle()
	o.leaderTicks(2) // it may have asked a voter that does not answer
	if got := o.leader.outcome(token); got != "ok" {
		o.t.Fatalf("the leader answers %q", got)
	}
}

// answersStill reports whether the former owner answers a request that came after the new one has answered.
func (o *owned) answersStill() bool {
	token := o.on(o.owner, "orders", isotone.Timestamp{}, 1)
	o.settle()
	for range 3 {
		o.mono += tick
		o.turn(o.owner, &replica.Input{Ticks: 1})
		o.settle()
	}
	return o.owner.outcome(token) == "ok"
}

func TestOwner_AnswersWithoutALeader(t *testing.T) {
	o := newOwned(t, nil)
	first := o.mustOn(o.owner, "orders")
	for _, n := range []*node{o.leader, o.third} {
		token := o.on(n, "orders", isotone.Timestamp{}, 1)
		if a := n.answers[token]; n.outcome(token) != "not_leader" || a.err.Leader != o.owner.cfg.Self.ClientAddr {
			t.Errorf("node %d answers %v", n.id, a.err)
		}
	}
	o.leader.down = true
	o.turn(o.owner, &replica.Input{Gone: []uint64{o.leader.id}}) // so that it is not asked
	rounds := o.owner.rounds
	second := o.mustOn(o.owner, "orders")
	if !first.Before(second) {
		t.Errorf("%v after %v", second, first)
	}
	if o.owner.rounds != rounds+1 {
		t.Errorf("the owner reports %d rounds, want one", o.owner.rounds-rounds)
	}
	o.third.down = true // nor without a quorum
	token := o.on(o.owner, "orders", isotone.Timestamp{}, 1)
	o.settle()
	if got := o.owner.outcome(token); got != "" {
		t.Errorf("without a quorum: %q", got)
	}
	o.third.down = false
	o.turn(o.owner, &replica.Input{Ticks: 1}) // the question is repeated
	o.settle()
	if got := o.owner.outcome(token); got != "ok" {
		t.Errorf("with a quorum again: %q", got)
	}
}

// TestOwner_AsksNoMoreVotersThanItNeeds: with the next tick all, and after that not the one that is silent.
func TestOwner_AsksNoMoreVotersThanItNeeds(t *testing.T) {
	o := newOwned(t, nil)
	for range 3 {
		o.mustOn(o.owner, "orders")
	}
	asked := map[uint64]int{}
	o.drop = func(m *raftpb.Message) bool {
		if m.Type == nil && m.GetFrom() == o.owner.id {
			asked[m.GetTo()]++
		}
		return false
	}
	for range 10 {
		o.mustOn(o.owner, "orders")
	}
	if len(asked) != 1 || asked[o.leader.id]+asked[o.third.id] != 10 {
		t.Fatalf("for ten answers the voters are asked %v times", asked)
	}
	silent := o.third
	if asked[o.leader.id] > 0 {
		silent = o.leader
	}
	silent.down = true
	token := o.on(o.owner, "orders", isotone.Timestamp{}, 1)
	o.settle()
	if got := o.owner.outcome(token); got != "" {
		t.Fatalf("without the voter that was asked: %q", got)
	}
	o.turn(o.owner, &replica.Input{Ticks: 1})
	o.settle()
	if got := o.owner.outcome(token); got != "ok" {
		t.Fatalf("after a tick: %q", got)
	}
	o.mustOn(o.owner, "orders")

	other := o.third
	if silent == o.third {
		other = o.leader
	}
	silent.down, other.down = false, true
	token = o.on(o.owner, "orders", isotone.Timestamp{}, 1)
	o.settle()
	o.turn(o.owner, &replica.Input{Gone: []uint64{other.id}})
	o.settle()
	if got := o.owner.outcome(token); got != "ok" {
		t.Fatalf("once the connection to the voter that was asked has ended: %q", got)
	}
}

// TestOwner_TheLeaderTakesWhatItsOwnerLeaves, and goes on above.
func TestOwner_TheLeaderTakesWhatItsOwnerLeaves(t *testing.T) {
	o := newOwned(t, nil)
	last := o.mustOn(o.owner, "orders")
	o.owner.down = true
	o.turn(o.leader, &replica.Input{Gone: []uint64{o.owner.id}})
	token := o.on(o.leader, "orders", isotone.Timestamp{}, 1)
	o.settle()
	o.leaderTicks(2)
	if got := o.leader.outcome(token); got != "ok" || !last.Before(o.leader.answers[token].ranges[0].First) {
		t.Errorf("%q, %v after %v", got, o.leader.answers[token].ranges, last)
	}
	o.start(o.owner) // the same node, another process
	o.greet()
	o.tick(5)
	if token = o.on(o.owner, "orders", isotone.Timestamp{}, 1); o.owner.outcome(token) != "not_leader" {
		t.Errorf("a process that was granted nothing: %q", o.owner.outcome(token))
	}
}

func TestOwner_RequestsAreBoundedAndExpire(t *testing.T) {
	o := newOwned(t, func(cfg *replica.Config) { cfg.QueueMax = 10 })
	o.does(o.leader, timeline.Command{Kind: timeline.KindCreate, Creations: []timeline.Creation{{Name: "others", Group: timeline.GroupOf("orders")}}})
	o.tick(2)
	o.drop = func(m *raftpb.Message) bool { return m.GetFrom() == o.owner.id || m.GetTo() == o.owner.id }
	first := o.on(o.owner, "orders", isotone.Timestamp{}, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
	last := o.on(o.owner, "others", isotone.Timestamp{}, 1)
	if got := o.owner.outcome(last); got != "overloaded" {
		t.Errorf("the eleventh request: %q", got)
	}
	for range 501 {
		o.turn(o.owner, &replica.Input{Ticks: 1})
	}
	if got := o.owner.outcome(first); got != "deadline_exceeded" {
		t.Errorf("a request without an answer: %q", got)
	}
}

func TestOwner_NeverAnswersBesideALaterOne(t *testing.T) {
	for name, harms := range map[string]func(*testing.T) bool{
		"a voter has not applied the grant": answersBesideUnapplied, "a voter has a snapshot in place of the grant": answersBesideSnapshot,
		"the membership has changed":                   func(t *testing.T) bool { return answersByOldConfiguration(t, false) },
		"the membership changes during a round":        func(t *testing.T) bool { return answersByOldConfiguration(t, true) },
		"a learner does not have the grant":            answersByLearner,
		"the answer to an earlier question comes late": answersByLateAnswer,
	} {
		if harms(t) {
			t.Errorf("T5: %s, and the former owner answers", name)
		}
	}
}

func answersBesideUnapplied(t *testing.T) bool {
	o := newOwned(t, nil)
	o.takeBack(nil)
	return o.answersStill()
}

func answersBesideSnapshot(t *testing.T) bool {
	o := newOwned(t, func(cfg *replica.Config) { cfg.SnapshotEvery = 4 })
	o.takeBack(nil)
	cut := o.drop
	o.drop = func(m *raftpb.Message) bool { // the third node applies the grant, and more
		return (m.GetFrom() == o.owner.id || m.GetTo() == o.owner.id) && cut(m)
	}
	o.tick(200)
	o.third.down = true
	o.drop = cut
	o.start(o.third)
	if n := len(o.third.disk.entries); o.third.disk.snap == nil || n > 4 {
		t.Fatalf("node %d starts from %d entries, and the snapshot %v", o.third.id, n, o.third.disk.snap)
	}
	return o.answersStill()
}

// answersByOldConfiguration has two voters join of which the owner does not hear, and the group granted by them and the leader alone.
// during: the owner hears of the voters while it asks.
func answersByOldConfiguration(t *testing.T, during bool) bool {
	o := newOwned(t, nil)
	o.drop = func(m *raftpb.Message) bool { // it hears heartbeats: otherwise the leader would take the group before
		return m.GetTo() == o.owner.id && (m.GetType() == raftpb.MsgApp || m.GetType() == raftpb.MsgSnap)
	}
	for _, id := range []uint64{4, 5} {
		if err := o.cluster.change(o.leader, replica.AddLearner, id, fmt.Sprintf("peer%d:1", id)); err != nil {
			t.Fatal(err)
		}
		o.settle()
		o.add(id, nil, nil)
		o.greet()
		o.leaderTicks(20)
		if err := o.cluster.change(o.leader, replica.AddVoter, id, ""); err != nil {
			t.Fatal(err)
		}
		o.leaderTicks(20)
	}
	before := o.leader.Status().Applied
	o.takeBack(func(m *raftpb.Message) bool {
		return m.Type != nil && (m.GetTo() == o.third.id || m.GetFrom() == o.third.id) || (m.GetFrom() > 3 || m.GetTo() > 3) && (m.GetFrom() == o.owner.id || m.GetTo() == o.owner.id)
	})
	if !during {
		return o.answersStill()
	}
	token := o.on(o.owner, "orders", isotone.Timestamp{}, 1)
	o.settle()
	cut := o.drop
	o.drop = func(m *raftpb.Message) bool { // the owner gets the log up to the changes
		if m.GetType() == raftpb.MsgApp && m.GetTo() == o.owner.id {
			for i, e := range m.GetEntries() {
				if e.GetIndex() > before {
					m.Entries = m.Entries[:i]
					break
				}
			}
			return false
		}
		return cut(m) && !(m.Type != nil && (m.GetFrom() == o.owner.id || m.GetTo() == o.owner.id) && (m.GetFrom() == o.leader.id || m.GetTo() == o.leader.id))
	}
	o.leaderTicks(5)
	if o.owner.Status().Applied < before {
		t.Fatalf("the owner has applied %d, want %d", o.owner.Status().Applied, before)
	}
	return o.owner.outcome(token) == "ok"
}

// leaderTicks lets ticks pass on the leader only, so that nobody campaigns.
func (o *owned) leaderTicks(n int) {
	for range n {
		o.mono += tick
		o.turn(o.leader, &replica.Input{Ticks: 1})
		o.settle()
	}
}

func answersByLearner(t *testing.T) bool {
	o := newOwned(t, nil)
	if err := o.cluster.change(o.leader, replica.AddLearner, 4, "peer4:1"); err != nil {
		t.Fatal(err)
	}
	o.settle()
	o.add(4, nil, nil)
	o.greet()
	o.tick(20)
	o.takeBack(func(m *raftpb.Message) bool {
		return m.GetTo() == 4 && m.GetFrom() == o.leader.id || m.GetFrom() == o.third.id && m.GetTo() == o.owner.id
	})
	return o.answersStill()
}

func answersByLateAnswer(t *testing.T) bool {
	o := newOwned(t, nil)
	o.drop = func(m *raftpb.Message) bool { return m.GetFrom() == o.owner.id || m.GetTo() == o.owner.id }
	o.on(o.owner, "orders", isotone.Timestamp{}, 1)
	late := replica.OwnerAnswer{OwnerAsk: replica.OwnerAsk{Peer: o.third.id, Session: o.owner.Hello().Session, Round: o.owner.OwnerRound()}, Fence: o.leader.Status().Applied}
	o.takeBack(func(m *raftpb.Message) bool { return m.GetFrom() == o.owner.id || m.GetTo() == o.owner.id })
	token := o.on(o.owner, "orders", isotone.Timestamp{}, 1)
	late.Fence = o.owner.Status().Applied
	o.turn(o.owner, &replica.Input{OwnerAnswers: []replica.OwnerAnswer{late}})
	return o.owner.outcome(token) == "ok"
}
