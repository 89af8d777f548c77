package disruptor

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
)

func TestNew_WantsPowerOfTwo(t *testing.T) {
	for _, capacity := range []int{math.MinInt, -8, -1, 0, 3, 6, 1000, math.MaxInt} {
		if r, err := New[int](capacity); !errors.Is(err, ErrCapacity) || r != nil {
			t.Errorf("New(%d): %v, %v", capacity, r, err)
		}
	}
	for _, capacity := range []int{1, 2, 4, 1024} {
		if _, err := New[int](capacity); err != nil {
			t.Errorf("New(%d): %v", capacity, err)
		}
	}
}

func TestRing_SetUpOutOfOrderPanics(t *testing.T) {
	ready := func() *Ring[int] {
		r := newRing[int](t, 4)
		r.Consumer()
		return r
	}
	for name, f := range map[string]func(){
		"producer without consumer":        func() { newRing[int](t, 4).Producer() },
		"shared producer without consumer": func() { newRing[int](t, 4).SharedProducer() },
		"two producers":                    func() { r := ready(); r.Producer(); r.Producer() },
		"both producers":                   func() { r := ready(); r.Producer(); r.SharedProducer() },
		"consumer after producer":          func() { r := ready(); r.SharedProducer(); r.Consumer() },
		"consumer of another ring":         func() { ready().Consumer(ready().Consumer()) },
		"arm without wake":                 func() { newRing[int](t, 4).Consumer().Arm() },
	} {
		t.Run(name, func(t *testing.T) { mustPanic(t, f) })
	}
}

func TestRing_MisuseThatIsNoticedPanics(t *testing.T) {
	set := func() (*Producer, *Consumer) {
		r := newRing[int](t, 4)
		c := r.Consumer()
		p := r.Producer()
		lo, hi, _ := p.Reserve(context.Background(), 3)
		p.Commit(lo, hi-1)
		_, taken, _ := c.Poll()
		c.Release(taken - 1) // 3 reserved, 2 committed and taken, 1 released
		return p, c
	}
	for name, f := range map[string]func(*Producer, *Consumer){
		"commit again":            func(p *Producer, _ *Consumer) { p.Commit(0, 2) },
		"commit with a gap":       func(p *Producer, _ *Consumer) { p.Commit(3, 4) },
		"commit of what is not":   func(p *Producer, _ *Consumer) { p.Commit(2, 4); _, _, _ = p.TryReserve(2) },
		"commit backwards":        func(p *Producer, c *Consumer) { p.Commit(2, 1); _, _, _ = c.Poll() },
		"release again":           func(_ *Producer, c *Consumer) { c.Release(0) },
		"release of what is not":  func(_ *Producer, c *Consumer) { c.Release(3) },
		"release of never taken":  func(p *Producer, c *Consumer) { p.Commit(2, 3); c.Release(3) },
		"release of the far past": func(_ *Producer, c *Consumer) { c.Release(math.MaxUint64) },
	} {
		t.Run(name, func(t *testing.T) { mustPanic(t, func() { f(set()) }) })
	}
}

func mustPanic(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Error("did not panic")
		}
	}()
	f()
}

func TestRing_SlotsAreThoseOfAt(t *testing.T) {
	r := newRing[uint64](t, 8)
	for lo := range uint64(20) {
		for hi := lo; hi <= lo+8; hi++ {
			for seq := lo; seq < hi; seq++ {
				*r.At(seq) = seq
			}
			first, rest := r.Slots(lo, hi)
			got := slices.Concat(first, rest)
			if len(got) != int(hi-lo) || len(got) > 0 && (got[0] != lo || got[len(got)-1] != hi-1) {
				t.Fatalf("Slots(%d, %d): %v", lo, hi, got)
			}
			if !slices.IsSorted(got) {
				t.Fatalf("Slots(%d, %d): %v", lo, hi, got)
			}
			if !slices.Equal(first, got[:len(first)]) || lo%8+(hi-lo) <= 8 && len(rest) > 0 {
				t.Fatalf("Slots(%d, %d): %v and %v", lo, hi, first, rest)
			}
		}
	}
}

