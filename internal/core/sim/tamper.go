package sim

import "github.com/isotone/isotone/internal/core/oracle"

// tamper sets a node's disk back to an older copy, or wipes it, at a moment when all
// others are well and know better: then they must refuse it. (An older copy whose
// witnesses are all gone cannot be told from an honest disk by anybody, and neither
// can that of a cluster of one.) The disk in order comes back afterwards.
func (w *world) tamper(k Kind, n *node) bool {
	if w.cfg.size < 3 || !w.isWell() {
		return false
	}
	honest := n.disk.durable
	bad, ok := w.worse(k, n)
	if !ok {
		return false
	}
	w.crash(n)
	n.disk.durable = bad
	n.tampered = k.String()
	w.quiet = true
	w.start(n)
	w.after(refusalTicks*w.cfg.tick, func() {
		// One that was taken out of the cluster meanwhile is kept out for that reason, but
		// kept out it must be.
		if w.violation == nil && !n.refused && (w.isMember(n) || w.isConnected(n)) {
			w.fail("I6: node %d runs from a disk with %v, and nobody refused it", n.id, k)
			return
		}
		honest.boot = max(honest.boot, n.disk.durable.boot)
		w.crash(n)
		n.disk.durable, n.tampered, n.refused = honest, "", false
		w.start(n)
		if !w.healing {
			w.quiet = false
			w.injectFaults()
		}
	})
	return true
}

// wipeAmidst has a founder lose its disk for good, whatever else goes on. A majority keeps
// theirs, and must do without it from then on.
func (w *world) wipeAmidst(n *node) bool {
	if w.wiped || w.cfg.birth.mayFail() || n.founders == nil || n.tampered != "" || w.cfg.size < 3 ||
		w.born == 0 || n.disk.durable.cluster != w.born {
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
	if w.cfg.old {
		// The first version let a member be wiped before it was on record.
		if m, ok := w.member(l, n.id); !ok || m.Incarnation == 0 {
			return false
		}
	}
	w.wiped, n.level = true, oracle.LevelNewest
	w.wipe(n, w.between(0, 20*w.cfg.tick))
	return true
}

// keptOut checks that a member that lost its disk takes no part.
func (w *world) keptOut(n *node) {
	if n.tampered == wipedAmidst && n.up() && n.replica.Status().Forming == "" {
		w.fail("I6: node %d takes part again, and its disk was wiped", n.id)
	}
}

// refusalTicks is how soon a tampered disk must have been refused: a few attempts to
// connect.
const refusalTicks = 60

// isMember reports whether any other running node counts n among the members.
func (w *world) isMember(n *node) bool {
	for _, o := range w.nodes {
		if o != n && o.up() && len(o.members) > 0 && o.knows(n) {
			return true
		}
	}
	return false
}

// isConnected reports whether anyone talks to n.
func (w *world) isConnected(n *node) bool {
	for _, o := range w.nodes {
		if o != n && w.connected(o, n) {
			return true
		}
	}
	return false
}

// isWell reports whether all nodes run, can reach each other and know the leader's
// latest, so that a refusal is certain.
func (w *world) isWell() bool {
	if w.weather != calm(w.cfg.tick) || w.leader() == nil {
		return false
	}
	lead := w.leader().replica.Status()
	for _, n := range w.nodes {
		if !n.up() || n.paused || n.disk.mode != diskNormal || n.tampered != "" || n.clock.frozen {
			return false
		}
		s := n.replica.Status()
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

// worse returns a disk state that n must not come back with.
func (w *world) worse(k Kind, n *node) (diskState, bool) {
	if k == Wipe {
		bad := diskState{
			incarnation: w.rng.Uint64() | 1,
		}
		return bad, int(n.id) <= w.cfg.size
	}
	if len(n.disk.copies) == 0 {
		return diskState{}, false
	}
	bad := n.disk.copies[w.rng.IntN(len(n.disk.copies))].state
	for _, o := range w.nodes {
		if o != n && o.members[n.slot].Durable <= bad.lastIndex() {
			return diskState{}, false
		}
	}
	return bad, true
}
