package replica

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/snowflake"
)

// The worker leases of this process (I9). Each tick the replica compares the leases that it
// needs with those that it holds by its applied log, and proposes the difference, through
// the leader if that is another node. The only answer is the applied log. A lost proposal is
// repeated; one that arrives late or twice is harmless (internal/core/oracle/worker.go).

// renewQuarters: a lease is renewed when less than 3/4 of its length is left. That much an
// outage of the quorum may last without stopping the ids.
const renewQuarters = 3

// ids are the worker leases of this process, and its generators of ids.
type ids struct {
	*facts
	clocks *clocks
	tail   *tail

	// held are the leases of this process in the applied log, by worker, without those in
	// releasing and those that were revoked and replaced. The slice is replaced, never changed: Status returns it.
	held []oracle.WorkerLease
	// releasing are leases whose release is not applied yet; at most two for each slot: one that
	// was revoked and replaced, and the one after it. No lease is requested meanwhile.
	releasing []oracle.Used
	// refusal is that of the latest request, nil if it was granted.
	refusal *oracle.LeaseRefusal
	// requestedAt and releasedAt are the ticks of the latest proposals, 0 if there was none.
	requestedAt, releasedAt uint64

	// slots is replaced, never changed: Status returns it.
	slots []*snowflake.Generator
	// stopped is set once the process makes no more ids.
	stopped bool
	// refused says why no ids are made although there may be leases; nil if they are.
	refused *isotone.Error
	// early is set while this node's clock is before the epoch of the ids.
	early bool
	// used is the Start of the latest lease of each worker that had a generator. A process
	// makes at most one generator for a grant.
	used map[uint16]uint64
	// vouched is the latest that was known of the quorum's clock.
	vouched reading
}

// maintain proposes releases and requests that are due.
func (g *ids) maintain() {
	if len(g.releasing) > 0 && g.isDue(g.releasedAt) {
		c := oracle.Command{Kind: oracle.KindRelease, Release: oracle.Release{
			Node: g.cfg.Self.NodeID, Session: g.cfg.Self.Session, Used: g.releasing[:min(len(g.releasing), oracle.SlotsMax)],
		}}
		if g.propose(c) {
			g.releasedAt = g.ticks
		}
	}
	now := g.millis()
	if len(g.releasing) > 0 || !g.isDue(g.requestedAt) || !g.needsWorkers(now) || !g.isRegistered() {
		return
	}
	c := oracle.Command{Kind: oracle.KindLease, Lease: oracle.LeaseRequest{
		Space: g.cfg.Space, Node: g.cfg.Self.NodeID, Session: g.cfg.Self.Session,
		Slots: uint8(g.slotsNeeded()), Fixed: g.cfg.FixedWorker, From: now, Until: now + g.cfg.LeaseMillis,
	}}
	if g.propose(c) {
		g.requestedAt = g.ticks
	}
}

// millis returns the wall clock in unix milliseconds.
func (f *facts) millis() uint64 { return f.now / uint64(time.Millisecond) }

// isSame reports whether u is about the grant l.
func isSame(l oracle.WorkerLease, u oracle.Used) bool {
	return l.Worker == u.Worker && l.Start == u.Start
}

// isDue reports whether a proposal may be made again: after an election timeout, in which a lost leader is replaced, and
// after an eighth of a lease if that is shorter. Otherwise a short lease would end before its next renewal.
func (g *ids) isDue(last uint64) bool {
	eighth := g.cfg.LeaseMillis * uint64(time.Millisecond) / uint64(g.cfg.TickInterval) / 8
	retry := mutant.Pick(mutant.RenewRarely, electionTicks, max(1, min(electionTicks, eighth)))
	return last == 0 || g.ticks-last >= retry
}

// needsWorkers reports whether this node lacks a lease or one has to be renewed.
func (g *ids) needsWorkers(now uint64) bool {
	have := 0
	for _, l := range g.held {
		if int(l.Slot) < g.slotsNeeded() && !l.Revoked && l.End >= now+g.cfg.LeaseMillis*renewQuarters/4 {
			have++
		}
	}
	return have < g.slotsNeeded()
}

