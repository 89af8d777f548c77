package client_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
)

// stampWays are the ways to get a timestamp: alone on a connection, or in a batch.
func stampWays(c *client.Client) map[string]func(context.Context) (isotone.Timestamp, error) {
	return map[string]func(context.Context) (isotone.Timestamp, error){
		"direct": c.Timestamp,
		"lease":  c.In(isotone.ReadLease).Timestamp,
		"batch":  func(ctx context.Context) (isotone.Timestamp, error) { return one(ctx, c) },
		"quorum": func(ctx context.Context) (isotone.Timestamp, error) {
			r, err := c.In(isotone.ReadQuorum).Timestamps(ctx, 1)
			return r.First, err
		},
	}
}

// restart ends all connections, and waits until the client has opened new ones, but for that
// for direct calls, which is opened when a call misses it.
func restart(t *testing.T, f *cluster) {
	t.Helper()
	before := f.nodes[0].count("PING")
	f.nodes[0].hangUp(false)
	await.Until(t, "new connections", func() bool { return f.nodes[0].count("PING") >= before+client.ConnsDefault })
}

// floors returns the TS commands with a floor.
func floors(n *node) (list []string) {
	for _, command := range n.commands("TS") {
		if strings.Contains(command, "FLOOR") {
			list = append(list, command)
		}
	}
	return list
}

// TestFloor_IsCarriedOnNewConnections: a cluster that was set back raises itself, and no call
// fails. Later requests cost nothing more.
func TestFloor_IsCarriedOnNewConnections(t *testing.T) {
	for _, way := range []string{"direct", "lease", "batch", "quorum"} {
		f := startCluster(t, 1)
		c := f.dial(client.Options{})
		highest := isotone.Timestamp{}
		call := stampWays(c)[way]
		next := func(times int) {
			t.Helper()
			for range times {
				ts, err := call(within(t, 10*time.Second))
				if err != nil || !highest.Before(ts) {
					t.Fatalf("%s: %v after %v, %v", way, ts, highest, err)
				}
				highest = ts
			}
		}
		connected(t, c, client.ConnsDefault)
		next(20)
		for range 3 {
			before := len(floors(f.nodes[0]))
			f.setBack(0)
			restart(t, f)
			next(20)
			carried := floors(f.nodes[0])[before:]
			if n := len(carried); n < 1 || n > client.ConnsDefault+1 {
				t.Errorf("%s: %d requests carried a floor: %v", way, n, carried)
			}
		}
	}
}

// TestFloor_IsCarriedOnTheConnectionForDirectCalls, though the others have carried it before.
func TestFloor_IsCarriedOnTheConnectionForDirectCalls(t *testing.T) {
	for _, old := range []bool{false, true} {
		f := startCluster(t, 1)
		f.old = old
		c := f.dial(client.Options{Conns: 1})
		connected(t, c, 1)
		for range 3 {
			wantTimestamp(t, c)
		}
		carried := len(floors(f.nodes[0]))
		f.nodes[0].hangUp(false)
		await.Until(t, "a floor on either connection", func() bool {
			wantTimestamp(t, c)
			return len(floors(f.nodes[0])) == carried+2
		})
		pings := f.nodes[0].count("PING")
		for range 20 {
			wantTimestamp(t, c)
		}
		if n := len(floors(f.nodes[0])); n != carried+2 || f.nodes[0].count("PING") != pings {
			t.Errorf("older: %v: %d floors, %d connections; want %d and %d", old, n, f.nodes[0].count("PING"), carried+2, pings)
		}
	}
}

