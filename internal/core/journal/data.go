package journal

import "go.etcd.io/raft/v3/raftpb"

// Identity tells whose data a directory holds (I6).
type Identity struct {
	// ClusterID is 0 until the cluster is formed, and never changes after that.
	ClusterID uint64
	NodeID    uint64
	// Incarnation is a random number, drawn when the directory was created. It tells a
	// directory from another one that the same node had before.
	Incarnation uint64
	// Boot counts how often the directory was opened, this time included. It is
	// durable before the node does anything else.
	Boot uint64
}

// Write is one change. Its parts take effect in the order Snapshot, Entries,
// HardState, Compact, ClusterID; the zero Write changes nothing.
//
// A write that raft never makes (a gap in the log, a commit beyond its end, a snapshot that
// goes back) is a defect of the caller. Save refuses it before writing anything, rather than
// leave a file that must be refused.
type Write struct {
	// HardState replaces the hard state; nil leaves it. The stored commit index is never below
	// the snapshot, even if that of HardState is.
	HardState *raftpb.HardState
	// Entries replace everything from the first one's index on. They are
	// contiguous. Those at or below the snapshot's index are left out.
	Entries []*raftpb.Entry
	// Snapshot was received from the leader. It replaces the whole log. Index 0 counts as nil,
	// as in raft.
	Snapshot *raftpb.Snapshot
	// Compact was made by this node. Entries up to its index are dropped. One at or below the
	// stored snapshot is late and is ignored.
	Compact *raftpb.Snapshot
	// ClusterID, if not zero, sets the cluster's ID for good.
	ClusterID uint64
}

// Recovered is what was found in a directory. The caller owns all of it.
type Recovered struct {
	// Fresh is set if this call created the directory.
	Fresh     bool
	Identity  Identity
	HardState *raftpb.HardState // nil if none; Commit is never below the snapshot
	Snapshot  *raftpb.Snapshot  // nil if none
	Entries   []*raftpb.Entry   // the log after the snapshot: contiguous, ascending
}
