package replica_test

import (
	"testing"

	"github.com/isotone/isotone/internal/core/replica"
)

// TestLevels_AHealthyClusterIsConnected: Raft forgets who was active at every CheckQuorum, once per
// election timeout, and hears of it again a round trip later. Meanwhile Levels and checkQuorumAfter
// take all others for not connected: at 10 ms a tick and 50 ms a round trip a quarter of the time.
func TestLevels_AHealthyClusterIsConnected(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.tick(50)
	levels := 0
	const ticks = 400
	for range ticks {
		c.mono += tick
		for _, n := range c.running() {
			c.turn(n, &replica.Input{Ticks: 1})
		}
		// Answers are on their way.
		if missing := l.Levels().Missing; len(missing) > 0 {
			levels++
		}
		c.settle()
	}
	if levels > 0 {
		t.Errorf("in %d of %d ticks the leader of a healthy cluster says that members are not connected", levels, ticks)
	}
}
