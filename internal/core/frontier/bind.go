package frontier

import (
	"slices"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
)

// Bind replaces what a session may still write, up to the largest stamp that anybody may have: what it does not name it has given up and never writes (R12). Its errors are
// those of [Table.Check]; then it changes nothing.
func (t *Table) Bind(s Session, reports []Report) error {
	if err := t.Check(s, reports); err != nil {
		return err
	}
	for _, e := range slices.Clone(t.sessions[s]) {
		if !slices.ContainsFunc(reports, func(r Report) bool { return r.Group == e.group.name }) {
			t.leave(e)
		}
	}
	for _, r := range reports {
		g := t.group(r.Group)
		if mutant.On(mutant.HoleClearedByBind) {
			g.hole = empty
		}
		e := t.entry(s, r.Group)
		if e == nil {
			e = t.enter(s, g)
		}
		e.connected = true
		low := mutant.Pick(mutant.BindAsTold, r.Low, greatest(r.Low, t.bound(g)))
		t.set(e, span{low, least(r.High, t.last)})
	}
	return nil
}

// enter adds an entry. Its stamps are to be set.
func (t *Table) enter(s Session, g *group) *entry {
	e := &entry{session: s, group: g, span: empty, at: -1, place: len(g.members), connected: true}
	g.members, t.sessions[s] = append(g.members, e), append(t.sessions[s], e)
	t.entries++
	return e
}

// Join has a session write in groups, beside those with which it has bound. Of one that it has already, nothing changes. Its errors are those of [Table.Check]; then it changes nothing.
func (t *Table) Join(s Session, groups []string) *isotone.Error {
	var all []Report
	for _, e := range t.sessions[s] {
		all = append(all, Report{Group: e.group.name})
	}
	has := len(all)
	for _, name := range groups {
		if !t.Has(s, name) {
			all = append(all, Report{Group: name})
		}
	}
	if len(all) == has {
		return nil
	}
	if err := t.Check(s, all); err != nil {
		return err
	}
	for _, r := range all[has:] {
		t.enter(s, t.group(r.Group))
	}
	return nil
}

// Check returns why a session cannot bind: a bound is exceeded, or a name is invalid.
func (t *Table) Check(s Session, reports []Report) *isotone.Error {
	if len(reports) > SessionGroupsMax {
		return isotone.Errorf(isotone.CodeInvalidArgument, "a session has at most %d groups, not %d", SessionGroupsMax, len(reports))
	}
	groups := len(t.groups)
	for i, r := range reports {
		if r.Group == "" || len(r.Group) > NameMax {
			return isotone.Errorf(isotone.CodeInvalidArgument, "the name of a group has 1 to %d bytes, not %d", NameMax, len(r.Group))
		}
		if slices.ContainsFunc(reports[:i], func(o Report) bool { return o.Group == r.Group }) {
			return isotone.Errorf(isotone.CodeInvalidArgument, "the group %q is named twice", r.Group)
		}
		if t.groups[r.Group] == nil {
			groups++
		}
	}
	if groups > GroupsMax || t.entries-len(t.sessions[s])+len(reports) > EntriesMax {
		return isotone.ErrOverloaded
	}
	return nil
}
