package replica

import (
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/timeline"
)

// Leases of owners. In a group for which the log allows leases an owner that does not lead answers requests in lease mode without a round, for
// ownerLeaseTicks from when the latest round that was confirmed began. At that time no entry was committed that takes the group from it. So whoever is
// granted such a group waits, before it answers, for as long as a lease of before can last, by a clock that may be fast while that of the
// former owner is slow. Nobody has to promise anything, and no voter takes part.
//
// What else changes what the former owner may answer has to wait as well: a group with a lease keeps its timelines, and a raised floor is acknowledged
// only after that time. To end a lease, the leader has the log say so, which is a fence: a round that begins later tells the owner. When leases of
// earlier rounds have run out, the leader has the log say that too, and nobody waits any more.

// ownerLeaseTicks is how long a lease of an owner lasts, by its clock.
const ownerLeaseTicks = 7

// ownerLease is the right of an owner to answer without a round, in groups for which the log allows it.
type ownerLease struct {
	// until is its end by Input.Mono.
	until time.Duration
	// lastRequest is the tick of the latest request in lease mode in such a group, 0 if there was none.
	lastRequest uint64
	// due is set if the next step is to begin a round for the lease.
	due bool
	// waits are until when this process answers nothing in groups that it was granted while an earlier owner had a lease.
	waits map[string]tenureWait
}

// tenureWait is a wait at the beginning of a tenure.
type tenureWait struct {
	grant uint64
	until time.Duration // Input.Mono
}

// leaseWait is how long after an entry was applied no lease of an earlier round is left.
func (f *facts) leaseWait() time.Duration {
	d := ownerLeaseTicks * f.cfg.TickInterval
	return mutant.Pick(mutant.OwnerWaitWithoutRate, d, d*(100+clockRateErrorPercent)/(100-clockRateErrorPercent)+1)
}

// clock returns the clock by which a lease is checked.
func (f *facts) clock() time.Duration {
	return mutant.Pick(mutant.LeaseOnOldClock, f.mutation.mono, f.mono)
}

// beginWaits begins the waits of tenures that begin for this process.
func (o *owner) beginWaits(grants []timeline.Grant) {
	for _, c := range grants {
		if g, _ := o.state.Timelines.Group(c.Group); o.owns(g.Owner, g.Session) {
			o.awaitsLease(c.Group, g)
		}
	}
}

// awaitsLease reports whether this process, which owns the group, has to wait for a lease of an earlier owner. The wait begins when that is
// first asked in a tenure: with the grant, or with the first request after a snapshot that has it.
func (o *owner) awaitsLease(name string, g timeline.Group) bool {
	if !g.WaitsForLease() || mutant.On(mutant.NoOwnerWait) {
		return false
	}
	w, ok := o.lease.waits[name]
	if !ok || w.grant != g.Grant {
		o.dropWaits()
		w = tenureWait{grant: g.Grant, until: o.mono + o.leaseWait()}
		o.lease.waits[name] = w
	}
	return o.mono < w.until
}

// dropWaits forgets the waits of groups that have another tenure.
func (o *owner) dropWaits() {
	for name, w := range o.lease.waits { // order-free: each is judged by itself
		if g, _ := o.state.Timelines.Group(name); g.Grant != w.grant {
			delete(o.lease.waits, name)
		}
	}
}

// serveByLease answers a request in lease mode of a timeline that this process owns, and reports whether it could.
func (o *owner) serveByLease(req *Request, group string, g timeline.Group) bool {
	if g.Lease == 0 && !mutant.On(mutant.OwnerLeaseUnlogged) || g.Ending && !mutant.On(mutant.LeaseOutlivesEnd) {
		return false
	}
	o.lease.lastRequest = o.ticks
	if o.clock() >= o.lease.until || o.awaitsLease(group, g) {
		o.counters.LeaseMisses += uint64(len(req.Counts))
		return false
	}
	p := pending{Request: *req}
	err := o.issue(&p)
	o.counters.LeaseServed += uint64(len(req.Counts))
	o.counters.LeaseIssued += p.issued
	o.effects.Answers = append(o.effects.Answers, Answer{Token: p.Token, Moved: p.moved, Err: err})
	return true
}

// renewLease has the lease renewed each tick while requests in lease mode come, unless a round is in flight.
func (o *owner) renewLease() {
	o.lease.due = len(o.rounds) == 0 && o.lease.lastRequest != 0 && o.ticks-o.lease.lastRequest <= leaseIdleTicks
}

