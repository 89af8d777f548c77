package client

import (
	"context"

	"github.com/isotone/isotone"
)

// A direct call, made while no other call is under way, writes and reads on its own
// goroutine, on a reserved connection: being woken by another goroutine would take a fifth
// longer. Anything but a timestamp (an error answer, the end of the connection, silence, a
// context that is done) closes the connection, except for the refusals of isLimit, and the call
// joins a batch, which handles failures. So the only failure of a direct call itself is a timestamp out of order.
//
// The pool of these connections, Client.direct, has one connection and no queues.

// uncontended reports whether there seem to be no other calls: the latest batch had one
// call, and nothing is under way.
func (p *pool) uncontended() bool {
	return p.recent.Load() <= 1 && int(p.nfree.Load()) >= p.client.opt.Conns
}

// takeFree takes a free connection, or returns nil.
func (p *pool) takeFree() *conn {
	if p.nfree.Load() == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.free) - 1
	if last < 0 {
		return nil
	}
	cn := p.free[last]
	p.free = p.free[:last]
	p.nfree.Store(int32(last))
	p.sent++ // before the router may stop watching
	return cn
}

// ask makes a direct call. It reports false, without an error, if the call must join a batch
// instead.
func (p *pool) ask(ctx context.Context, k kind) (isotone.Timestamp, bool, error) {
	if ctx.Done() != nil && ctx.Err() != nil {
		return isotone.Timestamp{}, false, nil
	}
	cn := p.takeFree()
	if cn == nil {
		return isotone.Timestamp{}, false, nil
	}
	b := &cn.own
	b.kind, b.trace = k, p.client.traceparent(ctx)
	b.state.Store(stateSealed | stateCall | 1)
	b.line = appendRequest(b.buf[:0], k, 1)
	line := cn.line(b)
	begun := p.client.now()
	cn.since.Store(int64(begun))
	cn.pending.Store(b)
	p.watch()
	stop := func() bool { return true }
	if ctx.Done() != nil {
		stop = context.AfterFunc(ctx, func() { _ = cn.netConn.Close() })
	}
	err := cn.exchange(line)
	for cn.older(b, err) && cn.read.Buffered() == 0 { // at most once for each option
		err = cn.exchange(cn.line(b))
	}
	cn.pending.Store(nil)
	if !stop() || err != nil && !isLimit(err) || cn.read.Buffered() > 0 {
		p.discard(cn, err)
		return isotone.Timestamp{}, false, nil
	}
	if err != nil {
		p.put(cn)
		return isotone.Timestamp{}, false, nil
	}
	if err := p.client.inOrder(cn.addr, b); err != nil {
		p.discard(cn, err)
		return isotone.Timestamp{}, false, err
	}
	took := p.client.now() - begun
	p.measured(took)
	cn.answered.Store(true)
	p.client.notifyAnswered(cn, b, took)
	if stamps := p.client.stamps; stamps.suspected.Load() && stamps.suspected.CompareAndSwap(true, false) {
		p.client.post(func(r *router) { r.recovered(cn) })
	}
	first := b.first
	p.put(cn) // b belongs to the next call from here on
	return first, true, nil
}

// isLimit reports whether err is a refusal after which the connection is as good as before.
func isLimit(err error) bool {
	refusal, ok := err.(*isotone.Error)
	return ok && (refusal.Code == isotone.CodeForbidden || refusal.Code == isotone.CodeQuotaExceeded)
}

// exchange writes a request and reads the answer.
func (cn *conn) exchange(line []byte) error {
	if _, err := cn.netConn.Write(line); err != nil {
		return err
	}
	return readAnswer(cn.read, &cn.own)
}

// discard closes an unusable connection.
func (p *pool) discard(cn *conn, err error) {
	_ = cn.netConn.Close()
	p.drop(cn)
	p.client.post(func(r *router) { r.connEnded(cn, err) })
}
