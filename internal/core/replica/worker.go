package replica

import (
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
)

// Worker leases of this process (I9). Each tick compares what the node wants with what
// it holds by the log that is applied here, and proposes what is missing: as leader
// itself, otherwise through the leader. There is no answer but the applied log. A
// proposal that gets lost is made again; one that arrives late or twice is harmless by
// the rules of the state machine (internal/core/oracle/worker.go).

// askTicks is how long this node waits for one proposal about its worker leases before it
// makes the next: an election timeout, in which a lost leader is replaced.
const askTicks = electionTicks

// A lease is renewed when less than 3/4 of its length is left. The rest is what an
// outage of the quorum may last without stopping the ids.
const renewQuarters = 3

// workers is what this process holds and wants of worker leases.
type workers struct {
	// held are the leases of this process as of the applied log, by worker, but for those
	// that are being given back. The slice is replaced, never changed: Status hands it out.
	held []oracle.WorkerLease
	// returning are leases given back whose release is not applied yet.
	returning []oracle.Used
	// refusal is what came of the latest request, nil if it was granted.
	refusal *oracle.LeaseRefusal
	// asked and returned are the ticks of the latest proposals, 0 if there was none.
	asked, returned uint64
}

// validateWorkers lists the faults of what concerns worker leases.
func (c *Config) validateWorkers() []error {
	if c.LeaseMillis == 0 {
		return nil
	}
	var faults []error
	if !c.Space.IsValid() {
		faults = append(faults, fmt.Errorf("replica: Space is out of range"))
	}
	if c.FixedWorker < oracle.AnyWorker || c.Space.IsValid() && c.FixedWorker >= c.Space.Workers() {
		faults = append(faults, fmt.Errorf("replica: FixedWorker is out of range"))
	}
	if c.LeaseMillis > oracle.LeaseMax {
		faults = append(faults, fmt.Errorf("replica: LeaseMillis is out of range"))
	}
	if c.Workers < 0 || c.Workers > oracle.SlotsMax || c.FixedWorker != oracle.AnyWorker && c.Workers > 1 {
		faults = append(faults, fmt.Errorf("replica: Workers is out of range"))
	}
	return faults
}

// keepWorkers proposes, once a tick at most, what is missing.
func (r *Replica) keepWorkers() {
	w := &r.workers
	if len(w.returning) > 0 && r.isDue(w.returned) {
		c := oracle.Command{Kind: oracle.KindRelease, Release: oracle.Release{
			Node: r.cfg.Self.NodeID, Session: r.cfg.Self.Session, Used: w.returning,
		}}
		if r.proposeWorkers(c) {
			w.returned = r.ticks
		}
	}
	now := r.millis()
	if len(w.returning) > 0 || !r.isDue(w.asked) || !r.needsWorkers(now) || !r.isRegistered() {
		return
	}
	c := oracle.Command{Kind: oracle.KindLease, Lease: oracle.LeaseRequest{
		Space: r.cfg.Space, Node: r.cfg.Self.NodeID, Session: r.cfg.Self.Session,
		Slots: uint8(r.workersWanted()), Fixed: r.cfg.FixedWorker, From: now, Until: now + r.cfg.LeaseMillis,
	}}
	if r.proposeWorkers(c) {
		w.asked = r.ticks
	}
}

// millis is the wall clock in unix milliseconds.
func (r *Replica) millis() uint64 { return r.now / uint64(time.Millisecond) }

// isSame reports whether u speaks of the grant l.
func isSame(l oracle.WorkerLease, u oracle.Used) bool {
	return l.Worker == u.Worker && l.Start == u.Start
}

func (r *Replica) isDue(last uint64) bool { return last == 0 || r.ticks-last >= askTicks }

// needsWorkers reports whether this node holds fewer leases than it wants, or one of them
// should be renewed.
func (r *Replica) needsWorkers(now uint64) bool {
	have := 0
	for _, l := range r.workers.held {
		if int(l.Slot) < r.workersWanted() && l.End >= now+r.cfg.LeaseMillis*renewQuarters/4 {
			have++
		}
	}
	return have < r.workersWanted()
}

