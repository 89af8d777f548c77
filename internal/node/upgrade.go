package node

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
)

// levelPoll paces the wait for a feature level to be raised: it takes a commit.
const levelPoll = 5 * time.Millisecond

// Levels says what there is to know of feature levels; see front.Operator.
func (n *Node) Levels() (l front.Levels, err error) {
	if !n.call(func() {
		if n.core.replica.Status().Role != raft.StateLeader {
			err = n.redirect()
			return
		}
		r := n.core.replica.Levels()
		l = front.Levels{Level: r.Level, Newest: r.Newest, Next: r.Next, Missing: append([]uint64{}, r.Missing...)}
	}) {
		err = errStopped
	}
	return l, err
}

// redirect says whom to ask instead of this node.
func (n *Node) redirect() *isotone.Error {
	s := n.status.Load()
	if s.Leader == 0 || s.Leader == n.cfg.NodeID || s.LeaderAddr == "" {
		return isotone.ErrNoLeader
	}
	err := isotone.Errorf(isotone.CodeNotLeader, "node %d leads; ask %s", s.Leader, s.LeaderAddr)
	err.Leader = s.LeaderAddr
	return err
}

// RaiseLevel raises the feature level; see front.Operator.
func (n *Node) RaiseLevel(ctx context.Context) error {
	before, err := n.Levels()
	if err != nil {
		return err
	}
	refused := make(chan *isotone.Error, 1)
	if !n.call(func() { n.core.raising = append(n.core.raising, refused) }) {
		return errStopped
	}
	select {
	case err := <-refused:
		if err != nil {
			return err
		}
	case <-n.hosts[0].Done():
		return errStopped
	}
	tick := time.NewTicker(levelPoll)
	defer tick.Stop()
	for {
		now, err := n.Levels()
		if err != nil || now.Level >= before.Next {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return isotone.Errorf(isotone.CodeDeadlineExceeded, "the feature level was not raised in time: %v", fmt.Sprint(context.Cause(ctx)))
		}
	}
}

// answerRaising tells those who asked for a higher level what came of it.
func (c *core) answerRaising(refused *isotone.Error) {
	for _, answer := range c.raising {
		answer <- refused
	}
	c.raising = c.raising[:0]
}
