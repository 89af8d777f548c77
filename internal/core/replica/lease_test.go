package replica_test

import (
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/replica"
)

// leased returns a cluster whose leader holds a lease.
func leased(t *testing.T) (*cluster, *node) {
	t.Helper()
	c := newCluster(t, 3, nil)
	l := c.leader()
	token := c.askMode(l, isotone.ReadLease, 1) // by a round: there is no lease yet
	if got := l.outcome(token); got != "" {
		t.Fatalf("answered %q without lease or round", got)
	}
	c.settle()
	if got := l.outcome(token); got != "ok" {
		t.Fatalf("a request in lease mode without a lease: %q, want an answer by a round", got)
	}
	return c, l
}

func TestLease_AnswersAtOnceAndEndsInTime(t *testing.T) {
	c, l := leased(t)
	c.isolate(l.id)
	until := c.mono + 57*time.Millisecond // 7 ticks of 10 ms, less 10 % on either side
	for c.mono < until {
		if got := l.outcome(c.askMode(l, isotone.ReadLease, 1)); got != "ok" {
			t.Fatalf("%v before its end the lease gave %q", until-c.mono, got)
		}
		c.mono += time.Millisecond
	}
	c.mono += time.Millisecond
	if got := l.outcome(c.askMode(l, isotone.ReadLease, 1)); got != "" {
		t.Fatalf("I5: answered %q after the lease had ended", got)
	}
}

func TestLease_IsMeasuredFromWhenItsRoundWasSent(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.askMode(l, isotone.ReadLease, 1)
	c.mono += 50 * time.Millisecond // the answers take long
	c.settle()
	if got := l.outcome(c.askMode(l, isotone.ReadLease, 1)); got != "ok" {
		t.Fatalf("50 ms after the round was sent: %q", got)
	}
	c.mono += 8 * time.Millisecond
	if got := l.outcome(c.askMode(l, isotone.ReadLease, 1)); got != "" {
		t.Fatalf("I5: answered %q 58 ms after the round was sent", got)
	}
}

func TestLease_IsKeptAliveWhileItIsWanted(t *testing.T) {
	c, l := leased(t)
	c.tick(150) // no requests for a while
	if got := l.outcome(c.askMode(l, isotone.ReadLease, 1)); got != "ok" {
		t.Fatalf("after 150 ticks: %q, want an answer by lease", got)
	}
	c.tick(400)
	if l.Status().Leased {
		t.Error("an unused lease is still kept alive after 400 ticks")
	}
}

func TestLease_IsForgoneWithATransfer(t *testing.T) {
	c, l := leased(t)
	c.isolate(l.id) // the other never hears of it
	c.turn(l, &replica.Input{Transfer: true})
	if got := l.outcome(c.askMode(l, isotone.ReadLease, 1)); got != "" {
		t.Fatalf("I5: answered %q during a transfer of leadership", got)
	}
	c.isolate()
	c.tick(19) // the transfer is given up, and the leader stays
	c.askMode(l, isotone.ReadLease, 1)
	c.settle()
	if l.Status().Serving && l.outcome(c.askMode(l, isotone.ReadLease, 1)) == "ok" {
		t.Fatal("I5: the lease came back in the term of a transfer, whose message may still be on its way")
	}
}

func TestLease_DoesNotServeQuorumRequests(t *testing.T) {
	c, l := leased(t)
	c.isolate(l.id)
	if got := l.outcome(c.ask(l, 1)); got != "" {
		t.Fatalf("I4: a request in quorum mode was answered %q without a round", got)
	}
}

func TestLease_EndsWithASuspend(t *testing.T) {
	c, l := leased(t)
	c.mono += time.Minute
	if got := l.outcome(c.askMode(l, isotone.ReadLease, 1)); got != "" {
		t.Fatalf("I5: answered %q after a minute of suspend", got)
	}
}
