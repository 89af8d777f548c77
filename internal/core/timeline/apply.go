package timeline

import (
	"slices"

	"github.com/isotone/isotone/internal/core/mutant"
)

// timeMax is the largest time that a timeline can be told to be above.
const timeMax = CeilingMax - 2

// Apply applies the committed command at a log index. It returns an outcome for each grant or creation of a command that has them, else one.
// isMember reports whether a process is that of a member of the cluster.
func (t *Table) Apply(index uint64, c Command, isMember func(member, session uint64) bool) []Refusal {
	switch c.Kind {
	case KindGrant:
		outcomes := make([]Refusal, len(c.Grants))
		for i, g := range c.Grants {
			outcomes[i] = t.grant(index, g, isMember)
		}
		t.Reserve(c.Target)
		return outcomes
	case KindCreate:
		t.clear()
		floor := t.Ceiling
		t.Reserve(c.Target)
		outcomes := make([]Refusal, len(c.Creations))
		for i, n := range c.Creations {
			outcomes[i] = t.create(index, floor, n)
		}
		return outcomes
	case KindMake:
		return []Refusal{t.makeGroup(index, c)}
	case KindDrop:
		return []Refusal{t.dropEmpty(c.Group)}
	case KindLeaseOn:
		return []Refusal{t.leaseOn(index, c)}
	case KindLeaseOff:
		return []Refusal{t.leaseOff(c)}
	case KindLeaseEnd:
		return []Refusal{t.leaseEnd(c)}
	}
	have, ok := t.timelines[c.Name]
	if !ok || c.ID != 0 && c.ID != have.ID {
		return []Refusal{NotFound}
	}
	return []Refusal{t.change(index, c, have)}
}

// grant begins a tenure. What the one before has issued, or will before it learns of this, is below the ceilings as they stand.
func (t *Table) grant(index uint64, c Grant, isMember func(member, session uint64) bool) Refusal {
	g, ok := t.Group(c.Group)
	switch {
	case !ok:
		return NoGroup
	case g.Grant != c.Replaces:
		return Superseded
	case !isMember(c.Member, c.Session):
		return NoMember
	}
	for _, name := range t.raisedIn(c.Group) {
		if mutant.On(mutant.CeilingForgottenOnGrant) {
			break
		}
		have := t.timelines[name]
		have.Base, have.Ceiling = have.Ceiling, t.ceilingFor(have.Ceiling)
		t.put(name, have)
	}
	g = t.groups[c.Group] // with what has changed there
	g.Owner, g.Session, g.Grant = c.Member, c.Session, index
	g.Base = mutant.Pick(mutant.GrantKeepsFloor, g.Base, t.Ceiling)
	t.putGroup(c.Group, g)
	return Done
}

// ceilingFor returns the ceiling that a timeline with a base needs of its own; 0: none.
func (t *Table) ceilingFor(base uint64) uint64 {
	if base < t.Ceiling {
		return 0
	}
	return min(base+1, CeilingMax)
}

// create creates a timeline that begins at the floor, or above what a timeline of its name has issued.
func (t *Table) create(index, floor uint64, c Creation) Refusal {
	if c.Group == "" {
		c.Group = GroupOf(c.Name)
	}
	g, ok := t.Group(c.Group)
	switch _, exists := t.timelines[c.Name]; {
	case exists:
		return Exists
	case !ok:
		return NoGroup
	case len(t.timelines) >= TimelinesMax:
		return Full
	case c.Above > timeMax:
		return TooLate
	}
	now := Timeline{ID: index, Group: c.Group, Since: index, Quota: c.Quota}
	now.Base = max(mutant.Pick(mutant.RecreateAtGroupFloor, g.Base, floor), t.exhume(c.Name))
	if c.Above > 0 {
		now.Base = max(now.Base, c.Above+1)
	}
	now.Ceiling = t.ceilingFor(now.Base)
	t.put(c.Name, now)
	return Done
}

// change applies a command to the timeline that it names.
func (t *Table) change(index uint64, c Command, have Timeline) Refusal {
	if have.Bound != 0 && c.Kind != KindDelete {
		return Sealed
	}
	g := t.groups[have.Group]
	switch c.Kind {
	case KindDelete:
		return t.remove(c.Name, have, g)
	case KindMove:
		return t.move(index, c, have, g)
	case KindSeal:
		if g.Lease != 0 && !mutant.On(mutant.MoveUnderLease) {
			return Leased
		}
		have.Bound = t.ceilingOf(have)
	case KindFloor:
		if c.Time > timeMax {
			return TooLate
		}
		have.Base, have.Ceiling = max(have.Base, c.Time+1), max(have.Ceiling, c.Time+2)
	case KindQuota:
		have.Quota = c.Quota
	}
	t.put(c.Name, have)
	return Done
}

