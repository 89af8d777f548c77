package replica

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/timeline"
)

// What a leader does about timelines: it gives each group with timelines whose owner is gone another one, spreads the groups over the members,
// and proposes the changes that operators ask for.

// timelineCommandsMax bounds the commands that are proposed and not applied. Half of them may be those of callers.
const timelineCommandsMax = 256

// TimelineRequest asks for a change of the timelines.
type TimelineRequest struct {
	// Token identifies the request to the caller.
	Token uint64
	// Command is of any kind but KindLeaseOff. Its Target does not count. One of KindGrant has one grant, of which only
	// the group and the member count; that has to be connected to the leader.
	Command timeline.Command
	// Force permits a floor more than FloorAheadMax ahead of the clock.
	Force bool
}

// TimelineAnswer completes the [TimelineRequest] with this token, once that is applied.
type TimelineAnswer struct {
	Token uint64
	// Outcomes has one for each creation, or one; nil with Err.
	Outcomes []timeline.Refusal
	// Err is of code invalid_argument, not_leader, no_leader, overloaded or deadline_exceeded. After the last the request may
	// still be applied.
	Err *isotone.Error
}

// timelines is what a leader does about timelines in its term. The label of a proposal is the kind of its command.
type timelines struct {
	proposals
	leading *leading
	owner   *owner
	// granting is set while a grant is proposed and not applied, granted while all groups with timelines have owners that are there.
	granting, granted bool
	// movesAt is the tick from which groups may be moved again from owners that are there.
	movesAt uint64
	// endings are about leases that end, see owner_lease.go.
	endings endings
	// raising are the floors of clients that are proposed and not applied.
	raising map[string]uint64
}

func newTimelines(r *Replica) timelines {
	f := &r.facts
	fail := func(token uint64, err *isotone.Error) { f.answerTimeline(TimelineAnswer{Token: token, Err: err}) }
	return timelines{proposals: proposals{facts: f, fail: fail}, leading: &r.leading, owner: &r.owner, raising: map[string]uint64{}, endings: endings{of: map[string]leaseEnding{}}}
}

func (f *facts) answerTimeline(a TimelineAnswer) {
	f.effects.TimelineAnswers = append(f.effects.TimelineAnswers, a)
}

// request proposes a change, or answers at once.
func (t *timelines) request(q TimelineRequest) {
	t.complete(&q.Command)
	err := t.refuse(q)
	if err == nil && !t.propose(q.Command, proposal{token: q.Token}) {
		err = isotone.ErrOverloaded
	}
	if err != nil {
		t.fail(q.Token, err)
	}
}

// complete sets what a caller does not know: how far the shared ceiling is to be, and the processes of a grant.
func (t *timelines) complete(c *timeline.Command) {
	c.Target = t.roomyTarget()
	if g, _ := t.state.Timelines.Group(c.Group); c.Kind == timeline.KindLeaseEnd {
		c.Lease = g.Lease
	}
	for i := range c.Grants {
		g, _ := t.state.Timelines.Group(c.Grants[i].Group)
		c.Grants[i].Replaces, c.Grants[i].Session = g.Grant, 0
		if p := t.peers[c.Grants[i].Member]; p != nil {
			c.Grants[i].Session = p.session
		}
		if c.Grants[i].Member == t.cfg.Self.NodeID {
			c.Grants[i].Session = t.cfg.Self.Session
		}
	}
}

// refuse returns why a change is not proposed, or nil.
func (t *timelines) refuse(q TimelineRequest) *isotone.Error {
	c := q.Command
	switch {
	case t.role != raft.StateLeader || !t.leading.alloc.IsOpen():
		return t.redirect()
	case oracle.LevelOf(oracle.Command{Kind: oracle.KindTimeline}) > t.state.CurrentLevel():
		return isotone.Errorf(isotone.CodeInvalidArgument, "timelines need feature level %d, and the cluster is at level %d; once all nodes run this version, run isotone upgrade finalize",
			oracle.LevelOf(oracle.Command{Kind: oracle.KindTimeline}), t.state.CurrentLevel())
	case len(t.list)+len(t.endings.late) >= timelineCommandsMax/2:
		return isotone.ErrOverloaded
	case (t.state.Timelines.Ceiling == 0 || latest(c) > 0 && !q.Force) && t.leading.clocks.time() == 0:
		return errNoTimeYet
	case c.Kind == timeline.KindGrant && (len(c.Grants) != 1 || c.Grants[0].Session == 0):
		return isotone.Errorf(isotone.CodeInvalidArgument, "a group is granted to one node, which is connected to the leader")
	case c.Kind == timeline.KindLeaseOff:
		return isotone.Errorf(isotone.CodeInvalidArgument, "nobody can ask for a change of timelines of kind %d", c.Kind)
	case !q.Force && latest(c) > t.leading.clocks.time()+uint64(FloorAheadMax):
		return isotone.Errorf(isotone.CodeInvalidArgument, "the floor is more than %v ahead of the clock, and time would stand still for that long; to raise it beyond that, use force", FloorAheadMax)
	}
	if _, err := timeline.DecodeCommand(c.Append(nil)); err != nil { // no node could read it
		return isotone.Errorf(isotone.CodeInvalidArgument, "%v", err)
	}
	return nil
}

