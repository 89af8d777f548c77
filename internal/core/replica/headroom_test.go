package replica_test

import (
	"slices"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// How far reservations reach while oracle time is ahead of the clock.

// leadHarms are the bugs of headroom.go that random runs would take too long to find.
var leadHarms = map[mutant.Mutant]func(*testing.T) bool{
	mutant.ReserveFromClock: starves64,
	mutant.LeadUnbounded:    runsAhead,
}

func TestLead_NoHarmIsDone(t *testing.T) { wantNoHarm(t, leadHarms) }

// raised returns a cluster whose floor was raised, and its leader.
func raised(t *testing.T, nodes int, ahead time.Duration) (*cluster, *node) {
	c := newCluster(t, nodes, nil)
	l := c.leader()
	c.tick(20)
	c.turn(l, &replica.Input{RaiseFloor: &replica.FloorRequest{Time: uint64(c.mono + ahead), Force: true}})
	c.settle()
	return c, l
}

// answered64 has clients ask for 64-bit timestamps in each of some ticks, and returns how many of the requests
// were answered within a few ticks.
func (c *cluster) answered64(l *node, ticks int, count uint64) (answered int) {
	var tokens []uint64
	for range ticks {
		tokens = append(tokens, c.ask64(l, isotone.ReadQuorum, count))
		c.tick(1)
	}
	c.tick(3)
	for _, token := range tokens {
		if l.outcome(token) == "ok" {
			answered++
		}
	}
	return answered
}

// starves64 reports whether requests for 64-bit timestamps stay without an answer while time is ahead of the clock.
func starves64(t *testing.T) bool {
	c, l := raised(t, 3, time.Minute)
	return c.answered64(l, 100, 1000) < 100
}

// ceilingLead returns how far the ceiling is ahead of the clock.
func (c *cluster) ceilingLead(n *node) time.Duration {
	return time.Duration(n.Status().Ceiling) - c.mono
}

// runsAhead reports whether clients that ask for more 64-bit timestamps than there is time for move time further
// ahead of the clock.
func runsAhead(t *testing.T) bool {
	c, l := raised(t, 3, time.Minute)
	c.answered64(l, 10, 1)
	before := c.ceilingLead(l)
	for range 100 {
		for range 40 {
			c.ask64(l, isotone.ReadQuorum, isotone.Range64CountMax) // 40 ms of time in 10 ms
		}
		c.tick(1)
	}
	return c.ceilingLead(l) > before+11*tick // the lead shrinks once in an epoch
}

// TestLead_EachFormIsServedAtFullRate although time is ahead of the clock: after a floor, a restoration, a change of
// leader, and after the clocks were set right.
func TestLead_EachFormIsServedAtFullRate(t *testing.T) {
	const ticks, perTick = 600, 200_000 // more than a reservation holds, and less than passes
	for name, begin := range map[string]func() (*cluster, *node){
		"a floor":             func() (*cluster, *node) { return raised(t, 3, time.Hour) },
		"a floor, sole voter": func() (*cluster, *node) { return raised(t, 1, time.Hour) },
		"a restoration": func() (*cluster, *node) {
			c := newCluster(t, 3, func(cfg *replica.Config) { cfg.Seed = seed(time.Hour) })
			return c, c.leader()
		},
		"another leader": func() (*cluster, *node) {
			c, l := raised(t, 3, time.Hour)
			c.isolate(l.id)
			next := c.leader(l)
			c.isolate()
			c.tick(20)
			return c, next
		},
		"clocks set right": func() (*cluster, *node) {
			c := newCluster(t, 3, nil)
			for _, n := range c.nodes {
				n.skew = time.Hour
			}
			c.leader()
			c.tick(200)
			for _, n := range c.nodes {
				n.skew = 0
			}
			return c, c.leader()
		},
		"clocks at their first second": func() (*cluster, *node) {
			c, l := raised(t, 3, time.Hour)
			for _, n := range c.nodes {
				n.skew = -c.mono
			}
			return c, l
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, l := begin()
			if lead := c.ceilingLead(l); lead < 50*time.Minute {
				t.Fatalf("time is only %v ahead of the clock", lead)
			}
			if n := c.answered64(l, ticks, perTick); n != ticks {
				t.Errorf("%d of %d requests were answered", n, ticks)
			}
			c.must(l)
		})
	}
}

