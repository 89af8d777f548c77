package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// NodeStats is the state of a node at one moment, for the gauges.
type NodeStats struct {
	// Leading is whether this node leads.
	Leading bool
	// Leased is whether it holds a lease.
	Leased bool
	// LeaderID is the node that leads, 0 if none is known.
	LeaderID uint64
	Term     uint64
	// FeatureLevel is the cluster's, FeatureLevelNewest the newest that this node's version
	// knows.
	FeatureLevel, FeatureLevelNewest uint64
	// Ready is whether the node can serve or route.
	Ready bool
	// CeilingLead is the ceiling minus the wall clock; negative when the clock
	// has run past it.
	CeilingLead time.Duration
	// TimeLead is the time of the timestamps issued now minus the wall clock.
	TimeLead time.Duration
	// QueueDepth is how many requests wait for a round; QueueLimit how many may.
	QueueDepth, QueueLimit int
	// StorageFailed is whether a write or sync has failed; that is final (I8).
	StorageFailed bool
	// Workers is how many worker ids this node holds for its snowflake ids; IDsRefused is
	// whether it makes none although it should.
	Workers    int
	IDsRefused bool
	// ClockOffset is this node's clock minus the median of its peers'.
	ClockOffset time.Duration
	// ClockExceeded is whether the node does not go by its own clock, because it is too far
	// off those of a quorum or has jumped.
	ClockExceeded bool
	// ClockQuorumOffset is this node's clock minus the clock that a quorum vouches for, if
	// ClockQuorumKnown.
	ClockQuorumOffset time.Duration
	ClockQuorumKnown  bool
	// ClockLimit is how far apart the two may be; 0: any distance.
	ClockLimit time.Duration
	// Interval is what the node knows of the cluster clock.
	Interval IntervalStats
	// Raft is the state of the log and the members.
	Raft RaftStats
	// Sessions is zero on nodes that do not lead.
	Sessions SessionStats
	// Queues lists the bounded queues, always the same ones.
	Queues []QueueStats
	// Peers lists the other members. A peer that is absent loses its series.
	Peers []PeerStats
}

// PeerStats is one peer as the node sees it.
type PeerStats struct {
	ID        uint64
	Connected bool
	TLS       bool // the connection is protected
	// ClockOffset is its clock minus this node's, if ClockKnown.
	ClockOffset time.Duration
	ClockKnown  bool
	// Lag is how many entries of the log it lacks, if LagKnown: this node leads.
	Lag      uint64
	LagKnown bool
	// OutputBytes wait to be sent to it.
	OutputBytes int
}

// SetNode sets the gauges. The node calls it about ten times a second.
func (m *Metrics) SetNode(s NodeStats) {
	g := &m.node
	g.leader.Set(oneIf(s.Leading))
	g.leased.Set(oneIf(s.Leased))
	g.leaderID.Set(float64(s.LeaderID))
	g.term.Set(float64(s.Term))
	g.featureLevel.Set(float64(s.FeatureLevel))
	g.ready.Set(oneIf(s.Ready))
	g.ceilingLead.Set(s.CeilingLead.Seconds())
	g.timeLead.Set(s.TimeLead.Seconds())
	g.queueDepth.Set(float64(s.QueueDepth))
	g.queueLimit.Set(float64(s.QueueLimit))
	g.storageFailed.Set(oneIf(s.StorageFailed))
	g.workers.Set(float64(s.Workers))
	g.idsRefused.Set(oneIf(s.IDsRefused))
	g.clockOffset.Set(s.ClockOffset.Seconds())
	g.clockExceeded.Set(oneIf(s.ClockExceeded))
	if s.ClockQuorumKnown {
		g.clockQuorumOffset.WithLabelValues().Set(s.ClockQuorumOffset.Seconds())
	} else {
		g.clockQuorumOffset.DeleteLabelValues()
	}
	g.featureLevelNewest.Set(float64(s.FeatureLevelNewest))
	g.clockLimit.Set(s.ClockLimit.Seconds())
	m.interval.set(&s.Interval)
	m.raft.set(&s.Raft)
	m.session.set(&s.Sessions)
	m.queues.set(s.Queues)
	m.peers.set(s.Peers)
}

// SetCertificateLeft says how long the TLS certificate is still valid.
func (m *Metrics) SetCertificateLeft(left time.Duration) { m.node.certificateLeft.Set(left.Seconds()) }

type nodeGauges struct {
	leader, leaderID, term, ready prometheus.Gauge
	leased, featureLevel          prometheus.Gauge
	featureLevelNewest            prometheus.Gauge
	ceilingLead, timeLead         prometheus.Gauge
	queueDepth, queueLimit        prometheus.Gauge
	storageFailed                 prometheus.Gauge
	workers, idsRefused           prometheus.Gauge
	clockOffset, clockExceeded    prometheus.Gauge
	clockLimit                    prometheus.Gauge
	// clockQuorumOffset has its one series while the offset is known.
	clockQuorumOffset *prometheus.GaugeVec
	certificateLeft   prometheus.Gauge
}

func newNodeGauges(r *Registry) nodeGauges {
	return nodeGauges{
		leader:             r.Gauge("leader", "Whether this node leads: 1 or 0."),
		leased:             r.Gauge("lease_held", "Whether this node holds a lease: 1 or 0."),
		leaderID:           r.Gauge("leader_id", "Id of the node that leads; 0 when none is known."),
		featureLevel:       r.Gauge("feature_level", "Feature level of the cluster; see isotone upgrade."),
		featureLevelNewest: r.Gauge("feature_level_newest", "Newest feature level that the version of this node knows."),
		clockLimit:         r.Gauge("clock_limit_seconds", "How far this node's clock may be off those of a quorum before it goes by theirs, in seconds (CLOCK_JUMP_MAX_MS); 0: any distance."),
		term:               r.Gauge("term", "Raft term of this node."),
		ready:              r.Gauge("ready", "Whether this node can serve or route: 1 or 0."),
		ceilingLead:        r.Gauge("ceiling_lead_seconds", "Replicated ceiling of issued time minus the wall clock, in seconds."),
		timeLead:           r.Gauge("time_lead_seconds", "Time of the timestamps issued now minus the wall clock, in seconds."),
		queueDepth:         r.Gauge("queue_depth", "Requests that wait for a confirmation round."),
		queueLimit:         r.Gauge("queue_limit", "Requests that may wait for a confirmation round."),
		workers:            r.Gauge("snowflake_workers", "Worker ids that this node has leased for its snowflake ids."),
		idsRefused:         r.Gauge("snowflake_refused", "Whether this node makes no snowflake ids although it should, because of its clock or its worker id: 1 or 0."),
		clockOffset:        r.Gauge("clock_offset_seconds", "This node's clock minus the median of its peers' clocks, in seconds."),
		clockExceeded:      r.Gauge("clock_exceeded", "Whether this node does not go by its own clock, because it is too far off those of a quorum or has jumped: 1 or 0."),
		clockQuorumOffset:  r.GaugeVec("clock_quorum_offset_seconds", "This node's clock minus the clock that a quorum vouches for, in seconds; of a single node, how far its clock has jumped. Absent while too few clocks are known."),
		certificateLeft:    r.Gauge("certificate_left_seconds", "How long the TLS certificate is still valid, in seconds; less than 0: it is not."),
		storageFailed:      r.Gauge("storage_failed", "Whether a write or sync has failed for good: 1 or 0."),
	}
}
