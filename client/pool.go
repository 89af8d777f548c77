package client

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
)

// A pool collects calls into batches and sends these over its connections, each with at most
// one request under way. One pool is for timestamps, with all its connections to the leader;
// one is for IDs, with a connection to every member. A third has the connection for direct
// calls: see direct.go.
//
// A batch is sent as soon as a connection is free: by the caller if nothing is under way,
// otherwise by the goroutine that has just read an answer. Meanwhile calls join the open
// batch or, under load, one of several, one for each processor. So batches grow with the
// load, and no call waits for a batch to fill.
type pool struct {
	client *Client
	// queues are ordered by kind; there are stripes of each.
	queues  []queue
	stripes int
	// indices holds stripe indices, one for each processor; assigned counts them.
	indices  sync.Pool
	assigned atomic.Uint32

	nfree atomic.Int32 // len(free), readable without mu
	// recent is how many calls the latest batch had. More than one suggests that others
	// are about to call: see gather.
	recent atomic.Uint32
	// watched: the router watches for late answers.
	watched atomic.Bool
	// suspected: post the next success to the router.
	suspected atomic.Bool
	// refused: there is no connection, because the nodes refuse this client; calls fail.
	refused atomic.Pointer[isotone.Error]
	// quota is the latest refusal because of a quota, nil after a success.
	quota atomic.Pointer[isotone.Error]

	mu     sync.Mutex
	free   []*conn
	ready  []*batch // sealed: to be sent again, or full
	full   uint64   // calls that were in the full batches among ready when they were sealed
	alone  []*batch // of calls with a floor of their own
	turn   int      // index in queues of the next to take from, or len(queues) for alone
	sent   uint64   // requests
	rtt    estimate
	closed bool
}

// newPool returns a pool whose batches have at most countMax numbers. Up to stripes batches
// of each kind are open at once.
func newPool(c *Client, stripes int, countMax uint64, kinds ...kind) *pool {
	p := &pool{client: c, stripes: stripes}
	for _, k := range kinds {
		if k.is64() {
			countMax = isotone.Range64CountMax
		}
		for i := range stripes {
			p.queues = append(p.queues, queue{kind: k, countMax: countMax, callsMax: uint64((c.opt.QueueMax + i) / stripes)})
		}
	}
	for i := range p.queues {
		q := &p.queues[i]
		q.open.Store(newBatch(q.kind))
	}
	p.indices.New = func() any {
		index := int(p.assigned.Add(1) % uint32(stripes))
		return &index
	}
	return p
}

// fewCalls is the batch size up to which one open batch takes all calls. With more, the
// processors would contend for it.
const fewCalls = 128

// queue returns the queue for a call; place is the index of its kind. Under load each
// processor has its own queue, so that callers on different processors do not contend for
// the lock of one batch's channel.
func (p *pool) queue(place int) *queue {
	if p.stripes == 1 || p.recent.Load() <= fewCalls {
		return &p.queues[place*p.stripes]
	}
	index := p.indices.Get().(*int) // a sync.Pool has a list for each processor
	p.indices.Put(index)
	return &p.queues[place*p.stripes+*index]
}

// others are the queues of the same kind.
func (p *pool) others(q *queue) []queue {
	for i := 0; i < len(p.queues); i += p.stripes {
		if p.queues[i].kind == q.kind {
			return p.queues[i : i+p.stripes]
		}
	}
	return nil
}

// call gets count numbers of the kind with index place: those of batch b from at on. It uses
// little stack, because most of the cost of resuming a waiting goroutine is reloading its
// stack into the cache.
func (p *pool) call(ctx context.Context, place int, count uint64) (b *batch, at uint64, err error) {
	b, at, owns, err := p.join(ctx, place, count)
	if err != nil {
		return nil, 0, err
	}
	return b, at, p.wait(ctx, b, owns)
}

