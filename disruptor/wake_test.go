package disruptor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestArm_WakesOnce(t *testing.T) {
	eachWriter(t, func(t *testing.T, shared bool) {
		r := newRing[int](t, 8)
		c := r.Consumer()
		wakes := 0
		c.Wake = func() { wakes++ }
		w := writerOf(r, shared)
		send := func() {
			lo, hi, _ := w.Reserve(context.Background(), 1)
			w.Commit(lo, hi)
		}
		want := func(n int, after string) {
			t.Helper()
			if wakes != n {
				t.Fatalf("%d wake-ups after %s, want %d", wakes, after, n)
			}
		}
		send()
		want(0, "a commit without Arm")
		if c.Arm() {
			t.Fatal("Arm with something to take")
		}
		_, _, _ = c.Poll()
		if !c.Arm() {
			t.Fatal("Arm with nothing to take")
		}
		send()
		want(1, "the first commit")
		send()
		want(1, "the second commit")
		_, _, _ = c.Poll()
		_ = c.Arm()
		_, _, _ = c.Poll()
		send()
		want(1, "a commit after Arm and Poll")
		_, hi, _ := c.Poll()
		c.Release(hi)
		_ = c.Arm()
		w.Close()
		want(2, "Close")
		if c.Arm() {
			t.Fatal("Arm at the end")
		}
	})
}

func TestWaiting_TakesNothingAndKeepsTheArm(t *testing.T) {
	eachWriter(t, func(t *testing.T, shared bool) {
		r := newRing[int](t, 8)
		c := r.Consumer()
		wakes := 0
		c.Wake = func() { wakes++ }
		w := writerOf(r, shared)
		if !c.Arm() || c.Waiting() != 0 {
			t.Fatalf("%d elements wait in an empty ring", c.Waiting())
		}
		lo, hi, _ := w.Reserve(context.Background(), 3)
		w.Commit(lo, hi)
		if wakes != 1 || c.Waiting() != 3 || c.Waiting() != 3 {
			t.Fatalf("%d wake-ups, %d elements wait; want 1 and 3", wakes, c.Waiting())
		}
		if lo, hi, _ := c.Poll(); hi-lo != 3 || c.Waiting() != 0 {
			t.Fatalf("Poll took %d, %d elements wait", hi-lo, c.Waiting())
		}
	})
}

func TestArm_WaitsForAllItComesAfter(t *testing.T) {
	r := newRing[int](t, 8)
	a, b := r.Consumer(), r.Consumer()
	c := r.Consumer(a, b)
	wakes := 0
	c.Wake = func() { wakes++ }
	p := r.Producer()
	_ = c.Arm()
	lo, hi, _ := p.Reserve(context.Background(), 1)
	p.Commit(lo, hi)
	for _, before := range []*Consumer{a, b} {
		if lo, hi, _ := c.Poll(); lo != hi {
			t.Fatalf("Poll: %d, %d", lo, hi)
		}
		if !c.Arm() {
			t.Fatal("Arm")
		}
		wakes = 0
		_, hi, _ := before.Poll()
		before.Release(hi)
	}
	if lo, hi, _ := c.Poll(); wakes != 1 || lo != 0 || hi != 1 {
		t.Fatalf("%d wake-ups; Poll: %d, %d", wakes, lo, hi)
	}
}

// TestArm_NoWakeUpIsLost runs a consumer that arms and sleeps after every empty Poll, and
// producers that yield at critical points.
func TestArm_NoWakeUpIsLost(t *testing.T) {
	total := 20000
	if testing.Short() {
		total = 4000
	}
	eachProcs(t, func(t *testing.T) {
		for _, writers := range []int{0, 1, 4, 50} {
			t.Run(fmt.Sprintf("writers=%d", writers), func(t *testing.T) {
				testArm(t, writers, total)
			})
		}
	})
}

func testArm(t *testing.T, writers, total int) {
	r := newRing[uint64](t, 16)
	c := r.Consumer()
	var wakes atomic.Int64
	bell := make(chan struct{}, 1) // stands in for an eventfd
	c.Wake = func() {
		wakes.Add(1)
		select {
		case bell <- struct{}{}:
		default:
		}
	}
	w := writerOf(r, writers > 0)
	var group sync.WaitGroup
	share := total / max(writers, 1)
	for id := range max(writers, 1) {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(id), 4))
			for range share {
				lo, hi, err := w.Reserve(context.Background(), 1)
				if err != nil {
					t.Error(err)
					return
				}
				for range rng.IntN(4) {
					runtime.Gosched()
				}
				w.Commit(lo, hi)
				if rng.IntN(8) == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	closed := start(func() { group.Wait(); w.Close() })
	var taken, arms uint64
	alarm := time.NewTimer(patience)
	defer alarm.Stop()
	for {
		lo, hi, err := c.Poll()
		if err == ErrClosed {
			break
		}
		taken += hi - lo
		c.Release(hi)
		if lo < hi {
			continue
		}
		if !c.Arm() {
			arms++ // Wake may have been called
			continue
		}
		arms++
		select {
		case <-bell:
		case <-alarm.C:
			t.Fatalf("asleep at %d, published is %d", hi, r.core.published.load())
		}
	}
	<-closed
	if taken != uint64(share*max(writers, 1)) || wakes.Load() > int64(arms) {
		t.Errorf("%d elements, armed %d times, woken %d times", taken, arms, wakes.Load())
	}
}

