package replica

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
)

// receive steps one message from a peer.
func (r *Replica) receive(m *raftpb.Message) {
	r.spoken(m.GetFrom())
	switch m.GetType() {
	case raftpb.MsgVote, raftpb.MsgPreVote:
		if !r.mayVote(m) {
			return
		}
	case raftpb.MsgSnap:
		if r.isDisputed(m) {
			return
		}
	case raftpb.MsgHeartbeat:
		if r.isDisputed(m) {
			return
		}
		if m.GetTerm() >= r.term {
			r.heartbeat = r.ticks
		}
	case raftpb.MsgApp:
		if !r.hasRoom(len(m.GetEntries())) {
			return
		}
		if m = r.agree(m); m == nil {
			return
		}
	case raftpb.MsgAppResp, raftpb.MsgVoteResp:
		r.promised(m)
	case raftpb.MsgHeartbeatResp:
		r.heartbeatAnswered(m)
	case raftpb.MsgProp:
		r.takeProposal(m)
		return
	}
	m = r.mutateReceived(m)
	// An error means that the message was of no use, which Raft tolerates.
	_ = r.raw.Step(m)
	if !r.isHot(m) {
		r.observe()
	}
}

// mayVote keeps the promise on which leases rest (I5): no vote for one election
// timeout after a heartbeat was acknowledged. Raft has such a rule (CheckQuorum), but
// forgets it when any message brings a higher term, and with a restart; so it is kept
// here as well. After a start a node does not know what it acknowledged before, and
// waits as long; that also lets every reachable peer refuse a directory that was wiped
// or set back before it can do harm (I6).
//
// A transfer of leadership overrides all this: its leader has given up the lease.
func (r *Replica) mayVote(m *raftpb.Message) bool {
	if string(m.GetContext()) == campaignTransfer {
		return true
	}
	if r.ticks < electionTicks && !mutant.On(mutant.VoteAfterRestart) {
		return false
	}
	return r.ticks-r.heartbeat >= electionTicks || mutant.On(mutant.VoteAfterTermChange) || mutant.On(mutant.VoteAfterRestart) && r.heartbeat == 0
}

// campaignTransfer is what Raft puts into the vote requests of a candidate to whom
// leadership is being transferred. The library does not export it.
const campaignTransfer = "CampaignTransfer"

// isHot reports whether m can change neither term nor role nor leader: the answers
// that a leader gets in its own term. Asking Raft for its status after each of them
// would cost more than the message.
func (r *Replica) isHot(m *raftpb.Message) bool {
	return r.role == raft.StateLeader && m.GetTerm() == r.term &&
		(m.GetType() == raftpb.MsgHeartbeatResp || m.GetType() == raftpb.MsgAppResp)
}

// observe notices a change of term, role or leader, and drops everything volatile
// with it (I2). It is called after every call of Raft that may bring one, so that no
// change can hide between two turns.
func (r *Replica) observe() {
	st := r.raw.BasicStatus()
	term, role, lead := st.HardState.GetTerm(), st.RaftState, st.Lead
	if term == r.term && role == r.role && lead == r.lead {
		return
	}
	if lead != r.lead && lead != raft.None {
		r.counters.Elections++
	}
	kept := term == r.term && role == r.role
	r.term, r.role, r.lead = term, role, lead
	r.effects.Changed = true
	if kept {
		return
	}
	r.counters.RoundsFailed += uint64(len(r.queue.rounds))
	if r.leading.lease.held {
		r.counters.LeasesLost++
	}
	old := r.leading
	r.leading = leading{}
	r.resetReads()
	r.failAll(r.unserved())
	r.failClients(old.clients)
	r.mutateTerm(old.alloc)
	if role == raft.StateLeader {
		r.reserve()
	}
}

// processReady carries out what Raft has ready until nothing is left. Heartbeats of a round
// go to the chosen voters, nil for everyone.
func (r *Replica) processReady(chosen []uint64) {
	for r.effects.Fatal == nil && (r.raw.HasReady() || r.handOut()) {
		if !r.raw.HasReady() {
			continue
		}
		rd := r.raw.Ready()
		r.observe()
		for _, rs := range rd.ReadStates {
			r.confirm(rs.RequestCtx)
		}
		r.dispatch(rd.Messages, chosen)
	}
}

