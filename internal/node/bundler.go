package node

import (
	"fmt"
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/disruptor"
	"github.com/isotone/isotone/internal/core/session"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/loop"
)

const (
	// bundlesMax bounds the bundles that one loop has under way, and so what the ring by
	// which they come back must hold. Beyond it requests wait in the loop, one batch at most
	// for each connection.
	bundlesMax = 1024
	// bundleRequestsMax bounds the requests of one bundle, and so does a quarter of
	// TIMESTAMP_REQUEST_BUFFER: a bundle is refused as a whole when the buffer is full, so one
	// larger than the buffer would be refused even by an idle node. The batch of one
	// connection is never split.
	bundleRequestsMax = 1024
	// bundlesSpareMax is how many bundles are kept for reuse.
	bundlesSpareMax = 16
	// With pauseBundles under way a loop sleeps until one is back, or for pauseMax: as many as
	// rounds may be in flight, so a further one could only wait, and would disturb the core.
	pauseBundles = 2
	pauseMax     = time.Millisecond
	// idleWait bounds how long a loop without the core sleeps.
	idleWait = time.Second
)

// bundler is the node as the fronts in an I/O loop without the core see it: what they submit
// in one turn goes to the core as one batch for each read mode and form of timestamps, or a few where there is much,
// and one for each batch with a floor or of a timeline,
// and its answers come back in the same way. It is a [loop.Work], a front.Backend, a
// front.Lessor and a front.Sessions, and belongs to its loop's goroutine.
type bundler struct {
	node      *Node
	loop      *loop.Loop
	host      *loop.Host
	forwarder Forwarder // nil: none

	submitted   []*front.Batch // in this turn
	underWay    int            // bundles
	requestsMax int            // of one bundle
	spare       []*bundle
	tells       map[session.Conn]func(session.Message) // of connections that are open

	answered *disruptor.Ring[*bundle]
	in       *disruptor.Producer // the core loop's
	out      *disruptor.Consumer // this loop's
}

// bundle is several batches as one.
type bundle struct {
	front.Batch
	parts []*front.Batch
}

func newBundler(n *Node, l *loop.Loop) *bundler {
	b := &bundler{node: n, loop: l, requestsMax: max(1, min(bundleRequestsMax, n.cfg.RequestsMax/4)), tells: map[session.Conn]func(session.Message){}}
	var err error
	if b.answered, err = disruptor.New[*bundle](bundlesMax); err != nil {
		panic(err) // a constant that is no power of two
	}
	b.out = b.answered.Consumer()
	b.out.Wake = l.Wake
	b.in = b.answered.Producer()
	return b
}

// Submit adds a batch to the bundles of this turn.
func (b *bundler) Submit(batch *front.Batch) { b.submitted = append(b.submitted, batch) }

// Status returns what the node knows.
func (b *bundler) Status() *front.Status { return b.node.Status() }

// Sleep implements [loop.Work]. With pauseBundles under way it waits itself, for a wake-up
// only.
func (b *bundler) Sleep() time.Duration {
	if !b.out.Arm() || b.underWay >= pauseBundles && b.loop.WaitForWake(pauseMax) {
		return 0
	}
	return idleWait
}

// Turn answers the bundles that came back and sends what was submitted.
func (b *bundler) Turn() {
	b.settle()
	b.bundle()
	if b.forwarder != nil {
		b.forwarder.Turn(b.loop.Now())
	}
}

// Flushed implements [loop.Work].
func (b *bundler) Flushed() {}

// Close answers what is left. The core has ended, so no bundle is under way.
func (b *bundler) Close() {
	b.settle()
	for _, batch := range b.submitted {
		batch.Err = errStopped
		batch.Done(batch)
	}
	if b.forwarder != nil {
		b.forwarder.Close()
	}
}

// settle answers the batches of bundles that have come back.
func (b *bundler) settle() {
	lo, hi, _ := b.out.Poll()
	for at := lo; at < hi; at++ {
		slot := b.answered.At(at)
		b.unbundle(*slot)
		*slot = nil
	}
	if lo < hi {
		b.out.Release(hi)
	}
}