func TestPark_IdleTakesNoCPU(t *testing.T) {
	r := newRing[int](t, 4)
	c := r.Consumer()
	var looks atomic.Int64
	c.Wait = func(attempt, last int) bool {
		looks.Add(1)
		return Park(attempt, last)
	}
	p := r.Producer()
	reader := start(func() {
		for {
			_, hi, err := c.Next(context.Background())
			if err != nil {
				return
			}
			c.Release(hi)
		}
	})
	isParked := func() bool { return c.sleep.state.Load() == parked }
	for range 3 {
		eventually(t, "consumer parks", isParked)
		before := looks.Load()
		time.Sleep(20 * time.Millisecond)
		if !isParked() || looks.Load() != before {
			t.Errorf("polled %d times while idle", looks.Load()-before)
		}
		lo, hi, _ := p.Reserve(context.Background(), 1)
		p.Commit(lo, hi)
	}
	p.Close()
	wait(t, "reader ends", reader)
	// Between two parks it yields yieldsMax times; it was woken four times at most.
	if n := looks.Load(); n > 5*(yieldsMax+1) {
		t.Errorf("polled %d times in all", n)
	}
}

func TestPark_LooksOftenOnlyAtSingleElements(t *testing.T) {
	looks := func(last int) (n int) {
		for Park(n, last) {
			n++
		}
		return n
	}
	for last, want := range map[int]int{0: yieldsMax, 1: yieldsMax, 2: 1, 1000: 1} {
		if got := looks(last); got != want {
			t.Errorf("%d polls after a batch of %d, want %d", got, last, want)
		}
	}
}

func TestPark_ProducersThatWaitTakeNoCPU(t *testing.T) {
	r := newRing[int](t, 1)
	c := r.Consumer()
	s := r.SharedProducer()
	lo, hi, _ := s.Reserve(context.Background(), 1)
	s.Commit(lo, hi)
	const writers = 20
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			lo, hi, err := s.Reserve(patient(t), 1)
			if err != nil {
				t.Error(err)
				return
			}
			s.Commit(lo, hi)
		})
	}
	// The first in line is parked in room, the others in turn: none of them spins.
	for want := uint64(1); want <= writers; want++ {
		eventually(t, "first in line parks", func() bool { return r.core.room.state.Load() == parked })
		_, hi, err := c.Poll()
		if hi != want || err != nil {
			t.Fatalf("Poll: up to %d, %v; want %d", hi, err, want)
		}
		if want == writers {
			time.Sleep(10 * time.Millisecond)
			if r.core.room.state.Load() != parked {
				t.Error("the first in line polls the ring, though nothing was released")
			}
		}
		c.Release(hi)
		eventually(t, "one commits", func() bool { return r.core.published.load() == want+1 })
	}
	wait(t, "all end", start(group.Wait))
}

func TestHotPath_DoesNotAllocate(t *testing.T) {
	eachWriter(t, func(t *testing.T, shared bool) {
		r := newRing[uint64](t, 16)
		first := r.Consumer()
		second := r.Consumer(first)
		second.Wake = func() {}
		w := writerOf(r, shared)
		ctx := context.Background()
		if n := testing.AllocsPerRun(1000, func() {
			_ = second.Arm()
			lo, hi, _ := w.Reserve(ctx, 3)
			for seq := lo; seq < hi; seq++ {
				*r.At(seq) = seq
			}
			w.Commit(lo, hi)
			lo, hi, _ = w.TryReserve(1)
			w.Commit(lo, hi)
			_, _, _ = w.TryReserve(16)
			_, hi, _ = first.Next(ctx)
			first.Release(hi)
			lo, hi, _ = second.Poll()
			_, _ = r.Slots(lo, hi)
			second.Release(hi)
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}

// Sleeping and waking do not allocate either, on both sides: the reader releases when the
// producer has parked, and parks before the producer commits again.
func TestPark_DoesNotAllocate(t *testing.T) {
	eachWriter(t, func(t *testing.T, shared bool) {
		r := newRing[int](t, 1)
		c := r.Consumer()
		c.Wait = func(int, int) bool { return false }
		w := writerOf(r, shared)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		var last atomic.Bool
		reader := start(func() {
			for {
				_, hi, err := c.Next(ctx)
				if err != nil {
					return
				}
				for r.core.room.state.Load() != parked && !last.Load() {
					runtime.Gosched()
				}
				c.Release(hi)
			}
		})
		once := func() {
			lo, hi, _ := w.Reserve(ctx, 1)
			for c.sleep.state.Load() != parked {
				runtime.Gosched()
			}
			w.Commit(lo, hi)
		}
		for range 100 {
			once() // the runtime fills its caches
		}
		if n := testing.AllocsPerRun(1000, once); n != 0 {
			t.Errorf("%v allocations", n)
		}
		last.Store(true)
		w.Close()
		wait(t, "reader ends", reader)
	})
}
