//go:build linux

package operation_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
	"github.com/isotone/isotone/snowflake"
)

// idLog has the ids that clients have seen.
type idLog struct {
	mu      sync.Mutex
	ids     map[int64]string
	largest int64
	faults  []string
}

func (l *idLog) add(by string, id int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before, twice := l.ids[id]; twice {
		l.faults = append(l.faults, fmt.Sprintf("I9: %d of %s was made by %s before", id, by, before))
	}
	l.ids[id] = by
	l.largest = max(l.largest, id)
}

// generate makes ids with a generator until the test ends. It must outlive its cluster.
func (l *idLog) generate(t *testing.T, c *chaos.Cluster, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), chaos.ReadyTimeout)
	defer cancel()
	cl, err := client.NewWith(ctx, client.Options{Addrs: c.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	g, err := cl.NewGenerator(ctx, client.GeneratorOptions{Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	quit := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		var ids [20]snowflake.ID
		for {
			if err := g.NextN(context.Background(), ids[:]); err != nil {
				l.mu.Lock()
				l.faults = append(l.faults, fmt.Sprintf("%s: %v", name, err))
				l.mu.Unlock()
				return
			}
			for _, id := range ids {
				l.add(name, int64(id))
			}
			select {
			case <-quit:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	t.Cleanup(func() {
		close(quit)
		work.Wait()
		_ = g.Close() // its cluster is gone
		_ = cl.Close()
	})
}

// nodeIDs takes some ids from each node that makes any.
func (l *idLog) nodeIDs(t *testing.T, c *chaos.Cluster) (smallest int64) {
	t.Helper()
	for _, n := range c.Nodes {
		var a *chaos.Answer
		await.Done(t, chaos.ReadyTimeout, func() (bool, string) { // a node leases its workers just after becoming ready
			a = trial.Get(t, n, "/api/snowflake?n=20")
			return a.Status == 200, fmt.Sprintf("node %d answered %d %s", n.ID, a.Status, a.Body)
		})
		for line := range strings.SplitSeq(string(a.Body), "\n") {
			id, err := strconv.ParseInt(line, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			l.add(fmt.Sprintf("node %d", n.ID), id)
			if smallest == 0 || id < smallest {
				smallest = id
			}
		}
	}
	return smallest
}

// refusedLease wants a client of a cluster that was just restored to be refused a lease.
func refusedLease(t *testing.T, c *chaos.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	cl, err := client.NewWith(ctx, client.Options{Addrs: c.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if g, err := cl.NewGenerator(ctx, client.GeneratorOptions{}); err == nil {
		t.Errorf("I9: the worker %d is leased, and clients of the lost cluster may hold any", g.Worker())
		_ = g.Close()
	}
}
