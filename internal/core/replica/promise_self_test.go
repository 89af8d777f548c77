package replica_test

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/replica"
)

// votesForItselfInPromise reports whether a voter that has promised to grant no vote votes for itself (I5). Of its leader's
// messages it gets only questions, which Raft does not see, so that Raft's election timer fires. The third voter, which
// has no leader, grants it a pre-vote.
func votesForItselfInPromise(t *testing.T) bool {
	c, l := leased(t)
	f, other := c.nodes[l.id%3+1], c.nodes[(l.id+1)%3+1]
	term, round := f.Status().Term, uint64(1_000_000)
	var preVotes []*raftpb.Message
	c.drop = func(m *raftpb.Message) bool {
		if m.GetFrom() == f.id && m.GetTo() == other.id && m.GetType() == raftpb.MsgPreVote {
			preVotes = append(preVotes, m)
		}
		return true
	}
	for range 60 { // Raft's election timeout is less than 40 ticks
		round++
		question := &raftpb.Message{
			Type: raftpb.MsgHeartbeat.Enum(), From: new(l.id), To: new(f.id), Term: new(term), Commit: new(uint64(0)),
			Context: []byte{byte(round), byte(round >> 8), byte(round >> 16), 0, 0, 0, 0, 0}, RejectHint: new(uint64(11)), // a promise of 10 ticks
		}
		c.turn(f, &replica.Input{Ticks: 1, Messages: []*raftpb.Message{question}})
		var grants []*raftpb.Message
		for _, m := range preVotes {
			grants = append(grants, &raftpb.Message{Type: raftpb.MsgPreVoteResp.Enum(), From: new(other.id), To: new(f.id), Term: new(m.GetTerm())})
		}
		preVotes = nil
		c.turn(f, &replica.Input{Messages: grants})
		if hasVoted(c, f, f.id, term+1) {
			return true
		}
	}
	return false
}

// TestPromise_KeepsAVoterFromVotingForItself, too, when Raft's own timer would have it campaign.
func TestPromise_KeepsAVoterFromVotingForItself(t *testing.T) {
	if votesForItselfInPromise(t) {
		t.Error("I5: a voter voted for itself while its promise lasted")
	}
}
