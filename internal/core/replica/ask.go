package replica

import (
	"encoding/binary"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/mutant"
)

// A round is a question to the voters: is this leader's term still the latest that you know? The
// replica asks and answers by itself, beside Raft, because nearly all that it does under load is
// rounds. The argument is Raft's for ReadIndex (Ongaro, "Consensus: Bridging Theory and Practice",
// 2014, §6.4): a quorum that is in term T after a request has arrived has voted in no later term
// before, so no later leader can have answered anything.
//
// The question is a heartbeat with the number of the round as its context, and the answer is what
// Raft would answer. Raft's own heartbeats, with every tick, have no context: Raft is asked for no
// reads. A question has no commit index, and whatever has one is for Raft.
//
// A round needs the answers of a quorum, so only as many voters are asked as make one. If one of
// them stays silent, the next tick repeats the latest round to everyone. A voter that owes an
// answer is chosen again only when no other is left. Two rounds in flight choose different voters,
// and an answer to the later round confirms the earlier one, so a busy leader rarely waits for the
// tick. See docs/decisions/0005-a-round-asks-a-quorum.md and
// docs/decisions/0026-rounds-beside-raft.md.

// contextSize is the size of the context of a question and its answer, in bytes.
const contextSize = 8

// roundMessage is a question or an answer, with all that it points to in one allocation.
type roundMessage struct {
	message              raftpb.Message
	kind                 raftpb.MessageType
	to, from, term, hint uint64
	commit               uint64 // 0, of a question
	context              [contextSize]byte
}

func newRoundMessage(kind raftpb.MessageType, from, to, term uint64) *roundMessage {
	q := &roundMessage{kind: kind, to: to, from: from, term: term}
	m := &q.message
	m.Type, m.To, m.From, m.Term, m.Context = &q.kind, &q.to, &q.from, &q.term, q.context[:]
	return q
}

// askRound sends the latest round to the chosen voters, nil for everyone.
func (r *Replica) askRound(chosen []uint64) {
	for _, id := range r.conf.GetVoters() {
		r.askVoter(id, chosen)
	}
	for _, id := range r.conf.GetVotersOutgoing() {
		if !slices.Contains(r.conf.GetVoters(), id) {
			r.askVoter(id, chosen)
		}
	}
	if mutant.On(mutant.CountLearner) {
		for _, id := range r.conf.GetLearners() {
			r.askVoter(id, nil)
		}
	}
}

func (r *Replica) askVoter(id uint64, chosen []uint64) {
	if id == r.cfg.Self.NodeID || chosen != nil && !slices.Contains(chosen, id) {
		return
	}
	q := newRoundMessage(raftpb.MsgHeartbeat, r.cfg.Self.NodeID, id, r.term)
	q.message.Commit = &q.commit
	binary.LittleEndian.PutUint64(q.context[:], r.queue.lastRound)
	q.hint, q.message.RejectHint = 1+r.leading.lease.wantedPromise(), &q.hint
	r.peer(id).read.asked = r.queue.lastRound
	r.effects.Send = append(r.effects.Send, &q.message)
}

// answerRound answers the question m, and reports whether it did. Raft answers those of another
// leader or term, and those that this node is about to follow again.
//
// The term need not be durable: what counts is that this node has not voted in a later one.
func (r *Replica) answerRound(m *raftpb.Message) bool {
	if !isQuestion(m) || (m.GetTerm() != r.term || m.GetFrom() != r.lead || r.role != raft.StateFollower) && !mutant.On(mutant.AnswerAnyTerm) {
		return false
	}
	q := newRoundMessage(raftpb.MsgHeartbeatResp, r.cfg.Self.NodeID, m.GetFrom(), m.GetTerm())
	copy(q.context[:], m.GetContext())
	q.hint, q.message.RejectHint = 1+r.succession.promisedTo(m), &q.hint
	r.effects.Send = append(r.effects.Send, &q.message)
	return true
}

// isQuestion reports whether a heartbeat asks for the confirmation of a round and nothing else.
func isQuestion(m *raftpb.Message) bool {
	return len(m.GetContext()) == contextSize && m.GetCommit() == 0
}

