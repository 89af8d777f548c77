package replica_test

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// beyond returns a floor that is d nanoseconds at or above the ceiling that n knows.
func beyond(n *node, d uint64) isotone.Timestamp {
	return isotone.Timestamp{Time: n.Status().Ceiling - 1 + d, Index: 5}
}

// TestClientFloor_IsNeverUndercut in either mode, below the ceiling and beyond it, with epochs
// of a fixed length and of one round each.
func TestClientFloor_IsNeverUndercut(t *testing.T) {
	for _, epoch := range []bool{true, false} {
		for _, mode := range []isotone.ReadMode{isotone.ReadQuorum, isotone.ReadLease} {
			c := newCluster(t, 3, func(cfg *replica.Config) {
				if !epoch {
					cfg.EpochInterval = 0
				}
			})
			l := c.leader()
			c.must(l)
			for _, d := range []uint64{0, 1, 1000, uint64(replica.ClientFloorAheadMax) / 2} {
				f := beyond(l, d)
				token := c.askAbove(l, mode, f, 3, 2)
				c.settle()
				if got := l.outcome(token); got != "ok" {
					t.Fatalf("%v, %d beyond the ceiling: %q", mode, d, got)
				}
				for _, r := range l.answers[token].ranges {
					if !f.Before(r.First) {
						t.Errorf("%v, %d beyond the ceiling: %v after %v", mode, d, r.First, f)
					}
				}
				if w := l.Status().Waiting; w != 0 {
					t.Errorf("%d requests wait", w)
				}
			}
		}
	}
}

// TestClientFloor_WaitsForOneProposalAtATime: requests with floors wait together, and the
// highest is proposed next.
func TestClientFloor_WaitsForOneProposalAtATime(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	low, high := beyond(l, 10), beyond(l, 1000)
	c.drop = func(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgApp }
	first := c.askAbove(l, isotone.ReadQuorum, low, 1)
	c.settle()
	second, third := c.askAbove(l, isotone.ReadQuorum, high, 1), c.askAbove(l, isotone.ReadQuorum, low, 2)
	c.settle()
	if n := l.Status().Counters.FloorsRaised; n != 1 {
		t.Errorf("%d proposals at once", n)
	}
	if w := l.Status().Waiting; w != 3 {
		t.Errorf("%d requests wait, want 3", w)
	}
	if token := c.ask(l, 1); true {
		if c.settle(); l.outcome(token) != "ok" {
			t.Errorf("a request without a floor: %q", l.outcome(token))
		}
	}
	c.drop = nil
	c.tick(5)
	for _, token := range []uint64{first, second, third} {
		if got := l.outcome(token); got != "ok" {
			t.Errorf("request %d: %q", token, got)
		}
	}
	if got := l.answers[second].ranges[0].First; !high.Before(got) {
		t.Errorf("%v after %v", got, high)
	}
	if n := l.Status().Counters.FloorsRaised; n != 2 {
		t.Errorf("%d proposals, want 2", n)
	}
}

// TestClientFloor_WhatWaitsForItEnds when it has waited too long, and when the leader is no
// leader any more.
func TestClientFloor_WhatWaitsForItEnds(t *testing.T) {
	c := newCluster(t, 3, func(cfg *replica.Config) { cfg.RequestTicks = 50 })
	l := c.leader()
	lost := func(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgApp }
	c.drop = lost
	token := c.askAbove(l, isotone.ReadQuorum, beyond(l, 10), 2)
	c.tick(49)
	if got := l.outcome(token); got != "" {
		t.Errorf("too early: %q", got)
	}
	c.tick(1)
	if got := l.outcome(token); got != isotone.CodeDeadlineExceeded || l.Status().Waiting != 0 {
		t.Errorf("%q, and %d wait", got, l.Status().Waiting)
	}
	token = c.askAbove(l, isotone.ReadQuorum, beyond(l, 20), 2)
	c.settle()
	c.isolate(l.id)
	next := c.leader(l)
	c.isolate()
	c.tick(2)
	if got := l.outcome(token); got != isotone.CodeNotLeader && got != isotone.CodeNoLeader || l.Status().Waiting != 0 {
		t.Errorf("%q, and %d wait", got, l.Status().Waiting)
	}
	c.must(next)
}

