package spec

import "math"

// Stamps are those of Group from Low to High, none if High is below Low.
type Stamps struct {
	Group string    `json:"group"`
	Low   Timestamp `json:"low,omitzero"`
	High  Timestamp `json:"high,omitzero"`
}

// group is a group of writers in a leader's term.
type group struct {
	entries map[uint64]*undecided // by session
	// hole has stamps of writers whom nobody can ask. The stores refuse what is at or below sealed.
	hole   Stamps
	sealed Timestamp
	// asked is the largest seal that was asked for, told the frontier that was told last.
	asked, told Timestamp
}

// undecided is what a session may still write. It counts once an answer has shown that it is registered. Low has moved at since, in the time that the leader ran.
type undecided struct {
	Stamps
	counts bool
	since  int64
}

// sealGrace is how long after its opening a leader asks for no seal, and undecidedMax how long a session may leave its lowest stamp undecided; in nanoseconds.
const sealGrace, undecidedMax = 60e6, 60e9

// below returns the largest stamp before a time, above the smallest one above a stamp.
func below(time uint64) Timestamp {
	if time == 0 {
		return Timestamp{}
	}
	return Timestamp{time - 1, math.MaxUint64}
}

func above(t Timestamp) Timestamp {
	if t.Index++; t.Index == 0 {
		t.Time++
	}
	return t
}

// group returns a group. It begins with all stamps of earlier terms in its hole.
func (t *sessions) group(name string) *group {
	g := t.groups[name]
	if g == nil {
		g = &group{entries: map[uint64]*undecided{}, hole: Stamps{High: t.earlier}}
		t.groups[name] = g
	}
	return g
}

// isOpen reports whether the stores may accept any of the stamps.
func (g *group) isOpen(s Stamps) bool { return !s.High.Before(s.Low) && g.sealed.Before(s.High) }

// lowest returns the lowest stamp that may be accepted, of those that were issued, and the session that has it; 0: nobody can be asked.
func (g *group) lowest() (low Timestamp, session uint64) {
	low = Timestamp{math.MaxUint64, math.MaxUint64}
	if g.isOpen(g.hole) {
		low = g.hole.Low
	}
	for id, e := range g.entries {
		if e.counts && g.isOpen(e.Stamps) && e.Low.Before(low) {
			low, session = e.Low, id
		}
	}
	return larger(low, above(g.sealed)), session
}

// dig adds stamps to the hole.
func (g *group) dig(s Stamps) {
	if !g.isOpen(g.hole) {
		g.hole = s
	} else if g.isOpen(s) {
		g.hole.Low, g.hole.High = smaller(g.hole.Low, s.Low), larger(g.hole.High, s.High)
	}
}

// abandon moves what a session may still write to the hole.
func (g *group) abandon(id uint64) {
	if e := g.entries[id]; e != nil && e.counts {
		g.dig(e.Stamps)
	}
	delete(g.entries, id)
}

// decide notes what a session says of its stamps, and returns those in doubt that it may still write.
func (t *sessions) decide(id uint64, r *SessionRequest) (doubts []Stamps) {
	for _, d := range r.Doubts {
		if e := t.group(d.Group).entries[id]; e != nil && !d.Low.Before(e.Low) && !e.High.Before(d.Low) {
			doubts = append(doubts, d)
		}
	}
	for _, d := range r.Lows {
		if e := t.group(d.Group).entries[id]; e != nil && e.Low.Before(d.Low) {
			e.Low, e.since = d.Low, t.ran
		}
	}
	for _, d := range r.Sealed {
		g := t.group(d.Group)
		g.sealed = larger(g.sealed, d.High)
	}
	return doubts
}

// report replaces what a session may still write by what it names when it binds.
func (t *sessions) report(b *Bind) {
	old := map[string]*undecided{}
	for name, g := range t.groups {
		old[name] = g.entries[b.Session]
		delete(g.entries, b.Session)
	}
	for _, r := range b.Reports {
		low, _ := t.group(r.Group).lowest()
		e := &undecided{Stamps: Stamps{r.Group, larger(r.Low, low), smaller(r.High, t.last)}, since: t.ran}
		if o := old[r.Group]; o != nil {
			e.Low, e.since = larger(e.Low, o.Low), o.since
		}
		t.group(r.Group).entries[b.Session] = e
	}
}

// take checks the stamps that are issued to a session, and registers them.
func (s *Spec) take(n *node, t *sessions, id, conn uint64, name string, e Event) {
	g, first, last := t.group(name), e.Ranges[0].First, larger(e.Ranges[0].Last, e.Reply.Bound)
	s.require("take", g.told.Before(first) && g.asked.Before(first), "%v is issued, and the frontier of %q is %v, and its seals are asked for through %v", first, name, g.told, g.asked)
	s.require("ceiling", last.Time < n.ceiling, "the session %x may make stamps up to %v, and the ceiling is %d", id, last, n.ceiling)
	t.last = larger(t.last, last)
	if t.all[id].conn != conn {
		return // it has bound over another connection since, and given them up
	}
	old := g.entries[id]
	if old == nil || old.High.Before(old.Low) {
		old = &undecided{Stamps: Stamps{name, first, last}, since: t.ran}
	}
	g.entries[id] = &undecided{Stamps{name, smaller(old.Low, first), larger(old.High, last)}, true, old.since}
}

// frontier checks a frontier that is told.
func (s *Spec) frontier(t *sessions, f Stamps) {
	if f.High == (Timestamp{}) {
		return
	}
	g := t.group(f.Group)
	s.require("frontier", !f.High.Before(g.told), "the frontier of %q sinks from %v to %v", f.Group, g.told, f.High)
	low, id := g.lowest()
	s.require("frontier", f.High.Before(low), "the frontier of %q is %v, and %v may be written still, by the session %x, or by whom nobody can ask if that is 0", f.Group, f.High, low, id)
	g.told = larger(g.told, f.High)
}

// seal checks that a seal fences no session that lives.
func (s *Spec) seal(n *node, t *sessions, seal Stamps) {
	s.require("seal", n.at-t.openedAt >= sealGrace, "a seal is asked for %d ns after the opening", n.at-t.openedAt)
	g := t.group(seal.Group)
	for id, e := range g.entries {
		x := t.all[id]
		lives := e.counts && g.isOpen(e.Stamps) && x.ends == 0 && !x.broken && !t.mayEnd(n, x) && t.ran-e.since < undecidedMax
		s.require("seal", !lives || seal.High.Before(e.Low), "a seal of %q through %v is asked for, and the session %x may write from %v on", seal.Group, seal.High, id, e.Low)
	}
	g.asked = larger(g.asked, seal.High)
}

// fenced checks that a session has left its lowest stamp undecided for too long.
func (s *Spec) fenced(n *node, t *sessions, id uint64, f Stamps) {
	g := t.group(f.Group)
	if e := g.entries[id]; e != nil {
		s.require("undecided", t.ran-e.since >= undecidedMax-pauseTicks*n.tick, "the session %x is fenced in %q %d ns after its lowest stamp has moved", id, f.Group, t.ran-e.since)
		g.abandon(id)
	}
}

func smaller(a, b Timestamp) Timestamp {
	if b.Before(a) {
		return b
	}
	return a
}
