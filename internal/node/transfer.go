package node

import (
	"context"
	"fmt"

	"go.etcd.io/raft/v3"

	"github.com/isotone/isotone/internal/core/oracle"
)

// TransferLeadership makes another member the leader if this node leads and there is another
// voter. It returns when another leader is known, when there is nobody to transfer it to, or
// with ctx. The node goes on serving meanwhile.
func (n *Node) TransferLeadership(ctx context.Context) error {
	led := make(chan struct{})
	if !n.post(func() { n.core.transfer(led) }) {
		return nil
	}
	return n.wait(ctx, led, "transfer leadership")
}

// GroupsToLeave returns how many groups of timelines this node owns that it may soon give to another one: 0 without a connection to a peer, and
// of a leader, which keeps its groups.
func (n *Node) GroupsToLeave() (groups int) {
	n.call(func() {
		if self := n.core.replica.Hello(); len(n.core.peers.conns) > 0 && n.core.replica.Status().Role != raft.StateLeader {
			groups = n.core.replica.Timelines().OwnedBy(self.NodeID, self.Session)
		}
	})
	return groups
}

// wait waits for done, for the end of the core loop, or for ctx.
func (n *Node) wait(ctx context.Context, done <-chan struct{}, what string) error {
	select {
	case <-done:
		return nil
	case <-n.hosts[0].Done():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("node %d: %s: %w", oracle.NodeOf(n.cfg.NodeID), what, context.Cause(ctx))
	}
}

// transfer asks the replica to transfer its leadership. led is closed once another node is
// known to lead.
func (c *core) transfer(led chan struct{}) {
	if c.replica.Status().Role != raft.StateLeader || c.replica.Voters() < 2 {
		close(led)
		return
	}
	c.transfers = append(c.transfers, led)
	c.next.Transfer = true
}

// retryTransfers keeps asking for the transfer while someone waits for it: the first attempt
// fails if the other cannot get a majority in time. It gives up when no other member is
// connected.
func (c *core) retryTransfers(ticks int) {
	switch {
	case len(c.transfers) == 0 || ticks == 0:
	case len(c.peers.conns) > 0:
		c.next.Transfer = true
	default:
		c.endTransfers()
	}
}

func (c *core) endTransfers() {
	for _, led := range c.transfers {
		close(led)
	}
	c.transfers = nil
}
