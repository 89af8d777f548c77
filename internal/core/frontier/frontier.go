package frontier

import (
	"cmp"
	"container/heap"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
)

const (
	// GroupsMax is the largest number of groups of a term.
	GroupsMax = 1024
	// SessionGroupsMax is the largest number of groups of a session.
	SessionGroupsMax = 16
	// EntriesMax is the largest number of sessions in all groups.
	EntriesMax = 100_000
	// NameMax is the largest length of the name of a group, in bytes.
	NameMax = 128

	// grace is how long after the beginning of a term no seal is asked for: writers bind meanwhile, and what they name is not sealed.
	grace = 60 * time.Millisecond
	// sealPause is between two seals of growing stamps, and sealRetry until another session is asked for the same.
	sealPause, sealRetry = 2 * time.Millisecond, 15 * time.Millisecond
)

// Session identifies a session.
type Session uint64

// Report is what a session that binds may still write in a group: the stamps from Low to High, none if High is below Low.
type Report struct {
	Group     string
	Low, High isotone.Timestamp
}

// Seal asks a session to have the stores of a group refuse all writes at or below Through.
type Seal struct {
	Session Session
	Group   string
	Through isotone.Timestamp
}

// Table has the groups of one term. It is not safe for concurrent use.
type Table struct {
	floor    isotone.Timestamp
	openedAt time.Duration
	holdMax  time.Duration

	now  time.Duration
	next isotone.Timestamp
	// last is the largest stamp that a session may have: of an earlier term, or registered in this one.
	last isotone.Timestamp

	groups   map[string]*group
	sessions map[Session][]*entry
	entries  int
}

// New returns the table of a leader that has opened now, by its steady clock, and issues at or above floor: all stamps below may be those of writers of
// earlier terms. A session whose lowest stamp is undecided for holdMax is fenced.
func New(floor isotone.Timestamp, now, holdMax time.Duration) *Table {
	return &Table{floor: floor, openedAt: now, holdMax: holdMax, now: now, next: floor, last: below(floor), groups: map[string]*group{}, sessions: map[Session][]*entry{}}
}

// Advance tells the time, and the smallest stamp that may still be issued. Neither may sink.
func (t *Table) Advance(now time.Duration, next isotone.Timestamp) { t.now, t.next = now, next }

// span is an interval of stamps, empty if high is below low.
type span struct{ low, high isotone.Timestamp }

func (s span) isEmpty() bool { return s.high.Before(s.low) }

// empty has no stamp.
var empty = span{low: isotone.Timestamp{Index: 1}}

type group struct {
	name string
	// hole has stamps of writers whom nobody can ask.
	hole        span
	outstanding queue
	// members are all entries, which are asked for seals in turn.
	members []*entry
	// asked is the latest seal that was asked for, at askedAt, of the member before turn.
	asked   isotone.Timestamp
	askedAt time.Duration
	turn    int
}

// entry is what a session may still write in a group (R10).
type entry struct {
	session Session
	group   *group
	span
	// since is when low has moved.
	since time.Duration
	// at is its place in the heap, -1: it is empty. place is that among the members.
	at, place int
	// connected is set while the session may be asked to seal.
	connected bool
}

// group returns a group, which begins with all stamps of earlier terms in its hole (R13); nil if there are too many.
func (t *Table) group(name string) *group {
	g := t.groups[name]
	if g == nil && len(t.groups) < GroupsMax {
		g = &group{name: name, hole: span{high: below(t.floor)}, askedAt: t.openedAt - sealRetry}
		if t.floor == (isotone.Timestamp{}) || mutant.On(mutant.TermWithoutHole) {
			g.hole = empty
		}
		t.groups[name] = g
	}
	return g
}

// bound is the smallest stamp that may still be accepted: that above F (R14).
func (t *Table) bound(g *group) isotone.Timestamp {
	b := t.next
	if len(g.outstanding) > 0 {
		b = least(b, g.outstanding[0].low)
	}
	if !g.hole.isEmpty() {
		b = least(b, g.hole.low)
	}
	return b
}

// Frontier returns F of a group: no write at or below it is accepted any more. A group with which no session has bound has the zero frontier.
func (t *Table) Frontier(name string) isotone.Timestamp {
	g := t.groups[name]
	if g == nil {
		return isotone.Timestamp{}
	}
	b := t.bound(g)
	if mutant.On(mutant.FrontierAtNext) && b == t.next || mutant.On(mutant.FrontierAtLow) && len(g.outstanding) > 0 && b == g.outstanding[0].low {
		return b
	}
	return below(b)
}

