package node

import (
	"strconv"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/host/peer"
	"github.com/isotone/isotone/internal/host/telemetry"
)

// measure sets the gauges and adds what was counted since the last time.
func (c *core) measure(s *view) {
	r, m := &s.replica, c.node.cfg.Metrics
	now := unixNanos(c.wall)
	stats := telemetry.NodeStats{
		FeatureLevel: r.Level, FeatureLevelNewest: c.replica.Levels().Newest,
		Leading: r.Serving, Leased: r.Leased, LeaderID: oracle.NodeOf(r.Leader), Term: r.Term, Ready: s.front.NotReady == "",
		CeilingLead: time.Duration(r.Ceiling - now), QueueDepth: r.Waiting, QueueLimit: c.node.cfg.RequestsMax,
		StorageFailed: c.node.Err() != nil,
		Workers:       len(r.Workers), IDsRefused: s.idsRefused != "",
		ClockExceeded: r.Clock.Exceeded, ClockQuorumOffset: r.Clock.Offset, ClockQuorumKnown: r.Clock.Known,
		ClockLimit: c.node.cfg.ClockJumpMax,
		Interval: telemetry.IntervalStats{
			Running: r.Interval.Running, Broken: r.Interval.Broken, Blamed: r.Interval.Blamed,
			Waiting: r.Interval.Waiting, Known: r.Interval.Known, Max: c.node.cfg.Interval,
			Width: time.Duration(r.Interval.Width), Limit: time.Duration(r.Interval.Limit), Age: time.Duration(r.Interval.Age),
		},
		Raft:     c.raftStats(s),
		Sessions: c.sessionStats(),
		Queues:   c.queueStats(),
	}
	if skew, known := c.replica.Skew(); known {
		stats.ClockOffset = -skew
	}
	if r.Serving {
		stats.TimeLead = time.Duration(r.Time - now)
		c.warnAhead(stats.TimeLead, r.Clock)
	}
	clocks, lags := c.replica.PeerOffsets(), c.replica.Lags()
	for _, p := range s.peers {
		stats.Peers = append(stats.Peers, c.peerStats(p, clocks, lags))
	}
	stats.Peers = byNode(stats.Peers, func(p *telemetry.PeerStats) (*uint64, bool) { return &p.ID, p.Connected })
	m.SetNode(stats)
	made := c.node.ids.made()
	m.AddIDs(made - c.reported.ids)
	c.reported.ids = made
	c.warnFloors(r.Term, &r.Counters)
	c.count(r.Counters)
	c.countDropped()
}

// raftStats returns the state of the log and the members.
func (c *core) raftStats(s *view) telemetry.RaftStats {
	r := &s.replica
	stats := telemetry.RaftStats{
		LastIndex: r.Last, CommittedIndex: r.Committed, AppliedIndex: r.Applied,
		NodeID: strconv.FormatUint(oracle.NodeOf(c.node.cfg.NodeID), 10), WriteUnderWay: c.disk.underWay(),
	}
	if r.ClusterID != 0 {
		stats.ClusterID = isotone.ClusterID(r.ClusterID).String()
	}
	for _, m := range c.replica.Members() {
		if m.Learner {
			stats.Learners++
			continue
		}
		stats.Voters++
		if m.ID == c.node.cfg.NodeID || isConnected(s.peers, m.ID) {
			stats.VotersConnected++
		}
	}
	stats.Quorum = stats.Voters/2 + 1
	table, self := c.replica.Timelines(), c.replica.Hello()
	stats.Timelines, stats.GroupsOwned = table.Len(), table.OwnedBy(self.NodeID, self.Session)
	stats.WorkersLeased, stats.WorkersLimit = c.replica.WorkersLeased(uint64(c.wall.UnixMilli()))
	return stats
}

func isConnected(peers []peer.PeerStatus, id uint64) bool {
	for _, p := range peers {
		if p.ID == id {
			return p.Connected
		}
	}
	return false
}

// queueStats returns the queues of the replica, and those in front of it: batches of other
// goroutines, and functions for the loops, whose senders bound how many there are.
func (c *core) queueStats() []telemetry.QueueStats {
	var stats []telemetry.QueueStats
	for _, q := range c.replica.Queues() {
		stats = append(stats, telemetry.QueueStats(q))
	}
	posted := 0
	for _, h := range c.node.hosts {
		posted += h.Posted()
	}
	return append(stats,
		telemetry.QueueStats{Name: "batches submitted", Length: c.queue.length(), Max: submitQueueMax},
		telemetry.QueueStats{Name: "posts to loops", Length: posted},
	)
}

// peerStats returns the state of one peer, under the number of its node: of two generations of a
// node, the newer one comes last in the list and counts.
func (c *core) peerStats(p peer.PeerStatus, clocks []replica.PeerOffset, lags []replica.Lag) telemetry.PeerStats {
	stats := telemetry.PeerStats{ID: oracle.NodeOf(p.ID), Connected: p.Connected, TLS: p.Secured}
	for _, clock := range clocks {
		if clock.ID == p.ID {
			stats.ClockOffset, stats.ClockKnown = clock.Offset, true
		}
	}
	for _, lag := range lags {
		if lag.ID == p.ID {
			stats.Lag, stats.LagKnown = lag.Entries, true
		}
	}
	if conn := c.peers.conns[p.ID]; conn != nil {
		stats.OutputBytes = conn.conn.Unwritten()
	}
	return stats
}

// count adds what the replica has counted since the last time.
func (c *core) count(now replica.Counters) {
	m, before := c.node.cfg.Metrics, c.reported.counters
	times := func(n uint64, count func()) {
		for range n {
			count()
		}
	}
	times(now.Reservations-before.Reservations, m.CountReservation)
	times(now.ReservationsFailed-before.ReservationsFailed, m.CountReservationFailed)
	times(now.Elections-before.Elections, m.CountElection)
	times(now.LeadersForgotten-before.LeadersForgotten, m.CountLeaderSuspected)
	times(now.RoundsFailed-before.RoundsFailed, func() { m.CountRoundFailed("lost_leadership") })
	m.AddLeases(now.LeaseServed-before.LeaseServed, now.LeaseMisses-before.LeaseMisses, now.LeasesLost-before.LeasesLost)
	m.AddTimestamps(now.LeaseIssued - before.LeaseIssued)
	m.AddFloors(now.FloorsPassed-before.FloorsPassed, now.FloorsRaised-before.FloorsRaised, now.FloorsRefused-before.FloorsRefused)
	m.AddSessionsEnded(now.SessionsClosed-before.SessionsClosed, now.SessionsLost-before.SessionsLost, now.SessionsBroken-before.SessionsBroken)
	m.AddSeals(now.SealsAsked - before.SealsAsked)
	m.AddProposalsDropped(now.ProposalsDropped - before.ProposalsDropped)
	c.reported.counters = now
}

// countDropped adds the messages to peers that were dropped since the last time.
func (c *core) countDropped() {
	m, now, before := c.node.cfg.Metrics, c.peers.dropped, c.reported.dropped
	m.AddMessagesDropped("not_connected", now.notConnected-before.notConnected)
	m.AddMessagesDropped("output_full", now.outputFull-before.outputFull)
	m.AddMessagesDropped("unsendable", now.unsendable-before.unsendable)
	c.reported.dropped = now
}
