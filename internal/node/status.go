package node

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.etcd.io/raft/v3"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/peer"
)

// view is what a node knows at one moment. It is computed in one place, the method view,
// and acted on in one place, reactions.
type view struct {
	replica replica.Status
	front   *front.Status
	peers   []peer.PeerStatus
	// previous is what the fronts were told before; nil at the start.
	previous *front.Status
	// idsRefused says why this node makes no ids although it should; "" if it does, or soon
	// will.
	idsRefused string
}

// draining is why a node that drains is not ready.
const draining = "this node is draining"

// reactions is everything that is done with the status when it has changed, and every
// statusTicks, in this order.
var reactions = []func(*core, *view){
	(*core).recordElection,
	(*core).logFormation,
	(*core).logStatus,
	(*core).logPeers,
	(*core).tellFronts,
	(*core).logIDs,
	(*core).followIDs,
	func(c *core, s *view) { c.publishClock(&s.replica) },
	(*core).logClock,
	(*core).logLevel,
	(*core).finishTransfers,
	func(c *core, _ *view) { c.followAddrs() },
	(*core).measure,
	func(c *core, _ *view) { c.peers.ping() },
	(*core).askPeers,
}

// publish computes the status and has everyone react to it.
func (c *core) publish() {
	s := c.view()
	for _, react := range reactions {
		react(c, s)
	}
}

func (c *core) view() *view {
	cfg := &c.node.cfg
	r := c.replica.Status()
	f := &front.Status{ClusterID: r.ClusterID, NodeID: oracle.NodeOf(cfg.NodeID), Role: role(r.Role), Term: r.Term, Leader: oracle.NodeOf(r.Leader), Ceiling: r.Ceiling}
	for _, m := range c.replica.Members() {
		addr := m.ClientAddr
		if m.ID == cfg.NodeID && m.Advertised != cfg.ClientAddr {
			addr = cfg.ClientAddr // not on record yet
		}
		if m.ID == r.Leader {
			f.LeaderAddr = addr
		}
		if m.ID == cfg.NodeID && m.Learner {
			f.Role = "learner"
		}
		if m.Learner && m.Replaces != 0 {
			continue // until then its node is the member that it replaces
		}
		member := front.Member{NodeID: oracle.NodeOf(m.ID), Addr: addr, PeerAddr: m.PeerAddr, Learner: m.Learner}
		if set := cfg.configuredAddr(m.ID); cfg.Join == nil && !cfg.PeersAssumed && set != m.PeerAddr && r.Forming == "" {
			member.OtherAddr = set
		}
		f.Members = append(f.Members, member)
	}
	// Of two voters of one node, of which one replaces the other, the newer one stays.
	slices.Reverse(f.Members)
	slices.SortStableFunc(f.Members, func(a, b front.Member) int { return cmp.Compare(a.NodeID, b.NodeID) })
	f.Members = slices.CompactFunc(f.Members, func(a, b front.Member) bool { return a.NodeID == b.NodeID })
	s := &view{replica: r, front: f, peers: c.peers.transport.Peers(), previous: c.node.status.Load()}
	s.idsRefused = c.idsRefused(&r)
	f.NotReadyTimestamps, f.NotReadyIDs = c.notReady(s), s.idsRefused
	if f.Draining = c.node.draining.Load(); f.Draining && c.node.Err() == nil {
		f.NotReadyTimestamps, f.NotReadyIDs = draining, draining
	}
	f.NotReady = cmp.Or(f.NotReadyTimestamps, f.NotReadyIDs)
	f.SlotOwners = slotOwners(c.replica, s.slotOwners())
	return s
}

// slotOwners are those that the fronts were told of before.
func (s *view) slotOwners() []uint64 {
	if s.previous == nil {
		return nil
	}
	return s.previous.SlotOwners
}

func role(s raft.StateType) string {
	switch s {
	case raft.StateLeader:
		return "leader"
	case raft.StateFollower:
		return "follower"
	default:
		return "candidate"
	}
}

// notReady says why this node can neither serve nor redirect, or "".
func (c *core) notReady(s *view) string {
	r := &s.replica
	switch {
	case c.node.Err() != nil:
		return fmt.Sprintf("this node has failed: %v", c.node.Err())
	case r.Serving:
		return ""
	case r.Over:
		return "the ceiling has reached the year 2262, the last that a timestamp can have: no more can be issued"
	case r.Leader == c.node.cfg.NodeID && r.Interval.Waiting:
		return "this node was elected and waits until intervals of an earlier leader have passed (INTERVAL_MS)"
	case r.Leader == c.node.cfg.NodeID:
		return "this node was elected and waits for its first reservation"
	case r.Leader != raft.None && s.front.LeaderAddr == "":
		return fmt.Sprintf("node %d leads, but its client address is not known yet", s.front.Leader)
	case r.Leader != raft.None:
		return ""
	}
	return c.noLeader(s)
}

