package replica

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/oracle"
)

// receive handles one message from a peer.
func (r *Replica) receive(m *raftpb.Message) {
	r.clearRefusal(m.GetFrom())
	r.succession.heardFrom(m.GetFrom())
	switch m.GetType() {
	case raftpb.MsgVote, raftpb.MsgPreVote:
		if r.succession.holdVote(m) {
			return
		}
		r.succession.askedForVote(m, r.ticks)
	case raftpb.MsgSnap:
		if r.digests.isDisputed(m) {
			return
		}
		r.succession.heardFromLeader(m)
		r.interval.noteAnsweredTo(m)
	case raftpb.MsgHeartbeat:
		if r.digests.isDisputed(m) {
			return
		}
		r.succession.heardFromLeader(m)
		if m.GetTerm() >= r.term {
			r.succession.promise(m)
		}
		r.interval.noteAnsweredTo(m)
		if r.answerRound(m) {
			return
		}
	case raftpb.MsgApp:
		if !r.digests.isDisputed(m) {
			r.succession.heardFromLeader(m)
		}
		r.interval.noteAnsweredTo(m)
		if !r.tail.hasRoom(len(m.GetEntries())) {
			return
		}
		if m = r.digests.checkAppend(m); m == nil {
			return
		}
	case raftpb.MsgPreVoteResp:
		if r.succession.mustNotRun(m) {
			return
		}
	case raftpb.MsgAppResp:
		r.admission.notePromise(m)
	case raftpb.MsgVoteResp:
		r.admission.notePromise(m)
		r.interval.noteUnheard(m)
		r.succession.noteVote(m)
		if r.succession.holdGrant(m) {
			return
		}
	case raftpb.MsgHeartbeatResp:
		if r.heartbeatAnswered(m) {
			return
		}
	case raftpb.MsgProp:
		r.receiveProposal(m)
		return
	}
	r.stepRaft(m)
}

// stepRaft passes a message to Raft.
func (r *Replica) stepRaft(m *raftpb.Message) {
	_ = r.raw.Step(m) // an error means that Raft ignored it
	if !r.cannotDepose(m) {
		r.observe()
	}
}

// cannotDepose reports whether m is an answer to a leader in its own term, which changes
// neither term nor role nor leader. Reading Raft's status would cost more than the message.
func (r *Replica) cannotDepose(m *raftpb.Message) bool {
	return r.role == raft.StateLeader && m.GetTerm() == r.term &&
		(m.GetType() == raftpb.MsgHeartbeatResp || m.GetType() == raftpb.MsgAppResp)
}

// observe notices a change of term, role or leader and drops everything volatile with it
// (I2). It has to follow every call of Raft that may bring one.
func (r *Replica) observe() {
	st := r.raw.BasicStatus()
	term, role, lead := st.HardState.GetTerm(), st.RaftState, st.Lead
	if term == r.term && role == r.role && lead == r.lead {
		return
	}
	if elected := (leadership{term, lead}); lead != raft.None && elected != r.elected {
		r.elected = elected // and not a leader that this node had only forgotten
		r.counters.Elections++
	}
	sameTerm, sameLead := term == r.term && role == r.role, lead == r.lead
	if r.role == raft.StateLeader && !sameTerm {
		r.interval.noteLeads()
	}
	r.term, r.role, r.lead = term, role, lead
	if !sameLead {
		r.succession.leaderChanged()
	}
	r.effects.Changed = true
	if sameTerm {
		return
	}
	r.counters.RoundsFailed += uint64(len(r.queue.rounds))
	if r.leading.lease.held {
		r.counters.LeasesLost++
	}
	old := r.leading
	r.leading = newLeading(r)
	s := &r.succession
	s.granters, s.rejecters, s.early, s.outcomeTicks = nil, nil, nil, 0
	r.resetReads()
	r.queue.redirectAll(r.owner.takeOver(r.queue.take()))
	old.clients.drop()
	old.timelines.drop()
	r.mutateTerm(old.alloc)
	if role == raft.StateLeader {
		r.leaderElected()
		r.reserve()
	}
}

// processReady carries out what Raft has ready until nothing is left.
func (r *Replica) processReady() {
	for r.effects.Fatal == nil && (r.raw.HasReady() || r.startWrite()) {
		if !r.raw.HasReady() {
			continue
		}
		rd := r.raw.Ready()
		r.observe()
		r.dispatch(rd.Messages)
	}
}

