// Package protocoltrace observes replicas and turns their steps into events of the specification (package spec). A protocol trace is a file of them; see TRACE_FILE and "isotone verify trace".
package protocoltrace

import (
	"fmt"
	"hash/fnv"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/timeline"
	"github.com/isotone/isotone/spec"
)

// recorder makes events of what one process does. What Raft does inside is known from what it writes, sends and applies.
type recorder struct {
	node, process uint64
	emit          func(spec.Event)
	// step is the beginning of the present step, until something has happened in it. The first one of a process and of a configuration is said at once, as it
	// reads the clock that a sole voter goes by: said is set after it.
	step spec.Event
	said bool
	// term, leads and applied are those of the latest step.
	term          uint64
	leads, serves bool
	applied       uint64
	ceiling       uint64
	// log has the entries that are not applied, by index; snapshot replaces what is before.
	log      map[uint64]*raftpb.Entry
	snapshot *raftpb.Snapshot
	// hard and last are what is on disk, voted the latest vote that was written.
	hard, voted position
	last        uint64
	// transfers are the terms for which each candidate was asked to take over, by its ID.
	transfers map[uint64]uint64
	requests  map[uint64]replica.Request
	sessions  sessionRecorder
	// workers are the records and held the leases of workers that were said, worked is set if a command about them was applied.
	workers []oracle.WorkerLease
	held    []oracle.WorkerLease
	worked  bool
	// interval is the length of limits of the cluster clock, clock the latest that was said, steady the clock of the step, ticked whether ticks have passed in it.
	interval int64
	clock    replica.ClusterClock
	steady   int64
	forming  bool // it is a founder of a cluster that is not formed
	ticked   bool
}

// position is a term and a vote.
type position struct{ term, vote uint64 }

// Observe returns an observer of a replica that starts with cfg. It calls emit for each event, during the step.
func Observe(cfg replica.Config, emit func(spec.Event)) replica.Observer {
	r := &recorder{node: cfg.Self.NodeID, process: cfg.Self.Session, emit: emit, log: map[uint64]*raftpb.Entry{}, transfers: map[uint64]uint64{}, requests: map[uint64]replica.Request{}}
	if h := cfg.HardState; h != nil {
		r.hard = position{h.GetTerm(), h.GetVote()}
		r.term = h.GetTerm()
	}
	r.voted, r.interval = r.hard, int64(cfg.Interval)
	r.write(cfg.Snapshot, cfg.Entries)
	r.last = lastOf(r.last, cfg.Snapshot, cfg.Entries)
	start := spec.Event{Kind: spec.Start, Term: r.hard.term, Peer: r.hard.vote, Index: r.last, Tick: int64(cfg.TickInterval), Cluster: cfg.Self.ClusterID, Interval: r.interval, Jump: uint64(cfg.ClockJumpMax), Reach: reservationEpochs * uint64(cfg.EpochTicks) * uint64(cfg.TickInterval), Ceiling: reservedIn(cfg.Entries)}
	if cfg.Snapshot == nil && len(cfg.Entries) == 0 {
		for _, m := range cfg.Founders {
			start.Members = append(start.Members, spec.Member{ID: m.ID})
		}
	}
	r.add(start)
	r.fences(cfg.Snapshot, cfg.Entries)
	r.restore()
	return r
}

func (r *recorder) add(e spec.Event) {
	if e.Kind == spec.BeginStep && r.said {
		r.step = e
		return
	}
	r.said = r.said || e.Kind == spec.BeginStep
	if r.step.Kind != "" && e.Kind != spec.Start {
		step := r.step
		r.step = spec.Event{}
		step.Node, step.Process = r.node, r.process
		r.emit(step)
	}
	e.Node, e.Process = r.node, r.process
	r.emit(e)
}

// lastOf returns the index of the end of a log after a write.
func lastOf(last uint64, s *raftpb.Snapshot, entries []*raftpb.Entry) uint64 {
	if n := len(entries); n > 0 {
		return entries[n-1].GetIndex()
	}
	if s != nil {
		return s.GetMetadata().GetIndex()
	}
	return last
}