// noLeader says why no leader is known.
func (c *core) noLeader(s *view) string {
	reason := "no leader is known"
	if s.replica.Forming != "" {
		reason = s.replica.Forming
	}
	for _, id := range slices.Sorted(maps.Keys(c.peers.refusedBy)) {
		return fmt.Sprintf("%s, and node %d refuses this node: %v", reason, oracle.NodeOf(id), c.peers.refusedBy[id])
	}
	for _, id := range slices.Sorted(maps.Keys(c.peers.refusing)) {
		return fmt.Sprintf("%s, and this node refuses node %d at %s (check PEERS, and NODE_ID there): %v",
			reason, oracle.NodeOf(id), addrOf(s.peers, id), c.peers.refusing[id])
	}
	if s.replica.Forming != "" {
		return reason + unreached(s.peers) + c.awaited(s.peers)
	}
	connected := 1
	var missing []string
	for _, p := range s.peers {
		if p.Connected {
			connected++
		} else {
			missing = append(missing, fmt.Sprintf("node %d at %s", oracle.NodeOf(p.ID), cmp.Or(strings.Join(p.Addrs, " or "), "no known address")))
		}
	}
	reason = fmt.Sprintf("%s; %d of %d members are connected, itself included", reason, connected, len(s.front.Members))
	if connected > len(s.front.Members)/2 || len(missing) == 0 {
		return reason
	}
	return fmt.Sprintf("%s; missing: %s; if their machines have other addresses now, write these into PEERS on all machines, and restart the nodes",
		reason, strings.Join(missing[:min(len(missing), missingMax)], ", "))
}

// addrOf returns where a peer is taken to be.
func addrOf(peers []peer.PeerStatus, id uint64) string {
	for _, p := range peers {
		if p.ID == id && p.Addr != "" {
			return p.Addr
		}
	}
	return "an unknown address"
}

// unreached says which peers this node has dialed in vain.
func unreached(peers []peer.PeerStatus) string {
	var list []string
	for _, p := range peers {
		if p.Failure != nil && len(list) < missingMax {
			list = append(list, fmt.Sprintf("node %d at %s: %v", oracle.NodeOf(p.ID), p.FailedAt, p.Failure))
		}
	}
	if len(list) == 0 {
		return ""
	}
	return "; dialed in vain: " + strings.Join(list, ", ") + " (start it there, or correct PEERS on all nodes, or RAFT_ADDR of that one)"
}

// awaited says which peers have to dial this node, and have not. Only they know why.
func (c *core) awaited(peers []peer.PeerStatus) string {
	var list []string
	for _, p := range peers {
		if p.ID > c.node.cfg.NodeID && !p.Connected && len(list) < missingMax {
			list = append(list, fmt.Sprint(oracle.NodeOf(p.ID)))
		}
	}
	if len(list) == 0 {
		return ""
	}
	return fmt.Sprintf("; it is for node %s to dial this node: see there (log, NODE_ID, PEERS) why it has not", strings.Join(list, " and node "))
}

// missingMax bounds the members that are listed as missing.
const missingMax = 8

// idsRefused returns view.idsRefused.
func (c *core) idsRefused(r *replica.Status) string {
	if len(c.node.ids.slots) == 0 {
		return ""
	}
	if err := r.IDsRefused; err != nil && err.Code == isotone.CodeClock {
		return err.Message
	}
	switch {
	case holdsWorker(r.Workers, uint64(c.wall.UnixMilli())):
	case r.WorkersRefused != nil:
		return fmt.Sprintf("no snowflake ids: %s", r.WorkersRefused.Err().Message)
	case len(r.Workers) > 0:
		return "no snowflake ids: the leases of this node's workers have ended, and it could not renew them"
	}
	return ""
}

// holdsWorker reports whether one of the leases goes on: that is enough to make ids, fewer
// in a millisecond.
func holdsWorker(leases []oracle.WorkerLease, nowMillis uint64) bool {
	return slices.ContainsFunc(leases, func(l oracle.WorkerLease) bool { return l.End > nowMillis })
}

// tellFronts makes the status visible to the fronts.
func (c *core) tellFronts(s *view) { c.node.status.Store(s.front) }

// recordElection remembers a change of leader.
func (c *core) recordElection(s *view) {
	c.elections.note(c.wall, c.mono, s.front.Term, s.front.Leader)
}

// followIDs hands the generators to those who make ids, and tells those who wait that all
// worker ids were given back.
func (c *core) followIDs(s *view) {
	c.node.ids.follow(&s.replica)
	if s.replica.IDsStopped && s.replica.WorkersReleasing == 0 {
		for _, returned := range c.returned {
			close(returned)
		}
		c.returned = nil
	}
}

// finishTransfers tells those who wait that another node leads.
func (c *core) finishTransfers(s *view) {
	if leader := s.replica.Leader; leader != raft.None && leader != c.node.cfg.NodeID {
		c.endTransfers()
	}
}
