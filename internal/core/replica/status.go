package replica

import (
	"slices"

	"go.etcd.io/raft/v3"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/snowflake"
)

// Status is what a replica knows now.
type Status struct {
	// ClusterID is 0 until the node knows that there is a cluster of that ID.
	ClusterID uint64
	// Level is the feature level of the cluster.
	Level uint64
	// Forming says for people what a founder waits for; "" once the cluster is formed.
	Forming string
	Term    uint64
	Role    raft.StateType
	Leader  uint64 // 0 if none is known
	// Serving is set while this node leads and its allocator is open.
	Serving bool
	// Over is set while it leads and there is no time left to issue.
	Over bool
	// Time is the current epoch, 0 unless Serving; Ceiling bounds it. Both unix
	// nanoseconds.
	Time, Ceiling uint64
	// Leased is set while it holds a lease.
	Leased bool
	// Waiting is how many requests are not answered yet.
	Waiting  int
	Applied  uint64
	Counters Counters
	// Workers are the worker leases of this process, by worker. A lease is the same as
	// before if Worker and Start are; then only End may have grown. One that is not
	// listed any more must not be used any more. Not to be changed.
	Workers []oracle.WorkerLease
	// WorkersRefused is why the latest request for them was refused, nil if it was not.
	WorkersRefused *oracle.LeaseRefusal
	// Generators are what makes ids, by slot; nil in a slot without a lease. Not to be
	// changed.
	Generators []*snowflake.Generator
	// IDsRefused is why no ids are made although the node should, nil if they are.
	IDsRefused *isotone.Error
	// IDsStopped is set once Input.StopIDs was.
	IDsStopped bool
	// Clock is what the node knows of the time.
	Clock Clock
	// WorkersReturning is how many leases were given back without the cluster having
	// taken notice yet.
	WorkersReturning int
}

// Status returns what the replica knows now.
func (r *Replica) Status() Status {
	cluster := r.state.ClusterID
	if r.forming != nil {
		cluster = 0 // it may come to nothing
	}
	return Status{
		ClusterID: cluster,
		Level:     r.state.CurrentLevel(),
		Forming:   r.waitsFor(),
		Term:      r.term,
		Role:      r.role,
		Leader:    r.lead,
		Serving:   r.leading.alloc.IsOpen(),
		Over:      r.leading.over,
		Time:      r.leading.alloc.Time(),
		Ceiling:   r.state.Ceiling,
		Leased:    r.leading.lease.held && r.mono < r.leading.lease.until,
		Waiting:   r.queue.size,
		Applied:   r.applied,
		Counters:  r.counters,

		Workers:          r.workers.held,
		WorkersRefused:   r.workers.refusal,
		WorkersReturning: len(r.workers.returning),
		Generators:       r.ids.slots,
		IDsRefused:       r.ids.refused,
		IDsStopped:       r.ids.stopped,
		Clock:            r.clock(),
	}
}

// Queue is how full one of a replica's queues is (I7).
type Queue struct {
	Name        string
	Length, Max int
}

// Queues returns all queues of the replica that grow with what happens to it. None is ever
// longer than its bound.
func (r *Replica) Queues() []Queue {
	responses := 0
	for _, w := range []*Write{r.flying, r.next} {
		if w != nil {
			responses = max(responses, len(w.responses))
		}
	}
	return []Queue{
		{"requests", r.queue.size, r.queue.max},
		{"rounds", len(r.queue.rounds), roundsMax},
		{"worker leases of clients", len(r.leading.clients), clientLeasesMax},
		{"worker leases given back", len(r.workers.returning), oracle.SlotsMax},
		{"entries not on disk", r.unwritten(), unwrittenEntriesMax},
		{"messages that wait for the disk", responses, responseKinds * oracle.MembersMax},
		{"views of peers", len(r.peers), oracle.MembersMax},
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

// WorkerLeases returns a copy of all worker records of the cluster, by worker.
func (r *Replica) WorkerLeases() []oracle.WorkerLease { return slices.Clone(r.state.Workers) }

// WorkerLease returns the record of one worker.
func (r *Replica) WorkerLease(worker uint16) (oracle.WorkerLease, bool) {
	return r.state.Worker(worker)
}

// Voters returns how many voters the cluster has.
func (r *Replica) Voters() int { return len(r.conf.GetVoters()) }