// extendLease extends the lease by a round that is confirmed.
func (o *owner) extendLease(rd *ownerRound) {
	started := mutant.Pick(mutant.OwnerLeaseFromAnswer, o.mono, rd.started)
	o.lease.until = max(o.lease.until, started+ownerLeaseTicks*o.cfg.TickInterval)
}

// endings are what a leader does about leases that end, and about what must not be acknowledged before leases have run out.
type endings struct {
	// of has the groups whose lease is ending, since this leader first saw that.
	of map[string]leaseEnding
	// late are answers that are due later.
	late []lateAnswer
	// awaited is set if requests of timelines that this leader owns wait for leases of earlier owners.
	awaited bool
}

// leaseEnding is a lease that is ending.
type leaseEnding struct {
	lease    uint64        // timeline.Group.Lease
	until    time.Duration // when it has run out, by Input.Mono
	proposed bool          // the log is to say so
}

// lateAnswer is an answer that is due at a time, or, if it has a group, once that does not have the lease any more.
type lateAnswer struct {
	due    time.Duration // Input.Mono
	group  string
	lease  uint64 // timeline.Group.Lease
	answer TimelineAnswer
}

// late returns when a command that was applied is acknowledged, if not at once: a floor when leases have run out, the end of a lease when the log has it.
func (t *timelines) late(c timeline.Command, a TimelineAnswer) (l lateAnswer, isLate bool) {
	switch c.Kind {
	case timeline.KindFloor:
		have, _ := t.state.Timelines.Timeline(c.Name)
		g, _ := t.state.Timelines.Group(have.Group)
		return lateAnswer{due: t.mono + t.leaseWait(), answer: a}, g.Lease != 0 && !mutant.On(mutant.FloorUnderLease)
	case timeline.KindLeaseEnd:
		g, _ := t.state.Timelines.Group(c.Group)
		if g.Ending {
			t.noteEnding(c.Group)
		}
		return lateAnswer{due: t.mono, group: c.Group, lease: g.Lease, answer: a}, g.Ending
	}
	return l, false
}

// answerLate gives the answers that are due, and fails those that wait for the end of a lease for too long.
func (t *timelines) answerLate() {
	longest := time.Duration(t.cfg.RequestTicks) * t.cfg.TickInterval
	t.endings.late = slices.DeleteFunc(t.endings.late, func(l lateAnswer) bool {
		g, _ := t.state.Timelines.Group(l.group)
		switch {
		case t.mono < l.due, l.group != "" && g.Lease == l.lease && t.mono-l.due < longest:
			return false
		case l.group != "" && g.Lease == l.lease:
			t.fail(l.answer.Token, isotone.ErrDeadlineExceeded)
		default:
			t.answerTimeline(l.answer)
		}
		return true
	})
}

// noteEnding returns what is known of the lease of a group that is ending.
func (t *timelines) noteEnding(name string) leaseEnding {
	g, _ := t.state.Timelines.Group(name)
	end, ok := t.endings.of[name]
	if !ok || end.lease != g.Lease {
		end = leaseEnding{lease: g.Lease, until: t.mono + mutant.Pick(mutant.LeaseOffEarly, 0, t.leaseWait())}
		t.endings.of[name] = end
	}
	return end
}

// endLeases proposes, at each tick, that leases have ended which have run out, and gives the answers that are due. Requests that wait for leases try
// again.
func (t *timelines) endLeases() {
	for _, name := range t.state.Timelines.Ending() {
		if end := t.noteEnding(name); !end.proposed && end.until <= t.mono {
			end.proposed = t.propose(timeline.Command{Kind: timeline.KindLeaseOff, Group: name, Lease: end.lease}, proposal{answered: true})
			t.endings.of[name] = end
		}
	}
	for name, end := range t.endings.of { // order-free: each is judged by itself
		if g, _ := t.state.Timelines.Group(name); g.Lease != end.lease {
			delete(t.endings.of, name)
		}
	}
	t.answerLate()
	if t.endings.awaited {
		t.endings.awaited = false
		t.leading.queue.release()
	}
}

// drop fails the requests of a leadership that has ended.
func (t *timelines) drop() {
	for _, l := range t.endings.late {
		t.fail(l.answer.Token, t.redirect())
	}
	t.proposals.drop()
}