// remove deletes a timeline. A later one of its name begins above what it has issued.
func (t *Table) remove(name string, have Timeline, g Group) Refusal {
	t.clear()
	switch {
	case g.Lease != 0 && !mutant.On(mutant.MoveUnderLease):
		return Leased
	case have.Ceiling > t.Ceiling && len(t.tombstones) >= tombstonesMax:
		return Full
	}
	t.drop(name)
	t.bury(name, t.ceilingOf(have))
	return Done
}

// move puts a timeline into another group, which begins a tenure of it.
func (t *Table) move(index uint64, c Command, have Timeline, g Group) Refusal {
	_, ok := t.Group(c.Group)
	switch {
	case !ok:
		return NoGroup
	case g.Lease != 0 && !mutant.On(mutant.MoveUnderLease):
		return Leased
	}
	if !mutant.On(mutant.MoveKeepsFloor) {
		have.Base = t.ceilingOf(have)
		t.Reserve(c.Target)
		have.Ceiling = t.ceilingFor(have.Base)
	}
	have.Group, have.Since = c.Group, index
	t.put(c.Name, have)
	return Done
}

// makeGroup makes a group, or sets which nodes it prefers.
func (t *Table) makeGroup(index uint64, c Command) Refusal {
	g, ok := t.Group(c.Group)
	if !ok {
		if named := len(t.groups) - t.slotGroups(); named >= GroupsMax-SlotGroups {
			return Full
		}
		g.Made, g.Grant = index, index
	}
	g.Prefer = slices.Clone(c.Prefer)
	t.putGroup(c.Group, g)
	return Done
}

// slotGroups returns how many groups of hash slots have a record.
func (t *Table) slotGroups() (n int) {
	for name := range t.groups { // order-free: they are counted
		if isSlotGroup(name) {
			n++
		}
	}
	return n
}

func (t *Table) dropEmpty(name string) Refusal {
	g, ok := t.Group(name)
	switch {
	case !ok:
		return NoGroup
	case isSlotGroup(name):
		return Fixed
	case g.timelines > 0:
		return NotEmpty
	}
	t.dropGroup(name)
	return Done
}

func (t *Table) leaseOn(index uint64, c Command) Refusal {
	g, ok := t.Group(c.Group)
	switch {
	case !ok:
		return NoGroup
	case g.Ending:
		return Superseded
	case g.Lease == 0:
		g.Lease = index
		t.putGroup(c.Group, g)
	}
	return Done
}

func (t *Table) leaseEnd(c Command) Refusal {
	g, refused := t.leased(c)
	switch {
	case refused == Superseded && g.Lease == 0:
		return Done
	case refused == Done:
		g.Ending = true
		t.putGroup(c.Group, g)
	}
	return refused
}

func (t *Table) leaseOff(c Command) Refusal {
	g, refused := t.leased(c)
	switch {
	case refused != Done:
		return refused
	case !g.Ending && !mutant.On(mutant.LeaseOffEndsAny):
		return Superseded
	}
	g.Lease, g.Ending = 0, false
	t.putGroup(c.Group, g)
	return Done
}

// leased returns the group of a command about its lease.
func (t *Table) leased(c Command) (Group, Refusal) {
	g, ok := t.Group(c.Group)
	switch {
	case !ok:
		return g, NoGroup
	case g.Lease == 0 || g.Lease != c.Lease && !mutant.On(mutant.LeaseOffEndsAny):
		return g, Superseded
	}
	return g, Done
}

// Restored returns the table of a cluster that is restored from a backup. Ceiling is above all that the other cluster has
// issued on timelines without a larger ceiling of their own. Nobody owns a group, and the first owner of one whose owner might answer by a lease waits
// as for any earlier owner.
func (t *Table) Restored(ceiling uint64) Table {
	now := Table{Ceiling: max(t.Ceiling, ceiling)}
	if mutant.On(mutant.RestoreTimelinesBelow) {
		now.Ceiling = t.Ceiling
	}
	for _, name := range sortedNames(t.groups) {
		g := t.groups[name]
		if g.Lease != 0 {
			g.Lease = mutant.Pick(mutant.LeaseForgottenOnRestore, 0, uint64(1)) // before any grant; it was an index of the other log
		}
		now.putGroup(name, Group{Made: g.Made, Base: now.Ceiling, Lease: g.Lease, Ending: g.Ending, Prefer: slices.Clone(g.Prefer)})
	}
	for _, name := range sortedNames(t.timelines) {
		have := t.timelines[name]
		have.Since = 0 // an index of the other log
		if have.Ceiling > now.Ceiling && have.Bound == 0 {
			have.Base, have.Ceiling = have.Ceiling, now.ceilingFor(have.Ceiling)
		}
		now.put(name, have)
	}
	for _, name := range sortedNames(t.tombstones) {
		now.bury(name, t.tombstones[name])
	}
	return now
}
