package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
)

// held is a node that holds its answers to TS until the test releases them, one by one.
type held struct {
	came chan string
	next chan bool
}

func hold(f *cluster, n *node) *held {
	h := &held{came: make(chan string, 100), next: make(chan bool, 100)}
	n.replies(func(args []string) ([]byte, bool) {
		if args[0] != "TS" {
			return nil, false
		}
		h.came <- fmt.Sprint(args)
		<-h.next
		return nil, false
	})
	f.t.Cleanup(func() { close(h.next) })
	return h
}

// one requests a timestamp like one of many callers: not on the connection for direct calls.
func one(ctx context.Context, c *client.Client) (isotone.Timestamp, error) {
	r, err := c.Timestamps(ctx, 1)
	return r.First, err
}

// occupy waits for all connections of c, and then sends a request, which the node holds, on
// each except that for direct calls.
func occupy(ctx context.Context, t *testing.T, f *cluster, c *client.Client, conns int) (*held, *sync.WaitGroup) {
	t.Helper()
	connected(t, c, conns)
	h, calls := hold(f, f.nodes[0]), &sync.WaitGroup{}
	h.fill(ctx, t, c, calls, conns)
	return h, calls
}

// fill makes conns calls, one on each connection.
func (h *held) fill(ctx context.Context, t *testing.T, c *client.Client, calls *sync.WaitGroup, conns int) {
	t.Helper()
	for range conns {
		calls.Go(func() { _, _ = one(ctx, c) })
		if got := receive(t, h.came); got != "[TS 1]" {
			t.Fatalf("sent %s", got)
		}
	}
}

func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	return await.Receive(t, "a request", c)
}

// TestBatch_CallsDuringARequestShareTheNext checks I4 for every call: none joins a request
// that was sent before it began.
func TestBatch_CallsDuringARequestShareTheNext(t *testing.T) {
	f := startCluster(t, 1)
	c := f.dial(client.Options{Conns: 1})
	ctx := within(t, 10*time.Second)
	h, wg := occupy(ctx, t, f, c, 1)
	const later = 25
	got := make(chan isotone.Timestamp, later)
	for range later {
		wg.Go(func() {
			ts, err := one(ctx, c)
			if err != nil {
				t.Error(err)
			}
			got <- ts
		})
	}
	await.Until(t, "all calls wait", func() bool { return client.Waiting(c) == later })
	h.next <- true
	if got := receive(t, h.came); got != fmt.Sprintf("[TS %d]", later) {
		t.Errorf("the calls made meanwhile sent %s", got)
	}
	h.next <- true
	wg.Wait()
	var indexes []uint64
	for range later {
		indexes = append(indexes, (<-got).Index)
	}
	slices.Sort(indexes)
	for i, index := range indexes {
		if want := uint64(2 + i); index != want {
			t.Fatalf("indexes %v", indexes)
		}
	}
}

// TestBatch_SeveralRequestsAreUnderWay: one on each connection, and no more.
func TestBatch_SeveralRequestsAreUnderWay(t *testing.T) {
	f := startCluster(t, 1)
	c := f.dial(client.Options{Conns: 3})
	ctx := within(t, 10*time.Second)
	h, wg := occupy(ctx, t, f, c, 3)
	wg.Go(func() { _, _ = one(ctx, c) })
	await.Until(t, "the fourth waits", func() bool { return client.Waiting(c) == 1 })
	select {
	case got := <-h.came:
		t.Errorf("a fourth request: %s", got)
	case <-time.After(20 * time.Millisecond):
	}
	for range 4 {
		h.next <- true
	}
	wg.Wait()
}

// TestBatch_TimestampsGoInQueueOrder: calls that joined earlier get smaller timestamps.
func TestBatch_TimestampsGoInQueueOrder(t *testing.T) {
	f := startCluster(t, 1)
	c := f.dial(client.Options{Conns: 1})
	ctx := within(t, 10*time.Second)
	h, wg := occupy(ctx, t, f, c, 1)
	var got [10]isotone.Range
	for i := range got {
		wg.Go(func() { got[i], _ = c.Timestamps(ctx, uint64(i+1)) })
		await.Until(t, "it waits", func() bool { return client.Waiting(c) == uint64(i+1) })
	}
	h.next <- true
	h.next <- true
	wg.Wait()
	next := uint64(2)
	for i, r := range got {
		if r.First.Index != next || r.Count != uint64(i+1) {
			t.Fatalf("call %d got %v, want index %d: %v", i, r, next, got)
		}
		next += r.Count
	}
}

// TestBatch_ModesAreNotMixed also checks that none starves another.
func TestBatch_ModesAreNotMixed(t *testing.T) {
	f := startCluster(t, 1)
	c := f.dial(client.Options{Conns: 1})
	ctx := within(t, 10*time.Second)
	h, wg := occupy(ctx, t, f, c, 1)
	for _, mode := range []isotone.ReadMode{isotone.ReadDefault, isotone.ReadQuorum, isotone.ReadLease} {
		for range 2 {
			wg.Go(func() { _, _ = c.In(mode).Timestamps(ctx, 1) })
		}
	}
	await.Until(t, "all wait", func() bool { return client.Waiting(c) == 6 })
	var sent []string
	for range 3 {
		h.next <- true
		sent = append(sent, receive(t, h.came))
	}
	h.next <- true
	wg.Wait()
	slices.Sort(sent)
	if want := []string{"[TS 2 LEASE]", "[TS 2 QUORUM]", "[TS 2]"}; !slices.Equal(sent, want) {
		t.Errorf("sent %q, want %q", sent, want)
	}
}