// join has a call take part in a batch, which is sent as soon as possible. owns says that the batch carries the
// trace context of the call.
func (p *pool) join(ctx context.Context, place int, count uint64) (b *batch, at uint64, owns bool, err error) {
	if ctx.Done() != nil && ctx.Err() != nil {
		return nil, 0, false, p.timeoutError(ctx)
	}
	q := p.queue(place)
	var result joined
	if trace := p.client.traceparent(ctx); trace != "" {
		b, at, result, owns = p.joinTraced(q, count, trace)
	} else {
		b, at, result = q.join(count)
	}
	switch {
	case result > joinedFirst:
		// The queue is full. What the call joins may be sent at once, without the trace.
		b, at, err = p.joinOther(q, b, count, result)
	case result == joinedFirst:
		p.begin()
	}
	return b, at, owns, err
}

// wait waits for the answer to a batch that the call has joined.
func (p *pool) wait(ctx context.Context, b *batch, owns bool) error {
	done := ctx.Done()
	if done == nil { // avoid select, which costs more than the rest of this function
		<-b.done
		return b.err
	}
	select {
	case <-b.done:
		return b.err
	case <-done:
	}
	if owns {
		p.untrace(b)
	}
	return p.leave(ctx, b)
}

// callAbove gets count timestamps above a floor, in a request of its own: others have lower
// floors, or none.
func (p *pool) callAbove(ctx context.Context, k kind, count uint64, floor isotone.Timestamp) (*batch, error) {
	b := newBatch(k)
	b.above, b.trace = floor, p.client.traceparent(ctx)
	b.state.Store(stateSealed | stateCall | count)
	b.line = appendRequest(b.buf[:0], k, count)
	if err := p.queueAlone(b); err != nil {
		return nil, err
	}
	p.begin()
	select {
	case <-b.done:
		return b, b.err
	case <-ctx.Done():
	}
	err := p.leave(ctx, b)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.alone = slices.DeleteFunc(p.alone, func(other *batch) bool { return other == b }) // make room
	return b, err
}

// aloneMax bounds the calls with floors of their own that wait: each is a request, so that
// more would wait for long.
const aloneMax = 1024

func (p *pool) queueAlone(b *batch) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return ErrClosed
	case len(p.alone) >= aloneMax:
		return isotone.Errorf(isotone.CodeOverloaded, "%d calls with floors are waiting%s", aloneMax, p.client.trouble.text())
	}
	p.alone = append(p.alone, b)
	return nil
}

