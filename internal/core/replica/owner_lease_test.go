package replica_test

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/timeline"
)

// ownerLeaseTicks is how long the lease of an owner lasts.
const ownerLeaseTicks = 7

// newLeased is [newOwned] with a group whose owner may answer by a lease, and has one.
func newLeased(t *testing.T) *owned {
	o := newOwned(t, nil)
	o.does(o.leader, timeline.Command{Kind: timeline.KindLeaseOn, Group: timeline.GroupOf("orders")})
	o.tick(2)
	o.byLease(o.owner)
	o.settle()
	if !o.isLeased() {
		t.Fatal("the owner has no lease after a round")
	}
	return o
}

// byLease asks a node for a timestamp in lease mode, and returns the token.
func (o *owned) byLease(n *node) uint64 {
	return o.request(n, replica.Request{Mode: isotone.ReadLease, Timeline: "orders", Raise: true, Counts: []uint64{1}})
}

// isLeased reports whether the owner answers at once.
func (o *owned) isLeased() bool { return o.owner.outcome(o.byLease(o.owner)) == "ok" }

// deafen has the owner hear nothing of the log. It hears heartbeats: otherwise the leader would take its group.
func (o *owned) deafen() {
	o.drop = func(m *raftpb.Message) bool {
		return m.GetTo() == o.owner.id && (m.GetType() == raftpb.MsgApp || m.GetType() == raftpb.MsgSnap) && m.Type != nil
	}
}

// cutOff has the owner hear nothing at all.
func (o *owned) cutOff() {
	o.drop = func(m *raftpb.Message) bool { return m.GetFrom() == o.owner.id || m.GetTo() == o.owner.id }
}

// leaderWaits lets time go on in steps of a quarter of a tick, with ticks of the leader, until a condition holds or the time is over.
func (o *owned) leaderWaits(limit time.Duration, done func() bool) {
	for i := 1; limit > 0 && !done(); i++ {
		o.mono += tick / 4
		limit -= tick / 4
		o.turn(o.leader, &replica.Input{Ticks: 1 - min(i%4, 1)})
		o.settle()
	}
}

func TestOwnerLease_AnswersWithoutARound(t *testing.T) {
	o := newLeased(t)
	rounds := o.owner.rounds
	o.cutOff()
	for range ownerLeaseTicks {
		if !o.isLeased() {
			t.Fatal("a request within the lease is not answered")
		}
		o.mono += tick
	}
	if o.isLeased() {
		t.Error("a request after the lease is answered")
	}
	if o.owner.rounds != rounds {
		t.Errorf("%d rounds", o.owner.rounds-rounds)
	}
	o.drop = nil
	o.tick(1)
	if !o.isLeased() {
		t.Error("there is no lease after a round")
	}
	o.tick(3 * ownerLeaseTicks)
	if !o.isLeased() {
		t.Error("the lease is not renewed while requests come")
	}
	rounds = o.owner.rounds
	o.tick(300)
	idle := o.owner.rounds
	o.tick(100)
	if idle == rounds || o.owner.rounds != idle {
		t.Errorf("after requests: %d rounds and then %d", idle-rounds, o.owner.rounds-idle)
	}
}

// TestOwnerLease_NeedsTheLog: a group for which it does not allow leases has none, and requests in lease mode get a round.
func TestOwnerLease_NeedsTheLog(t *testing.T) {
	if answersUnlogged(t) {
		t.Error("T8: an owner answers by a lease that the log does not allow")
	}
}

func answersUnlogged(t *testing.T) bool {
	o := newOwned(t, nil)
	token := o.byLease(o.owner)
	o.settle()
	if got := o.owner.outcome(token); got != "ok" {
		t.Fatalf("with a round: %q", got)
	}
	return o.isLeased()
}

// TestOwnerLease_TheWaitBeginsWithTheGrant: who asks for the first time after it is answered at once.
func TestOwnerLease_TheWaitBeginsWithTheGrant(t *testing.T) {
	o := newLeased(t)
	o.grant(o.third)
	o.tick(20)
	token := o.on(o.third, "orders", isotone.Timestamp{}, 1)
	o.settle()
	if got := o.third.outcome(token); got != "ok" {
		t.Errorf("20 ticks after the grant: %q", got)
	}
}

// TestOwnerLease_NobodyAnswersBeforeItHasEnded whom the log makes the owner, or acknowledges what it does not know of.
func TestOwnerLease_NobodyAnswersBeforeItHasEnded(t *testing.T) {
	for name, harms := range map[string]func(*testing.T) bool{
		"a new owner answers":                        answersUnderLease,
		"a new owner answers, whose clock is fast":   answersUnderLeaseOfASlowClock,
		"a floor is acknowledged":                    acknowledgesFloorUnderLease,
		"a lease counts from when it was confirmed":  leaseFromAnswer,
		"an owner that has not applied a grant":      leaseOverTouched,
		"a group is moved once the lease is ended":   movesUnderLease,
		"an owner goes on by a lease that is ending": answersAfterTheEnd,
		"an owner does not hear of the end":          extendsAfterTheEnd,
	} {
		if harms(t) {
			t.Errorf("T8: %s", name)
		}
	}
}

