package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// RaftStats is the log and the members as a node sees them.
type RaftStats struct {
	// LastIndex is the end of the log in memory, CommittedIndex and AppliedIndex how much of
	// it is committed and applied.
	LastIndex, CommittedIndex, AppliedIndex uint64
	// Voters and Learners are the members; Quorum of the voters decide, and VotersConnected
	// are connected to this node, itself included.
	Voters, Learners, Quorum, VotersConnected int
	// WorkersLeased of the cluster's WorkersLimit worker ids are leased now.
	WorkersLeased, WorkersLimit int
	// Timelines is how many timelines the cluster has, GroupsOwned how many groups of them this process serves.
	Timelines, GroupsOwned int
	// ClusterID and NodeID are shown once the cluster has an ID, which is not "" then.
	ClusterID, NodeID string
	// WriteUnderWay is how long the current write to the disk has taken so far; 0 if there is
	// none.
	WriteUnderWay time.Duration
}

// raftMetrics belongs to SetNode, but for its counters.
type raftMetrics struct {
	lastIndex, committedIndex, appliedIndex prometheus.Gauge
	voters, learners                        prometheus.Gauge
	quorum, votersConnected                 prometheus.Gauge
	workersLeased, workersLimit             prometheus.Gauge
	timelines, groupsOwned                  prometheus.Gauge
	writeUnderWay, databaseBytes            prometheus.Gauge
	nodeInfo                                *prometheus.GaugeVec
	proposalsDropped                        prometheus.Counter
}

func newRaftMetrics(r *Registry) raftMetrics {
	members := r.GaugeVec("members", "Members of the cluster, by role: voter or learner.", "role")
	return raftMetrics{
		lastIndex:        r.Gauge("raft_last_index", "Index of the last entry of this node's log."),
		committedIndex:   r.Gauge("raft_committed_index", "Index of the last entry that this node knows to be committed."),
		appliedIndex:     r.Gauge("raft_applied_index", "Index of the last entry that this node has applied."),
		voters:           members.WithLabelValues("voter"),
		learners:         members.WithLabelValues("learner"),
		quorum:           r.Gauge("quorum_voters", "Voters that a quorum needs."),
		votersConnected:  r.Gauge("voters_connected", "Voters that are connected to this node, itself included."),
		workersLeased:    r.Gauge("cluster_workers_leased", "Worker ids of the cluster that are leased, to nodes or clients."),
		workersLimit:     r.Gauge("cluster_workers_limit", "Worker ids that the cluster has."),
		timelines:        r.Gauge("cluster_timelines", "Timelines that the cluster has."),
		groupsOwned:      r.Gauge("timeline_groups_owned", "Groups with timelines that this node owns, and so answers for."),
		writeUnderWay:    r.Gauge("storage_write_underway_seconds", "How long the write and sync under way has taken so far, in seconds; 0: there is none."),
		databaseBytes:    r.Gauge("storage_database_bytes", "Size of the data file, in bytes."),
		nodeInfo:         r.GaugeVec("node_info", "Always 1; the labels say which node of which cluster this is. Absent before the cluster is formed.", "node", "cluster"),
		proposalsDropped: r.Counter("proposals_dropped_total", "Proposals of other members that this node dropped as leader, because they were not allowed or it could not propose."),
	}
}

func (m *raftMetrics) set(s *RaftStats) {
	m.lastIndex.Set(float64(s.LastIndex))
	m.committedIndex.Set(float64(s.CommittedIndex))
	m.appliedIndex.Set(float64(s.AppliedIndex))
	m.voters.Set(float64(s.Voters))
	m.learners.Set(float64(s.Learners))
	m.quorum.Set(float64(s.Quorum))
	m.votersConnected.Set(float64(s.VotersConnected))
	m.workersLeased.Set(float64(s.WorkersLeased))
	m.workersLimit.Set(float64(s.WorkersLimit))
	m.timelines.Set(float64(s.Timelines))
	m.groupsOwned.Set(float64(s.GroupsOwned))
	m.writeUnderWay.Set(s.WriteUnderWay.Seconds())
	if s.ClusterID != "" {
		m.nodeInfo.WithLabelValues(s.NodeID, s.ClusterID).Set(1)
	}
}

// AddProposalsDropped counts proposals that were dropped.
func (m *Metrics) AddProposalsDropped(n uint64) { m.raft.proposalsDropped.Add(float64(n)) }

// SetDatabaseSize says how large the data file is, in bytes.
func (m *Metrics) SetDatabaseSize(n int64) { m.raft.databaseBytes.Set(float64(n)) }
