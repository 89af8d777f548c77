package client_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/testnode"
	"github.com/isotone/isotone/internal/host/config"
)

// aheadWriter returns a writer with a clock.
func aheadWriter(t *testing.T) (*client.Client, *client.Clock, *client.FrontierWriter) {
	t.Helper()
	_, so, _ := testnode.RunSockets(t, func(s *config.Settings) { s.Interval = 100 * time.Millisecond })
	c := dialSessions(t, so.HTTP.Addr().String())
	clock, err := c.NewClock(soon(t), client.ClockOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = clock.Close() })
	w, err := c.NewFrontier(soon(t), "orders", client.FrontierOptions{Fence: &sealed{}, TTL: time.Minute, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	return c, clock, w
}

// isOwn reports whether no oracle has issued the stamp.
func isOwn(o *client.FrontierWrite) bool { return o.Stamp().Index >= 1<<63 }

func TestFrontier_MakesStamps(t *testing.T) {
	c, clock, w := aheadWriter(t)
	ctx := soon(t)
	var own *client.FrontierWrite
	begin := func() bool {
		o, err := w.BeginAhead(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if isOwn(o) {
			own = o
			return true
		}
		defer o.Done()
		own, err = w.BeginAhead(ctx) // while the first one is under way
		if err != nil {
			t.Fatal(err)
		}
		if isOwn(own) {
			return true
		}
		own.Done()
		return false
	}
	await.Until(t, "a stamp that the writer has made", begin)
	if err := errors.Join(own.Check(), clock.Wait(ctx, own.Stamp())); err != nil {
		t.Fatal(err)
	}
	after, err := c.Timestamp(ctx)
	if err != nil || !own.Stamp().Before(after) {
		t.Errorf("%v has passed, and %v is issued: %v", own.Stamp(), after, err)
	}
	r := c.Frontier("orders")
	defer r.Close()
	below := isotone.Timestamp{Time: own.Stamp().Time, Index: own.Stamp().Index - 1}
	if f, err := r.Wait(ctx, below); err != nil || f != below {
		t.Errorf("the frontier is at %v, and waits for %v: %v", f, own.Stamp(), err)
	}
	own.Done()
	if _, err := r.Wait(ctx, after); err != nil {
		t.Error(err)
	}
	if err := w.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := w.BeginAhead(ctx); !errors.Is(err, client.ErrClosed) {
		t.Errorf("a writer that is closed goes on: %v", err)
	}
}

// TestFrontier_MakesStampsForMany: all are different, and above a frontier that was told before.
func TestFrontier_MakesStampsForMany(t *testing.T) {
	c, _, w := aheadWriter(t)
	ctx := soon(t)
	var mu sync.Mutex
	seen, own := map[isotone.Timestamp]bool{}, 0
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			r := c.Frontier("orders")
			defer r.Close()
			for range 50 {
				f, err := r.At(ctx)
				o, err2 := w.BeginAhead(ctx)
				if err := errors.Join(err, err2); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if seen[o.Stamp()] || !f.Before(o.Stamp()) || o.Check() != nil {
					t.Errorf("%v twice, or at or below the frontier %v: %v", o.Stamp(), f, o.Check())
				}
				if seen[o.Stamp()] = true; isOwn(o) {
					own++
				}
				mu.Unlock()
				o.Done()
			}
		})
	}
	if all.Wait(); own == 0 {
		t.Error("the writer makes no stamps")
	}
	t.Logf("%d of %d stamps without a request", own, len(seen))
	r := c.Frontier("orders")
	defer r.Close()
	now, _ := c.Timestamp(ctx)
	if _, err := r.Wait(ctx, now); err != nil { // all are decided
		t.Error(err)
	}
}

func TestFrontier_MakesNoStampsWithoutAClock(t *testing.T) {
	c, clock, w := aheadWriter(t)
	ctx := soon(t)
	if _, err := c.NewFrontier(ctx, "orders", client.FrontierOptions{Fence: &sealed{}, Clock: clock, U64: true}); !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Errorf("stamps of 64 bits, with a clock: %v", err)
	}
	without, err := c.NewFrontier(ctx, "orders", client.FrontierOptions{Fence: &sealed{}, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := without.BeginAhead(ctx); !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Errorf("without a clock: %v", err)
	}
	_ = clock.Close()
	for range 3 {
		if o, err := w.BeginAhead(ctx); err != nil || isOwn(o) {
			t.Errorf("of a clock that is closed: %v, %v", o, err)
		}
	}
	late, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := w.BeginAhead(late); !errors.Is(err, context.Canceled) {
		t.Errorf("for a context that is done: %v", err)
	}
}
