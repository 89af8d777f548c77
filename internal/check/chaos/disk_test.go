//go:build linux

package chaos_test

import (
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
)

// TestDisk_FailedSyncEndsTheNode makes the disk of a follower fail, then that of the
// leader (I8). The node stops and logs why; the others go on.
func TestDisk_FailedSyncEndsTheNode(t *testing.T) {
	t.Parallel()
	c := chaos.StartCluster(t, trial.Options())
	load := chaos.StartLoad(t, chaos.LoadOptions{Addrs: c.Addrs(), Callers: 4, Pause: 2 * time.Millisecond, NodesMayFail: true})
	defer func() { load.End(t, 100, 0) }()

	for _, role := range []string{"follower", "leader"} {
		c.Settle()
		n := c.WaitLeader()
		if role == "follower" {
			n = c.Others(n)[0]
		}
		n.ExpectExit()
		chaos.FailSyncs(t, n)
		trial.WantExit(t, n, "disk failed", "must not go on", "input/output error", "isotone.db")
		load.WaitAnswer(t)
		t.Logf("the %s, node %d, has stopped", role, n.ID)
		n.Start() // the next process may try again
		c.WaitReady()
		load.WaitAnswer(t)
	}
}
