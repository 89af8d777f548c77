package client_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
)

// sealed is a fence that counts.
type sealed struct {
	mu      sync.Mutex
	through isotone.Timestamp
	seals   int
	fails   int // of the next seals
}

func (s *sealed) Seal(_ context.Context, through isotone.Timestamp) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails > 0 {
		s.fails--
		return errors.New("the store is away")
	}
	if s.seals++; s.through.Before(through) {
		s.through = through
	}
	return nil
}

func (s *sealed) at() isotone.Timestamp {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.through
}

func TestFrontier_FollowsWrites(t *testing.T) {
	c, addr := sessionClient(t)
	ctx := soon(t)
	fence := &sealed{fails: 2}
	if _, err := c.NewFrontier(ctx, "orders", client.FrontierOptions{Fence: fence, TTL: time.Minute}); err == nil {
		t.Error("a writer begins without having sealed")
	}
	fence.fails = 0
	w, err := c.NewFrontier(ctx, "orders", client.FrontierOptions{Fence: fence, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	fence.mu.Lock()
	fence.fails = 3
	fence.mu.Unlock()
	var writes []*client.FrontierWrite
	for range 10 {
		o, err := w.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(writes); n > 0 && !writes[n-1].Stamp().Before(o.Stamp()) {
			t.Errorf("%v after %v", o.Stamp(), writes[n-1].Stamp())
		}
		writes = append(writes, o)
	}
	r := dialSessions(t, addr).Frontier("orders")
	defer r.Close()
	for i, o := range writes {
		if f, err := r.At(ctx); err != nil || !f.Before(o.Stamp()) {
			t.Errorf("the frontier is at %v before write %d is decided: %v", f, i, err)
		}
		if err := o.Check(); err != nil {
			t.Error(err)
		}
		if i%3 == 2 {
			o.Unknown()
		} else {
			o.Done()
		}
		if f, err := r.Wait(ctx, o.Stamp()); err != nil || f.Before(o.Stamp()) {
			t.Errorf("the frontier is at %v: %v", f, err)
		}
		if i%3 == 2 && fence.at().Before(o.Stamp()) {
			t.Errorf("the frontier has passed a write in doubt, and the fence is at %v", fence.at())
		}
		if o.Check() == nil {
			t.Error("a write that is decided may be made")
		}
	}
	now, err := c.Timestamp(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Wait(ctx, now); err != nil {
		t.Error(err)
	}
	moves := 0
	for f, err := range r.Follow(ctx) { // the largest timestamp of a nanosecond is often among them
		if err != nil || !now.Before(f) {
			t.Fatalf("it was at %v, and is told to be at %v: %v", now, f, err)
		}
		if now, moves = f, moves+1; moves == 3 {
			break
		}
	}
	o, err := w.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(ctx); err != nil {
		t.Error(err)
	}
	if _, err := w.Begin(ctx); err == nil || o.Check() == nil {
		t.Error("a writer that is closed goes on")
	}
}

// TestFrontier_PassesTheClosed: a writer whose writes are decided leaves nothing to be sealed, by which others would be needed.
func TestFrontier_PassesTheClosed(t *testing.T) {
	c, _ := sessionClient(t)
	w, err := c.NewFrontier(soon(t), "g", client.FrontierOptions{Fence: &sealed{}, TTL: time.Minute, Linger: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	r := c.Frontier("g")
	defer r.Close()
	for _, last := range []bool{false, true} { // the first time, the leader has what is before its term sealed
		op, err := w.Begin(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		if op.Done(); last {
			if err := w.Close(soon(t)); err != nil {
				t.Fatal(err)
			}
		}
		if f, err := r.Wait(soon(t), op.Stamp()); err != nil {
			t.Errorf("the frontier is at %v: %v", f, err)
		}
	}
}

// TestFrontier_PassesTheDead: what a writer has left is sealed by another one.
func TestFrontier_PassesTheDead(t *testing.T) {
	c, addr := sessionClient(t)
	ctx := soon(t)
	fence := &sealed{}
	dead, err := dialSessions(t, addr).NewFrontier(ctx, "orders", client.FrontierOptions{Fence: &sealed{}, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	o, err := dead.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.NewFrontier(ctx, "orders", client.FrontierOptions{Fence: fence, TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	_ = dead.Close(ctx)
	r := c.Frontier("orders")
	defer r.Close()
	if f, err := r.Wait(ctx, o.Stamp()); err != nil || fence.at().Before(o.Stamp()) {
		t.Errorf("the frontier is at %v and the fence at %v: %v", f, fence.at(), err)
	}
}

// TestFrontier_SharesRequests: many writers at once get stamps of their own.
func TestFrontier_SharesRequests(t *testing.T) {
	c, _ := sessionClient(t)
	ctx := soon(t)
	w, err := c.NewFrontier(ctx, "orders", client.FrontierOptions{Fence: &sealed{}, TTL: time.Minute, U64: true})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	seen := map[isotone.Timestamp]bool{}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			for range 20 {
				short, cancel := context.WithCancel(ctx)
				o, err := w.Begin(short)
				cancel()
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if seen[o.Stamp()] || isotone.Timestamp64From(o.Stamp()).Timestamp() != o.Stamp() {
					t.Errorf("%v twice, or of no 64-bit form", o.Stamp())
				}
				seen[o.Stamp()] = true
				mu.Unlock()
				o.Done()
			}
		})
	}
	all.Wait()
	late, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := w.Begin(late); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	r := c.Frontier("orders")
	defer r.Close()
	now, _ := c.Timestamp(ctx)
	if _, err := r.Wait(ctx, now); err != nil { // also what nobody has got is decided
		t.Error(err)
	}
}
