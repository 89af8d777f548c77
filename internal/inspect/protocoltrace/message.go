package protocoltrace

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/spec"
)

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