// write takes what goes into the log.
func (r *recorder) write(s *raftpb.Snapshot, entries []*raftpb.Entry) {
	if s != nil {
		r.snapshot = s
		clear(r.log)
	}
	for _, e := range entries {
		r.log[e.GetIndex()] = e
	}
}

// fences says which entries of a write are fences.
func (r *recorder) fences(s *raftpb.Snapshot, entries []*raftpb.Entry) {
	if at := s.GetMetadata().GetIndex(); at > 1 { // all founders begin with the first one
		r.add(spec.Event{Kind: spec.Append, Fences: []uint64{at}})
	}
	if len(entries) == 0 {
		return
	}
	e := spec.Event{Kind: spec.Append, Index: entries[0].GetIndex(), Proposed: r.proposedOf(entries)}
	for _, one := range entries {
		if isFence(one) {
			e.Fences = append(e.Fences, one.GetIndex())
		}
	}
	r.add(e)
}

// isFence reports whether whoever answers for a timeline has to know of an entry: changes of members, owners and timelines, and ends of leases.
func isFence(e *raftpb.Entry) bool {
	if e.GetType() != raftpb.EntryNormal || len(e.GetData()) == 0 {
		return e.GetType() != raftpb.EntryNormal
	}
	c, err := oracle.DecodeCommand(e.GetData())
	if err != nil || c.Kind != oracle.KindTimeline {
		return err != nil
	}
	switch c.Timeline.Kind {
	case timeline.KindQuota, timeline.KindMake, timeline.KindDrop, timeline.KindLeaseOn, timeline.KindLeaseOff:
		return false
	}
	return true
}

// Before implements [replica.Observer].
func (r *recorder) Before(in *replica.Input) {
	r.add(spec.Event{Kind: spec.BeginStep, At: int64(in.Mono), Steady: in.Steady, Wall: in.Now})
	if w := in.Persisted; w != nil {
		if w.HardState != nil {
			r.hard = position{w.HardState.GetTerm(), w.HardState.GetVote()}
		}
		r.last = lastOf(r.last, w.Snapshot, w.Entries)
		r.add(spec.Event{Kind: spec.Durable, Term: r.hard.term, Peer: r.hard.vote, Index: r.last})
	}
	for _, m := range in.Messages {
		r.received(m)
	}
	for _, h := range in.Hellos {
		r.add(spec.Event{Kind: spec.Met, Peer: h.NodeID, Hello: helloOf(h)})
	}
	r.clockBefore(in)
	for _, a := range in.OwnerAnswers {
		if a.Session == r.process {
			r.add(spec.Event{Kind: spec.ToldFence, Peer: a.Peer, Round: a.Round, Index: a.Fence})
		}
	}
	if in.Ticks > 0 {
		r.add(spec.Event{Kind: spec.Tick, Count: uint64(in.Ticks)})
	}
	r.sessions.come(in)
	for _, q := range in.Requests {
		if len(q.Counts) == 0 && q.Session == nil {
			continue
		}
		r.requests[q.Token] = q
		r.add(spec.Event{Kind: spec.Request, Token: q.Token, Timeline: q.Timeline, Lease: q.Mode == isotone.ReadLease && q.Session == nil, Floor: spec.Timestamp(q.Floor), Raise: q.Raise})
	}
}

// After implements [replica.Observer].
func (r *recorder) After(of *replica.Replica, e *replica.Effects) {
	b := of.Brief()
	if leads := b.Role == raft.StateLeader; b.Term != r.term || leads != r.leads {
		r.term, r.leads = b.Term, leads
		r.add(spec.Event{Kind: spec.Role, Term: b.Term, Leads: leads})
	}
	applied := r.applied
	r.apply(b.Applied)
	if b.Ceiling != r.ceiling || b.Serving != r.serves || applied != r.applied {
		r.ceiling, r.serves = b.Ceiling, b.Serving
		r.add(spec.Event{Kind: spec.State, Ceiling: b.Ceiling, Serves: b.Serving, State: of.Digest()})
	}
	r.formationAfter(b.Forming, e.Write)
	r.clockAfter(of)
	if r.worked || e.Changed {
		r.workersOf(of)
	}
	r.votes(e.Write)
	if w := e.Write; w != nil {
		r.write(w.Snapshot, w.Entries)
		r.fences(w.Snapshot, w.Entries)
	}
	for _, q := range e.AskVoters {
		if q.Round != 0 {
			r.add(spec.Event{Kind: spec.AskFence, Peer: q.Peer, Round: q.Round})
		}
	}
	for _, a := range e.TellOwners {
		r.add(spec.Event{Kind: spec.TellFence, Peer: a.Peer, Token: a.Session, Round: a.Round, Index: a.Fence})
	}
	for _, m := range e.Send {
		r.sent(m)
	}
	r.clockTold(of, e)
	r.sessionsBefore(of, e)
	for _, a := range e.Answers {
		r.answered(a, of)
	}
	r.sessionsAfter(of)
}

