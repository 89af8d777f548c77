package replica_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// changeHarms has, for each rule by which an operator's request is refused, a function that
// makes such a request and reports whether it does harm. It must not; but it must if the rule is
// missing, as mutant_test.go checks.
var changeHarms = map[mutant.Mutant]func(*testing.T) bool{
	mutant.UnrefusedBeforeOpen:     freezesBeforeOpen,
	mutant.UnrefusedSecond:         losesSecondChange,
	mutant.UnrefusedInJoint:        staysInJoint,
	mutant.UnrefusedKind:           freezesAfterUnknownKind,
	mutant.UnrefusedZero:           endsWithMemberZero,
	mutant.UnrefusedMember:         endsWithoutVoter,
	mutant.UnrefusedRemoved:        givesRemovedIDAway,
	mutant.UnrefusedGeneration:     writesUnreadableNode,
	mutant.UnrefusedMembersMax:     outgrowsSnapshot,
	mutant.UnrefusedRemovedMax:     addsForGood,
	mutant.UnrefusedAddress:        endsWithLongAddress,
	mutant.UnrefusedLocal:          recordsUnreachable,
	mutant.UnrefusedTaken:          recordsOneAddressTwice,
	mutant.UnrefusedStranger:       replacesFormerMember,
	mutant.UnrefusedLastGeneration: beginsGenerationsAgain,
	mutant.UnrefusedReplaced:       replacesTwice,
	mutant.UnrefusedUnregistered:   admitsWipedVoter,
	mutant.UnrefusedBehind:         promotesAbsentLearner,
	mutant.UnrefusedQuorum:         removesQuorum,
	mutant.UnrefusedLeader:         removesLeader,
	mutant.UnrefusedFarFloor:       stopsTime,
	mutant.UnrefusedLastFloor:      endsTime,
	mutant.UnrefusedTransfer:       losesLease,
	mutant.UnrefusedForgotten:      forgetsRemoval,
}

func TestChange_WhatIsRefusedDoesNoHarm(t *testing.T) { wantNoHarm(t, changeHarms) }

func wantNoHarm(t *testing.T, harms map[mutant.Mutant]func(*testing.T) bool) {
	for m, harm := range harms {
		t.Run(m.String(), func(t *testing.T) {
			if harm(t) {
				t.Error("harm was done")
			}
		})
	}
}

// answers reports whether the cluster answers within 500 ticks.
func (c *cluster) answers() bool {
	for range 500 {
		for _, n := range c.running() {
			if !n.Status().Serving {
				continue
			}
			token := c.ask(n, 1)
			if c.settle(); n.outcome(token) == "ok" {
				return true
			}
		}
		c.tick(1)
	}
	return false
}

// endsBy reports whether a node panics or ends while f runs, with these words.
func (c *cluster) endsBy(words string, f func()) bool {
	c.t.Helper()
	var why any
	c.fatal = func(_ *node, err error) { why = err }
	func() {
		defer func() {
			if p := recover(); p != nil {
				why = p
			}
		}()
		f()
	}()
	if why != nil && !strings.Contains(fmt.Sprint(why), words) {
		c.t.Errorf("a node ended by %v, want %q", why, words)
	}
	return why != nil
}

// isFrozen reports whether a cluster that serves takes no change of membership any more.
func (c *cluster) isFrozen() bool {
	c.t.Helper()
	c.tick(300)
	return c.change(c.leader(), replica.AddLearner, 77, "peer77:1") != nil
}

// voters returns how many voters a node counts for one node ID.
func (n *node) voters(id uint64) (count int) {
	for _, m := range n.Members() {
		if oracle.NodeOf(m.ID) == id && !m.Learner {
			count++
		}
	}
	return count
}

// joins starts a member on an empty directory and gives it time to become a voter.
func (c *cluster) joins(id uint64) {
	c.add(id, nil, nil)
	c.greet()
	c.tick(200)
}

