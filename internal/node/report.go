package node

import (
	"cmp"
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/front"
)

// Report is what there is to see of a node at one moment, for people.
type Report struct {
	Status front.Status
	Mode   isotone.ReadMode
	// Forming is set while the node and the other initial members form the cluster.
	Forming bool
	// Now is the node's wall clock.
	Now    time.Time
	Uptime time.Duration
	Loops  int
	// Serving is set while it leads and issues; Time is then its epoch, unix nanoseconds.
	Serving bool
	Time    uint64
	// Peers has one entry for each other node, sorted by ID.
	Peers []PeerReport
	// Skew is how far the median of the peers' clocks is ahead of the node's; SkewKnown is
	// unset before the first peer has told its clock, and for a node alone.
	Skew      time.Duration
	SkewKnown bool
	// Clock is how the node's clock compares with the quorum's; ClockJumpMax bounds how far
	// apart they may be.
	Clock        replica.Clock
	ClockJumpMax time.Duration
	// Interval is what the node knows of the cluster clock, and IntervalMax INTERVAL_MS.
	Interval    replica.IntervalStatus
	IntervalMax time.Duration
	// Groups are the groups of timelines.
	Groups []front.GroupRecord
	// Workers are the leases of its worker ids. Not to be changed.
	Workers []oracle.WorkerLease
	// Elections are the latest changes of leader, oldest first.
	Elections []Election
}

// PeerReport is one other member as the node sees it.
type PeerReport struct {
	ID        uint64
	Connected bool
	// ClockOffset is its clock minus the node's, if ClockKnown.
	ClockOffset time.Duration
	ClockKnown  bool
	// Lag is how many entries of the log it lacks, if LagKnown: the node leads.
	Lag      uint64
	LagKnown bool
}

// Election is one change of leader as a node has seen it.
type Election struct {
	At           time.Time
	Term, Leader uint64
	// Gap is how long no leader was known before.
	Gap time.Duration
}

// electionsMax bounds the elections that a node remembers.
const electionsMax = 32

// elections remembers changes of leader. It belongs to the loop's goroutine.
type elections struct {
	list   []Election
	leader uint64        // the latest that was known
	term   uint64        // and its term
	lost   time.Duration // when none was known any more; 0: one is
}

// note takes in who leads now; 0 is nobody.
func (e *elections) note(wall time.Time, mono time.Duration, term, leader uint64) {
	switch {
	case leader == 0:
		if e.lost == 0 && e.leader != 0 {
			e.lost = mono
		}
		return
	case leader == e.leader && term == e.term:
		e.lost = 0 // it was only out of sight
		return
	}
	gap := time.Duration(0)
	if e.lost != 0 {
		gap = mono - e.lost
	}
	if len(e.list) == electionsMax {
		e.list = slices.Delete(e.list, 0, 1)
	}
	e.list = append(e.list, Election{At: wall, Term: term, Leader: leader, Gap: gap})
	e.leader, e.term, e.lost = leader, term, 0
}

// Report returns what there is to see of the node. It takes a turn of the loop; ok is
// false when the node stops.
func (n *Node) Report() (r Report, ok bool) {
	ok = n.call(func() { r = n.core.report() })
	return r, ok
}

func (c *core) report() Report {
	n, s := c.node, c.replica.Status()
	r := Report{
		Status: *n.status.Load(), Mode: n.cfg.Mode, Now: c.wall, Uptime: c.mono - n.began, Loops: len(n.hosts),
		Forming: s.Forming != "", Serving: s.Serving, Time: s.Time, Workers: s.Workers, Elections: slices.Clone(c.elections.list),
	}
	r.Status.Ceiling = s.Ceiling
	r.Skew, r.SkewKnown = c.replica.Skew()
	r.Clock, r.ClockJumpMax = s.Clock, n.cfg.ClockJumpMax
	r.Interval, r.IntervalMax = s.Interval, n.cfg.Interval
	r.Groups = groupsOf(c.replica)
	lags, clocks := c.replica.Lags(), c.replica.PeerOffsets()
	for _, p := range c.peers.transport.Peers() {
		peer := PeerReport{ID: p.ID, Connected: p.Connected}
		for _, clock := range clocks {
			if clock.ID == p.ID {
				peer.ClockOffset, peer.ClockKnown = clock.Offset, true
			}
		}
		for _, lag := range lags {
			if lag.ID == p.ID {
				peer.Lag, peer.LagKnown = lag.Entries, true
			}
		}
		r.Peers = append(r.Peers, peer)
	}
	r.Peers = byNode(r.Peers, func(p *PeerReport) (*uint64, bool) { return &p.ID, p.Connected })
	return r
}

// SkewMax is how far a node's clock may be off its peers' before it makes no ids.
const SkewMax = replica.SkewMax

// byNode turns a list with an entry for each other member into one with an entry for each node,
// sorted by ID. of returns where an entry has its ID, and whether it is connected. Of a node
// that is being replaced it keeps the member that is connected, or else the newest.
func byNode[P any](members []P, of func(*P) (id *uint64, connected bool)) []P {
	slices.SortFunc(members, func(a, b P) int {
		x, _ := of(&a)
		y, _ := of(&b)
		return cmp.Or(cmp.Compare(oracle.NodeOf(*x), oracle.NodeOf(*y)), cmp.Compare(*x, *y))
	})
	var nodes []P
	for _, p := range members {
		id, connected := of(&p)
		*id = oracle.NodeOf(*id)
		last := len(nodes) - 1
		if last >= 0 {
			if before, was := of(&nodes[last]); *before == *id {
				if connected || !was {
					nodes[last] = p
				}
				continue
			}
		}
		nodes = append(nodes, p)
	}
	return nodes
}
