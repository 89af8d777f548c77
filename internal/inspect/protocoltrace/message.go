package protocoltrace

import (
	"encoding/binary"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/spec"
)

// received says what a message of a peer means.
func (r *recorder) received(m *raftpb.Message) {
	e := spec.Event{Peer: m.GetFrom(), Term: m.GetTerm(), Round: roundOf(m), Count: promiseOf(m)}
	switch m.GetType() {
	case raftpb.MsgApp:
		r.cut(m)
		return
	case raftpb.MsgHeartbeat:
		e.Kind = spec.Asked
	case raftpb.MsgHeartbeatResp:
		if e.Kind = spec.Confirmed; e.Round == 0 {
			return
		}
	case raftpb.MsgTimeoutNow:
		r.transfers[r.node] = m.GetTerm() + 1
		return
	case raftpb.MsgVote:
		if string(m.GetContext()) == "CampaignTransfer" {
			r.transfers[m.GetFrom()] = m.GetTerm()
		}
		return
	case raftpb.MsgVoteResp:
		if m.GetReject() {
			return
		}
		e = spec.Event{Kind: spec.VoteTold, Peer: m.GetFrom(), Term: m.GetTerm(), Since: sinceOf(m)}
	default:
		return
	}
	r.add(e)
}

// cut says from where on the log of a leader differs from what is written here, if that agrees until there: then Raft replaces it, perhaps in a write
// that waits for another one.
func (r *recorder) cut(m *raftpb.Message) {
	if agrees := m.GetIndex() <= r.applied || r.log[m.GetIndex()].GetTerm() == m.GetLogTerm(); m.GetTerm() < r.term || !agrees {
		return
	}
	for _, e := range m.GetEntries() {
		if own := r.log[e.GetIndex()]; own != nil && own.GetTerm() != e.GetTerm() {
			r.add(spec.Event{Kind: spec.Cut, Index: e.GetIndex()})
			return
		}
	}
}

// sent says what a message to a peer means.
func (r *recorder) sent(m *raftpb.Message) {
	e := spec.Event{Peer: m.GetTo(), Term: m.GetTerm(), Round: roundOf(m), Count: promiseOf(m)}
	switch m.GetType() {
	case raftpb.MsgHeartbeat:
		if e.Kind = spec.Ask; e.Round == 0 {
			return
		}
	case raftpb.MsgHeartbeatResp:
		e.Kind = spec.Confirm
	case raftpb.MsgAppResp:
		if m.GetReject() {
			return
		}
		e = spec.Event{Kind: spec.Ack, Peer: m.GetTo(), Term: m.GetTerm(), Index: m.GetIndex()}
	case raftpb.MsgVoteResp:
		if m.GetReject() {
			return
		}
		e = spec.Event{Kind: spec.VoteSent, Peer: m.GetTo(), Term: m.GetTerm(), Since: sinceOf(m)}
	case raftpb.MsgVote:
		e = spec.Event{Kind: spec.Campaign, Peer: m.GetTo(), Term: m.GetTerm(), Index: m.GetIndex()}
	case raftpb.MsgTimeoutNow:
		e = spec.Event{Kind: spec.Transfer, Peer: m.GetTo(), Term: m.GetTerm()}
	default:
		return
	}
	r.add(e)
}

// roundOf returns the number of the round of a heartbeat or its answer, 0 for none.
func roundOf(m *raftpb.Message) uint64 {
	if len(m.GetContext()) != 8 {
		return 0
	}
	return binary.LittleEndian.Uint64(m.GetContext())
}

// promiseOf returns the promise that a heartbeat asks for, or that its answer gives, in ticks.
func promiseOf(m *raftpb.Message) uint64 {
	return max(m.GetRejectHint(), 1) - 1
}

// sinceOf returns what a vote says: how long ago the voter answered a leader.
func sinceOf(m *raftpb.Message) int64 {
	if len(m.GetContext()) != 8 {
		return 0
	}
	return int64(min(binary.LittleEndian.Uint64(m.GetContext()), 1<<62))
}
