package replica_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

const (
	year = 365 * 24 * time.Hour
	// jumpMax is Config.ClockJumpMax in these tests, leadMax what reservations are ahead.
	jumpMax = 500 * time.Millisecond
	leadMax = 400 * time.Millisecond
)

// newClockCluster starts nodes that do not believe every clock, in the year 2026.
func newClockCluster(t testing.TB, size int, mutate func(*replica.Config)) *cluster {
	c := &cluster{t: t, nodes: map[uint64]*node{}, mono: 56 * year}
	for _, m := range members(size) {
		c.add(m.ID, members(size), func(cfg *replica.Config) {
			cfg.ClockJumpMax = jumpMax
			if mutate != nil {
				mutate(cfg)
			}
		})
	}
	c.greet()
	c.settle()
	c.tick(1)
	c.must(c.leader())
	return c
}

// setClock sets a node's clock wrong, but not to before 1970: a node takes that for 1970.
func (c *cluster) setClock(n *node, off time.Duration) { n.skew = max(off, -c.mono) }

// wantTrueTime expects time to be right, within what a clock may be off and reservations
// are ahead, and to go on.
func (c *cluster) wantTrueTime() {
	c.t.Helper()
	first := c.must(c.leader())
	c.tick(200) // time may have to wait, from where a leader in front of the others has left it
	last := c.must(c.leader())
	off := time.Duration(last.Time) - c.mono
	if off > jumpMax+leadMax || off < -jumpMax-200*time.Millisecond {
		c.t.Errorf("I11: time is %v off", off)
	}
	if last.Time <= first.Time {
		c.t.Errorf("I11: time stands still at %v", last)
	}
}

// wantHeldTime expects time to stand still, and the index to grow.
func (c *cluster) wantHeldTime() {
	c.t.Helper()
	first := c.must(c.leader())
	c.tick(120)
	if last := c.must(c.leader()); last.Time != first.Time || last.Index <= first.Index {
		c.t.Errorf("I11: %v after %v, want held time", last, first)
	}
}

// transferLeadership has the leader transfer its leadership, if there is another voter.
func (c *cluster) transferLeadership() {
	l := c.leader()
	c.turn(l, &replica.Input{Transfer: true})
	c.settle()
	c.must(c.leader())
}

// TestClock_NoMinorityMovesTime sets so many clocks wrong that a quorum of right ones is
// left: in every position, by every amount, while the leadership goes around.
func TestClock_NoMinorityMovesTime(t *testing.T) {
	offs := []time.Duration{time.Hour, -time.Hour, 100 * year, -100 * year}
	for _, wrong := range [][]uint64{{1}, {2}, {3}, {1, 2}, {1, 5}, {2, 4}, {3, 4}} {
		for i, off := range offs {
			size := 2*len(wrong) + 1
			t.Run(fmt.Sprintf("%v of %d by %v", wrong, size, off), func(t *testing.T) {
				c := newClockCluster(t, size, nil)
				for range size {
					for j, id := range wrong {
						c.setClock(c.nodes[id], offs[(i+3*j)%len(offs)])
					}
					for range 3 {
						c.must(c.leader())
						c.tick(1)
					}
					c.wantTrueTime()
					c.transferLeadership()
					c.wantTrueTime()
					for _, id := range wrong {
						c.setClock(c.nodes[id], 0)
					}
					c.wantTrueTime()
					c.transferLeadership()
				}
			})
		}
	}
}

// TestClock_OfTwoTheOneBehindCounts: both are needed to vouch for a time.
func TestClock_OfTwoTheOneBehindCounts(t *testing.T) {
	for _, off := range []time.Duration{time.Hour, 100 * year} {
		c := newClockCluster(t, 2, nil)
		for range 4 {
			for _, n := range c.running() {
				c.setClock(n, off)
				c.wantTrueTime()
				c.setClock(n, -off)
				c.tick(60)
				c.wantHeldTime()
				c.setClock(n, 0)
				c.wantTrueTime()
			}
			c.transferLeadership()
		}
	}
}

// TestClock_RestartsInTheWrongTime starts nodes while a minority's clocks are wrong.
func TestClock_RestartsInTheWrongTime(t *testing.T) {
	for _, off := range []time.Duration{time.Hour, -time.Hour, 100 * year, -100 * year} {
		c := newClockCluster(t, 3, nil)
		for range 3 {
			l := c.leader()
			c.setClock(l, off)
			for _, n := range c.running() {
				c.start(n)
			}
			c.greet()
			c.wantTrueTime()
			c.setClock(l, 0)
		}
	}
}

