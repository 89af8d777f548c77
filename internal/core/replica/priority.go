package replica

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// Priorities of members as leaders. A leader that has led for a while transfers its
// leadership to the connected voter with the highest priority, if that is above its own and
// the voter has all of the log but its end. Priorities decide no election: any voter can lead
// when others are away.

const (
	// priorityTicks is how long a node leads at least before it gives way: a voter that lost the
	// leadership because of its disk or its network does not get it back at once.
	priorityTicks = 50 * electionTicks
	// priorityLagMax is how many entries a voter may lack.
	priorityLagMax = 8
)

// giveWay transfers the leadership to a voter with a higher priority.
func (r *Replica) giveWay() {
	l := &r.leading
	if l.tenure++; l.tenure < priorityTicks || l.tenure%electionTicks != 0 || !l.alloc.IsOpen() || l.changing || len(r.conf.GetVotersOutgoing()) > 0 {
		return
	}
	best, priority := uint64(0), r.cfg.Self.Priority
	last, err := r.log.LastIndex()
	if err != nil {
		return // the log in memory has no such error
	}
	r.raw.WithProgress(func(id uint64, kind raft.ProgressType, pr tracker.Progress) {
		p := r.peers[id]
		if p == nil || kind == raft.ProgressTypeLearner || !slices.Contains(r.conf.GetVoters(), id) || !r.isActive(id) || p.isLeaving() || pr.Match+priorityLagMax < last {
			return
		}
		if p.hello.Priority > priority {
			best, priority = id, p.hello.Priority
		}
	})
	if best != 0 {
		r.transfer(best)
	}
}