func TestReserve_RefusesWhatNeverFits(t *testing.T) {
	eachWriter(t, func(t *testing.T, shared bool) {
		r := newRing[int](t, 4)
		c := r.Consumer()
		w := writerOf(r, shared)
		bad := []int{math.MinInt, -1, 0, 5, math.MaxInt}
		refused := func(want error) {
			t.Helper()
			for _, n := range bad {
				if _, _, err := w.Reserve(context.Background(), n); !errors.Is(err, want) {
					t.Errorf("Reserve(%d): %v", n, err)
				}
				if _, _, err := w.TryReserve(n); !errors.Is(err, want) {
					t.Errorf("TryReserve(%d): %v", n, err)
				}
			}
		}
		refused(ErrCapacity)
		lo, hi, err := w.Reserve(context.Background(), 4) // the whole ring fits
		if lo != 0 || hi != 4 || err != nil {
			t.Fatalf("Reserve: %d, %d, %v", lo, hi, err)
		}
		refused(ErrCapacity)
		w.Commit(lo, hi)
		if lo, hi, err := c.Poll(); lo != 0 || hi != 4 || err != nil {
			t.Fatalf("Poll: %d, %d, %v", lo, hi, err)
		}
		c.Release(2)
		refused(ErrCapacity)
		if _, _, err := w.TryReserve(3); err != ErrFull {
			t.Fatalf("TryReserve(3) with room for 2: %v", err)
		}
		if lo, hi, err := w.TryReserve(2); lo != 4 || hi != 6 || err != nil {
			t.Fatalf("TryReserve(2) with room for 2: %d, %d, %v", lo, hi, err)
		}
		w.Close()
		refused(ErrCapacity)
		bad = []int{1, 4}
		refused(ErrClosed)
	})
}

func TestReserve_BlockedGoesOnWhenReleased(t *testing.T) {
	eachWriter(t, func(t *testing.T, shared bool) {
		r := newRing[int](t, 4)
		first := r.Consumer()
		last := r.Consumer(first)
		w := writerOf(r, shared)
		lo, hi, _ := w.Reserve(context.Background(), 4)
		w.Commit(lo, hi)

		blocked := start(func() {
			if lo, hi, err := w.Reserve(patient(t), 2); lo != 4 || hi != 6 || err != nil {
				t.Errorf("Reserve: %d, %d, %v", lo, hi, err)
			}
		})
		room := &r.core.room
		eventually(t, "producer parks", func() bool { return room.state.Load() == parked })
		_, hi, _ = first.Poll()
		first.Release(hi) // makes no room: the last consumer has released nothing
		if _, hi, _ = last.Poll(); hi != 4 {
			t.Fatalf("Poll: up to %d", hi)
		}
		last.Release(1) // room for one
		eventually(t, "producer wakes and parks again", func() bool {
			return room.state.Load() == parked && len(room.token) == 0
		})
		select {
		case <-blocked:
			t.Fatal("Reserve(2) returned with room for 1")
		default:
		}
		last.Release(2)
		wait(t, "producer gets its two", blocked)
	})
}