// errNoTimeYet answers the creation of a cluster's first timelines while too few clocks are known, as no time is reserved that they could hold, and
// a floor, as nobody can tell how far ahead it is.
var errNoTimeYet = isotone.Errorf(isotone.CodeClock, "too few clocks of members are known to tell the time; try again")

// latest returns the latest time that a command has a timeline be above.
func latest(c timeline.Command) uint64 {
	if c.Kind == timeline.KindFloor {
		return c.Time
	}
	most := uint64(0)
	for _, n := range c.Creations {
		most = max(most, n.Above)
	}
	return most
}

// propose proposes a command and reports whether it could.
func (t *timelines) propose(c timeline.Command, p proposal) bool {
	if len(t.list) >= timelineCommandsMax || !t.leading.tail.propose(oracle.Command{Kind: oracle.KindTimeline, Timeline: c}) {
		return false
	}
	p.label = uint64(c.Kind)
	t.add(p)
	return true
}

// commandApplied answers whoever has asked for a command, which was proposed in term and is applied. Requests that wait for an
// owner or a floor wait for a round again.
func (t *timelines) commandApplied(term uint64, c timeline.Command, o oracle.Outcome) {
	switch c.Kind {
	case timeline.KindDelete:
		if _, ok := t.state.Timelines.Timeline(c.Name); !ok {
			delete(t.owner.issuers, c.Name)
		}
	case timeline.KindGrant:
		t.owner.beginWaits(c.Grants)
	}
	if t.role != raft.StateLeader || term != t.term {
		return // the leader of that term has failed the request
	}
	switch c.Kind {
	case timeline.KindGrant:
		t.granting = false
	case timeline.KindFloor:
		delete(t.raising, c.Name)
	}
	t.granted = false
	if token, waits := t.applied(uint64(c.Kind)); waits {
		a := TimelineAnswer{Token: token, Outcomes: o.Timelines}
		if l, isLate := t.late(c, a); isLate && o.Timelines[0] == timeline.Done {
			t.endings.late = append(t.endings.late, l)
		} else {
			t.answerTimeline(a)
		}
	}
	if c.Kind == timeline.KindLeaseOff {
		t.answerLate()
	}
	t.leading.queue.release()
}

// target is the shared ceiling to propose, by the clock alone: a floor of the default order moves no other one. 0: the clock is not known,
// and time holds.
func (t *timelines) target() uint64 {
	now := t.leading.clocks.time()
	if now == 0 {
		return 0
	}
	return now + mutant.Pick[uint64](mutant.SharedFarAhead, 3, 1)*t.leading.reach()
}

// roomyTarget is the shared ceiling to propose with a command by which tenures begin, at the ceiling of before: an epoch above that, so that they have
// time for 64-bit timestamps and writes until the next reservation, but, by the clock, no further ahead than two reservations.
func (t *timelines) roomyTarget() uint64 {
	target := t.target()
	if target == 0 {
		return 0
	}
	room := uint64(t.cfg.EpochTicks) * uint64(t.cfg.TickInterval)
	return max(target, min(t.state.Timelines.Ceiling+room, target+t.leading.reach()))
}

// shared is what a reservation raises the shared ceiling to; 0: there never was a timeline.
func (t *timelines) shared() uint64 {
	if t.state.Timelines.Ceiling == 0 {
		return 0
	}
	return t.target()
}

// ownerSilentTicks is how long an owner may be silent before the leader takes its groups, as a follower's leader may.
const ownerSilentTicks = suspectTicksMin

// hasOwner reports whether the owner of a group is this process, or one that is connected, does not leave, and has answered a heartbeat lately. At the beginning
// of a term nobody has.
func (t *timelines) hasOwner(g timeline.Group) bool {
	if t.owner.owns(g.Owner, g.Session) {
		return true
	}
	p := t.peers[g.Owner]
	return p != nil && g.Session != 0 && p.session == g.Session && !p.isLeaving() &&
		(t.leading.tenure < ownerSilentTicks || p.lastActive > 0 && t.ticks-p.lastActive < ownerSilentTicks)
}

