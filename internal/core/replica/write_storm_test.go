package replica_test

import (
	"math/rand/v2"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/replica"
)

// TestWrite_EveryoneCatchesUpAfterSlowDisksAndTransfers is the forgotten snapshot as it comes
// about by itself: slow disks, lost messages, transfers of leadership, frequent snapshots. In the
// end all is well, and everybody has to catch up.
func TestWrite_EveryoneCatchesUpAfterSlowDisksAndTransfers(t *testing.T) {
	for seed := range uint64(40) {
		c := newCluster(t, 3, func(cfg *replica.Config) { cfg.SnapshotEvery = 2 })
		rng := rand.New(rand.NewPCG(seed, 2))
		var cut uint64
		c.drop = func(m *raftpb.Message) bool {
			return cut != 0 && (m.GetFrom() == cut || m.GetTo() == cut) || rng.IntN(50) == 0
		}
		for range 2000 {
			n := c.nodes[1+rng.Uint64N(3)]
			switch rng.IntN(12) {
			case 0, 1, 2, 3:
				n.stalled = !n.stalled
			case 4, 5:
				c.turn(n, &replica.Input{Transfer: true})
			case 6:
				cut = rng.Uint64N(4)
			case 7:
				cut = 0
			}
			c.tick(1)
		}
		for _, n := range c.nodes {
			n.stalled = false
		}
		c.drop = nil
		c.settle()
		c.tick(200)
		c.must(c.leader())
		c.tick(200)
		l := c.leader()
		for _, n := range c.running() {
			if got, want := n.Status().Applied, l.Status().Applied; got+5 < want {
				t.Errorf("seed %d: node %d has applied %d, the leader %d", seed, n.id, got, want)
			}
		}
	}
}
