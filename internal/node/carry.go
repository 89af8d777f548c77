package node

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/wire"
	"github.com/isotone/isotone/internal/front"
)

// Requests of operators that only the leader can answer, on their way between members. The member that is asked has found out
// who asks, and that this is an operator; the leader believes members that have proven to be one.

// carriedMax bounds the requests that a leader carries out for other members at a time, and those of this node that wait for
// the leader.
const carriedMax = 32

// carriedTimeout bounds one request of another member, which does not wait longer.
const carriedTimeout = 9 * time.Second

// Answers of the leader's node itself.
const (
	tooManyCarried  = `{"error":{"code":"overloaded","message":"the leader has too many requests of operators"}}`
	notByMember     = `{"error":{"code":"forbidden","message":"the leader takes requests of operators only from members with a certificate (PEER_TLS_CERT)"}}`
	tooLargeCarried = `{"error":{"code":"internal","message":"the answer is too large to be passed on; ask the leader itself"}}`
)

// carrying is what passes operators' requests on. It belongs to the core loop's goroutine.
type carrying struct {
	nonce   uint64
	waiting map[uint64]*carried
	running int // requests of other members
}

// carried is a request that waits for the leader's answer.
type carried struct {
	to     *peerConn
	answer chan carriedAnswer // has room for it
}

type carriedAnswer struct {
	status int
	body   []byte
	err    error
}

// OperateBy has requests that other members pass on to this node be answered by f, on goroutines of their own.
func (n *Node) OperateBy(f func(ctx context.Context, c front.Carried) (status int, body []byte)) {
	n.operates.Store(&f)
}

// Carry passes a request of an operator on to the leader; see front.Carrier.
func (n *Node) Carry(ctx context.Context, r front.Carried) (status int, body []byte, err error) {
	var w *carried
	var nonce uint64
	if !n.call(func() { w, nonce, err = n.core.carry(r) }) {
		return 0, nil, errStopped
	}
	if err != nil {
		return 0, nil, err
	}
	select {
	case a := <-w.answer:
		return a.status, a.body, a.err
	case <-n.hosts[0].Done():
		return 0, nil, errStopped
	case <-ctx.Done():
		n.post(func() { delete(n.core.carrying.waiting, nonce) })
		return 0, nil, isotone.Errorf(isotone.CodeDeadlineExceeded, "the leader did not answer in time: it may still happen; look before you try again")
	}
}

// carry sends a request to the leader.
func (c *core) carry(r front.Carried) (w *carried, nonce uint64, err error) {
	s, k := c.replica.Status(), &c.carrying
	conn := c.peers.conns[s.Leader]
	switch {
	case s.Leader == raft.None || s.Role == raft.StateLeader:
		return nil, 0, isotone.ErrNoLeader
	case conn == nil:
		return nil, 0, isotone.Errorf(isotone.CodeNoLeader, "this node is not connected to node %d, which leads", oracle.NodeOf(s.Leader))
	case !conn.carries:
		return nil, 0, c.node.askLeader() // or its version does not know such requests
	case len(k.waiting) >= carriedMax || conn.full():
		return nil, 0, isotone.ErrOverloaded
	}
	b, err := wire.AppendCarry(conn.conn.Buffered(), k.nonce+1, &wire.Carry{Who: r.Who, Method: r.Method, Target: r.Target, Body: r.Body})
	if err != nil {
		return nil, 0, isotone.Errorf(isotone.CodeInvalidArgument, "the request is too large to be passed on to the leader")
	}
	k.nonce++
	if k.waiting == nil {
		k.waiting = map[uint64]*carried{}
	}
	w = &carried{to: conn, answer: make(chan carriedAnswer, 1)}
	k.waiting[k.nonce] = w
	conn.write(b)
	return w, k.nonce, nil
}

// carryAnswered takes in the leader's answer.
func (p *peerConn) carryAnswered(nonce uint64, status uint16, body []byte) {
	k := &p.core.carrying
	switch {
	case nonce == 0: // wire.AppendCarryGreeting
		p.carries = true
		return
	case nonce == toldNonce:
		if told := p.core.node.cfg.Told; told != nil && p.isMember() {
			told(body)
		}
		return
	}
	if w := k.waiting[nonce]; w != nil && w.to == p {
		delete(k.waiting, nonce)
		w.answer <- carriedAnswer{int(status), bytes.Clone(body), nil}
	}
}

// lost ends the wait for answers on a connection that has ended.
func (k *carrying) lost(p *peerConn) {
	for nonce, w := range k.waiting {
		if w.to == p {
			delete(k.waiting, nonce)
			w.answer <- carriedAnswer{err: isotone.Errorf(isotone.CodeNoLeader, "the connection to the leader ended before it answered: it may or may not have happened; look, and try again")}
		}
	}
}

// isMember reports whether the other side is a member now: one that was removed may still be connected.
func (p *peerConn) isMember() bool {
	return slices.ContainsFunc(p.core.replica.Members(), func(m replica.Member) bool { return m.ID == p.stream.Peer() })
}

// carried has a request of another member carried out.
func (p *peerConn) carried(nonce uint64, r *wire.Carry) {
	c := p.core
	if !p.mayCarry || !p.isMember() {
		p.write(wire.AppendCarryAnswer(p.conn.Buffered(), nonce, http.StatusForbidden, []byte(notByMember)))
		return
	}
	operate := c.node.operates.Load()
	if operate == nil || c.carrying.running >= carriedMax {
		p.write(wire.AppendCarryAnswer(p.conn.Buffered(), nonce, http.StatusServiceUnavailable, []byte(tooManyCarried)))
		return
	}
	c.carrying.running++
	who := fmt.Sprintf("%s, by node %d", r.Who, oracle.NodeOf(p.stream.Peer())) // what the member says, and which one does
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), carriedTimeout)
		defer cancel()
		status, body := (*operate)(ctx, front.Carried{Who: who, Method: r.Method, Target: r.Target, Body: r.Body})
		if len(body) > wire.CarryAnswerMax {
			status, body = http.StatusInternalServerError, []byte(tooLargeCarried)
		}
		c.node.post(func() {
			c.carrying.running--
			if c.peers.conns[p.stream.Peer()] == p {
				p.write(wire.AppendCarryAnswer(p.conn.Buffered(), nonce, uint16(status), body))
			}
		})
	}()
}
