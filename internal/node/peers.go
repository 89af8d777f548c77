package node

import (
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/wire"
	"github.com/isotone/isotone/internal/host/loop"
	"github.com/isotone/isotone/internal/host/peer"
)

// peerOutputMax bounds what waits for a peer that does not read, in bytes: a snapshot, and 8 MiB. Raft
// keeps a few hundred appends in flight, and past that a message is stale.
const peerOutputMax = wire.MessageSizeMax + 8<<20

// snapshotAfterMax is how much may wait for a peer when a snapshot is sent to it. The replica sends a snapshot again and again
// until it is acknowledged; a large one may still wait here itself.
const snapshotAfterMax = 1 << 20

// peers is what the core knows of the other members' connections. It belongs to the core
// loop's goroutine, but for transport.
type peers struct {
	transport *peer.Transport
	conns     map[uint64]*peerConn
	addrs     map[uint64][]string      // as told to transport
	refusedBy map[uint64]*wire.Refusal // how each peer last refused this node
	refusing  map[uint64]*wire.Refusal // how this node last refused each peer
	// silentSince is when a leader was last heard of, or asked for; see askPeers.
	silentSince time.Duration
	dropped     droppedCount
}

// droppedCount counts messages to peers that were dropped, by reason.
type droppedCount struct{ notConnected, outputFull, unsendable uint64 }

// startPeers accepts and dials the other members. Whether a peer is admitted, and whether a
// refusal ends this node, is decided by the replica, in the core loop.
func (c *core) startPeers() {
	n := c.node
	c.peers = peers{conns: map[uint64]*peerConn{}, refusedBy: map[uint64]*wire.Refusal{}, refusing: map[uint64]*wire.Refusal{}}
	c.peers.transport = peer.New(peer.Config{
		NodeID:   n.cfg.NodeID,
		Listener: n.cfg.PeerListener,
		Hello:    c.hello(),
		Admit: func(h wire.Hello) *wire.Refusal {
			refusal := wire.Refusalf("stopping", "node %d is stopping", oracle.NodeOf(n.cfg.NodeID))
			n.call(func() { refusal = c.admit(h) })
			return refusal
		},
		Security: n.cfg.PeerTLS.security(n.cfg.Log),
		Insecure: n.cfg.PeerInsecure,
		SecurityFailed: func(err error) {
			n.cfg.Metrics.CountPeerHandshakeFailed(handshakeFailure(err))
		},
		Attach: c.attach,
		Connected: func(h wire.Hello) {
			n.post(func() {
				c.next.Hellos = append(c.next.Hellos, replica.Hello(h))
				delete(c.peers.refusedBy, h.NodeID)
				delete(c.peers.refusing, h.NodeID)
			})
		},
		ConnectionRefused: func(id uint64) {
			n.post(func() { c.next.Refused = append(c.next.Refused, id) })
		},
		Refused: func(id uint64, by wire.Side, r *wire.Refusal) {
			n.cfg.Metrics.CountPeerRefused(string(r.Code), by.String())
			if by == wire.Self && (r.Code == wire.RefusedCertificate || r.Code == wire.RefusedClear) {
				n.cfg.Metrics.CountPeerHandshakeFailed(refusedFor(r))
			}
			n.post(func() { c.refused(id, by, r) })
		},
		Log:   n.cfg.Log,
		LogID: oracle.NodeOf,
	})
	c.followAddrs()
}

// hello returns a function that returns what this node says about itself. Once the node is stopping, that is what it said when it
// started: an empty hello would be that of a founder with another list of members, and stop the others.
func (c *core) hello() func() wire.Hello {
	first := wire.Hello(c.replica.Hello())
	return func() wire.Hello {
		h := first
		c.node.call(func() { h = wire.Hello(c.replica.Hello()) })
		return h
	}
}

func (c *core) admit(h wire.Hello) *wire.Refusal {
	if r := c.replica.Admit(replica.Hello(h)); r != nil {
		return wire.Refusalf(wire.RefusalCode(r.Code), "%s", r.Message)
	}
	return nil
}

