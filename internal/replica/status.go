package replica

import (
	"go.etcd.io/raft/v3"

	"github.com/isotone/isotone/internal/oracle"
)

// Status is what a replica knows now.
type Status struct {
	ClusterID uint64
	Term      uint64
	Role      raft.StateType
	Leader    uint64 // 0 if none is known
	// Serving is set while this node leads and its allocator is open.
	Serving bool
	// Time is the current epoch, 0 unless Serving; Ceiling bounds it. Both unix
	// nanoseconds.
	Time, Ceiling uint64
	// Leased is set while it holds a lease.
	Leased bool
	// Waiting is how many requests are not answered yet.
	Waiting  int
	Applied  uint64
	Counters Counters
}

// Status returns what the replica knows now.
func (r *Replica) Status() Status {
	return Status{
		ClusterID: r.state.ClusterID,
		Term:      r.term,
		Role:      r.role,
		Leader:    r.lead,
		Serving:   r.leading.alloc.IsOpen(),
		Time:      r.leading.alloc.Time(),
		Ceiling:   r.state.Ceiling,
		Leased:    r.leading.lease.held && r.mono < r.leading.lease.until,
		Waiting:   r.queue.size,
		Applied:   r.applied,
		Counters:  r.counters,
	}
}

// Member is a member record with its part in the quorum.
type Member struct {
	oracle.Member
	Learner bool
}

// Members returns a copy of the member records, sorted by ID.
func (r *Replica) Members() []Member {
	list := make([]Member, 0, len(r.state.Members))
	for _, m := range r.state.Members {
		list = append(list, Member{Member: m, Learner: r.isLearner(m.ID)})
	}
	return list
}

// Voters returns how many voters the cluster has.
func (r *Replica) Voters() int { return len(r.conf.GetVoters()) }
