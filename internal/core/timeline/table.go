package timeline

import (
	"slices"
	"strings"

	"github.com/isotone/isotone/internal/core/mutant"
)

const (
	// Level is the feature level that timelines need.
	Level = 2
	// TimelinesMax is the largest number of timelines.
	TimelinesMax = 100_000
	// GroupsMax is the largest number of groups: SlotGroups, and those that operators make.
	GroupsMax = 1024
	// PreferMax is the largest number of nodes in Group.Prefer.
	PreferMax = 8
	// tombstonesMax is the largest number of tombstones.
	tombstonesMax = 4096
	// CeilingMax is the largest ceiling, as in package oracle: the last nanosecond of a signed 64-bit unix time.
	CeilingMax = 1<<63 - 1
)

// Table is what the cluster agrees on about timelines. The zero Table has none.
type Table struct {
	// Ceiling is the shared ceiling, in unix nanoseconds: above the time of every timestamp issued so far, but for those of
	// timelines with a larger ceiling of their own.
	Ceiling uint64

	timelines map[string]Timeline
	// groups has the groups of hash slots that were ever granted, preferred or had a timeline, and all others.
	groups map[string]Group
	// tombstones are the ceilings of deleted timelines that had a larger one than the shared ceiling.
	tombstones map[string]uint64

	// What follows from the above.

	// raised are the timelines whose own ceiling was above the shared one when they were put here.
	raised map[string]struct{}
	// ending is how many groups have a lease that is ending.
	ending int
	// sum is the sum of the hashes of all records.
	sum uint64
}

// Timeline is the record of one timeline.
type Timeline struct {
	// ID is the index of the log entry that created it. A name that is deleted and created again gets another one.
	ID uint64
	// Group is the name of its group, Since the index of the entry that put it there.
	Group string
	Since uint64
	// Base is a floor of its times, beside that of its group.
	Base uint64
	// Ceiling is its own ceiling. It counts while it is above the shared one.
	Ceiling uint64
	// Bound is above the times of all its timestamps, for ever, once it is sealed; 0: it is not.
	Bound uint64
	Quota Quota
}

// Quota bounds what is served of a timeline in a second, to all users together. 0: nothing bounds it.
type Quota struct{ Requests, Timestamps uint64 }

// Group is the record of one group.
type Group struct {
	// Made is the index of the entry that made it, 0 for a group of hash slots.
	Made uint64
	// Owner is the member that owns it, 0 for none, and Session identifies its process.
	Owner, Session uint64
	// Grant is the index of the entry that made that process the owner: the name of the tenure. Before the first one it is Made.
	Grant uint64
	// Base is the shared ceiling before that entry.
	Base uint64
	// Lease is the index of the entry since which the owner may answer by a lease; 0: it may not, and no owner of before can. Ending: it may not,
	// and one of before may not know that yet.
	Lease  uint64
	Ending bool
	// Prefer are the nodes that should own it, the first one before the others.
	Prefer []uint64

	timelines int // how many it has
}

// Timeline returns the record of a timeline.
func (t *Table) Timeline(name string) (Timeline, bool) {
	have, ok := t.timelines[name]
	return have, ok
}

// Group returns the record of a group. Those of hash slots exist from the start.
func (t *Table) Group(name string) (Group, bool) {
	g, ok := t.groups[name]
	return g, ok || isSlotGroup(name)
}

// Len returns how many timelines there are.
func (t *Table) Len() int { return len(t.timelines) }

// LenOf returns how many timelines a group has.
func (t *Table) LenOf(group string) int { return t.groups[group].timelines }

// Timelines returns the first limit names of timelines, in their order, that have a prefix and come after a name.
func (t *Table) Timelines(prefix, after string, limit int) []string {
	var names []string
	for name := range t.timelines { // order-free: they are sorted
		if name <= after || !strings.HasPrefix(name, prefix) || len(names) >= limit && (limit <= 0 || name > names[limit-1]) {
			continue
		}
		at, _ := slices.BinarySearch(names, name)
		names = slices.Insert(names, at, name)
		names = names[:min(len(names), limit)]
	}
	return names
}

// Groups returns the names of all groups with a record, in their order.
func (t *Table) Groups() []string { return sortedNames(t.groups) }

// OwnedBy returns how many groups with timelines a process owns.
func (t *Table) OwnedBy(member, session uint64) (n int) {
	for _, g := range t.groups { // order-free: they are counted
		if g.timelines > 0 && g.Owner == member && g.Session == session {
			n++
		}
	}
	return n
}

