package node

import (
	"io"
	"net"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/host/loop"
	"github.com/isotone/isotone/internal/host/peer"
)

// peerOutputMax bounds what waits for a peer that does not read. Raft keeps a few
// hundred appends in flight, and past that a message is stale.
const peerOutputMax = 8 << 20

// peerConn is the connection to one peer, in the loop. It implements loop.Handler.
type peerConn struct {
	node   *Node
	stream *peer.Stream
	conn   *loop.Conn
	sent   time.Duration // when something was sent last, by the loop's clock
}

// carry takes an admitted connection into the loop; see peer.Config.Attach.
func (n *Node) carry(nc net.Conn, s *peer.Stream) (stop func(error), err error) {
	p := &peerConn{node: n, stream: s}
	if !n.mail.post(func(in *mail) { in.calls = append(in.calls, func() { p.open(nc) }) }) {
		return nil, errStopped
	}
	return func(cause error) {
		n.mail.post(func(in *mail) {
			in.calls = append(in.calls, func() {
				if p.conn != nil {
					p.conn.Abort(cause)
				}
			})
		})
	}, nil
}

func (p *peerConn) open(nc net.Conn) {
	n, stall := p.node, p.stream.StallTimeout()
	c, err := n.loop.Adopt(nc, nil, loop.Limits{
		PartialTimeout: stall, IdleTimeout: stall, WriteTimeout: stall, OutputMax: 2 * peerOutputMax,
	}, p)
	if err != nil {
		_ = nc.Close()
		p.stream.Ended(err)
		return
	}
	p.conn, p.sent = c, n.loop.Now()
	p.stream.OnClock(p.hearClock)
	p.stream.OnUpdate(p.updated)
	n.links[p.stream.Peer()] = p
	p.tellClock()
	if _, err := p.Data(c, nil); err != nil { // what came with the handshake
		c.Abort(err)
	}
}

// Data takes messages in; see loop.Handler.
func (p *peerConn) Data(_ *loop.Conn, b []byte) (used int, err error) {
	p.node.arrived, err = p.stream.Parse(p.node.arrived, b)
	return len(b), err
}

// Closed tells the transport; see loop.Handler.
func (p *peerConn) Closed(_ *loop.Conn, err error) {
	if n := p.node; n.links[p.stream.Peer()] == p {
		delete(n.links, p.stream.Peer())
	}
	if err == nil {
		err = io.EOF
	}
	p.stream.Ended(err)
}

// send hands messages to their peers. They are written at the end of the turn.
func (n *Node) send(msgs []*raftpb.Message) {
	for len(msgs) > 0 {
		to, run := msgs[0].GetTo(), 1
		for run < len(msgs) && msgs[run].GetTo() == to {
			run++
		}
		if p := n.links[to]; p != nil {
			p.send(msgs[:run])
		}
		msgs = msgs[run:]
	}
}

func (p *peerConn) send(msgs []*raftpb.Message) {
	b := p.conn.Buffered()
	for _, m := range msgs {
		if len(b) < peerOutputMax {
			b = p.stream.Append(b, m)
		}
	}
	p.conn.SetBuffered(b)
	p.sent = p.node.loop.Now()
}

// ping keeps links alive on which nothing was sent for a while.
func (n *Node) ping() {
	for _, p := range n.links {
		if n.loop.Now()-p.sent >= p.stream.PingInterval() {
			p.conn.SetBuffered(peer.AppendPing(p.conn.Buffered()))
			p.sent = n.loop.Now()
		}
	}
}
