package spec

import "slices"

// prepare checks the first snapshot of a founder, which has the members: all of them have said hello, with the directories that are on record, and with floors that are not above its ceiling.
func (s *Spec) prepare(n *node, e Event) {
	s.require("formation", n.applied == 0, "it prepares cluster %x, and was prepared", e.Cluster)
	for _, m := range e.Members {
		said := n.hellos[m.ID]
		s.require("formation", m.Incarnation != 0 && (m.ID == n.id || said.Incarnation == m.Incarnation),
			"it prepares cluster %x with the directory %x of node %d, which has said that it has %x", e.Cluster, m.Incarnation, m.ID, said.Incarnation)
		s.require("formation", said.Floor <= e.Ceiling, "it prepares cluster %x with the ceiling %d, and the floor of node %d is %d", e.Cluster, e.Ceiling, m.ID, said.Floor)
	}
}

// form checks that a founder takes part in a cluster once all others are prepared for it, or one says that it is formed.
func (s *Spec) form(n *node) {
	prepared := 0
	for id, said := range n.hellos {
		if said.Cluster == n.cluster {
			if said.Formed {
				return
			}
			if slices.Contains(n.config.Voters, id) {
				prepared++
			}
		}
	}
	s.require("formation", prepared+1 >= len(n.config.Voters), "it takes part in cluster %x, for which %d of the %d others are prepared", n.cluster, prepared, len(n.config.Voters)-1)
}

// knowsLevel reports whether all voters have said that they know a feature level.
func (n *node) knowsLevel(level uint64) bool {
	for _, id := range n.config.Voters {
		if id != n.id && n.hellos[id].Level < level {
			return false
		}
	}
	return true
}