// refused records a refusal. The replica decides whether this node has to stop.
func (c *core) refused(id uint64, by wire.Side, r *wire.Refusal) {
	if by == wire.Self {
		c.peers.refusing[id] = r
		return
	}
	if r.Code == wire.RefusedWrongNode && c.peers.conns[id] != nil {
		return // it looks for another node here, at an address that is out of date
	}
	c.peers.refusedBy[id] = r
	if err := c.replica.Refused(id, &replica.Refusal{Code: replica.RefusalCode(r.Code), Message: r.Message}); err != nil {
		c.node.fail(err)
	}
	c.changed = true
}

// followAddrs tells the transport where each member may be reached, if that has changed. It dials
// what is on record, and what PEERS says, or the cluster when this node joined it.
func (c *core) followAddrs() {
	cfg := &c.node.cfg
	addrs := map[uint64][]string{}
	if cfg.Join != nil && len(c.replica.Members()) == 0 {
		for id, addr := range cfg.Join.Peers {
			addrs[id] = []string{addr}
		}
	}
	for _, p := range c.replica.PeerAddrs(cfg.configuredAddr) {
		addrs[p.ID] = p.Addrs
	}
	if c.peers.addrs == nil || !maps.EqualFunc(addrs, c.peers.addrs, slices.Equal) {
		c.peers.addrs = addrs
		c.peers.transport.SetPeers(addrs)
	}
}

// askTicks is how long a node hears of no leader before it asks its peers whether it was removed,
// and the time between two such questions, also of a leader: ten of the shortest election timeouts.
const askTicks = 200

// askPeers asks the peers whether this node was removed, if it hears of no leader: a leader may
// refuse it for good, which ends it, and no member dials one that was removed. A leader makes itself known to those that do not dial it: a node that joins
// was told of the members there were then.
func (c *core) askPeers(s *view) {
	heard := s.replica.Leader != raft.None && s.replica.Role != raft.StateLeader && len(c.peers.conns) > 0
	switch {
	case heard || s.replica.Forming != "":
		c.peers.silentSince = c.mono
	case c.mono-c.peers.silentSince >= askTicks*c.node.cfg.Tick:
		c.peers.silentSince = c.mono
		c.peers.transport.Ask()
	}
}

// send queues messages for their peers. They are written at the end of the turn; one for a
// peer without a connection is dropped.
func (p *peers) send(msgs []*raftpb.Message) {
	for len(msgs) > 0 {
		to, run := msgs[0].GetTo(), 1
		for run < len(msgs) && msgs[run].GetTo() == to {
			run++
		}
		if conn := p.conns[to]; conn != nil {
			conn.send(msgs[:run])
		} else {
			p.dropped.notConnected += uint64(run)
		}
		msgs = msgs[run:]
	}
}

// announce sends this node's hello to all connected peers again.
func (p *peers) announce(h replica.Hello) {
	for _, conn := range p.conns {
		conn.write(conn.stream.AppendUpdate(conn.conn.Buffered(), wire.Hello(h)))
	}
}

// sendClock sends the reading of this node's clock to all connected peers.
func (p *peers) sendClock() {
	for _, conn := range p.conns {
		conn.sendClock()
	}
}

// ping keeps connections alive on which nothing was sent for a while, and ends those of peers
// that have been silent for longer than any peer is. The loop would wait as long again for one
// whose buffers are full.
func (p *peers) ping() {
	for _, conn := range p.conns {
		now := conn.core.loop.Now()
		if now-conn.heard > conn.stream.StallTimeout() {
			conn.conn.Abort(errSilent)
			continue
		}
		if now-conn.sent >= conn.stream.PingInterval() {
			conn.write(wire.AppendPing(conn.conn.Buffered()))
		}
	}
}

// errSilent: a peer sent nothing for peer.Stream.StallTimeout.
var errSilent = errors.New("the peer is silent")

// peerConn is the connection to one peer, in the core loop. It implements loop.Handler.
type peerConn struct {
	core   *core
	stream *peer.Stream
	conn   *loop.Conn
	// carries: the peer takes requests of operators; see carry.go. mayCarry: this node takes them from the peer, which has
	// proven who it is.
	carries, mayCarry bool
	// sent and heard are when something was sent and received last, by the loop's clock.
	sent, heard time.Duration
}

// attach moves an admitted connection into the core loop; see peer.Config.Attach.
func (c *core) attach(nc net.Conn, s *peer.Stream) (stop func(error), err error) {
	p := &peerConn{core: c, stream: s}
	if !c.node.post(func() { p.open(nc) }) {
		return nil, errStopped
	}
	return func(cause error) {
		c.node.post(func() {
			if p.conn != nil {
				p.conn.Abort(cause)
			}
		})
	}, nil
}