// TestLead_DoesNotGrowWithTerms: each leader begins at the ceiling that it finds, and gets no further ahead of the
// clock, however much clients ask for.
func TestLead_DoesNotGrowWithTerms(t *testing.T) {
	c, l := raised(t, 3, time.Minute)
	c.answered64(l, 10, 1) // what is reserved above the floor
	before := c.ceilingLead(l)
	for range 20 {
		c.isolate(l.id)
		next := c.leader(l)
		c.isolate()
		c.greet()
		l = next
		for range 5 {
			for range 40 {
				c.ask64(l, isotone.ReadQuorum, isotone.Range64CountMax)
			}
			c.tick(1)
		}
		if lead := c.ceilingLead(l); lead > before+tick {
			t.Fatalf("time was %v ahead of the clock, and is %v", before, lead)
		}
	}
}

// TestLead_EndsWithItsReason: when the clock has caught up, a burst gets no further ahead of it than ever.
func TestLead_EndsWithItsReason(t *testing.T) {
	c, l := raised(t, 3, 20*time.Second)
	c.tick(2500)
	for range 100 {
		for range 40 {
			c.ask64(l, isotone.ReadQuorum, isotone.Range64CountMax)
		}
		c.tick(1)
	}
	if lead := c.ceilingLead(l); lead > 500*time.Millisecond {
		t.Errorf("the ceiling is %v ahead of the clock", lead)
	}
}

// TestClientFloor_SlowsNobodyElse: a client that keeps moving time ahead, as far as it may, leaves room for the 64-bit
// timestamps of others.
func TestClientFloor_SlowsNobodyElse(t *testing.T) {
	for name, floor := range map[string]func(c *cluster, l *node) uint64{
		"as far as it may":    func(c *cluster, _ *node) uint64 { return uint64(c.mono + replica.ClientFloorAheadMax) },
		"up to the ceiling":   func(_ *cluster, l *node) uint64 { return l.Status().Ceiling - 2 },
		"what it got, and 1s": func(c *cluster, l *node) uint64 { return c.must(l).Time + uint64(time.Second) },
	} {
		for _, ahead := range []time.Duration{0, time.Minute} {
			c, l := raised(t, 3, ahead)
			var tokens []uint64
			for i := range 200 {
				c.askAbove(l, isotone.ReadQuorum, isotone.Timestamp{Time: floor(c, l)}, 1)
				c.settle()
				tokens = append(tokens, c.ask64(l, isotone.ReadQuorum, 20_000))
				c.tick(1)
				if i >= 3 && l.outcome(tokens[i-3]) != "ok" {
					t.Fatalf("%s, %v ahead: request %d: %q after 3 ticks", name, ahead, i-3, l.outcome(tokens[i-3]))
				}
			}
			if ahead != 0 {
				continue
			}
			if lead := c.ceilingLead(l); lead > replica.ClientFloorAheadMax+500*time.Millisecond {
				t.Errorf("%s: the ceiling is %v ahead of the clock", name, lead)
			}
		}
	}
}

// TestU64_LeaveHalfOfTheQueueToOthers while no reservation can be committed, however many counts a request has.
func TestU64_LeaveHalfOfTheQueueToOthers(t *testing.T) {
	for _, counts := range []int{1, 10} {
		c := newCluster(t, 3, func(cfg *replica.Config) { cfg.QueueMax = 100 })
		l := c.leader()
		for _, n := range c.nodes {
			n.stalled = true
		}
		c.tick(60)
		refused := 0
		for range 80 {
			token := c.ask64(l, isotone.ReadQuorum, slices.Repeat([]uint64{1 << 18}, counts)...)
			c.settle()
			if l.outcome(token) == isotone.CodeOverloaded {
				refused++
			}
		}
		if w := l.Status().Waiting; w > 50 || refused < 20 {
			t.Errorf("%d counts each: %d wait, and %d requests are refused", counts, w, refused)
		}
		c.must(l)
		for _, n := range c.nodes {
			n.stalled = false
		}
		c.tick(60)
		if w := l.Status().Waiting; w != 0 {
			t.Errorf("%d counts each: %d still wait", counts, w)
		}
	}
}

