package client

import (
	"context"

	"github.com/isotone/isotone"
)

// A lone call, one that finds nobody else calling, takes a connection of its own, on
// which it writes and reads by itself: to be woken by another goroutine would take a fifth
// longer. The connection is there for answers only. Whatever else happens on it (an error
// answer, an end, silence, a context that is done) closes it, and the call goes the
// usual way, which knows what to do; so this way has no failures of its own, but for a
// timestamp that is out of order.
//
// The pool of these connections, Client.lone, has one lane and no queues.

// alone reports whether nobody else seems to call: the latest batch was of one call, and
// nothing is under way.
func (p *pool) alone() bool {
	return p.recent.Load() <= 1 && int(p.nfree.Load()) >= p.client.opt.Conns
}

// grab takes a free lane, if there is one.
func (p *pool) grab() *lane {
	if p.nfree.Load() == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.free) - 1
	if last < 0 {
		return nil
	}
	l := p.free[last]
	p.free = p.free[:last]
	p.nfree.Store(int32(last))
	p.sent++ // before the keeper may stop to watch
	return l
}

// ask makes a lone call. It reports false, without an error, if the call has to go the usual
// way.
func (p *pool) ask(ctx context.Context, k kind) (isotone.Timestamp, bool, error) {
	if ctx.Done() != nil && ctx.Err() != nil {
		return isotone.Timestamp{}, false, nil
	}
	l := p.grab()
	if l == nil {
		return isotone.Timestamp{}, false, nil
	}
	b := &l.own
	b.kind = k
	b.state.Store(stateSealed | stateCall | 1)
	b.line = appendRequest(b.buf[:0], k, 1)
	b.floor = p.client.floor.now()
	begun := p.client.now()
	l.since.Store(int64(begun))
	l.pending.Store(b)
	if !p.watched.Load() && p.watched.CompareAndSwap(false, true) {
		p.client.poke()
	}
	stop := func() bool { return true }
	if ctx.Done() != nil {
		stop = context.AfterFunc(ctx, func() { _ = l.conn.Close() })
	}
	_, err := l.conn.Write(b.line)
	var fault *fault
	if err == nil {
		fault, err = readAnswer(l.read, b)
	}
	l.pending.Store(nil)
	if !stop() || err != nil || fault != nil || l.read.Buffered() > 0 {
		p.part(l, err)
		return isotone.Timestamp{}, false, nil
	}
	if err := p.client.inOrder(l.addr, b); err != nil {
		p.part(l, err)
		return isotone.Timestamp{}, false, err
	}
	took := p.client.now() - begun
	p.measured(took)
	l.answered.Store(true)
	p.client.observe(l, b, took)
	if stamps := p.client.stamps; stamps.doubted.Load() && stamps.doubted.CompareAndSwap(true, false) {
		p.client.post(func(k *keeper) { k.recovered(l) })
	}
	first := b.first
	p.put(l) // from here on it is another's
	return first, true, nil
}

// part closes a lane that is of no more use.
func (p *pool) part(l *lane, err error) {
	_ = l.conn.Close()
	p.drop(l)
	p.client.post(func(k *keeper) { k.laneEnded(l, err) })
}
