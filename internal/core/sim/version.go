package sim

import (
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/oracle"
)

// Runs of clusters that an older version has formed (I12): nodes change their version back and
// forth until an operator raises the feature level.

// drawVersions decides whether an older version has formed the cluster of a run, and at which
// feature level.
func (w *world) drawVersions(c *config) {
	if !c.formation.mayFail() && w.chance(0.25) {
		c.old = 1 + w.rng.Uint64N(oracle.LevelNewest-1)
	}
}

// drawLevel draws the level of a node's version: the old or the newest.
func (w *world) drawLevel() uint64 {
	if w.chance(0.5) {
		return w.cfg.old
	}
	return oracle.LevelNewest
}

// startOld gives the initial members their versions. The first version wrote the initial state
// at its first start; with any other the cluster is formed.
func (w *world) startOld() {
	for _, n := range w.nodes {
		n.level = w.drawLevel()
	}
	if w.cfg.old > oracle.LevelFirst {
		w.nodes[w.rng.IntN(len(w.nodes))].level = w.cfg.old
		return
	}
	state, conf := oracle.State{}, &raftpb.ConfState{}
	for _, m := range founders(w.cfg.size) {
		state.AddMember(oracle.Member{ID: m.ID, PeerAddr: w.addrOf(m.ID)})
		conf.Voters = append(conf.Voters, m.ID)
	}
	for _, n := range w.nodes {
		n.disk.durable.snapshot = &raftpb.Snapshot{
			Data:     state.Append(nil),
			Metadata: &raftpb.SnapshotMetadata{ConfState: conf, Index: new(uint64(1)), Term: new(uint64(1))},
		}
		n.disk.durable.hard = &raftpb.HardState{Term: new(uint64(1)), Commit: new(uint64(1))}
	}
}

// changeVersion restarts a node with the other version, until the level is raised. A cluster
// is formed by nodes that keep theirs.
func (w *world) changeVersion(n *node) bool {
	if w.cfg.old == 0 || w.cluster == 0 || w.raising || n.paused || n.tampered != "" {
		return false
	}
	w.crash(n)
	if n.level == w.cfg.old {
		n.level = oracle.LevelNewest
	} else {
		n.level = w.cfg.old
	}
	w.restart(n, w.between(0, 5*w.cfg.tick))
	return true
}

// raiseLevel requests to raise the level once all nodes run the newer version, or while one
// that is connected does not, which must be refused.
func (w *world) raiseLevel(l *node) bool {
	older := slices.ContainsFunc(w.nodes, func(n *node) bool { return n.level < oracle.LevelNewest })
	known := slices.ContainsFunc(w.nodes, func(n *node) bool {
		m, ok := w.member(l, n.id)
		return n.level < oracle.LevelNewest && n.up() && ok && m.Session == n.replica.Hello().Session
	})
	if w.cfg.old == 0 || older && !known {
		return false
	}
	w.raising = w.raising || !older
	l.in.raise = true
	w.wake(l)
	return true
}
