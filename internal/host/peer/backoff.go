package peer

import (
	"errors"
	"time"
)

var errNoAddr = errors.New("no address")

// backoff spaces the attempts to dial a peer. The zero value dials at once.
type backoff struct{ wait time.Duration }

// next returns how long to wait before the next attempt: the current step, shortened
// by up to half. jitter is from 0 to 1; it keeps nodes that lost each other at the same
// moment from dialing at the same moment.
func (b *backoff) next(jitter float64) time.Duration {
	d := b.wait
	b.wait = min(max(2*b.wait, dialBackoffMin), dialBackoffMax)
	return d - time.Duration(jitter*float64(d)/2)
}

// reset returns to the shortest step, after a connection that lasted.
func (b *backoff) reset() { b.wait = dialBackoffMin }

// refused sets a wait longer than any step: only an operator or a membership change
// resolves a refusal.
func (b *backoff) refused() { b.wait = dialRefusedWait }