// dispatch sorts the messages of a Ready: to storage, to the state machine, to peers.
//
// A candidate's vote requests wait until its new term is durable. Raft sends them at once
// and delays only the candidate's own vote. With the votes of others the candidate can lead
// before the write, crash, come back in the old term, and be elected for the same term
// again, by the same votes, with another log.
func (r *Replica) dispatch(msgs []*raftpb.Message, chosen []uint64) {
	var requests []*raftpb.Message
	for _, m := range msgs {
		switch {
		case m.GetTo() == raft.LocalAppendThread:
			r.write(m, requests)
			requests = nil
		case m.GetTo() == raft.LocalApplyThread:
			r.apply(m)
		case m.GetType() == raftpb.MsgVote && !mutant.On(mutant.CampaignUnsynced):
			requests = append(requests, m)
		case m.GetType() == raftpb.MsgHeartbeat:
			r.sendHeartbeat(m, chosen)
		default:
			r.effects.Send = append(r.effects.Send, m)
		}
	}
	if len(requests) > 0 {
		r.write(&raftpb.Message{}, requests)
	}
}

func (r *Replica) persistedSnapshot(s *raftpb.Snapshot) error {
	if err := r.log.ApplySnapshot(s); err != nil {
		// Raft overtook it: a newer one is already here.
		return nil
	}
	r.durable.index = s.GetMetadata().GetIndex()
	if s.GetMetadata().GetIndex() <= r.applied {
		return nil
	}
	named := r.state.ClusterID
	if err := r.restore(s); err != nil {
		return err
	}
	r.naming = r.naming || r.state.ClusterID != named
	return nil
}

// apply carries out committed entries and tells Raft so.
func (r *Replica) apply(m *raftpb.Message) {
	for _, e := range m.GetEntries() {
		if err := r.applyEntry(e); err != nil {
			r.effects.Fatal = fmt.Errorf("replica: log entry %d of term %d: %w", e.GetIndex(), e.GetTerm(), err)
			return
		}
		r.applied = e.GetIndex()
	}
	for _, resp := range m.GetResponses() {
		_ = r.raw.Step(resp)
	}
	r.observe()
	r.snapshot()
}

func (r *Replica) applyEntry(e *raftpb.Entry) error {
	switch e.GetType() {
	case raftpb.EntryConfChange, raftpb.EntryConfChangeV2:
		return r.applyChange(e)
	}
	if len(e.GetData()) == 0 {
		return nil // the entry with which a leader opens its term
	}
	c, err := oracle.DecodeCommand(e.GetData())
	if err != nil {
		return err
	}
	if err := r.canRead(oracle.LevelOf(c)); err != nil {
		return err
	}
	if err := r.checkDigest(c); err != nil {
		return err
	}
	floor, named := r.state.Ceiling, r.state.ClusterID
	outcome := r.state.Apply(c)
	r.mutateApplied(c)
	r.naming = r.naming || r.state.ClusterID != named
	switch c.Kind {
	case oracle.KindReserve:
		r.noteDigest(e.GetIndex())
		r.reserved(e.GetTerm(), floor)
	case oracle.KindName, oracle.KindRegister, oracle.KindLevel:
		r.effects.Changed = true
	case oracle.KindLease, oracle.KindRelease:
		r.leased(e.GetTerm(), c, outcome)
	}
	return nil
}

// snapshot compacts the log when enough of it was applied, or the membership changed:
// a new member ignores a snapshot in which it does not occur. The last entries stay
// in memory for members that are only a little behind.
func (r *Replica) snapshot() {
	due := r.applied >= r.snapshotted+r.cfg.SnapshotEvery
	if !due && !r.joined || r.applied <= r.snapshotted {
		return
	}
	r.joined = false
	s, err := r.log.CreateSnapshot(r.applied, r.conf, r.state.Append(nil))
	if err != nil {
		panic(fmt.Sprintf("replica: snapshot at applied index %d: %v", r.applied, err))
	}
	if due {
		if err := r.log.Compact(r.applied - r.cfg.SnapshotEvery/2); err != nil && !errors.Is(err, raft.ErrCompacted) {
			panic(fmt.Sprintf("replica: compact: %v", err))
		}
	}
	r.compact, r.snapshotted = s, r.applied
}
