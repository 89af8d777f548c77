package replica_test

import (
	"slices"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// campaignsUnsynced reports whether a node to which the leadership is transferred deposes the
// leader before its own term is durable. Nobody would lead while it is written.
func campaignsUnsynced(t *testing.T) bool {
	c, l := ledBy1(t, 3)
	f := c.nodes[2]
	f.stalled = true
	c.turn(f, &replica.Input{Messages: []*raftpb.Message{timeoutNow(l, f)}})
	c.settle()
	if got := f.Status().Role; got != raft.StateCandidate {
		t.Fatalf("%v, want a candidate", got)
	}
	early := !l.Status().Serving
	f.stalled = false
	c.settle()
	if !f.Status().Serving {
		t.Error("it does not lead after the write either")
	}
	return early
}

// timeoutNow is the message with which a leader transfers its leadership.
func timeoutNow(l, to *node) *raftpb.Message {
	return &raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), From: new(l.id), To: new(to.id), Term: new(l.Status().Term)}
}

// campaign is a cluster whose leader has died, and what the others have answered the candidate 2.
type campaign struct {
	*cluster
	term            uint64 // in which node 2 campaigns
	preVotes, votes []*raftpb.Message
}

// newCampaign has node 2 campaign. Its disk stalls, and the votes of the others are late.
func newCampaign(c *cluster) *campaign {
	k := &campaign{cluster: c, term: c.nodes[1].Status().Term + 1}
	c.drop = func(m *raftpb.Message) bool {
		switch {
		case m.GetReject():
		case m.GetType() == raftpb.MsgPreVoteResp:
			k.preVotes = append(k.preVotes, m)
		case m.GetType() == raftpb.MsgVoteResp:
			k.votes = append(k.votes, m)
			return true
		}
		return false
	}
	c.nodes[2].stalled = true
	c.kill(1)
	c.refuse(1, c.running()...)
	c.settle()
	k.wantCandidate()
	return k
}

func (k *campaign) wantCandidate() {
	k.t.Helper()
	if got := k.nodes[2].Status(); got.Role != raft.StateCandidate || got.Term != k.term {
		k.t.Fatalf("%v in term %d, want a candidate in term %d", got.Role, got.Term, k.term)
	}
}

// again has node 2 crash with what is not on its disk, and campaign in the same term again. The others
// answer it only with what they have sent before: the network repeats the pre-votes and is late with
// the votes.
func (k *campaign) again() {
	n := k.nodes[2]
	k.start(n)
	k.greet()
	k.drop = func(m *raftpb.Message) bool { return true }
	for range 100 {
		if k.tickOnly(1, n); n.Status().Role == raft.StatePreCandidate {
			break
		}
	}
	k.turn(n, &replica.Input{Messages: k.preVotes})
	k.wantCandidate()
	n.stalled = false
	k.turn(n, &replica.Input{Messages: k.votes})
	k.settle()
	k.drop = nil
}

// leadsTwice reports whether a candidate leads in a term that a crash takes back, and then in the
// same term again (I8), with another log.
func leadsTwice(t *testing.T) bool {
	c, _ := ledBy1(t, 5)
	k := newCampaign(c)
	n := k.nodes[2]
	if len(k.votes) != 3 {
		t.Fatalf("%d votes while the candidate writes its term", len(k.votes))
	}
	k.turn(n, &replica.Input{Messages: append(k.votes, k.votes...)})
	if length, limit := k.queue(n, earlyVotes); length > len(k.votes) || limit != oracle.MembersMax {
		t.Errorf("%d votes wait, of %d voters", length, len(k.votes))
	}
	first := n.Status().Role == raft.StateLeader
	k.again()
	if n.Status().Role != raft.StateLeader {
		t.Error("it does not lead when its term is durable either")
	}
	return first
}

const earlyVotes = "votes that came early"

// losesCommittedEntry reports whether a candidate is elected that has lost a committed entry in a
// crash (I8). It has asked for the votes that are late when it had the entry in memory.
func losesCommittedEntry(t *testing.T) bool {
	c, l := ledBy1(t, 3)
	n := c.nodes[2]
	n.stalled = true
	c.turn(l, &replica.Input{Reserve: true})
	c.settle()
	committed := l.Status().Applied
	k := newCampaign(c)
	k.again()
	opens := slices.IndexFunc(n.disk.entries, func(e *raftpb.Entry) bool { return e.GetTerm() == k.term })
	return n.Status().Role == raft.StateLeader && opens >= 0 && n.disk.entries[opens].GetIndex() <= committed
}

func TestCampaign_ATransferDeposesTheLeaderOnlyInADurableTerm(t *testing.T) {
	if campaignsUnsynced(t) {
		t.Error("nobody leads while the successor writes its term")
	}
}

func TestCampaign_VotesCountOnlyInADurableTerm(t *testing.T) {
	if leadsTwice(t) {
		t.Error("I8: a node led twice in one term")
	}
}

func TestCampaign_VotesAreAskedForWithADurableLogOnly(t *testing.T) {
	if losesCommittedEntry(t) {
		t.Error("I8: a leader lacks a committed entry")
	}
}

// TestCampaign_VotesThatCameEarlyEndWithTheTerm: they are not counted in the next one.
func TestCampaign_VotesThatCameEarlyEndWithTheTerm(t *testing.T) {
	c, _ := ledBy1(t, 3)
	k := newCampaign(c)
	n := k.nodes[2]
	k.turn(n, &replica.Input{Messages: k.votes})
	before, _ := k.queue(n, earlyVotes)
	k.turn(n, &replica.Input{Messages: []*raftpb.Message{voteRequest(raftpb.MsgVote, 3, 2, k.term+1)}})
	if after, _ := k.queue(n, earlyVotes); before != 1 || after != 0 {
		t.Errorf("%d votes wait, and %d when another term has begun", before, after)
	}
	n.stalled = false
	k.settle()
	if got := n.Status(); got.Role != raft.StateFollower || got.Term != k.term+1 {
		t.Errorf("%v in term %d", got.Role, got.Term)
	}
}
