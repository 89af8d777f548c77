//go:build linux

package failover_test

import (
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
)

// TestForward_ClientsOfAFollowerNoticeNoFailover: a client that knows only one node, with
// FORWARD=1, and follows no redirect gets answers from it while leaders are killed. Requests
// wait for the next leader instead of failing.
func TestForward_ClientsOfAFollowerNoticeNoFailover(t *testing.T) {
	t.Parallel()
	o := trial.Options()
	o.Env = map[string]string{"FORWARD": "1", "LOOPS": "2"}
	c := chaos.StartCluster(t, o)
	for range trial.Short(6, 2) {
		c.Settle()
		leader := c.WaitLeader()
		var follower *chaos.Node
		for _, n := range c.Nodes {
			if n != leader {
				follower = n
			}
		}
		load := chaos.StartLoad(t, chaos.LoadOptions{Addrs: []string{follower.HTTPAddr}, Callers: 8, Timeout: 10 * time.Second})
		load.WaitAnswer(t)
		leader.Kill()
		load.WaitAnswer(t)
		leader.Start()
		report := load.End(t, 8, 0)
		for outcome, count := range report.Outcomes {
			if outcome != "ok" {
				t.Errorf("%d requests ended as %s", count, outcome)
			}
		}
	}
}