// dispatch sorts the messages of a Ready: to storage, to the state machine, to peers.
func (r *Replica) dispatch(msgs []*raftpb.Message) {
	r.tail.lengthenAppends(msgs)
	var requests []*raftpb.Message
	for _, m := range msgs {
		switch {
		case m.GetTo() == raft.LocalAppendThread:
			r.tail.write(m, r.answerVotes(m.GetResponses()))
		case m.GetTo() == raft.LocalApplyThread:
			r.apply(m)
		case m.GetType() == raftpb.MsgVote:
			requests = append(requests, m)
		case m.GetType() == raftpb.MsgHeartbeat:
			r.leading.lease.askPromise(m)
			r.effects.Send = append(r.effects.Send, m)
		case m.GetType() == raftpb.MsgHeartbeatResp:
			r.succession.statePromise(m)
			r.effects.Send = append(r.effects.Send, m)
		default:
			r.effects.Send = append(r.effects.Send, m)
		}
	}
	r.askForVotes(requests) // after all that is to be written is known
}

func (r *Replica) snapshotPersisted(s *raftpb.Snapshot) error {
	if err := r.log.ApplySnapshot(s); err != nil {
		return nil // out of date: the log has a newer one
	}
	r.durable.index = s.GetMetadata().GetIndex()
	if s.GetMetadata().GetIndex() <= r.applied {
		return nil
	}
	named := r.state.ClusterID
	if err := r.restore(s); err != nil {
		return err
	}
	r.tail.nameUnsaved = r.tail.nameUnsaved || r.state.ClusterID != named
	return nil
}

// apply applies committed entries and tells Raft.
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
	r.takeSnapshot()
}

func (r *Replica) applyEntry(e *raftpb.Entry) error {
	switch e.GetType() {
	case raftpb.EntryConfChange, raftpb.EntryConfChangeV2:
		return r.applyChange(e)
	}
	if len(e.GetData()) == 0 {
		return nil // the entry with which Raft opens a term
	}
	c, err := oracle.DecodeCommand(e.GetData())
	if err != nil {
		return err
	}
	if err := r.canRead(oracle.LevelOf(c)); err != nil {
		return err
	}
	if err := r.digests.check(c); err != nil {
		return err
	}
	floor := r.state.Ceiling
	outcome := r.state.Apply(e.GetIndex(), c)
	r.mutateApplied(c)
	switch c.Kind {
	case oracle.KindReserve:
		r.digests.note(e.GetIndex())
		r.reservationApplied(e.GetTerm(), floor)
	case oracle.KindFloor:
		r.floorApplied(e.GetTerm(), c.Target)
	case oracle.KindInterval:
		r.intervalApplied(e.GetTerm())
	case oracle.KindRegister, oracle.KindLevel, oracle.KindUpdate:
		r.effects.Changed = true
	case oracle.KindLease, oracle.KindRelease, oracle.KindRevoke:
		r.leaseApplied(e.GetTerm(), c, outcome)
	case oracle.KindTimeline:
		r.leading.timelines.commandApplied(e.GetTerm(), c.Timeline, outcome)
	case oracle.KindHold:
		r.leading.sessions.locks.applied(e.GetTerm(), c.Holds, outcome.Freed)
	}
	return nil
}

// takeSnapshot makes a snapshot when Config.SnapshotEvery entries were applied, and then
// compacts the log, keeping the last entries for members that lag a little. It also makes
// one after a membership change: a new member ignores a snapshot without itself.
func (r *Replica) takeSnapshot() {
	due := r.applied >= r.snapshotted+r.cfg.SnapshotEvery
	if !due && !r.membersChanged || r.applied <= r.snapshotted {
		return
	}
	r.membersChanged = false
	s, err := r.log.CreateSnapshot(r.applied, r.conf, r.state.Append(nil))
	if err != nil {
		panic(fmt.Sprintf("replica: snapshot at applied index %d: %v", r.applied, err))
	}
	if due {
		if err := r.log.Compact(r.applied - r.cfg.SnapshotEvery/2); err != nil && !errors.Is(err, raft.ErrCompacted) {
			panic(fmt.Sprintf("replica: compact: %v", err))
		}
	}
	r.tail.ownSnapshot, r.snapshotted = s, r.applied
}
