package replica

import (
	"math"

	"go.etcd.io/raft/v3"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/timeline"
)

// Timelines (docs/decisions/0040-timelines.md). A leader has its process made the owner of all groups that have timelines, and
// answers once that is applied, with the rounds and the lease of the default order. An owner issues within the bounds that its
// applied log gives: below the ceiling, and not below the base, which every grant raises above all that earlier owners have issued.

// timelineCommandsMax bounds the commands that are proposed and not applied. Half of them may be those of callers.
const timelineCommandsMax = 256

// TimelineRequest asks for a change of the timelines.
type TimelineRequest struct {
	// Token identifies the request to the caller.
	Token uint64
	// Command is of any kind but KindGrant, KindLeaseOn and KindLeaseOff. Its Target does not count.
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
	leading    *leading
	allocators map[string]*oracle.Allocator // of the process, not of the term
	// granting is set while a grant is proposed and not applied, granted once all groups with timelines are this process's.
	granting, granted bool
	// raising are the floors of clients that are proposed and not applied.
	raising map[string]uint64
}

func newTimelines(r *Replica) timelines {
	f := &r.facts
	fail := func(token uint64, err *isotone.Error) { f.answerTimeline(TimelineAnswer{Token: token, Err: err}) }
	return timelines{proposals: proposals{facts: f, fail: fail}, leading: &r.leading, allocators: r.allocators, raising: map[string]uint64{}}
}

func (f *facts) answerTimeline(a TimelineAnswer) {
	f.effects.TimelineAnswers = append(f.effects.TimelineAnswers, a)
}

// request proposes a change, or answers at once.
func (t *timelines) request(q TimelineRequest) {
	err := t.refuse(q)
	q.Command.Target = t.target()
	if err == nil && !t.propose(q.Command, proposal{token: q.Token}) {
		err = isotone.ErrOverloaded
	}
	if err != nil {
		t.fail(q.Token, err)
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
	case len(t.list) >= timelineCommandsMax/2:
		return isotone.ErrOverloaded
	case t.state.Timelines.Ceiling == 0 && t.leading.clocks.time() == 0:
		return errNoTimeYet
	case c.Kind == timeline.KindGrant || c.Kind == timeline.KindLeaseOn || c.Kind == timeline.KindLeaseOff:
		return isotone.Errorf(isotone.CodeInvalidArgument, "nobody can ask for a change of timelines of kind %d", c.Kind)
	case !q.Force && latest(c) > t.leading.clocks.time()+uint64(FloorAheadMax):
		return isotone.Errorf(isotone.CodeInvalidArgument, "the floor is more than %v ahead of the clock, and time would stand still for that long; to raise it beyond that, use force", FloorAheadMax)
	}
	if _, err := timeline.DecodeCommand(c.Append(nil)); err != nil { // no node could read it
		return isotone.Errorf(isotone.CodeInvalidArgument, "%v", err)
	}
	return nil
}

// errNoTimeYet answers the creation of a cluster's first timelines while too few clocks are known: no time is reserved that they could hold.
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
	if c.Kind == timeline.KindDelete {
		if _, ok := t.state.Timelines.Timeline(c.Name); !ok {
			delete(t.allocators, c.Name)
		}
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
		t.answerTimeline(TimelineAnswer{Token: token, Outcomes: o.Timelines})
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
	return now + t.leading.reach()
}

// shared is what a reservation raises the shared ceiling to; 0: there never was a timeline.
func (t *timelines) shared() uint64 {
	if t.state.Timelines.Ceiling == 0 {
		return 0
	}
	return t.target()
}

