package replica

import (
	"encoding/binary"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
)

// A round needs the answers of a quorum. Raft sends its heartbeats to everyone; the replica
// sends only as many as make a quorum, which saves most of a round's work on both sides.
//
// If a chosen voter stays silent, the next tick's heartbeats confirm the rounds in flight:
// they go to everyone and carry the latest round. A voter that owes an answer is chosen
// again only when no other is left. Two rounds in flight choose different voters, and an
// answer to the later round confirms the earlier one, so a busy leader rarely waits for the
// tick. See docs/decisions/0005-a-round-asks-a-quorum.md.

// chooseQuorum appends to chosen, which is empty and not nil, the voters that with this node
// are a quorum. It returns nil, for everyone, while the membership changes or too few voters
// have answered in this term.
func (r *Replica) chooseQuorum(chosen []uint64) []uint64 {
	voters := r.conf.GetVoters()
	if len(r.conf.GetVotersOutgoing()) > 0 || !slices.Contains(voters, r.cfg.Self.NodeID) {
		return nil // both quorums count
	}
	for range len(voters) / 2 {
		var best *peerView
		for _, id := range voters {
			if id == r.cfg.Self.NodeID || slices.Contains(chosen, id) {
				continue
			}
			if p := r.peer(id); best == nil || p.isPreferred(best) {
				best = p
			}
		}
		if best.answeredRead == 0 {
			return nil
		}
		chosen = append(chosen, best.id)
	}
	return chosen
}

// isPreferred reports whether to ask p rather than o: a voter that owes no answer first,
// then the one with the latest answer.
func (p *peerView) isPreferred(o *peerView) bool {
	if owes := p.askedRead > p.answeredRead; owes != (o.askedRead > o.answeredRead) {
		return !owes
	}
	return p.answeredRead > o.answeredRead
}

// sendHeartbeat sends a heartbeat of Raft's. That of a round goes to the chosen voters only;
// nil stands for everyone.
func (r *Replica) sendHeartbeat(m *raftpb.Message, chosen []uint64) {
	if chosen != nil && len(m.GetContext()) > 0 {
		if !slices.Contains(chosen, m.GetTo()) {
			return
		}
		r.peer(m.GetTo()).askedRead = readPosition(m)
	}
	r.effects.Send = append(r.effects.Send, m)
}

// heartbeatAnswered notes which round a peer has answered. An answer to a tick's heartbeat,
// which has no round, settles all rounds that the peer owes.
func (r *Replica) heartbeatAnswered(m *raftpb.Message) {
	if m.GetTerm() != r.term {
		return
	}
	p := r.peer(m.GetFrom())
	p.lastActive = r.ticks
	if len(m.GetContext()) > 0 {
		p.answeredRead = max(p.answeredRead, readPosition(m))
	} else {
		p.askedRead = 0
	}
}

// readPosition decodes the context that Raft gives to the heartbeats of a round and to
// their answers: the number of rounds begun in this term. 0 if there is none.
func readPosition(m *raftpb.Message) uint64 {
	if len(m.GetContext()) < 8 {
		return 0
	}
	return binary.LittleEndian.Uint64(m.GetContext())
}

// resetReads forgets positions and activity. They hold for one term and role.
func (r *Replica) resetReads() {
	for _, p := range r.peers { // order-free: each is reset by itself
		p.askedRead, p.answeredRead, p.lastActive = 0, 0, 0
	}
}

// isActive reports whether a member has answered this leader within an election timeout, and
// its connection has not ended since.
// Raft's RecentActive does not do: CheckQuorum resets it.
func (r *Replica) isActive(id uint64) bool {
	p := r.peers[id]
	return id == r.cfg.Self.NodeID || p != nil && p.lastActive > 0 && r.ticks-p.lastActive <= electionTicks
}