// answersUnderLease reports whether a new owner answers while the former one, which is cut off, may do so by its lease.
func answersUnderLease(t *testing.T) bool {
	o := newLeased(t)
	o.cutOff()
	o.grant(o.leader)
	token := o.on(o.leader, "orders", isotone.Timestamp{}, 1)
	o.settle()
	o.leaderWaits(100*tick, func() bool { return o.leader.outcome(token) != "" })
	if got := o.leader.outcome(token); got != "ok" {
		t.Fatalf("the new owner: %q", got)
	}
	return o.isLeased()
}

// answersUnderLeaseOfASlowClock is the same for a former owner whose clock is slow by as much as it may, while that of the new one is fast.
func answersUnderLeaseOfASlowClock(t *testing.T) bool {
	o := newLeased(t)
	granted := o.mono
	o.cutOff()
	o.grant(o.leader)
	token := o.on(o.leader, "orders", isotone.Timestamp{}, 1)
	o.settle()
	o.leaderWaits(100*tick, func() bool { return o.leader.outcome(token) != "" })
	waited := o.mono - granted
	o.mono = granted + waited*90/110
	return o.isLeased()
}

// acknowledgesFloorUnderLease reports whether a former owner, which is cut off, issues below a floor that is acknowledged.
func acknowledgesFloorUnderLease(t *testing.T) bool {
	o := newLeased(t)
	o.cutOff()
	token := o.alterBy(o.leader, replica.TimelineRequest{Command: timeline.Command{Kind: timeline.KindFloor, Name: "orders", Time: uint64(o.mono + time.Second)}})
	o.settle()
	o.leaderWaits(100*tick, func() bool { _, code := o.leader.changed(token); return code != "" })
	if refused, code := o.leader.changed(token); code != "ok" || refused != timeline.Done {
		t.Fatalf("the floor: %v, %q", refused, code)
	}
	return o.isLeased()
}

// leaseFromAnswer reports whether a lease lasts longer for a round that took long.
func leaseFromAnswer(t *testing.T) bool {
	o := newLeased(t)
	o.tick(300) // idle
	o.byLease(o.owner)
	began := o.mono
	o.mono += 5 * tick // while the answers of the voters are on their way
	o.settle()
	o.cutOff()
	o.mono = began + ownerLeaseTicks*tick
	return o.isLeased()
}

// leaseOverTouched reports whether an owner has a lease of a round in which it heard of a grant that it has not applied.
func leaseOverTouched(t *testing.T) bool {
	o := newLeased(t)
	o.deafen()
	o.grant(o.leader)
	token := o.on(o.leader, "orders", isotone.Timestamp{}, 1)
	o.settle()
	o.leaderWaits(ownerLeaseTicks*tick, func() bool { return false })
	o.byLease(o.owner) // after its lease, so it begins a round
	o.settle()
	o.leaderWaits(100*tick, func() bool { return o.leader.outcome(token) != "" })
	if got := o.leader.outcome(token); got != "ok" {
		t.Fatalf("the new owner: %q", got)
	}
	return o.isLeased()
}

// movesUnderLease reports whether a timeline gets another owner, which answers without a wait, while the former one may answer by its lease.
func movesUnderLease(t *testing.T) bool {
	o := newLeased(t)
	o.does(o.leader, timeline.Command{Kind: timeline.KindMake, Group: "eu"})
	o.tick(2)
	o.byLease(o.owner)
	o.settle()
	o.cutOff()
	end := o.alter(o.leader, timeline.Command{Kind: timeline.KindLeaseEnd, Group: timeline.GroupOf("orders")})
	o.leaderWaits(100*tick, func() bool {
		move := o.alter(o.leader, timeline.Command{Kind: timeline.KindMove, Name: "orders", Group: "eu"})
		o.settle()
		refused, code := o.leader.changed(move)
		return code == "ok" && refused == timeline.Done
	})
	token := o.on(o.leader, "orders", isotone.Timestamp{}, 1)
	o.settle()
	o.leaderWaits(2*tick, func() bool { return o.leader.outcome(token) != "" })
	if got := o.leader.outcome(token); got != "ok" {
		t.Fatalf("the new owner: %q", got)
	}
	if refused, code := o.leader.changed(end); !o.isLeased() && (code != "ok" || refused != timeline.Done) {
		t.Fatalf("the end of the lease: %v, %q", refused, code)
	}
	return o.isLeased()
}