// Blocker is a part of what keeps the frontier of a group from going on.
type Blocker struct {
	// Session may still write the stamps of the Report; 0: they are those of writers whom nobody can ask, and wait for a seal.
	Session Session
	Report
	// For is for how long Low has not moved, 0 for those without a session. Connected is set while the session has a connection.
	For       time.Duration
	Connected bool
}

// Blockers returns at most limit of what keeps the frontier of a group below the next stamp to issue, the lowest first.
func (t *Table) Blockers(name string, limit int) (list []Blocker) {
	g := t.groups[name]
	if g == nil {
		return nil
	}
	if !g.hole.isEmpty() {
		list = append(list, Blocker{Report: Report{name, g.hole.low, g.hole.high}})
	}
	for _, e := range g.outstanding {
		list = append(list, Blocker{e.session, Report{name, e.low, e.high}, t.now - e.since, e.connected})
	}
	slices.SortFunc(list, func(a, b Blocker) int { return cmp.Or(a.Low.Compare(b.Low), cmp.Compare(a.Session, b.Session)) })
	return list[:min(len(list), limit)]
}

// Groups returns the names of all groups, sorted.
func (t *Table) Groups() []string { return slices.Sorted(maps.Keys(t.groups)) }

// entry returns the entry of a session in a group, nil if it has not bound with it.
func (t *Table) entry(s Session, name string) *entry {
	for _, e := range t.sessions[s] {
		if e.group.name == name {
			return e
		}
	}
	return nil
}

// Has reports whether a session has bound with a group.
func (t *Table) Has(s Session, group string) bool { return t.entry(s, group) != nil }

// Gone notes that the connection of a session has ended. Its entries stay until it binds again or ends.
func (t *Table) Gone(s Session) {
	for _, e := range t.sessions[s] {
		e.connected = false
	}
}

// End ends a session: what it may still write is in the holes of its groups from now on (R13).
func (t *Table) End(s Session) {
	for _, e := range slices.Clone(t.sessions[s]) {
		if !mutant.On(mutant.DeathWithoutHole) {
			t.abandon(e)
		}
		t.leave(e)
	}
}

// abandon moves what a session may still write to the hole.
func (t *Table) abandon(e *entry) {
	if !e.isEmpty() {
		e.group.dig(span{e.low, mutant.Pick(mutant.HoleAtLow, e.low, e.high)})
	}
	t.set(e, empty)
}

// leave removes an entry. It leaves no hole.
func (t *Table) leave(e *entry) {
	t.set(e, empty)
	g := e.group
	last := len(g.members) - 1
	g.members[e.place], g.members[last].place = g.members[last], e.place
	g.members[last] = nil
	g.members = g.members[:last]
	t.sessions[e.session] = slices.DeleteFunc(t.sessions[e.session], func(o *entry) bool { return o == e })
	if len(t.sessions[e.session]) == 0 {
		delete(t.sessions, e.session)
	}
	t.entries--
}

// dig adds stamps to the hole. It is one interval, and what lies between is sealed with it; a seal is below all that the living may write.
func (g *group) dig(s span) {
	switch {
	case g.hole.isEmpty():
		g.hole = s
	case mutant.On(mutant.HoleNarrow):
		g.hole = span{greatest(g.hole.low, s.low), greatest(g.hole.high, s.high)}
	default:
		g.hole = span{least(g.hole.low, s.low), greatest(g.hole.high, s.high)}
	}
}

// Take registers the stamps from first to last that are issued to a session, in the step that issues them (R10). The session may make stamps itself up to last. It
// reports false, and registers nothing, if the session has not bound with the group: then nothing may be issued.
func (t *Table) Take(s Session, name string, first, last isotone.Timestamp) bool {
	e := t.entry(s, name)
	if e == nil {
		return false
	}
	t.last = greatest(t.last, last)
	switch {
	case mutant.On(mutant.TakeUnregistered):
	case e.isEmpty() || mutant.On(mutant.TakeKeepsLow):
		t.set(e, span{first, last})
	default: // a session that makes stamps itself may have decided all up to some that are above first
		t.set(e, span{mutant.Pick(mutant.TakeAboveLow, e.low, least(e.low, first)), greatest(e.high, last)})
	}
	return true
}

// Low notes that all stamps of a session below x are decided: stored, refused, or never to be sent (R11).
func (t *Table) Low(s Session, name string, x isotone.Timestamp) {
	if e := t.entry(s, name); e != nil && (e.low.Before(x) || mutant.On(mutant.LowMaySink)) {
		t.set(e, span{x, e.high})
	}
}