func (b *bundler) unbundle(u *bundle) {
	b.underWay--
	at := 0
	for i, part := range u.parts {
		part.Err, part.Moved, part.Apart = u.Err, u.Moved, u.Apart
		if u.Err == nil {
			at += copy(part.Ranges, u.Ranges[at:at+len(part.Counts)])
		}
		answer(b.forwarder, part)
		u.parts[i] = nil
	}
	u.parts, u.Counts = u.parts[:0], u.Counts[:0]
	if len(b.spare) < bundlesSpareMax {
		b.spare = append(b.spare, u)
	}
}

// bundle sends what was submitted in this turn to the core.
func (b *bundler) bundle() {
	var open [2 * (isotone.ReadLease + 1)]*bundle // by kind; not sent yet
	left := b.submitted[:0]
	for _, part := range b.submitted {
		if part.Floor != (isotone.Timestamp{}) || part.Timeline != "" {
			if !b.sendAlone(part, len(open)) {
				left = append(left, part)
			}
			continue
		}
		kind := int(part.Mode)
		if part.U64 {
			kind += len(open) / 2
		}
		u := open[kind]
		if u != nil && len(u.Counts)+len(part.Counts) > b.requestsMax {
			b.send(u)
			u = nil
		}
		if u == nil && b.underWay+len(open) <= bundlesMax {
			u = b.newBundle(part)
		}
		if open[kind] = u; u == nil {
			left = append(left, part)
			continue
		}
		u.parts = append(u.parts, part)
		if part.Trace != nil && u.Trace == nil {
			u.Trace = part.Trace
		}
		u.Counts = append(u.Counts, part.Counts...)
	}
	for _, u := range open {
		if u != nil {
			b.send(u)
		}
	}
	clear(b.submitted[len(left):])
	b.submitted = left
}

// sendAlone sends a batch with a floor, which is that of one client, or of a timeline as a bundle of its own. It reports false if there
// may be no more bundles but those that are open.
func (b *bundler) sendAlone(part *front.Batch, open int) bool {
	if b.underWay+open > bundlesMax {
		return false
	}
	u := b.newBundle(part)
	u.Floor, u.Raise, u.Timeline, u.Op, u.At, u.Trace = part.Floor, part.Raise, part.Timeline, part.Op, part.At, part.Trace
	u.parts = append(u.parts, part)
	u.Counts = append(u.Counts, part.Counts...)
	b.send(u)
	return true
}

// newBundle returns an empty bundle for batches of the mode and the form of part.
func (b *bundler) newBundle(part *front.Batch) *bundle {
	u := &bundle{}
	if n := len(b.spare); n > 0 {
		u, b.spare = b.spare[n-1], b.spare[:n-1]
	} else {
		u.Done = func(*front.Batch) { b.giveBack(u) }
	}
	u.Op, u.At = 0, 0
	u.Mode, u.U64, u.Floor, u.Raise, u.Timeline, u.Moved, u.Apart, u.Err, u.Trace = part.Mode, part.U64, isotone.Timestamp{}, false, "", false, false, nil, nil
	u.Local = true // its parts are forwarded one by one, from here
	return u
}

func (b *bundler) send(u *bundle) {
	b.underWay++
	u.Ranges = slices.Grow(u.Ranges[:0], len(u.Counts))[:len(u.Counts)]
	if err := b.node.core.queue.submit(&u.Batch); err != nil {
		u.Err = err
		b.unbundle(u)
	}
}

// giveBack runs on the core loop's goroutine.
func (b *bundler) giveBack(u *bundle) {
	at, end, err := b.in.TryReserve(1)
	if err != nil {
		panic(fmt.Sprintf("node: no room for a bundle of which there are at most %d: %v", bundlesMax, err))
	}
	*b.answered.At(at) = u
	b.in.Commit(at, end)
}

// LeaseWorker has the core take the request, and answers in this loop.
func (b *bundler) LeaseWorker(r *front.WorkerRequest) {
	done := r.Done
	r.Done = func(r *front.WorkerRequest) {
		b.host.Post(func() {
			r.Done = done
			done(r)
		})
	}
	core := b.node.core
	if !b.node.post(func() { core.takeWorkerRequest(r) }) {
		r.Done, r.Err = done, errStopped
		done(r)
	}
}
