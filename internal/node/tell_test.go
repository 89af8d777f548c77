package node_test

import (
	"testing"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/node"
)

// TestTell_ReachesAllOtherMembers, and not the one that tells. One that takes no reports skips them, and stays connected.
func TestTell_ReachesAllOtherMembers(t *testing.T) {
	t.Parallel()
	type told struct {
		node   uint64
		report string
	}
	heard := make(chan told, 1000)
	c := newCluster(t, 3, func(cfg *node.Config) {
		if id := cfg.NodeID; id != 3 {
			cfg.Told = func(report []byte) { heard <- told{id, string(report)} }
		}
	})
	c.leader()
	by := map[told]bool{}
	await.Until(t, "nodes 1 and 2 hear of the other two", func() bool {
		for id, n := range c.nodes {
			n.Tell([]byte{byte('0' + id)}) // again and again: not all may be connected yet
		}
		for len(heard) > 0 {
			by[<-heard] = true
		}
		return len(by) >= 4
	})
	for _, want := range []told{{1, "2"}, {1, "3"}, {2, "1"}, {2, "3"}} {
		if !by[want] {
			t.Errorf("%v is missing in %v", want, by)
		}
	}
	if r, ok := c.nodes[3].Report(); !ok || !r.Peers[0].Connected || !r.Peers[1].Connected {
		t.Errorf("the node that takes none: %+v, %v", r.Peers, ok)
	}
}
