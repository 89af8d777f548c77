package client

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/isotone/isotone"
)

// An order collects the calls for one order of timestamps into batches: the default one, or a timeline. Another is for
// IDs. A pool sends the batches.
//
// A batch is sent as soon as a connection is free: by the caller if nothing is under way,
// otherwise by the goroutine that has just read an answer. Meanwhile calls join the open
// batch or, under load, one of several, one for each processor. So batches grow with the
// load, and no call waits for a batch to fill.
type order struct {
	client *Client
	// pool sends the batches. It is nil for a timeline: see timelines.
	pool     *pool
	timeline *timeline // nil for the default order and for IDs
	floor    *floor    // what was received
	// queues are ordered by kind; there are stripes of each.
	queues  []queue
	stripes int
	// indices holds stripe indices, one for each processor; assigned counts them.
	indices  sync.Pool
	assigned atomic.Uint32

	// recent is how many calls the latest batch had. More than one suggests that others
	// are about to call: see gather.
	recent atomic.Uint32
	// refused: there is no connection, because the nodes refuse this client; calls fail.
	refused atomic.Pointer[isotone.Error]
	// quota is the latest refusal because of a quota, nil after a success.
	quota atomic.Pointer[isotone.Error]

	mu     *sync.Mutex // that of the pool; timelines share one
	ready  []*batch    // sealed: to be sent again, or full
	full   uint64      // calls that were in the full batches among ready when they were sealed
	alone  []*batch    // of calls with a floor of their own
	turn   int         // index in queues of the next to take from, or len(queues) for alone
	closed bool
}

// init makes the queues. Batches have at most countMax numbers, and up to stripes batches of each kind are open at once.
func (o *order) init(c *Client, mu *sync.Mutex, stripes int, countMax uint64, kinds ...kind) {
	o.client, o.mu, o.stripes = c, mu, stripes
	for _, k := range kinds {
		if k.is64() {
			countMax = isotone.Range64CountMax
		}
		for i := range stripes {
			o.queues = append(o.queues, queue{order: o, kind: k, countMax: countMax, callsMax: uint64((c.opt.QueueMax + i) / stripes)})
		}
	}
	for i := range o.queues {
		q := &o.queues[i]
		q.open.Store(newBatch(o, q.kind))
	}
	o.indices.New = func() any {
		index := int(o.assigned.Add(1) % uint32(stripes))
		return &index
	}
}

// fewCalls is the batch size up to which one open batch takes all calls. With more, the
// processors would contend for it.
const fewCalls = 128

// queue returns the queue for a call; place is the index of its kind. Under load each
// processor has its own queue, so that callers on different processors do not contend for
// the lock of one batch's channel.
func (o *order) queue(place int) *queue {
	if o.stripes == 1 || o.recent.Load() <= fewCalls {
		return &o.queues[place*o.stripes]
	}
	index := o.indices.Get().(*int) // a sync.Pool has a list for each processor
	o.indices.Put(index)
	return &o.queues[place*o.stripes+*index]
}

// others are the queues of the same kind.
func (o *order) others(q *queue) []queue {
	for i := 0; i < len(o.queues); i += o.stripes {
		if o.queues[i].kind == q.kind {
			return o.queues[i : i+o.stripes]
		}
	}
	return nil
}

// call gets count numbers of the kind with index place: those of batch b from at on. It uses
// little stack, because most of the cost of resuming a waiting goroutine is reloading its
// stack into the cache.
func (o *order) call(ctx context.Context, place int, count uint64) (b *batch, at uint64, err error) {
	b, at, owns, err := o.join(ctx, place, count)
	if err != nil {
		return nil, 0, err
	}
	return b, at, o.wait(ctx, b, owns)
}

