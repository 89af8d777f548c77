package sim

import (
	"fmt"
	"slices"
	"time"
)

// The check that each form of answer comes again once the last fault has ended, and goes on to come: 16-byte and
// 64-bit timestamps, ids, and readings of the cluster clock where one runs.

// formAnswers is how many answers of each form there must be.
const formAnswers = 5

// form is a kind of answer.
type form uint8

const (
	form16 form = iota
	form64
	formID
	formReading
	forms
)

func (f form) String() string {
	return [forms]string{"16-byte timestamps", "64-bit timestamps", "ids", "readings of the cluster clock"}[f]
}

// liveness counts answers by form.
type liveness struct {
	answers [forms]int
	// last is when timestamps were last answered.
	last time.Duration
}

// noteAnswered counts an answer.
func (w *world) noteAnswered(f form) {
	w.liveness.answers[f]++
	if f <= form64 {
		w.liveness.last = w.now
	}
}

// missing returns a form of which there are too few answers since before, or a client that has none, or "".
func (w *world) missing(before [forms]int) string {
	for f := range forms {
		if got := w.liveness.answers[f] - before[f]; got < formAnswers && w.isServed(f) {
			return fmt.Sprintf("%d of %d %v", got, formAnswers, f)
		}
	}
	if name := w.silentTimeline(); name != "" {
		return fmt.Sprintf("no answer on the timeline %q", name)
	}
	if what := w.silentSession(); what != "" {
		return what
	}
	for _, c := range w.clients {
		if s := c.searcher; s != nil && s.answers == 0 && w.canFind(s) {
			return fmt.Sprintf("no answer for client %d, which takes %q for the leader", c.id, s.search.Leader())
		}
	}
	return ""
}

// isServed reports whether a form is to be answered now.
func (w *world) isServed(f form) bool {
	switch f {
	case formID:
		return w.makesIDs()
	case formReading:
		l := w.leader()
		if l == nil || w.interval.wrong != 0 || w.interval.length == 0 {
			return false
		}
		_, runs := l.replica.ClusterClock()
		return runs
	}
	// Clients that know only machines which are gone ask nobody.
	return slices.ContainsFunc(w.clients, func(c *client) bool { return c.searcher == nil || w.canFind(c.searcher) })
}

// makesIDs reports whether some node has a worker, by a lease that has begun, and a clock that is near the others'.
func (w *world) makesIDs() bool {
	for _, n := range w.nodes {
		if !n.up() || n.replica.Status().IDsRefused != nil {
			continue
		}
		for _, m := range n.makers {
			if m == nil {
				continue
			}
			wall, _ := n.clock.read(w.now)
			ms, begun := uint64(wall/time.Millisecond), m.gen.Lease().Start
			if uint64(begun) <= ms && ms < uint64(m.gen.Lease().End) && !m.isAhead(ms) {
				return true
			}
		}
	}
	return false
}

// isAhead reports whether the generator has made ids so far ahead of a clock that it waits for it.
func (m *maker) isAhead(ms uint64) bool {
	l := m.gen.Layout()
	return m.made && m.last>>l.SequenceBits+uint64(l.Epoch) >= ms
}

// awaitAnswers waits for answers of each form after the last fault.
func (w *world) awaitAnswers() {
	from, before := w.now, w.liveness.answers
	for _, o := range w.timelines.lines {
		o.answers = 0
	}
	w.sessions.forget()
	for _, c := range w.clients {
		if c.searcher != nil {
			c.searcher.answers = 0
		}
	}
	for w.violation == nil {
		missing := w.missing(before)
		if missing == "" {
			return
		}
		if w.now > from+(healTicks+2*timeoutMax)*w.cfg.tick {
			if w.wiped && !w.hasQuorum() {
				return
			}
			w.fail("liveness: %s within %d ticks after the last fault", missing, healTicks)
			return
		}
		w.advance(w.now + w.cfg.tick)
	}
}

// silentSession returns what does not go on of sessions since the last fault, or "".
func (w *world) silentSession() string {
	s := &w.sessions
	l := w.leader()
	if !s.used || l == nil {
		return ""
	}
	for _, u := range s.users {
		if !u.dead && !s.bound[u] {
			return "no answer for the session of a user"
		}
	}
	if slices.ContainsFunc(s.http.users, func(u *httpUser) bool { return !u.answered }) {
		return "no answer for a session over HTTP"
	}
	if w.loss.restored == 0 {
		if what := s.silentLock(); what != "" {
			return what
		}
	}
	if what := w.silentRedis(); what != "" {
		return what
	}
	for _, group := range s.groups {
		if !w.hasWriter(group) {
			continue
		}
		if from, ok := s.reached[group]; !ok {
			s.reached[group] = l.replica.Upcoming()
		} else if s.stores.told[group].Before(from) {
			return "the frontier stands, of the group " + group
		}
	}
	return ""
}

// silentLock returns a lock that nobody was granted, or told to be free, since the last fault, or "". With limits one of all has to do: a user who waits for one may not ask for another.
func (s *sessionState) silentLock() (what string) {
	silent := 0
	for _, name := range s.names {
		if s.granted[name] && s.freed[name] {
			continue
		}
		silent++
		if what = "no grant of the lock " + name; s.granted[name] {
			what = "nobody is told that the lock is released: " + name
		}
	}
	if s.quota.used && silent < len(s.names) {
		return ""
	}
	return what
}
