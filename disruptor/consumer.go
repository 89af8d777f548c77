package disruptor

import (
	"context"
	"fmt"
)

// Consumer takes every element of its ring, in order. Only one goroutine may call its
// methods, and its fields must be set before that goroutine starts.
//
// There are two ways to get elements: Next, which waits with the strategy Wait; and
// Poll, which does not wait, together with Arm and Wake, for a goroutine that sleeps
// by other means.
type Consumer struct {
	_ padding

	// Wait is the wait strategy of Next; nil means [Park].
	Wait Wait

	// Wake is called after an Arm that returned true; see there. It runs in the
	// goroutine that commits, releases or closes, and delays it: it should do little
	// more than write to an eventfd, or send to a channel without blocking.
	Wake func()

	core    *core
	barrier []*sequence
	// next is the first number not taken yet, freed the first not released.
	next, freed uint64
	last        int // size of the last batch
	isArmed     bool
	released    sequence
	sleep       waker
}

// Next takes all available elements, [lo, hi), and waits while there are none.
// Elements may be taken before earlier ones are released.
//
// The error is [ErrClosed] or that of ctx. Next checks the context only if it has to
// wait.
func (c *Consumer) Next(ctx context.Context) (lo, hi uint64, err error) {
	for attempt := 0; ; attempt++ {
		if lo, hi, err = c.Poll(); lo != hi || err != nil {
			return lo, hi, err
		}
		if err := c.idle(ctx, attempt); err != nil {
			return lo, lo, err
		}
	}
}

func (c *Consumer) idle(ctx context.Context, attempt int) error {
	done := ctx.Done()
	if isDone(done) {
		return ctx.Err()
	}
	wait := c.Wait
	if wait == nil {
		wait = Park
	}
	if !wait(attempt, c.last) && c.prepare(parked) {
		c.sleep.park(done)
	}
	return nil
}

// Poll takes all available elements, [lo, hi), which is empty if there are none.
// The only error is [ErrClosed]: there will be no more. Poll cancels an Arm.
func (c *Consumer) Poll() (lo, hi uint64, err error) {
	if c.isArmed {
		c.isArmed = false
		c.sleep.cancel(armed)
	}
	lo, hi = c.next, lowest(c.barrier)
	switch {
	case hi > lo:
		c.next, c.last = hi, int(hi-lo)
	case hi < lo:
		panic(fmt.Sprintf("disruptor: committed up to %d, then up to %d", lo, hi))
	case c.core.end.Load() <= lo:
		return lo, lo, ErrClosed
	}
	return lo, hi, nil
}

// Waiting returns how many elements Poll would take. It takes nothing, and leaves an Arm as it
// is.
func (c *Consumer) Waiting() int { return int(lowest(c.barrier) - c.next) }

// Release passes everything below hi on to the consumers that come after this one or,
// if there are none, back to the producers. It panics if hi was not taken, or is
// below what was released before.
func (c *Consumer) Release(hi uint64) {
	if hi < c.freed || hi > c.next {
		panic(fmt.Sprintf("disruptor: release up to %d, but [%d, %d) is taken", hi, c.freed, c.next))
	}
	c.freed = hi
	c.released.advance(hi)
}

// Arm is to be called before the goroutine sleeps by other means, such as epoll. If it returns
// true, Wake will be called once, when there may be something to take or the ring is
// closed. Poll and Next cancel that call, unless it has already begun. If Arm returns
// false, Poll has something to return, and the goroutine must not sleep; Wake may
// have been called nevertheless.
//
// No wake-up is lost: elements from before the call make Arm return false, and later
// ones cause a Wake. Sometimes Poll finds nothing after a Wake; then call Arm again.
// While no consumer is armed, this costs a producer one load.
func (c *Consumer) Arm() bool {
	if c.Wake == nil {
		panic("disruptor: Arm without Wake")
	}
	c.isArmed = c.prepare(armed)
	return c.isArmed
}

// prepare makes c ready to sleep in the given state until the first sequence of the
// barrier that keeps c waiting advances. It reports whether to sleep.
func (c *Consumer) prepare(state uint32) bool {
	c.sleep.state.Store(state)
	for _, s := range c.barrier {
		if s.load() > c.next {
			continue
		}
		jitter()
		s.watch()
		jitter()
		if s.load() <= c.next && c.core.end.Load() > c.next {
			return true
		}
	}
	c.sleep.cancel(state)
	return false
}
