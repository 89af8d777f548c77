package replica_test

import (
	"testing"
	"time"

	"github.com/isotone/isotone/internal/core/replica"
)

// TestInterval_ClocksThatWereSetAreFollowedByTheNextTerm: a cluster clock does not jump, and would take weeks to
// get there.
func TestInterval_ClocksThatWereSetAreFollowedByTheNextTerm(t *testing.T) {
	c := newIntervalCluster(t, 3)
	before := c.must(c.leader())
	for _, n := range c.nodes {
		n.skew = time.Hour
	}
	for range 600 {
		c.tick(1)
		if c.overlaps(0) {
			t.Fatal("terms overlap")
		}
	}
	after := c.must(c.leader())
	if passed := time.Duration(after.Time - before.Time); passed < time.Hour || passed > time.Hour+10*time.Second {
		t.Errorf("time has moved by %v", passed)
	}
	for _, n := range c.nodes {
		if !c.reads(n) {
			t.Errorf("node %d does not read the clock", n.id)
		}
	}
}

// TestInterval_ClocksThatWereSetBackHaveTimeHold: as without a cluster clock, so that time does not stay ahead
// for weeks. The cluster clock comes back when its time has come.
func TestInterval_ClocksThatWereSetBackHaveTimeHold(t *testing.T) {
	c := newIntervalCluster(t, 3)
	for _, n := range c.nodes {
		n.skew = -20 * time.Second
	}
	c.tick(300)
	first := c.must(c.leader())
	c.tick(300)
	l := c.leader()
	if second := c.must(l); second.Time > first.Time+uint64(time.Second) || c.reads(l) {
		t.Errorf("time goes on from %v to %v, and the clock is read: %v", first, second, c.reads(l))
	}
	c.tick(2000)
	l = c.leader()
	c.must(l)
	if !c.reads(l) {
		t.Errorf("no clock runs: %+v", l.Status().Interval)
	}
}

// TestInterval_AnswersMayTakeLong: a question counts until a limit has passed.
func TestInterval_AnswersMayTakeLong(t *testing.T) {
	c := newIntervalCluster(t, 3)
	f := c.others(c.leader())[0]
	type late struct {
		at time.Duration
		a  replica.ClockAnswer
	}
	var kept []late
	c.tell = func(from *node, a replica.ClockAnswer) bool {
		if a.Peer != f.id {
			return true
		}
		a.Peer = from.id
		kept = append(kept, late{c.mono + 20*tick, a})
		return false
	}
	good := 0
	for range 300 {
		c.tick(1)
		for len(kept) > 0 && kept[0].at <= c.mono {
			c.turn(f, &replica.Input{ClockAnswers: []replica.ClockAnswer{kept[0].a}})
			kept = kept[1:]
		}
		if c.reads(f) {
			good++
		}
	}
	if good < 250 {
		t.Errorf("it read the clock in %d of 300 ticks", good)
	}
}