// answersAfterTheEnd reports whether an owner goes on by a lease that it knows to be ending.
func answersAfterTheEnd(t *testing.T) bool {
	o := newLeased(t)
	o.alter(o.leader, timeline.Command{Kind: timeline.KindLeaseEnd, Group: timeline.GroupOf("orders")})
	o.settle()
	o.turn(o.leader, &replica.Input{Ticks: 1}) // followers learn that it is committed
	o.settle()
	return o.isLeased()
}

// extendsAfterTheEnd reports whether rounds extend the lease of an owner to which the end of it is not sent.
func extendsAfterTheEnd(t *testing.T) bool {
	o := newLeased(t)
	o.deafen()
	token := o.alter(o.leader, timeline.Command{Kind: timeline.KindLeaseEnd, Group: timeline.GroupOf("orders")})
	o.settle()
	for range 20 {
		o.byLease(o.owner)
		o.leaderWaits(tick, func() bool { return false })
		o.turn(o.owner, &replica.Input{Ticks: 1})
		o.settle()
	}
	if _, code := o.leader.changed(token); code != "ok" {
		t.Fatalf("the end of the lease: %q", code)
	}
	return o.isLeased()
}

// TestOwnerLease_ANewLeaderEndsWhatIsEnding: the leader that was told to end a lease is gone before it has ended.
func TestOwnerLease_ANewLeaderEndsWhatIsEnding(t *testing.T) {
	o := newLeased(t)
	token := o.alter(o.leader, timeline.Command{Kind: timeline.KindLeaseEnd, Group: timeline.GroupOf("orders")})
	o.settle()
	o.tick(2)
	if _, code := o.leader.changed(token); code != "" {
		t.Fatalf("the end is acknowledged at once: %q", code)
	}
	o.leader.down = true
	next := o.cluster.leader(o.leader)
	o.tick(20)
	if g, _ := next.Timelines().Group(timeline.GroupOf("orders")); g.Lease != 0 || g.Ending {
		t.Errorf("the group: %+v", g)
	}
	o.does(next, timeline.Command{Kind: timeline.KindDelete, Name: "orders"})
}

// TestOwnerLease_AnAcknowledgementThatWaitsFailsWithTheLeadership, as its outcome is not known to the next one.
func TestOwnerLease_AnAcknowledgementThatWaitsFailsWithTheLeadership(t *testing.T) {
	o := newLeased(t)
	token := o.alter(o.leader, timeline.Command{Kind: timeline.KindLeaseEnd, Group: timeline.GroupOf("orders")})
	o.settle()
	o.isolate(o.leader.id)
	for range 100 {
		if _, code := o.leader.changed(token); code != "" {
			break
		}
		o.turn(o.leader, &replica.Input{Ticks: 1})
	}
	if _, code := o.leader.changed(token); code != "no_leader" && code != "not_leader" {
		t.Errorf("%q", code)
	}
}

// TestOwnerLease_EndsAreForgotten (I7), also those of groups that are dropped meanwhile.
func TestOwnerLease_EndsAreForgotten(t *testing.T) {
	o := newOwned(t, nil)
	for _, waits := range []bool{true, false} {
		o.does(o.leader, timeline.Command{Kind: timeline.KindMake, Group: "eu"})
		o.does(o.leader, timeline.Command{Kind: timeline.KindLeaseOn, Group: "eu"})
		o.alter(o.leader, timeline.Command{Kind: timeline.KindLeaseEnd, Group: "eu"})
		o.settle()
		if o.leader.Endings() != 1 {
			t.Fatal("no lease is ending")
		}
		if waits {
			o.tick(20)
		}
		o.does(o.leader, timeline.Command{Kind: timeline.KindDrop, Group: "eu"})
		o.tick(20)
		if n := o.leader.Endings(); n != 0 {
			t.Errorf("%d leases have ended and are remembered", n)
		}
	}
}

// TestOwnerLease_TheEndIsNotAcknowledgedBeforeTheLogHasIt: what the caller asks for next would be refused.
func TestOwnerLease_TheEndIsNotAcknowledgedBeforeTheLogHasIt(t *testing.T) {
	o := newLeased(t)
	token := o.alter(o.leader, timeline.Command{Kind: timeline.KindLeaseEnd, Group: timeline.GroupOf("orders")})
	o.settle()
	o.tick(2)
	o.drop = func(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgTimeoutNow } // while it resigns it proposes nothing
	o.turn(o.leader, &replica.Input{Transfer: true})
	for range 100 {
		o.leaderTicks(1)
		if _, code := o.leader.changed(token); code != "" {
			break
		}
	}
	g, _ := o.leader.Timelines().Group(timeline.GroupOf("orders"))
	if refused, code := o.leader.changed(token); code != "ok" || refused != timeline.Done || g.Lease != 0 {
		t.Errorf("the end of the lease: %v, %q, and the group is %+v", refused, code, g)
	}
}
