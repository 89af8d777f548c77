package replica_test

import (
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// asks records whom each round asks.
func (c *cluster) asks(silent ...uint64) *[]uint64 {
	var asked []uint64
	c.drop = func(m *raftpb.Message) bool {
		if m.GetType() == raftpb.MsgHeartbeat && len(m.GetContext()) > 0 {
			asked = append(asked, m.GetTo())
		}
		return slices.Contains(silent, m.GetTo())
	}
	return &asked
}

func TestReplica_ARoundAsksAsManyVotersAsItNeeds(t *testing.T) {
	for size, want := range map[int]int{1: 0, 3: 1, 4: 2, 5: 2} {
		c := newCluster(t, size, nil)
		l := c.leader()
		c.must(l) // the first round of a term asks everyone
		asked := c.asks()
		c.must(l)
		if len(*asked) != want {
			t.Errorf("of %d voters %v were asked, want %d", size, *asked, want)
		}
	}
}

func TestReplica_RoundsInFlightAskDifferentVoters(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.must(l)
	asked := c.asks()
	c.ask(l, 1)
	c.ask(l, 1)
	if a := *asked; len(a) != 2 || a[0] == a[1] {
		t.Fatalf("two rounds asked %v", a)
	}
}

func TestReplica_ASilentVoterDelaysOneRoundByATickAndIsNotAskedAgain(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.must(l)
	asked := c.asks()
	c.must(l)
	silent := (*asked)[0]
	asked = c.asks(silent)
	token := c.ask(l, 1)
	c.settle()
	if got := l.outcome(token); got != "" || (*asked)[0] != silent {
		t.Fatalf("answered %q; asked %v, not the voter that answered last", got, *asked)
	}
	c.tick(1)
	if got := l.outcome(token); got != "ok" {
		t.Fatalf("after a tick: %q", got)
	}
	*asked = nil
	for range 5 {
		c.must(l)
	}
	if slices.Contains(*asked, silent) {
		t.Errorf("the silent voter was asked again: %v", *asked)
	}
	asked = c.asks() // it is back, and a tick tells
	c.tick(1)
	*asked = nil
	c.ask(l, 1)
	c.ask(l, 1)
	if !slices.Contains(*asked, silent) {
		t.Errorf("the voter that is back is not asked: %v", *asked)
	}
}