// TestBatch_LargeCountsTakeTurns: what does not fit in one request goes into the next.
func TestBatch_LargeCountsTakeTurns(t *testing.T) {
	f := startCluster(t, 1)
	c := f.dial(client.Options{Conns: 1})
	ctx := within(t, 10*time.Second)
	h, wg := occupy(ctx, t, f, c, 1)
	for range 3 {
		wg.Go(func() {
			if r, err := c.Timestamps(ctx, isotone.RangeCountMax); err != nil || r.Count != isotone.RangeCountMax {
				t.Errorf("%v, %v", r, err)
			}
		})
	}
	await.Until(t, "all wait", func() bool { return client.Waiting(c) == 3 })
	for range 3 {
		h.next <- true
		if got := receive(t, h.came); got != "[TS 4294967296]" {
			t.Errorf("sent %s", got)
		}
	}
	h.next <- true
	wg.Wait()
}

func TestBatch_TooManyCallsAreRefused(t *testing.T) {
	f := startCluster(t, 1)
	c := f.dial(client.Options{Conns: 1, QueueMax: 4})
	ctx, cancel := context.WithCancel(within(t, 10*time.Second))
	h, wg := occupy(t.Context(), t, f, c, 1)
	for range 4 {
		wg.Go(func() { _, _ = one(ctx, c) })
	}
	await.Until(t, "four wait", func() bool { return client.Waiting(c) == 4 })
	if _, err := one(context.Background(), c); !errors.Is(err, isotone.ErrOverloaded) {
		t.Errorf("the fifth: %v", err)
	}
	// Other modes have their own queues, and calls that leave make room.
	wg.Go(func() { _, _ = c.In(isotone.ReadLease).Timestamps(ctx, 1) })
	await.Until(t, "five wait", func() bool { return client.Waiting(c) == 5 })
	cancel()
	await.Until(t, "no call waits", func() bool { return client.Waiting(c) == 0 })
	wg.Go(func() {
		if _, err := one(context.Background(), c); err != nil {
			t.Error(err)
		}
	})
	await.Until(t, "one waits", func() bool { return client.Waiting(c) == 1 })
	h.next <- true
	if got := receive(t, h.came); got != "[TS 1]" {
		t.Errorf("sent %s, for calls that have left", got)
	}
	h.next <- true
	wg.Wait()
}

// TestBatch_HugeCallsCountAsCalls: each fills a batch, and as many calls may wait as small ones.
func TestBatch_HugeCallsCountAsCalls(t *testing.T) {
	const most = 40
	f := startCluster(t, 1)
	c := f.dial(client.Options{Conns: 1, QueueMax: most})
	ctx, cancel := context.WithCancel(within(t, 10*time.Second))
	defer cancel()
	_, wg := occupy(ctx, t, f, c, 1)
	for i := range most + 1 { // one more has the open batch
		wg.Go(func() {
			if _, err := c.Timestamps(ctx, isotone.RangeCountMax); errors.Is(err, isotone.ErrOverloaded) {
				t.Errorf("call %d: %v", i, err)
			}
		})
		await.Until(t, "it waits", func() bool { return client.Waiting(c) == uint64(i+1) })
	}
	if _, err := one(ctx, c); !errors.Is(err, isotone.ErrOverloaded) {
		t.Errorf("one more: %v", err)
	}
	cancel()
	wg.Wait()
}

// TestBatch_TheBoundHoldsForAllStripes: several batches are open at once, and a call that
// fits in none is refused.
func TestBatch_TheBoundHoldsForAllStripes(t *testing.T) {
	f := startCluster(t, 1)
	c := f.dial(client.Options{Conns: 2, QueueMax: 5})
	ctx, cancel := context.WithCancel(within(t, 10*time.Second))
	defer cancel()
	_, wg := occupy(ctx, t, f, c, 2)
	for range 5 {
		wg.Go(func() { _, _ = one(ctx, c) })
	}
	await.Until(t, "five wait", func() bool { return client.Waiting(c) == 5 })
	if _, err := one(ctx, c); !errors.Is(err, isotone.ErrOverloaded) {
		t.Errorf("the sixth: %v", err)
	}
	cancel()
	wg.Wait()
}

// TestBatch_ACrowdIsWokenWhole: of thousands of calls that wait for one answer, some leave
// just when it arrives, and all others get their timestamps.
func TestBatch_ACrowdIsWokenWhole(t *testing.T) {
	f := startCluster(t, 1)
	c := f.dial(client.Options{Conns: 2})
	patient := within(t, 20*time.Second)
	var floor isotone.Timestamp
	h, wg := occupy(patient, t, f, c, 2)
	for round := range 4 {
		if round > 0 {
			h.fill(patient, t, c, wg, 2)
		}
		const callers = 3000
		hasty, leave := context.WithCancel(patient)
		got := make([]isotone.Timestamp, callers)
		for i := range got {
			ctx := patient
			if i%3 == 0 {
				ctx = hasty
			}
			wg.Go(func() {
				var err error
				if got[i], err = one(ctx, c); err != nil && ctx == patient {
					t.Errorf("caller %d: %v", i, err)
				}
			})
		}
		await.Until(t, "all wait", func() bool { return client.Waiting(c) == callers })
		for range 4 { // the held requests, and at most two batches
			h.next <- true
		}
		receive(t, h.came)
		leave()
		wg.Wait()
		for len(h.came) > 0 {
			<-h.came
		}
		for len(h.next) > 0 {
			<-h.next
		}
		got = slices.DeleteFunc(got, func(ts isotone.Timestamp) bool { return ts == isotone.Timestamp{} })
		slices.SortFunc(got, isotone.Timestamp.Compare)
		if len(got) < callers/3*2 || !floor.Before(got[0]) || len(slices.Compact(got)) != len(got) {
			t.Fatalf("%d answers from %v on, after %v, some of them twice or none", len(got), got[0], floor)
		}
		floor = got[len(got)-1]
	}
}
