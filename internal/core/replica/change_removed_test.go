package replica_test

import (
	"strings"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// TestChange_ARemovedMemberIsToldSoByTheLeader, once the others cannot need its vote any more.
func TestChange_ARemovedMemberIsToldSoByTheLeader(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.tick(20)
	gone, left := c.followers(l)[0], c.followers(l)[1]
	if err := c.change(l, replica.Remove, gone.id, ""); err != nil {
		t.Fatal(err)
	}
	c.settle()
	wantRefusal(t, l.Admit(gone.Hello()), replica.RefusedMember)
	c.tick(20)
	wantRefusal(t, left.Admit(gone.Hello()), replica.RefusedMember)
	r := l.Admit(gone.Hello())
	if r == nil || r.Code != replica.RefusedRemoved || !strings.Contains(r.Message, "was removed from cluster") {
		t.Errorf("the leader says %v", r)
	}
	if err := gone.Refused(left.id, left.Admit(gone.Hello())); err != nil {
		t.Errorf("a follower's refusal ends it: %v", err)
	}
	if gone.Refused(l.id, r) == nil {
		t.Error("the leader's refusal does not end it")
	}
}

// expelsTooEarly reports whether a member that was replaced is told to stop while its successor
// counts its vote (liveness): of two voters the successor needs both of the old ones, until it knows
// that the change is committed.
func expelsTooEarly(t *testing.T) bool {
	c := newCluster(t, 2, nil)
	l := c.leader()
	c.tick(20)
	gone := c.followers(l)[0]
	if err := c.change(l, replica.ReplaceMember, gone.id, "peer:1"); err != nil {
		t.Fatal(err)
	}
	c.settle()
	next := c.add(oracle.MemberID(gone.id, 1), nil, nil)
	wasJoint := false
	c.drop = func(m *raftpb.Message) bool {
		wasJoint = wasJoint || l.InJoint()
		return wasJoint && !l.InJoint() && m.GetFrom() == l.id
	}
	c.greet()
	for range 500 {
		if c.tick(1); wasJoint && !l.InJoint() {
			break
		}
	}
	if l.InJoint() || !next.InJoint() {
		t.Fatalf("between the configurations: the leader %v, the new member %v", l.InJoint(), next.InJoint())
	}
	c.tick(20)
	early := l.Admit(gone.Hello()).Code == replica.RefusedRemoved
	c.drop = nil
	for range 200 {
		if c.tick(1); l.Admit(gone.Hello()) != nil && l.Admit(gone.Hello()).Code == replica.RefusedRemoved {
			return early
		}
		if next.Status().Role == raft.StateLeader && next.Admit(gone.Hello()) != nil && next.Admit(gone.Hello()).Code == replica.RefusedRemoved {
			return early
		}
	}
	t.Error("it is never told to stop")
	return early
}

func TestChange_AReplacedMemberGoesOnWhileItsVoteMayBeNeeded(t *testing.T) {
	if expelsTooEarly(t) {
		t.Error("it was told to stop too early")
	}
}

// TestChange_ALeaderThatAppliesItsRemovalGoesOn: of two voters the other one does not know that
// the change is committed, and still needs its vote.
func TestChange_ALeaderThatAppliesItsRemovalGoesOn(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.tick(20)
	gone, left := c.followers(l)[0], c.followers(l)[1]
	c.drop = func(m *raftpb.Message) bool { // only gone gets the entry, and l never learns that
		return m.GetType() == raftpb.MsgApp && m.GetTo() == left.id || m.GetType() == raftpb.MsgAppResp
	}
	if err := c.change(l, replica.Remove, gone.id, ""); err != nil {
		t.Fatal(err)
	}
	c.settle()
	l.down = true
	c.drop = nil
	for range 400 {
		if c.tick(1); len(gone.Members()) == 2 {
			break
		}
	}
	if m := gone.Members(); len(m) != 2 {
		t.Fatalf("node %d has not applied its removal: %+v", gone.id, m)
	}
	c.start(l)
	c.greet()
	c.must(c.leader(gone))
}
