package timeline

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// placed is a table under the grants of a leader. Node i is member i of session i.
type placed struct {
	Table
	t     *testing.T
	index uint64
	gone  map[uint64]bool
	nodes []Node
}

func newPlaced(t *testing.T, nodes int) *placed {
	p := &placed{t: t, gone: map[uint64]bool{}}
	for id := range uint64(nodes) {
		p.nodes = append(p.nodes, Node{Number: id + 1, Member: id + 1, Session: id + 1, Ready: true, Settled: true})
	}
	return p
}

func (p *placed) apply(c Command) {
	p.t.Helper()
	p.index++
	for _, o := range p.Apply(p.index, c, func(member, session uint64) bool { return member == session && !p.gone[member] }) {
		if o != Done {
			p.t.Fatalf("a command of kind %d ends with %d", c.Kind, o)
		}
	}
}

// create creates a timeline in a group of its own, with preferences.
func (p *placed) create(name string, prefer ...uint64) {
	p.t.Helper()
	p.apply(Command{Kind: KindMake, Group: name, Prefer: prefer})
	p.apply(Command{Kind: KindCreate, Creations: []Creation{{Name: name, Group: name}}})
}

// place applies what is to be granted, and returns how many groups that are.
func (p *placed) place(move bool) int {
	p.t.Helper()
	var here []Node
	for _, n := range p.nodes {
		if !p.gone[n.Member] {
			here = append(here, n)
		}
	}
	grants := p.Place(here, func(g Group) bool { return g.Owner != 0 && !p.gone[g.Owner] }, move)
	if len(grants) > 0 {
		p.apply(Command{Kind: KindGrant, Grants: grants})
	}
	return len(grants)
}

// owners returns how many groups each node owns.
func (p *placed) owners() map[uint64]int {
	count := map[uint64]int{}
	for _, name := range p.Groups() {
		g, _ := p.Group(name)
		count[g.Owner]++
	}
	return count
}

func (p *placed) owner(name string) uint64 {
	g, _ := p.Group(name)
	return g.Owner
}

func TestPlace_SpreadsGroupsWithoutOwners(t *testing.T) {
	p := newPlaced(t, 3)
	for i := range 9 {
		p.create(fmt.Sprint("g", i))
	}
	p.place(false)
	if got, want := p.owners(), (map[uint64]int{1: 3, 2: 3, 3: 3}); !maps.Equal(got, want) {
		t.Errorf("the nodes own %v groups, want %v", got, want)
	}
	p.gone[2] = true
	if n := p.place(false); n != 3 {
		t.Errorf("%d groups change hands, want the 3 of the node that is gone", n)
	}
	if got := p.owners(); got[2] != 0 || got[1] < 4 || got[3] < 4 {
		t.Errorf("the nodes own %v groups", got)
	}
}

func TestPlace_LevelsOnlyWithMoveAndOnlySettledNodes(t *testing.T) {
	p := newPlaced(t, 3)
	p.gone[2], p.gone[3] = true, true
	for i := range 10 {
		p.create(fmt.Sprint("g", i))
	}
	p.place(false)
	p.gone[2], p.gone[3] = false, false
	p.nodes[2].Settled = false
	if n := p.place(false); n != 0 {
		t.Errorf("%d groups change hands without move", n)
	}
	p.place(true)
	if got, want := p.owners(), (map[uint64]int{1: 5, 2: 5}); !maps.Equal(got, want) {
		t.Errorf("the nodes own %v groups, want %v", got, want)
	}
	p.nodes[2].Settled = true
	p.nodes[1].Ready = false
	p.place(true)
	if got, want := p.owners(), (map[uint64]int{1: 3, 2: 5, 3: 2}); !maps.Equal(got, want) {
		t.Errorf("with a node that is not ready, the nodes own %v groups, want %v", got, want)
	}
}

// TestPlace_LeavesSmallDifferences: each move costs its timelines a few milliseconds.
func TestPlace_LeavesSmallDifferences(t *testing.T) {
	for _, c := range []struct{ first, second, moved int }{{2, 0, 0}, {3, 0, 1}, {5, 3, 0}, {15, 12, 0}, {15, 11, 2}, {20, 16, 0}} {
		p := newPlaced(t, 2)
		for i := range c.first + c.second {
			p.create(fmt.Sprint("g", i))
			owner := uint64(1)
			if i >= c.first {
				owner = 2
			}
			g, _ := p.Group(fmt.Sprint("g", i))
			p.apply(Command{Kind: KindGrant, Grants: []Grant{{Group: fmt.Sprint("g", i), Member: owner, Session: owner, Replaces: g.Grant}}})
		}
		if n := p.place(true); n != c.moved {
			t.Errorf("of %d and %d groups %d are moved, want %d", c.first, c.second, n, c.moved)
		}
	}
}

