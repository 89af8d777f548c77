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
	// FeatureLevel is the cluster's.
	FeatureLevel uint64
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
	// Peers lists the other members. A peer that is absent loses its series.
	Peers []PeerStats
}

// PeerStats is one peer as the node sees it.
type PeerStats struct {
	ID        uint64
	Connected bool
	// ClockOffset is its clock minus this node's, if ClockKnown.
	ClockOffset time.Duration
	ClockKnown  bool
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
	m.setPeers(s.Peers)
}

// SetCertificateLeft says how long the TLS certificate is still valid.
func (m *Metrics) SetCertificateLeft(left time.Duration) { m.node.certificateLeft.Set(left.Seconds()) }

type nodeGauges struct {
	leader, leaderID, term, ready prometheus.Gauge
	leased, featureLevel          prometheus.Gauge
	ceilingLead, timeLead         prometheus.Gauge
	queueDepth, queueLimit        prometheus.Gauge
	storageFailed                 prometheus.Gauge
	workers, idsRefused           prometheus.Gauge
	clockOffset, clockExceeded    prometheus.Gauge
	// clockQuorumOffset has its one series while the offset is known.
	clockQuorumOffset *prometheus.GaugeVec
	certificateLeft   prometheus.Gauge
}

func newNodeGauges(r registrar) nodeGauges {
	return nodeGauges{
		leader:            r.gauge("leader", "Whether this node leads: 1 or 0."),
		leased:            r.gauge("lease_held", "Whether this node holds a lease: 1 or 0."),
		leaderID:          r.gauge("leader_id", "Id of the node that leads; 0 when none is known."),
		featureLevel:      r.gauge("feature_level", "Feature level of the cluster; see isotone upgrade."),
		term:              r.gauge("term", "Raft term of this node."),
		ready:             r.gauge("ready", "Whether this node can serve or route: 1 or 0."),
		ceilingLead:       r.gauge("ceiling_lead_seconds", "Replicated ceiling of issued time minus the wall clock, in seconds."),
		timeLead:          r.gauge("time_lead_seconds", "Time of the timestamps issued now minus the wall clock, in seconds."),
		queueDepth:        r.gauge("queue_depth", "Requests that wait for a confirmation round."),
		queueLimit:        r.gauge("queue_limit", "Requests that may wait for a confirmation round."),
		workers:           r.gauge("snowflake_workers", "Worker ids that this node has leased for its snowflake ids."),
		idsRefused:        r.gauge("snowflake_refused", "Whether this node makes no snowflake ids although it should, because of its clock or its worker id: 1 or 0."),
		clockOffset:       r.gauge("clock_offset_seconds", "This node's clock minus the median of its peers' clocks, in seconds."),
		clockExceeded:     r.gauge("clock_exceeded", "Whether this node does not go by its own clock, because it is too far off those of a quorum or has jumped: 1 or 0."),
		clockQuorumOffset: r.gaugeVec("clock_quorum_offset_seconds", "This node's clock minus the clock that a quorum vouches for, in seconds; of a single node, how far its clock has jumped. Absent while too few clocks are known."),
		certificateLeft:   r.gauge("certificate_left_seconds", "How long the TLS certificate is still valid, in seconds; less than 0: it is not."),
		storageFailed:     r.gauge("storage_failed", "Whether a write or sync has failed for good: 1 or 0."),
	}
}

// registrar makes metrics named isotone_… in one registry. A name given twice is
// a defect and panics.
type registrar struct{ *prometheus.Registry }

const namespace = "isotone"

func (r registrar) counter(name, help string) prometheus.Counter {
	return registered(r, prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}))
}

func (r registrar) counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return registered(r, prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels))
}

func (r registrar) gauge(name, help string) prometheus.Gauge {
	return registered(r, prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}))
}

func (r registrar) gaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	return registered(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels))
}

func (r registrar) histogram(name, help string, buckets []float64) prometheus.Histogram {
	return registered(r, prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}))
}

func (r registrar) histogramVec(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return registered(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels))
}

func registered[C prometheus.Collector](r registrar, c C) C {
	r.MustRegister(c)
	return c
}
