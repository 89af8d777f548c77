package replica_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// TestFormation_ASplitEndsBoth wipes a founder between the preparations of two others. They
// know it under different incarnations, and can never form a cluster.
func TestFormation_ASplitEndsBoth(t *testing.T) {
	for _, heardFirst := range []bool{false, true} { // before or after the second one prepares
		c := unformed(t, 3, nil)
		one, two, three := c.nodes[1], c.nodes[2], c.nodes[3]
		c.hear(two, one)
		c.hear(one, two)
		c.hear(one, three)
		if heardFirst {
			c.flush(one)
			if refusal := c.hear(two, one); refusal != nil {
				t.Fatal(refusal)
			}
		}
		c.wipe(three)
		if refusal := c.hear(two, three); refusal != nil {
			t.Fatal(refusal)
		}
		c.flush(one)
		c.flush(two)
		again := "delete all their data directories and start again"
		if !heardFirst {
			wantRefusal(t, c.hear(one, two), replica.RefusedFormed, again)
			wantRefusal(t, c.hear(two, one), replica.RefusedFormed, again)
			wantWords(t, c.ending(one), "node 2 is set up for cluster", again)
		} else if two.disk.snap != nil {
			t.Error("it prepared beside the other")
		}
		wantWords(t, c.ending(two), "is set up for cluster", again)
	}
}

// TestFormation_OneIDStandsForOneSnapshot restarts a founder between the preparations of two
// others, of another version. Under one ID they would begin with different states.
func TestFormation_OneIDStandsForOneSnapshot(t *testing.T) {
	c := unformed(t, 3, nil)
	one, two, three := c.nodes[1], c.nodes[2], c.nodes[3]
	c.hear(two, one)
	c.hear(one, two)
	c.hear(one, three)
	three.cfg.Level = oracle.LevelNewest + 1
	c.crash(three, false)
	c.hear(two, three)
	c.flush(one)
	c.flush(two)
	if bytes.Equal(one.disk.snap.GetData(), two.disk.snap.GetData()) {
		t.Fatal("both have the same on record")
	}
	if one.disk.cluster == two.disk.cluster {
		t.Errorf("I10: two snapshots with the ID %x", one.disk.cluster)
	}
	wantRefusal(t, one.Admit(two.Hello()), replica.RefusedFormed, "start again")
}

func TestFormation_OtherFoundersEndBoth(t *testing.T) {
	c := unformed(t, 3, nil)
	four := c.add(4, members(4), nil)
	two := c.add(2, members(4), nil) // in place of the one that agreed
	one := c.nodes[1]
	both := []string{"with nodes 1,2,3,4 in PEERS", "with nodes 1,2,3, and", "all initial members need the same list"}
	refusal := one.Admit(two.Hello())
	wantRefusal(t, refusal, replica.RefusedFounders, both...)
	wantWords(t, two.Refused(1, refusal), append(both, "node 2 was refused by node 1")...)
	wantWords(t, c.ending(one), both...)
	// One that is not on the list is no reason for the others to end.
	refusal = c.nodes[3].Admit(four.Hello())
	wantRefusal(t, refusal, replica.RefusedFounders, "node 4 is not in the PEERS of node 3 (1,2,3)")
	wantWords(t, four.Refused(3, refusal), "node 4 was refused by node 3")
	if err := c.ending(c.nodes[3]); err != nil {
		t.Error(err)
	}
}

// TestFormation_NeedsOneLayoutOfIDs, but not of founders that make no ids.
func TestFormation_NeedsOneLayoutOfIDs(t *testing.T) {
	c := unformed(t, 3, func(cfg *replica.Config) {
		switch idNode(cfg); cfg.Self.NodeID {
		case 2:
			cfg.Space.Epoch = 9
		case 3:
			cfg.LeaseMillis = 0
		}
	})
	one, two := c.nodes[1], c.nodes[2]
	wantRefusal(t, one.Admit(two.Hello()), replica.RefusedSettings, "node 2 makes ids of another layout (48/0/3/12@9) than node 1 (48/0/3/12@0)", "SNOWFLAKE_EPOCH_MS")
	wantRefusal(t, two.Admit(one.Hello()), replica.RefusedSettings, "SNOWFLAKE_LAYOUT")
	two.cfg.Space.Epoch = 0
	c.crash(two, false)
	c.greet()
	c.leader()
}

// TestFormation_NothingIsFormedBesideANodeAlone is found 2a of the reading of the first
// release: node 1 was started without PEERS, nodes 2 and 3 with all three.
func TestFormation_NothingIsFormedBesideANodeAlone(t *testing.T) {
	c := newCluster(t, 1, nil)
	one := c.leader()
	before := c.must(one)
	for _, id := range []uint64{2, 3} {
		n := c.add(id, members(3), func(cfg *replica.Config) { cfg.Self.VotersHash = 9 })
		refusal := one.Admit(n.Hello())
		wantRefusal(t, refusal, replica.RefusedFormed, fmt.Sprintf("node %d", id), "1,2,3", fmt.Sprintf("cluster %016x", one.Status().ClusterID), "JOIN in place of PEERS")
		wantWords(t, n.Refused(1, refusal), "JOIN", "already_formed")
	}
	c.hear(c.nodes[2], c.nodes[3])
	c.hear(c.nodes[3], c.nodes[2])
	for range 300 {
		c.tick(1)
		if c.nodes[2].disk.snap != nil || c.nodes[3].Status().Forming == "" {
			t.Fatal("a second cluster")
		}
	}
	if after := c.must(one); !before.Before(after) {
		t.Errorf("%v after %v", after, before)
	}
}

