package replica_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// recordsUnreachable: the members are on several machines, and one of them can be dialed from its own only.
func recordsUnreachable(t *testing.T) (recorded bool) {
	for kind, id := range map[replica.MemberChangeKind]uint64{replica.AddLearner: 4, replica.ReplaceMember: 3, replica.UpdateMember: 3} {
		for _, addr := range []string{"127.0.0.1:1", "localhost:1", "[::]:1"} {
			c := newCluster(t, 3, nil)
			l := c.leader()
			c.tick(20)
			err := c.change(l, kind, id, addr)
			if err != nil && (err.Code != isotone.CodeInvalidArgument || !strings.Contains(err.Message, "only the machine of node")) {
				t.Errorf("change %d: %v", kind, err)
			}
			c.settle()
			recorded = recorded || slices.ContainsFunc(l.Members(), func(m replica.Member) bool { return m.PeerAddr == addr })
		}
	}
	return recorded
}

// recordsOneAddressTwice: whoever dials one of two nodes there, or is redirected to it, gets to the other.
func recordsOneAddressTwice(t *testing.T) (twice bool) {
	for _, request := range []replica.MemberChange{
		{Kind: replica.AddLearner, Member: oracle.Member{ID: 4, PeerAddr: "peer2:1"}},
		{Kind: replica.ReplaceMember, Member: oracle.Member{ID: 3, PeerAddr: "peer2:1"}},
		{Kind: replica.UpdateMember, Member: oracle.Member{ID: 3, PeerAddr: "peer2:1"}},
		{Kind: replica.UpdateMember, Member: oracle.Member{ID: 3, ClientAddr: "client2:1"}},
	} {
		c := newCluster(t, 3, nil)
		l := c.leader()
		c.tick(20)
		if err := c.changeMember(l, request.Kind, request.Member); err != nil {
			if err.Code != isotone.CodeInvalidArgument || !strings.Contains(err.Message, "node 2 is on record at the ") {
				t.Errorf("%+v: %v", request, err)
			}
			continue
		}
		c.settle()
		peers, clients := map[string]int{}, map[string]int{}
		for _, m := range l.Members() {
			peers[m.PeerAddr]++
			clients[m.ClientAddr]++
		}
		twice = twice || peers["peer2:1"] > 1 || clients["client2:1"] > 1
	}
	return twice
}
