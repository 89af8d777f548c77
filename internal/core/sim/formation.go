package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// formation is how the cluster of a run is formed (I10).
type formation struct {
	// late bounds the time until a node starts.
	late time.Duration
	// wipes are the times at which disks of initial members are wiped. One member is spared.
	wipes []time.Duration
	// other, if not nil, is another list of members for the nodes in the slots with.
	other []oracle.Member
	with  []int
}

// mayFail reports whether perhaps no cluster is formed, or not with all nodes.
func (b *formation) mayFail() bool { return len(b.wipes) > 0 || b.other != nil }

// drawFormation decides how the cluster of a run is formed. Mostly all goes well.
func (w *world) drawFormation(c *config) {
	if w.chance(0.5) {
		c.formation.late = w.between(0, 100*c.tick)
	}
	if c.size == 1 || !w.chance(0.2) {
		return
	}
	c.formation.late = w.between(0, 40*c.tick)
	if w.chance(0.6) {
		for range 1 + w.rng.IntN(c.size) {
			c.formation.wipes = append(c.formation.wipes, w.between(0, 120*c.tick))
		}
	}
	if w.chance(0.5) {
		w.drawOtherPeers(c)
	}
}

// drawOtherPeers gives some nodes a list that lacks a node or has one more. Of two lists that
// overlap, at most one cluster can be formed.
func (w *world) drawOtherPeers(c *config) {
	list := founders(c.size)
	switch w.rng.IntN(3) {
	case 0: // without PEERS
		i := w.rng.IntN(c.size)
		c.formation.other, c.formation.with = list[i:i+1], []int{i}
		return
	case 1:
		i := w.rng.IntN(c.size)
		c.formation.other = slices.Delete(list, i, i+1)
	case 2:
		c.formation.other = founders(c.size + 1)
	}
	for i := range c.size {
		named := slices.ContainsFunc(c.formation.other, func(m oracle.Member) bool { return m.ID == uint64(i+1) })
		if named && w.chance(0.6) {
			c.formation.with = append(c.formation.with, i)
		}
	}
}

// startMembers starts the initial members.
func (w *world) startMembers() {
	b := &w.cfg.formation
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
		spared = b.with[0] // on both lists: whichever cluster is formed, one disk remains
	}
	for _, at := range b.wipes {
		n := w.nodes[w.rng.IntN(len(w.nodes))]
		if n.slot == spared {
			continue
		}
		w.after(at, func() { w.wipe(n, w.between(0, 20*w.cfg.tick)) })
	}
}

// wipe restarts a machine on an empty disk.
func (w *world) wipe(n *node, down time.Duration) {
	w.trace("node %d: its disk is wiped", n.id)
	if n.up() {
		w.crash(n)
	}
	n.disk.durable, n.disk.unsure = diskState{incarnation: w.rng.Uint64() | 1}, nil
	n.disk.copies = nil
	n.tampered = wipedAmidst
	w.restart(n, down)
}

// wipedAmidst marks a disk that does not come back.
const wipedAmidst = "wipe amidst"

// fatal handles a node that stops with Effects.Fatal.
func (w *world) fatal(n *node, err error) {
	var refusal *replica.Refusal
	if !errors.As(err, &refusal) || !w.cfg.formation.mayFail() {
		w.fail("node %d: %v", n.id, err)
		return
	}
	w.trace("node %d ends: %v", n.id, err)
	w.crash(n)
	n.refused = true
}

// checkOneCluster checks that no second cluster serves.
func (w *world) checkOneCluster(n *node, cluster uint64) {
	if w.cluster == 0 {
		w.cluster = cluster
	}
	if w.cluster != cluster {
		w.fail("I10: node %d serves for cluster %016x, and there was cluster %016x", n.id, cluster, w.cluster)
	}
}