// TestClock_ABirthInTheWrongTime forms a cluster while one clock is wrong.
func TestClock_ABirthInTheWrongTime(t *testing.T) {
	for id := range uint64(3) {
		for _, off := range []time.Duration{-50 * year, 100 * year} {
			c := &cluster{t: t, nodes: map[uint64]*node{}, mono: 56 * year}
			for _, m := range members(3) {
				c.add(m.ID, members(3), func(cfg *replica.Config) { cfg.ClockJumpMax = jumpMax })
			}
			c.nodes[id+1].skew = off
			c.greet()
			c.settle()
			c.wantTrueTime()
		}
	}
}

// TestClock_ATimestampIsNeverZero: zero stands for none, also where clocks begin at 1970.
func TestClock_ATimestampIsNeverZero(t *testing.T) {
	for _, bound := range []time.Duration{0, jumpMax} {
		for _, size := range []int{1, 3} {
			c := &cluster{t: t, nodes: map[uint64]*node{}}
			for _, m := range members(size) {
				c.add(m.ID, members(size), func(cfg *replica.Config) { cfg.ClockJumpMax = bound })
			}
			c.greet()
			c.settle()
			for range 100 {
				for _, n := range c.running() {
					n.skew = -c.mono
				}
				if c.tick(1); c.nodes[1].Status().Leader == 0 {
					continue
				}
				if got := c.must(c.leader()); got.Time == 0 {
					t.Fatalf("%d nodes, bound %v: %v", size, bound, got)
				}
			}
		}
	}
}

// loseClocks keeps nodes from hearing what others' clocks show.
func (c *cluster) loseClocks() {
	c.drop = func(m *raftpb.Message) bool { return m.Type == nil }
}

// TestClock_AReadingCountsForTenSeconds lets the clocks of the others get lost. A leader
// without a quorum of clocks holds time, and index goes on.
func TestClock_AReadingCountsForTenSeconds(t *testing.T) {
	c := newClockCluster(t, 3, nil)
	l := c.leader()
	c.tick(200)
	c.loseClocks()
	ticks := 0
	for ; l.Status().Clock.Known && ticks < 2000; ticks++ {
		if c.tick(1); ticks == 500 {
			c.wantTrueTime()
			ticks += 200
		}
	}
	if ticks < 890 || ticks > 1001 {
		t.Errorf("readings of the last second counted for %v", time.Duration(ticks)*tick)
	}
	c.tick(10)
	c.wantHeldTime()
	c.setClock(l, 100*year)
	c.wantHeldTime()
	c.setClock(l, 0)
	c.transferLeadership()
	c.wantHeldTime() // of a leader that has never heard of any other clock it holds as well
	c.isolate()
	c.tick(100)
	c.wantTrueTime()
}

// TestClock_ALearnersClockDoesNotCount has two learners agree with a voter whose clock is
// wrong.
func TestClock_ALearnersClockDoesNotCount(t *testing.T) {
	c := newClockCluster(t, 2, nil)
	for _, id := range []uint64{3, 4} {
		c.turn(c.leader(), &replica.Input{Change: &replica.MemberChange{
			Kind: replica.AddLearner, Member: oracle.Member{ID: id, PeerAddr: fmt.Sprintf("peer%d:1", id)},
		}})
		c.settle()
		c.add(id, nil, func(cfg *replica.Config) { cfg.ClockJumpMax = jumpMax })
		c.greet()
		c.tick(50)
	}
	for _, id := range []uint64{1, 3, 4} {
		c.nodes[id].skew = time.Hour
	}
	for range 2 {
		c.wantTrueTime()
		c.transferLeadership()
	}
	if got := c.leader().Voters(); got != 2 {
		t.Errorf("%d voters", got)
	}
}

// TestClock_StatusSaysWhoseClockIsOff names how far the leader's clock is off the quorum's.
func TestClock_StatusSaysWhoseClockIsOff(t *testing.T) {
	c := newClockCluster(t, 3, nil)
	for _, n := range c.running() {
		for _, off := range []time.Duration{0, jumpMax - tick, -jumpMax + tick, time.Hour, -time.Hour} {
			n.skew = off
			c.tick(1)
			exceeded := off.Abs() > jumpMax
			if got := n.Status().Clock; !got.Known || got.SoleVoter || got.Exceeded != exceeded || (got.Offset-off).Abs() > tick {
				t.Errorf("node %d, %v off: %+v", n.id, off, got)
			}
		}
		n.skew = 0
	}
}

// aheadOf returns how far time is ahead of the true time, in a cluster of one.
func (c *cluster) aheadOf() time.Duration {
	c.t.Helper()
	c.tick(60)
	return time.Duration(c.must(c.leader()).Time) - c.mono
}

