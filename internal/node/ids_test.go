package node_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/node"
	"github.com/isotone/isotone/snowflake"
)

// offClock is the system's clock with an offset.
type offClock struct {
	node.SystemClock
	off atomic.Int64
}

func (c *offClock) Wall() time.Time { return c.SystemClock.Wall().Add(time.Duration(c.off.Load())) }

func makingIDs(lease time.Duration) func(*node.Config) {
	return func(cfg *node.Config) {
		cfg.IDs = node.IDConfig{Layout: snowflake.Twitter, FixedWorker: oracle.AnyWorker, Lease: lease}
	}
}

// makes waits until ids are made, and returns one.
func makes(t *testing.T, g front.IDs) snowflake.ID {
	t.Helper()
	var ids [1]snowflake.ID
	var err error
	for deadline := time.Now().Add(liveness); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if err = g.Fill(ids[:]); err == nil {
			return ids[0]
		}
	}
	t.Fatalf("no ids: %v", err)
	return 0
}

// refuses waits until ids are refused for a reason.
func refuses(t *testing.T, g front.IDs, want error) {
	t.Helper()
	var ids [1]snowflake.ID
	var err error
	for deadline := time.Now().Add(liveness); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if err = g.Fill(ids[:]); errors.Is(err, want) {
			return
		}
	}
	t.Fatalf("got %v, want %v", err, want)
}

func TestIDs_AreUniqueOverNodesLoopsAndRestarts(t *testing.T) {
	c := newCluster(t, 3, func(cfg *node.Config) {
		makingIDs(5 * time.Second)(cfg)
		cfg.Loops = 2
	})
	c.leader()
	seen := map[snowflake.ID]bool{}
	for round := range 4 {
		var mu sync.Mutex
		var all []snowflake.ID
		var wg sync.WaitGroup
		for _, n := range c.nodes {
			for loop := -1; loop < 2; loop++ {
				g := n.IDs(loop)
				makes(t, g)
				wg.Go(func() {
					batch := make([]snowflake.ID, 50)
					for range 40 {
						if err := g.Fill(batch); err != nil {
							continue // asked for too fast
						}
						for i := 1; i < len(batch); i++ {
							if batch[i] <= batch[i-1] {
								t.Errorf("%d after %d", batch[i], batch[i-1])
							}
						}
						mu.Lock()
						all = append(all, batch...)
						mu.Unlock()
					}
				})
			}
		}
		wg.Wait()
		for _, id := range all {
			if seen[id] {
				t.Fatalf("I9: %d twice", id)
			}
			seen[id] = true
		}
		id := uint64(round%3 + 1)
		if err := c.stop(id); err != nil {
			t.Fatal(err)
		}
		c.start(id)
	}
	if len(seen) < 10_000 {
		t.Errorf("only %d ids", len(seen))
	}
}

func TestIDs_GoOnWithoutAQuorumUntilTheLeaseEnds(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, makingIDs(3*time.Second))
	leader := c.leader()
	var last *node.Node
	for id, n := range c.nodes {
		if id != leader {
			last = n
		}
	}
	g := last.IDs(-1)
	makes(t, g)
	for id, n := range c.nodes {
		if n != last {
			if err := c.stop(id); err != nil {
				t.Fatal(err)
			}
		}
	}
	makes(t, g) // more than half of the lease is left
	refuses(t, g, isotone.ErrNoWorker)
	if worker, _, err := g.Worker(); !errors.Is(err, isotone.ErrNoWorker) {
		t.Errorf("worker %d, %v, and its lease has ended", worker, err)
	}
	for deadline := time.Now().Add(liveness); !strings.Contains(last.Status().NotReadyIDs, "leases of this node's workers have ended"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not ready for ids: %q", last.Status().NotReadyIDs)
		}
	}
}

