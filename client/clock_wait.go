package client

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/host/steady"
)

// Wait waits until ts is surely in the past (a commit wait), or ctx is done. Whatever begins after it
// returns, anywhere, gets a larger timestamp. For a timestamp that was just made this takes about as
// long as the interval is wide, so run it beside other work of the operation. Errors are those of
// [Clock.Timestamp].
func (k *Clock) Wait(ctx context.Context, ts isotone.Timestamp) error {
	if k.After(ts) {
		return nil
	}
	if known := k.known.Load(); known.why == ErrClosed {
		return ErrClosed
	}
	w := &waiter{ts: ts, done: make(chan struct{})}
	k.waits.add(w)
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		k.waits.remove(w)
		return k.overdue(ctx)
	case <-k.ended:
		return ErrClosed
	}
}

// Timers of the runtime may be late by a millisecond, which is longer than most waits. So one
// goroutine wakes all waiting calls, in the order of their timestamps, and sleeps in the kernel.
const (
	// timerLate is how late a timer may be.
	timerLate = time.Millisecond + 200*time.Microsecond
	// napMax bounds a sleep in the kernel: a call that begins during it, with a smaller timestamp, may
	// be woken late by that much.
	napMax = 500 * time.Microsecond
)

// waiter is a call of Wait.
type waiter struct {
	ts   isotone.Timestamp
	at   int           // index in the heap, -1 outside
	done chan struct{} // closed when ts is past
}

// waits are the calls that wait, a heap with the smallest timestamp first. There are at most as many
// as there are goroutines in Wait. It is safe for concurrent use.
type waits struct {
	mu    sync.Mutex
	heap  waitHeap
	added chan struct{} // has room for one: there is a new smallest timestamp
}

func (l *waits) add(w *waiter) {
	l.mu.Lock()
	heap.Push(&l.heap, w)
	isFirst := w.at == 0
	l.mu.Unlock()
	if isFirst {
		select {
		case l.added <- struct{}{}:
		default:
		}
	}
}

func (l *waits) remove(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.at >= 0 {
		heap.Remove(&l.heap, w.at)
	}
}

// wake wakes the calls whose timestamp is past, and returns the smallest one that is not; ok is false
// if there is none.
func (l *waits) wake(bounds interval.Reading) (first isotone.Timestamp, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.heap) > 0 {
		if w := l.heap[0]; !interval.IsPast(w.ts, bounds) {
			return w.ts, true
		}
		close(heap.Pop(&l.heap).(*waiter).done)
	}
	return isotone.Timestamp{}, false
}

// release is the goroutine that wakes calls of Wait.
func (k *Clock) release() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for k.ctx.Err() == nil {
		known := k.known.Load()
		now := k.steady()
		bounds, good := known.estimate.Bounds(now)
		first, some := k.waits.wake(bounds)
		next := known.next
		if !some {
			next = nil
			timer.Stop()
		} else if d, ok := known.estimate.Until(now, first.Time); !ok {
			timer.Stop()
			if !good {
				k.want()
			}
		} else if rest := time.Duration(d); rest <= timerLate {
			steady.Sleep(min(rest, napMax))
			continue
		} else {
			timer.Reset(rest - timerLate)
		}
		select {
		case <-timer.C:
		case <-next:
		case <-k.waits.added:
		case <-k.ctx.Done():
		}
	}
}

// waitHeap implements [heap.Interface].
type waitHeap []*waiter

func (h waitHeap) Len() int           { return len(h) }
func (h waitHeap) Less(i, j int) bool { return h[i].ts.Before(h[j].ts) }

func (h waitHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

func (h *waitHeap) Push(x any) {
	w := x.(*waiter)
	w.at = len(*h)
	*h = append(*h, w)
}

func (h *waitHeap) Pop() any {
	last := len(*h) - 1
	w := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	w.at = -1
	return w
}
