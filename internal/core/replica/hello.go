package replica

import (
	"fmt"

	"github.com/isotone/isotone/internal/core/oracle"
)

// Hello is what a node says about itself when it connects to a peer. The hello of
// internal/core/wire has the same fields.
type Hello struct {
	ClusterID   uint64 // 0 while unknown
	NodeID      uint64
	Incarnation uint64 // of the data directory
	Boot        uint64 // number of starts of the directory
	Session     uint64 // of the process
	VotersHash  uint64 // of the initial voters' IDs; 0 for a node that joins later
	Term        uint64 // on disk
	LastIndex   uint64 // of the log on disk
	TickNanos   uint64 // length of a tick in nanoseconds
	ClientAddr  string // host:port

	// Level is the newest feature level that the node knows.
	Level uint64
	Stage Stage
	// Founders are the IDs in PEERS, as in "1,2,3"; empty once the cluster is formed.
	Founders string
	// PeerAddr is the address for other members, host:port.
	PeerAddr string
	// Priority is that of the node as a leader; see priority.go.
	Priority int64
	// SeedDigest and SeedFloor are the Digest and the Floor of a founder's Seed; empty without
	// one.
	SeedDigest string
	SeedFloor  uint64
	// Configured is set if PeerAddr is from the node's settings, its own entry in PEERS. Otherwise it is
	// where the node listens, or what the cluster has on record.
	Configured bool
	// Layout has the layout of IDs of a founder that is gathering, as in "41/5/5/12@1288834974657"; empty without IDs.
	Layout string
}

// node returns the ID of the node, for display.
func (h Hello) node() uint64 { return oracle.NodeOf(h.NodeID) }

// Hello returns what this node says about itself at present.
func (r *Replica) Hello() Hello { return r.hello() }

func (f *facts) hello() Hello {
	h := f.cfg.Self
	if f.state.ClusterID != 0 {
		h.ClusterID = f.state.ClusterID
	}
	h.Term, h.LastIndex, h.PeerAddr = f.durable.term, f.durable.index, f.ownAddr()
	switch {
	case f.forming == nil && f.applied == 0:
		h.Stage = StageJoining
	case f.forming == nil:
		h.Stage, h.Founders = StageFormed, ""
		h.SeedDigest, h.SeedFloor = "", 0
	case f.prepared():
		h.Stage = StagePrepared
	default:
		h.Stage = StageGathering
		if s := f.cfg.Space; f.cfg.LeaseMillis > 0 {
			h.Layout = fmt.Sprintf("%d/%d/%d/%d@%d", s.TimeBits, s.DatacenterBits, s.WorkerBits, s.SequenceBits, s.Epoch)
		}
	}
	return h
}
