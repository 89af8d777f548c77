package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/snowflake"
)

func generator(t *testing.T, c *client.Client, o client.GeneratorOptions) *client.Generator {
	t.Helper()
	g, err := c.NewGenerator(within(t, 10*time.Second), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

// TestGenerator_IDsAreUniqueAcrossGenerators, and inside the lease (I9).
func TestGenerator_IDsAreUniqueAcrossGenerators(t *testing.T) {
	f := startCluster(t, 3)
	f.lead(1)
	c := f.dial(client.Options{})
	ctx := within(t, 20*time.Second)
	var mu sync.Mutex
	seen := map[snowflake.ID]bool{}
	workers := map[int]bool{}
	var wg sync.WaitGroup
	for range 4 {
		g := generator(t, c, client.GeneratorOptions{Lease: 300 * time.Millisecond})
		workers[g.Worker()] = true
		for range 2 {
			wg.Go(func() {
				for range 300 {
					id, err := g.Next(ctx)
					mu.Lock()
					if err != nil || seen[id] {
						t.Errorf("%v, %v; seen before: %v", id, err, seen[id])
					}
					seen[id] = true
					mu.Unlock()
					if ms := g.Layout().Millis(id); ms < g.Lease().Start || ms >= g.Lease().End {
						t.Errorf("%d is not in %v", ms, g.Lease())
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
	}
	wg.Wait()
	if len(workers) != 4 {
		t.Errorf("workers %v, want 4", workers)
	}
}

// TestGenerator_RenewsLongBeforeTheEnd: the worker stays the same, the lease is extended.
func TestGenerator_RenewsLongBeforeTheEnd(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 2)
	g := generator(t, f.dial(client.Options{}), client.GeneratorOptions{Lease: 3 * time.Second})
	worker, begun := g.Worker(), g.Lease()
	for i := range 4 {
		f.lead(i % 2)
		end := g.Lease().End
		await.Until(t, "a renewal", func() bool { return g.Lease().End > end })
	}
	if g.Worker() != worker || g.Lease().Start != begun.Start {
		t.Errorf("worker %d since %d became %d since %d", worker, begun.Start, g.Worker(), g.Lease().Start)
	}
}

// TestGenerator_GoesOnWithAnotherWorkerAfterALoss: no node is reachable until after the lease
// has ended. The generator makes no IDs meanwhile.
func TestGenerator_GoesOnWithAnotherWorkerAfterALoss(t *testing.T) {
	f := startCluster(t, 1)
	g := generator(t, f.dial(client.Options{}), client.GeneratorOptions{Lease: 100 * time.Millisecond, AheadMax: time.Millisecond})
	worker := g.Worker()
	f.nodes[0].stop()
	ended := func() bool { _, err := g.TryNext(); return errors.Is(err, snowflake.ErrLeaseEnded) }
	await.Until(t, "the lease ends", ended)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := g.Next(ctx); !errors.Is(err, isotone.ErrDeadlineExceeded) {
		t.Errorf("without a lease: %v", err)
	}
	end := g.Lease().End
	waiting := make(chan error, 1)
	go func() {
		_, err := g.Next(within(t, 10*time.Second))
		waiting <- err
	}()
	f.nodes[0].start()
	if err := receive(t, waiting); err != nil {
		t.Error(err)
	}
	if g.Worker() == worker && g.Lease().Start < end {
		t.Errorf("worker %d again, from %d, before %d", worker, g.Lease().Start, end)
	}
}

func TestGenerator_AsksForWhatItWasToldTo(t *testing.T) {
	f := startCluster(t, 1)
	c := f.dial(client.Options{})
	g := generator(t, c, client.GeneratorOptions{Fixed: true, Worker: 77, Lease: 2 * time.Second, Now: func() int64 { return 1800000000000 }})
	if g.Worker() != 77 || g.Lease() != (snowflake.Lease{Start: 1800000000000, End: 1800000002000}) || g.Layout() != snowflake.Twitter {
		t.Errorf("worker %d, lease %v, layout %v", g.Worker(), g.Lease(), g.Layout())
	}
	var ids [3]snowflake.ID
	if err := g.NextN(within(t, time.Second), ids[:]); err != nil || ids[2] != ids[0]+2 {
		t.Errorf("%v, %v", ids, err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	var session string
	_, err := fmt.Sscanf(f.nodes[0].commands("WORKER LEASE")[0], "WORKER LEASE %16x 1800000000000 2000 FIXED 77", new(uint64))
	session = strings.Fields(f.nodes[0].commands("WORKER LEASE")[0])[2]
	if err != nil || len(session) != 16 {
		t.Errorf("%q, %v", f.nodes[0].commands("WORKER"), err)
	}
	// The released part begins after the millisecond of the IDs.
	if got := f.nodes[0].commands("WORKER RELEASE"); len(got) != 1 || got[0] != "WORKER RELEASE "+session+" 77 1800000000000 1800000000001" {
		t.Errorf("%q", got)
	}
	if _, err := g.Next(within(t, time.Second)); !errors.Is(err, client.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := g.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
}

func TestGenerator_RefusalsAndNonsenseAreErrors(t *testing.T) {
	f := startCluster(t, 1)
	c := f.dial(client.Options{})
	for answer, want := range map[string]error{
		"-ERR worker 5 is leased to another\r\n":                        isotone.ErrInvalidArgument,
		"-TRYAGAIN no worker is free\r\n":                               isotone.ErrDeadlineExceeded,
		"+OK\r\n":                                                       isotone.ErrDeadlineExceeded,
		"*5\r\n:1\r\n:2\r\n:1\r\n$9\r\n41/5/5/12\r\n:0\r\n":             isotone.ErrDeadlineExceeded,
		"*5\r\n:-1\r\n:2\r\n:3\r\n$9\r\n41/5/5/12\r\n:0\r\n":            isotone.ErrDeadlineExceeded,
		"*5\r\n:1\r\n:2\r\n:3\r\n$9\r\n41/5/5/13\r\n:0\r\n":             isotone.ErrDeadlineExceeded,
		"*5\r\n:1024\r\n:2000\r\n:3000\r\n$9\r\n41/5/5/12\r\n:1000\r\n": isotone.ErrInvalidArgument,
	} {
		f.nodes[0].replies(func(args []string) ([]byte, bool) { return []byte(answer), args[0] == "WORKER" })
		g, err := c.NewGenerator(within(t, 100*time.Millisecond), client.GeneratorOptions{})
		if g != nil || err == nil {
			t.Errorf("%q: no error", answer)
		} else if want != isotone.ErrDeadlineExceeded && !errors.Is(err, want) {
			t.Errorf("%q: %v", answer, err)
		}
	}
	for _, o := range []client.GeneratorOptions{{Lease: time.Millisecond}, {Lease: 2 * time.Hour}, {Fixed: true, Worker: -1}} {
		if _, err := c.NewGenerator(t.Context(), o); !errors.Is(err, isotone.ErrInvalidArgument) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestGenerator_AClosedClientLeasesNothing, and has no connection left, even if a lease was
// requested before.
func TestGenerator_AClosedClientLeasesNothing(t *testing.T) {
	f := startCluster(t, 1)
	var open atomic.Int64
	c := f.dial(client.Options{DialTimeout: time.Minute, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		open.Add(1)
		return &noted{Conn: nc, gone: sync.OnceFunc(func() { open.Add(-1) })}, nil
	}})
	asked := make(chan struct{}, 1)
	f.nodes[0].replies(func(args []string) ([]byte, bool) { // never answers
		if args[0] == "WORKER" {
			asked <- struct{}{}
		}
		return nil, args[0] == "WORKER"
	})
	ended := make(chan error, 1)
	go func() {
		_, err := c.NewGenerator(context.Background(), client.GeneratorOptions{})
		ended <- err
	}()
	receive(t, asked)
	_ = c.Close()
	if n := open.Load(); n != 0 {
		t.Errorf("%d connections are open after Close", n)
	}
	if err := receive(t, ended); !errors.Is(err, client.ErrClosed) {
		t.Errorf("what was under way: %v", err)
	}
	if g, err := c.NewGenerator(within(t, time.Second), client.GeneratorOptions{}); !errors.Is(err, client.ErrClosed) {
		t.Errorf("after Close: %v, %v", g, err)
	}
}

// noted is a connection that records when it is closed.
type noted struct {
	net.Conn
	gone func()
}

func (c *noted) Close() error {
	c.gone()
	return c.Conn.Close()
}

// TestGenerator_GoesOnWithAnotherWorkerAfterARevocation: it makes IDs all the time, and returns
// what is left of the revoked lease.
func TestGenerator_GoesOnWithAnotherWorkerAfterARevocation(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 1)
	g := generator(t, f.dial(client.Options{}), client.GeneratorOptions{Lease: 3 * time.Second})
	worker, session := g.Worker(), f.revoke()
	seen := map[snowflake.ID]bool{}
	await.Until(t, "another worker", func() bool {
		id, err := g.TryNext()
		if err != nil && !errors.Is(err, snowflake.ErrExhausted) || err == nil && seen[id] {
			t.Fatalf("%v, %v; seen before: %v", id, err, seen[id])
		}
		seen[id] = err == nil
		return g.Worker() != worker
	})
	await.Until(t, "the revoked lease is released", func() bool { return f.isReleased(session) })
}

// TestGenerator_LeasesAnotherWorkerIfTheClockWentBack, and returns the former one, also if no ID was made while the clock was
// ahead. A fixed worker waits for its clock.
func TestGenerator_LeasesAnotherWorkerIfTheClockWentBack(t *testing.T) {
	f := startCluster(t, 1)
	c := f.dial(client.Options{})
	for _, unused := range []bool{false, true} {
		for _, fixed := range []bool{false, true} {
			var ahead atomic.Int64
			ahead.Store((30 * time.Minute).Milliseconds())
			g := generator(t, c, client.GeneratorOptions{Fixed: fixed, Worker: 900, Lease: time.Minute, Now: func() int64 { return time.Now().UnixMilli() + ahead.Load() }})
			leases := f.nodes[0].commands("WORKER LEASE")
			session := strings.Fields(leases[len(leases)-1])[2]
			if !unused {
				if _, err := g.TryNext(); err != nil {
					t.Fatal(err)
				}
			}
			worker := g.Worker()
			ahead.Store(0)
			if fixed {
				if _, err := g.TryNext(); err == nil || g.Worker() != worker || f.isReleased(session) {
					t.Errorf("fixed: %v, worker %d after %d", err, g.Worker(), worker)
				}
				_ = g.Close()
				continue
			}
			if _, err := g.Next(within(t, 10*time.Second)); err != nil || g.Worker() == worker {
				t.Errorf("unused %v: %v, worker %d after %d", unused, err, g.Worker(), worker)
			}
			await.Until(t, "the former lease is released", func() bool { return f.isReleased(session) })
		}
	}
}

// TestGenerator_WithoutAnotherWorkerSaysThatTheClockWentBack, and goes on when the clock is right.
func TestGenerator_WithoutAnotherWorkerSaysThatTheClockWentBack(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 1)
	var ahead atomic.Int64
	g := generator(t, f.dial(client.Options{}), client.GeneratorOptions{Lease: time.Hour, Now: func() int64 { return time.Now().UnixMilli() + ahead.Load() }})
	ahead.Store((30 * time.Minute).Milliseconds())
	if _, err := g.TryNext(); err != nil {
		t.Fatal(err)
	}
	f.nodes[0].replies(func(args []string) ([]byte, bool) {
		return []byte("-TRYAGAIN no_worker: all are held\r\n"), args[0] == "WORKER"
	})
	ahead.Store(0)
	if _, err := g.Next(within(t, 100*time.Millisecond)); !errors.Is(err, isotone.ErrDeadlineExceeded) || !errors.Is(err, isotone.ErrClock) {
		t.Errorf("%v", err)
	}
	waiting := make(chan error, 1)
	go func() {
		_, err := g.Next(within(t, 10*time.Second))
		waiting <- err
	}()
	ahead.Store((30 * time.Minute).Milliseconds())
	if err := receive(t, waiting); err != nil {
		t.Error(err)
	}
}