// join has a call take part in a batch, which is sent as soon as possible. owns says that the batch carries the
// trace context of the call.
func (o *order) join(ctx context.Context, place int, count uint64) (b *batch, at uint64, owns bool, err error) {
	if ctx.Done() != nil && ctx.Err() != nil {
		return nil, 0, false, o.timeoutError(ctx)
	}
	q := o.queue(place)
	var result joined
	if trace := o.client.traceparent(ctx); trace != "" {
		b, at, result, owns = o.joinTraced(q, count, trace)
	} else {
		b, at, result = q.join(count)
	}
	switch {
	case result > joinedFirst:
		// The queue is full. What the call joins may be sent at once, without the trace.
		b, at, err = o.joinOther(q, b, count, result)
	case result == joinedFirst:
		o.begin()
	}
	return b, at, owns, err
}

// wait waits for the answer to a batch that the call has joined.
func (o *order) wait(ctx context.Context, b *batch, owns bool) error {
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
		o.untrace(b)
	}
	return o.leave(ctx, b)
}

// joinAlone queues a call for count timestamps above a floor, in a request of its own: others have lower
// floors, or none.
func (o *order) joinAlone(ctx context.Context, k kind, count uint64, floor isotone.Timestamp) (*batch, error) {
	b := newBatch(o, k)
	b.above, b.trace = floor, o.client.traceparent(ctx)
	b.state.Store(stateSealed | stateCall | count)
	b.line = appendRequest(b.buf[:0], k, count)
	if err := o.queueAlone(b); err != nil {
		return nil, err
	}
	o.begin()
	return b, nil
}

// aloneMax bounds the calls with floors of their own, or of the oracle of reads and writes, that wait: each is a request, so that
// more would wait for long.
const aloneMax = 1024

func (o *order) queueAlone(b *batch) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
		return o.ending()
	case len(o.alone) >= aloneMax:
		return isotone.Errorf(isotone.CodeOverloaded, "%d calls that share no requests are waiting%s", aloneMax, o.client.trouble.text())
	}
	o.alone = append(o.alone, b)
	return nil
}

// begin sends the batch that the caller has just begun, if there is a free connection, and fails
// it if there can be none.
func (o *order) begin() {
	p := o.pool
	if p == nil {
		p = o.client.timelines.enlist(o)
	}
	if p != nil && p.nfree.Load() > 0 {
		o.gather()
		p.dispatch()
	} else if why := o.refused.Load(); why != nil {
		o.fail(why)
	}
}

// resend sends a batch that was queued again, if there is a free connection.
func (o *order) resend() {
	p := o.pool
	if p == nil {
		p = o.client.timelines.enlist(o)
	}
	if p != nil {
		p.dispatch()
	}
}

// isDefault reports whether it is the default order.
func (o *order) isDefault() bool { return o != nil && o.timeline == nil }

// name returns that of a timeline, or "".
func (o *order) name() string {
	if o.timeline == nil {
		return ""
	}
	return o.timeline.name
}

// text returns the name, to append to a message.
func (o *order) text() string {
	if o.timeline == nil {
		return ""
	}
	return " of timeline " + o.timeline.name
}

// fail fails the calls that wait to be sent.
func (o *order) fail(err error) {
	o.mu.Lock()
	failed := append(o.ready, o.alone...)
	o.ready, o.full, o.alone = nil, 0, nil
	for i := range o.queues {
		if b := o.queues[i].seal(); b != nil {
			failed = append(failed, b)
		}
	}
	o.mu.Unlock()
	for _, b := range failed {
		b.finish(err)
	}
}

// timeoutError returns the error of a call whose context is done.
func (o *order) timeoutError(ctx context.Context) error { return o.client.overdue(ctx, o.quota.Load()) }

