package peer

import (
	"errors"
	"time"
)

var errNoAddr = errors.New("no address")

// backoff spaces the attempts to reach a peer. The zero value begins at once.
type backoff struct{ wait time.Duration }

// next returns how long to wait before the next attempt: the current step, less up
// to half of it. jitter is from 0 to 1. Without it, nodes that lost each other
// at one moment would come back at one moment.
func (b *backoff) next(jitter float64) time.Duration {
	d := b.wait
	b.wait = min(max(2*b.wait, dialBackoffMin), dialBackoffMax)
	return d - time.Duration(jitter*float64(d)/2)
}

// reset begins again, after a connection that lasted.
func (b *backoff) reset() { b.wait = dialBackoffMin }

// refused waits longer than any step: only an operator, or a membership change, will
// turn the refusal around.
func (b *backoff) refused() { b.wait = dialRefusedWait }