func TestPlace_HeedsPreferences(t *testing.T) {
	p := newPlaced(t, 3)
	p.create("eu", 3, 2)
	p.create("us", 2)
	p.place(false)
	if p.owner("eu") != 3 || p.owner("us") != 2 {
		t.Errorf("owners %d and %d, want 3 and 2", p.owner("eu"), p.owner("us"))
	}
	p.gone[3] = true
	if p.place(false); p.owner("eu") != 2 {
		t.Errorf("owner %d, want the second choice, 2", p.owner("eu"))
	}
	p.gone[2] = true
	if p.place(false); p.owner("eu") != 1 || p.owner("us") != 1 {
		t.Errorf("owners %d and %d, want the node that is left", p.owner("eu"), p.owner("us"))
	}
	p.gone[2], p.gone[3] = false, false
	p.nodes[2].Settled = false
	if p.place(true); p.owner("eu") != 2 || p.owner("us") != 2 {
		t.Errorf("owners %d and %d, want 2, as 3 is not settled", p.owner("eu"), p.owner("us"))
	}
	p.nodes[2].Settled = true
	if p.place(true); p.owner("eu") != 3 {
		t.Errorf("owner %d, want the first choice, 3", p.owner("eu"))
	}
	if p.OwnedBy(3, 3) != 1 || p.OwnedBy(3, 4) != 0 {
		t.Errorf("node 3 owns %d groups, and another process of it %d", p.OwnedBy(3, 3), p.OwnedBy(3, 4))
	}
	p.nodes[2].Ready = false // it lags
	if p.place(true) != 0 {
		t.Error("a group leaves the owner that it prefers")
	}
}

// TestPlace_Settles: whatever happened, after one placement each group with timelines has an owner that is there, and nothing is left to be done.
func TestPlace_Settles(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 0))
		p := newPlaced(t, 1+rng.IntN(5))
		for i := range rng.IntN(40) {
			var prefer []uint64
			if rng.IntN(3) == 0 {
				prefer = []uint64{1 + rng.Uint64N(6), 1 + rng.Uint64N(6)}
			}
			p.create(fmt.Sprint("g", i), prefer...)
			for at := range p.nodes[1:] {
				n := &p.nodes[1+at]
				n.Ready, n.Settled, p.gone[n.Member] = rng.IntN(4) > 0, rng.IntN(4) > 0, rng.IntN(4) == 0
			}
			move := rng.IntN(2) == 0
			before := p.owners()
			p.place(move)
			for _, name := range p.Groups() {
				if owner := p.owner(name); owner == 0 || p.gone[owner] {
					t.Fatalf("seed %d: group %s has owner %d", seed, name, owner)
				}
			}
			if n := p.place(move); n != 0 {
				t.Fatalf("seed %d: after a placement %d groups are to be moved; the nodes owned %v, and own %v", seed, n, before, p.owners())
			}
		}
	}
}

// TestPlace_GrantsEachGroupOnce, in the order of the names, to nodes that are ready.
func TestPlace_GrantsEachGroupOnce(t *testing.T) {
	p := newPlaced(t, 3)
	p.gone[2], p.gone[3] = true, true
	for i := range 12 {
		p.create(fmt.Sprint("g", i%10, i), uint64(i%4))
	}
	p.place(false)
	p.gone[2], p.gone[3], p.gone[1] = false, false, true
	grants := p.Place(p.nodes[1:], func(g Group) bool { return g.Owner != 1 }, true)
	var names []string
	for _, g := range grants {
		names = append(names, g.Group)
		if have, _ := p.Group(g.Group); g.Member == 1 || g.Replaces != have.Grant {
			t.Errorf("%+v", g)
		}
	}
	if len(names) != 12 || !slices.IsSorted(names) || len(slices.Compact(names)) != 12 {
		t.Errorf("grants of %v", names)
	}
}
