package node_test

import (
	"errors"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/node"
)

// intervalMax is far longer than a busy machine delays a round.
const intervalMax = 2 * time.Second

// reading waits until a node tells a reading of a term later than after.
func reading(t *testing.T, n *node.Node, after uint64) interval.Reading {
	t.Helper()
	for deadline := time.Now().Add(liveness); ; time.Sleep(time.Millisecond) {
		r, err := n.Clock().Now()
		switch {
		case err == nil && r.Term > after:
			return r
		case err != nil && !errors.Is(err, isotone.ErrNoLeader) || time.Now().After(deadline):
			t.Fatalf("%+v, %v", r, err)
		}
	}
}

// Every node reads the clock of one leader; reads, timestamps that are made of them, and those of the
// oracle are in order, also across a change of leader.
func TestClock_NodesReadOneClock(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, func(cfg *node.Config) { cfg.Interval = intervalMax })
	leader := c.leader()
	cluster := c.nodes[leader].Status().ClusterID
	stampers := map[uint64]*front.Stamper{}
	for id, n := range c.nodes {
		reading(t, n, 0)
		stampers[id] = front.NewStamper(n.Clock())
	}
	var earliest, term uint64
	var past isotone.Timestamp
	check := func() {
		t.Helper()
		for id, n := range c.nodes {
			r := reading(t, n, 0)
			if r.Cluster != cluster || r.Term < term || r.Latest < earliest || r.Earliest > r.Latest || r.Latest > r.Limit {
				t.Fatalf("node %d: %+v after %d of term %d", id, r, earliest, term)
			}
			term, earliest = max(term, r.Term), max(earliest, r.Earliest)
			made, err := stampers[id].Make(10)
			if errors.Is(err, isotone.ErrNoLeader) {
				continue // the limit has passed since
			}
			if err != nil || !past.Before(made.First) {
				t.Fatalf("node %d makes %v after %v, %v", id, made, past, err)
			}
			for last := made.At(9); ; {
				again, err := front.UntilPast(n.Clock(), last)
				if err != nil {
					t.Fatal(err)
				}
				if again == 0 {
					past = last
					break
				}
				time.Sleep(again)
			}
		}
		if r, err := get(c.nodes[leader], 1); err == nil {
			if !past.Before(r.First) {
				t.Fatalf("the oracle issues %v after %v", r.First, past)
			}
			past = r.First
		}
	}
	for range 20 {
		check()
	}
	before := term
	if err := c.stop(leader); err != nil {
		t.Fatal(err)
	}
	delete(stampers, leader)
	leader = c.leader()
	for _, n := range c.nodes {
		reading(t, n, before)
	}
	for range 20 {
		check()
	}
}

func TestClock_OffByDefault(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.leader()
	if r, err := c.nodes[1].Clock().Now(); !errors.Is(err, isotone.ErrNotFound) || r != (interval.Reading{}) {
		t.Errorf("%+v, %v", r, err)
	}
}
