package replica

import (
	"slices"

	"go.etcd.io/raft/v3"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/timeline"
	"github.com/isotone/isotone/snowflake"
)

// Status describes a replica after a step.
type Status struct {
	// ClusterID is 0 until the cluster is formed and named.
	ClusterID uint64
	// Level is the feature level of the cluster.
	Level uint64
	// Forming says, for display, what a founder waits for; "" once the cluster is formed.
	Forming string
	Term    uint64
	Role    raft.StateType
	Leader  uint64 // 0 if unknown
	// Serving is set while this node leads and its allocator is open.
	Serving bool
	// Over is set while it leads and the ceiling cannot rise any more.
	Over bool
	// Time is the current epoch, 0 unless Serving, and Ceiling the bound on it; in unix
	// nanoseconds.
	Time, Ceiling uint64
	// Leased is set while this leader holds its read lease.
	Leased bool
	// Waiting is the number of unanswered requests, counted by Request.Counts.
	Waiting int
	// Last, Committed and Applied are indexes of the log: its end, and how much of it is known
	// to be committed and is applied.
	Last, Committed, Applied uint64
	Counters                 Counters
	// Workers are the worker leases of this process, by worker. Worker and Start identify a
	// lease, whose End may grow. A lease that is no longer listed must not be used. Read only.
	Workers []oracle.WorkerLease
	// WorkersRefused says why the latest request for workers was refused; nil if it was not.
	WorkersRefused *oracle.LeaseRefusal
	// Generators are the generators of ids by slot, nil in a slot without a lease. The slice
	// is read only; the generators are safe for concurrent use.
	Generators []*snowflake.Generator
	// IDsRefused says why this node makes no ids although it is set up to; nil if it does.
	IDsRefused *isotone.Error
	// IDsStopped is set from Input.StopIDs on.
	IDsStopped bool
	// Clock compares this node's clock with the quorum's.
	Clock Clock
	// WorkersReleasing is the number of leases whose release is not applied yet.
	WorkersReleasing int
	// Interval is what this node knows of the cluster clock.
	Interval IntervalStatus
}

// Brief is the part of a [Status] that tells who leads, and how far the node is.
type Brief struct {
	ClusterID, Term, Leader uint64
	Role                    raft.StateType
	Forming, Serving        bool
	Time, Ceiling, Applied  uint64
}

// Brief returns the part of the status after the latest step that costs next to nothing: the simulator asks after each.
func (r *Replica) Brief() Brief {
	b := Brief{
		ClusterID: r.state.ClusterID, Term: r.term, Leader: r.lead, Role: r.role, Forming: r.forming != nil, Serving: r.leading.alloc.IsOpen(),
		Time: r.leading.alloc.Time(), Ceiling: r.state.Ceiling, Applied: r.applied,
	}
	if b.Forming {
		b.ClusterID = 0 // prepared, perhaps in vain
	}
	return b
}

// Status returns the status after the latest step. Its slices are replaced, never changed, by
// later steps.
func (r *Replica) Status() Status {
	b := r.Brief()
	committed := r.applied
	if r.raw != nil {
		committed = r.raw.BasicStatus().HardState.GetCommit()
	}
	last, err := r.log.LastIndex()
	if err != nil {
		last = 0 // the log in memory has no such error
	}
	return Status{
		ClusterID: b.ClusterID,
		Level:     r.state.CurrentLevel(),
		Forming:   r.forming.status(),
		Term:      b.Term,
		Role:      b.Role,
		Leader:    b.Leader,
		Serving:   b.Serving,
		Over:      r.leading.over,
		Time:      b.Time,
		Ceiling:   b.Ceiling,
		Leased:    r.leading.lease.held && r.mono < r.leading.lease.until,
		Waiting:   r.load.size,
		Last:      last,
		Committed: committed,
		Applied:   b.Applied,
		Counters:  r.counters,

		Workers:          r.ids.held,
		WorkersRefused:   r.ids.refusal,
		WorkersReleasing: len(r.ids.releasing),
		Generators:       r.ids.slots,
		IDsRefused:       r.ids.refusedNow(),
		IDsStopped:       r.ids.stopped,
		Clock:            r.clocks.status(),
		Interval:         r.intervalStatus(),
	}
}

// Queue is the length of a queue and its bound (I7).
type Queue struct {
	Name        string
	Length, Max int
}

// Queues returns all queues that input can make longer, none ever longer than its bound. It allocates
// nothing: the simulator asks after each step.
func (r *Replica) Queues() [11]Queue {
	responses := 0
	for _, w := range []*Write{r.tail.inFlight, r.tail.collecting} {
		if w != nil {
			responses = max(responses, len(w.responses))
		}
	}
	return [...]Queue{
		{"requests", r.load.size, r.load.max},
		{"rounds", len(r.queue.rounds), roundsMax},
		{"worker leases of clients", len(r.leading.clients.list), clientLeasesMax},
		{"rounds of an owner", len(r.owner.rounds), roundsMax},
		{"commands of timelines", len(r.leading.timelines.list), timelineCommandsMax},
		{"worker leases given back", len(r.ids.releasing), oracle.SlotsMax},
		{"entries not on disk", r.tail.unwritten(), unwrittenEntriesMax},
		{"messages that wait for the disk", responses, responseKinds * oracle.MembersMax},
		{"votes that came early", len(r.succession.early), oracle.MembersMax},
		{"views of peers", len(r.peers), oracle.MembersMax},
		{"unknown nodes", len(r.admission.strangers), strangersMax},
	}
}

// Member is a member record, and whether the member is a learner.
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

// OutgoingVoters returns the voters of the configuration that is being left, nil outside of a joint
// configuration: until it is left, a majority of them is needed, too.
func (r *Replica) OutgoingVoters() []uint64 { return slices.Clone(r.conf.GetVotersOutgoing()) }

// Strangers returns the IDs of nodes that were admitted though this one knows no such member: it may
// be behind.
func (r *Replica) Strangers() (ids []uint64) {
	for _, s := range r.admission.strangers {
		ids = append(ids, s.hello.NodeID)
	}
	return ids
}

// Removed returns the latest former member of each node that had one. Read only.
func (r *Replica) Removed() []uint64 { return r.state.Removed }

// WorkerLease returns the record of one worker.
func (r *Replica) WorkerLease(worker uint16) (oracle.WorkerLease, bool) {
	return r.state.Worker(worker)
}

// WorkerLeases returns a copy of all worker records of the cluster, by worker, at most 1024.
func (r *Replica) WorkerLeases() []oracle.WorkerLease { return slices.Clone(r.state.Workers) }

// HasEnded reports whether others may be granted the worker of the lease l if their clocks show
// the unix millisecond now.
func (r *Replica) HasEnded(l oracle.WorkerLease, now uint64) bool { return r.state.HasEnded(l, now) }

// Space returns the layout of ids, zero before the first lease.
func (r *Replica) Space() oracle.Space { return r.state.Space }

// WorkersLeased returns how many of the cluster's workers are not free at the given unix
// millisecond, and how many there are; 0 and 0 before the first lease.
func (r *Replica) WorkersLeased(now uint64) (leased, limit int) { return r.state.WorkersLeased(now) }

// Timelines returns the table of timelines. Read only, until the next step.
func (r *Replica) Timelines() *timeline.Table { return &r.state.Timelines }

// Voters returns how many voters the cluster has.
func (r *Replica) Voters() int { return len(r.conf.GetVoters()) }
