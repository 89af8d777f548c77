package replica

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/mutant"
)

// askForVotes sends this candidate's vote requests while its own term is still being written, so
// that its disk and those of the voters work at the same time. Votes that are granted before the
// term is durable wait in [succession.holdGrant].
//
// A crash may take such a candidacy in term t back: the node returns in an earlier term, with the
// votes of others for it in t on their way or on their disks. It may then campaign in t again, and
// those votes count. That is safe for two reasons:
//
//   - Of all candidacies of a node in t only one can succeed. Votes of others count only once t,
//     with the node's vote for itself, is on its disk, and a node that has t on disk never campaigns in
//     t again. So it does not lead in t twice with different logs. Instead it may have voted for
//     another in t after the crash; then it is no candidate in t and Raft ignores the late votes.
//   - The voter compared its log with that which the request named. All of that was on the
//     candidate's disk, or the request waits. So when a late vote counts, the candidate's log still
//     has all committed entries of the voter: since the request it took in only what leaders of terms
//     below t sent, and these replace no committed entry. If a crash could shorten the log, the vote of
//     a node with a committed entry might elect one that has lost it.
//
// Nothing else is different from a vote that is slow. A voter still votes once in a term, and
// durably. Which voters make a majority, in a joint configuration of both halves, is decided when
// votes are counted, as before. Pre-votes bind nobody and are not about the disk. A transfer has no
// pre-vote, and its requests wait: the leader goes on answering until it receives one.
func (r *Replica) askForVotes(requests []*raftpb.Message) {
	var wait []*raftpb.Message
	for _, m := range requests {
		if isTransfer(m) && !mutant.On(mutant.CampaignUnsynced) || !r.tail.isLogDurable() && !mutant.On(mutant.EarlyUndurableLog) {
			wait = append(wait, m)
		} else {
			r.effects.Send = append(r.effects.Send, m)
		}
	}
	if len(wait) > 0 {
		r.tail.write(&raftpb.Message{}, wait)
	}
}

// isLogDurable reports whether this node's log is on disk up to its end.
func (t *tail) isLogDurable() bool {
	return !slices.ContainsFunc([]*Write{t.inFlight, t.collecting}, func(w *Write) bool {
		return w != nil && (len(w.Entries) > 0 || w.Snapshot != nil)
	})
}

// holdGrant keeps a vote that this candidate was granted before its own term is durable, and reports
// whether it did: at most one of each voter, and none once the term or the role has changed.
func (s *succession) holdGrant(m *raftpb.Message) bool {
	if s.role != raft.StateCandidate || m.GetReject() || m.GetTerm() != s.term || s.durable.term == s.term || mutant.On(mutant.CountEarlyGrants) {
		return false
	}
	list := &s.early
	if s.isVoter(m.GetFrom()) && !slices.ContainsFunc(*list, func(o *raftpb.Message) bool { return o.GetFrom() == m.GetFrom() }) {
		*list = append(*list, m)
	}
	return true
}

// countGrants has the votes that came early count, once this candidate's term is durable.
func (r *Replica) countGrants() {
	list := r.succession.early
	if len(list) == 0 || r.durable.term != r.term {
		return
	}
	r.succession.early = nil
	for _, m := range list {
		r.stepRaft(m)
	}
}
