package main

import (
	"context"
	"errors"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
)

// callTimeout bounds how long calls go on after the end of a measurement.
const callTimeout = 10 * time.Second

// result is one measurement.
type result struct {
	took   time.Duration
	calls  uint64
	failed uint64
	spread histogram
}

// rate returns the timestamps a second.
func (r *result) rate() float64 { return float64(r.calls) / r.took.Seconds() }

// quantile returns the latency that a share q of the calls had at most, to within 1/16.
func (r *result) quantile(q float64) time.Duration {
	left := uint64(q * float64(r.calls))
	for i, n := range r.spread {
		if left < n {
			return upper(i)
		}
		left -= n
	}
	return 0
}

// histogram counts latencies: buckets of sixteen to each power of two, in nanoseconds.
type histogram [64 << 4]uint64

func (h *histogram) add(d time.Duration) { h[bucket(d)]++ }

func bucket(d time.Duration) int {
	n := uint64(max(d, 0))
	if n < 16 {
		return int(n)
	}
	shift := bits.Len64(n) - 5
	return (shift+1)<<4 | int(n>>shift&15)
}

// upper returns the largest latency of a bucket.
func upper(i int) time.Duration {
	if i < 16 {
		return time.Duration(i)
	}
	shift := i>>4 - 1
	return time.Duration(uint64(i&15|16)<<shift + 1<<shift - 1)
}

// tallies share counting among processors, so that callers seldom wait for each other.
type tallies [64]struct {
	sync.Mutex
	result
}

// asked is a request under way. Its timestamp has to be above what the caller had when it began.
type asked struct {
	wait  func() (isotone.Timestamp64, error)
	above isotone.Timestamp64
	began time.Time
}

// ring are the requests of one caller that are under way.
type ring struct {
	system *system
	list   []asked
	at     int
	last   isotone.Timestamp64
}

// next waits for the oldest request, and begins another. With one request it calls the system directly.
func (r *ring) next(ctx context.Context) (took time.Duration, err error) {
	a := &r.list[r.at]
	var ts isotone.Timestamp64
	switch {
	case len(r.list) == 1:
		a.began, a.above = time.Now(), r.last
		ts, err = r.system.next(ctx)
	case a.wait != nil:
		ts, err = a.wait()
	}
	if err == nil && ts <= a.above && !a.began.IsZero() {
		return 0, errOrder
	}
	r.last = max(r.last, ts)
	took = time.Since(a.began)
	if a.began.IsZero() {
		took = 0
	}
	if len(r.list) > 1 {
		*a = asked{wait: r.system.begin(ctx), above: r.last, began: time.Now()}
		r.at = (r.at + 1) % len(r.list)
	}
	return took, err
}

// measure loads s with callers, each with inFlight requests under way. It fails if all calls fail, or a
// timestamp is out of order.
func measure(ctx context.Context, s *system, callers, inFlight int, warmup, duration time.Duration) (result, error) {
	loading, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	calls, giveUp := context.WithCancel(context.Background())
	defer giveUp()
	context.AfterFunc(loading, func() { time.AfterFunc(callTimeout, giveUp) })
	var counting atomic.Bool
	all := new(tallies)
	var work sync.WaitGroup
	for i := range callers {
		work.Go(func() {
			t := &all[i%len(all)]
			r := &ring{system: s, list: make([]asked, inFlight)}
			for loading.Err() == nil {
				took, err := r.next(calls)
				if errors.Is(err, errOrder) {
					stop(errOrder)
				}
				if counting.Load() && (took > 0 || err != nil) {
					t.Lock()
					t.note(took, err)
					t.Unlock()
				}
				if err != nil {
					pause(loading)
				}
			}
			for i := range r.list {
				if r.list[i].wait != nil {
					_, _ = r.list[i].wait()
				}
			}
		})
	}
	pauseFor(loading, warmup)
	counting.Store(true)
	began := time.Now()
	pauseFor(loading, duration)
	counting.Store(false)
	sum := result{took: time.Since(began)}
	stop(nil)
	work.Wait()
	for i := range all {
		sum.merge(&all[i].result)
	}
	switch cause := context.Cause(loading); {
	case errors.Is(cause, errOrder) || ctx.Err() != nil:
		return sum, cause
	case sum.calls == 0:
		return sum, errors.New("no call was answered")
	}
	return sum, nil
}

func (r *result) note(took time.Duration, err error) {
	if err != nil {
		r.failed++
		return
	}
	r.calls++
	r.spread.add(took)
}

func (r *result) merge(o *result) {
	r.calls += o.calls
	r.failed += o.failed
	for i, n := range o.spread {
		r.spread[i] += n
	}
}

// pause keeps a caller that is refused from asking all the time.
func pause(ctx context.Context) { pauseFor(ctx, 10*time.Millisecond) }

func pauseFor(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
