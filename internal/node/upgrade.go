package node

import (
	"context"

	"go.etcd.io/raft/v3"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/front"
)

// Levels says what there is to know of feature levels; see front.Operator.
func (n *Node) Levels() (l front.Levels, err error) {
	if !n.call(func() {
		if n.core.replica.Status().Role != raft.StateLeader {
			err = n.redirect()
			return
		}
		r := n.core.replica.Levels()
		l = front.Levels{Level: r.Level, Newest: r.Newest, Next: r.Next, Missing: nodesOf(r.Missing)}
	}) {
		err = errStopped
	}
	return l, err
}

// redirect says whom to ask instead of this node.
func (n *Node) redirect() *isotone.Error {
	s := n.status.Load()
	if s.Leader == 0 || s.Leader == s.NodeID || s.LeaderAddr == "" {
		return isotone.ErrNoLeader
	}
	err := isotone.Errorf(isotone.CodeNotLeader, "node %d leads; ask %s", s.Leader, s.LeaderAddr)
	err.Leader = s.LeaderAddr
	return err
}

// askLeader returns the error that sends an operator to the leader, to which this member may not pass on requests.
func (n *Node) askLeader() *isotone.Error {
	err := n.redirect()
	if err.Leader != "" {
		err.Message += " with credentials, or on its machine at operator.sock in its DATA_DIR: members pass on requests of operators only with PEER_TLS_CERT"
	}
	return err
}

// RaiseLevel raises the feature level; see front.Operator.
func (n *Node) RaiseLevel(ctx context.Context) error {
	before, err := n.Levels()
	if err != nil {
		return err
	}
	err = n.operate(func(in *replica.Input) { in.RaiseLevel = true }, func(e *replica.Effects) *isotone.Error { return e.LevelRefused })
	if err != nil {
		return err
	}
	return n.await(ctx, "the feature level", func(r *replica.Replica) bool { return r.Levels().Level >= before.Next })
}

// nodesOf returns the IDs of the members' nodes, never nil.
func nodesOf(members []uint64) []uint64 {
	nodes := make([]uint64, 0, len(members))
	for _, id := range members {
		nodes = append(nodes, oracle.NodeOf(id))
	}
	return nodes
}
