package node_test

import (
	"net"
	"strconv"
	"testing"

	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/node"
)

// A node that joins is told of the members there are then. If none of them leads any more, or their addresses are out of date, it cannot dial the leader, and the leader
// does not dial nodes with higher IDs: it makes itself known to them.
func TestJoin_FindsALeaderItWasNotToldOf(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.leader()
	list, err := c.nodes[1].Members()
	if err != nil {
		t.Fatal(err)
	}
	id, err := strconv.ParseUint(list.ClusterID, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	cfg := c.cfgs[1]
	cfg.NodeID, cfg.PeerListener, cfg.Peers, cfg.DataDir = 2, l, nil, t.TempDir()
	cfg.Join = &node.Join{ClusterID: id, Peers: map[uint64]string{1: nobody.Addr().String(), 2: l.Addr().String()}}
	c.cfgs[2] = cfg
	c.start(2)
	if err := c.nodes[1].ChangeMember(t.Context(), front.MemberChange{Action: front.AddMember, NodeID: 2, PeerAddr: l.Addr().String(), Learner: true}); err != nil {
		t.Fatal(err)
	}
	if got := c.leader(); got != 1 {
		t.Errorf("node %d leads", got)
	}
}
