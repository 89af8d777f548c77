package node

import (
	"errors"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
)

// Forwarder has the leader answer batches that reached a node which does not lead. All
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

// forward has another node answer b if that may help, which this one did not. It reports
// whether it did.
func forward(f Forwarder, b *front.Batch) bool {
	if f == nil || b.Local || b.Err == nil || !errors.Is(b.Err, isotone.ErrNotLeader) && !errors.Is(b.Err, isotone.ErrNoLeader) {
		return false
	}
	if b.Err == errStopped || b.Err == errFailed {
		return false // f is about to be closed
	}
	b.Err = nil
	f.Submit(b)
	return true
}
