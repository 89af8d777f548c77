package client_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
)

// TestClock_TimestampsAreUniqueAndInOrder: of each generator and goroutine they increase, all together
// are unique, and none is below the clock.
func TestClock_TimestampsAreUniqueAndInOrder(t *testing.T) {
	f := startCluster(t, 3)
	k := clock(t, f.dial(client.Options{}), client.ClockOptions{})
	ctx := within(t, 20*time.Second)
	var mu sync.Mutex
	var all []isotone.Timestamp
	var wg sync.WaitGroup
	one := k.NewGenerator()
	for i := range 6 {
		g := k.NewGenerator()
		wg.Go(func() {
			var mine []isotone.Timestamp
			next := []func(context.Context) (isotone.Timestamp, error){k.Timestamp, g.Timestamp, one.Timestamp}[i%3]
			fill := []func(context.Context, []isotone.Timestamp) error{k.Timestamps, g.Timestamps, one.Timestamps}[i%3]
			for range 500 {
				before, _ := k.Now()
				ts, err := next(ctx)
				if err != nil || ts.Time < before.Earliest || ts.Index>>63 != 1 {
					t.Errorf("%v, %v at %+v", ts, err, before)
				}
				dst := make([]isotone.Timestamp, 1+len(mine)%7)
				if err := fill(ctx, dst); err != nil {
					t.Error(err)
				}
				for j, got := range dst {
					if want := (isotone.Timestamp{Time: dst[0].Time + uint64(j), Index: ts.Index}); got != want {
						t.Errorf("%d of a batch: %v, want %v", j, got, want)
					}
				}
				mine = append(append(mine, ts), dst...)
			}
			if !slices.IsSortedFunc(mine, isotone.Timestamp.Compare) {
				t.Error("the timestamps of a goroutine are not in order")
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, mine...)
		})
	}
	wg.Wait()
	slices.SortFunc(all, isotone.Timestamp.Compare)
	if n := len(all); len(slices.Compact(all)) != n {
		t.Errorf("%d timestamps are not unique", n)
	}
}

// TestClock_CommitWaitMeansRealTimeOrder, also between clients with different bounds, and with a
// generator that is ahead.
func TestClock_CommitWaitMeansRealTimeOrder(t *testing.T) {
	f := startCluster(t, 2)
	f.change(func() { f.clock.widths = []uint64{3e6, 1e6} })
	a := clock(t, f.dial(client.Options{}), client.ClockOptions{})
	b := clock(t, f.dial(client.Options{}), client.ClockOptions{})
	ctx := within(t, 20*time.Second)
	var last isotone.Timestamp
	ahead := make([]isotone.Timestamp, 2_000)
	for i := range 30 {
		k := []*client.Clock{a, b}[i%2]
		ts, err := k.Timestamp(ctx)
		if err != nil || !last.Before(ts) {
			t.Fatalf("%v after %v was complete, %v", ts, last, err)
		}
		if err := k.Timestamps(ctx, ahead); err != nil {
			t.Fatal(err)
		}
		last = ahead[len(ahead)-1]
		past := k.After(last)
		if now, err := k.Now(); err != nil || past && now.Earliest <= last.Time {
			t.Errorf("%v is past by %+v, %v", last, now, err)
		}
		if err := k.Wait(ctx, last); err != nil {
			t.Fatal(err)
		}
		if !k.After(last) || k.Before(last) {
			t.Errorf("%v is not past after the wait", last)
		}
	}
}

// TestClock_ABatchWaitsForRoomBelowTheLimit, which the next reading gives.
func TestClock_ABatchWaitsForRoomBelowTheLimit(t *testing.T) {
	f := startCluster(t, 1)
	f.change(func() { f.clock.length = 20 * time.Millisecond })
	k, h := moved(t, f)
	synced(t, k)
	dst := make([]isotone.Timestamp, client.ClockBatchMax)
	for i := range uint64(20) {
		if err := k.Timestamps(t.Context(), dst); err != nil || dst[0].Time != 1e18+1+i*client.ClockBatchMax {
			t.Fatalf("batch %d: %v, %v", i, dst[0], err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := k.Timestamps(ctx, dst); !errors.Is(err, isotone.ErrDeadlineExceeded) {
		t.Errorf("above the limit: %v", err)
	}
	h.move(5 * time.Millisecond)
	if err := k.Timestamps(within(t, 10*time.Second), dst); err != nil || dst[0].Time != 1e18+20e6+1 {
		t.Errorf("%v, %v", dst[0], err)
	}
	if err := k.Timestamps(t.Context(), nil); err != nil {
		t.Errorf("none: %v", err)
	}
	if err := k.Timestamps(t.Context(), append(dst, isotone.Timestamp{})); !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Errorf("too many: %v", err)
	}
}

func TestClock_AllocatesNothing(t *testing.T) {
	f := startCluster(t, 1)
	f.change(func() { f.clock.length = 10 * time.Second })
	k, _ := moved(t, f)
	await.Until(t, "few questions, which allocate", func() bool { return k.Stats().Left > 9*time.Second })
	ctx, dst, g := context.Background(), make([]isotone.Timestamp, 16), k.NewGenerator()
	n := testing.AllocsPerRun(10_000, func() {
		ts, _ := k.Timestamp(ctx)
		_, _ = g.Timestamp(ctx)
		_ = g.Timestamps(ctx, dst)
		_, _ = k.Now()
		k.After(ts)
		k.Before(ts)
	})
	if n >= 1 {
		t.Errorf("%v allocations", n)
	}
}

// benchClock returns a running clock for benchmarks, with limits long enough for slow machines.
func benchClock(b *testing.B) *client.Clock {
	f := startCluster(b, 1)
	f.change(func() { f.clock.length = 10 * time.Second })
	return clock(b, f.dial(client.Options{}), client.ClockOptions{})
}

func BenchmarkClock_Timestamp(b *testing.B) {
	k, ctx := benchClock(b), context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.Timestamp(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// batchSize is that of the benchmarks.
const batchSize = 256

func BenchmarkClock_Batch(b *testing.B) {
	k, ctx, dst := benchClock(b), context.Background(), make([]isotone.Timestamp, batchSize)
	b.ReportAllocs()
	for b.Loop() {
		if err := k.Timestamps(ctx, dst); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(batchSize*float64(b.N)/b.Elapsed().Seconds()/1e6, "M/s")
}

// BenchmarkClock_Parallel has a generator for each goroutine.
func BenchmarkClock_Parallel(b *testing.B) {
	for name, size := range map[string]int{"single": 1, "batch": batchSize} {
		b.Run(name, func(b *testing.B) {
			k, ctx := benchClock(b), context.Background()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				g, dst := k.NewGenerator(), make([]isotone.Timestamp, size)
				for pb.Next() {
					if err := g.Timestamps(ctx, dst); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(size)*float64(b.N)/b.Elapsed().Seconds()/1e6, "M/s")
			b.ReportMetric(float64(runtime.GOMAXPROCS(0)), "cores")
		})
	}
}

func BenchmarkClock_Now(b *testing.B) {
	k := benchClock(b)
	for b.Loop() {
		if _, err := k.Now(); err != nil {
			b.Fatal(err)
		}
	}
}
