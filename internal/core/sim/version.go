package sim

import (
	"slices"

	"github.com/isotone/isotone/internal/core/oracle"
)

// Runs of clusters whose nodes change their version back and forth until an operator raises the feature
// level (I12). The newer one is a version to come, which knows one level more.

// drawVersions decides whether there are two versions in a run.
func (w *world) drawVersions(c *config) {
	c.newest = oracle.LevelNewest
	if !c.formation.mayFail() && w.chance(0.25) {
		c.old, c.newest = oracle.LevelNewest, oracle.LevelNewest+1
	}
}

// startOld gives the initial members their versions. One at least has the old one, so the cluster is
// formed at its level.
func (w *world) startOld() {
	for _, n := range w.nodes {
		if w.chance(0.5) {
			n.level = w.cfg.old
		}
	}
	w.nodes[w.rng.IntN(len(w.nodes))].level = w.cfg.old
}

// changeVersion restarts a node with the other version, until the level is raised. A cluster
// is formed by nodes that keep theirs.
func (w *world) changeVersion(n *node) bool {
	if w.cfg.old == 0 || w.cluster == 0 || w.raising || n.paused || n.tampered != "" {
		return false
	}
	w.crash(n)
	if n.level == w.cfg.old {
		n.level = w.cfg.newest
	} else {
		n.level = w.cfg.old
	}
	w.restart(n, w.between(0, 5*w.cfg.tick))
	return true
}

// raiseLevel requests to raise the level once all nodes run the newer version, or while one
// that is connected does not, which must be refused.
func (w *world) raiseLevel(l *node) bool {
	older := slices.ContainsFunc(w.nodes, func(n *node) bool { return n.level < w.cfg.newest })
	known := slices.ContainsFunc(w.nodes, func(n *node) bool {
		m, ok := w.member(l, n.id)
		return n.level < w.cfg.newest && n.up() && ok && m.Session == n.replica.Hello().Session
	})
	if w.cfg.old == 0 || older && !known {
		return false
	}
	w.raising = w.raising || !older
	l.in.raise = true
	w.wake(l)
	return true
}
