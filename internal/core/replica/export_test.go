package replica

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/oracle"
)

// Merge is what happens to writes that come while the disk is busy.
func (w *Write) Merge(o *Write) { w.merge(o) }

// Responses are the messages that wait for w.
func (w *Write) Responses() []*raftpb.Message { return w.responses }

// AddResponse lets a message wait for w.
func (w *Write) AddResponse(m *raftpb.Message) { w.addResponse(m) }

// Spoil changes the state of this replica, as bad memory would.
func (r *Replica) Spoil(f func(*oracle.State)) { f(&r.state) }

// InJoint reports whether the cluster is between the two configurations of a change.
func (r *Replica) InJoint() bool { return len(r.conf.GetVotersOutgoing()) > 0 }

// HeldVotes returns who asked for the votes that wait.
func (r *Replica) HeldVotes() (from []uint64) {
	for _, h := range r.succession.promised.held {
		from = append(from, h.m.GetFrom())
	}
	return from
}

// WithoutReplaced is withoutReplaced.
var WithoutReplaced = withoutReplaced

// OwnerRound returns the number of the latest round of this node as an owner.
func (r *Replica) OwnerRound() uint64 { return r.owner.lastRound }

// Endings returns how many leases this leader knows to be ending.
func (r *Replica) Endings() int { return len(r.leading.timelines.endings.of) }

// Allocators returns of how many timelines this process has an allocator.
func (r *Replica) Allocators() int { return len(r.owner.issuers) }
