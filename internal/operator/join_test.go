package operator_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/auth/address"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/operator"
)

// FuzzJoining: an answer that is used names the node itself, a cluster, and addresses that a record can hold.
func FuzzJoining(f *testing.F) {
	f.Add([]byte(`{"clusterID":"0000000000000007","operator.MemberID":"2","peers":{"1":"127.0.0.1:1","2":""}}`))
	f.Add([]byte(`{"clusterID":"7","operator.MemberID":"281474976710658","peers":{"281474976710658":"[::1]:60001"}}`))
	f.Add([]byte(`{"operator.MemberID":"-1","peers":{"2":7}}`))
	f.Fuzz(func(t *testing.T, answer []byte) {
		var j front.Joining
		if json.Unmarshal(answer, &j) != nil {
			return
		}
		cluster, err := operator.CheckJoining(2, &j)
		if err != nil {
			return
		}
		_, listed := j.Peers[j.MemberID]
		if cluster == 0 || oracle.NodeOf(j.MemberID) != 2 || !listed {
			t.Errorf("cluster %v: %+v", cluster, j)
		}
		for _, addr := range j.Peers {
			if len(addr) > address.SizeMax {
				t.Errorf("%d bytes of an address", len(addr))
			}
		}
	})
}

// TestCheckJoining_RefusesThePlaceOfAnother node.
func TestCheckJoining_RefusesThePlaceOfAnother(t *testing.T) {
	for _, j := range []front.Joining{
		{MemberID: 3, Peers: map[uint64]string{2: "a:1", 3: "b:1"}}, {MemberID: 2, Peers: map[uint64]string{3: "b:1"}}, {Peers: map[uint64]string{2: "a:1"}},
	} {
		j.ClusterID = "0000000000000007"
		if _, err := operator.CheckJoining(2, &j); err == nil || !strings.Contains(err.Error(), "not a member of this node") {
			t.Errorf("%+v: %v", j, err)
		}
	}
}
