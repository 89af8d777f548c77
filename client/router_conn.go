package client

import (
	"bufio"
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/isotone/isotone/internal/core/search"
	"github.com/isotone/isotone/internal/reply"
)

// This file opens and closes the connections of the pools.

const (
	// A connection may be silent for giveUpFactor times the answer timeout, but at least
	// giveUpMin, while the leader answers on another one.
	giveUpFactor = 10
	giveUpMin    = time.Second
)

// conns returns the connections of a pool.
func (r *router) conns(p *pool) (list []*conn) {
	for _, h := range r.hosts {
		for _, cn := range h.conns {
			if cn.pool == p {
				list = append(list, cn)
			}
		}
	}
	return list
}

func (r *router) closeAll() {
	r.hangUp()
	for _, h := range r.hosts {
		for _, cn := range h.conns {
			_ = cn.netConn.Close()
		}
	}
}

// giveUp closes a silent connection. Its request is sent again on another one.
func (r *router) giveUp(cn *conn) {
	cn.pool.backOff()
	_ = cn.netConn.Close()
}

// connect dials until there are want connections to an address. It returns how long to wait
// before the next attempt.
func (r *router) connect(now time.Duration, p *pool, addr string, want int) time.Duration {
	h, at := r.host(addr), p.use()
	have := h.dialing[at]
	for _, cn := range h.conns {
		if cn.pool == p {
			have++
		}
	}
	if have >= want {
		return 0
	}
	if wait := r.dialWait(p, addr, now); wait > 0 {
		return wait
	}
	for range want - have {
		h.dialing[at]++
		r.c.work.Go(func() { r.c.dial(p, addr) })
	}
	return 0
}

// dialWait returns how long to wait before the next dial, if that is positive.
func (r *router) dialWait(p *pool, addr string, now time.Duration) time.Duration {
	if p.node != nil {
		return p.node.dialing.after - now
	}
	return r.search.DialWait(addr, p.use(), now)
}

// dial opens a connection for a pool, and posts the result to the router.
func (c *Client) dial(p *pool, addr string) {
	ctx, cancel := context.WithTimeout(c.ctx, c.opt.DialTimeout)
	defer cancel()
	conn, read, err := c.open(ctx, addr)
	if err == nil {
		// A frozen machine accepts connections too, so a PING must be answered.
		var pong reply.Value
		begin := c.now()
		if pong, err = c.handshake(ctx, conn, read, addr, "PING"); err == nil && string(pong.Text) != "PONG" {
			err = reply.Malformed("%.40q to PING", pong.Text)
		}
		if err == nil {
			p.measured(c.now() - begin)
		} else {
			_ = conn.Close()
		}
	}
	if err != nil && c.ctx.Err() == nil {
		c.trouble.note(addr, err)
	}
	select {
	case c.events <- func(r *router) { r.dialed(p, addr, conn, read, err) }:
	case <-c.ctx.Done():
		if err == nil {
			_ = conn.Close()
		}
	}
}

// dialed handles a new connection, or the error of the attempt.
func (r *router) dialed(p *pool, addr string, conn net.Conn, read *bufio.Reader, err error) {
	h, at := r.host(addr), p.use()
	h.dialing[at]--
	r.reported(h, err)
	switch {
	case p.node != nil && err != nil:
		r.lineFailed(p)
		return
	case p.node != nil:
		r.attach(p, addr, conn, read)
		return
	case err != nil:
		r.failed(addr, at, r.search.DialPauseMax(r.c.now()))
		return
	}
	if p != r.c.ids && addr != r.search.Leader() || p == r.c.ids && !slices.Contains(r.search.Members(), addr) {
		_ = conn.Close()
		return
	}
	r.search.Dialed(addr, at)
	isNews := p == r.c.stamps && r.search.Connecting()
	if r.attach(p, addr, conn, read); isNews {
		r.question(addr) // it may have other members than the leader before it
	}
}

// attach adds a connection to a pool.
func (r *router) attach(p *pool, addr string, conn net.Conn, read *bufio.Reader) {
	h := r.host(addr)
	cn := newConn(p, addr, conn, read)
	h.conns = append(h.conns, cn)
	if p == r.c.direct {
		p.put(cn)
		return
	}
	if p == r.c.stamps {
		r.connected(addr) // first: nothing is answered before Hooks.Leader
	}
	if p.node != nil {
		r.c.timelines.reached(p)
	}
	r.c.work.Go(cn.run)
	if cn.writes != nil {
		r.c.work.Go(cn.write)
	}
}

// connected: there is a connection to the leader.
func (r *router) connected(addr string) {
	if !r.search.Connected() {
		return
	}
	if r.c.opt.Hooks.Leader != nil {
		r.c.opt.Hooks.Leader(addr)
	}
	select {
	case <-r.c.led:
	default:
		close(r.c.led)
	}
}

// failed: the address cannot be reached, or its connections are unusable. The pause before the
// next attempt is most, or longer where it is not urgent.
func (r *router) failed(addr string, at search.Use, most time.Duration) {
	switch {
	case at != search.IDs, r.search.Outcome(addr) == search.Refuses:
	case len(r.conns(r.c.ids)) > 0:
		most = memberBackoffMax
	case r.search.Leader() != "":
		r.question(r.search.Leader()) // there may be new members
	}
	if r.search.Failed(addr, at, most, r.c.now()) {
		r.c.stamps.suspected.Store(true)
	}
}

// connEnded is the last event of a connection.
func (r *router) connEnded(cn *conn, err error) {
	h, at := r.host(cn.addr), cn.pool.use()
	h.conns = slices.DeleteFunc(h.conns, func(other *conn) bool { return other == cn })
	if cn.pool.node != nil {
		r.lineEnded(cn)
		return
	}
	// A connection that never answered counts as a failed dial. Otherwise a node that
	// hangs up at once would be dialed without pause.
	switch {
	case (at == search.IDs || at == search.Ahead) && errors.Is(err, net.ErrClosed), !cn.answered.Load():
		r.failed(cn.addr, at, search.PauseMax)
	case at != search.IDs:
		r.suspect(cn.addr)
	}
	if at == search.IDs && len(r.conns(r.c.ids)) == 0 {
		r.search.Hurry(at, r.c.now()) // now every member is needed
	}
}