// votes notes a vote that is to be written. It was decided in this step, or in one before.
func (r *recorder) votes(w *replica.Write) {
	if w == nil || w.HardState == nil {
		return
	}
	v := position{w.HardState.GetTerm(), w.HardState.GetVote()}
	if v == r.voted {
		return
	}
	if r.voted = v; v.vote != 0 {
		r.add(spec.Event{Kind: spec.Vote, Term: v.term, Peer: v.vote, Transfer: r.transfers[v.vote] == v.term})
	}
}

func (r *recorder) answered(a replica.Answer, of *replica.Replica) {
	q, ok := r.requests[a.Token]
	if !ok {
		return
	}
	delete(r.requests, a.Token)
	e := spec.Event{Kind: spec.Answer, Token: a.Token}
	if a.Err == nil {
		if q.Timeline != "" {
			e.Tenure = tenureOf(of, q.Timeline)
		}
		if q.Session != nil {
			e.Reply = replyOf(q.Session)
		}
		if q.Op != timeline.OpIssue {
			q.Ranges = nil // times that others may have as well
		}
		for _, g := range q.Ranges {
			if g.Count == 0 {
				continue // the session is not alive
			}
			last := isotone.Timestamp{Time: g.First.Time, Index: g.First.Index + g.Count - 1}
			if q.U64 {
				last = (isotone.Timestamp64From(g.First) + isotone.Timestamp64(g.Count-1)).Timestamp()
			}
			e.Ranges = append(e.Ranges, spec.Range{First: spec.Timestamp(g.First), Last: spec.Timestamp(last)})
		}
	}
	r.add(e)
}

// apply says what was applied up to an index.
func (r *recorder) apply(to uint64) {
	for r.applied < to {
		e, ok := r.log[r.applied+1]
		if !ok {
			if s := r.snapshot; s == nil || s.GetMetadata().GetIndex() <= r.applied || s.GetMetadata().GetIndex() > to {
				return
			}
			r.restore()
			continue
		}
		r.applied++
		delete(r.log, r.applied)
		c := commandOf(e)
		r.worked = r.worked || c.Lease != nil || c.Release != nil || c.Revoke != nil
		for _, l := range c.Locks {
			r.sessions.changed = append(r.sessions.changed, l.Name)
		}
		r.add(spec.Event{Kind: spec.Entry, Index: e.GetIndex(), Term: e.GetTerm(), Command: c})
		r.said = r.said && c.Change == nil
	}
}

// restore says that the snapshot is applied.
func (r *recorder) restore() {
	s := r.snapshot
	if s == nil {
		return
	}
	conf := s.GetMetadata().GetConfState()
	e := spec.Event{Kind: spec.Restore, Index: s.GetMetadata().GetIndex(), Config: &spec.Config{Voters: slices.Clone(conf.GetVoters()), Outgoing: slices.Clone(conf.GetVotersOutgoing())}}
	if state, err := oracle.DecodeState(s.GetData()); err == nil {
		e.Ceiling, e.Cluster, e.Interval = state.Ceiling, state.ClusterID, int64(state.Interval)
		e.Members = membersOf(state)
		for h := range state.Holds.All() {
			e.Holds, r.sessions.changed = append(e.Holds, holdOf(h)), append(r.sessions.changed, h.Name)
		}
		e.Restored = restoredAt(state.Fence)
		r.workers, r.worked = state.Workers, true
		for _, w := range state.Workers {
			e.Workers = append(e.Workers, workerOf(w))
		}
		if state.Space != (oracle.Space{}) {
			e.Space = fmt.Sprint(state.Space)
		}
	}
	r.applied, r.said = e.Index, false
	r.add(e)
}