// canRestart reports whether a node can read its own snapshot.
func (n *node) canRestart() bool {
	_, err := oracle.DecodeState(n.disk.snap.GetData())
	return err == nil
}

// freezesBeforeOpen: Raft drops a change while a new leader has not applied all that it had when
// it was elected, and says nothing. The leader waits for the change and takes no other one.
func freezesBeforeOpen(t *testing.T) bool {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.tick(50)
	next := c.followers(l)[0]
	c.drop = func(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgAppResp } // nothing is committed
	c.turn(l, &replica.Input{Reserve: true})
	c.settle()
	c.turn(next, &replica.Input{Messages: []*raftpb.Message{{
		Type: raftpb.MsgTimeoutNow.Enum(), From: new(l.id), To: new(next.id), Term: new(next.Status().Term),
	}}})
	c.settle()
	if s := next.Status(); s.Role != raft.StateLeader || s.Serving {
		t.Fatalf("%+v, want a leader that does not serve", s)
	}
	c.change(next, replica.AddLearner, 4, "peer4:1")
	c.drop = nil
	return c.isFrozen()
}

// losesSecondChange: Raft drops it and says nothing, so that the operator waits for it in vain.
func losesSecondChange(t *testing.T) bool {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.tick(20)
	term := l.Status().Term
	c.isolate(l.id)
	if err := c.change(l, replica.AddLearner, 5, "peer5:1"); err != nil {
		t.Fatal(err)
	}
	second := c.change(l, replica.AddLearner, 6, "peer6:1")
	c.isolate()
	c.tick(50)
	if m := l.Members(); l.Status().Term != term || len(m) < 4 || m[3].ID != 5 {
		t.Fatalf("the first one is lost: %+v", m)
	}
	return second == nil && len(l.Members()) == 4
}

// staysInJoint: as in freezesBeforeOpen, but here the leader waits in the joint configuration,
// whose quorum is one of each of the two.
func staysInJoint(t *testing.T) bool {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.tick(20)
	old := c.followers(l)[0].id
	if err := c.change(l, replica.ReplaceMember, old, "peer:1"); err != nil {
		t.Fatal(err)
	}
	c.settle()
	c.add(oracle.MemberID(old, 1), nil, nil)
	c.greet()
	for range 500 {
		if l.InJoint() {
			c.change(l, replica.AddLearner, 77, "peer77:1")
			c.tick(300)
			return l.InJoint()
		}
		c.tick(1)
	}
	t.Fatal("the replacement did not become a voter")
	return false
}

// freezesAfterUnknownKind: a change without a content stands for the end of a joint
// configuration. Raft drops it as there is none.
func freezesAfterUnknownKind(t *testing.T) bool {
	c := newCluster(t, 3, nil)
	c.leader()
	c.tick(20)
	c.change(c.leader(), 99, 9, "peer9:1")
	return c.isFrozen()
}

// endsWithMemberZero: no node can decode the change, and each ends, also after a restart.
func endsWithMemberZero(t *testing.T) bool {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.tick(20)
	return c.endsBy("a member ID of 0", func() {
		c.change(l, replica.AddLearner, 0, "peer:1")
		c.tick(20)
	})
}

// endsWithoutVoter: a voter that is added as a learner votes no more, and Raft panics when there
// is no other voter.
func endsWithoutVoter(t *testing.T) bool {
	c := newCluster(t, 1, nil)
	l := c.leader()
	return c.endsBy("removed all voters", func() {
		c.change(l, replica.AddLearner, 1, "peer:1")
		c.tick(20)
	})
}

func givesRemovedIDAway(t *testing.T) bool {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.tick(20)
	gone := c.followers(l)[0]
	if err := c.change(l, replica.Remove, gone.id, ""); err != nil {
		t.Fatal(err)
	}
	c.tick(20)
	return c.givesAway(l, gone)
}

