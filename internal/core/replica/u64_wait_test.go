package replica_test

import (
	"math"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/replica"
)

// How requests for 64-bit timestamps wait for the cluster clock.

// ask64Above asks for one 64-bit timestamp above a floor.
func (c *cluster) ask64Above(n *node, floor isotone.Timestamp) uint64 {
	return c.request(n, replica.Request{Mode: isotone.ReadQuorum, U64: true, Floor: floor, Counts: []uint64{1}})
}

// TestU64_AFloorThatIsPastHoldsNothing: with a cluster clock a timestamp made of an interval is above all
// that was issued, and yet past soon.
func TestU64_AFloorThatIsPastHoldsNothing(t *testing.T) {
	c := newIntervalCluster(t, 3)
	l := c.leader()
	clock, _ := l.ClusterClock()
	for i := range 20 {
		c.passes(time.Millisecond, 100*time.Microsecond)
		floor := isotone.Timestamp{Time: clock.Show(l.steady(c.mono)), Index: math.MaxUint64}
		c.mono += time.Microsecond
		token := c.ask64Above(l, floor)
		c.passes(time.Millisecond, 100*time.Microsecond)
		if got := l.outcome(token); got != "ok" || !floor.Before(l.answers[token].ranges[0].First) {
			t.Fatalf("request %d: %q, %v, floor %v", i, got, l.answers[token].ranges, floor)
		}
	}
}

// TestU64_AFloorToComeCostsNoRounds: the request waits for ticks, not for one round after the other.
func TestU64_AFloorToComeCostsNoRounds(t *testing.T) {
	c := newIntervalCluster(t, 3)
	l := c.leader()
	clock, _ := l.ClusterClock()
	floor := isotone.Timestamp{Time: clock.Show(l.steady(c.mono)) + uint64(time.Second)}
	before, token := l.rounds, c.ask64Above(l, floor)
	for range 10 {
		c.passes(tick, 100*time.Microsecond)
		c.mono -= tick
		c.tick(1)
	}
	if got := l.rounds - before; got > 40 || l.outcome(token) != "" {
		t.Errorf("%d rounds in 10 ticks, %q", got, l.outcome(token))
	}
	c.tick(100)
	if got := l.outcome(token); got != "ok" || !floor.Before(l.answers[token].ranges[0].First) {
		t.Errorf("%q, %v, floor %v", got, l.answers[token].ranges, floor)
	}
}

// TestU64_ManyAtOnceAreAnswered, though no round takes as long as all of them.
func TestU64_ManyAtOnceAreAnswered(t *testing.T) {
	c := newIntervalCluster(t, 3)
	l := c.leader()
	token := c.ask64(l, isotone.ReadQuorum, 200_000, 200_000, isotone.Range64CountMax) // 2.5 ms of time
	c.passes(4*time.Millisecond, 50*time.Microsecond)
	if got := l.outcome(token); got != "ok" {
		t.Fatalf("answered %q", got)
	}
	last := isotone.Timestamp{}
	for _, b := range l.answers[token].issued() {
		if !last.Before(b[0]) {
			t.Errorf("%v after %v", b[0], last)
		}
		last = b[1]
	}
}

// TestU64_LargeCountsDoNotStarve beside others that are answered all the time. Of those, the other form waits for
// one of them at a time, and 64-bit timestamps come in order of arrival.
func TestU64_LargeCountsDoNotStarve(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		for _, u64 := range []bool{false, true} {
			c := newIntervalCluster(t, nodes)
			l := c.leader()
			var large, others []uint64
			for range 20 {
				large = append(large, c.ask64(l, isotone.ReadQuorum, isotone.Range64CountMax))
			}
			wait := 0 // of others, in steps
			for range 40 {
				for range 100 {
					c.mono += tick / 100
					others = append(others, c.request(l, replica.Request{Mode: isotone.ReadQuorum, U64: u64, Counts: []uint64{1}}))
					c.pass()
					for len(others) > wait && l.outcome(others[len(others)-1-wait]) != "ok" {
						wait++
					}
				}
				c.mono += tick / 200
				for _, n := range c.running() {
					c.turn(n, &replica.Input{Ticks: 1})
				}
			}
			for _, token := range large {
				if got := l.outcome(token); got != "ok" {
					t.Errorf("%d nodes, others of 64 bits %v: request %d: %q", nodes, u64, token, got)
				}
			}
			if nodes > 1 && !u64 && wait > 30 || wait > 500 {
				t.Errorf("%d nodes, others of 64 bits %v: others waited for %d steps", nodes, u64, wait)
			}
		}
	}
}

// TestU64_NobodyWaitsForOneThatLacksACommit: at the ceiling time holds, and the other form goes on.
func TestU64_NobodyWaitsForOneThatLacksACommit(t *testing.T) {
	c := newIntervalCluster(t, 3)
	l := c.leader()
	for _, n := range c.nodes {
		n.stalled = true
	}
	c.tick(60)
	held := c.ask64(l, isotone.ReadQuorum, 1)
	for range 20 {
		c.tick(1)
		token := c.ask(l, 1)
		c.settle()
		if got := l.outcome(token); got != "ok" {
			t.Fatalf("the other form: %q", got)
		}
	}
	if got := l.outcome(held); got != "" {
		t.Fatalf("at the ceiling: %q", got)
	}
	for _, n := range c.nodes {
		n.stalled = false
	}
	c.tick(20)
	if got := l.outcome(held); got != "ok" {
		t.Errorf("with a commit: %q", got)
	}
}

// TestU64_TheOldestExpiresFirst: a round answers those for 64 bits first, and so puts them in front when it
// holds them.
func TestU64_TheOldestExpiresFirst(t *testing.T) {
	c := newIntervalCluster(t, 3)
	l := c.leader()
	clock, _ := l.ClusterClock()
	floor := isotone.Timestamp{Time: clock.Show(l.steady(c.mono)) + uint64(9*time.Second)}
	oldest := c.askAbove(l, isotone.ReadQuorum, floor, 1)
	c.tick(100)
	later := c.ask64Above(l, floor)
	c.tick(401)
	if first, second := l.outcome(oldest), l.outcome(later); first != isotone.CodeDeadlineExceeded || second != "" {
		t.Errorf("after 501 ticks of 500: %q, and the one of 100 ticks later %q", first, second)
	}
}