// TestClock_ANodeAlone follows no jump while it runs. At its start it believes a clock that is
// less than a year ahead of the last ceiling.
func TestClock_ANodeAlone(t *testing.T) {
	for name, tc := range map[string]struct {
		bound    time.Duration
		off      time.Duration
		restart  bool
		followed bool
	}{
		"an hour":                      {jumpMax, time.Hour, false, false},
		"a century":                    {jumpMax, 100 * year, false, false},
		"less than the bound":          {jumpMax, jumpMax - 2*tick, false, true},
		"an hour, restart":             {jumpMax, time.Hour, true, true},
		"365 days, restart":            {jumpMax, year, true, true},
		"367 days, restart":            {jumpMax, year + 48*time.Hour, true, false},
		"a century, restart":           {jumpMax, 100 * year, true, false},
		"a century, no bound":          {0, 100 * year, false, true},
		"a century, no bound, restart": {0, 100 * year, true, true},
	} {
		// With rare snapshots the ceiling is in the log only.
		for _, snapshotEvery := range []uint64{4, 1000} {
			c := newClockCluster(t, 1, func(cfg *replica.Config) { cfg.ClockJumpMax, cfg.SnapshotEvery = tc.bound, snapshotEvery })
			n := c.nodes[1]
			c.tick(200)
			if tc.restart {
				n.down = true
			}
			c.setClock(n, tc.off)
			if tc.restart {
				c.start(n)
			}
			want := tc.off
			if !tc.followed {
				want = 0
			}
			if got := c.aheadOf(); got < want-100*time.Millisecond || got > want+jumpMax+leadMax {
				t.Errorf("%s, snapshots every %d: time is %v ahead, want %v", name, snapshotEvery, got, want)
			}
			if s := n.Status().Clock; !s.SoleVoter || s.Exceeded == tc.followed {
				t.Errorf("%s: %+v", name, s)
			}
			c.setClock(n, 0)
			c.must(n)
			if !tc.followed {
				c.wantTrueTime()
			}
		}
	}
}

func TestClock_ANodeAloneHoldsWhenItsClockGoesBack(t *testing.T) {
	for _, off := range []time.Duration{-time.Hour, -100 * year} {
		c := newClockCluster(t, 1, nil)
		n := c.nodes[1]
		c.setClock(n, off)
		c.tick(60)
		c.wantHeldTime()
		c.start(n)
		c.tick(60)
		c.wantHeldTime()
		c.setClock(n, 0)
		c.start(n)
		c.wantTrueTime()
	}
}

// TestClock_TimeEndsWithAnError is what remained of a clock beyond the year 2262 in the first
// release: a crash at every start. Here everybody who leads says that time is over.
func TestClock_TimeEndsWithAnError(t *testing.T) {
	for _, size := range []int{1, 3} {
		c := newCluster(t, size, nil)
		l := c.leader()
		c.must(l)
		l.skew = math.MaxInt64 - c.mono
		for range 30 { // the last nanoseconds
			c.mono -= tick // the clock stands
			c.tick(1)
		}
		if got := l.Status().Ceiling; got != oracle.CeilingMax {
			t.Fatalf("the ceiling is %d", got)
		}
		c.must(l) // there is as much room in the last nanosecond as in any other
		l.skew = 0
		for round := range 3 {
			switch {
			case size == 1:
				c.start(l)
			case round == 1:
				for _, n := range c.running() {
					c.start(n)
				}
				c.greet()
			default:
				c.turn(l, &replica.Input{Transfer: true})
				c.settle()
			}
			c.until("somebody leads", func() bool { return c.overAt() != nil })
			l = c.overAt()
			for _, mode := range []isotone.ReadMode{isotone.ReadQuorum, isotone.ReadLease} {
				token := c.askMode(l, mode, 1)
				c.settle()
				if got := l.answers[token].err; got == nil || got.Code != isotone.CodeClock {
					t.Errorf("%d nodes, round %d: %v", size, round, got)
				} else {
					wantWords(t, got, "2262", "no more")
				}
			}
			for _, f := range c.followers(l) {
				if got := f.outcome(c.ask(f, 1)); got != isotone.CodeNotLeader {
					t.Errorf("a follower says %q", got)
				}
			}
			c.tick(300)
			if l.Status().Serving || c.overAt() != l {
				t.Error("it does not come to rest")
			}
		}
	}
}

// overAt returns the leader for whom time is over, or nil.
func (c *cluster) overAt() *node {
	for _, n := range c.running() {
		if n.Status().Over {
			return n
		}
	}
	return nil
}
