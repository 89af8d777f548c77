package survey

import "time"

// Timelines is what a node tells of timelines. It has neither their names nor those of groups, which only operators may read: see
// isotone timeline top.
type Timelines struct {
	// Permitted is TIMELINES, and Placement GROUP_PLACEMENT.
	Permitted bool   `json:"permitted"`
	Placement string `json:"placement"`
	// Total is how many the cluster has, and GroupsMade how many groups operators have made.
	Total      int `json:"total"`
	GroupsMade int `json:"groupsMade"`
	// Owners are the owners of groups with timelines, by node ID; 0 stands for groups that nobody owns.
	Owners []GroupOwner `json:"owners"`
	// Load is what this node serves as an owner.
	Load TimelineLoad `json:"load"`
	// Busiest are those of its timelines that are asked for most, in that order, at most BusiestMax.
	Busiest []BusyTimeline `json:"busiest"`
	// Moves is how many moves of groups with timelines this node has seen since it started; LastMoves are the latest, oldest first.
	Moves     uint64      `json:"moves,string"`
	LastMoves []GroupMove `json:"lastMoves"`
}

// BusiestMax bounds Timelines.Busiest.
const BusiestMax = 20

// GroupOwner is what one node owns: groups with timelines, and how many these have.
type GroupOwner struct {
	NodeID    uint64 `json:"nodeID"`
	Groups    int    `json:"groups"`
	Timelines int    `json:"timelines"`
}

// TimelineLoad is what an owner serves of timelines, and refuses by their quotas.
type TimelineLoad struct {
	Requests   float64 `json:"requestsPerSecond"`
	Timestamps float64 `json:"timestampsPerSecond"`
	// Refused counts requests.
	Refused float64 `json:"refusedPerSecond"`
}

// BusyTimeline is the load of one timeline.
type BusyTimeline struct {
	// ID is that of the timeline, not of a node.
	ID uint64 `json:"id,string"`
	TimelineLoad
}

// GroupMove says that groups with timelines have come from one node to another.
type GroupMove struct {
	At     time.Time `json:"at"`
	From   uint64    `json:"from"`
	To     uint64    `json:"to"`
	Groups int       `json:"groups"`
}
