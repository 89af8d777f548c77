package disruptor

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

var (
	// ErrHandlers: a runner has no group, a group without a handler, or a nil handler.
	ErrHandlers = errors.New("disruptor: handlers are missing")
	// ErrProducer: Runner was called after the producer was made, or Start before.
	ErrProducer = errors.New("disruptor: the producer must be made between Runner and Start")
	// ErrStarted: Start was called before. A runner runs once.
	ErrStarted = errors.New("disruptor: runner already started")
	// ErrNotStarted: Stop was called before Start.
	ErrNotStarted = errors.New("disruptor: runner not started")
)

// Handler consumes the elements of a ring in a goroutine of a [Runner].
type Handler interface {
	// Consume handles the elements from lower to upper, both included, at least one and at
	// most the capacity. In the whole package only this range is closed; its numbers are
	// int64, so that the compiler refuses to mix them with half-open ranges. The next call
	// begins at upper+1. When Consume returns, the range is released, so it must not keep
	// pointers to slots.
	Consume(lower, upper int64)
}

// Group is handlers that get each element independently of one another.
type Group []Handler

// Runner runs handlers over a ring, each in its own goroutine with its own [Consumer].
// Every handler gets all elements in order; those of a group get an element when all of
// the group before have returned from the Consume with it.
//
// A Runner does not recover panics: a handler that panics ends the program, as in any
// goroutine. Otherwise it would either block the ring or release what it has not handled.
// A handler that recovers by itself and returns from Consume has consumed the range. One
// that ends its goroutine with [runtime.Goexit] blocks the ring, and Stop waits for its context.
type Runner struct {
	// Wait is the wait strategy of all handlers; nil means [Park]. Set it before Start.
	Wait Wait

	core      *core
	handlers  []Handler
	consumers []*Consumer // of the handlers
	started   atomic.Bool
	running   atomic.Int64  // handlers that have not ended
	done      chan struct{} // closed when all have ended
}

// Runner adds a consumer for every handler of the groups, of which each comes after the one
// before; then make the producer, and call [Runner.Start]. If it fails, it has added nothing,
// and the error matches [ErrHandlers] or [ErrProducer].
func (r *Ring[T]) Runner(groups ...Group) (*Runner, error) {
	if err := checkGroups(groups); err != nil {
		return nil, err
	}
	if r.core.gates != nil {
		return nil, fmt.Errorf("%w: Runner after it", ErrProducer)
	}
	run := &Runner{core: r.core, done: make(chan struct{})}
	var before []*Consumer
	for _, group := range groups {
		var consumers []*Consumer
		for _, h := range group {
			run.handlers = append(run.handlers, h)
			consumers = append(consumers, r.Consumer(before...))
		}
		run.consumers = append(run.consumers, consumers...)
		before = consumers
	}
	run.running.Store(int64(len(run.handlers)))
	return run, nil
}

func checkGroups(groups []Group) error {
	if len(groups) == 0 {
		return fmt.Errorf("%w: no group", ErrHandlers)
	}
	for i, group := range groups {
		if len(group) == 0 {
			return fmt.Errorf("%w: group %d is empty", ErrHandlers, i)
		}
		for j, h := range group {
			if h == nil {
				return fmt.Errorf("%w: handler %d of group %d is nil", ErrHandlers, j, i)
			}
		}
	}
	return nil
}

// Start starts the goroutines, which end after [Runner.Stop] or when the producer is closed.
// The error is [ErrStarted], or matches [ErrProducer] if there is no producer yet.
func (r *Runner) Start() error {
	if r.core.gates == nil {
		return fmt.Errorf("%w: Start before it", ErrProducer)
	}
	if !r.started.CompareAndSwap(false, true) {
		return ErrStarted
	}
	for i, c := range r.consumers {
		c.Wait = r.Wait
		go r.run(c, r.handlers[i])
	}
	return nil
}

// run calls h until the ring is closed and everything in it is consumed.
func (r *Runner) run(c *Consumer, h Handler) {
	for {
		lo, hi, err := c.Next(context.Background())
		if err != nil { // ErrClosed
			break
		}
		h.Consume(int64(lo), int64(hi)-1)
		c.Release(hi)
	}
	if r.running.Add(-1) == 0 {
		close(r.done)
	}
}

// Stop closes the producer and waits until all handlers have consumed everything that was
// committed before ([SharedProducer]: reserved), and their goroutines have ended.
// If ctx ends first, Stop returns its error. The handlers go on, and Stop may be called again
// to wait for them. Before Start the error is [ErrNotStarted], and nothing is closed.
//
// Stop may be called where Close of the producer may: with a [SharedProducer] anywhere, with
// a [Producer] in its goroutine or after that has closed it or ended. In a handler, Stop would wait
// for itself.
func (r *Runner) Stop(ctx context.Context) error {
	if !r.started.Load() {
		return ErrNotStarted
	}
	r.core.closeProducer()
	if isDone(r.done) {
		return nil
	}
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