// Doubt notes that a write of a session has no answer, and that the session does not repeat it: it may be accepted at any time (R11, R13).
func (t *Table) Doubt(s Session, name string, stamp isotone.Timestamp) {
	if e := t.entry(s, name); e != nil && !stamp.Before(e.low) && !e.high.Before(stamp) && !mutant.On(mutant.DoubtForgotten) {
		e.group.dig(span{stamp, stamp})
	}
}

// Sealed notes that all stores of a group refuse what is at or below through, whoever has sealed it, and in whatever term (R15).
func (t *Table) Sealed(name string, through isotone.Timestamp) {
	g := t.groups[name]
	if g == nil {
		return
	}
	if mutant.On(mutant.SealAsAsked) {
		through = greatest(through, g.asked)
	}
	if through.Before(g.hole.low) || g.hole.isEmpty() {
		return
	}
	g.hole.low = above(through)
	if mutant.On(mutant.SealClosesAll) {
		g.hole = empty
	}
}

// Seals returns which sessions are to be asked to seal now (R15). It asks for no stamp that a live session may write.
func (t *Table) Seals() (list []Seal) {
	if t.now-t.openedAt < grace && !mutant.On(mutant.SealWithoutGrace) {
		return nil
	}
	for _, g := range t.groups { // order-free: the caller gets them sorted
		if s, ok := t.seal(g); ok {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b Seal) int { return cmp.Compare(a.Group, b.Group) })
	return list
}

func (t *Table) seal(g *group) (Seal, bool) {
	if g.hole.isEmpty() {
		return Seal{}, false
	}
	through := least(g.hole.high, below(t.next))
	if len(g.outstanding) > 0 && !mutant.On(mutant.SealOverLive) {
		through = least(through, below(g.outstanding[0].low))
	}
	pause := sealRetry
	if g.asked.Before(through) {
		pause = sealPause
	}
	if through.Before(g.hole.low) || t.now-g.askedAt < pause {
		return Seal{}, false
	}
	for range g.members {
		g.turn++
		if e := g.members[g.turn%len(g.members)]; e.connected {
			g.asked, g.askedAt = through, t.now
			return Seal{e.session, g.name, through}, true
		}
	}
	return Seal{}, false
}

// Fenced says that a session may not write from Low to High any more, as it has not decided Low for too long.
type Fenced struct {
	Session Session
	Report
}

// Overdue moves what sessions have not decided for too long to the hole (R16), and returns what each is to be told.
func (t *Table) Overdue() (list []Fenced) {
	for _, g := range t.groups { // order-free: the caller gets them sorted
		for len(g.outstanding) > 0 && t.now-g.outstanding[0].since > t.holdMax {
			e := g.outstanding[0]
			list = append(list, Fenced{e.session, Report{g.name, e.low, e.high}})
			t.abandon(e)
		}
	}
	slices.SortFunc(list, func(a, b Fenced) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Session, b.Session)) })
	return list
}

// set sets what a session may still write.
func (t *Table) set(e *entry, s span) {
	if e.low != s.low || e.isEmpty() {
		e.since = t.now
	}
	e.span = s
	switch out := &e.group.outstanding; {
	case e.at < 0 && !s.isEmpty():
		heap.Push(out, e)
	case e.at >= 0 && s.isEmpty():
		heap.Remove(out, e.at)
	case e.at >= 0:
		heap.Fix(out, e.at)
	}
}

// queue is a heap of the entries that are not empty, the lowest first.
type queue []*entry

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].low.Before(q[j].low) }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}

// Push implements [heap.Interface].
func (q *queue) Push(x any) {
	e := x.(*entry)
	e.at = len(*q)
	*q = append(*q, e)
}

// Pop implements [heap.Interface].
func (q *queue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last], *q = nil, (*q)[:last]
	e.at = -1
	return e
}

func least(a, b isotone.Timestamp) isotone.Timestamp {
	if b.Before(a) {
		return b
	}
	return a
}

func greatest(a, b isotone.Timestamp) isotone.Timestamp {
	if a.Before(b) {
		return b
	}
	return a
}

// above returns the smallest stamp above t, or t if it is the last one.
func above(t isotone.Timestamp) isotone.Timestamp {
	switch {
	case t.Index < math.MaxUint64:
		t.Index++
	case t.Time < math.MaxUint64:
		t = isotone.Timestamp{Time: t.Time + 1}
	}
	return t
}

// below returns the largest stamp below t, or t if it is the first one.
func below(t isotone.Timestamp) isotone.Timestamp {
	switch {
	case t.Index > 0:
		t.Index--
	case t.Time > 0:
		t = isotone.Timestamp{Time: t.Time - 1, Index: math.MaxUint64}
	}
	return t
}