// TestFloor_IsCarriedUntilAnAnswer: a refusal in between does not count.
func TestFloor_IsCarriedUntilAnAnswer(t *testing.T) {
	f := startCluster(t, 1)
	c := f.dial(client.Options{Conns: 1})
	wantTimestamp(t, c)
	restart := f.nodes[0].count("PING") + 1
	f.lead(-1)
	f.setBack(0)
	f.nodes[0].hangUp(false)
	await.Until(t, "new connections", func() bool { return f.nodes[0].count("PING") >= restart })
	done := make(chan error, 1)
	go func() {
		ts, err := one(within(t, 10*time.Second), c)
		if err == nil && ts.Index <= 1 {
			err = errors.New("the floor was undercut: " + ts.String())
		}
		done <- err
	}()
	await.Until(t, "some refusals", func() bool { return len(floors(f.nodes[0])) >= 3 })
	f.lead(0)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestFloor_OlderNodesAreAskedWithoutIt, once they have refused it, and the client's own check
// remains.
func TestFloor_OlderNodesAreAskedWithoutIt(t *testing.T) {
	for _, way := range []string{"direct", "lease", "batch", "quorum"} {
		f := startCluster(t, 1)
		f.old = true
		c := f.dial(client.Options{})
		call := stampWays(c)[way]
		for range 3 {
			before := len(floors(f.nodes[0]))
			for range 20 {
				if _, err := call(within(t, 10*time.Second)); err != nil {
					t.Fatalf("%s: %v", way, err)
				}
			}
			if n := len(floors(f.nodes[0])) - before; n > client.ConnsDefault+1 {
				t.Errorf("%s: %d floors were carried", way, n)
			}
			restart(t, f)
		}
		if got := len(floors(f.nodes[0])); got == 0 {
			t.Errorf("%s: no floor was carried", way)
		}
		f.setBack(0)
		if ts, err := call(within(t, 10*time.Second)); !errors.Is(err, isotone.ErrInternal) || !strings.Contains(err.Error(), "I13") {
			t.Errorf("%s, set back: %v, %v", way, ts, err)
		}
	}
}

// TestFloor_ARegressedClusterFailsCalls until an operator has raised it.
func TestFloor_ARegressedClusterFailsCalls(t *testing.T) {
	for _, way := range []string{"direct", "lease", "batch", "quorum"} {
		f := startCluster(t, 1)
		c := f.dial(client.Options{})
		call := stampWays(c)[way]
		r, err := c.Timestamps(within(t, 10*time.Second), 1000)
		if err != nil {
			t.Fatal(err)
		}
		f.change(func() { f.guard = 100 })
		f.setBack(0)
		restart(t, f)
		for range 5 {
			if ts, err := call(within(t, 10*time.Second)); !errors.Is(err, isotone.ErrRegressed) || !strings.Contains(err.Error(), "behind") {
				t.Errorf("%s: %v, %v", way, ts, err)
			}
		}
		f.change(func() { f.guard = 0 })
		if ts, err := call(within(t, 10*time.Second)); err != nil || !r.Last().Before(ts) {
			t.Errorf("%s, raised: %v after %v, %v", way, ts, r.Last(), err)
		}
	}
}

// TestOptions_FloorIsCarriedFromTheStart.
func TestOptions_FloorIsCarriedFromTheStart(t *testing.T) {
	f := startCluster(t, 1)
	floor := isotone.Timestamp{Time: 1, Index: 5000}
	c := f.dial(client.Options{Floor: floor})
	if ts, err := c.Timestamp(within(t, 10*time.Second)); err != nil || !floor.Before(ts) {
		t.Errorf("%v, %v", ts, err)
	}
	f.old = true
	c = f.dial(client.Options{Floor: isotone.Timestamp{Time: 1, Index: 1 << 40}})
	if ts, err := c.Timestamp(within(t, 10*time.Second)); !errors.Is(err, isotone.ErrInternal) {
		t.Errorf("of an older version: %v, %v", ts, err)
	}
}

// TestReader_Above: the floor belongs to the calls, each of which is a request of its own.
func TestReader_Above(t *testing.T) {
	f := startCluster(t, 1)
	c := f.dial(client.Options{})
	wantTimestamp(t, c)
	floor := isotone.Timestamp{Time: 1, Index: 5000}
	above := c.In(isotone.ReadLease).Above(floor)
	if ts, err := above.Timestamp(within(t, 10*time.Second)); err != nil || ts.Index != 5001 {
		t.Errorf("%v, %v", ts, err)
	}
	if r, err := above.Timestamps(within(t, 10*time.Second), 7); err != nil || r.First.Index != 5002 || r.Count != 7 {
		t.Errorf("%v, %v", r, err)
	}
	if got, want := floors(f.nodes[0]), "TS 7 LEASE FLOOR "+floor.String(); len(got) == 0 || got[len(got)-1] != strings.ReplaceAll(want, floor.String(), isotone.Timestamp{Time: 1, Index: 5001}.String()) {
		t.Errorf("%q, want %q with the client's own floor, which is higher", got, want)
	}
	if r, err := above.Timestamps(within(t, time.Second), 0); !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Errorf("none: %v, %v", r, err)
	}
	before := len(floors(f.nodes[0]))
	if _, err := c.In(isotone.ReadLease).Above(isotone.Timestamp{}).Timestamp(within(t, 10*time.Second)); err != nil {
		t.Error(err)
	}
	wantTimestamp(t, c)
	if n := len(floors(f.nodes[0])) - before; n > client.ConnsDefault {
		t.Errorf("%d requests without a floor carried one", n)
	}
	f.change(func() { f.guard = 100_000 })
	high := c.In(isotone.ReadDefault).Above(isotone.Timestamp{Time: 1, Index: 1 << 30})
	if ts, err := high.Timestamp(within(t, 10*time.Second)); !errors.Is(err, isotone.ErrRegressed) {
		t.Errorf("%v, %v", ts, err)
	}
	wantTimestamp(t, c) // it was the floor of that call only
}

