package replica

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/oracle"
)

// facts are what all parts of a replica share: the settings of the node, the clocks of the present
// step, its place in the term, the log and what was applied of it. The parts read them, note what
// they learn of a peer in its view, count, and add to the effects. All else only the replica changes.
type facts struct {
	cfg     Config
	raw     *raft.RawNode       // nil while forming
	log     *raft.MemoryStorage // the durable log, for Raft to read
	state   oracle.State
	conf    *raftpb.ConfState
	applied uint64
	durable position // on disk
	voted   uint64   // who has this node's vote in the term on disk, 0: nobody
	// changedAt is the index of the latest membership change, or an upper bound of it.
	changedAt uint64
	// recoveredCeiling is the largest target of the reservations in the recovered log, some
	// of which may not be applied yet.
	recoveredCeiling uint64

	// forming is nil once the cluster is formed.
	forming *formation
	// stopErr ends the node from tick stopAt on; nil if it goes on. The delay lets the other
	// side learn the reason.
	stopErr error
	stopAt  uint64

	now    uint64        // Input.Now
	steady int64         // Input.Steady
	mono   time.Duration // Input.Mono
	ticks  uint64        // since the start of the process

	// peers is what this process knows of its peers from its own contacts.
	peers map[uint64]*peerView

	// term, role and lead are as last observed.
	term    uint64
	role    raft.StateType
	lead    uint64
	elected leadership // the latest that was observed

	mutation mutation
	counters Counters
	effects  Effects
}

// position is a place in a log.
type position struct{ term, index uint64 }

// leadership is a leader and its term.
type leadership struct{ term, leader uint64 }

// isLearner reports whether id is a learner.
func (f *facts) isLearner(id uint64) bool {
	return slices.Contains(f.conf.GetLearners(), id) || slices.Contains(f.conf.GetLearnersNext(), id)
}

// isVoter reports whether id votes, in a joint configuration in either part of it.
func (f *facts) isVoter(id uint64) bool {
	return slices.Contains(f.conf.GetVoters(), id) || slices.Contains(f.conf.GetVotersOutgoing(), id)
}
