package client

import (
	"bufio"
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/reply"
)

// This file finds the leader.
//
// A search begins when the leader has failed, refused or been silent. It asks all members at
// once, each in a goroutine of its own, so that one that hangs delays none of the others, and
// again after pauses from backoffMin on. There is one search for all calls, however many wait. A
// node that says that it leads is followed at once; one that names another leader may not have
// noticed yet that this leader is down: see accepts.

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

// ask asks all members for the leader, unless the pause since the last time is not over.
func (r *router) ask(now time.Time) time.Duration {
	if wait := r.askAfter.Sub(now); wait > 0 {
		return wait
	}
	if r.rounds == 0 {
		r.begun = now
	}
	r.forget()
	for _, addr := range r.known() {
		r.question(addr)
	}
	pause := backoffTo(r.rounds, r.pauseMax(now))
	r.rounds++
	r.asked, r.askAfter = now, now.Add(pause)
	return pause
}

// pauseMax bounds the pauses of the search.
func (r *router) pauseMax(now time.Time) time.Duration {
	if r.suspected && now.Sub(r.begun) < searchEager {
		return searchPauseMax
	}
	return backoffMax
}

// question asks one node for the leader and the members, unless it is asked already, or has just
// refused this client.
func (r *router) question(addr string) {
	if h := r.host(addr); !h.asking && !time.Now().Before(h.askAfter) {
		kept := h.inquiry
		h.asking, h.inquiry = true, nil
		r.c.work.Go(func() { r.c.askView(addr, kept) })
	}
}

// askView asks a node for the leader and the members, and posts the answer to the router.
func (c *Client) askView(addr string, kept *inquiry) {
	ctx, cancel := context.WithTimeout(c.ctx, c.opt.DialTimeout)
	defer cancel()
	v, q, err := c.inquire(ctx, addr, kept)
	var seen view
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
func (r *router) answered(addr string, seen view, q *inquiry, err error) {
	h := r.host(addr)
	h.asking = false
	if r.reported(h, err); err == nil {
		q = r.heard(addr, &seen, q)
	}
	if q != nil && r.suspected {
		h.inquiry = q // else step closes it
	} else {
		q.close()
	}
}

// heard takes in what a node says about the cluster. It returns the inquiry, unless its connection
// has become one for timestamps.
func (r *router) heard(addr string, seen *view, q *inquiry) *inquiry {
	r.learn(addr, seen)
	r.publish()
	for _, cn := range r.conns(r.c.ids) {
		if !slices.Contains(r.members, cn.addr) {
			_ = cn.netConn.Close()
		}
	}
	switch {
	case seen.leader == r.leader:
		r.confirmed(addr)
	case r.suspected && r.accepts(addr, seen.leader, time.Now()):
		r.follow(seen.leader)
	}
	if addr == seen.leader && addr == r.leader && q != nil && r.suspected && r.adopt(addr, q) {
		return nil
	}
	return q
}

// adopt makes the inquiry of the leader a connection for timestamps, unless there are enough, or its
// connections have just failed. So the first request does not wait for a new connection.
func (r *router) adopt(addr string, q *inquiry) bool {
	h := r.host(addr)
	have := h.dialing[forStamps]
	for _, cn := range h.conns {
		if cn.pool == r.c.stamps {
			have++
		}
	}
	if have >= r.c.opt.Conns || time.Now().Before(h.retry[forStamps]) {
		return false
	}
	r.c.stamps.measured(q.took)
	r.attach(r.c.stamps, addr, q.conn, q.read)
	return true
}

// learn takes in the members that a node has reported. Those of a leader are all there are. Other
// nodes may have been removed without knowing it, or have joined just now: what they report adds
// to the list, and the next report of the leader ends that.
func (r *router) learn(addr string, seen *view) {
	list := seen.members
	if addr != seen.leader {
		list = slices.Concat(r.members, seen.members)
		slices.Sort(list)
		list = slices.Compact(list)
	}
	if len(list) > membersMax {
		list = seen.members
	}
	r.members = list
}

// accepts reports whether to follow a node that names a leader other than the suspected
// one. A node that names itself is at least alive. Others may not have noticed yet that
// their leader is down, so their answers count neither against a leader that the client is
// still connecting to, nor for one that has failed.
func (r *router) accepts(addr, leader string, now time.Time) bool {
	if r.leader == "" || addr == leader {
		return true
	}
	connecting := r.connects && !now.Before(r.host(r.leader).retry[forStamps])
	h := r.host(leader)
	return !connecting && !now.Before(h.retry[forStamps]) && !now.Before(h.leftUntil)
}

// confirmed: addr names the leader that is already known. Others than that leader itself may not
// have noticed yet that it is down, so only its own word ends the search; its silent connections
// are broken then. It is suspected again as soon as it is silent or refuses.
func (r *router) confirmed(addr string) {
	if addr != r.leader {
		return
	}
	_, timeout := r.c.stamps.activity()
	limit := max(giveUpFactor*timeout, giveUpMin)
	conns := 0
	for _, cn := range r.host(r.leader).conns {
		if cn.pool == r.c.ids {
			continue
		}
		conns++
		if cn.silent(r.c.now()) > limit {
			r.giveUp(cn)
		}
	}
	if conns > 0 {
		r.suspected = false
	}
}