func TestReserve_ContextEndsTheWaitAndReservesNothing(t *testing.T) {
	eachWriter(t, func(t *testing.T, shared bool) {
		r := newRing[int](t, 2)
		c := r.Consumer()
		w := writerOf(r, shared)
		done, cancel := context.WithCancel(context.Background())
		cancel()
		lo, hi, err := w.Reserve(done, 2) // there is room: ctx is not checked
		if err != nil {
			t.Fatal(err)
		}
		w.Commit(lo, hi)
		if _, _, err := w.Reserve(done, 1); !errors.Is(err, context.Canceled) {
			t.Fatalf("Reserve with a context that is done: %v", err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		blocked := start(func() {
			if _, _, err := w.Reserve(ctx, 1); !errors.Is(err, context.Canceled) {
				t.Errorf("Reserve: %v", err)
			}
		})
		eventually(t, "producer parks", func() bool { return r.core.room.state.Load() == parked })
		cancel()
		wait(t, "producer gives up", blocked)

		_, hi, _ = c.Poll()
		c.Release(hi)
		if lo, hi, err := w.Reserve(patient(t), 2); lo != 2 || hi != 4 || err != nil {
			t.Fatalf("Reserve afterwards: %d, %d, %v", lo, hi, err)
		}
	})
}

func TestSharedProducer_ContextEndsTheWaitInLine(t *testing.T) {
	r := newRing[int](t, 1)
	c := r.Consumer()
	s := r.SharedProducer()
	lo, hi, _ := s.Reserve(context.Background(), 1)
	s.Commit(lo, hi)
	head := start(func() {
		if lo, _, err := s.Reserve(patient(t), 1); lo != 1 || err != nil {
			t.Errorf("first in line: %d, %v", lo, err)
		}
	})
	eventually(t, "first in line parks", func() bool { return r.core.room.state.Load() == parked })
	ctx, cancel := context.WithCancel(context.Background())
	second := start(func() {
		if _, _, err := s.Reserve(ctx, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("second in line: %v", err)
		}
	})
	if _, _, err := s.TryReserve(1); err != ErrFull {
		t.Errorf("TryReserve while others wait: %v", err)
	}
	cancel()
	wait(t, "second in line gives up", second)
	_, hi, _ = c.Poll()
	c.Release(hi)
	wait(t, "first in line goes on", head)
}

// A reservation of the whole ring succeeds although small ones keep coming.
func TestSharedProducer_LargeReservationIsNotStarved(t *testing.T) {
	r := newRing[int](t, 8)
	c := r.Consumer()
	s := r.SharedProducer()
	ctx, cancel := context.WithCancel(patient(t))
	small := make([]<-chan struct{}, 4)
	for i := range small {
		small[i] = start(func() {
			for {
				lo, hi, err := s.Reserve(ctx, 1)
				if err != nil {
					return
				}
				s.Commit(lo, hi)
			}
		})
	}
	reader := start(func() {
		for {
			_, hi, err := c.Next(context.Background())
			if err != nil {
				return
			}
			c.Release(hi)
		}
	})
	for range 20 {
		lo, hi, err := s.Reserve(patient(t), 8)
		if err != nil {
			t.Fatal(err)
		}
		s.Commit(lo, hi)
	}
	cancel()
	s.Close()
	for _, done := range append(small, reader) {
		wait(t, "all goroutines end", done)
	}
}

// A goroutine waits in line only if it finds no room below the limit.
func TestSharedProducer_RoomIsForAll(t *testing.T) {
	r := newRing[int](t, 8)
	r.Consumer()
	s := r.SharedProducer()
	_, _, _ = s.Reserve(context.Background(), 1)
	s.turn <- struct{}{}
	if _, hi, err := s.Reserve(patient(t), 7); hi != 8 || err != nil {
		t.Errorf("Reserve: up to %d, %v", hi, err)
	}
}

func TestSharedProducer_GapIsNeverSkipped(t *testing.T) {
	r := newRing[int](t, 8)
	c := r.Consumer()
	s := r.SharedProducer()
	var lo, hi [3]uint64
	for i := range lo {
		lo[i], hi[i], _ = s.Reserve(context.Background(), 2)
	}
	want := func(end uint64) {
		t.Helper()
		if _, got, err := c.Poll(); got != end || err != nil {
			t.Fatalf("Poll: up to %d, %v; want %d", got, err, end)
		}
	}
	s.Commit(lo[2], hi[2])
	want(0)
	s.Commit(lo[1]+1, hi[1]) // in parts, the later one first
	want(0)
	s.Commit(lo[0], hi[0])
	want(2)
	s.Commit(lo[1], lo[1]+1)
	want(6)
	if flags := s.published.flags; flags != 0 {
		t.Errorf("flags are %#x with nothing pending", flags)
	}
}

func TestClose_DrainsThenEnds(t *testing.T) {
	eachWriter(t, func(t *testing.T, shared bool) {
		r := newRing[uint64](t, 8)
		a := r.Consumer()
		b := r.Consumer(a)
		w := writerOf(r, shared)
		lo, hi, _ := w.Reserve(context.Background(), 5)
		for seq := lo; seq < hi; seq++ {
			*r.At(seq) = seq
		}
		w.Commit(lo, hi)
		w.Close()
		w.Close()
		for _, c := range []*Consumer{a, b} {
			lo, hi, err := c.Next(context.Background())
			if lo != 0 || hi != 5 || err != nil {
				t.Fatalf("Next: %d, %d, %v", lo, hi, err)
			}
			for range 2 {
				if lo, hi, err := c.Next(context.Background()); lo != 5 || hi != 5 || err != ErrClosed {
					t.Fatalf("Next at the end: %d, %d, %v", lo, hi, err)
				}
			}
			c.Release(hi)
		}
	})
}

func TestClose_WakesEverybody(t *testing.T) {
	eachWriter(t, func(t *testing.T, shared bool) {
		r := newRing[int](t, 4)
		a := r.Consumer()
		b := r.Consumer(a)
		w := writerOf(r, shared)
		var sleepers []<-chan struct{}
		for _, c := range []*Consumer{a, b} {
			sleepers = append(sleepers, start(func() {
				if _, _, err := c.Next(context.Background()); err != ErrClosed {
					t.Errorf("Next: %v", err)
				}
			}))
			eventually(t, "consumer parks", func() bool { return c.sleep.state.Load() == parked })
		}
		w.Close()
		for _, done := range sleepers {
			wait(t, "consumer ends", done)
		}
	})
}

func TestProducer_CloseDropsWhatIsNotCommitted(t *testing.T) {
	r := newRing[int](t, 4)
	c := r.Consumer()
	p := r.Producer()
	_, _, _ = p.Reserve(context.Background(), 3)
	p.Commit(0, 1)
	p.Close()
	if _, hi, err := c.Poll(); hi != 1 || err != nil {
		t.Fatalf("Poll: up to %d, %v", hi, err)
	}
	if _, _, err := c.Poll(); err != ErrClosed {
		t.Fatalf("Poll at the end: %v", err)
	}
}

func TestSharedProducer_CloseWaitsForReservations(t *testing.T) {
	r := newRing[int](t, 4)
	c := r.Consumer()
	s := r.SharedProducer()
	lo, hi, _ := s.Reserve(context.Background(), 4)
	var line []<-chan struct{}
	for range 3 {
		line = append(line, start(func() {
			if _, _, err := s.Reserve(context.Background(), 1); err != ErrClosed {
				t.Errorf("Reserve: %v", err)
			}
		}))
	}
	eventually(t, "a producer parks", func() bool { return r.core.room.state.Load() == parked })
	s.Close()
	for _, done := range line {
		wait(t, "producers get ErrClosed", done)
	}
	s.Commit(lo, lo+1)
	if _, hi, err := c.Poll(); hi != 1 || err != nil {
		t.Fatalf("Poll: up to %d, %v", hi, err)
	}
	if _, hi, err := c.Poll(); hi != 1 || err != nil {
		t.Fatalf("Poll with a reservation open: up to %d, %v", hi, err)
	}
	s.Commit(lo+1, hi)
	if _, hi, err := c.Poll(); hi != 4 || err != nil {
		t.Fatalf("Poll: up to %d, %v", hi, err)
	}
	if _, _, err := c.Poll(); err != ErrClosed {
		t.Fatalf("Poll at the end: %v", err)
	}
}

func TestNext_ContextEndsTheWait(t *testing.T) {
	r := newRing[int](t, 4)
	c := r.Consumer()
	p := r.Producer()
	ctx, cancel := context.WithCancel(context.Background())
	blocked := start(func() {
		if lo, hi, err := c.Next(ctx); lo != hi || !errors.Is(err, context.Canceled) {
			t.Errorf("Next: %d, %d, %v", lo, hi, err)
		}
	})
	eventually(t, "consumer parks", func() bool { return c.sleep.state.Load() == parked })
	cancel()
	wait(t, "consumer gives up", blocked)
	lo, hi, _ := p.Reserve(context.Background(), 1)
	p.Commit(lo, hi)
	if lo, hi, err := c.Next(ctx); lo != 0 || hi != 1 || err != nil { // there is one: ctx is not checked
		t.Fatalf("Next: %d, %d, %v", lo, hi, err)
	}
}
