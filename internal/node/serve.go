package node

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/loop"
)

// branchWait bounds how long a branch sleeps with nothing to do.
const branchWait = time.Second

// Lane is the fronts in one loop. Both functions run on the loop's goroutine.
type Lane struct {
	// Open returns the handler of a new connection; see loop.Loop.Listen.
	Open func(*loop.Conn) loop.Handler
	// Stop is called once when no more connections are accepted. Requests under way are
	// still to be answered; after that the connections should close.
	Stop func()
	// Conns returns how many connections are left.
	Conns func() int
}

// home is the node as the fronts in its own loop see it: there is nothing to hand over.
type home struct{ *Node }

// Submit takes a batch into the turn that follows; see front.Backend.
func (h home) Submit(b *front.Batch) { h.submitted = append(h.submitted, b) }

// Serve accepts client connections from ln, which the node owns from now on, and works
// on them in its loops. open is called once for each loop, on its goroutine, with the
// backend for the fronts in that loop: Submit and Done belong to that goroutine. It can
// be called once.
func (n *Node) Serve(ln net.Listener, limits loop.Limits, open func(front.Backend, *loop.Loop) Lane) error {
	// All lanes are there before the first connection is.
	for _, b := range n.branches {
		b.call(func() { b.lane = open(b, b.loop) })
	}
	n.call(func() { n.lane = open(home{n}, n.loop) })
	for _, b := range n.branches {
		again, err := listenAgain(ln)
		if err != nil {
			return errors.Join(err, ln.Close())
		}
		err = error(errStopped)
		b.call(func() { err = b.loop.Listen(again, limits, b.lane.Open) })
		if err != nil {
			return errors.Join(err, again.Close(), ln.Close())
		}
	}
	err := error(errStopped)
	n.call(func() { err = n.loop.Listen(ln, limits, n.lane.Open) })
	return err
}

// StopServing accepts no more client connections, tells the fronts, and waits until
// they have no connections left, or for ctx.
func (n *Node) StopServing(ctx context.Context) {
	left := 0
	stop := func(l *loop.Loop, lane *Lane) func() {
		return func() {
			if lane.Stop != nil {
				l.StopListening()
				lane.Stop()
			}
		}
	}
	count := func(lane *Lane) func() {
		return func() {
			if lane.Conns != nil {
				left += lane.Conns()
			}
		}
	}
	for _, b := range n.branches {
		b.call(stop(b.loop, &b.lane))
	}
	n.call(stop(n.loop, &n.lane))
	for {
		left = 0
		for _, b := range n.branches {
			b.call(count(&b.lane))
		}
		if !n.call(count(&n.lane)) || left == 0 {
			return
		}
		select {
		case <-time.After(drainPoll):
		case <-ctx.Done():
			return
		}
	}
}

// drainPoll is how often StopServing looks.
const drainPoll = 2 * time.Millisecond
