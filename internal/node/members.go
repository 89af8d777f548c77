package node

import (
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"

	"github.com/isotone/isotone/internal/peer"
	"github.com/isotone/isotone/internal/replica"
)

// newTransport wires the peers to the mailbox. What is decided about a peer is
// decided by the replica, on the loop's goroutine.
func (n *Node) newTransport() *peer.Transport {
	t := peer.New(peer.Config{
		NodeID:   n.cfg.NodeID,
		Listener: n.cfg.PeerListener,
		Hello:    n.hello,
		Admit:    n.admit,
		Receive:  n.receive,
		Carry:    n.carry,
		Connected: func(h peer.Hello) {
			n.mail.post(func(in *mail) {
				in.hellos = append(in.hellos, replica.Hello(h))
				in.calls = append(in.calls, func() {
					delete(n.refusals, h.NodeID)
					delete(n.refusing, h.NodeID)
				})
			})
		},
		Refused: n.refused,
		Log:     n.cfg.Log,
	})
	n.peers = n.peerAddrs()
	t.SetPeers(n.peers)
	return t
}

func (n *Node) hello() peer.Hello {
	var h replica.Hello
	n.call(func() { h = n.replica.Hello() })
	return peer.Hello(h)
}

func (n *Node) admit(h peer.Hello) *peer.Refusal {
	refusal := peer.Refusalf("stopping", "node %d is stopping", n.cfg.NodeID)
	n.call(func() {
		refusal = nil
		if r := n.replica.Admit(replica.Hello(h)); r != nil {
			refusal = peer.Refusalf(peer.RefusalCode(r.Code), "%s", r.Message)
		}
	})
	return refusal
}

// refused notes a refusal. A member that finds this node's data to be not what the
// node once promised on ends it at once (I6): going on could break the promise. Any
// other refusal ends it when no quorum is left that would have it.
func (n *Node) refused(id uint64, by peer.Side, r *peer.Refusal) {
	n.cfg.Metrics.CountPeerRefused()
	if by == peer.Self {
		n.mail.post(func(in *mail) {
			in.calls = append(in.calls, func() { n.refusing[id] = r })
		})
		return
	}
	n.mail.post(func(in *mail) {
		in.calls = append(in.calls, func() {
			n.refusals[id] = r
			if replica.RefusalCode(r.Code).IsFinal() {
				n.fail(fmt.Errorf("node %d was refused by member %d and has stopped: %w", n.cfg.NodeID, id, r))
			} else if n.isHopeless() {
				n.fail(fmt.Errorf("node %d was refused by %d of %d members and has stopped; member %d says: %w",
					n.cfg.NodeID, len(n.refusals), len(n.replica.Members()), id, r))
			}
			n.publish()
		})
	})
}

// isHopeless reports whether so many members refuse this node that the others and it
// are no quorum.
func (n *Node) isHopeless() bool {
	refusing := 0
	for _, m := range n.replica.Members() {
		r := n.refusals[m.ID]
		if r == nil || m.Learner {
			continue
		}
		switch replica.RefusalCode(r.Code) {
		case replica.RefusedCluster, replica.RefusedMember, replica.RefusedSettings:
			refusing++
		}
	}
	voters := n.replica.Voters()
	return refusing > 0 && voters-refusing < voters/2+1
}

// peerAddrs returns where to reach each member.
func (n *Node) peerAddrs() map[uint64]string {
	addrs := map[uint64]string{}
	for _, m := range n.replica.Members() {
		addrs[m.ID] = m.PeerAddr
		if a, ok := n.cfg.Peers[m.ID]; ok {
			addrs[m.ID] = a
		}
	}
	return addrs
}

// handOver asks the replica to transfer its leadership. led is closed once another
// node is known to lead.
func (n *Node) handOver(led chan struct{}) {
	if n.replica.Status().Role != raft.StateLeader || n.replica.Voters() < 2 {
		close(led)
		return
	}
	n.leaders = append(n.leaders, led)
	n.transfer = true
}

// retryHandOver keeps asking for the transfer while someone waits for it: the first
// attempt fails if the other cannot get a majority in time. It gives up when no other
// member is connected.
func (n *Node) retryHandOver(ticks int) {
	if len(n.leaders) == 0 || ticks == 0 {
		return
	}
	for _, p := range n.transport.Peers() {
		if p.Connected {
			n.transfer = true
			return
		}
	}
	n.endHandOvers()
}

// releaseHandOvers tells those who wait that another node leads.
func (n *Node) releaseHandOvers(leader uint64) {
	if leader == raft.None || leader == n.cfg.NodeID {
		return
	}
	n.endHandOvers()
}

func (n *Node) endHandOvers() {
	for _, c := range n.leaders {
		close(c)
	}
	n.leaders = slices.Delete(n.leaders, 0, len(n.leaders))
}
