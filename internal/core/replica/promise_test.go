package replica_test

import (
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/replica"
)

// voteFor asks f for its vote in a term, as a candidate that is up to date would.
func voteFor(c *cluster, f *node, candidate, term uint64) (granted bool) {
	c.turn(f, &replica.Input{Messages: []*raftpb.Message{{
		Type: raftpb.MsgVote.Enum(), From: new(candidate), To: new(f.id), Term: new(term),
		Index: new(uint64(1000)), LogTerm: new(term - 1),
	}}})
	for _, w := range c.flush(f) {
		if w.HardState != nil && w.HardState.GetVote() == candidate && w.HardState.GetTerm() == term {
			return true
		}
	}
	return false
}

// votesRightAfterStart reports whether a node that restarts grants a vote within an
// election timeout (I5).
func votesRightAfterStart(t *testing.T) bool {
	c := newCluster(t, 3, nil)
	l := c.leader()
	f := c.nodes[l.id%3+1]
	c.start(f)
	c.turn(f, &replica.Input{Ticks: 19})
	if voteFor(c, f, l.id, 99) {
		return true
	}
	c.turn(f, &replica.Input{Ticks: 1})
	if !voteFor(c, f, l.id, 99) {
		t.Error("no vote was granted after an election timeout either")
	}
	return false
}

// votesAfterTermChange reports whether a follower that acknowledged a heartbeat grants
// a vote once another message has brought a higher term (I5). Raft itself would.
func votesAfterTermChange(t *testing.T) bool {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.tick(50)
	f, other := c.nodes[l.id%3+1], c.nodes[(l.id+1)%3+1]
	term := f.Status().Term
	c.turn(f, &replica.Input{Messages: []*raftpb.Message{{
		Type: raftpb.MsgPreVoteResp.Enum(), From: new(other.id), To: new(f.id), Term: new(term + 1), Reject: new(true),
	}}})
	if got := f.Status(); got.Term != term+1 || got.Leader != 0 {
		t.Fatalf("term %d, leader %d: the message changed nothing", got.Term, got.Leader)
	}
	if voteFor(c, f, other.id, term+1) {
		return true
	}
	c.turn(f, &replica.Input{Ticks: 20})
	if !voteFor(c, f, other.id, term+1) {
		t.Error("no vote was granted after an election timeout either")
	}
	return false
}

// campaignsUnsynced reports whether a candidate asks for votes before its new term is
// durable. A transfer of leadership makes the candidate.
func campaignsUnsynced(t *testing.T) bool {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.tick(50)
	f := c.nodes[l.id%3+1]
	f.stalled = true
	asked := false
	c.drop = func(m *raftpb.Message) bool {
		asked = asked || m.GetFrom() == f.id && m.GetType() == raftpb.MsgVote
		return false
	}
	c.turn(f, &replica.Input{Messages: []*raftpb.Message{{
		Type: raftpb.MsgTimeoutNow.Enum(), From: new(l.id), To: new(f.id), Term: new(f.Status().Term),
	}}})
	if got := f.Status().Role; got != raft.StateCandidate {
		t.Fatalf("%v, want a candidate", got)
	}
	early := asked
	f.stalled = false
	c.settle()
	if !asked || !f.Status().Serving {
		t.Error("no vote was asked for after the write either")
	}
	return early
}

// leaseOutlastsPromise reports whether a leader whose clock is slow by 10 % answers by
// lease when a voter whose clock is fast by as much, and whose first two ticks came at
// once, may already have voted for another (I5).
func leaseOutlastsPromise(t *testing.T) bool {
	c, l := leased(t)
	f, other := c.nodes[l.id%3+1], c.nodes[(l.id+1)%3+1]
	c.isolate(l.id)
	term := f.Status().Term
	c.turn(f, &replica.Input{Ticks: 19})
	if voteFor(c, f, other.id, term+1) {
		t.Error("a vote was granted within an election timeout")
	}
	c.turn(f, &replica.Input{Ticks: 1})
	if !voteFor(c, f, other.id, term+1) {
		t.Error("no vote was granted after an election timeout either")
	}
	const promised = 18 * tick * 10 / 11 // in real time
	c.mono += promised * 9 / 10          // on the leader's clock
	return l.outcome(c.askMode(l, isotone.ReadLease, 1)) == "ok"
}

func TestReplica_ALeaseEndsBeforeThePromiseThatItRestsOn(t *testing.T) {
	if leaseOutlastsPromise(t) {
		t.Error("I5: a lease outlasted a voter's promise")
	}
}

func TestReplica_GrantsNoVoteForOneElectionTimeoutAfterItsStart(t *testing.T) {
	if votesRightAfterStart(t) {
		t.Error("I5: a vote was granted right after the start")
	}
}

func TestReplica_AsksForVotesOnlyInADurableTerm(t *testing.T) {
	if campaignsUnsynced(t) {
		t.Error("votes were asked for in a term that a crash would take back")
	}
}

func TestReplica_KeepsItsPromiseThroughAHigherTerm(t *testing.T) {
	if votesAfterTermChange(t) {
		t.Error("I5: a vote was granted within an election timeout after a heartbeat")
	}
}