// begin sends the batch that the caller has just begun, if there is a free connection, and fails
// it if there can be none.
func (p *pool) begin() {
	if p.nfree.Load() > 0 {
		p.gather()
		p.dispatch()
	} else if why := p.refused.Load(); why != nil {
		p.fail(why)
	}
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

// fail fails the calls that wait to be sent.
func (p *pool) fail(err error) {
	p.mu.Lock()
	failed := append(p.ready, p.alone...)
	p.ready, p.full, p.alone = nil, 0, nil
	for i := range p.queues {
		if b := p.queues[i].seal(); b != nil {
			failed = append(failed, b)
		}
	}
	p.mu.Unlock()
	for _, b := range failed {
		b.finish(err)
	}
}

// timeoutError returns the error of a call whose context is done.
func (p *pool) timeoutError(ctx context.Context) error { return p.client.overdue(ctx, p.quota.Load()) }

// joinOther retries for a call that could not join its queue, on all queues of the kind.
func (p *pool) joinOther(q *queue, b *batch, count uint64, result joined) (_ *batch, at uint64, err error) {
	others := p.others(q)
	for i := -1; i < len(others) && result != joinRefused; i++ {
		if i >= 0 {
			q = &others[i]
			b, at, result = q.join(count)
		}
		for result == joinFull && p.rotate(q, b, count) {
			b, at, result = q.join(count)
		}
		if result <= joinedFirst {
			break
		}
	}
	switch result {
	case joinRefused:
		return nil, 0, b.err
	case joinedFirst:
		p.begin()
	case joinFull, joinCrowded:
		return nil, 0, isotone.Errorf(isotone.CodeOverloaded, "too many calls are waiting%s", p.client.trouble.text())
	}
	return b, at, nil
}

// leave ends the wait of a call whose context is done.
func (p *pool) leave(ctx context.Context, b *batch) error {
	select {
	case <-b.done:
		return b.err
	default:
	}
	b.leave()
	return p.timeoutError(ctx)
}

// gather yields to goroutines that are about to call, so that a burst becomes one batch, not
// one call followed by all others. It returns at once if no other goroutine can run.
//
// For large batches one yield is enough. For small ones it yields as long as calls arrive,
// because a request costs the cluster as much for one call as for many.
func (p *pool) gather() {
	recent := p.recent.Load()
	if recent <= 1 {
		return
	}
	runtime.Gosched()
	if recent > fewCalls {
		return
	}
	for before, i := uint64(0), 0; i < gatherMax; i++ {
		waiting := p.waiting()
		if waiting == before {
			return
		}
		before = waiting
		runtime.Gosched()
	}
}

// gatherMax bounds the yields of gather.
const gatherMax = 3

// waiting returns the approximate number of calls in open batches.
func (p *pool) waiting() (calls uint64) {
	for i := range p.queues {
		calls += p.queues[i].open.Load().calls()
	}
	return calls
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
	b := p.next()
	if b == nil {
		return nil, nil
	}
	cn := p.free[0] // round-robin: IDs come from all members
	p.free = slices.Delete(p.free, 0, 1)
	p.nfree.Store(int32(len(p.free)))
	p.recent.Store(uint32(b.calls()))
	p.sent++
	return cn, b
}

func (p *pool) next() *batch {
	for len(p.ready) > 0 {
		b := p.ready[0]
		p.ready[0], p.ready = nil, p.ready[1:]
		p.full, b.full = p.full-b.full, 0
		if b.calls() > 0 { // otherwise all its calls have left
			return b
		}
	}
	places := len(p.queues) + 1
	for range places {
		at := p.turn
		p.turn = (p.turn + 1) % places
		if at == len(p.queues) {
			if b := p.nextAlone(); b != nil {
				return b
			}
		} else if b := p.queues[at].seal(); b != nil {
			return b
		}
	}
	return nil
}

func (p *pool) nextAlone() *batch {
	if len(p.alone) == 0 {
		return nil
	}
	b := p.alone[0]
	p.alone = slices.Delete(p.alone, 0, 1)
	return b
}

// rotate seals b, which is full, so that a call can join the next batch. It reports false if
// too many calls wait in full batches. One call may fill a batch.
func (p *pool) rotate(q *queue, b *batch, count uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || q.open.Load() != b || b.count()+count <= q.countMax {
		return true // b is no longer the open batch, or has room again
	}
	if p.full >= uint64(p.client.opt.QueueMax) {
		return false
	}
	if b := q.seal(); b != nil {
		b.full = b.calls()
		p.full += b.full
		p.ready = append(p.ready, b)
	}
	return true
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

// requeue queues a batch again that got no answer. That is safe: no caller has received the
// numbers that earlier attempts may have got.
func (p *pool) requeue(b *batch) {
	p.mu.Lock()
	closed := p.closed
	if !closed && b.calls() > 0 {
		p.ready = append(p.ready, b)
	}
	p.mu.Unlock()
	if closed {
		b.finish(ErrClosed)
	}
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
	p.closed = true
	failed := append(p.ready, p.alone...)
	p.ready, p.full, p.alone, p.free = nil, 0, nil, nil
	p.nfree.Store(0)
	for i := range p.queues {
		failed = append(failed, p.queues[i].end(ErrClosed))
	}
	p.mu.Unlock()
	for _, b := range failed {
		b.finish(ErrClosed)
	}
}
