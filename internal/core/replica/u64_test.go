package replica_test

import (
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/replica"
)

// The checks of order are those of cluster.check.

func TestU64_BothFormsHaveOneOrder(t *testing.T) {
	for _, epoch := range []time.Duration{0, 100 * time.Millisecond} {
		c := newCluster(t, 3, func(cfg *replica.Config) { cfg.EpochInterval = epoch })
		l := c.leader()
		for i := range 200 {
			first, second := c.ask64(l, isotone.ReadQuorum, 1, 1000), c.ask(l, 3)
			third := c.ask64(l, isotone.ReadLease, 2)
			c.settle()
			for _, token := range []uint64{first, second, third} {
				if got := l.outcome(token); got != "ok" {
					t.Fatalf("epoch %v: answered %q", epoch, got)
				}
			}
			c.tick(i % 2)
		}
	}
}

func TestU64_AreAboveAFloor(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	floor := c.must(l)
	floor.Index += 1 << 40
	token := c.request(l, replica.Request{Mode: isotone.ReadQuorum, U64: true, Floor: floor, Counts: []uint64{5}})
	c.settle()
	if got := l.outcome(token); got != "ok" || !floor.Before(l.answers[token].ranges[0].First) {
		t.Errorf("%q, %v, floor %v", got, l.answers[token].ranges, floor)
	}
}

// TestU64_KeepToTheClusterClock: they are neither before it showed their arrival nor ahead of it. A leader
// that cannot answer so waits for a tick.
func TestU64_KeepToTheClusterClock(t *testing.T) {
	for _, tt := range []struct {
		nodes int
		mode  isotone.ReadMode
		count uint64
	}{{3, isotone.ReadQuorum, 1}, {3, isotone.ReadQuorum, isotone.Range64CountMax}, {3, isotone.ReadLease, 7}, {1, isotone.ReadQuorum, 7}, {1, isotone.ReadLease, 1}} {
		c := newIntervalCluster(t, tt.nodes)
		l := c.leader()
		for range 50 {
			clock, _ := l.ClusterClock()
			arrived := clock.Show(l.steady(c.mono))
			token := c.ask64(l, tt.mode, tt.count)
			c.settle()
			for ticks := 0; l.outcome(token) == ""; ticks++ {
				if ticks == 5 {
					t.Fatalf("%+v: no answer", tt)
				}
				c.must(l) // takes the time up to now
				c.tick(1)
			}
			bounds := l.answers[token].issued()
			if now := clock.Show(l.steady(c.mono)); l.outcome(token) != "ok" || bounds[0][0].Time < arrived || bounds[0][1].Time > now {
				t.Fatalf("%+v: %q, %v, the clock showed %d and shows %d", tt, l.outcome(token), bounds, arrived, now)
			}
			c.must(l)
		}
	}
}

// TestU64_AreAnsweredBesideOthers: where both are asked for all the time, those of 64 bits do not starve.
func TestU64_AreAnsweredBesideOthers(t *testing.T) {
	c := newIntervalCluster(t, 3)
	l := c.leader()
	var asked []uint64
	for range 100 {
		asked = append(asked, c.ask(l, 1), c.ask64(l, isotone.ReadQuorum, 10), c.ask(l, 1))
		c.tick(1)
	}
	c.tick(2)
	for i, token := range asked {
		if got := l.outcome(token); got != "ok" {
			t.Fatalf("request %d: %q", i, got)
		}
	}
}
