package disruptor

import (
	"context"
	"sync/atomic"
)

// SharedProducer is a producer for several goroutines: all its methods are safe for
// concurrent use.
//
// Goroutines that find the ring full wait in line, parked: the first one has
// precedence for slots that become free, and all others share the rest. However many
// there are, only the first polls the ring, and only the first is woken.
type SharedProducer struct {
	// published is the end of what is committed. It is not behind a pointer, because
	// Commit would have to wait for the load of the pointer after a locked instruction.
	published sequence
	// claimed is the end of what is reserved, with closedBit after Close.
	claimed atomic.Uint64
	_       padding
	// limit is the end of the slots that any goroutine may claim. It is at most
	// core.limit, and only the holder of turn raises it.
	limit          atomic.Uint64
	capacity, mask uint64
	marks          []uint64 // see commit
	core           *core
	turn           chan struct{} // full while a goroutine has the turn
	_              padding
}

// closedBit is above all limits, so that no claim succeeds after it is set.
const closedBit = 1 << 63

// Reserve claims the next n slots, [lo, hi), and waits while there is no room for
// all of them. They must be committed, even if the ring is closed meanwhile: until
// then no consumer passes them.
//
// If it fails, nothing is reserved, and the error matches [ErrCapacity] or
// [ErrClosed], or is that of ctx. Reserve checks the context only if it has to wait.
func (s *SharedProducer) Reserve(ctx context.Context, n int) (lo, hi uint64, err error) {
	lo = s.claimed.Load()
	hi = lo + uint64(n)
	if uint64(n)-1 < s.capacity && hi <= s.limit.Load() && s.claimed.CompareAndSwap(lo, hi) {
		return lo, hi, nil
	}
	return s.reserve(ctx, n)
}

func (s *SharedProducer) reserve(ctx context.Context, n int) (lo, hi uint64, err error) {
	if err := s.core.check(n); err != nil {
		return 0, 0, err
	}
	if lo, hi, ok := s.claim(n, s.limit.Load()); ok {
		return lo, hi, nil
	}
	if err := s.takeTurn(ctx); err != nil {
		return 0, 0, err
	}
	defer func() { <-s.turn }()
	for {
		lo, hi, ok := s.claimFirst(n)
		if ok {
			return lo, hi, nil
		}
		if err := s.core.awaitRoom(ctx, hi); err != nil {
			return 0, 0, err
		}
	}
}

// takeTurn waits in line: a channel serves waiting senders first in, first out.
func (s *SharedProducer) takeTurn(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TryReserve is like Reserve, but does not wait: if there is no room for n slots now,
// the error is [ErrFull]. It may take slots for which goroutines wait in line.
func (s *SharedProducer) TryReserve(n int) (lo, hi uint64, err error) {
	if err := s.core.check(n); err != nil {
		return 0, 0, err
	}
	lo, hi, ok := s.claim(n, s.limit.Load())
	if !ok {
		select {
		case s.turn <- struct{}{}:
			lo, hi, ok = s.claimFirst(n)
			<-s.turn
		default:
			lo, hi, ok = s.claim(n, s.core.limit())
		}
	}
	if !ok {
		return 0, 0, ErrFull
	}
	return lo, hi, nil
}

// claimFirst claims slots up to the current limit of the gates, and then raises the limit
// of the other goroutines. The caller has the turn.
func (s *SharedProducer) claimFirst(n int) (lo, hi uint64, ok bool) {
	limit := s.core.limit()
	jitter()
	if lo, hi, ok = s.claim(n, limit); ok {
		s.limit.Store(limit)
	}
	return lo, hi, ok
}

// claim claims n slots below limit. If there are too few, hi is the limit that it needs.
func (s *SharedProducer) claim(n int, limit uint64) (lo, hi uint64, ok bool) {
	for {
		lo = s.claimed.Load()
		hi = lo + uint64(n)
		if hi > limit {
			return lo, hi, false
		}
		if s.claimed.CompareAndSwap(lo, hi) {
			return lo, hi, true
		}
	}
}

// Commit publishes [lo, hi). It never waits: consumers get the range when everything
// below lo is committed too. A reserved range may be committed in parts, in any order,
// and by any goroutine. Each slot must be committed once: a slot that is committed
// twice, or that was not reserved, is not detected and corrupts the ring.
func (s *SharedProducer) Commit(lo, hi uint64) {
	// Anything more would exceed the compiler's limit for inlining.
	if !atomic.CompareAndSwapUint64(&s.published.value, lo, hi) || atomic.LoadUint64(&s.published.flags) != 0 {
		s.commit(lo, hi)
	}
}

// commit is the slow path of Commit: something below lo is not committed, or there is
// more to do after the commit of [lo, hi).
//
// In the first case it sets a mark, so that the goroutine that publishes up to lo goes
// on from there. No mark is lost, for the same reason as no wake-up is lost: a mark is
// counted and set before published is loaded, and published is advanced before the
// count is loaded. A mark that is not above its own place is from an earlier round.
//
// An earlier version set marks for all ranges, which consumers had to read. That is
// one operation in every case, and as fast when several cores commit at once, but much
// slower when they do not: every eighth commit writes to another line, which a
// consumer has just read.
//
//go:noinline
func (s *SharedProducer) commit(lo, hi uint64) {
	jitter()
	if atomic.LoadUint64(&s.published.value) <= lo && lo < hi {
		atomic.AddUint64(&s.published.flags, marked)
		jitter()
		atomic.StoreUint64(&s.marks[lo&s.mask], hi)
	}
	for {
		at := atomic.LoadUint64(&s.published.value)
		mark := atomic.LoadUint64(&s.marks[at&s.mask])
		if mark <= at {
			break
		}
		jitter()
		if atomic.CompareAndSwapUint64(&s.published.value, at, mark) {
			atomic.AddUint64(&s.published.flags, ^uint64(marked-1))
		}
	}
	if atomic.LoadUint64(&s.published.flags)&watched != 0 {
		s.published.notify()
	}
}

// Close ends the ring: Reserve returns [ErrClosed] from now on, also in goroutines that
// already wait, and consumers get it after everything that was reserved before. A
// second Close does nothing.
func (s *SharedProducer) Close() {
	if claimed := s.claimed.Or(closedBit); claimed&closedBit == 0 {
		jitter()
		s.core.close(claimed)
	}
}
