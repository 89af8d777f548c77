package client_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
)

// TestClockWait_WakesInOrder all calls whose timestamp is past, and no others.
func TestClockWait_WakesInOrder(t *testing.T) {
	f := startCluster(t, 1)
	f.change(func() { f.clock.length = 10 * time.Second })
	k, h := moved(t, f)
	synced(t, k)
	const count = 50
	var mu sync.Mutex
	woken := 0
	var wg sync.WaitGroup
	for _, i := range rand.Perm(count) {
		wg.Go(func() {
			// The lower bound passes 1e18 + 999·(i+1) when i+1 µs have passed.
			ts := at(1e18 + 999*uint64(i+1) - 1)
			if err := k.Wait(within(t, 20*time.Second), ts); err != nil || !k.After(ts) {
				t.Errorf("%d: %v, past: %v", i, err, k.After(ts))
			}
			mu.Lock()
			defer mu.Unlock()
			woken++
		})
	}
	await.Until(t, "all wait", func() bool { return client.Waits(k) == count })
	for i := range count / 10 {
		h.move(10 * time.Microsecond)
		await.Until(t, "ten are woken", func() bool { mu.Lock(); defer mu.Unlock(); return woken == 10*(i+1) })
	}
	wg.Wait()
}

// TestClockWait_SleepsAsLongAsTheBoundsSay: not a millisecond longer, as a timer would.
func TestClockWait_SleepsAsLongAsTheBoundsSay(t *testing.T) {
	f := startCluster(t, 1)
	f.change(func() { f.clock.length = 10 * time.Second })
	k := clock(t, f.dial(client.Options{}), client.ClockOptions{})
	ctx := within(t, 10*time.Second)
	best := time.Hour
	for range 50 {
		now, err := k.Now()
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if err := k.Wait(ctx, at(now.Earliest+300_000)); err != nil {
			t.Fatal(err)
		}
		best = min(best, time.Since(begin))
	}
	if best > 700*time.Microsecond { // machines are busy, but not each time
		t.Errorf("a wait of 300 µs takes %v at least", best)
	}
	now, _ := k.Now()
	begin := time.Now()
	if err := k.Wait(ctx, at(now.Latest+30_000_000)); err != nil || time.Since(begin) < 20*time.Millisecond {
		t.Errorf("a wait of 30 ms: %v, after %v", err, time.Since(begin))
	}
}

// TestClockWait_GoesOnUpToTheLimitWithoutALeader, and beyond it only with a new one.
func TestClockWait_GoesOnUpToTheLimitWithoutALeader(t *testing.T) {
	f := startCluster(t, 1)
	k, h := moved(t, f)
	synced(t, k)
	f.lead(-1)
	await.Until(t, "a refusal", func() bool { return k.Stats().Failures > 0 })
	outcome := func(time uint64) chan error {
		c := make(chan error, 1)
		before := client.Waits(k)
		go func() { c <- k.Wait(within(t, 10e9), at(time)) }()
		await.Until(t, "it waits", func() bool { return client.Waits(k) > before })
		return c
	}
	within, beyond := outcome(1e18+99e6), outcome(1e18+100e6)
	h.move(time.Second)
	if err := receive(t, within); err != nil {
		t.Error(err)
	}
	if client.Waits(k) != 1 {
		t.Error("a wait beyond the limit has ended")
	}
	f.lead(0)
	if err := receive(t, beyond); err != nil {
		t.Error(err)
	}
}

// TestClockWait_EndsWithItsContext, with the clock, and with the client.
func TestClockWait_EndsWithItsContext(t *testing.T) {
	f := startCluster(t, 1)
	c := f.dial(client.Options{})
	k := clock(t, c, client.ClockOptions{})
	never := at(2e18)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := k.Wait(ctx, never); !errors.Is(err, isotone.ErrDeadlineExceeded) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a deadline: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if err := k.Wait(ctx, never); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	if err := k.Wait(ctx, at(1)); err != nil {
		t.Errorf("past already: %v", err)
	}
	if n := client.Waits(k); n != 0 {
		t.Errorf("%d calls wait", n)
	}
	for _, closesClient := range []bool{false, true} {
		waiting := make(chan error, 1)
		go func() { waiting <- k.Wait(context.Background(), never) }()
		await.Until(t, "it waits", func() bool { return client.Waits(k) == 1 })
		if closesClient {
			_ = c.Close()
		} else {
			_ = k.Close()
		}
		if err := receive(t, waiting); !errors.Is(err, client.ErrClosed) {
			t.Errorf("closed, with the client: %v: %v", closesClient, err)
		}
		if !closesClient {
			k = clock(t, c, client.ClockOptions{})
		}
	}
}

// TestClock_FailsAfterClose, at once.
func TestClock_FailsAfterClose(t *testing.T) {
	f := startCluster(t, 2)
	c := f.dial(client.Options{})
	k := clock(t, c, client.ClockOptions{})
	g := k.NewGenerator()
	for range 2 {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	}
	_, now := k.Now()
	_, ts := g.Timestamp(t.Context())
	for what, err := range map[string]error{
		"Now": now, "Timestamp": ts, "Timestamps": k.Timestamps(t.Context(), make([]isotone.Timestamp, 5)),
		"Wait": k.Wait(t.Context(), at(1)), "Stats": k.Stats().Err,
	} {
		if !errors.Is(err, client.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if k.After(at(1)) || k.Before(at(9e18)) {
		t.Error("a closed clock knows something")
	}
	_ = c.Close()
	if k, err := c.NewClock(t.Context(), client.ClockOptions{}); !errors.Is(err, client.ErrClosed) || k != nil {
		t.Errorf("a closed client: %v, %v", k, err)
	}
}