// HasOwners reports whether hasOwner reports true of each group that has timelines.
func (t *Table) HasOwners(hasOwner func(Group) bool) bool {
	for _, g := range t.groups { // order-free: each is judged by itself
		if g.timelines > 0 && !hasOwner(g) {
			return false
		}
	}
	return true
}

// Ending returns the groups whose lease is ending, in their order.
func (t *Table) Ending() (names []string) {
	if t.ending == 0 {
		return nil
	}
	for name, g := range t.groups { // order-free: the names are sorted
		if g.Ending {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// WaitsForLease reports whether the owner has to wait before it answers, as one of before may still do so by a lease: the group was
// granted with one.
func (g Group) WaitsForLease() bool { return g.Lease != 0 && g.Lease < g.Grant }

// Bounds returns the times of the timestamps that the owner of a timeline may issue: base <= time < ceiling. They are none if there is no
// such timeline, if it is sealed, or at the end of all times.
func (t *Table) Bounds(name string) (base, ceiling uint64, ok bool) {
	have, ok := t.timelines[name]
	if !ok || have.Bound != 0 && !mutant.On(mutant.IssueSealed) {
		return 0, 0, false
	}
	base, ceiling = max(have.Base, t.groups[have.Group].Base), t.ceilingOf(have)
	return base, ceiling, base < ceiling
}

// Reserve raises the shared ceiling to target, and by at least a nanosecond. The target is never that of a raised floor.
func (t *Table) Reserve(target uint64) { t.Ceiling = min(max(t.Ceiling+1, target), CeilingMax) }

// ceilingOf returns what is above all times of a timeline.
func (t *Table) ceilingOf(have Timeline) uint64 { return max(t.Ceiling, have.Ceiling) }

// put sets the record of a timeline.
func (t *Table) put(name string, now Timeline) {
	t.drop(name)
	t.sum += hashTimeline(name, now)
	set(&t.timelines, name, now)
	if now.Ceiling > t.Ceiling {
		set(&t.raised, name, struct{}{})
	}
	g := t.groups[now.Group]
	g.timelines++
	t.putGroup(now.Group, g)
}

// drop removes the record of a timeline, if there is one.
func (t *Table) drop(name string) {
	have, ok := t.timelines[name]
	if !ok {
		return
	}
	t.sum -= hashTimeline(name, have)
	delete(t.timelines, name)
	delete(t.raised, name)
	g := t.groups[have.Group]
	g.timelines--
	t.putGroup(have.Group, g)
}

// putGroup sets the record of a group.
func (t *Table) putGroup(name string, now Group) {
	t.dropGroup(name)
	t.sum += hashGroup(name, now)
	if now.Ending {
		t.ending++
	}
	set(&t.groups, name, now)
}

// dropGroup removes the record of a group, if there is one.
func (t *Table) dropGroup(name string) {
	if have, ok := t.groups[name]; ok {
		t.sum -= hashGroup(name, have)
		if have.Ending {
			t.ending--
		}
		delete(t.groups, name)
	}
}

// bury remembers the ceiling of a timeline that is deleted.
func (t *Table) bury(name string, ceiling uint64) {
	t.exhume(name)
	if ceiling > t.Ceiling && !mutant.On(mutant.TombstoneForgotten) {
		t.sum += hashTombstone(name, ceiling)
		set(&t.tombstones, name, ceiling)
	}
}

// exhume forgets the ceiling of a deleted timeline, and returns it.
func (t *Table) exhume(name string) (ceiling uint64) {
	ceiling, ok := t.tombstones[name]
	if ok {
		t.sum -= hashTombstone(name, ceiling)
		delete(t.tombstones, name)
	}
	return ceiling
}

// clear forgets the ceilings of deleted timelines that the shared one has passed.
func (t *Table) clear() {
	for name, ceiling := range t.tombstones { // order-free: each is judged by itself
		if ceiling <= t.Ceiling {
			t.exhume(name)
		}
	}
}

// raisedIn returns the timelines of a group whose own ceiling is above the shared one, in their order.
func (t *Table) raisedIn(group string) (names []string) {
	for name := range t.raised { // order-free: the names are sorted
		switch have := t.timelines[name]; {
		case have.Ceiling <= t.Ceiling:
			delete(t.raised, name)
		case have.Group == group:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// set sets an entry of a map that may not have been made.
func set[V any](m *map[string]V, name string, v V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[name] = v
}

// sortedNames returns the keys of a map in their order.
func sortedNames[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m { // order-free: they are sorted
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
