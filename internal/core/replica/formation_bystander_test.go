package replica_test

import (
	"testing"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// TestFormation_AWipedFounderWithAnotherListEndsNoPreparedMember: nodes 2 and 3 know that the cluster
// is formed, node 1 was restarted and is prepared only. Node 3 is wiped and started with another
// list. To its members it is wiped; but node 1 ends itself.
func TestFormation_AWipedFounderWithAnotherListEndsNoPreparedMember(t *testing.T) {
	c := unformed(t, 3, nil)
	late := c.nodes[1]
	c.greet()
	for _, n := range c.running() {
		c.flush(n)
	}
	late.met = map[uint64]bool{}
	late.hellos = nil
	if late.Status().Forming == "" || late.disk.snap == nil {
		t.Fatal("node 1 is not prepared")
	}
	wiped := c.add(3, members(4), func(cfg *replica.Config) { cfg.Self.Incarnation = 4242 })
	refusal := late.Admit(wiped.Hello())
	if refusal == nil || refusal.Code != replica.RefusedWiped {
		t.Errorf("the wiped node is told: %v", refusal)
	}
	if err := c.ending(late); err != nil {
		t.Errorf("the prepared node has ended: %v", err)
	}
}

// TestFormation_AnIDThatMayNeverBeAClustersIsNotTold: a node that is prepared tells the cluster's ID to
// clients, which pin it for life. If the formation has to be started over, as the refusals
// advise, such a client takes every node of the real cluster for a foreign one.
func TestFormation_AnIDThatMayNeverBeAClustersIsNotTold(t *testing.T) {
	c := unformed(t, 3, nil)
	c.nodes[3].stalled = true
	c.greet()
	c.settle()
	if s := c.nodes[1].Status(); s.Forming != "" && s.ClusterID != 0 {
		t.Errorf("%s: and it says that it is of cluster %016x", s.Forming, s.ClusterID)
	}
}

// TestFormation_AnAddressMayBeSetRightDuringTheFormation: node 2 and 3 do not reach each other, as an
// address is wrong; node 1 has met both and is prepared. The operator sets node 3's address right
// and starts it again. Nothing was wiped.
func TestFormation_AnAddressMayBeSetRightDuringTheFormation(t *testing.T) {
	c := unformed(t, 3, nil)
	one, two, three := c.nodes[1], c.nodes[2], c.nodes[3]
	for _, pair := range [][2]*node{{one, two}, {two, one}, {one, three}, {three, one}} {
		if refusal := c.hear(pair[0], pair[1]); refusal != nil {
			t.Fatal(refusal)
		}
	}
	c.settle()
	three.cfg.Self.PeerAddr = "right3:1"
	three.cfg.Founders = append(members(2), oracle.Member{ID: 3, PeerAddr: "right3:1"})
	c.crash(three, false)
	for _, pair := range [][2]*node{{two, three}, {three, two}, {three, one}, {one, three}} {
		if refusal := c.hear(pair[0], pair[1]); refusal != nil {
			t.Errorf("node %d refuses node %d: %v", pair[0].id, pair[1].id, refusal)
		}
	}
	for _, n := range c.running() {
		if err := c.ending(n); err != nil {
			t.Errorf("node %d has ended: %v", n.id, err)
		}
	}
}

// TestFormation_AWipedMemberFormsNothingBesideItsCluster: node 1 of three is wiped and started with
// PEERS that name it and a new node 4 only. Nodes 2 and 3, which serve, dial it (the higher ID
// does). They are unknown to it, and it lets them judge: to them it is wiped, and it ends.
func TestFormation_AWipedMemberFormsNothingBesideItsCluster(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.leader()
	list := []oracle.Member{{ID: 1, PeerAddr: "peer1:1"}, {ID: 4, PeerAddr: "peer4:1"}}
	wiped := c.add(1, list, func(cfg *replica.Config) { cfg.Self.Incarnation += 5000; cfg.Self.VotersHash = 14 })
	for _, dialer := range []*node{c.nodes[2], c.nodes[3]} {
		if refusal := wiped.Admit(dialer.Hello()); refusal != nil { // as the acceptor
			t.Fatalf("node %d is sent away before it can judge: %v", dialer.id, refusal)
		}
		refusal := dialer.Admit(wiped.Hello())
		wantRefusal(t, refusal, replica.RefusedWiped)
		if wiped.Refused(dialer.id, refusal) == nil {
			t.Error("the wiped node goes on")
		}
	}
}

// TestFormation_APreparedMemberLearnsOfItsClusterFromALaterOne: node 1 stores so slowly that it comes
// back prepared only, and the other founders were lost and replaced meanwhile. A member of
// its own cluster says that this was formed; one of another cluster, or one that joins, does not.
func TestFormation_APreparedMemberLearnsOfItsClusterFromALaterOne(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*replica.Hello)
		forms  bool
	}{
		{"a member", func(*replica.Hello) {}, true},
		{"of another cluster", func(h *replica.Hello) { h.ClusterID++ }, false},
		{"one that joins", func(h *replica.Hello) { h.Stage = replica.StageJoining }, false},
		{"one that is prepared", func(h *replica.Hello) { h.Stage = replica.StagePrepared }, false},
	} {
		c := unformed(t, 3, nil)
		late := c.nodes[1]
		c.greet()
		for _, n := range c.running() {
			c.flush(n)
		}
		late.met, late.hellos = map[uint64]bool{}, nil
		if late.Status().Forming == "" || late.disk.snap == nil {
			t.Fatal("node 1 is not prepared")
		}
		h := late.Hello()
		h.NodeID, h.Incarnation, h.Session, h.Stage, h.LastIndex = oracle.MemberID(3, 1), 4242, 77, replica.StageFormed, 9
		tc.change(&h)
		refusal := late.Admit(h)
		if (refusal == nil) != tc.forms {
			t.Errorf("%s is told: %v", tc.name, refusal)
		}
		if refusal == nil {
			late.hellos = append(late.hellos, h)
			c.settle()
		}
		if formed := late.Status().Forming == ""; formed != tc.forms {
			t.Errorf("%s: %q", tc.name, late.Status().Forming)
		}
	}
}
