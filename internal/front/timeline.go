package front

import "context"

// Timelines has the commands of operators for timelines. Only the leader can answer, but for BusyTimelines; the error of another node names
// the leader. It is safe for concurrent use.
type Timelines interface {
	// Timelines describes those with a prefix whose names come after a name: the first limit, in the order of their names.
	Timelines(prefix, after string, limit int) (TimelineList, error)
	// Groups describes all groups that have or had timelines, or were made by an operator.
	Groups() (GroupList, error)
	// BusyTimelines describes those timelines of this node that are asked for most. Each node answers for itself.
	BusyTimelines(limit int) (BusyTimelines, error)
	// ChangeTimelines changes timelines or groups, and returns when the change is applied or ctx ends; then it may still happen.
	// The error is invalid_argument if one exists already, or if the change contradicts what there is, and not_found if there is none.
	// Of several creations those are done that can be.
	ChangeTimelines(ctx context.Context, c TimelineChange) (TimelineChanged, error)
}

// TimelineTable tells what a node has applied about timelines. That may be old, but what it says of times was so and stays so.
type TimelineTable interface {
	// Timeline returns the state of a timeline, and whether there is one of that name.
	Timeline(name string) (TimelineState, bool)
}

// TimelineState is what a node has applied about a timeline.
type TimelineState struct {
	// NodeID owns its group, 0 for none.
	NodeID uint64
	// Base is at or below the times of all timestamps that it issues from now on, in unix nanoseconds.
	Base uint64
	// Bound, if not 0, is above the times of all its timestamps: it is sealed.
	Bound uint64
}

// The actions of a TimelineChange.
const (
	CreateTimelines = "create"
	DeleteTimeline  = "delete"
	MoveTimeline    = "move"
	RaiseTimeline   = "floor"
	SealTimeline    = "seal"
	MakeGroup       = "make"
	DropGroup       = "drop"
	GrantGroup      = "grant"
	PreferNodes     = "prefer"
	LimitTimeline   = "quota"
	LeaseGroup      = "lease"
	UnleaseGroup    = "unlease"
)

// TimelinesPage bounds the timelines in one answer, TimelinesAtOnce those of one creation.
const (
	TimelinesPage   = 1000
	TimelinesAtOnce = 256
)

// TimelineChange is a change of timelines or of a group that an operator asks for.
type TimelineChange struct {
	Action string `json:"action"`
	// Names are those of the timelines: 1 to TimelinesAtOnce to create, one for the other actions.
	Names []string `json:"names,omitempty"`
	// ID, if not 0, is that of the timeline that is meant. A request that has it can be repeated: it never changes one of the
	// same name that came after.
	ID uint64 `json:"id,string,omitempty"`
	// Group is the group to move to, to create in, to make, to drop, to grant, to lease or unlease, or that prefers nodes. "" to create in that of
	// the hash slot.
	Group string `json:"group,omitempty"`
	// NodeID is the node that is granted the group. It has to be connected to the leader.
	NodeID uint64 `json:"nodeID,omitempty"`
	// Prefer are the nodes that should own the group, the first one before the others, with make and prefer. None: any.
	Prefer []uint64 `json:"prefer,omitempty"`
	// Time is what all later timestamps are above, with floor, and with create: a timestamp or a time, in any form that
	// oracle.ParseFloor takes. More than a day ahead of the clock it needs Force.
	Time  string `json:"time,omitempty"`
	Force bool   `json:"force,omitempty"`
	// Quota bounds what the owner of a timeline serves of it in a second, to all users together, with create and quota.
	Quota TimelineQuota `json:"quota,omitzero"`
}

// TimelineQuota bounds what is served of a timeline in a second. 0: nothing does.
type TimelineQuota struct {
	Requests   uint64 `json:"requests,omitempty"`
	Timestamps uint64 `json:"timestamps,omitempty"`
}

// TimelineChanged answers a TimelineChange.
type TimelineChanged struct {
	// Above is what all later timestamps of the timelines are above, in unix nanoseconds, if the request had a time.
	Above uint64 `json:"above,string,omitempty"`
}

// TimelineList describes timelines.
type TimelineList struct {
	// Total is how many the cluster has.
	Total     int              `json:"total"`
	Timelines []TimelineRecord `json:"timelines"`
	// After is the name to go on after; empty if there are no more.
	After string `json:"after,omitempty"`
}

// TimelineRecord describes one timeline.
type TimelineRecord struct {
	Name string `json:"name"`
	// ID is the log index of its creation: one that is deleted and created again has another.
	ID    uint64 `json:"id,string"`
	Group string `json:"group"`
	// NodeID owns its group, 0 for none, and Addr is its client address.
	NodeID uint64 `json:"nodeID"`
	Addr   string `json:"addr,omitempty"`
	// Sealed: it issues nothing any more. Bound is then above the times of all its timestamps, in unix nanoseconds.
	Sealed bool   `json:"sealed,omitempty"`
	Bound  uint64 `json:"bound,string,omitempty"`
	// Quota is what its owner serves of it in a second at most.
	Quota TimelineQuota `json:"quota,omitzero"`
}

// GroupList describes groups of timelines.
type GroupList struct {
	Groups []GroupRecord `json:"groups"`
}

// GroupRecord describes one group.
type GroupRecord struct {
	Name string `json:"name"`
	// NodeID owns it, 0 for none, and Addr is its client address. Grant is the log index since which it does.
	NodeID uint64 `json:"nodeID"`
	Addr   string `json:"addr,omitempty"`
	Grant  uint64 `json:"grant,string"`
	// Timelines is how many it has.
	Timelines int `json:"timelines"`
	// Prefer are the nodes that should own it, the first one before the others.
	Prefer []uint64 `json:"prefer,omitempty"`
	// Lease: its owner may answer requests in lease mode without a round. Until that has ended the group keeps its timelines.
	Lease bool `json:"lease,omitempty"`
	// Made: an operator has made it. Those of hash slots are there from the start.
	Made bool `json:"made,omitempty"`
}

// BusyTimelinesMax bounds the timelines whose load a node counts each by itself.
const BusyTimelinesMax = 1024

// TimelineLoad is what an owner served of timelines in each second lately, and how many requests it refused by their quotas.
type TimelineLoad struct {
	Requests   float64 `json:"requestsPerSecond"`
	Timestamps float64 `json:"timestampsPerSecond"`
	Refused    float64 `json:"refusedPerSecond"`
}

// BusyTimelines is what a node serves as an owner of timelines.
type BusyTimelines struct {
	NodeID uint64 `json:"nodeID"`
	// TimelineLoad is that of all of them together.
	TimelineLoad
	// Timelines are those that are asked for most, in that order.
	Timelines []BusyTimeline `json:"timelines"`
}

// BusyTimeline is the load of one timeline. While a node is asked for more than BusyTimelinesMax of them, it is at least that.
type BusyTimeline struct {
	Name  string `json:"name"`
	ID    uint64 `json:"id,string"`
	Group string `json:"group"`
	TimelineLoad
}
