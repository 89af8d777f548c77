package stats

import (
	"sync"
	"time"
)

// Aside has things written on a goroutine of its own, so that whoever has them never
// waits for the log: what there is no room for is dropped. Make it with [NewAside]. All
// methods are safe for concurrent use.
type Aside[T any] struct {
	write func(T)
	queue chan T

	mu      sync.RWMutex // held, for reading, while something goes into the queue
	closed  bool
	written chan struct{} // closed when all has been
}

// NewAside returns one that calls write for one thing after the other, while at most room
// of them wait. [Aside.Close] ends it.
func NewAside[T any](room int, write func(T)) *Aside[T] {
	a := &Aside[T]{write: write, queue: make(chan T, room), written: make(chan struct{})}
	go func() {
		defer close(a.written)
		for one := range a.queue {
			a.write(one)
		}
	}()
	return a
}

// Put has one thing written, and reports whether there was room. It never blocks.
func (a *Aside[T]) Put(one T) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if a.closed {
		return false
	}
	select {
	case a.queue <- one:
		return true
	default:
		return false
	}
}

// closeTime bounds how long [Aside.Close] waits for a write that hangs.
const closeTime = 5 * time.Second

// Close returns when what waits has been written, or after five seconds, and reports which.
// Nothing more is taken from the moment it is called.
func (a *Aside[T]) Close() (written bool) {
	a.mu.Lock()
	if !a.closed {
		a.closed = true
		close(a.queue)
	}
	a.mu.Unlock()
	timer := time.NewTimer(closeTime)
	defer timer.Stop()
	select {
	case <-a.written:
		return true
	case <-timer.C:
		return false
	}
}
