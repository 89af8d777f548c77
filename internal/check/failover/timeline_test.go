//go:build linux

package failover_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
)

// operate runs a command of operators until it succeeds: a leader may just be gone.
func operate(t *testing.T, c *chaos.Cluster, args ...string) {
	t.Helper()
	args = append(args, "--yes", "--endpoint", strings.Join(c.Addrs(), ","))
	await.Done(t, await.Timeout, func() (bool, string) {
		code, _, text := trial.Command(t, args...)
		return code == 0, text
	})
}

// TestClient_TimelinesGoOnWhateverNodeEnds: those of three owners, which are moved, killed and paused, as the leader is.
func TestClient_TimelinesGoOnWhateverNodeEnds(t *testing.T) {
	t.Parallel()
	o := trial.Options()
	o.Env = map[string]string{"TIMELINES": "1"}
	c := chaos.StartCluster(t, o)
	c.WaitReady()
	names := []string{"one", "two", "three"}
	for _, name := range names {
		operate(t, c, "group", "create", "of-"+name)
		operate(t, c, "timeline", "create", name, "--group", "of-"+name)
	}
	spread := func() {
		t.Helper()
		c.Settle()
		for i, name := range names {
			operate(t, c, "group", "move", "of-"+name, fmt.Sprint(i+1))
		}
	}
	spread()
	loads := []*trial.ClientLoad{trial.StartClientLoad(t, c, 8)}
	for _, name := range names {
		loads = append(loads, loads[0].StartTimeline(t, name, 8))
	}
	more := func() {
		t.Helper()
		for _, l := range loads {
			l.More(t, 50)
		}
	}
	for round := range trial.Short(3, 1) {
		more()
		owner := c.Nodes[round%3] // of one timeline, and perhaps the leader
		owner.Kill()
		more()
		owner.Start()
		spread()
		more()
		leader := c.WaitLeader()
		leader.Stop()
		more()
		leader.Cont()
		more()
		spread()
		leader = c.WaitLeader()
		leader.Kill()
		more()
		leader.Start()
		spread()
		operate(t, c, "group", "move", "of-one", fmt.Sprint(2+round%2))
		more()
	}
	for _, l := range slices.Backward(loads) {
		l.Verify(t)
	}
}
