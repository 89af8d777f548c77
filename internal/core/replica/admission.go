package replica

import "github.com/isotone/isotone/internal/core/mutant"

// admission decides which requests of confirmed rounds are served now, and which are held.
//
// Without a cluster clock all are served. With one, 64-bit timestamps are made of time that has passed
// since the last answer (see [Replica.next64]), and a large count needs more of it than a busy leader
// leaves: a millisecond for the largest. So once such a request is [blockTicks] old, nobody else is served
// until it has got a range. The two forms of timestamps take turns: a confirmation that has issued
// 64-bit timestamps reserves nothing. At the ceiling nothing is reserved either: what a request lacks
// there is a commit.
type admission struct {
	turn turn
	// issued64 is set once this confirmation has issued 64-bit timestamps.
	issued64 bool
	// again is set if held requests are to take part in the next round at once, and not with the next tick.
	again bool
}

// turn says whose turn it is to be served.
type turn uint8

const (
	turnOfAll turn = iota
	// turnOfNone lasts for the rest of a confirmation in which a request was short of time.
	turnOfNone
	// turnOfShort follows, until a request that is short has got a range, or until the next tick.
	turnOfShort
)

// blockTicks is how old a request is for which others wait: so that most that wait for another round do
// without.
const blockTicks = 2

// begin begins a confirmation.
func (a *admission) begin() {
	a.issued64 = false
	if a.turn == turnOfNone {
		a.turn = turnOfShort
	}
}

// end ends a confirmation, and reports whether the held requests are to be released.
func (a *admission) end() (release bool) {
	release, a.again = a.again, false
	return release
}

// open ends all waiting for a request that is short of time.
func (a *admission) open() { a.turn = turnOfAll }

// isOpen reports whether all are served.
func (a *admission) isOpen() bool { return a.turn == turnOfAll }

// admits reports whether a request is served now.
func (a *admission) admits(p *pending) bool {
	return a.turn == turnOfAll || a.turn == turnOfShort && p.short
}

// issued notes that 64-bit timestamps were issued with a cluster clock, to a request that was short before
// or not.
func (a *admission) issued(wasShort bool) {
	a.issued64 = true
	if wasShort && !a.isOpen() {
		a.open()
		a.again = true
	}
}

// reserve keeps the time from now on for requests that are short.
func (a *admission) reserve() {
	if !a.issued64 {
		a.turn = turnOfNone
	}
}

// serve answers a request of a confirmed round, or holds it.
func (r *Replica) serve(p *pending, stats *Round) {
	if !r.queue.admission.admits(p) {
		r.queue.held = append(r.queue.held, *p)
		return
	}
	filled, wasShort := p.filled, p.short
	issued, hold, err := r.issue(p)
	r.noteTime(p, p.filled > filled, wasShort)
	if hold {
		r.queue.admission.again = r.queue.admission.again || r.triesAgain(p)
		r.queue.held = append(r.queue.held, *p)
		return
	}
	r.queue.size -= len(p.Counts)
	stats.Requests += len(p.Counts)
	stats.Timestamps += issued
	r.answerTo(p, err)
}

// noteTime notes whether a request, which has got a range or not, has used time of the cluster clock or is
// short of it.
func (r *Replica) noteTime(p *pending, got, wasShort bool) {
	switch {
	case !p.U64 || !r.leading.clock.runs:
	case got:
		r.queue.admission.issued(wasShort)
	case p.short && r.ticks-p.arrived >= blockTicks && r.clusterNow() < r.leading.alloc.Ceiling():
		r.queue.admission.reserve()
	}
}

// triesAgain reports whether a request that is held is to take part in the next round at once: one that
// [Replica.next64] could not answer. If the clock has not moved since that was last tried, or has
// reached the ceiling, or the next round takes no time, it waits for a tick.
func (r *Replica) triesAgain(p *pending) bool {
	if !p.short || len(r.conf.GetVoters()) == 1 {
		return false
	}
	before, now := p.tried, r.clusterNow()
	p.tried = now
	return before != now && now < r.leading.alloc.Ceiling()
}

// mayHold reports whether a request may be held for long: for its floor, for a reservation, or for more time of the cluster
// clock. It may not if the queue is more than half full: the rest is for requests that need no such wait.
func (r *Replica) mayHold() bool {
	return r.queue.size <= (r.queue.max+1)/2 || mutant.On(mutant.HoldAll)
}
