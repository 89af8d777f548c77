package replica_test

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// TestPeers_ARemovedMemberLeavesNothingBehind: what was on its way from a member when it was removed
// makes a new view of it, for good.
func TestPeers_ARemovedMemberLeavesNothingBehind(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.tick(50)
	before, _ := c.queue(l, "views of peers")
	for id := uint64(10); id < 15; id++ {
		c.turn(l, &replica.Input{Change: &replica.MemberChange{Kind: replica.AddLearner, Member: oracle.Member{ID: id, PeerAddr: "peer:1"}}})
		c.settle()
		c.tick(2)
		c.turn(l, &replica.Input{Change: &replica.MemberChange{Kind: replica.Remove, Member: oracle.Member{ID: id}}})
		c.settle()
		c.tick(2)
		c.turn(l, &replica.Input{Messages: []*raftpb.Message{{Type: raftpb.MsgAppResp.Enum(), From: new(id), To: new(l.id), Term: new(l.Status().Term), Index: new(uint64(1))}}})
	}
	if after, _ := c.queue(l, "views of peers"); after > before {
		t.Errorf("%d views of peers, before the first of 5 removals %d; members are %d", after, before, len(l.Members()))
	}
}
