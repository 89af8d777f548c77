package replica_test

import (
	"testing"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// fillRemoved has every running node remember as many former nodes as it can, of IDs from 1000 on.
func (c *cluster) fillRemoved() {
	for _, n := range c.running() {
		n.Spoil(func(s *oracle.State) {
			s.Removed = nil
			for i := range uint64(oracle.RemovedMax) {
				s.Removed = append(s.Removed, 1000+i)
			}
		})
	}
}

// addsForGood: a node is added that cannot be removed.
func addsForGood(t *testing.T) bool {
	c := newCluster(t, 1, nil)
	l := c.leader()
	c.fillRemoved()
	if c.change(l, replica.AddLearner, 9, "peer9:1") != nil {
		return false
	}
	c.settle()
	return c.change(l, replica.Remove, 9, "") != nil
}

// forgetsRemoval: nobody knows any more that the node was a member. It is not told to stop.
func forgetsRemoval(t *testing.T) bool {
	c := newCluster(t, 4, nil)
	l := c.leader()
	c.tick(20)
	c.fillRemoved()
	gone := c.followers(l)[0]
	if c.change(l, replica.Remove, gone.id, "") != nil {
		return false
	}
	c.tick(20)
	return !l.tellsToStop(gone)
}

// tellsToStop reports whether a node refuses another for good as one that was removed.
func (n *node) tellsToStop(gone *node) bool {
	refusal := n.Admit(gone.Hello())
	return refusal != nil && refusal.Code == replica.RefusedRemoved
}

// replaceWhenFull has a cluster replace a node although it can remember no further former node. It returns
// the leader, the former member and the new one.
func replaceWhenFull(t *testing.T) (c *cluster, l, old, fresh *node) {
	t.Helper()
	c = newCluster(t, 3, nil)
	c.lead(1)
	c.tick(20)
	c.fillRemoved()
	l, old = c.nodes[1], c.nodes[3]
	fresh = c.replaceNext(l, old)
	return c, l, old, fresh
}

// replaceNext has the next generation of a node replace it.
func (c *cluster) replaceNext(l, old *node) *node {
	c.t.Helper()
	if err := c.change(l, replica.ReplaceMember, old.id, "peer:1"); err != nil {
		c.t.Fatal(err)
	}
	c.settle()
	old.down = true
	id := oracle.MemberID(oracle.NodeOf(old.id), oracle.GenerationOf(old.id)+1)
	c.joins(id)
	if m := l.Members(); len(m) != 3 || m[2].ID != id || m[2].Learner {
		c.t.Fatalf("%+v, want member %d as a voter", m, id)
	}
	return c.nodes[id]
}

// keepsReplacedNode: its process asks for ever, and its operator is not told.
func keepsReplacedNode(t *testing.T) bool {
	_, l, old, _ := replaceWhenFull(t)
	return !l.tellsToStop(old)
}

// TestChange_ReplacesWithoutARecordOfTheFormerMember: 4,096 former nodes are remembered. The next
// generation tells that there was one before.
func TestChange_ReplacesWithoutARecordOfTheFormerMember(t *testing.T) {
	c, l, first, second := replaceWhenFull(t)
	third := c.replaceNext(l, second)
	if got := len(l.Removed()); got != oracle.RemovedMax {
		t.Errorf("%d former nodes on record, want %d", got, oracle.RemovedMax)
	}
	for _, n := range []*node{first, second} {
		wantRefusal(t, l.Admit(n.Hello()), replica.RefusedRemoved, "was replaced")
	}
	c.tick(50)
	c.start(l) // from its snapshot
	c.greet()
	l = c.leader()
	c.tick(50)
	for _, n := range []*node{first, second} {
		wantRefusal(t, l.Admit(n.Hello()), replica.RefusedRemoved)
	}
	if err := l.Admit(third.Hello()); err != nil {
		t.Error(err)
	}
}

// TestChange_RemovesNobodyWhomItCouldNotRemember, and says what can be done.
func TestChange_RemovesNobodyWhomItCouldNotRemember(t *testing.T) {
	c, l, _, fresh := replaceWhenFull(t)
	wantWords(t, c.change(l, replica.Remove, 2, ""), "node 2 cannot be removed", "4096 former nodes", "isotone member replace 2 PEER_ADDR")
	wantWords(t, c.change(l, replica.Remove, fresh.id, ""), "node 3 cannot be removed")
	wantWords(t, c.change(l, replica.AddLearner, 9, "peer9:1"), "node 9 could not be removed again", "isotone member replace NODE_ID PEER_ADDR")
	if err := c.change(l, replica.ReplaceMember, 2, "peer2:1"); err != nil {
		t.Fatal(err)
	}
	c.settle()
	wantWords(t, c.change(l, replica.Remove, oracle.MemberID(2, 1), ""), "the replacement of node 2 cannot be given up", "start the new node at peer2:1")
	for _, n := range c.running() {
		n.Spoil(func(s *oracle.State) { s.Removed[0] = 2 }) // as if an earlier generation of it was removed
	}
	if err := c.change(l, replica.Remove, oracle.MemberID(2, 1), ""); err != nil {
		t.Errorf("with a record of its node: %v", err)
	}
}