// isRegistered reports whether this process is on record. Before that it is granted
// nothing.
func (r *Replica) isRegistered() bool {
	m, _ := r.state.Member(r.cfg.Self.NodeID)
	return m.Session == r.cfg.Self.Session
}

// proposeWorkers proposes a command about this process's own leases. It reports whether
// there was anyone to propose it to.
func (r *Replica) proposeWorkers(c oracle.Command) bool {
	data := c.Append(nil)
	switch {
	case r.role == raft.StateLeader:
		return r.proposeEncoded(data)
	case r.lead == raft.None || r.lead == r.cfg.Self.NodeID:
		return false
	}
	r.effects.Send = append(r.effects.Send, &raftpb.Message{
		Type: raftpb.MsgProp.Enum(), From: new(r.cfg.Self.NodeID), To: new(r.lead), Term: new(r.term),
		Entries: []*raftpb.Entry{{Data: data}},
	})
	return true
}

// takeProposal proposes, as leader, what another member asks for. Members may only ask for
// worker leases, and only for their own: everything else is the leader's to propose.
func (r *Replica) takeProposal(m *raftpb.Message) {
	if r.role != raft.StateLeader || !isOwnLease(m) || !r.proposeEncoded(m.GetEntries()[0].GetData()) {
		r.counters.ProposalsDropped++
	}
}

// isOwnLease reports whether m holds one command, about worker leases of its sender.
func isOwnLease(m *raftpb.Message) bool {
	if len(m.GetEntries()) != 1 || m.GetFrom() == 0 {
		return false
	}
	e := m.GetEntries()[0]
	c, err := oracle.DecodeCommand(e.GetData())
	if err != nil || e.GetType() != raftpb.EntryNormal {
		return false
	}
	switch c.Kind {
	case oracle.KindLease:
		return c.Lease.Node == m.GetFrom()
	case oracle.KindRelease:
		return c.Release.Node == m.GetFrom()
	}
	return false
}

// leased is called when a command about worker leases was applied, proposed in term.
func (r *Replica) leased(term uint64, c oracle.Command, o oracle.Outcome) {
	switch {
	case c.Kind == oracle.KindLease && c.Lease.Node == 0:
		r.clientLeased(term, c.Lease.Session, o)
	case c.Kind == oracle.KindRelease && c.Release.Node == 0:
		r.clientLeased(term, c.Release.Session, o)
	}
	if c.Kind == oracle.KindLease && c.Lease.Node == r.cfg.Self.NodeID && c.Lease.Session == r.cfg.Self.Session {
		if w := &r.workers; w.refusal != nil || o.Refusal != nil {
			w.refusal = o.Refusal
			r.effects.Changed = true
		}
	}
	r.relist()
}

// relist finds out which leases this process holds. It is called when the records may
// have changed, and never for a request.
func (r *Replica) relist() {
	w := &r.workers
	self := r.cfg.Self
	isReturning := func(l oracle.WorkerLease) bool {
		return slices.ContainsFunc(w.returning, func(u oracle.Used) bool { return isSame(l, u) })
	}
	// What is on record no more has been given back.
	w.returning = slices.DeleteFunc(slices.Clone(w.returning), func(u oracle.Used) bool {
		l, _ := r.state.Worker(u.Worker)
		return !l.IsHeldBy(self.NodeID, self.Session) || !isSame(l, u)
	})
	var held []oracle.WorkerLease
	for _, l := range r.state.Workers {
		if !l.IsHeldBy(self.NodeID, self.Session) || isReturning(l) && !mutant.On(mutant.RelistReleased) {
			continue
		}
		held = append(held, r.mutateHeld(l))
	}
	if !slices.Equal(held, w.held) {
		w.held = held
		r.effects.Changed = true
		r.follow()
	}
}
