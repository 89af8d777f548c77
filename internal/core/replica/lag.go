package replica

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// Lag is the number of log entries that a member lacks.
type Lag struct {
	ID      uint64
	Entries uint64
}

// Lags returns how far the other members are behind this leader's log, by ID; nil on a node
// that does not lead.
func (r *Replica) Lags() []Lag {
	if r.role != raft.StateLeader {
		return nil
	}
	last, err := r.log.LastIndex()
	if err != nil {
		return nil // the log in memory has no such error
	}
	lags := []Lag{}
	r.raw.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if id != r.cfg.Self.NodeID {
			lags = append(lags, Lag{ID: id, Entries: max(last, pr.Match) - pr.Match})
		}
	})
	return lags
}
