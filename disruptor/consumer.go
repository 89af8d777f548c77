package disruptor

import (
	"context"
	"fmt"
)

// Consumer takes every element of its ring, in order. Its methods are for one
// goroutine, its fields are set before that is started.
//
// There are two ways to get elements: Next, which waits in the way that the field
// Wait says; and Poll, which does not wait, with Arm and the field Wake for a
// goroutine that sleeps in a way of its own.
type Consumer struct {
	_ padding

	// Wait is how Next waits. Nil stands for [Park].
	Wait Wait

	// Wake is called after an Arm that returned true, see there. It runs in the
	// goroutine that committed, released or closed, and holds that up: it should do
	// little more than write to an eventfd, or send to a channel without waiting.
	Wake func()

	core    *core
	barrier []*sequence
	// next is the first number not taken yet, freed the first not released.
	next, freed uint64
	last        int // how many elements were taken at once
	isArmed     bool
	released    sequence
	sleep       waker
}

// Next takes all elements that are there, [lo, hi), and waits while there are none.
// Elements may be taken before earlier ones are released.
//
// An error is [ErrClosed] or that of ctx. The context is only looked at when Next
// has to wait.
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

// Poll takes all elements that are there, [lo, hi), which is empty if there are none.
// The only error is [ErrClosed]: there will be no more. Poll ends an Arm.
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

// Release gives back everything below hi: to the consumers that come after this one,
// and if there are none, to the producers. It panics if hi was not taken, or is
// below what was released before.
func (c *Consumer) Release(hi uint64) {
	if hi < c.freed || hi > c.next {
		panic(fmt.Sprintf("disruptor: release up to %d, but [%d, %d) is taken", hi, c.freed, c.next))
	}
	c.freed = hi
	c.released.advance(hi)
}

// Arm is called before the goroutine sleeps in a way of its own, such as epoll. If
// it returns true, Wake will be called, once, when there may be something to take or
// the ring is closed. A Poll or Next calls it off, unless it is on its way already.
// If Arm returns false, Poll has something to return, and the goroutine must not
// sleep; Wake may have been called all the same.
//
// No wake-up is lost: Arm returns false because of what came before it, and Wake is
// called for what comes after. Now and then Poll finds nothing after a Wake; then arm
// again. While nobody is armed that costs a producer one load.
func (c *Consumer) Arm() bool {
	if c.Wake == nil {
		panic("disruptor: Arm without Wake")
	}
	c.isArmed = c.prepare(armed)
	return c.isArmed
}

// prepare makes c ready to sleep in the given state while the first sequence of the
// barrier that is in the way stays where it is, and reports whether to do so.
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