func TestIDs_AFixedWorkerIsOneNodes(t *testing.T) {
	c := newCluster(t, 3, func(cfg *node.Config) {
		makingIDs(time.Minute)(cfg)
		cfg.IDs.FixedWorker = 7
		if cfg.NodeID == 3 {
			cfg.IDs.FixedWorker = 8
		}
	})
	holder, other := uint64(1), uint64(2)
	deadline := time.Now().Add(liveness)
	for c.nodes[1].Status().NotReady == "" && c.nodes[2].Status().NotReady == "" || !strings.Contains(c.nodes[1].Status().NotReady+c.nodes[2].Status().NotReady, "worker") {
		if time.Now().After(deadline) {
			t.Fatalf("%q, %q", c.nodes[1].Status().NotReady, c.nodes[2].Status().NotReady)
		}
		time.Sleep(time.Millisecond)
	}
	if c.nodes[1].Status().NotReady != "" {
		holder, other = other, holder
	}
	id := makes(t, c.nodes[holder].IDs(0))
	if got := snowflake.Twitter.Worker(id); got != 7 {
		t.Errorf("worker %d, want 7", got)
	}
	if got := snowflake.Twitter.Worker(makes(t, c.nodes[3].IDs(0))); got != 8 {
		t.Errorf("worker %d, want 8", got)
	}
	refuses(t, c.nodes[other].IDs(0), isotone.ErrNoWorker)
	if s := c.nodes[other].Status(); s.NotReadyTimestamps != "" || s.NotReadyIDs != s.NotReady {
		t.Errorf("node %d has no worker, and tells apart: timestamps %q, ids %q, both %q", other, s.NotReadyTimestamps, s.NotReadyIDs, s.NotReady)
	}

	// Given back, it is free at once, a minute before its lease ends.
	ctx, cancel := context.WithTimeout(context.Background(), liveness)
	defer cancel()
	if err := c.nodes[holder].ReleaseWorkers(ctx); err != nil {
		t.Fatal(err)
	}
	refuses(t, c.nodes[holder].IDs(0), isotone.ErrNoLeader)
	if next := makes(t, c.nodes[other].IDs(0)); next <= id || snowflake.Twitter.Worker(next) != 7 {
		t.Errorf("%d of worker %d after %d", next, snowflake.Twitter.Worker(next), id)
	}
}

func TestIDs_AreRefusedWhileTheClockDiffersFromThePeers(t *testing.T) {
	clock := &offClock{}
	clock.off.Store(int64(time.Minute))
	c := newCluster(t, 3, func(cfg *node.Config) {
		makingIDs(5 * time.Second)(cfg)
		if cfg.NodeID == 2 {
			cfg.Clock = clock
		}
	})
	for _, id := range []uint64{1, 3} {
		makes(t, c.nodes[id].IDs(0))
	}
	g := c.nodes[2].IDs(0)
	refuses(t, g, isotone.ErrClock)
	for deadline := time.Now().Add(liveness); !strings.Contains(c.nodes[2].Status().NotReady, "clock"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("ready, or not because of the clock: %q", c.nodes[2].Status().NotReady)
		}
	}
	clock.off.Store(0)
	makes(t, g)
}

func TestReport_ShowsThePeersAndTheWorkers(t *testing.T) {
	c := newCluster(t, 3, makingIDs(5*time.Second))
	leader := c.leader()
	for id, n := range c.nodes {
		makes(t, n.IDs(0))
		var r node.Report
		for deadline := time.Now().Add(liveness); ; time.Sleep(time.Millisecond) {
			var ok bool
			if r, ok = n.Report(); !ok {
				t.Fatal("it has stopped")
			}
			known := 0
			for _, p := range r.Peers {
				if p.Connected && p.ClockKnown && p.LagKnown == (id == leader) && p.ClockOffset.Abs() < time.Minute {
					known++
				}
			}
			if known == 2 && r.SkewKnown && len(r.Elections) > 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("node %d: %+v", id, r)
			}
		}
		if r.Serving != (id == leader) || r.Serving != (r.Time > 0) || len(r.Workers) == 0 || r.Loops != 1 || r.Status.Leader != leader ||
			r.Elections[len(r.Elections)-1].Leader != leader {
			t.Errorf("node %d, leader %d: %+v", id, leader, r)
		}
	}
}

func TestIDs_FewerWorkersThanWantedAreEnough(t *testing.T) {
	t.Parallel()
	layout := snowflake.Layout{TimeBits: 41, WorkerBits: 1, SequenceBits: 21, Epoch: snowflake.Twitter.Epoch}
	c := newCluster(t, 1, func(cfg *node.Config) {
		cfg.IDs = node.IDConfig{Layout: layout, Workers: 3, FixedWorker: oracle.AnyWorker, Lease: 5 * time.Second}
	})
	n := c.nodes[1]
	c.leader()
	makes(t, n.IDs(0))
	for deadline := time.Now().Add(liveness); ; time.Sleep(time.Millisecond) {
		r, ok := n.Report()
		if !ok {
			t.Fatal("it has stopped")
		}
		if len(r.Workers) == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d workers, want all 2 that there are", len(r.Workers))
		}
	}
	// The third is refused again and again, several times in this while.
	for until := time.Now().Add(time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if why := n.Status().NotReady; why != "" {
			t.Fatalf("it makes ids, but is not ready: %s", why)
		}
	}
	for loop := -1; loop < 3; loop++ {
		makes(t, n.IDs(loop))
	}
}
