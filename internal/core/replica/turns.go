package replica

import "github.com/isotone/isotone/internal/core/mutant"

// turns decides which requests of confirmed rounds are served now, and which are held.
//
// Without a cluster clock all are served. With one, 64-bit timestamps are made of time that has passed
// since the last answer (see [leading.next64]), and a large count needs more of it than a busy leader
// leaves: a millisecond for the largest. So once such a request is [blockTicks] old, nobody else is served
// until it has got a range. The two forms of timestamps take turns: a confirmation that has issued
// 64-bit timestamps reserves nothing. At the ceiling nothing is reserved either: what a request lacks
// there is a commit.
type turns struct {
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
func (t *turns) begin() {
	t.issued64 = false
	if t.turn == turnOfNone {
		t.turn = turnOfShort
	}
}

// end ends a confirmation, and reports whether the held requests are to be released.
func (t *turns) end() (release bool) {
	release, t.again = t.again, false
	return release
}

// open ends all waiting for a request that is short of time.
func (t *turns) open() { t.turn = turnOfAll }

// isOpen reports whether all are served.
func (t *turns) isOpen() bool { return t.turn == turnOfAll }

// admits reports whether a request is served now.
func (t *turns) admits(p *pending) bool {
	return t.turn == turnOfAll || t.turn == turnOfShort && p.short || p.Timeline != ""
}

// issued notes that 64-bit timestamps were issued with a cluster clock, to a request that was short before
// or not.
func (t *turns) issued(wasShort bool) {
	t.issued64 = true
	if wasShort && !t.isOpen() {
		t.open()
		t.again = true
	}
}

// reserve keeps the time from now on for requests that are short.
func (t *turns) reserve() {
	if !t.issued64 {
		t.turn = turnOfNone
	}
}

// serve answers a request of a confirmed round, or holds it.
func (l *leading) serve(p *pending, stats *Round) {
	if !l.queue.turns.admits(p) {
		l.queue.held = append(l.queue.held, *p)
		return
	}
	if p.Session != nil && !l.sessions.admits(p) {
		return
	}
	filled, wasShort := p.filled, p.short
	issued, hold, err := l.issue(p)
	l.noteTime(p, p.filled > filled, wasShort)
	if hold {
		l.queue.turns.again = l.queue.turns.again || l.triesAgain(p)
		l.queue.held = append(l.queue.held, *p)
		return
	}
	l.queue.load.leave(&p.Request)
	stats.Requests += len(p.Counts)
	stats.Timestamps += issued
	if p.Session != nil && err == nil {
		l.sessions.reply(p.Session)
	}
	l.queue.answerTo(p, err)
}

// noteTime notes whether a request, which has got a range or not, has used time of the cluster clock or is
// short of it.
func (l *leading) noteTime(p *pending, got, wasShort bool) {
	switch {
	case !p.usesClock() || !l.clock.runs:
	case got:
		l.queue.turns.issued(wasShort)
	case p.short && l.ticks-p.arrived >= blockTicks && l.clock.shows() < l.alloc.Ceiling():
		l.queue.turns.reserve()
	}
}

// triesAgain reports whether a request that is held is to take part in the next round at once: one that
// [leading.next64] could not answer. If the clock has not moved since that was last tried, or has
// reached the ceiling, or the next round takes no time, it waits for a tick.
func (l *leading) triesAgain(p *pending) bool {
	if !p.short || len(l.conf.GetVoters()) == 1 {
		return false
	}
	before, now := p.tried, l.clock.shows()
	p.tried = now
	return before != now && now < l.alloc.Ceiling()
}

// mayHold reports whether a request may be held for long: for its floor, for a reservation, or for more time of the cluster
// clock. It may not if the queue is more than half full: the rest is for requests that need no such wait.
func (l *leading) mayHold() bool {
	return l.queue.load.size <= (l.queue.load.max+1)/2 || mutant.On(mutant.HoldAll)
}
