package replica

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
)

// Promises (I5). A leader that serves requests in lease mode asks in its heartbeats for a
// promise: a number of ticks, from the arrival of the heartbeat, in which the voter grants no
// vote. The answer says how many ticks the voter has promised. So a leader knows what its lease
// rests on, and a cluster that serves no lease mode never waits for a promise to run out.
//
// Raft leaves RejectHint unset in heartbeats and their answers. Here it is the number of ticks
// plus one; without it there is no promise.

// promiseTicks is what a leader asks for. A lease lasts leaseSlackTicks less, see
// [lease.length], and a round every tick extends it; after the death of a leader in lease
// mode its successor has to wait for the rest of the promise.
const promiseTicks = electionTicks / 2

// promised is what this node has promised as a voter.
type promised struct {
	// until is the tick before which it grants no vote. After a start it does not know what it
	// promised before, and waits for as long as any promise lasts. That also lets every reachable
	// peer refuse a wiped or older directory in time (I6).
	until uint64
	// term and ticks are those of the latest heartbeat.
	term, ticks uint64
	// held are vote requests that have to wait, at most one of each peer.
	held []heldVote
}

// heldVote is a vote request that arrived at a tick.
type heldVote struct {
	m  *raftpb.Message
	at uint64
}

// heldTicks is how long a vote request is held.
const heldTicks = electionTicks

// hint encodes a number of ticks for RejectHint.
func hint(ticks uint64) *uint64 { return new(ticks + 1) }

// promisedIn decodes the RejectHint of a heartbeat or its answer, in ticks.
func promisedIn(m *raftpb.Message) uint64 {
	return min(max(m.GetRejectHint(), 1)-1, electionTicks)
}

// askPromise completes a heartbeat of this leader.
func (e *lease) askPromise(m *raftpb.Message) { m.RejectHint = hint(e.wantedPromise()) }

// wantedPromise returns the promise that this leader's heartbeats ask for, in ticks.
func (e *lease) wantedPromise() uint64 {
	if e.isWanted() {
		return promiseTicks
	}
	return 0
}

// promise makes the promise that a heartbeat asks for. A promise is never shortened.
func (s *succession) promise(m *raftpb.Message) {
	p := &s.promised
	p.term, p.ticks = m.GetTerm(), promisedIn(m)
	p.until = max(p.until, s.ticks+p.ticks)
}

// statePromise completes this voter's answer to a heartbeat.
func (s *succession) statePromise(m *raftpb.Message) { m.RejectHint = hint(s.promisedTo(m)) }

// promisedTo returns what this voter has promised, in ticks, to the leader of m: a heartbeat or its
// answer. That answers the latest heartbeat or an earlier one of the same term, and the promise was
// made when the latest arrived: no sooner.
func (s *succession) promisedTo(m *raftpb.Message) uint64 {
	if p := &s.promised; m.GetTerm() == p.term {
		return p.ticks
	}
	return 0
}

// mayVote reports whether no promise keeps this node from voting. Raft's own rule (CheckQuorum;
// Ongaro's dissertation, §4.2.3) does not survive a restart or a message with a higher term.
//
// A refused connection to the leader does not end a promise: a firewall refuses as well.
func (s *succession) mayVote() bool {
	return s.ticks >= s.promised.until || mutant.On(mutant.VoteAfterTermChange)
}

// mustNotRun reports whether m grants a pre-vote with which this node might become a candidate, and so vote for itself, while it
// has promised to grant no vote. It does not ask for pre-votes then, but Raft's election timer does: that knows nothing of the
// questions that are answered beside Raft.
func (s *succession) mustNotRun(m *raftpb.Message) bool {
	return !m.GetReject() && s.ticks < s.promised.until && !mutant.On(mutant.VoteForItselfInPromise)
}

// isTransfer reports whether m is the vote request of a leadership transfer. It overrides
// promises: its leader has forgone the lease.
func isTransfer(m *raftpb.Message) bool { return string(m.GetContext()) == campaignTransfer }

// campaignTransfer is the context of vote requests in a leadership transfer. The library
// does not export it.
const campaignTransfer = "CampaignTransfer"

// mustHold reports whether a vote request has to wait: while a promise lasts, while this node has a
// leader, and, if it is one for a pre-vote, while this node's vote is being written, as that
// election may still succeed, and a vote in the next one would have to wait for the same disk.
func (s *succession) mustHold(m *raftpb.Message) bool {
	switch {
	case isTransfer(m) || m.GetTerm() < s.term:
		return false
	case !s.mayVote() || s.lead != raft.None && m.GetTerm() > s.term:
		return true
	}
	return m.GetType() == raftpb.MsgPreVote && s.isWriting()
}

// holdVote keeps a vote request, or request for a pre-vote, that must not be granted yet, and
// reports whether it did. Raft would ignore it, and the candidate would ask again an election
// timeout later. To hold a message is what a slow network does.
func (s *succession) holdVote(m *raftpb.Message) bool {
	if !s.mustHold(m) {
		return false
	}
	p := &s.promised
	p.held = slices.DeleteFunc(p.held, func(h heldVote) bool { return s.ticks-h.at > heldTicks })
	for i := range p.held {
		if old := p.held[i].m; old.GetFrom() == m.GetFrom() {
			if old.GetTerm() < m.GetTerm() || old.GetTerm() == m.GetTerm() && (old.GetType() != raftpb.MsgVote || m.GetType() == raftpb.MsgVote) {
				p.held[i] = heldVote{m, s.ticks}
			}
			return true
		}
	}
	if len(p.held) < oracle.MembersMax {
		p.held = append(p.held, heldVote{m, s.ticks})
	}
	return true
}

// replayVotes handles the requests that were held, once nothing keeps this node from voting.
func (r *Replica) replayVotes() {
	if len(r.succession.promised.held) == 0 || r.lead != raft.None || !r.succession.mayVote() {
		return
	}
	held := r.succession.promised.held
	r.succession.promised.held = nil
	for _, h := range held {
		switch {
		case r.ticks-h.at > heldTicks:
		case r.succession.mustHold(h.m):
			r.succession.promised.held = append(r.succession.promised.held, h)
		default:
			r.succession.askedForVote(h.m, h.at)
			r.stepRaft(h.m)
		}
	}
}
