package replica

import (
	"encoding/binary"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
)

// A round needs the answers of a quorum and no others. Raft asks everyone; of its
// requests only those to as many voters as are needed are sent, which saves the others,
// and this node, most of a round's work.
//
// That costs little when a voter that was asked stays silent. The next tick's heartbeats
// go to everyone and ask for the latest round as well, so the rounds in flight are
// confirmed then; and a voter that owes an answer is not asked again while there are
// others. With two rounds in flight different voters are asked, and as an answer to the
// later round confirms the earlier one, a busy leader does not even wait for the tick.

// askQuorum chooses whom the round that begins in this turn asks; everyone, unless it
// finds enough who have answered in this term.
func (r *Replica) askQuorum() {
	voters := r.conf.GetVoters()
	r.asking, r.asked = false, r.asked[:0]
	if len(r.conf.GetVotersOutgoing()) > 0 || !slices.Contains(voters, r.cfg.Self.NodeID) {
		return // the membership is changing: both quorums count
	}
	for range len(voters) / 2 {
		var best *peerView
		for _, id := range voters {
			if id == r.cfg.Self.NodeID || slices.Contains(r.asked, id) {
				continue
			}
			if p := r.peer(id); best == nil || p.isBetter(best) {
				best = p
			}
		}
		if best.answeredRead == 0 {
			return // nobody knows who answers in this term
		}
		r.asked = append(r.asked, best.id)
	}
	r.asking = true
}

// isBetter reports whether to ask p rather than o: one that owes no answer, and then
// the one that answered last.
func (p *peerView) isBetter(o *peerView) bool {
	if owes := p.askedRead > p.answeredRead; owes != (o.askedRead > o.answeredRead) {
		return !owes
	}
	return p.answeredRead > o.answeredRead
}

// isSpare reports whether m asks for the round that begins and is not needed. It notes
// those that are.
func (r *Replica) isSpare(m *raftpb.Message) bool {
	if !r.asking || m.GetType() != raftpb.MsgHeartbeat || len(m.GetContext()) == 0 {
		return false
	}
	if !slices.Contains(r.asked, m.GetTo()) {
		return true
	}
	r.peer(m.GetTo()).askedRead = readPosition(m)
	return false
}

// answered notes which round a peer has answered. One that answers a tick's heartbeat is
// there again, and owes nothing.
func (r *Replica) answered(m *raftpb.Message) {
	if m.GetTerm() != r.term {
		return
	}
	p := r.peer(m.GetFrom())
	p.active = r.ticks
	if len(m.GetContext()) > 0 {
		p.answeredRead = max(p.answeredRead, readPosition(m))
	} else {
		p.askedRead = 0
	}
}

// readPosition is what Raft puts into the heartbeats of a round and their answers: how
// many it has begun in this term.
func readPosition(m *raftpb.Message) uint64 {
	if len(m.GetContext()) < 8 {
		return 0
	}
	return binary.LittleEndian.Uint64(m.GetContext())
}

// forgetAsked is called when the term or the role has changed: positions begin anew.
func (r *Replica) forgetAsked() {
	for _, p := range r.peers { // order-free: each is reset by itself
		p.askedRead, p.answeredRead, p.active = 0, 0, 0
	}
}

// isActive reports whether a member has answered this leader lately. Raft's own RecentActive
// begins anew at every CheckQuorum, and says no until the next answer.
func (r *Replica) isActive(id uint64) bool {
	p := r.peers[id]
	return id == r.cfg.Self.NodeID || p != nil && p.active > 0 && r.ticks-p.active <= electionTicks
}
