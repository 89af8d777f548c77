package snowflake_test

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone/snowflake"
)

// shared is a clock for many goroutines.
type shared struct{ ms atomic.Int64 }

func (c *shared) now() int64 { return c.ms.Load() }

// The clock stands still, so n calls must take exactly the first n numbers: none twice,
// and none left out. A bitmap has one bit for each.
func TestConcurrent_TakesEveryNumberOnce(t *testing.T) {
	const (
		goroutines = 8
		rounds     = 5_000
		total      = goroutines * rounds * (1 + 16)
	)
	clock := &shared{}
	clock.ms.Store(epoch)
	g := newGenerator(t, 1, snowflake.Options{Now: clock.now})
	first := next(t, g)
	l := g.Layout()
	number := func(id snowflake.ID) int64 { // counted from first
		return (l.Millis(id)-l.Millis(first))*4096 + int64(l.Sequence(id)) - int64(l.Sequence(first)) - 1
	}
	seen := make([]atomic.Bool, total)
	var group, ready sync.WaitGroup
	ready.Add(goroutines)
	for range goroutines {
		group.Go(func() {
			ready.Done()
			ready.Wait() // start all at the same time
			last := first
			dst := make([]snowflake.ID, 16)
			check := func(ids ...snowflake.ID) {
				for i, id := range ids {
					at := number(id)
					if id <= last || at < 0 || at >= total || seen[at].Swap(true) || i > 0 && number(ids[i-1]) != at-1 {
						t.Errorf("ID %d, number %d, after %d", id, at, last)
						return
					}
					last = id
				}
			}
			for range rounds {
				id, err := g.TryNext()
				if err != nil {
					t.Error(err)
					return
				}
				check(id)
				if err := g.TryFill(dst); err != nil {
					t.Error(err)
					return
				}
				check(dst...)
			}
		})
	}
	group.Wait()
	if id := next(t, g); number(id) != total {
		t.Errorf("%d IDs, and the next has number %d", total, number(id))
	}
}

// While the clock only goes forward, however unevenly, no call may fail because it went
// back: a goroutine with an old reading must read it again first.
func TestConcurrent_NeverBlamesAClockThatGoesForward(t *testing.T) {
	const goroutines, rounds = 8, 20_000
	clock := &shared{}
	clock.ms.Store(epoch)
	g := newGenerator(t, 1, snowflake.Options{Now: clock.now, AheadMax: time.Millisecond,
		Layout: snowflake.Layout{TimeBits: 57, WorkerBits: 5, SequenceBits: 1}})
	var refused, made atomic.Int64
	var group sync.WaitGroup
	for i := range goroutines {
		group.Go(func() {
			last := snowflake.ID(-1)
			for k := range rounds {
				id, err := g.TryNext()
				switch {
				case err == nil && id > last:
					last = id
					made.Add(1)
				case err == nil:
					t.Errorf("ID %d after %d", id, last)
					return
				case err != snowflake.ErrExhausted:
					t.Error(err)
					return
				default:
					refused.Add(1)
				}
				if k%3 == 0 {
					clock.ms.Add(int64(i))
				}
				if k%64 == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	group.Wait()
	if made.Load() == 0 {
		t.Error("no ID at all")
	}
	t.Logf("%d IDs, %d refusals", made.Load(), refused.Load())
}

// Goroutines share a generator, with a clock that jumps both ways, and a lease that is
// extended and in the end given back. All IDs differ, each goroutine's increase, and all
// are inside the final lease and before the result of Stop.
func TestConcurrent_StopEndsEverything(t *testing.T) {
	const goroutines, enough = 6, 20_000
	for range 10 {
		clock := &shared{}
		clock.ms.Store(epoch)
		g := newGenerator(t, 7, snowflake.Options{Now: clock.now, AheadMax: 50 * time.Millisecond,
			Lease: snowflake.Lease{Start: epoch, End: epoch + 3}})
		made := make([][]snowflake.ID, goroutines)
		var total atomic.Int64
		var stopped atomic.Bool
		var group sync.WaitGroup
		for i := range goroutines {
			group.Go(func() {
				dst := make([]snowflake.ID, i*5+1)
				for k := 0; ; k++ {
					after := stopped.Load()
					err := g.TryFill(dst)
					switch {
					case after && err != snowflake.ErrLeaseEnded:
						t.Errorf("after Stop: %v", err)
						return
					case after:
						return
					case err == nil:
						made[i] = append(made[i], dst...)
						total.Add(int64(len(dst)))
					case err != snowflake.ErrExhausted && err != snowflake.ErrLeaseEnded && !errors.Is(err, snowflake.ErrInvalidSystemClock):
						t.Error(err)
						return
					}
					// Clock and lease advance with the IDs, so that there are always more.
					ms := epoch + total.Load()/100
					clock.ms.Store(ms + int64((k*7919+i)%61) - 30)
					g.Extend(ms + int64(k%40))
				}
			})
		}
		for total.Load() < enough && !t.Failed() {
			runtime.Gosched()
		}
		unused := g.Stop()
		stopped.Store(true)
		group.Wait()
		if again := g.Stop(); again != unused {
			t.Errorf("Stop returned %d, and then %d", unused, again)
		}
		checkAll(t, g, made, unused)
	}
}

func checkAll(t *testing.T, g *snowflake.Generator, made [][]snowflake.ID, unused int64) {
	t.Helper()
	lease, l := g.Lease(), g.Layout()
	var all []snowflake.ID
	for _, ids := range made {
		if !slices.IsSorted(ids) {
			t.Error("a goroutine's IDs do not increase")
		}
		all = append(all, ids...)
	}
	slices.Sort(all)
	for i, id := range all {
		if ms := l.Millis(id); ms < lease.Start || ms >= lease.End || ms >= unused {
			t.Fatalf("an ID at %d; lease %v, unused from %d", ms, lease, unused)
		}
		if i > 0 && all[i-1] == id {
			t.Fatalf("ID %d twice", id)
		}
	}
}
