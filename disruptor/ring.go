package disruptor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"sync/atomic"
)

var (
	// ErrClosed: the ring was closed. A consumer gets it after the last element.
	ErrClosed = errors.New("disruptor: closed")
	// ErrFull: there is no room now. Only TryReserve returns it.
	ErrFull = errors.New("disruptor: full")
	// ErrCapacity: the capacity of a ring is not a power of two, or a reservation is
	// not for 1 slot to all slots of the ring.
	ErrCapacity = errors.New("disruptor: number of slots out of range")
)

// Ring is a ring of slots of type T. One goroutine sets it up: [New], then
// [Ring.Consumer] for every consumer or [Ring.Runner] for all, then once either [Ring.Producer] or
// [Ring.SharedProducer]. What these return may then be given to other goroutines.
type Ring[T any] struct {
	slots  []T
	mask   uint64
	core   *core
	shared *SharedProducer // made by New, because it contains core.published
}

// New returns a ring with the given number of slots, all with the zero value of T.
// The error matches [ErrCapacity] if capacity is not a power of two.
func New[T any](capacity int) (*Ring[T], error) {
	if capacity < 1 || bits.OnesCount(uint(capacity)) != 1 {
		return nil, fmt.Errorf("%w: capacity %d is not a power of two", ErrCapacity, capacity)
	}
	mask := uint64(capacity) - 1
	s := &SharedProducer{capacity: uint64(capacity), mask: mask}
	s.core = &core{capacity: uint64(capacity), published: &s.published}
	s.core.end.Store(endOpen)
	s.core.room.init(nil)
	return &Ring[T]{slots: make([]T, capacity), mask: mask, core: s.core, shared: s}, nil
}

// At returns the slot of a sequence number. A producer may write to it between
// Reserve and Commit; a consumer may read it between Poll or Next and Release.
func (r *Ring[T]) At(seq uint64) *T { return &r.slots[seq&r.mask] }

// Slots returns the slots of [lo, hi), whose length is at most the capacity. If the range
// wraps around the end of the ring, the slots are in two pieces; otherwise rest is empty.
// For many elements a loop over the pieces is faster than a call of At for each.
func (r *Ring[T]) Slots(lo, hi uint64) (first, rest []T) {
	n, i, capacity := hi-lo, lo&r.mask, r.mask+1
	if n > capacity-i {
		return r.slots[i:], r.slots[:n-(capacity-i)]
	}
	return r.slots[i : i+n], nil
}

// Consumer adds a consumer. It gets an element when all consumers in after have
// released it or, if there are none, when it has been committed. Consumer panics after
// a call of Producer or SharedProducer.
func (r *Ring[T]) Consumer(after ...*Consumer) *Consumer {
	r.core.mustBeOpen("Consumer")
	c := &Consumer{core: r.core}
	c.sleep.init(&c.Wake)
	for _, before := range after {
		if before.core != r.core {
			panic("disruptor: Consumer after a consumer of another ring")
		}
		c.barrier = append(c.barrier, &before.released)
	}
	if len(after) == 0 {
		c.barrier = []*sequence{r.core.published}
	}
	for _, s := range c.barrier {
		s.watchers = append(s.watchers, &c.sleep)
	}
	r.core.consumers = append(r.core.consumers, c)
	return c
}

// Producer ends the set-up and returns the only producer of the ring. It panics if there
// is no consumer, or if it or SharedProducer was called before.
func (r *Ring[T]) Producer() *Producer {
	r.core.seal("Producer")
	s := r.core.published
	p := &Producer{core: r.core, published: &s.value, flags: &s.flags}
	r.core.closeProducer = p.Close
	return p
}

// SharedProducer ends the set-up and returns a producer for several goroutines. It
// panics if there is no consumer, or if it or Producer was called before.
func (r *Ring[T]) SharedProducer() *SharedProducer {
	r.core.seal("SharedProducer")
	s := r.shared
	s.marks = make([]uint64, len(r.slots))
	s.turn = make(chan struct{}, 1)
	s.core.closeProducer = s.Close
	return s
}

// core is everything in a ring except its slots.
type core struct {
	capacity  uint64
	consumers []*Consumer
	// gates are the sequences of the consumers that no other comes after. Reservations
	// must not be ahead of any by more than the capacity.
	gates []*sequence
	// end is the number after the last element, or endOpen until the ring is closed.
	end           atomic.Uint64
	published     *sequence
	closeProducer func() // nil until there is one
	// room is the waker of the producer that waits for the gates. Only one waits at a time.
	room waker
}

const endOpen = math.MaxUint64

func (c *core) mustBeOpen(call string) {
	if c.gates != nil {
		panic("disruptor: " + call + " after the producer was made")
	}
}

func (c *core) seal(call string) {
	c.mustBeOpen(call)
	if len(c.consumers) == 0 {
		panic("disruptor: " + call + " without a consumer, which must release slots")
	}
	for _, consumer := range c.consumers {
		if s := &consumer.released; len(s.watchers) == 0 {
			c.gates = append(c.gates, s)
			s.watchers = []*waker{&c.room}
		}
	}
}

// check returns an error if a reservation of n slots can never succeed.
func (c *core) check(n int) error {
	if n < 1 || uint64(n) > c.capacity {
		return fmt.Errorf("%w: reserve %d of %d", ErrCapacity, n, c.capacity)
	}
	if c.end.Load() != endOpen {
		return ErrClosed
	}
	return nil
}

// limit returns the end of the slots that may be reserved now. It never decreases.
func (c *core) limit() uint64 { return lowest(c.gates) + c.capacity }

// awaitRoom waits until the limit is hi or more.
func (c *core) awaitRoom(ctx context.Context, hi uint64) error {
	done := ctx.Done()
	for attempt := 0; ; attempt++ {
		switch {
		case c.end.Load() != endOpen:
			return ErrClosed
		case c.limit() >= hi:
			return nil
		case isDone(done):
			return ctx.Err()
		}
		if !Park(attempt, 1) {
			c.parkForRoom(done, hi)
		}
	}
}

// parkForRoom sleeps until the first gate that is too far behind advances.
func (c *core) parkForRoom(done <-chan struct{}, hi uint64) {
	c.room.state.Store(parked)
	for _, gate := range c.gates {
		if gate.load()+c.capacity >= hi {
			continue
		}
		jitter()
		gate.watch()
		jitter()
		if gate.load()+c.capacity < hi && c.end.Load() == endOpen {
			c.room.park(done)
			return
		}
	}
	c.room.cancel(parked)
}

// close ends the ring before the element end, and wakes all sleepers.
func (c *core) close(end uint64) {
	c.end.Store(end)
	jitter()
	c.room.fire()
	for _, consumer := range c.consumers {
		consumer.sleep.fire()
	}
}
