package disruptor

import (
	"context"
	"sync/atomic"
)

// SharedProducer is the producer of a ring that several goroutines write to. All
// its methods may be called by any number of goroutines at the same time.
//
// Goroutines that find the ring full wait in line, parked: the first one gets what
// becomes free before anybody else, and what it leaves is for all. However many
// there are, only the first looks at the ring, and only it is woken.
type SharedProducer struct {
	// published is what is committed. It is in here, not behind a pointer, because a
	// load right after a locked instruction is one that Commit waits for.
	published sequence
	// claimed is the end of what is reserved, with closedBit after Close.
	claimed atomic.Uint64
	_       padding
	// limit is up to where any goroutine may claim. It is behind core.limit, and only
	// the holder of turn raises it.
	limit          atomic.Uint64
	capacity, mask uint64
	marks          []uint64 // see commit
	core           *core
	turn           chan struct{} // full while somebody has the turn
	_              padding
}

// closedBit is above all limits, so that no claim succeeds after it is set.
const closedBit = 1 << 63

// Reserve claims the next n slots, [lo, hi), and waits while there is no room for
// all of them. They must be committed, also when the ring is closed meanwhile: no
// consumer passes them before.
//
// An error matches [ErrCapacity] or [ErrClosed], or is that of ctx. Then nothing is
// reserved. The context is only looked at when Reserve has to wait.
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

// takeTurn waits in line. Those that wait to send to a channel come first in, first
// out.
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

// TryReserve is Reserve without waiting: if there is no room for n slots now, the
// error is [ErrFull]. It does not wait in line either, and may take what those in
// line wait for.
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

// claimFirst claims up to what the gates allow now, and then raises the limit for
// the others. The caller has the turn.
func (s *SharedProducer) claimFirst(n int) (lo, hi uint64, ok bool) {
	limit := s.core.limit()
	jitter()
	if lo, hi, ok = s.claim(n, limit); ok {
		s.limit.Store(limit)
	}
	return lo, hi, ok
}

// claim claims n slots below limit. Otherwise hi is what limit would have to be.
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

// Commit publishes [lo, hi). It never waits for others: consumers get the range when
// everything below lo is committed too. A range that was reserved may be committed
// in parts, in any order, also by another goroutine. Each slot must be committed
// once; what is committed twice, or not reserved, goes unnoticed and breaks the ring.
func (s *SharedProducer) Commit(lo, hi uint64) {
	// This is all that the compiler inlines: with a little more it would be a call.
	if !atomic.CompareAndSwapUint64(&s.published.value, lo, hi) || atomic.LoadUint64(&s.published.flags) != 0 {
		s.commit(lo, hi)
	}
}

// commit is the part of Commit for when something below lo is not committed, or
// something is to be done after [lo, hi) was.
//
// In the first case it leaves a mark, for whoever publishes up to lo to go on from
// there. No mark is overlooked, for the same reason as no wake-up is: a mark is
// counted and set before published is loaded, and published is advanced before the
// count is loaded. A mark that is not above its own place is of an earlier round.
//
// Marks for all ranges, which consumers then have to read, were tried. That is one
// operation in every case, and as fast when several cores commit at once, but much
// slower when they do not: every eighth commit writes to another line, and it is one
// that a consumer has just read.
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

// Close ends the ring: Reserve returns [ErrClosed] from now on, also to those that
// wait in it, and consumers get it after everything that was reserved before. A
// second Close does nothing.
func (s *SharedProducer) Close() {
	if claimed := s.claimed.Or(closedBit); claimed&closedBit == 0 {
		jitter()
		s.core.close(claimed)
	}
}
