package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/peer"
	"github.com/isotone/isotone/internal/host/telemetry"
)

func (n *Node) receive(ctx context.Context, _ uint64, msgs []*raftpb.Message) {
	n.mail.deliver(ctx, msgs)
}

// publish makes what the node knows visible to fronts, metrics, the transport and
// the log. Only the loop calls it, and Start before there is one.
func (n *Node) publish() {
	r := n.replica.Status()
	s := &front.Status{ClusterID: r.ClusterID, NodeID: n.cfg.NodeID, Term: r.Term, Leader: r.Leader, Ceiling: r.Ceiling}
	for _, m := range n.replica.Members() {
		addr := m.ClientAddr
		if m.ID == n.cfg.NodeID {
			addr = n.cfg.ClientAddr
		}
		if m.ID == r.Leader {
			s.LeaderAddr = addr
		}
		if m.ID == n.cfg.NodeID && m.Learner {
			s.Role = "learner"
		}
		s.Members = append(s.Members, front.Member{NodeID: m.ID, Addr: addr, PeerAddr: m.PeerAddr, Learner: m.Learner})
	}
	if s.Role == "" {
		s.Role = role(r.Role)
	}
	peers := n.transport.Peers()
	s.NotReady = n.notReady(r, s, peers)
	if s.NotReady == "" {
		s.NotReady = n.idsRefused(&r)
	}
	n.elections.note(n.wall, n.mono, s.Term, s.Leader)
	n.tellForming(&r, len(s.Members))
	n.announce(s)
	n.status.Store(s)
	n.followWorkers(&r)
	n.warnClock(r.Clock)
	n.announceUpgrade(&r)
	n.releaseHandOvers(r.Leader)
	if addrs := n.peerAddrs(); !maps.Equal(addrs, n.peers) {
		n.peers = addrs
		n.transport.SetPeers(addrs)
	}
	n.measure(r, s, peers)
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

// notReady says why this node can neither serve nor route, or "".
func (n *Node) notReady(r replica.Status, s *front.Status, peers []peer.PeerStatus) string {
	switch {
	case n.Err() != nil:
		return fmt.Sprintf("this node has failed: %v", n.Err())
	case r.Serving:
		return ""
	case r.Over:
		return "the ceiling has reached the year 2262, the last that a timestamp can have: no more can be issued"
	case r.Leader == n.cfg.NodeID:
		return "this node was elected and waits for its first reservation"
	case r.Leader != raft.None && s.LeaderAddr == "":
		return fmt.Sprintf("node %d leads, but its client address is not known yet", r.Leader)
	case r.Leader != raft.None:
		return ""
	}
	lead := "no leader is known"
	if r.Forming != "" {
		lead = r.Forming
	}
	for _, id := range slices.Sorted(maps.Keys(n.refusals)) {
		return fmt.Sprintf("%s, and node %d refuses this node: %v", lead, id, n.refusals[id])
	}
	for _, id := range slices.Sorted(maps.Keys(n.refusing)) {
		return fmt.Sprintf("%s, and this node refuses node %d (check PEERS): %v", lead, id, n.refusing[id])
	}
	if r.Forming != "" {
		return lead
	}
	connected := 1
	for _, p := range peers {
		if p.Connected {
			connected++
		}
	}
	return fmt.Sprintf("no leader is known; %d of %d members are connected, itself included", connected, len(s.Members))
}

// announce logs what an operator wants to know about a change.
func (n *Node) announce(s *front.Status) {
	old := n.status.Load()
	if old == nil || old.Leader == s.Leader && old.Term == s.Term && (old.NotReady == "") == (s.NotReady == "") {
		return
	}
	attrs := []any{"node", s.NodeID, "role", s.Role, "term", s.Term, "leader", s.Leader, "leader_addr", s.LeaderAddr,
		"ready", s.NotReady == ""}
	if s.NotReady != "" {
		attrs = append(attrs, "why", s.NotReady)
	}
	n.cfg.Log.Info("cluster state changed", attrs...)
}

// tellForming logs what a founder waits for, when that changes, and that the cluster is
// formed.
func (n *Node) tellForming(r *replica.Status, members int) {
	if r.Forming == n.forming || n.Err() != nil {
		return
	}
	n.forming = r.Forming
	switch {
	case r.Forming == "":
		n.cfg.Log.Info("the cluster is formed", "node", n.cfg.NodeID, "cluster", isotone.ClusterID(r.ClusterID).String(), "members", members)
	case members > 1:
		n.cfg.Log.Info("the cluster is not formed yet", "node", n.cfg.NodeID, "why", r.Forming)
	}
}

func peerStats(p peer.PeerStatus, clocks []replica.PeerOffset) telemetry.PeerStats {
	stats := telemetry.PeerStats{ID: p.ID, Connected: p.Connected}
	for _, c := range clocks {
		if c.ID == p.ID {
			stats.ClockOffset, stats.ClockKnown = c.Offset, true
		}
	}
	return stats
}

// leadMax is by how much time may lead the clock before that is worth a warning. After
// a failover it leads by some epochs.
const leadMax = 10 * time.Second

// warnAhead says, once, that timestamps have left the clock behind: the index grows and
// time stands still until the clock has caught up. lead is that over the node's own clock,
// which need not be the one that time goes by.
func (n *Node) warnAhead(lead time.Duration, c replica.Clock) {
	if !c.Known && n.cfg.ClockJumpMax > 0 {
		return // time stands still because nobody knows how late it is
	}
	lead += astray(c, n.cfg.ClockJumpMax)
	if ahead := lead > leadMax; ahead != n.ahead {
		if n.ahead = ahead; ahead {
			n.cfg.Log.Warn("time leads the clock that it goes by, and stands still until that has caught up; "+
				"the clock is slow, or that of an earlier leader was fast", "lead", lead.Round(time.Millisecond).String())
		}
	}
}

// measure sets the gauges and adds what the replica counted since the last time.
func (n *Node) measure(r replica.Status, s *front.Status, peers []peer.PeerStatus) {
	m, c := n.cfg.Metrics, r.Counters
	now := unixNanos(n.wall)
	stats := telemetry.NodeStats{
		FeatureLevel: r.Level,
		Leading:      r.Serving, Leased: r.Leased, LeaderID: r.Leader, Term: r.Term, Ready: s.NotReady == "",
		CeilingLead: time.Duration(r.Ceiling - now), QueueDepth: r.Waiting, QueueLimit: n.cfg.RequestsMax,
		StorageFailed: n.Err() != nil,
		Workers:       len(r.Workers), IDsRefused: n.idsRefused(&r) != "",
		ClockExceeded: r.Clock.Exceeded, ClockQuorumOffset: r.Clock.Offset, ClockQuorumKnown: r.Clock.Known,
	}
	if skew, known := n.replica.Skew(); known {
		stats.ClockOffset = -skew
	}
	if r.Serving {
		stats.TimeLead = time.Duration(r.Time - now)
		n.warnAhead(stats.TimeLead, r.Clock)
	}
	clocks := n.replica.PeerOffsets()
	for _, p := range peers {
		stats.Peers = append(stats.Peers, peerStats(p, clocks))
	}
	m.SetNode(stats)
	made := n.ids.made()
	m.AddIDs(made - n.idsMade)
	n.idsMade = made
	for range c.Reservations - n.reported.Reservations {
		m.CountReservation()
	}
	for range c.ReservationsFailed - n.reported.ReservationsFailed {
		m.CountReservationFailed()
	}
	for range c.Elections - n.reported.Elections {
		m.CountElection()
	}
	for range c.RoundsFailed - n.reported.RoundsFailed {
		m.CountRoundFailed("lost_leadership")
	}
	m.AddLeases(c.LeaseServed-n.reported.LeaseServed, c.LeaseMisses-n.reported.LeaseMisses, c.LeasesLost-n.reported.LeasesLost)
	m.AddTimestamps(c.LeaseIssued - n.reported.LeaseIssued)
	n.reported = c
}