// TestReader_AboveOfOlderNodes: they do not know floors, so the client compares.
func TestReader_AboveOfOlderNodes(t *testing.T) {
	f := startCluster(t, 1)
	f.old = true
	rejected := 0
	c := f.dial(client.Options{Hooks: client.Hooks{Rejected: func(string, error) { rejected++ }}})
	r, err := c.Timestamps(within(t, 10*time.Second), 100)
	if err != nil {
		t.Fatal(err)
	}
	if ts, err := c.In(isotone.ReadDefault).Above(r.Last()).Timestamp(within(t, 10*time.Second)); err != nil || !r.Last().Before(ts) {
		t.Errorf("%v, %v", ts, err)
	}
	pings := f.nodes[0].count("PING")
	const refusals = 5
	for range refusals {
		if ts, err := c.In(isotone.ReadDefault).Above(isotone.Timestamp{Time: 1, Index: 1 << 30}).Timestamp(within(t, 10*time.Second)); !errors.Is(err, isotone.ErrRegressed) {
			t.Errorf("%v, %v", ts, err)
		}
	}
	wantTimestamp(t, c)
	// A busy machine may cost a connection, but no refusal does.
	if opened := f.nodes[0].count("PING") - pings; opened >= refusals || rejected != 0 {
		t.Errorf("%d connections were opened again, %d answers rejected", opened, rejected)
	}
}

// TestReader_AboveFarAheadDelaysNobody: the leader holds such requests until its clock has passed the floor.
func TestReader_AboveFarAheadDelaysNobody(t *testing.T) {
	f := startCluster(t, 1)
	far := isotone.Timestamp{Time: uint64(time.Now().Add(time.Hour).UnixNano())}
	floor := far.String() // hexadecimal
	held := make(chan struct{}, 100)
	f.nodes[0].replies(func(args []string) ([]byte, bool) {
		if !slices.Contains(args, floor) {
			return nil, false
		}
		held <- struct{}{}
		return nil, true // no answer for now
	})
	c := f.dial(client.Options{})
	wantTimestamp(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var work sync.WaitGroup
	for range 5 {
		work.Go(func() {
			if _, err := c.In(isotone.ReadDefault).Above(far).Timestamp(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("above a floor an hour ahead: %v", err)
			}
		})
	}
	receive(t, held)
	await.Until(t, "the others wait", func() bool { return client.Waiting(c) == 4 })
	for range 100 {
		wantTimestamp(t, c)
		if _, err := c.Timestamps(within(t, 10*time.Second), 3); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	work.Wait()
}

// TestReader_AboveIsBounded, ends with its context, and with the client.
func TestReader_AboveIsBounded(t *testing.T) {
	f := startCluster(t, 1)
	c := f.dial(client.Options{})
	wantTimestamp(t, c)
	f.nodes[0].freeze()
	defer f.nodes[0].thaw()
	above := c.In(isotone.ReadDefault).Above(isotone.Timestamp{Time: 1, Index: 7})
	var work sync.WaitGroup
	errs := make(chan error, 2*client.AloneMax)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const calls = client.AloneMax + client.ConnsDefault + 10
	for range calls {
		work.Go(func() {
			_, err := above.Timestamp(ctx)
			errs <- err
		})
	}
	for range 10 {
		if err := <-errs; !errors.Is(err, isotone.ErrOverloaded) {
			t.Errorf("one too many: %v", err)
		}
	}
	cancel()
	early := 0 // refused as well, if not all connections were open
	for range calls - 10 {
		if err := <-errs; errors.Is(err, isotone.ErrOverloaded) {
			early++
		} else if !errors.Is(err, context.Canceled) {
			t.Errorf("canceled: %v", err)
		}
	}
	if early > client.ConnsDefault {
		t.Errorf("%d more were refused", early)
	}
	work.Wait()
	for range 5 {
		work.Go(func() {
			_, err := above.Timestamps(context.Background(), 5)
			errs <- err
		})
	}
	await.Until(t, "calls that wait", func() bool { return client.Waiting(c) > 0 })
	_ = c.Close()
	work.Wait()
	for range 5 {
		if err := <-errs; !errors.Is(err, client.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	}
	if _, err := above.Timestamp(context.Background()); !errors.Is(err, client.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}
