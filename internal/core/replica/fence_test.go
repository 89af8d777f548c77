package replica_test

import (
	"fmt"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/replica"
)

// TestFence_OfEntriesThatAreCutOff does not stop timelines: the index may be one that the log does not reach for long.
func TestFence_OfEntriesThatAreCutOff(t *testing.T) {
	o := newOwned(t, nil)
	old := o.leader
	o.isolate(old.id)
	for i := range 100 {
		o.alter(old, creates(fmt.Sprint("lost", i)))
	}
	o.settle()
	next := o.cluster.leader(old)
	o.drop = nil
	o.tick(5)
	o.turn(next, &replica.Input{Transfer: true, TransferTo: old.id})
	o.settle()
	if !old.Status().Serving {
		t.Fatal("the former leader does not lead again")
	}
	o.tick(5)
	o.third.down = true
	token := o.on(o.owner, "orders", isotone.Timestamp{}, 1)
	o.settle()
	o.leaderTicks(5)
	o.turn(o.owner, &replica.Input{Ticks: 1})
	o.settle()
	if got := o.owner.outcome(token); got != "ok" {
		t.Errorf("an owner that needs its answer: %q", got)
	}
	o.third.down = false
	o.grant(old)
	token = o.on(old, "orders", isotone.Timestamp{}, 1)
	o.settle()
	o.tick(20)
	if got := old.outcome(token); got != "ok" {
		t.Errorf("of its own timelines: %q", got)
	}
}

// TestFence_ThatRisesWithEachTick does not stop an owner whose disk is slow: an answer that a voter gave before still counts.
func TestFence_ThatRisesWithEachTick(t *testing.T) {
	o := newOwned(t, nil)
	o.owner.stalled = true
	var token uint64
	for i := range 20 {
		o.does(o.leader, creates(fmt.Sprint("another", i)))
		if i == 5 {
			token = o.on(o.owner, "orders", isotone.Timestamp{}, 1)
			o.settle()
		}
		o.tick(1)
		if w := o.owner.flying; w != nil {
			o.owner.disk.save(w)
			o.owner.flying = nil
			o.turn(o.owner, &replica.Input{Persisted: w})
			o.settle()
		}
	}
	if got := o.owner.outcome(token); got != "ok" {
		t.Errorf("%q, and the owner has applied %d, the leader %d", got, o.owner.Status().Applied, o.leader.Status().Applied)
	}
}
