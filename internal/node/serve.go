package node

import (
	"net"

	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/loop"
)

// home is the node as the fronts in its own loop see it: there is nothing to hand over.
type home struct{ *Node }

// Submit takes a batch into the turn that follows; see front.Backend.
func (h home) Submit(b *front.Batch) { h.submitted = append(h.submitted, b) }

// Serve accepts client connections from ln, which the node owns from now on, and works
// on them in its loop. open is called once, on the loop's goroutine, with the backend
// for that loop's fronts, whose Submit and Done belong to that goroutine; what it
// returns is called for each connection.
func (n *Node) Serve(ln net.Listener, limits loop.Limits, open func(front.Backend) func(*loop.Conn) loop.Handler) error {
	err := error(errStopped)
	n.call(func() { err = n.loop.Listen(ln, limits, open(home{n})) })
	return err
}

// Do runs f on the goroutine of the loop in which the fronts of Serve live, and waits
// for it. It returns false, and f may not have run, if the node stops first.
func (n *Node) Do(f func(*loop.Loop)) bool { return n.call(func() { f(n.loop) }) }
