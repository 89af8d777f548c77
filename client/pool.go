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

// A pool collapses calls into batches and sends them over its lanes, connections with at
// most one request each. There are two of this kind: for timestamps, all of whose lanes go
// to the leader, and for ids, with lanes to every member. A third only holds the lane for
// lone calls: see lone.go.
//
// Whoever finds a free lane sends: the caller itself if nothing is under way, so that a
// lone call costs no hand-over, otherwise the goroutine that has just read an answer.
// Meanwhile calls gather in the open batch; when there are many, in one for each
// processor. So batches grow with the load, and nothing ever waits for a batch to fill.
type pool struct {
	client *Client
	// queues are those of the first kind, then those of the next.
	queues  []queue
	stripes int
	// homes are indices of stripes; settled counts them.
	homes   sync.Pool
	settled atomic.Uint32
	// waitingMax bounds ready, as far as batches are there because they were full.
	waitingMax int

	nfree atomic.Int32 // len(free), to be looked at without the lock
	// recent is how many calls the latest batch had. If more than one, others are about
	// to call: see gather.
	recent atomic.Uint32
	// watched: the keeper looks after lanes that are silent.
	watched atomic.Bool
	// doubted: the keeper wants to know of the next success.
	doubted atomic.Bool

	mu     sync.Mutex
	free   []*lane
	ready  []*batch // sealed: to be sent again, or full
	turn   int      // the queue to look at first
	sent   uint64   // requests
	rtt    estimate
	closed bool
}

// readyMax bounds the full batches of timestamps that wait. Each has some 2^32 of them.
const readyMax = 16

// newPool returns a pool of batches of so many numbers at most, of these kinds. Of each
// kind several batches are open at once: as many as stripes.
func newPool(c *Client, stripes int, countMax uint64, waitingMax int, kinds ...kind) *pool {
	p := &pool{client: c, stripes: stripes, waitingMax: waitingMax}
	for _, k := range kinds {
		for i := range stripes {
			p.queues = append(p.queues, queue{kind: k, countMax: countMax, callsMax: uint64((c.opt.QueueMax + i) / stripes)})
		}
	}
	for i := range p.queues {
		q := &p.queues[i]
		q.open.Store(newBatch(q.kind))
	}
	p.homes.New = func() any {
		home := int(p.settled.Add(1) % uint32(stripes))
		return &home
	}
	return p
}

// few is the most calls of a batch for which one batch at a time gathers, so that
// it has all of them. Of more, the processors get in each other's way.
const few = 128

// queue returns the queue for a call of a kind, by its place among the kinds of the pool:
// one that mostly this processor uses. So callers that run on the same one wait for the
// same answer, and do not compete for the lock of what they wait on.
func (p *pool) queue(place int) *queue {
	if p.stripes == 1 || p.recent.Load() <= few {
		return &p.queues[place*p.stripes]
	}
	home := p.homes.Get().(*int) // a sync.Pool keeps to the processor
	p.homes.Put(home)
	return &p.queues[place*p.stripes+*home]
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

// call gets count numbers of a kind, by its place: those of the batch from at on. A
// goroutine that waits here keeps few frames, because what it costs to go on is mostly to
// get its stack back into the cache.
func (p *pool) call(ctx context.Context, place int, count uint64) (b *batch, at uint64, err error) {
	done := ctx.Done()
	if done != nil && ctx.Err() != nil {
		return nil, 0, p.client.gaveUp(ctx)
	}
	q := p.queue(place)
	b, at, result := q.join(count)
	if result > joinedFirst {
		if b, at, err = p.squeeze(q, b, count, result); err != nil {
			return nil, 0, err
		}
	} else if result == joinedFirst {
		p.begin()
	}
	if done == nil { // a select costs more than the rest
		<-b.done
		return b, at, b.err
	}
	select {
	case <-b.done:
		return b, at, b.err
	case <-done:
	}
	return b, at, p.leave(ctx, b)
}

// begin sends the batch that the caller has just begun, if there is a free lane.
func (p *pool) begin() {
	if p.nfree.Load() > 0 {
		p.gather()
		p.dispatch()
	}
}

// squeeze joins a batch for a call that could not at first.
func (p *pool) squeeze(q *queue, b *batch, count uint64, result joined) (_ *batch, at uint64, err error) {
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
		return nil, 0, isotone.Errorf(isotone.CodeOverloaded, "too many calls wait%s", p.client.because())
	}
	return b, at, nil
}

// leave ends the wait of a call whose context is done.
func (p *pool) leave(ctx context.Context, b *batch) error {
	select {
	case <-b.done: // at the last moment
		return b.err
	default:
	}
	b.leave()
	return p.client.gaveUp(ctx)
}