const (
	// movesTicks is how long a leader waits before it moves groups again from owners that are there.
	movesTicks = 100
	// readyTicks is how long ago a member may have answered a heartbeat that is to own groups, and readyLag how many log entries it may lack.
	readyTicks, readyLag = 3, 8
)

// grant proposes to give each group with timelines whose owner is gone to another process, and now and then to move others; see
// [timeline.Table.Place].
func (t *timelines) grant() {
	if t.granting || t.role != raft.StateLeader || !t.leading.alloc.IsOpen() || t.state.Timelines.Len() == 0 {
		return
	}
	t.granted = t.granted || t.state.Timelines.HasOwners(t.hasOwner)
	move := t.cfg.SettleTicks > 0 && t.ticks >= t.movesAt
	if t.granted && !move {
		return
	}
	grants := t.state.Timelines.Place(t.nodes(), t.hasOwner, move)
	if move {
		t.movesAt = t.ticks + movesTicks
	}
	if len(grants) > 0 {
		t.granting = t.propose(timeline.Command{Kind: timeline.KindGrant, Grants: grants, Target: t.roomyTarget()}, proposal{answered: true})
	}
}

// nodes returns the processes that may own groups: this one, and, if groups are to be spread, those of the other members that are connected. One that
// leaves gets groups only if nobody else can have them.
func (t *timelines) nodes() []timeline.Node {
	self := t.cfg.Self
	list := []timeline.Node{{Number: oracle.NodeOf(self.NodeID), Member: self.NodeID, Session: self.Session, Ready: true, Settled: true}}
	last, err := t.log.LastIndex()
	if t.cfg.SettleTicks == 0 || err != nil {
		return list
	}
	t.raw.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) { // in the order of the IDs
		m, _ := t.state.Member(id)
		if p := t.peers[id]; id != self.NodeID && p != nil && p.session != 0 && p.session == m.Session {
			list = append(list, timeline.Node{
				Number: oracle.NodeOf(id), Member: id, Session: p.session, Settled: t.ticks-p.since >= uint64(t.cfg.SettleTicks),
				Ready: m.ClientAddr != "" && !p.isLeaving() && p.lastActive > 0 && t.ticks-p.lastActive <= readyTicks && last <= pr.Match+readyLag,
			})
		}
	})
	if other := slices.IndexFunc(list, func(n timeline.Node) bool { return n.Ready && n.Member != self.NodeID }); t.owner.leaves && other > 0 {
		list[0].Ready, list[0].Settled = false, false
		list[0], list[other] = list[other], list[0]
	}
	return list
}

// issue is [leading.issue] for a request of a timeline.
func (t *timelines) issue(p *pending) (issued uint64, hold bool, failed *isotone.Error) {
	table := &t.state.Timelines
	have, ok := table.Timeline(p.Timeline)
	g, _ := table.Group(have.Group)
	var a *issuer
	hold = ok && have.Bound == 0 && !t.hasOwner(g) && !mutant.On(mutant.OwnUngranted) // until it is granted
	if t.owner.owns(g.Owner, g.Session) && t.owner.awaitsLease(have.Group, g) {
		hold, t.endings.awaited = true, true
	}
	if !hold {
		a, failed = t.owner.open(p.Timeline)
	}
	if a != nil {
		hold, failed = t.passFloor(p, &a.Allocator)
	}
	switch {
	case failed != nil:
		return p.issued, false, failed
	case hold && !t.leading.mayHold():
		return p.issued, false, isotone.ErrOverloaded
	case hold:
		return p.issued, true, nil
	}
	failed = a.fill(p)
	return p.issued, false, failed
}

// passFloor is [owner.passFloor], and has a request wait for a proposal of its floor if that is not below the ceiling.
func (t *timelines) passFloor(p *pending, a *oracle.Allocator) (hold bool, refused *isotone.Error) {
	refused = t.owner.passFloor(p, a)
	if refused != isotone.ErrOverloaded {
		return false, refused
	}
	f, now := p.Floor, t.leading.clocks.time()
	switch {
	case now == 0:
		return false, errTimeUnknown
	case f.Time >= oracle.CeilingMax-2:
		return false, floorTooFar(f.Time-min(now, f.Time), ClientFloorAheadMax)
	case t.raising[p.Timeline] >= f.Time:
		return true, nil
	}
	have, _ := t.state.Timelines.Timeline(p.Timeline)
	if !t.propose(timeline.Command{Kind: timeline.KindFloor, Name: p.Timeline, ID: have.ID, Time: f.Time}, proposal{answered: true}) {
		return false, isotone.ErrOverloaded
	}
	t.raising[p.Timeline] = f.Time
	t.counters.FloorsRaised++
	p.moved = f.Time > now
	return true, nil
}
