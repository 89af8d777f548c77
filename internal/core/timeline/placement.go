package timeline

import "slices"

// Node is a process of a member.
type Node struct {
	// Number is that of its node, as in Group.Prefer.
	Number          uint64
	Member, Session uint64
	// Ready: it can be granted groups. Settled: it has been there for so long that groups are moved to it from owners that are there.
	Ready, Settled bool
}

// IsUneven reports whether groups are moved if one node has the most of them and another the fewest: if the numbers differ by at least three, and by
// more than a fifth of the most.
func IsUneven(most, fewest int) bool { return most-fewest >= 3 && (most-fewest)*5 > most }

// Place returns the grants by which groups with timelines come to where they belong; at most one for each group:
//
//  1. A group whose owner is gone goes to the first node that it prefers, or else to the one with the fewest groups.
//  2. With move, a group goes to a settled node that it prefers to its owner.
//  3. With move, groups without preferences go from the settled node with the most groups to the one with the fewest, until these differ by at
//     most one, if they are uneven; see [IsUneven].
//
// Only nodes that are ready get groups. The first node has to be; it comes first where they are equal. hasOwner reports whether the owner of a group is
// there. Once the grants are applied there are none left: groups do not move back and forth.
func (t *Table) Place(nodes []Node, hasOwner func(Group) bool, move bool) []Grant {
	p := placement{table: t, nodes: nodes, owned: make([][]string, len(nodes)), to: map[string]int{}}
	var orphans, owned []string
	for name, g := range t.groups { // order-free: they are sorted
		switch {
		case g.timelines == 0:
		case hasOwner(g):
			owned = append(owned, name)
		default:
			orphans = append(orphans, name)
		}
	}
	slices.Sort(owned)
	for _, name := range owned {
		if at := p.indexOf(t.groups[name]); at >= 0 {
			p.owned[at] = append(p.owned[at], name)
		}
	}
	slices.Sort(orphans)
	for _, name := range orphans {
		p.give(name, -1, p.home(t.groups[name]))
	}
	if move {
		for _, name := range owned {
			p.prefer(name)
		}
		p.level()
	}
	return p.grants(append(orphans, owned...))
}

// placement is what [Table.Place] decides.
type placement struct {
	table *Table
	nodes []Node
	owned [][]string // the groups of each node, with those that it is given
	to    map[string]int
}

// indexOf returns the place of the owner of a group among the nodes, or -1.
func (p *placement) indexOf(g Group) int {
	return slices.IndexFunc(p.nodes, func(n Node) bool { return n.Member == g.Owner && n.Session == g.Session })
}

// give gives a group of the node at from, -1 for none, to the node at a place.
func (p *placement) give(name string, from, at int) {
	if from >= 0 {
		p.owned[from] = slices.DeleteFunc(p.owned[from], func(have string) bool { return have == name })
	}
	p.owned[at] = append(p.owned[at], name)
	p.to[name] = at
}

// home returns where a group goes whose owner is gone.
func (p *placement) home(g Group) int {
	for _, number := range g.Prefer {
		if at := slices.IndexFunc(p.nodes, func(n Node) bool { return n.Number == number && n.Ready }); at >= 0 {
			return at
		}
	}
	least := 0
	for at, n := range p.nodes {
		if n.Ready && len(p.owned[at]) < len(p.owned[least]) {
			least = at
		}
	}
	return least
}

// prefer gives a group to the first settled node that it prefers to its owner.
func (p *placement) prefer(name string) {
	g := p.table.groups[name]
	owner := p.indexOf(g)
	for _, number := range g.Prefer {
		if owner >= 0 && p.nodes[owner].Number == number {
			return
		}
		if at := slices.IndexFunc(p.nodes, func(n Node) bool { return n.Number == number && n.Ready && n.Settled }); at >= 0 {
			p.give(name, owner, at)
			return
		}
	}
}

// level moves groups without preferences until the settled nodes have about the same number.
func (p *placement) level() {
	for moving := false; ; moving = true {
		most, least := -1, -1
		for at, n := range p.nodes {
			if !n.Ready || !n.Settled {
				continue
			}
			if most < 0 || len(p.owned[at]) > len(p.owned[most]) {
				most = at
			}
			if least < 0 || len(p.owned[at]) < len(p.owned[least]) {
				least = at
			}
		}
		if most < 0 {
			return
		}
		have, fewest := p.owned[most], len(p.owned[least])
		if len(have)-fewest < 2 || !moving && !IsUneven(len(have), fewest) {
			return
		}
		free := slices.IndexFunc(have, func(name string) bool { return len(p.table.groups[name].Prefer) == 0 })
		if free < 0 {
			return
		}
		p.give(have[free], most, least)
	}
}

// grants returns the grants to what the groups have been given, in the order of the names.
func (p *placement) grants(names []string) (list []Grant) {
	for _, name := range names {
		at, ok := p.to[name]
		if g := p.table.groups[name]; ok && !(p.nodes[at].Member == g.Owner && p.nodes[at].Session == g.Session) {
			list = append(list, Grant{Group: name, Member: p.nodes[at].Member, Session: p.nodes[at].Session, Replaces: g.Grant})
		}
	}
	return list
}