func (p *peerConn) open(nc net.Conn) {
	stall := p.stream.StallTimeout()
	socket, secured := nc, false
	if s, ok := nc.(*securedConn); ok {
		socket, secured = s.NetConn(), true
	}
	p.mayCarry = secured || p.core.node.cfg.PeerInsecure || p.core.node.cfg.CarryInPlaintext
	conn, err := p.core.loop.Attach(socket, nil, loop.Limits{
		PartialTimeout: stall, IdleTimeout: stall, WriteTimeout: stall, OutputMax: 2 * peerOutputMax,
	}, p)
	if err != nil {
		_ = nc.Close()
		p.stream.Ended(err)
		return
	}
	p.conn, p.sent, p.heard = conn, p.core.loop.Now(), p.core.loop.Now()
	p.stream.OnClock(p.hearClock)
	p.stream.OnUpdate(p.updated)
	p.stream.OnClockAsk(p.askedClock)
	p.stream.OnClockTold(p.toldClock)
	p.stream.OnOwnerAsk(p.askedByOwner)
	p.stream.OnOwnerTold(p.toldOwner)
	p.stream.OnCarry(p.carried)
	p.stream.OnCarryAnswer(p.carryAnswered)
	if secured {
		nc.(*securedConn).Enter(conn)
	}
	p.core.peers.conns[p.stream.Peer()] = p
	p.sendClock()
	if p.mayCarry {
		p.write(wire.AppendCarryGreeting(conn.Buffered()))
	}
	if _, err := p.Data(conn, nil); err != nil { // what came with the handshake
		conn.Abort(err)
	}
}

// Data adds messages to the input of the next turn; see loop.Handler.
func (p *peerConn) Data(_ *loop.Conn, b []byte) (used int, err error) {
	p.heard = p.core.loop.Now()
	in := &p.core.next
	in.Messages, err = p.stream.Parse(in.Messages, b)
	return len(b), err
}

// Closed tells the transport; see loop.Handler.
func (p *peerConn) Closed(_ *loop.Conn, err error) {
	if conns := p.core.peers.conns; conns[p.stream.Peer()] == p {
		delete(conns, p.stream.Peer())
		p.core.next.Gone = append(p.core.next.Gone, p.stream.Peer())
		p.core.carrying.lost(p)
	}
	if err == nil {
		err = io.EOF
	}
	p.stream.Ended(err)
}

// hearClock takes in the reading of the peer's clock.
func (p *peerConn) hearClock(wall int64) {
	in := &p.core.next
	in.Clocks = append(in.Clocks, replica.PeerClock{ID: p.stream.Peer(), Wall: wall})
}

// updated takes in a hello that replaces the one of the handshake.
func (p *peerConn) updated(h wire.Hello) {
	if r := p.core.admit(h); r != nil {
		p.core.peers.refusing[h.NodeID] = r
		p.conn.Abort(r)
		return
	}
	in := &p.core.next
	in.Hellos = append(in.Hellos, replica.Hello(h))
}

// sendClock sends the reading of this node's clock.
func (p *peerConn) sendClock() {
	p.write(wire.AppendClock(p.conn.Buffered(), int64(unixNanos(p.core.node.cfg.Clock.Wall()))))
}

func (p *peerConn) send(msgs []*raftpb.Message) {
	b := p.conn.Buffered()
	sealed := p.conn.Unwritten() - len(b) // by TLS
	dropped := &p.core.peers.dropped
	for _, m := range msgs {
		switch waiting := sealed + len(b); {
		case waiting >= peerOutputMax:
			dropped.outputFull++
			continue
		case waiting >= snapshotAfterMax && m.GetType() == raftpb.MsgSnap:
			continue
		}
		before := len(b)
		if b = p.stream.Append(b, m); len(b) == before {
			dropped.unsendable++
		}
	}
	p.write(b)
}

// full reports whether too much waits for the peer to add what may be left out.
func (p *peerConn) full() bool { return p.conn.Unwritten() >= peerOutputMax }

// write replaces the output by b, which begins with what it was.
func (p *peerConn) write(b []byte) {
	p.conn.SetBuffered(b)
	p.sent = p.core.loop.Now()
}
