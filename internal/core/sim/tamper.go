package sim

import (
	"slices"

	"github.com/isotone/isotone/internal/core/replica"
)

// tamper sets a node's disk back to an older copy, or wipes it, while all others are well and
// know better: they must refuse it. (Without such witnesses, as in a cluster of one, nobody
// can tell an older copy.) The original disk comes back afterwards.
func (w *world) tamper(k Kind, n *node) bool {
	if w.cfg.size < 3 || !w.isWell() {
		return false
	}
	honest := n.disk.durable.clone()
	bad, ok := w.olderDisk(k, n)
	if !ok {
		return false
	}
	w.crash(n)
	n.disk.durable, n.disk.unsure = bad, nil
	n.tampered = k.String()
	w.quiet = true
	w.start(n)
	w.after(refusalTicks*w.cfg.tick, func() {
		// A node that was removed meanwhile need not be refused, but must be disconnected.
		if w.violation == nil && !n.refused && (w.isMember(n) || w.isConnected(n)) {
			w.fail("I6: node %d runs from a disk with %v, and nobody refused it", n.id, k)
			return
		}
		honest.boot = max(honest.boot, n.disk.durable.boot)
		w.crash(n)
		n.disk.durable, n.disk.unsure = honest, nil
		n.tampered, n.refused = "", false
		w.start(n)
		if !w.healing {
			w.quiet = false
			w.injectFaults()
		}
	})
	return true
}

// copyDirectory starts a second process from a copy of a node's disk, while the first one and
// all others are well. The copy must be refused, and the first process must not.
func (w *world) copyDirectory(n *node) bool {
	if w.cfg.size < 3 || len(w.nodes) >= slots || !w.isWell() {
		return false
	}
	c := w.newNode()
	c.id, c.disk.durable, c.tampered = n.id, n.disk.durable.clone(), Copy.String()
	c.ids, c.level, c.founders = n.ids, n.level, n.founders
	session := n.session
	w.quiet = true
	w.start(c)
	w.after(refusalTicks*w.cfg.tick, func() {
		if w.violation != nil {
			return
		}
		if n.refused && n.tampered == "" && w.isMemberNow(n) || n.session == session && w.isConnected(c) {
			w.fail("I6: a copy of the directory of node %d was started; the node was refused: %v, the copy is connected: %v", n.id, n.refused, w.isConnected(c))
			return
		}
		w.endCopies(n)
		if !w.healing {
			w.quiet = false
			w.injectFaults()
		}
	})
	return true
}

// checkRemoved checks that nobody who was removed is a member again. A node that lags may not
// know of the removal yet.
func (w *world) checkRemoved(n *node, before []replica.Member) {
	applied := n.replica.Brief().Applied
	for _, m := range before {
		if _, remains := w.member(n, m.ID); !remains && w.removedAt[m.ID] == 0 {
			w.removedAt[m.ID] = applied
		}
	}
	for _, m := range n.members {
		if at := w.removedAt[m.ID]; at > 0 && applied > at {
			w.fail("I6: node %d has member %d again, which was removed at log index %d", n.id, m.ID, at)
		}
	}
}

// endCopies ends the processes that run from copies of a node's disk. Without the node they
// might take its place, rightly.
func (w *world) endCopies(n *node) {
	for _, c := range w.nodes {
		if c != n && c.id == n.id {
			w.crash(c)
			c.refused = true
		}
	}
}

// wipeAmidst wipes the disk of a founder for good, also during other faults. A majority keeps
// its disks and must go on without the founder.
func (w *world) wipeAmidst(n *node) bool {
	if !w.mayLose(n) {
		return false
	}
	w.wiped, n.level = true, w.cfg.newest
	w.wipe(n, w.between(0, 20*w.cfg.tick))
	return true
}

// mayLose reports whether the disk of n may be lost for good: it is that of a founder, none was lost
// before, and a quorum remains.
func (w *world) mayLose(n *node) bool {
	if w.wiped || w.cfg.formation.mayFail() || n.founders == nil || n.tampered != "" || w.cfg.size < 3 ||
		w.cluster == 0 || n.disk.durable.cluster != w.cluster {
		return false
	}
	l := w.leader()
	if l == nil || l.replica.Voters() < 3 {
		return false
	}
	for _, o := range w.nodes {
		if o.up() && o.replica.Voters() < 3 {
			return false
		}
	}
	return true
}

// checkKeptOut checks that a wiped member takes no part.
func (w *world) checkKeptOut(n *node) {
	if n.tampered == wipedAmidst && n.up() && !n.replica.Brief().Forming {
		w.fail("I6: node %d takes part again, and its disk was wiped", n.id)
	}
}

// refusalTicks is how soon, in ticks, a tampered disk must be refused: a few dials.
const refusalTicks = 60

// isMember reports whether any other running node counts n among the members.
func (w *world) isMember(n *node) bool {
	return slices.ContainsFunc(w.nodes, func(o *node) bool { return o != n && o.up() && len(o.members) > 0 && o.knows(n) })
}

// isConnected reports whether n is connected to a member. A node that was removed, and is not told yet, has lost the connections by which it would tell a copy.
func (w *world) isConnected(n *node) bool {
	return slices.ContainsFunc(w.nodes, func(o *node) bool { return o != n && w.connected(o, n) && w.isMemberNow(o) })
}

// isWell reports whether all nodes run, are connected, and follow one leader, so that a
// refusal is certain.
func (w *world) isWell() bool {
	if w.weather != calm(w.cfg.tick) || w.now < w.flapping || w.leader() == nil {
		return false
	}
	lead := w.leader().replica.Brief()
	for _, n := range w.nodes {
		if !n.up() || n.paused || n.disk.mode != diskNormal || n.tampered != "" || n.clock.frozen {
			return false
		}
		s := n.replica.Brief()
		if s.Leader != lead.Leader || s.Term != lead.Term || len(n.members) != len(w.nodes) {
			return false
		}
		for _, o := range w.nodes {
			if o != n && (!w.connected(n, o) || w.link(n, o).blocked > 0) {
				return false
			}
			if m := n.members[o.slot]; m.Incarnation == 0 || m.ID != o.id {
				return false
			}
		}
	}
	return true
}

// olderDisk returns a wiped or older disk with which n must be refused, if there is one.
func (w *world) olderDisk(k Kind, n *node) (diskState, bool) {
	if k == Wipe {
		bad := diskState{
			incarnation: w.rng.Uint64() | 1,
		}
		return bad, int(n.id) <= w.cfg.size
	}
	if len(n.disk.copies) == 0 {
		return diskState{}, false
	}
	bad := n.disk.copies[w.rng.IntN(len(n.disk.copies))].state.clone()
	bad.directory.settled() // a write that was found after a crash, and not on the disk yet, is in the copy
	for _, o := range w.nodes {
		if o != n && o.members[n.slot].Durable <= bad.lastIndex() {
			return diskState{}, false
		}
	}
	return bad, true
}