// chooseQuorum appends to chosen, which is empty and not nil, the voters that with this node
// are a quorum. The rounds of a peer decide which. It returns nil, for everyone, while the membership changes or too few voters
// have answered.
func (f *facts) chooseQuorum(chosen []uint64, roundsOfPeer func(*peerView) roundsOf) []uint64 {
	voters := f.conf.GetVoters()
	if len(f.conf.GetVotersOutgoing()) > 0 || !slices.Contains(voters, f.cfg.Self.NodeID) {
		return nil // both quorums count
	}
	for range len(voters) / 2 {
		best, bestOf := uint64(0), roundsOf{}
		for _, id := range voters {
			if id == f.cfg.Self.NodeID || slices.Contains(chosen, id) {
				continue
			}
			if rounds := roundsOfPeer(f.peer(id)); best == 0 || rounds.isPreferred(bestOf) {
				best, bestOf = id, rounds
			}
		}
		if bestOf.answered == 0 {
			return nil
		}
		chosen = append(chosen, best)
	}
	return chosen
}

func readOf(p *peerView) roundsOf { return p.read }

// heartbeatAnswered handles the answer to a heartbeat, and reports whether it answers a round of
// this leader. Raft needs to know the others.
//
// An answer to a tick's heartbeat, which has no round, settles all rounds that the peer owes.
func (r *Replica) heartbeatAnswered(m *raftpb.Message) bool {
	if m.GetTerm() != r.term {
		return false
	}
	p := r.peer(r.mutateAnswerer(m.GetFrom()))
	p.lastActive = r.ticks
	round := roundOf(m)
	if round == 0 {
		p.read.asked = 0
	}
	p.read.answered = max(p.read.answered, round)
	if r.role != raft.StateLeader {
		return false
	}
	r.leading.lease.promisedBy(p, m)
	if round != 0 {
		r.confirmRounds()
	}
	return round != 0
}

// roundOf decodes the number of the round that a heartbeat or its answer is about; 0 if none.
func roundOf(m *raftpb.Message) uint64 {
	if len(m.GetContext()) != contextSize {
		return 0
	}
	return binary.LittleEndian.Uint64(m.GetContext())
}

// confirmRounds confirms the rounds that a quorum has answered: in a joint configuration one of the
// old voters and one of the new.
func (r *Replica) confirmRounds() {
	round := r.answeredByQuorum(r.conf.GetVoters())
	if outgoing := r.conf.GetVotersOutgoing(); len(outgoing) > 0 && !mutant.On(mutant.CountNewVoters) {
		round = min(round, r.answeredByQuorum(outgoing))
	}
	if len(r.queue.rounds) > 0 && round >= r.queue.rounds[0].id {
		r.confirm(round)
	}
}

// answeredByQuorum returns the latest round of this term that a quorum of these voters has
// answered. This node, which leads, answers its own.
func (r *Replica) answeredByQuorum(voters []uint64) uint64 {
	var buf [9]uint64 // enough for 9 voters without an allocation
	answered := buf[:0]
	for _, id := range voters {
		if id == r.cfg.Self.NodeID {
			answered = append(answered, r.queue.lastRound)
		} else if p := r.peers[id]; p != nil {
			answered = append(answered, p.read.answered)
		}
	}
	need := mutant.Pick(mutant.ConfirmByTooFew, max(1, len(voters)/2), len(voters)/2+1)
	if need > len(answered) {
		return 0
	}
	slices.Sort(answered)
	return answered[len(answered)-need]
}

// resetReads forgets which rounds were asked and answered, activity and promises. They hold for one term and role.
func (f *facts) resetReads() {
	for _, p := range f.peers { // order-free: each is reset by itself
		p.read, p.lastActive, p.promisedUntil, p.blamesAt = roundsOf{}, 0, 0, 0
	}
}

// isActive reports whether a member has answered this leader within an election timeout, and
// its connection has not ended since.
// Raft's RecentActive is not enough: CheckQuorum resets it.
func (f *facts) isActive(id uint64) bool {
	p := f.peers[id]
	return id == f.cfg.Self.NodeID || p != nil && p.lastActive > 0 && f.ticks-p.lastActive <= electionTicks
}
