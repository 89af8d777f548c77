package client

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
)

// A pool sends batches over its connections, each with at most one request under way. One pool is for timestamps of the
// default order, with all its connections to the leader; one is for IDs, with a connection to every member. A third has
// the connection for direct calls: see direct.go. These have an order of their own. Then there is one for each node that
// owns timelines, which sends the batches of all of those.
type pool struct {
	order

	nfree atomic.Int32 // len(free), readable without mu
	// watched: the router watches for late answers.
	watched atomic.Bool
	// suspected: post the next success to the router.
	suspected atomic.Bool
	// node is what the pool of a node has besides, which serves timelines; nil for the others.
	node *lineNode

	lock sync.Mutex // mu, unless the pool serves timelines
	free []*conn
	sent uint64 // requests
	rtt  estimate
}

// newPool returns a pool whose batches have at most countMax numbers. Up to stripes batches
// of each kind are open at once.
func newPool(c *Client, stripes int, countMax uint64, kinds ...kind) *pool {
	p := &pool{}
	p.order.init(c, &p.lock, stripes, countMax, kinds...)
	p.order.pool, p.order.floor = p, &c.floor
	return p
}

// refuse fails the calls that wait, and later ones until it is called with nil. The router calls
// it while there is no connection.
func (p *pool) refuse(why *isotone.Error) {
	p.refused.Store(why)
	if why == nil {
		return
	}
	p.fail(why)
	if p == p.client.stamps {
		select {
		case p.client.unled <- why:
		default:
		}
	}
}

// dispatch sends one batch, if one is waiting and a connection is free. Call it once after
// every event that may have caused either.
func (p *pool) dispatch() {
	if p.nfree.Load() == 0 {
		return
	}
	if cn, b := p.take(); b != nil {
		p.watch()
		cn.send(b)
	}
}

// watch makes the router watch for late answers.
func (p *pool) watch() {
	if !p.watched.Load() && p.watched.CompareAndSwap(false, true) {
		p.client.wake()
	}
}

// take takes a free connection and a sealed batch with calls, or neither.
func (p *pool) take() (*conn, *batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) == 0 {
		return nil, nil
	}
	var b *batch
	if p.node != nil {
		b = p.node.next()
	} else {
		b = p.next()
	}
	if b == nil {
		return nil, nil
	}
	cn := p.free[0] // round-robin: IDs come from all members
	p.free = slices.Delete(p.free, 0, 1)
	p.nfree.Store(int32(len(p.free)))
	b.order.recent.Store(uint32(b.calls()))
	p.sent++
	return cn, b
}

// put returns a connection to the free ones.
func (p *pool) put(cn *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if cn.ended || p.closed {
		return
	}
	p.free = append(p.free, cn)
	p.nfree.Store(int32(len(p.free)))
}

// drop removes a connection that has ended. Only its reader may call it.
func (p *pool) drop(cn *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	cn.ended = true
	p.free = slices.DeleteFunc(p.free, func(f *conn) bool { return f == cn })
	p.nfree.Store(int32(len(p.free)))
}

// remove removes a connection if it is free, and reports whether it was.
func (p *pool) remove(cn *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(p.free, cn) {
		return false
	}
	cn.ended = true
	p.free = slices.DeleteFunc(p.free, func(f *conn) bool { return f == cn })
	p.nfree.Store(int32(len(p.free)))
	return true
}

// retire removes the free connections to an address, which are about to be closed.
func (p *pool) retire(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = slices.DeleteFunc(p.free, func(cn *conn) bool { return cn.addr == addr })
	p.nfree.Store(int32(len(p.free)))
}

// measured records how long an answer took.
func (p *pool) measured(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rtt.add(took)
}

// activity returns how many requests were sent so far, and the answer timeout.
func (p *pool) activity() (sent uint64, timeout time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent, p.rtt.timeout()
}

// backOff doubles the answer timeout after the router gave up a connection, which may only
// have been slow.
func (p *pool) backOff() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rtt.double()
}

// close fails all waiting and later calls. Those under way fail when their connection ends.
func (p *pool) close() {
	p.mu.Lock()
	p.closed, p.free = true, nil
	p.nfree.Store(0)
	p.mu.Unlock()
	p.end()
}