// TestFormation_NothingIsFormedByEditingPEERS is found 2b: three nodes become five with
// other PEERS, and one of the three has a new disk.
func TestFormation_NothingIsFormedByEditingPEERS(t *testing.T) {
	withHash := func(hash uint64) func(*replica.Config) {
		return func(cfg *replica.Config) { cfg.Self.VotersHash = hash }
	}
	c := newCluster(t, 3, withHash(3))
	c.must(c.leader())
	old := []*node{c.nodes[1], c.nodes[2]}
	wiped := c.add(3, members(5), func(cfg *replica.Config) { withHash(5)(cfg); cfg.Self.Incarnation = 4242 })
	four, five := c.add(4, members(5), withHash(5)), c.add(5, members(5), withHash(5))
	for _, a := range []*node{wiped, four, five} {
		for _, b := range []*node{wiped, four, five} {
			if a != b && c.hear(a, b) != nil {
				t.Errorf("node %d refuses node %d", a.id, b.id)
			}
		}
		for _, by := range old {
			refusal := by.Admit(a.Hello())
			if a == wiped { // whatever else is wrong
				wantRefusal(t, refusal, replica.RefusedWiped, "node 3", "wiped or replaced")
			} else {
				wantRefusal(t, refusal, replica.RefusedFormed, "1,2,3,4,5", "its nodes: 1,2,3", "JOIN")
			}
			wantWords(t, a.Refused(by.id, refusal), "has stopped")
		}
	}
	c.tick(300)
	for _, n := range []*node{wiped, four, five} {
		if n.disk.snap != nil || n.Status().Forming == "" {
			t.Errorf("node %d goes on: %+v", n.id, n.Status())
		}
	}
	c.must(c.leader())
}

// TestFormation_WhoeverIsWipedAtBirthIsKnown is found 3: between the first answer and the
// registration of the members a node could be wiped unnoticed.
func TestFormation_WhoeverIsWipedAtBirthIsKnown(t *testing.T) {
	c := unformed(t, 3, nil)
	rng := rand.New(rand.NewPCG(3, 3))
	formed := 0
	for steps := c.steps(); len(steps) > 0; steps = c.steps() {
		steps[rng.IntN(len(steps))]()
		for _, by := range c.running() {
			if by.Status().Forming != "" {
				continue
			}
			formed++
			for _, n := range c.running() {
				h := n.Hello()
				h.Incarnation, h.ClusterID, h.Stage, h.Founders, h.Term, h.LastIndex = 4242, 0, replica.StageGathering, "1,2,3", 0, 0
				if n != by {
					wantRefusal(t, by.Admit(h), replica.RefusedWiped, "bring the old directory back")
				}
			}
		}
	}
	if formed < 3 {
		t.Errorf("only %d nodes formed", formed)
	}
}

// TestFormation_ASlowHelloIsNotTakenForAWipedOne has a handshake that began while the node
// was gathering end when the cluster runs.
func TestFormation_ASlowHelloIsNotTakenForAWipedOne(t *testing.T) {
	c := unformed(t, 3, nil)
	slow := map[uint64][]replica.Hello{}
	for steps := c.steps(); len(steps) > 0; steps = c.steps() {
		for _, n := range c.running() {
			slow[n.id] = append(slow[n.id], n.Hello())
		}
		steps[0]()
		c.settle()
	}
	c.checkFormed()
	admitted := func() {
		t.Helper()
		for _, by := range c.running() {
			for id, hellos := range slow {
				for _, h := range hellos {
					if refusal := by.Admit(h); id != by.id && refusal != nil {
						t.Fatalf("node %d: %v", by.id, refusal)
					}
				}
			}
		}
	}
	admitted()
	c.must(c.leader())
	c.tick(50)
	admitted()
}

// TestFormation_AFounderThatComesLateEndsNoMember: one that was down ever since it was prepared
// does not know who has joined meanwhile, and learns from the new member that the cluster was formed.
func TestFormation_AFounderThatComesLateEndsNoMember(t *testing.T) {
	c := newCluster(t, 3, nil)
	late := c.nodes[1]
	late.down = true
	l := c.leader()
	c.turn(l, &replica.Input{Change: &replica.MemberChange{Kind: replica.AddLearner, Member: oracle.Member{ID: 4, PeerAddr: "peer4:1"}}})
	c.settle()
	four := c.add(4, nil, nil)
	c.greet()
	c.tick(50)
	c.start(late)
	if late.Status().Forming == "" {
		t.Fatal("it was formed")
	}
	if refusal := late.Admit(four.Hello()); refusal != nil {
		t.Errorf("a newer member is told: %v", refusal)
	}
	if err := c.ending(late); err != nil {
		t.Errorf("it was ended itself: %v", err)
	}
	c.greet()
	c.tick(50)
	if got := late.Members(); len(got) != 4 || late.Status().Leader != l.id {
		t.Errorf("it has members %+v and leader %d", got, late.Status().Leader)
	}
}