// TestU64_WaitForAReservation: a burst that has used up the time below the ceiling waits, and the other form does not. What no
// reservation holds is refused.
func TestU64_WaitForAReservation(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	token := c.ask64(l, isotone.ReadQuorum, isotone.RangeCountMax) // 16 s of time
	c.settle()
	if got := l.outcome(token); got != isotone.CodeOverloaded {
		t.Errorf("16 s at once: %q", got)
	}
	for i := 0; l.outcome(token) != ""; i++ {
		token = c.ask64(l, isotone.ReadQuorum, isotone.Range64CountMax)
		c.settle()
		if got := l.outcome(token); i <= 50 && got != "ok" || i > 10_000 {
			t.Fatalf("millisecond %d: %q", i, got)
		}
	}
	c.must(l)
	c.tick(3)
	if got := l.outcome(token); got != "ok" {
		t.Errorf("3 ticks later: %q", got)
	}
	if lead := c.ceilingLead(l); lead > 410*time.Millisecond || l.Status().Ceiling >= oracle.CeilingMax {
		t.Errorf("the ceiling is %v ahead of the clock", lead)
	}
}

// TestLead_AnEarlyReservationIsNotLate: one that 64-bit timestamps wait for is proposed between two epochs, and may take until
// after the next one begins.
func TestLead_AnEarlyReservationIsNotLate(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.tick(100)
	before := l.Status().Counters
	for i := range 500 {
		for _, n := range c.nodes {
			n.stalled = i%3 != 2 // a write takes up to 3 ticks
		}
		for range 20 {
			c.ask64(l, isotone.ReadQuorum, isotone.Range64CountMax)
		}
		c.tick(1)
	}
	if s := l.Status().Counters; s.ReservationsFailed != before.ReservationsFailed || s.Reservations < before.Reservations+100 {
		t.Errorf("%d of %d reservations count as late", s.ReservationsFailed-before.ReservationsFailed, s.Reservations-before.Reservations)
	}
}

// TestLead_EndsBeforeAClusterClock: one waits until oracle time is hardly ahead of the clock, and no client keeps it there.
func TestLead_EndsBeforeAClusterClock(t *testing.T) {
	for name, ask := range map[string]func(c *cluster, l *node){
		"64-bit timestamps": func(c *cluster, l *node) {
			for range 12 {
				c.ask64(l, isotone.ReadQuorum, isotone.Range64CountMax)
			}
		},
		"a floor": func(c *cluster, l *node) {
			c.askAbove(l, isotone.ReadQuorum, isotone.Timestamp{Time: uint64(c.mono + replica.ClientFloorAheadMax)}, 1)
			c.askAbove(l, isotone.ReadQuorum, isotone.Timestamp{Time: uint64(c.mono + 2*time.Second)}, 1)
		},
	} {
		c := newCluster(t, 3, func(cfg *replica.Config) {
			cfg.Interval, cfg.Seed = 100*time.Millisecond, seed(0)
			cfg.Seed.State.Ceiling = uint64(time.Hour)
			cfg.Seed.Floor = uint64(time.Hour + 20*time.Second)
			cfg.QueueMax = 200 // some ticks of what is asked for
		})
		l := c.leader()
		runs := false
		for i := 0; !runs && i < 5000; i++ {
			ask(c, l)
			c.tick(1)
			_, runs = l.ClusterClock()
		}
		if !runs {
			t.Errorf("%s: no cluster clock has started, and time is %v ahead of the clock", name, c.ceilingLead(l))
		}
	}
}
