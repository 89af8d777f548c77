package sim

import (
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/session"
)

// Users who write into the stores of groups. The check: no write is accepted at or below a frontier that was told before (P5).

// store is a store with fences. What it does is one step.
type store struct {
	fences map[string]isotone.Timestamp   // of groups
	locks  map[string]isotone.Timestamp64 // of locks
	// told is the largest frontier of each group.
	told map[string]isotone.Timestamp
}

func newStore() store {
	return store{map[string]isotone.Timestamp{}, map[string]isotone.Timestamp64{}, map[string]isotone.Timestamp{}}
}

// writeLocked accepts a write under a token, or reports false (R9).
func (s *store) writeLocked(name string, token isotone.Timestamp64) bool {
	if token < s.locks[name] {
		return false
	}
	s.locks[name] = token
	return true
}

// userGroup is what a user has to do with a group.
type userGroup struct {
	name string
	// open are stamps that are not decided, doubts those of them that it does not wait for; issued is the largest that it was issued, high the largest that it
	// may write. While it takes some, those that come are above issued, and may be below high.
	open, doubts []isotone.Timestamp
	issued, high isotone.Timestamp
	taking       bool
}

func (u *sessionUser) group(name string) *userGroup {
	for _, g := range u.writes {
		if g.name == name {
			return g
		}
	}
	return nil
}

// low is the stamp below which all are decided.
func (g *userGroup) low() isotone.Timestamp {
	least := after(g.high)
	if g.taking {
		least = after(g.issued)
	}
	for _, t := range g.open {
		if t.Before(least) {
			least = t
		}
	}
	return least
}

// after returns the smallest stamp after t.
func after(t isotone.Timestamp) isotone.Timestamp {
	if t.Index++; t.Index == 0 {
		t.Time++
	}
	return t
}

// decide removes a stamp from those that are open.
func (g *userGroup) decide(stamp isotone.Timestamp) {
	if g == nil {
		return
	}
	g.open = slices.DeleteFunc(g.open, func(o isotone.Timestamp) bool { return o == stamp })
	g.doubts = slices.DeleteFunc(g.doubts, func(o isotone.Timestamp) bool { return o == stamp })
}

// useGroup has a user take stamps, or doubt a write.
func (w *world) useGroup(u *sessionUser, g *userGroup) {
	rng := w.sessions.rng
	switch {
	case len(g.open) > 0 && rng.IntN(10) == 0:
		if stamp := g.open[rng.IntN(len(g.open))]; !slices.Contains(g.doubts, stamp) {
			g.doubts = append(g.doubts, stamp)
		}
		w.say(u, &session.Request{}, nil, false)
	case !g.taking && len(g.open) < 8 && !w.closing:
		g.taking = true
		w.say(u, &session.Request{Group: g.name, Ahead: rng.IntN(4) == 0}, []uint64{1 + rng.Uint64N(3)}, rng.IntN(4) == 0)
	}
}

// takeStamps has a user write with the stamps of an answer, and with some that it makes itself.
func (w *world) takeStamps(u *sessionUser, k *call) {
	g, q := u.group(k.session.q.Group), k.session.q
	var stamps []isotone.Timestamp
	for i := range k.ranges {
		for _, part := range k.parts(i) {
			for n := range part.Count {
				stamps = append(stamps, isotone.Timestamp{Time: part.First.Time, Index: part.First.Index + n})
			}
		}
	}
	g.issued = stamps[len(stamps)-1]
	if g.high.Before(g.issued) {
		g.high = g.issued
	}
	if q.Ahead {
		for range w.sessions.rng.IntN(3) {
			if room := q.Reply.Bound.Time - g.issued.Time; room > 0 {
				stamps = append(stamps, isotone.Timestamp{Time: g.issued.Time + 1 + w.sessions.rng.Uint64N(room), Index: 1 << 63})
			}
		}
		if g.high.Before(q.Reply.Bound) {
			g.high = q.Reply.Bound
		}
	}
	w.trace("user %d is to write in %q: %v, and may up to %v", u.number, g.name, stamps, g.high)
	for _, stamp := range stamps {
		if !slices.Contains(g.open, stamp) { // it may have drawn one twice
			g.open = append(g.open, stamp)
			w.write16(u, g, stamp)
		}
	}
}

// write16 sends a stamped write to the store, where it arrives at any time.
func (w *world) write16(u *sessionUser, g *userGroup, stamp isotone.Timestamp) {
	s := &w.sessions
	delay := time.Duration(s.rng.Int64N(int64(2 * w.cfg.tick)))
	if s.rng.IntN(10) == 0 {
		delay = time.Duration(s.rng.Int64N(int64(3 * u.ttl)))
	}
	w.after(delay, func() {
		w.stats.StampedWrites++
		if !stamp.Before(s.store.fences[g.name]) {
			if told := s.store.told[g.name]; !told.Before(stamp) {
				w.fail("R14: a write of user %d in %q, stamped %v, is accepted after the frontier %v was told", u.number, g.name, stamp, told)
			}
		} else {
			w.stats.StampedFenced++
		}
		switch {
		case u.dead || u.group(g.name) != g || !slices.Contains(g.open, stamp):
		case w.now < u.resumes || s.rng.IntN(10) == 0: // the answer is lost, and it is repeated
			w.write16(u, g, stamp)
		default:
			g.decide(stamp)
			if u.conn != nil && u.conn.bound && s.rng.IntN(2) == 0 {
				w.say(u, &session.Request{}, nil, false)
			}
		}
	})
}

// seal has a user raise the fence of the store, and tell that later.
func (w *world) seal(u *sessionUser, group string, through isotone.Timestamp) {
	s := &w.sessions
	w.after(time.Duration(s.rng.Int64N(int64(w.cfg.tick))), func() {
		if up := after(through); s.store.fences[group].Before(up) {
			s.store.fences[group] = up
		}
		w.trace("user %d seals %q through %v", u.number, group, through)
		w.stats.Seals++
		u.sealed = append(u.sealed, session.GroupStamp{Group: group, Stamp: through})
	})
}

// noteFrontiers reads the frontiers of a leader, as readers do.
func (w *world) noteFrontiers(n *node) {
	s := &w.sessions
	if !s.used {
		return
	}
	for _, group := range s.groups {
		f, ok := n.replica.Frontier(group)
		if !ok {
			return
		}
		of := sessionTerm{group, n, n.session, n.replica.Brief().Term}
		if f.Before(s.frontiers[of]) {
			w.fail("R14: the frontier of %q sinks from %v to %v in a term", group, s.frontiers[of], f)
		}
		s.frontiers[of] = f
		if s.store.told[group].Before(f) {
			s.store.told[group] = f
		}
	}
}
