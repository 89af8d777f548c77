package replica_test

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// What random runs do find, but one in a thousand or more.

// repeatsOlderTerm reports whether a new leader issues again what the former one has issued, because a
// reservation of that one's term opens its allocator (I2). The former leader alone knew that the
// reservation was committed, and used it. The new one applies it as the first of its own term.
func repeatsOlderTerm(t *testing.T) bool {
	c := newCluster(t, 3, func(cfg *replica.Config) { cfg.EpochInterval = 0 })
	c.lead(1)
	c.tick(35)
	l := c.nodes[1]
	before := l.Status().Ceiling
	c.drop = func(m *raftpb.Message) bool { // only the entry itself and the questions of rounds arrive
		toldCommit := m.GetType() == raftpb.MsgApp && len(m.GetEntries()) == 0 || m.GetType() == raftpb.MsgHeartbeat && m.GetCommit() > 0
		return m.GetFrom() == 1 && toldCommit
	}
	c.turn(l, &replica.Input{Reserve: true})
	c.settle()
	c.mono += tick * 35 // no timer fires, as if all processes had been paused
	if got := uint64(c.mono); got < before || got >= l.Status().Ceiling {
		t.Fatalf("the time is %d, want it between the ceilings %d and %d", got, before, l.Status().Ceiling)
	}
	issued := c.must(l)
	if issued.Time < before || c.nodes[2].Status().Ceiling != before {
		t.Fatalf("%v was issued, and node 2 has the ceiling %d; want both beside %d", issued, c.nodes[2].Status().Ceiling, before)
	}
	c.highest = isotone.Timestamp{} // so that it is judged here
	c.killed(l)
	return !issued.Before(c.must(c.nodes[2]))
}

func TestReserve_AReservationOfAnEarlierTermOpensNothing(t *testing.T) {
	if repeatsOlderTerm(t) {
		t.Error("I2: a leader issued what the former one had issued")
	}
}

// grantsTwice reports whether a release that arrives late, when its client has leased the worker again,
// frees the newer lease, so that another client is granted what the first one uses (I9).
func grantsTwice(t *testing.T) bool {
	c := newIDCluster(t, nil)
	c.leasing()
	l := c.leader()
	lease := func(session uint64) (replica.LeaseAnswer, isotone.Code) {
		q := c.wants(session)
		q.Fixed = 7
		token := c.lease(l, q)
		c.settle()
		return l.leases[len(l.leases)-1], l.leaseOutcome(token)
	}
	first, _ := lease(91)
	release := replica.LeaseRequest{Session: 91, Release: &oracle.Used{Worker: first.Worker, Start: first.Start, Next: c.millis() + 1}}
	c.lease(l, release)
	c.tick(2)
	second, got := lease(91)
	if got != "ok" || second.Start <= first.Start {
		t.Fatalf("%q, %+v after %+v", got, second, first)
	}
	c.tick(2)
	c.lease(l, release)
	c.tick(2)
	other, got := lease(92)
	return got == "ok" && other.Start < second.End
}

func TestWorkers_ALateReleaseFreesNoNewerLease(t *testing.T) {
	if grantsTwice(t) {
		t.Error("I9: a worker was granted while another process uses it")
	}
}

// answersBesideSuccessor reports whether a leader that transfers its leadership goes on to answer by its
// lease while its successor answers (I5, I4). It hears nothing of the successor.
func answersBesideSuccessor(t *testing.T) bool {
	c, l := leased(t)
	c.tick(1)
	if !l.Status().Leased {
		t.Fatal("no lease")
	}
	next := c.followers(l)[0]
	c.drop = func(m *raftpb.Message) bool { return m.GetTo() == l.id }
	c.turn(l, &replica.Input{Transfer: true, TransferTo: next.id})
	c.settle()
	newer := c.must(next)
	c.highest = isotone.Timestamp{} // so that it is judged here
	token := c.askMode(l, isotone.ReadLease, 1)
	return l.outcome(token) == "ok" && l.answers[token].ranges[0].First.Before(newer)
}

func TestLease_GivesNoAnswerBesideASuccessor(t *testing.T) {
	if answersBesideSuccessor(t) {
		t.Error("I4: an answer by lease is older than that of the successor")
	}
}