// grant proposes to make this process the owner of each group with timelines that it does not own.
func (t *timelines) grant() {
	if t.granted || t.granting || t.role != raft.StateLeader || !t.leading.alloc.IsOpen() {
		return
	}
	table, self := &t.state.Timelines, t.cfg.Self
	c := timeline.Command{Kind: timeline.KindGrant, Target: t.target()}
	for _, name := range table.Groups() {
		if g, _ := table.Group(name); table.LenOf(name) > 0 && !t.owns(g) {
			c.Grants = append(c.Grants, timeline.Grant{Group: name, Member: self.NodeID, Session: self.Session, Replaces: g.Grant})
		}
	}
	if t.granted = len(c.Grants) == 0; !t.granted {
		t.granting = t.propose(c, proposal{answered: true})
	}
}

// owns reports whether this process owns a group by the applied log.
func (t *timelines) owns(g timeline.Group) bool {
	return g.Owner == t.cfg.Self.NodeID && (g.Session == t.cfg.Self.Session || mutant.On(mutant.OwnWithoutSession))
}

// issue is [leading.issue] for a request of a timeline.
func (t *timelines) issue(p *pending) (issued uint64, hold bool, failed *isotone.Error) {
	a, hold, failed := t.open(p.Timeline)
	if a != nil {
		hold, failed = t.passFloor(p, a)
	}
	switch {
	case failed != nil:
		return p.issued, false, failed
	case hold && !t.leading.mayHold():
		return p.issued, false, isotone.ErrOverloaded
	case hold:
		return p.issued, true, nil
	}
	for ; p.filled < len(p.Counts); p.filled++ {
		n, rng := p.Counts[p.filled], isotone.Range{}
		if p.U64 {
			ok := false
			if rng, ok = a.Next64(n, 0, math.MaxUint64); !ok {
				return p.issued, false, isotone.ErrOverloaded
			}
		} else if next, full := a.Next(n); full != nil {
			return p.issued, false, isotone.ErrOverloaded
		} else {
			rng = next
		}
		p.Ranges[p.filled] = rng
		p.issued += n
	}
	return p.issued, false, nil
}

// open returns the allocator of a timeline, with its time and its bounds as of now. With hold the request has to wait, as the group has no
// owner yet. The base counts at each timestamp, so that it does not matter what of an earlier tenure is left here.
func (t *timelines) open(name string) (a *oracle.Allocator, hold bool, failed *isotone.Error) {
	table := &t.state.Timelines
	have, ok := table.Timeline(name)
	switch {
	case !ok:
		return nil, false, isotone.Errorf(isotone.CodeNotFound, "there is no timeline %q; create it with: isotone timeline create %s", name, name)
	case have.Bound != 0 && !mutant.On(mutant.IssueSealed):
		return nil, false, isotone.Errorf(isotone.CodeNotFound, "the timeline %q is sealed: it issues no timestamps any more", name)
	}
	if g, _ := table.Group(have.Group); !t.owns(g) && !mutant.On(mutant.OwnUngranted) {
		return nil, true, nil
	}
	a = t.allocators[name]
	base, ceiling, ok := table.Bounds(name)
	switch {
	case !ok:
		return nil, false, isotone.ErrOverloaded
	case a == nil:
		a = &oracle.Allocator{}
		a.Open(max(base, 1), ceiling)
		t.allocators[name] = a
	case mutant.On(mutant.BaseOnce):
		base = 0
	}
	a.Extend(ceiling)
	a.Advance(max(base, t.leading.clocks.time()))
	return a, false, nil
}

// passFloor makes what is issued next larger than the floor of a request; see [leading.passFloor].
func (t *timelines) passFloor(p *pending, a *oracle.Allocator) (hold bool, refused *isotone.Error) {
	f, now := p.Floor, t.leading.clocks.time()
	if f == (isotone.Timestamp{}) || a.IsAbove(f) {
		return false, nil
	}
	if refused = t.leading.refuseMove(p, f.Time, now); refused != nil {
		return false, refused
	}
	p.moved = f.Time > now
	if a.Pass(f) {
		t.counters.FloorsPassed++
		return false, nil
	}
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
	return true, nil
}