// tenureOf returns who owns a timeline, as far as is applied.
func tenureOf(of *replica.Replica, name string) *spec.Tenure {
	have, _ := of.Timelines().Timeline(name)
	g, _ := of.Timelines().Group(have.Group)
	return &spec.Tenure{
		Owner: g.Owner, Session: g.Session, Grant: g.Grant, Since: have.Since, Sealed: have.Bound != 0, Leased: g.Lease != 0 && !g.Ending, Waits: g.WaitsForLease(),
	}
}

// workersOf says what has changed of the records of workers, and of what this process holds.
func (r *recorder) workersOf(of *replica.Replica) {
	if r.worked {
		r.worked = false
		now := of.WorkerLeases()
		var changed []spec.Worker
		for _, w := range now {
			if !slices.Contains(r.workers, w) {
				changed = append(changed, workerOf(w))
			}
		}
		if r.workers = now; len(changed) > 0 {
			r.add(spec.Event{Kind: spec.WorkerLeases, Workers: changed})
		}
	}
	held := of.Status().Workers
	if slices.Equal(held, r.held) {
		return
	}
	e := spec.Event{Kind: spec.WorkersHeld}
	for _, w := range held {
		e.Workers = append(e.Workers, workerOf(w))
	}
	r.held = held
	r.add(e)
}

func workerOf(w oracle.WorkerLease) spec.Worker {
	return spec.Worker{Worker: uint64(w.Worker), Node: w.Node, Session: w.Session, Start: w.Start, End: w.End, Revoked: w.Revoked}
}

// commandOf returns what an entry changes.
func commandOf(e *raftpb.Entry) *spec.Command {
	h := fnv.New64a()
	_, _ = h.Write([]byte{byte(e.GetType())})
	_, _ = h.Write(e.GetData())
	c := &spec.Command{Digest: h.Sum64(), Fence: isFence(e)}
	if e.GetType() != raftpb.EntryNormal {
		cc := &raftpb.ConfChangeV2{}
		if proto.Unmarshal(e.GetData(), cc) == nil {
			c.Change = changeOf(cc)
		}
		return c
	}
	if len(e.GetData()) == 0 {
		return c
	}
	command, err := oracle.DecodeCommand(e.GetData())
	if err != nil {
		return c
	}
	switch command.Kind {
	case oracle.KindReserve:
		c.Reserve, c.Shared = max(command.Target, 1), command.Shared
		for _, d := range command.Durable {
			c.Durable = append(c.Durable, spec.Member{ID: d.ID, Durable: d.Index})
		}
	case oracle.KindRegister:
		c.Register = new(memberOf(command.Member))
	case oracle.KindFloor:
		c.Raise = max(command.Target, 1)
	case oracle.KindLevel:
		c.Level = command.Level
	case oracle.KindInterval:
		c.Interval = new(int64(command.Interval))
	case oracle.KindLease:
		q := command.Lease
		c.Lease = &spec.Lease{Node: q.Node, Session: q.Session, From: q.From, Until: q.Until, Space: fmt.Sprint(q.Space)}
	case oracle.KindHold:
		for _, one := range command.Holds {
			c.Locks = append(c.Locks, spec.LockChange{Claim: one.Kind == oracle.HoldClaim, Hold: holdOf(one.Hold)})
		}
	case oracle.KindRelease:
		c.Release = []spec.Used{}
		for _, u := range command.Release.Used {
			c.Release = append(c.Release, spec.Used{Worker: uint64(u.Worker), Start: u.Start, Next: u.Next})
		}
	case oracle.KindRevoke:
		c.Revoke = &spec.Used{Worker: uint64(command.Revoke.Worker), Start: command.Revoke.Start}
	}
	return c
}

func changeOf(cc *raftpb.ConfChangeV2) *spec.Change {
	_, joint := cc.EnterJoint()
	c := &spec.Change{Joint: joint && !cc.LeaveJoint()}
	for _, one := range cc.GetChanges() {
		if one.GetType() == raftpb.ConfChangeAddNode {
			c.Add = append(c.Add, one.GetNodeId())
		} else {
			c.Remove = append(c.Remove, one.GetNodeId())
		}
	}
	return c
}
