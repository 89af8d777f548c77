package node

import (
	"slices"

	"go.etcd.io/raft/v3"

	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/host/peer"
)

// newTransport wires the peers to the mailbox. What is decided about a peer is
// decided by the replica, on the loop's goroutine.
func (n *Node) newTransport() *peer.Transport {
	t := peer.New(peer.Config{
		NodeID:   n.cfg.NodeID,
		Listener: n.cfg.PeerListener,
		Hello:    n.hello,
		Admit:    n.admit,
		Attach:   n.carry,
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

// refused notes a refusal. Whether this node has to stop is for the replica to say.
func (n *Node) refused(id uint64, by peer.Side, r *peer.Refusal) {
	n.cfg.Metrics.CountPeerRefused()
	n.mail.post(func(in *mail) {
		in.calls = append(in.calls, func() {
			if by == peer.Self {
				n.refusing[id] = r
				return
			}
			n.refusals[id] = r
			if err := n.replica.Refused(id, &replica.Refusal{Code: replica.RefusalCode(r.Code), Message: r.Message}); err != nil {
				n.fail(err)
			}
			n.changed = true
		})
	})
}

// updated takes in a hello that replaces the one of a peer's handshake.
func (p *peerConn) updated(h peer.Hello) {
	n := p.node
	if r := n.replica.Admit(replica.Hello(h)); r != nil {
		n.refusing[h.NodeID] = peer.Refusalf(peer.RefusalCode(r.Code), "%s", r.Message)
		p.conn.Abort(r)
		return
	}
	n.hellos = append(n.hellos, replica.Hello(h))
}

// announceHello tells all connected peers this node's hello again.
func (n *Node) announceHello() {
	h := peer.Hello(n.replica.Hello())
	for _, p := range n.links {
		p.conn.SetBuffered(p.stream.AppendUpdate(p.conn.Buffered(), h))
		p.sent = n.loop.Now()
	}
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
