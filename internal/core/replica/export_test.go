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