// isRegistered reports whether the member record has this process. Before that it is granted
// nothing.
func (g *ids) isRegistered() bool {
	m, _ := g.state.Member(g.cfg.Self.NodeID)
	return m.Session == g.cfg.Self.Session
}

// propose proposes a command about this process's leases, or sends it to the leader.
// It returns false if it can do neither.
func (g *ids) propose(c oracle.Command) bool {
	data := c.Append(nil)
	switch {
	case g.role == raft.StateLeader:
		return g.tail.proposeEncoded(data)
	case g.lead == raft.None || g.lead == g.cfg.Self.NodeID:
		return false
	}
	g.effects.Send = append(g.effects.Send, &raftpb.Message{
		Type: raftpb.MsgProp.Enum(), From: new(g.cfg.Self.NodeID), To: new(g.lead), Term: new(g.term),
		Entries: []*raftpb.Entry{{Data: data}},
	})
	return true
}

// receiveProposal proposes, as leader, a command of another member. Members may propose
// commands about their own worker leases only.
func (r *Replica) receiveProposal(m *raftpb.Message) {
	if r.role != raft.StateLeader || !isOwnLease(m) || !r.tail.proposeEncoded(m.GetEntries()[0].GetData()) {
		r.counters.ProposalsDropped++
	}
}

// isOwnLease reports whether m holds exactly one command, about worker leases of its sender.
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

// leaseApplied handles the outcome of a command about worker leases, proposed in term.
func (r *Replica) leaseApplied(term uint64, c oracle.Command, o oracle.Outcome) {
	switch {
	case c.Kind == oracle.KindLease && c.Lease.Node == 0:
		r.leading.clients.commandApplied(term, c.Lease.Session, o)
	case c.Kind == oracle.KindRelease && c.Release.Node == 0:
		r.leading.clients.commandApplied(term, c.Release.Session, o)
	case c.Kind == oracle.KindRevoke:
		r.leading.clients.commandApplied(term, 0, o)
	}
	if c.Kind == oracle.KindLease && c.Lease.Node == r.cfg.Self.NodeID && c.Lease.Session == r.cfg.Self.Session {
		if w := &r.ids; w.refusal != nil || o.Refusal != nil {
			w.refusal = o.Refusal
			r.effects.Changed = true
		}
	}
	r.ids.updateLeases()
}

// updateLeases finds the leases of this process in the state. It has to follow every change
// of the worker records.
func (g *ids) updateLeases() {
	self := g.cfg.Self
	isReleasing := func(l oracle.WorkerLease) bool {
		return slices.ContainsFunc(g.releasing, func(u oracle.Used) bool { return isSame(l, u) })
	}
	// A release was applied if the record is another's.
	g.releasing = slices.DeleteFunc(slices.Clone(g.releasing), func(u oracle.Used) bool {
		l, _ := g.state.Worker(u.Worker)
		return !l.IsHeldBy(self.NodeID, self.Session) || !isSame(l, u)
	})
	var held []oracle.WorkerLease
	for _, l := range g.state.Workers {
		if !l.IsHeldBy(self.NodeID, self.Session) || isReleasing(l) && !mutant.On(mutant.RelistReleased) {
			continue
		}
		held = append(held, g.mutateHeld(l))
	}
	held = withoutReplaced(held)
	if !slices.Equal(held, g.held) {
		g.held = held
		g.effects.Changed = true
		g.updateGenerators()
	}
}

// withoutReplaced returns one lease for each slot: one that was not revoked, and of several the
// latest. A slot has more than one when its lease was revoked and replaced. Until then the
// node goes on to make ids by it, and it never returns to the former one.
func withoutReplaced(held []oracle.WorkerLease) []oracle.WorkerLease {
	replaces := func(a, b oracle.WorkerLease) bool {
		if a.Revoked != b.Revoked {
			return b.Revoked
		}
		return a.Start > b.Start || a.Start == b.Start && a.Worker > b.Worker
	}
	var one []oracle.WorkerLease
	for _, l := range held {
		isReplaced := func(o oracle.WorkerLease) bool { return o.Slot == l.Slot && replaces(o, l) }
		if !slices.ContainsFunc(held, isReplaced) {
			one = append(one, l)
		}
	}
	return one
}
