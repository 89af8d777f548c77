package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// birth is how the cluster of a run comes about (I10).
type birth struct {
	// late is how long, at most, after the first node the others start.
	late time.Duration
	// wipes are when disks of initial members are wiped, whatever else goes on; all but
	// that of one member may be.
	wipes []time.Duration
	// other, if not nil, is another list that some nodes are started with.
	other []oracle.Member
	with  []int // their places
}

// mayFail reports whether it may be that no cluster comes about, or not with all nodes.
func (b *birth) mayFail() bool { return len(b.wipes) > 0 || b.other != nil }

// drawBirth decides how the cluster of a run comes about. Mostly all goes well.
func (w *world) drawBirth(c *config) {
	if w.chance(0.5) {
		c.birth.late = w.between(0, 100*c.tick)
	}
	if c.size == 1 || !w.chance(0.2) {
		return
	}
	c.birth.late = w.between(0, 40*c.tick)
	if w.chance(0.6) {
		for range 1 + w.rng.IntN(c.size) {
			c.birth.wipes = append(c.birth.wipes, w.between(0, 120*c.tick))
		}
	}
	if w.chance(0.5) {
		w.drawOtherPeers(c)
	}
}

// drawOtherPeers has some nodes started with a list that lacks a node, or has one more. No
// more than one cluster can come of two lists that overlap.
func (w *world) drawOtherPeers(c *config) {
	list := founders(c.size)
	switch w.rng.IntN(3) {
	case 0: // without PEERS
		i := w.rng.IntN(c.size)
		c.birth.other, c.birth.with = list[i:i+1], []int{i}
		return
	case 1:
		i := w.rng.IntN(c.size)
		c.birth.other = slices.Delete(list, i, i+1)
	case 2:
		c.birth.other = founders(c.size + 1)
	}
	for i := range c.size {
		named := slices.ContainsFunc(c.birth.other, func(m oracle.Member) bool { return m.ID == uint64(i+1) })
		if named && w.chance(0.6) {
			c.birth.with = append(c.birth.with, i)
		}
	}
}

// giveBirth starts the initial members.
func (w *world) giveBirth() {
	b := &w.cfg.birth
	for _, i := range b.with {
		w.nodes[i].founders = b.other
	}
	for _, n := range w.nodes {
		if b.late == 0 {
			w.start(n)
		} else {
			w.restart(n, w.between(0, b.late))
		}
	}
	spared := w.rng.IntN(len(w.nodes))
	if len(b.with) > 0 {
		spared = b.with[0] // of whichever cluster comes about, one disk remains
	}
	for _, at := range b.wipes {
		n := w.nodes[w.rng.IntN(len(w.nodes))]
		if n.slot == spared {
			continue
		}
		w.after(at, func() { w.wipe(n, w.between(0, 20*w.cfg.tick)) })
	}
}

// wipe has a machine lose its disk, and start again from an empty one.
func (w *world) wipe(n *node, down time.Duration) {
	w.trace("node %d: its disk is wiped", n.id)
	if n.up() {
		w.crash(n)
	}
	n.disk.durable = diskState{incarnation: w.rng.Uint64() | 1}
	n.disk.copies = nil
	n.tampered = wipedAmidst
	w.restart(n, down)
}

// wipedAmidst is what was done to a disk that does not come back.
const wipedAmidst = "wipe amidst"

// fatal is what becomes of a node that ends itself.
func (w *world) fatal(n *node, err error) {
	var refusal *replica.Refusal
	if !errors.As(err, &refusal) || !w.cfg.birth.mayFail() {
		w.fail("node %d: %v", n.id, err)
		return
	}
	w.trace("node %d ends: %v", n.id, err)
	w.crash(n)
	n.refused = true
}

// bornOnce checks that no second cluster serves.
func (w *world) bornOnce(n *node, cluster uint64) {
	if w.born == 0 {
		w.born = cluster
	}
	if w.born != cluster {
		w.fail("I10: node %d serves for cluster %016x, and there was cluster %016x", n.id, cluster, w.born)
	}
}
