package disruptor

import (
	"context"
	"fmt"
	"sync/atomic"
)

// Producer is the only producer of its ring. Only one goroutine may call its methods.
type Producer struct {
	_ padding
	// claimed is the end of what is reserved. Up to limit there is no need to load the
	// gates.
	claimed, limit   uint64
	published, flags *uint64 // of core.published
	core             *core
	_                padding
}

// Reserve claims the next n slots, [lo, hi), and waits while there is no room for
// all of them. More may be reserved before those are committed.
//
// If it fails, nothing is reserved, and the error matches [ErrCapacity] or
// [ErrClosed], or is that of ctx. Reserve checks the context only if it has to wait.
func (p *Producer) Reserve(ctx context.Context, n int) (lo, hi uint64, err error) {
	if uint64(n)-1 < p.limit-p.claimed { // 1 ≤ n ≤ what is left
		lo, hi = p.claimed, p.claimed+uint64(n)
		p.claimed = hi
		return lo, hi, nil
	}
	if lo, hi, err = p.TryReserve(n); err != ErrFull {
		return lo, hi, err
	}
	if err := p.core.awaitRoom(ctx, p.claimed+uint64(n)); err != nil {
		return 0, 0, err
	}
	return p.TryReserve(n)
}

// TryReserve is like Reserve, but does not wait: if there is no room for n slots now,
// the error is [ErrFull].
func (p *Producer) TryReserve(n int) (lo, hi uint64, err error) {
	if uint64(n)-1 >= p.limit-p.claimed {
		if err := p.core.check(n); err != nil {
			return 0, 0, err
		}
		if committed := p.core.published.load(); committed > p.claimed {
			panic(fmt.Sprintf("disruptor: committed up to %d, but reserved up to %d", committed, p.claimed))
		}
		if p.limit = p.core.limit(); p.claimed+uint64(n) > p.limit {
			return 0, 0, ErrFull
		}
	}
	lo, hi = p.claimed, p.claimed+uint64(n)
	p.claimed = hi
	return lo, hi, nil
}

// Commit publishes [lo, hi). Commits must be in order: Commit panics if lo is not
// where the last range ended. Ranges may be split differently than they were
// reserved, but hi must be reserved and above lo.
func (p *Producer) Commit(lo, hi uint64) {
	// Anything more would exceed the compiler's limit for inlining.
	if hi = atomic.SwapUint64(p.published, hi); hi != lo || atomic.LoadUint64(p.flags) != 0 {
		p.committed(lo, hi)
	}
}

// committed is the slow path of Commit. The previous range ended at last.
//
//go:noinline
func (p *Producer) committed(lo, last uint64) {
	if last != lo {
		panic(fmt.Sprintf("disruptor: commit from %d, but the last one ended at %d", lo, last))
	}
	p.core.published.notify()
}

// Close ends the ring: Reserve returns [ErrClosed] from now on, and consumers get it
// after everything that was committed. What is reserved and not committed is
// discarded, and must not be committed afterwards. A second Close does nothing.
//
// Like every method, Close must be called by the producer's goroutine. To stop a
// producer that waits in Reserve, cancel its context.
func (p *Producer) Close() {
	if p.core.end.Load() == endOpen {
		p.limit = p.claimed
		p.core.close(p.core.published.load())
	}
}