// joinOther retries for a call that could not join its queue, on all queues of the kind.
func (o *order) joinOther(q *queue, b *batch, count uint64, result joined) (_ *batch, at uint64, err error) {
	others := o.others(q)
	for i := -1; i < len(others) && result != joinRefused; i++ {
		if i >= 0 {
			q = &others[i]
			b, at, result = q.join(count)
		}
		for result == joinFull && o.rotate(q, b, count) {
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
		o.begin()
	case joinFull, joinCrowded:
		return nil, 0, isotone.Errorf(isotone.CodeOverloaded, "too many calls are waiting%s", o.client.trouble.text())
	}
	return b, at, nil
}

// leave ends the wait of a call whose context is done.
func (o *order) leave(ctx context.Context, b *batch) error {
	select {
	case <-b.done:
		return b.err
	default:
	}
	b.leave()
	if b.above != (isotone.Timestamp{}) || b.isOracle { // make room
		o.mu.Lock()
		o.alone = slices.DeleteFunc(o.alone, func(other *batch) bool { return other == b })
		o.mu.Unlock()
	}
	return o.timeoutError(ctx)
}

// gather yields to goroutines that are about to call, so that a burst becomes one batch, not
// one call followed by all others. It returns at once if no other goroutine can run.
//
// For large batches one yield is enough. For small ones it yields as long as calls arrive,
// because a request costs the cluster as much for one call as for many.
func (o *order) gather() {
	recent := o.recent.Load()
	if recent <= 1 {
		return
	}
	runtime.Gosched()
	if recent > fewCalls {
		return
	}
	for before, i := uint64(0), 0; i < gatherMax; i++ {
		waiting := o.waiting()
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
func (o *order) waiting() (calls uint64) {
	for i := range o.queues {
		calls += o.queues[i].open.Load().calls()
	}
	return calls
}

// next returns the next batch to send, sealed, or nil if no call waits. The caller holds mu.
func (o *order) next() *batch {
	for len(o.ready) > 0 {
		b := o.ready[0]
		o.ready[0], o.ready = nil, o.ready[1:]
		o.full, b.full = o.full-b.full, 0
		if b.calls() > 0 { // otherwise all its calls have left
			return b
		}
	}
	places := len(o.queues) + 1
	for range places {
		at := o.turn
		o.turn = (o.turn + 1) % places
		if at == len(o.queues) {
			if b := o.nextAlone(); b != nil {
				return b
			}
		} else if b := o.queues[at].seal(); b != nil {
			return b
		}
	}
	return nil
}

func (o *order) nextAlone() *batch {
	if len(o.alone) == 0 {
		return nil
	}
	b := o.alone[0]
	o.alone = slices.Delete(o.alone, 0, 1)
	return b
}

// rotate seals b, which is full, so that a call can join the next batch. It reports false if
// too many calls wait in full batches. One call may fill a batch.
func (o *order) rotate(q *queue, b *batch, count uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || q.open.Load() != b || b.count()+count <= q.countMax {
		return true // b is no longer the open batch, or has room again
	}
	if o.full >= uint64(o.client.opt.QueueMax) {
		return false
	}
	if b := q.seal(); b != nil {
		b.full = b.calls()
		o.full += b.full
		o.ready = append(o.ready, b)
	}
	return true
}

// requeue queues a batch again that got no answer. That is safe: no caller has received the
// numbers that earlier attempts may have got.
func (o *order) requeue(b *batch) {
	o.mu.Lock()
	closed := o.closed
	if !closed && b.calls() > 0 {
		o.ready = append(o.ready, b)
	}
	o.mu.Unlock()
	if closed {
		b.finish(o.ending())
	}
}

// ending is the error of calls after the end: that of the client, or of a timeline that has made room for another.
func (o *order) ending() error {
	if o.timeline != nil && o.timeline.gone {
		return isotone.Errorf(isotone.CodeNotFound, "timeline %q: there was none, and this reader has made room for others; call Client.Timeline again", o.timeline.name)
	}
	return ErrClosed
}

// isIdle reports whether no call waits to be sent. The caller holds mu.
func (o *order) isIdle() bool {
	for i := range o.queues {
		if o.queues[i].open.Load().calls() > 0 {
			return false
		}
	}
	return len(o.ready) == 0 && len(o.alone) == 0
}

// end fails all waiting and later calls.
func (o *order) end() {
	o.mu.Lock()
	o.closed = true
	failed := append(o.ready, o.alone...)
	o.ready, o.full, o.alone = nil, 0, nil
	for i := range o.queues {
		failed = append(failed, o.queues[i].end(ErrClosed))
	}
	o.mu.Unlock()
	for _, b := range failed {
		b.finish(ErrClosed)
	}
}
