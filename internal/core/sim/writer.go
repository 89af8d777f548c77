package sim

import (
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/session"
)

// Users who write into the stores of groups. The check: no write is accepted at or below a frontier that was told before (P5).

// userGroup is a group of a user, with stamps that may be open.
type userGroup struct {
	name   string
	stamps []isotone.Timestamp
	takes  bool
}

func (u *sessionUser) group(name string) *userGroup {
	for _, g := range u.writes {
		if g.name == name {
			return g
		}
	}
	return nil
}

// after returns the smallest stamp after t.
func after(t isotone.Timestamp) isotone.Timestamp {
	if t.Index++; t.Index == 0 {
		t.Time++
	}
	return t
}

// useGroup has a user take stamps, or doubt a write.
func (w *world) useGroup(u *sessionUser, g *userGroup) {
	rng := w.sessions.rng
	g.stamps = slices.DeleteFunc(g.stamps, func(t isotone.Timestamp) bool { return !u.client.MayWrite(g.name, t) })
	switch {
	case len(g.stamps) > 0 && rng.IntN(10) == 0:
		u.client.Doubt(g.name, g.stamps[rng.IntN(len(g.stamps))])
	case !g.takes && len(g.stamps) < 8 && !w.closing:
		g.takes = true
		u.client.Take(g.name, 1+rng.Uint64N(3), rng.IntN(4) == 0, rng.IntN(4) == 0)
	}
}

// useStamps has a user write with the stamps of an answer, and with some that it makes itself, now or later.
func (w *world) useStamps(u *sessionUser, e session.Event) {
	g, r, rng := u.group(e.Group), e.Range, w.sessions.rng
	g.takes = false
	w.trace("user %d is to write in %q: %v, and may up to %v", u.number, g.name, r, e.Through)
	for n := range r.Count {
		stamp := isotone.Timestamp{Time: r.First.Time, Index: r.First.Index + n}
		if !u.client.MayWrite(g.name, stamp) {
			stamp = (isotone.Timestamp64From(r.First) + isotone.Timestamp64(n)).Timestamp()
		}
		w.write16(u, g, stamp)
	}
	if e.Through == (isotone.Timestamp{}) {
		return
	}
	client, room := u.client, e.Through.Time-r.First.Time+2
	for range rng.IntN(3) {
		stamp := isotone.Timestamp{Time: r.First.Time + rng.Uint64N(room), Index: 1<<63 | rng.Uint64N(4)}
		w.after(time.Duration(rng.Int64N(3)*rng.Int64N(int64(w.cfg.tick))), func() {
			if !u.dead && u.client == client && w.now >= u.resumes && !client.MayWrite(g.name, stamp) && client.Make(g.name, stamp) {
				w.write16(u, g, stamp)
			}
		})
	}
}

// write16 sends a stamped write to stores of its group.
func (w *world) write16(u *sessionUser, g *userGroup, stamp isotone.Timestamp) {
	g.stamps = append(g.stamps, stamp)
	list := w.sessions.stores.pick(u.layouts[g.name])
	left := len(list)
	for _, store := range list {
		w.writeStore(u, g, store, stamp, func() bool {
			left--
			return left == 0
		})
	}
}

// writeStore sends a write to a store, where it arrives at any time. answered tells of the answer, and reports whether it was the last.
func (w *world) writeStore(u *sessionUser, g *userGroup, store int, stamp isotone.Timestamp, answered func() bool) {
	s, client := &w.sessions, u.client
	delay := time.Duration(s.rng.Int64N(int64(2 * w.cfg.tick)))
	if s.rng.IntN(10) == 0 {
		delay = time.Duration(s.rng.Int64N(int64(3 * u.ttl)))
	}
	w.after(delay, func() {
		w.arriveAtStore(u, g.name, store, stamp)
		switch {
		case u.dead || u.client != client || !client.MayWrite(g.name, stamp):
		case w.now < u.resumes || s.rng.IntN(10) == 0: // the answer is lost, and it is repeated
			w.writeStore(u, g, store, stamp, answered)
		case !answered():
		default:
			client.Done(g.name, stamp)
			if s.rng.IntN(2) == 0 {
				w.pumpSession(u)
			}
		}
	})
}

// seal has a user raise the fences of the stores, and tell that later.
func (w *world) seal(u *sessionUser, group string, through isotone.Timestamp) {
	client := u.client
	w.sealAll(u.layouts[group], group, through, func() {
		w.trace("user %d seals %q through %v", u.number, group, through)
		w.stats.Seals++
		client.Sealed(group, through)
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
		if s.stores.told[group].Before(f) {
			s.stores.told[group] = f
		}
	}
}