// givesAway adds the ID of a removed node again, and reports whether the removed node takes the
// place, so that the new machine, whose disk is in order, is stopped.
func (c *cluster) givesAway(l, gone *node) bool {
	if c.change(l, replica.AddLearner, gone.id, "new:1") != nil {
		return false
	}
	c.settle()
	if c.hear(l, gone) != nil {
		return false
	}
	c.tick(20)
	fresh := gone.Hello()
	fresh.Incarnation, fresh.Boot, fresh.Session, fresh.ClusterID = 4242, 1, 4242, 0
	fresh.Stage, fresh.Term, fresh.LastIndex = replica.StageJoining, 0, 0
	refusal := l.Admit(fresh)
	return refusal != nil && refusal.Code.IsFinal()
}

// writesUnreadableNode: of an ID that consists of a generation only, the snapshot cannot be read
// once the member is removed.
func writesUnreadableNode(t *testing.T) bool {
	c := newCluster(t, 1, nil)
	l := c.leader()
	id := oracle.MemberID(0, 1)
	for _, kind := range []replica.MemberChangeKind{replica.AddLearner, replica.Remove} {
		c.change(l, kind, id, "peer:1")
		c.tick(20)
	}
	return !l.canRestart()
}

func outgrowsSnapshot(t *testing.T) bool {
	c := newCluster(t, 1, nil)
	l := c.leader()
	for id := uint64(2); id <= oracle.MembersMax+1; id++ {
		c.change(l, replica.AddLearner, id, fmt.Sprintf("peer%d:1", id))
		c.settle()
	}
	c.tick(20) // until the next write, which has the snapshot
	return !l.canRestart()
}

func endsWithLongAddress(t *testing.T) bool {
	added, updated := newCluster(t, 1, nil), newCluster(t, 1, nil)
	long := strings.Repeat("a", oracle.AddrMax) + ":1"
	const words = "an address longer than its limit"
	one := added.endsBy(words, func() { added.change(added.leader(), replica.AddLearner, 2, long) })
	other := updated.endsBy(words, func() { updated.change(updated.leader(), replica.UpdateMember, 1, long) })
	if one != other {
		t.Errorf("added: %v, updated: %v", one, other)
	}
	return one
}

// replacesFormerMember: a node has two votes, so that its end costs two.
func replacesFormerMember(t *testing.T) bool {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.tick(20)
	old := c.followers(l)[0]
	if err := c.change(l, replica.ReplaceMember, old.id, "peer:1"); err != nil {
		t.Fatal(err)
	}
	c.settle()
	c.joins(oracle.MemberID(old.id, 1))
	old.down = true
	c.change(l, replica.ReplaceMember, old.id, "peer:1")
	c.settle()
	c.joins(oracle.MemberID(old.id, 2))
	return l.voters(old.id) != 1
}

// replacesTwice: as replacesFormerMember, by the second of two that replace one member.
func replacesTwice(t *testing.T) bool {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.tick(20)
	old := c.followers(l)[0]
	for range 2 {
		c.change(l, replica.ReplaceMember, old.id, "peer:1")
		c.settle()
	}
	c.joins(oracle.MemberID(old.id, 1))
	old.down = true
	c.joins(oracle.MemberID(old.id, 2))
	return l.voters(old.id) != 1
}

// beginsGenerationsAgain: a directory that was given up long ago is let in.
func beginsGenerationsAgain(t *testing.T) bool {
	last := oracle.MemberID(2, oracle.GenerationMax)
	list := members(3)
	list[1].ID = last
	c := &cluster{t: t, nodes: map[uint64]*node{}, mono: time.Hour}
	for _, m := range list {
		c.add(m.ID, list, nil)
	}
	c.greet()
	c.leadBy(t, c.nodes[1])
	for _, n := range c.running() {
		n.Spoil(func(s *oracle.State) { s.Removed = []uint64{2} })
	}
	old := c.nodes[last].Hello()
	old.NodeID, old.Incarnation = 2, 77
	wantRefusal(t, c.nodes[1].Admit(old), replica.RefusedRemoved)
	c.change(c.nodes[1], replica.ReplaceMember, last, "peer:1")
	c.settle()
	return c.nodes[1].Admit(old) == nil
}