// gather lets whoever is about to call come first, so that a burst becomes one batch
// and not one of one call followed by one of all others. It takes no time if nothing
// else can run, and a lone caller does not come here with recent above 1.
//
// Many are in a large batch anyway. Of few, as many as possible should come: a request
// costs the cluster as much for one call as for all.
func (p *pool) gather() {
	recent := p.recent.Load()
	if recent <= 1 {
		return
	}
	runtime.Gosched()
	if recent > few {
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

// gatherMax is how often callers are let come first, as long as they do.
const gatherMax = 3

// waiting is how many calls are in batches that are open, about.
func (p *pool) waiting() (calls uint64) {
	for i := range p.queues {
		calls += p.queues[i].open.Load().calls()
	}
	return calls
}

// dispatch sends one batch, if one waits and a lane is free. It must be called once
// after every event that may have brought about either.
func (p *pool) dispatch() {
	if p.nfree.Load() == 0 {
		return
	}
	if l, b := p.take(); b != nil {
		if !p.watched.Load() && p.watched.CompareAndSwap(false, true) {
			p.client.poke()
		}
		l.send(b)
	}
}

// take takes a free lane and a sealed batch with calls, or neither.
func (p *pool) take() (*lane, *batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) == 0 {
		return nil, nil
	}
	b := p.next()
	if b == nil {
		return nil, nil
	}
	l := p.free[0] // in turns: ids come from all members
	p.free = slices.Delete(p.free, 0, 1)
	p.nfree.Store(int32(len(p.free)))
	p.recent.Store(uint32(b.calls()))
	p.sent++
	return l, b
}

func (p *pool) next() *batch {
	for len(p.ready) > 0 {
		b := p.ready[0]
		p.ready = slices.Delete(p.ready, 0, 1)
		if b.calls() > 0 { // else nobody waits any more
			return b
		}
	}
	for range p.queues {
		q := &p.queues[p.turn]
		p.turn = (p.turn + 1) % len(p.queues)
		if b := q.seal(); b != nil {
			return b
		}
	}
	return nil
}

// rotate makes room for a call that does not fit the batch b, which may no longer be the
// open one.
func (p *pool) rotate(q *queue, b *batch, count uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || q.open.Load() != b || b.count()+count <= q.countMax {
		return true // try again
	}
	if len(p.ready) >= p.waitingMax {
		return false
	}
	if b := q.seal(); b != nil {
		p.ready = append(p.ready, b)
	}
	return true
}

// put gives a lane back.
func (p *pool) put(l *lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.ended || p.closed {
		return
	}
	p.free = append(p.free, l)
	p.nfree.Store(int32(len(p.free)))
}

// drop removes a lane whose connection has ended. Only its reader may call it.
func (p *pool) drop(l *lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.ended = true
	p.free = slices.DeleteFunc(p.free, func(f *lane) bool { return f == l })
	p.nfree.Store(int32(len(p.free)))
}

// remove removes a lane if it is free, and reports whether it was.
func (p *pool) remove(l *lane) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(p.free, l) {
		return false
	}
	l.ended = true
	p.free = slices.DeleteFunc(p.free, func(f *lane) bool { return f == l })
	p.nfree.Store(int32(len(p.free)))
	return true
}

// retire sends nothing more to an address, whose lanes are about to be closed.
func (p *pool) retire(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = slices.DeleteFunc(p.free, func(l *lane) bool { return l.addr == addr })
	p.nfree.Store(int32(len(p.free)))
}

// again queues a batch that was sent in vain. That is safe: timestamps and ids that
// nobody has seen order and name nothing.
func (p *pool) again(b *batch) {
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

// measured takes note of how long an answer took.
func (p *pool) measured(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rtt.add(took)
}

// activity returns how many requests were sent so far, and from when on an answer is late.
func (p *pool) activity() (sent uint64, patience time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent, p.rtt.patience()
}

// slower has the pool wait longer before it finds a lane silent: it gave one up, and
// perhaps that one was only slow.
func (p *pool) slower() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rtt.double()
}

// close fails all calls that wait, and all that come. Those that are under way fail when
// their lane ends.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	failed := p.ready
	p.ready, p.free = nil, nil
	p.nfree.Store(0)
	for i := range p.queues {
		failed = append(failed, p.queues[i].end(ErrClosed))
	}
	p.mu.Unlock()
	for _, b := range failed {
		b.finish(ErrClosed)
	}
}

// estimate follows how long answers take and how much that varies, as TCP does (RFC 6298).
type estimate struct {
	mean, deviation time.Duration
}

const (
	// patienceMin is the shortest silence after which other members are asked: longer
	// than most pauses of a healthy machine. To ask in vain harms nobody.
	patienceMin = 25 * time.Millisecond
	// patienceMax bounds it, whatever was measured.
	patienceMax = 5 * time.Second
	// patienceFirst is for a lane that has answered nothing yet.
	patienceFirst = 250 * time.Millisecond
)

func (e *estimate) add(took time.Duration) {
	if e.mean == 0 {
		e.mean, e.deviation = took, took/2
		return
	}
	difference := e.mean - took
	e.deviation += (max(difference, -difference) - e.deviation) / 4
	e.mean -= difference / 8
}

// double doubles the patience. It shrinks again with every answer.
func (e *estimate) double() {
	patience := min(2*e.patience(), patienceMax)
	e.mean = max(e.mean, 1)
	e.deviation = (patience - e.mean) / 4
}

func (e *estimate) patience() time.Duration {
	if e.mean == 0 {
		return patienceFirst
	}
	return min(max(e.mean+4*e.deviation, patienceMin), patienceMax)
}
