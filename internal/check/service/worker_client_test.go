//go:build linux

package service_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
)

// workerClient requests worker leases from one node, as a client library does.
type workerClient struct {
	t      *testing.T
	client *redis.Client
}

func newWorkerClient(t *testing.T, n *chaos.Node) workerClient {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: n.HTTPAddr, MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	return workerClient{t, client}
}

// lease requests a lease for a session, or renews the one that it has.
func (w workerClient) lease(session string, length time.Duration) (l workerLease, err error) {
	w.t.Helper()
	values, err := w.client.Do(context.Background(), "WORKER", "LEASE", session, time.Now().UnixMilli(), length.Milliseconds()).Slice()
	if err != nil {
		return l, err
	}
	if len(values) != 5 || values[3] != "41/5/5/12" || values[4] != int64(twitterEpoch) {
		w.t.Fatalf("WORKER LEASE: %v", values)
	}
	return workerLease{Worker: values[0].(int64), Start: values[1].(int64), End: values[2].(int64)}, nil
}

// must retries lease until it succeeds.
func (w workerClient) must(session string, length time.Duration) (l workerLease) {
	w.t.Helper()
	await.Done(w.t, chaos.ReadyTimeout, func() (bool, string) {
		var err error
		l, err = w.lease(session, length)
		return err == nil, fmt.Sprintf("WORKER LEASE: %v", err)
	})
	return l
}

// TestWorker_ClientsLeaseFromTheLeader leases worker IDs over the Redis protocol, and renews
// one at the next leader.
func TestWorker_ClientsLeaseFromTheLeader(t *testing.T) {
	t.Parallel()
	const one, two, three, length = "00000000000000a1", "00000000000000a2", "00000000000000a3", time.Minute
	o := workerOptions(length)
	o.Env["LOOPS"] = "2" // connections are in either
	c := chaos.StartCluster(t, o)
	waitIDs(t, c.Nodes...)
	ids := newIDSet()
	leader := c.WaitLeader()
	first, second := newWorkerClient(t, leader).must(one, length), newWorkerClient(t, leader).must(two, length)
	for range 8 {
		if again := newWorkerClient(t, leader).must(one, length); again.Worker != first.Worker || again.Start != first.Start {
			t.Errorf("%+v was renewed as %+v", first, again)
		}
	}
	taken := map[int64]string{first.Worker: "the first client"}
	note := func(worker int64, by string) {
		if before, twice := taken[worker]; twice {
			t.Errorf("%s has worker %d, as %s has", by, worker, before)
		}
		taken[worker] = by
	}
	note(second.Worker, "the second client")
	for _, n := range c.Nodes {
		note(workerOf(someIDs(t, n, ids)), fmt.Sprintf("node %d", n.ID))
		if n == leader {
			continue
		}
		if _, err := newWorkerClient(t, n).lease(one, length); err == nil || err.Error() != "MOVED 0 "+leader.HTTPAddr {
			t.Errorf("a follower says %v, want that node %d at %s leads", err, leader.ID, leader.HTTPAddr)
		}
	}

	leader.Kill()
	next := c.WaitLeader()
	next.WaitReady(chaos.ReadyTimeout)
	renewed := newWorkerClient(t, next).must(one, length)
	if renewed.Worker != first.Worker || renewed.Start != first.Start || renewed.End < first.End {
		t.Errorf("%+v was renewed as %+v", first, renewed)
	}
	free := time.Now().UnixMilli() + 1
	release := func() error {
		return newWorkerClient(t, next).client.Do(context.Background(), "WORKER", "RELEASE", two, second.Worker, second.Start, free).Err()
	}
	for range 2 { // the second time it changes nothing
		if err := release(); err != nil {
			t.Errorf("WORKER RELEASE: %v", err)
		}
	}
	await.Done(t, trial.AnswerTimeout, func() (bool, string) { return time.Now().UnixMilli() >= free, "the clock stands still" })
	third := newWorkerClient(t, next).must(three, length)
	if third.Worker != second.Worker || third.Start < free || third.Start >= second.End {
		t.Errorf("%+v was released from %d on; then %+v was leased", second, free, third)
	}
	if err := release(); err != nil {
		t.Errorf("WORKER RELEASE of another client's worker: %v", err)
	}
	if l := newWorkerClient(t, next).must(three, length); l.Worker != third.Worker || l.Start != third.Start || l.End < third.End {
		t.Errorf("a late release took %+v from its holder, which now has %+v", third, l)
	}
}
