package client

import (
	"bufio"
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/search"
	"github.com/isotone/isotone/internal/reply"
)

// This file asks nodes for the leader, when and as internal/core/search says: each in a goroutine of
// its own, so that one that hangs delays none of the others. There is one search for all calls,
// however many wait.

// inquiry is a connection for questions. It is kept for the next question of the same search, so
// that a search costs the nodes a command and not a connection each time. If the node leads, it
// becomes the first connection for timestamps.
type inquiry struct {
	conn net.Conn
	read *bufio.Reader
	took time.Duration // the latest question
}

// close closes an inquiry that may be nil.
func (q *inquiry) close() {
	if q != nil {
		_ = q.conn.Close()
	}
}

// hangUp closes the inquiries that are kept.
func (r *router) hangUp() {
	for _, h := range r.hosts {
		h.inquiry.close()
		h.inquiry = nil
	}
}

// question asks one node for the leader and the members, unless it is asked already, or has just
// refused this client.
func (r *router) question(addr string) {
	if r.search.Question(addr, r.c.now()) {
		r.ask(addr)
	}
}

// ask asks a node, whatever is known of it.
func (r *router) ask(addr string) {
	h := r.host(addr)
	kept := h.inquiry
	h.inquiry = nil
	r.c.work.Go(func() { r.c.askView(addr, kept) })
}

// askView asks a node for the leader and the members, and posts the answer to the router.
func (c *Client) askView(addr string, kept *inquiry) {
	ctx, cancel := context.WithTimeout(c.ctx, c.opt.DialTimeout)
	defer cancel()
	v, q, err := c.inquire(ctx, addr, kept)
	var seen search.View
	if err == nil {
		seen, err = viewOf(v, addr)
	}
	if err != nil && c.ctx.Err() == nil {
		c.trouble.note(addr, err)
	}
	select {
	case c.events <- func(r *router) { r.answered(addr, seen, q, err) }:
	case <-c.ctx.Done():
		q.close()
	}
}

// inquire asks on a kept connection or, if there is none or it has ended, on a new one, where the
// question does not wait for other requests. It is sent before the node's cluster is known; it is
// harmless in any cluster. The inquiry is nil if its connection is unusable from then on.
func (c *Client) inquire(ctx context.Context, addr string, kept *inquiry) (v reply.Value, q *inquiry, err error) {
	if kept != nil {
		v, q, err = kept.exchange(ctx, c, c.now(), appendCommand(nil, "CLUSTER", "SLOTS"))
		if q != nil || ctx.Err() != nil {
			return v, q, err
		}
	}
	conn, read, err := c.open(ctx, addr)
	if err != nil {
		return v, nil, err
	}
	begin := c.now()
	if err = c.greet(ctx, conn, read, addr, "CLUSTER", "SLOTS"); err != nil {
		_ = conn.Close()
		return v, nil, err
	}
	return (&inquiry{conn: conn, read: read}).exchange(ctx, c, begin, nil)
}

// exchange writes a question, unless that was done at begin, and reads the answer.
func (q *inquiry) exchange(ctx context.Context, c *Client, begin time.Duration, question []byte) (v reply.Value, _ *inquiry, err error) {
	err = within(ctx, q.conn, func() (err error) {
		if len(question) > 0 {
			if _, err = q.conn.Write(question); err != nil {
				return err
			}
		}
		v, err = readReply(q.read)
		return err
	})
	q.took = c.now() - begin
	// The connection is as good as before if the node answered, if only with a refusal that may pass.
	var refusal *isotone.Error
	if q.read.Buffered() == 0 && (err == nil || errors.As(err, &refusal) && transient(refusal.Code)) {
		return v, q, err
	}
	q.close()
	return v, nil, refusedClient(err)
}

// answered handles a node's answer to askView. q is nil if there is no usable connection.
func (r *router) answered(addr string, seen search.View, q *inquiry, err error) {
	h := r.host(addr)
	r.search.Answered(addr)
	if r.reported(h, err); err == nil {
		q = r.heard(addr, seen, q)
	}
	if q != nil && r.search.Suspects() {
		h.inquiry = q // else step closes it
	} else {
		q.close()
	}
}

// heard takes in what a node says about the cluster. It returns the inquiry, unless its connection
// has become one for timestamps.
func (r *router) heard(addr string, seen search.View, q *inquiry) *inquiry {
	verdict := r.search.Heard(addr, seen, r.c.now())
	r.publish()
	for _, cn := range r.conns(r.c.ids) {
		if !slices.Contains(r.search.Members(), cn.addr) {
			_ = cn.netConn.Close()
		}
	}
	switch verdict {
	case search.Confirmed:
		r.confirmed(addr)
	case search.Followed:
		r.followed()
	}
	if addr == seen.Leader && addr == r.search.Leader() && q != nil && r.search.Suspects() && r.adopt(addr, q) {
		return nil
	}
	return q
}

// adopt makes the inquiry of the leader a connection for timestamps, unless there are enough, or its
// connections have just failed. So the first request does not wait for a new connection.
func (r *router) adopt(addr string, q *inquiry) bool {
	h := r.host(addr)
	have := h.dialing[search.Stamps]
	for _, cn := range h.conns {
		if cn.pool == r.c.stamps {
			have++
		}
	}
	if have >= r.c.opt.Conns || r.search.DialWait(addr, search.Stamps, r.c.now()) > 0 {
		return false
	}
	r.c.stamps.measured(q.took)
	r.attach(r.c.stamps, addr, q.conn, q.read)
	return true
}

// confirmed: the leader says that it leads. Its silent connections are broken then.
func (r *router) confirmed(leader string) {
	_, timeout := r.c.stamps.activity()
	limit := max(giveUpFactor*timeout, giveUpMin)
	conns := 0
	for _, cn := range r.host(leader).conns {
		if cn.pool != r.c.stamps && cn.pool != r.c.direct {
			continue
		}
		conns++
		if cn.silent(r.c.now()) > limit {
			r.giveUp(cn)
		}
	}
	if conns > 0 {
		r.search.Confirm()
	}
}