// admitsWipedVoter: its votes count before anyone knows whose directory it has. When that is
// wiped, a voter lets it in again, and it can vote twice.
func admitsWipedVoter(t *testing.T) bool {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.tick(20)
	if err := c.change(l, replica.AddLearner, 4, "peer4:1"); err != nil {
		t.Fatal(err)
	}
	for made := l.Status().Counters.Reservations; l.Status().Counters.Reservations == made; {
		c.tick(1) // the next one, which notes what the members have on disk, is an epoch away
	}
	four := c.add(4, nil, nil) // its hello is on its way
	c.tick(4)
	if c.change(l, replica.AddVoter, 4, "") != nil {
		return false
	}
	c.settle()
	if l.voters(4) != 1 {
		t.Fatalf("not a voter: %+v", l.Members())
	}
	c.wipe(four)
	for _, f := range c.followers(l) {
		if f != four && f.Admit(four.Hello()) == nil {
			return true
		}
	}
	return false
}

// promotesAbsentLearner: of four voters one was never there, and the first failure is too many.
func promotesAbsentLearner(t *testing.T) bool {
	c := newChangeCluster(t, 3)
	l := c.leader()
	c.nodes[4].down = true
	c.tick(100)
	c.change(l, replica.AddVoter, 4, "")
	c.tick(20)
	c.followers(l)[0].down = true
	return !c.answers()
}

func removesQuorum(t *testing.T) bool {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.tick(20)
	up, gone := c.followers(l)[0], c.followers(l)[1]
	gone.down = true
	c.tick(100)
	c.change(l, replica.Remove, up.id, "")
	c.tick(20)
	return !c.answers()
}

// removesLeader: the leader says once that its removal is committed, and leads no more. If that
// is lost, the other one of two needs the vote of a machine that its operator has taken away.
func removesLeader(t *testing.T) bool {
	c := newCluster(t, 2, nil)
	l := c.leader()
	c.tick(20)
	c.drop = func(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgApp && len(m.GetEntries()) == 0 }
	c.change(l, replica.Remove, l.id, "")
	c.settle()
	c.drop = nil
	l.down = len(l.Members()) == 1
	return !c.answers()
}

func stopsTime(t *testing.T) bool {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.turn(l, &replica.Input{RaiseFloor: &replica.FloorRequest{Time: uint64(c.mono + 1000*time.Hour)}})
	c.settle()
	return c.must(l).Time > uint64(c.mono+replica.FloorAheadMax)
}

// endsTime: the next leader has no timestamp left.
func endsTime(t *testing.T) bool {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.turn(l, &replica.Input{RaiseFloor: &replica.FloorRequest{Time: oracle.CeilingMax - 2, Force: true}})
	c.settle()
	l.down = true
	return !c.answers()
}

// losesLease: for the sake of a transfer that cannot succeed a leader forgoes its lease for as
// long as it leads.
func losesLease(t *testing.T) bool {
	lost := 0
	for _, to := range []string{"leader", "learner", "silent"} {
		c, l := leased(t)
		c.addLearner(4)
		gone := c.followers(l)[0]
		gone.down = true
		c.tick(100)
		id := map[string]uint64{"leader": l.id, "learner": 4, "silent": gone.id}[to]
		c.turn(l, &replica.Input{Transfer: true, TransferTo: id})
		c.tick(100)
		c.askMode(l, isotone.ReadLease, 1)
		c.tick(2)
		if l.outcome(c.askMode(l, isotone.ReadLease, 1)) != "ok" {
			lost++
		}
	}
	if lost > 0 && lost < 3 {
		t.Errorf("%d of three transfers do harm", lost)
	}
	return lost > 0
}