// TestClientFloor_HasAGuard: time goes no further ahead of the clock than that. A refusal costs
// no proposal, and later requests are served.
func TestClientFloor_HasAGuard(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.must(l)
	limit := uint64(c.mono) + uint64(replica.ClientFloorAheadMax)
	for _, time := range []uint64{limit + 1, oracle.CeilingMax - 2, oracle.CeilingMax, 1 << 63, 1<<64 - 1} {
		token := c.askAbove(l, isotone.ReadQuorum, isotone.Timestamp{Time: time}, 1)
		c.settle()
		if got := l.outcome(token); got != isotone.CodeRegressed {
			t.Errorf("%d: %q", time-uint64(c.mono), got)
		}
		token = c.askAbove(l, isotone.ReadQuorum, isotone.Timestamp{Time: time, Index: 1<<64 - 1}, 1)
		c.settle()
		if got := l.outcome(token); got != isotone.CodeRegressed {
			t.Errorf("%d, last index: %q", time-uint64(c.mono), got)
		}
	}
	if n := l.Status().Counters; n.FloorsRaised != 0 || n.FloorsRefused != 10 {
		t.Errorf("%d raised, %d refused", n.FloorsRaised, n.FloorsRefused)
	}
	token := c.askAbove(l, isotone.ReadQuorum, isotone.Timestamp{Time: limit, Index: 1<<64 - 1}, 1)
	c.settle()
	if got := l.outcome(token); got != "ok" {
		t.Errorf("at the limit: %q", got)
	}
	c.must(l)
}

// TestClientFloor_WithTheLastTimeIsRefused although the clock is as late: there is no larger
// timestamp.
func TestClientFloor_WithTheLastTimeIsRefused(t *testing.T) {
	c := newCluster(t, 1, nil)
	l := c.leader()
	l.skew = 1<<63 - 1 - c.mono - 5_000_000_000
	for _, time := range []uint64{oracle.CeilingMax, oracle.CeilingMax - 1} {
		token := c.askAbove(l, isotone.ReadQuorum, isotone.Timestamp{Time: time}, 1)
		c.settle()
		if got := l.outcome(token); got != isotone.CodeRegressed {
			t.Errorf("%d: %q", time, got)
		}
	}
	token := c.askAbove(l, isotone.ReadQuorum, isotone.Timestamp{Time: oracle.CeilingMax - 2, Index: 9}, 1)
	c.settle()
	if got := l.outcome(token); got != "ok" {
		t.Errorf("the last but two: %q", got)
	}
}

// TestClientFloor_WaitsForClocks: while too few are known, nobody can tell how far ahead a
// floor is.
func TestClientFloor_WaitsForClocks(t *testing.T) {
	c := newCluster(t, 3, func(cfg *replica.Config) { cfg.ClockJumpMax = 500_000_000 })
	l := c.leader()
	c.must(l)
	c.drop = func(m *raftpb.Message) bool { return m.Type == nil } // clock readings
	c.tick(1200)
	token := c.askAbove(l, isotone.ReadQuorum, beyond(l, 10), 1)
	c.settle()
	if got := l.outcome(token); got != isotone.CodeClock {
		t.Errorf("%q", got)
	}
	c.drop = nil
	c.tick(200)
	token = c.askAbove(l, isotone.ReadQuorum, beyond(l, 10), 1)
	c.settle()
	if got := l.outcome(token); got != "ok" {
		t.Errorf("once they are known: %q", got)
	}
}

// TestClientFloor_MovesTimeByRight: without it, a floor ahead of the clock is refused, below the ceiling and beyond it, in
// either mode. One that the cluster gave, or that the clock has passed, never is.
func TestClientFloor_MovesTimeByRight(t *testing.T) {
	if movesTimeByAnyone(t) {
		t.Error("time was moved")
	}
	c := newCluster(t, 3, nil)
	l := c.leader()
	for _, mode := range []isotone.ReadMode{isotone.ReadQuorum, isotone.ReadLease} {
		token := c.askAbove(l, mode, beyond(l, 5), 1)
		c.settle()
		if !l.answers[token].moved {
			t.Errorf("%v: the answer does not say that time was moved", mode)
		}
		own := l.answers[token].ranges[0].First
		token = c.request(l, replica.Request{Mode: mode, Floor: own, Counts: []uint64{1}})
		c.settle()
		if got := l.outcome(token); got != "ok" || l.answers[token].moved {
			t.Errorf("%v: a floor that the cluster gave: %q, moved: %v", mode, got, l.answers[token].moved)
		}
	}
	c.tick(200)
	token := c.request(l, replica.Request{Mode: isotone.ReadQuorum, Floor: isotone.Timestamp{Time: uint64(c.mono)}, Counts: []uint64{1}})
	c.settle()
	if got := l.outcome(token); got != "ok" {
		t.Errorf("a floor that the clock has passed: %q", got)
	}
}

// movesTimeByAnyone reports whether a client without the right moves time ahead.
func movesTimeByAnyone(t *testing.T) (harm bool) {
	for _, mode := range []isotone.ReadMode{isotone.ReadQuorum, isotone.ReadLease} {
		for _, ahead := range []time.Duration{time.Millisecond, time.Second} { // below the ceiling and beyond it
			c := newCluster(t, 3, nil)
			l := c.leader()
			c.must(l)
			token := c.request(l, replica.Request{Mode: mode, Floor: isotone.Timestamp{Time: uint64(c.mono + ahead)}, Counts: []uint64{1}})
			c.settle()
			harm = harm || l.outcome(token) != isotone.CodeRegressed
		}
	}
	return harm
}
