package client_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
)

// TestOrder_WhatUndercutsTheFloorFailsTheCall of every kind, and no call gets it (I13).
func TestOrder_WhatUndercutsTheFloorFailsTheCall(t *testing.T) {
	given := isotone.Timestamp{Time: 1, Index: 100} // received before, the last of a range
	ways := map[string]func(context.Context, *client.Client) (isotone.Timestamp, error){
		"direct": func(ctx context.Context, c *client.Client) (isotone.Timestamp, error) { return c.Timestamp(ctx) },
		"batch":  one,
		"direct, lease": func(ctx context.Context, c *client.Client) (isotone.Timestamp, error) {
			return c.In(isotone.ReadLease).Timestamp(ctx)
		},
		"batch, lease": func(ctx context.Context, c *client.Client) (isotone.Timestamp, error) {
			r, err := c.In(isotone.ReadLease).Timestamps(ctx, 2)
			return r.First, err
		},
	}
	for way, call := range ways {
		for _, wrong := range []isotone.Timestamp{given, {Time: 1, Index: 99}, {Time: 1, Index: 1}, {Time: 0, Index: 1 << 40}, {}} {
			f := startCluster(t, 1)
			var told atomic.Pointer[error]
			c := f.dial(client.Options{Hooks: client.Hooks{Rejected: func(addr string, err error) {
				if addr == f.nodes[0].addr {
					told.Store(&err)
				}
			}}})
			connected(t, c, client.ConnsDefault)
			if r, err := c.Timestamps(within(t, 10*time.Second), 100); err != nil || r.Last() != given {
				t.Fatal(r, err)
			}
			once(f.nodes[0], 1, string(stamp(wrong)))
			ts, err := call(within(t, 10*time.Second), c)
			if !errors.Is(err, isotone.ErrInternal) || !strings.Contains(err.Error(), "I13") || !strings.Contains(err.Error(), given.String()) {
				t.Errorf("%s, %v after %v: %v, %v", way, wrong, given, ts, err)
			}
			if err := told.Load(); err == nil || !errors.Is(*err, isotone.ErrInternal) {
				t.Errorf("%s, %v: the hook was not called", way, wrong)
			}
			if ts, err := call(within(t, 10*time.Second), c); err != nil || !given.Before(ts) {
				t.Errorf("%s, the next call: %v, %v", way, ts, err)
			}
		}
	}
}

// TestOrder_AskedBeforeMayBeSmaller: an answer must be larger only than what the client had
// received when it sent the request.
func TestOrder_AskedBeforeMayBeSmaller(t *testing.T) {
	f := startCluster(t, 1)
	c := f.dial(client.Options{})
	gate := make(chan struct{})
	var asked atomic.Int32
	f.nodes[0].replies(func(args []string) ([]byte, bool) {
		if args[0] != "TS" {
			return nil, false
		}
		if asked.Add(1) == 1 {
			<-gate
			return stamp(isotone.Timestamp{Time: 2}), true
		}
		return stamp(isotone.Timestamp{Time: 3}), true
	})
	type answer struct {
		ts  isotone.Timestamp
		err error
	}
	first := make(chan answer, 1)
	go func() {
		ts, err := one(within(t, 10*time.Second), c)
		first <- answer{ts, err}
	}()
	await.Until(t, "the first is under way", func() bool { return asked.Load() == 1 })
	if ts, err := one(within(t, 10*time.Second), c); err != nil || ts.Time != 3 {
		t.Errorf("the second: %v, %v", ts, err)
	}
	close(gate)
	if got := <-first; got.err != nil || got.ts.Time != 2 {
		t.Errorf("the first: %v, %v", got.ts, got.err)
	}
	// A request sent now must get more than both.
	if ts, err := one(within(t, 10*time.Second), c); !errors.Is(err, isotone.ErrInternal) {
		t.Errorf("the same again: %v, %v", ts, err)
	}
}
