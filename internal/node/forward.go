package node

import (
	"errors"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
)

// Forwarder has the leader, or the owner of their timeline, answer batches that reached another node. All
// methods belong to the goroutine of the loop that it was made for.
type Forwarder interface {
	// Submit takes a batch, and calls its Done in Turn or at once.
	Submit(*front.Batch)
	// Turn sends what has come, and answers what has been answered. The loop calls it once
	// in each turn.
	Turn(now time.Duration)
	// Close answers what is left.
	Close()
}

// answer completes b. If this node did not answer it, and another one may, f forwards it.
func answer(f Forwarder, b *front.Batch) {
	if f == nil || !isForwarded(b) {
		b.Done(b)
		return
	}
	b.Err = nil
	f.Submit(b)
}

// isForwarded reports whether another node may answer b, which this one did not.
func isForwarded(b *front.Batch) bool {
	switch {
	case b.Local || b.Err == nil:
		return false
	case b.Err == errStopped || b.Err == errFailed:
		return false // the forwarder is about to be closed
	}
	return errors.Is(b.Err, isotone.ErrNotLeader) || errors.Is(b.Err, isotone.ErrNoLeader)
}
