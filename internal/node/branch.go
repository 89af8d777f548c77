package node

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/disruptor"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/loop"
)

// branch is a further loop, which owns client sockets on one more core. What its
// connections ask for in one turn goes to the home loop as one batch for each read mode,
// or a few where there is much, and comes back so.
type branch struct {
	node *Node
	loop *loop.Loop
	lane Lane
	stop atomic.Bool
	done chan struct{}

	mu    sync.Mutex
	calls []func() // bounded: one for each Serve and StopServing, and by deskMax

	forwarder Forwarder      // nil: none
	submitted []*front.Batch // of this turn
	bundles   int            // on their way
	// requestsMax bounds the requests of one.
	requestsMax int
	spare       []*bundle
	answered    *disruptor.Ring[*bundle]
	in          *disruptor.Producer // the home loop's
	out         *disruptor.Consumer // the branch's
}

// bundlesMax bounds what a branch has on its way, and so what the way back must hold.
// Past it its requests wait in the branch, one batch at most for each connection.
const bundlesMax = 1024

// bundleRequestsMax bounds the requests of one bundle, and so does a quarter of
// TIMESTAMP_REQUEST_BUFFER: a bundle is overloaded as a whole, so one that is larger than
// the buffer would be refused even by an idle node. One connection's batch is never split.
const bundleRequestsMax = 1024

// With dozeBundles on their way a branch sleeps until one is back, or for dozeMax: as many
// as rounds may be in flight, so a further one could only wait, and the home loop would be
// disturbed for nothing.
const (
	dozeBundles = 2
	dozeMax     = time.Millisecond
)

// bundle is the batches of one turn of a branch, as one.
type bundle struct {
	front.Batch
	parts []*front.Batch
}

func newBranch(n *Node) (*branch, error) {
	l, err := loop.New(n.cfg.Log)
	if err != nil {
		return nil, fmt.Errorf("node %d: %w", n.cfg.NodeID, err)
	}
	if n.cfg.KeepProcessors {
		l.KeepProcessor()
	}
	b := &branch{
		node: n, loop: l, done: make(chan struct{}),
		requestsMax: max(1, min(bundleRequestsMax, n.cfg.RequestsMax/4)),
	}
	if b.answered, err = disruptor.New[*bundle](bundlesMax); err != nil {
		panic(err) // a constant that is no power of two
	}
	b.out = b.answered.Consumer()
	b.out.Wake = l.Wake
	b.in = b.answered.Producer()
	return b, nil
}

// Submit takes a batch into the bundle of this turn; see front.Backend. It belongs to
// the branch's goroutine.
func (b *branch) Submit(batch *front.Batch) { b.submitted = append(b.submitted, batch) }

// Status returns what the node knows; see front.Backend.
func (b *branch) Status() *front.Status { return b.node.Status() }

// run is the branch's loop. It ends when the home loop has, and so nothing is on its way.
func (b *branch) run() {
	defer close(b.done)
	for !b.stop.Load() {
		wait := branchWait
		if !b.out.Arm() || b.bundles >= dozeBundles && b.loop.Doze(dozeMax) {
			wait = 0
		}
		if err := b.loop.Wait(wait); err != nil {
			b.node.fail(err)
			break
		}
		for _, f := range b.takeCalls() {
			f()
		}
		b.settle()
		b.bundle()
		if b.forwarder != nil {
			b.forwarder.Turn(b.loop.Now())
		}
		b.loop.Flush()
	}
	<-b.node.homeDone
	for _, f := range b.takeCalls() {
		f()
	}
	b.settle()
	for _, batch := range b.submitted {
		batch.Err = errStopped
		batch.Done(batch)
	}
	if b.forwarder != nil {
		b.forwarder.Close()
	}
	b.loop.Flush()
	if err := b.loop.Close(); err != nil {
		b.node.cfg.Log.Warn("a loop does not close", "err", err)
	}
}

// settle answers the batches of bundles that have come back.
func (b *branch) settle() {
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

func (b *branch) unbundle(u *bundle) {
	b.bundles--
	at := 0
	for i, part := range u.parts {
		part.Err = u.Err
		if u.Err == nil {
			at += copy(part.Ranges, u.Ranges[at:at+len(part.Counts)])
		}
		if !forward(b.forwarder, part) {
			part.Done(part)
		}
		u.parts[i] = nil
	}
	u.parts, u.Counts = u.parts[:0], u.Counts[:0]
	if len(b.spare) < bundlesSpare {
		b.spare = append(b.spare, u)
	}
}

// bundlesSpare is how many bundles are kept for use again.
const bundlesSpare = 16

// bundle sends what this turn brought to the home loop.
func (b *branch) bundle() {
	var open [isotone.ReadLease + 1]*bundle // by mode; not sent yet
	left := b.submitted[:0]
	for _, part := range b.submitted {
		u := open[part.Mode]
		if u != nil && len(u.Counts)+len(part.Counts) > b.requestsMax {
			b.send(u)
			u = nil
		}
		if u == nil && b.bundles+len(open) <= bundlesMax {
			u = b.newBundle(part.Mode)
		}
		if open[part.Mode] = u; u == nil {
			left = append(left, part)
			continue
		}
		u.parts = append(u.parts, part)
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

func (b *branch) newBundle(mode isotone.ReadMode) *bundle {
	u := &bundle{}
	if n := len(b.spare); n > 0 {
		u, b.spare = b.spare[n-1], b.spare[:n-1]
	} else {
		u.Done = func(*front.Batch) { b.giveBack(u) }
	}
	u.Mode, u.Err = mode, nil
	u.Local = true // its parts are forwarded one by one, from here
	return u
}

func (b *branch) send(u *bundle) {
	b.bundles++
	u.Ranges = slices.Grow(u.Ranges[:0], len(u.Counts))[:len(u.Counts)]
	if err := b.node.door.submit(&u.Batch); err != nil {
		u.Err = err
		b.unbundle(u)
	}
}

// giveBack runs on the home loop's goroutine.
func (b *branch) giveBack(u *bundle) {
	at, end, err := b.in.TryReserve(1)
	if err != nil {
		panic(fmt.Sprintf("node: no room for a bundle of which there are at most %d: %v", bundlesMax, err))
	}
	*b.answered.At(at) = u
	b.in.Commit(at, end)
}

func (b *branch) takeCalls() []func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	calls := b.calls
	b.calls = nil
	return calls
}

// post has f run on the branch's goroutine.
func (b *branch) post(f func()) {
	b.mu.Lock()
	b.calls = append(b.calls, f)
	b.mu.Unlock()
	b.loop.Wake()
}

// call runs f on the branch's goroutine and waits for it.
func (b *branch) call(f func()) bool {
	ran := make(chan struct{})
	b.post(func() { f(); close(ran) })
	select {
	case <-ran:
		return true
	case <-b.done:
		return false
	}
}

// end makes the branch return. The home loop must end, too.
func (b *branch) end() {
	b.stop.Store(true)
	b.loop.Wake()
}

// listenAgain returns another listener of the same socket.
func listenAgain(ln net.Listener) (net.Listener, error) {
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		return nil, fmt.Errorf("node: several loops cannot share a %T", ln)
	}
	file, err := tcp.File()
	if err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	again, err := net.FileListener(file)
	return again, errors.Join(err, file.Close())
}
