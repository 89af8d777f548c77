package snowflake_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isotone/isotone/snowflake"
)

// The clock of a synctest bubble moves only while all goroutines wait, so waits can be
// measured to the millisecond. It begins in the year 2000, before Twitter's layout.
var since1970 = snowflake.Layout{TimeBits: 41, WorkerBits: 10, SequenceBits: 12}

func TestNext_WaitsForTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGenerator(t, 0, snowflake.Options{Layout: since1970, AheadMax: 5 * time.Millisecond})
		begin := time.Now()
		fill(t, g, 6*4096)
		if _, err := g.TryNext(); err != snowflake.ErrExhausted {
			t.Fatal(err)
		}
		id, err := g.Next(t.Context())
		if err != nil || g.Layout().Millis(id) != begin.UnixMilli()+6 {
			t.Error(id, err)
		}
		if waited := time.Since(begin); waited != time.Millisecond {
			t.Errorf("waited %v for one ID", waited)
		}
		ids := make([]snowflake.ID, 4096)
		if err := g.NextN(t.Context(), ids); err != nil || ids[0] != id+1 || g.Layout().Millis(ids[4095]) != begin.UnixMilli()+7 {
			t.Error(ids[0], ids[4095], err)
		}
		if waited := time.Since(begin); waited != 2*time.Millisecond {
			t.Errorf("waited %v in all", waited)
		}
	})
}

func TestNext_WaitsForTheLeaseToBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now().UnixMilli()
		lease := snowflake.Lease{Start: begin + 5000, End: begin + 6000}
		g := newGenerator(t, 0, snowflake.Options{Layout: since1970, Lease: lease, AheadMax: 1500 * time.Millisecond})
		id, err := g.Next(t.Context())
		if err != nil || g.Layout().Millis(id) != lease.Start {
			t.Error(id, err)
		}
		if waited := time.Now().UnixMilli() - begin; waited != 3500 {
			t.Errorf("waited %d ms", waited)
		}
	})
}

func TestNext_EndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &manual{epoch} // stands still
		g := newGenerator(t, 0, snowflake.Options{Now: clock.now, AheadMax: time.Nanosecond})
		ctx, cancel := context.WithTimeout(t.Context(), 777*time.Millisecond)
		defer cancel()
		begin := time.Now()
		if err := g.NextN(ctx, make([]snowflake.ID, 4096)); err != nil {
			t.Fatal(err)
		}
		if err := g.NextN(ctx, make([]snowflake.ID, 1)); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != 777*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		if _, err := g.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		clock.ms++
		if _, err := g.Next(ctx); err != nil {
			t.Error("an ID was available without waiting:", err)
		}
	})
}

func TestNext_DoesNotWaitForABrokenClockOrANewLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		clock := &manual{epoch}
		g := newGenerator(t, 0, snowflake.Options{Now: clock.now, Lease: snowflake.Lease{Start: epoch, End: epoch + 1}})
		fill(t, g, 4096)
		if _, err := g.Next(t.Context()); err != snowflake.ErrLeaseEnded {
			t.Error(err)
		}
		clock.ms = epoch - 1001
		if _, err := g.Next(t.Context()); !errors.Is(err, snowflake.ErrInvalidSystemClock) {
			t.Error(err)
		}
		if time.Since(begin) != 0 {
			t.Error("it waited")
		}
	})
}

func TestNext_SeesStopWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now().UnixMilli()
		lease := snowflake.Lease{Start: begin + 3_600_000, End: begin + 7_200_000}
		g := newGenerator(t, 0, snowflake.Options{Layout: since1970, Lease: lease})
		errs := make(chan error)
		go func() {
			_, err := g.Next(t.Context())
			errs <- err
		}()
		synctest.Wait()
		g.Stop()
		if err := <-errs; err != snowflake.ErrLeaseEnded {
			t.Error(err)
		}
		if waited := time.Now().UnixMilli() - begin; waited > 10 {
			t.Errorf("after %d ms", waited)
		}
	})
}

// However absurd a clock is, waiting reads it at most once a millisecond.
func TestNext_LooksAtMostOnceAMillisecond(t *testing.T) {
	for _, now := range []int64{snowflake.Twitter.FirstMillis(), epoch} {
		synctest.Test(t, func(t *testing.T) {
			looks := 0
			clock := func() int64 { looks++; return now }
			last := snowflake.Twitter.LastMillis()
			g := newGenerator(t, 0, snowflake.Options{Now: clock, Lease: snowflake.Lease{Start: last, End: last + 1}})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := g.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			if looks > 3*1000 {
				t.Errorf("%d readings in a second", looks)
			}
		})
	}
}

// The system clock within a bubble moves only by waiting; a generator follows it.
func TestSystemClock_IsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGenerator(t, 0, snowflake.Options{Layout: since1970})
		for range 1000 {
			if got, want := g.Layout().Millis(next(t, g)), time.Now().UnixMilli(); got != want {
				t.Fatalf("an ID at %d, the clock is at %d", got, want)
			}
			time.Sleep(100 * time.Microsecond)
		}
		time.Sleep(time.Hour)
		if got, want := g.Layout().Millis(next(t, g)), time.Now().UnixMilli(); got != want {
			t.Fatalf("an ID at %d, the clock is at %d", got, want)
		}
	})
}
