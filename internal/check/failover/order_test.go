//go:build linux

package failover_test

import (
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
)

// pause is longer than an election, so a leader that is frozen for it resumes under another
// leader.
const pause = time.Second

// TestOrder_HoldsAcrossCrashesStopsAndPauses runs one load through all faults, so that
// timestamps are compared across them (I1 to I4).
func TestOrder_HoldsAcrossCrashesStopsAndPauses(t *testing.T) {
	t.Parallel()
	c := chaos.StartCluster(t, trial.Options())
	load := chaos.StartLoad(t, chaos.LoadOptions{Addrs: c.Addrs()})
	load.WaitAnswer(t)

	steps := []struct {
		name string
		do   func()
	}{
		{"kill the leader", func() {
			leader := c.WaitLeader()
			leader.Kill()
			load.WaitAnswer(t)
			leader.Start()
		}},
		{"terminate the leader", func() {
			leader := c.WaitLeader()
			leader.Shutdown()
			load.WaitAnswer(t)
			leader.Start()
		}},
		{"freeze the leader while it is asked", func() {
			leader := c.WaitLeader()
			leader.Stop() // requests of the callers are on their way to it
			time.Sleep(time.Duration(trial.Short(2, 1)) * pause)
			load.WaitAnswer(t)
			leader.Cont()
		}},
		{"kill all", func() {
			c.Kill()
			c.Start()
		}},
		{"terminate all", func() {
			c.Shutdown()
			c.Start()
		}},
	}
	for _, step := range steps {
		began := time.Now()
		step.do()
		c.WaitReady()
		load.WaitAnswer(t)
		t.Logf("%s: all well after %v", step.name, time.Since(began).Round(time.Millisecond))
	}
	load.End(t, 1000, 0)
}

// TestOrder_HoldsWhenAFormerLeaderLeadsAgain deposes leaders without ending their processes: a
// leader that is elected again must not use any state of its former term (I2).
func TestOrder_HoldsWhenAFormerLeaderLeadsAgain(t *testing.T) {
	t.Parallel()
	t.Run("quorum", func(t *testing.T) { deposeLeaders(t, "&mode=quorum") })
	if !testing.Short() {
		t.Run("lease", func(t *testing.T) { deposeLeaders(t, "&mode=lease") })
	}
}

func deposeLeaders(t *testing.T, query string) {
	c := chaos.StartCluster(t, trial.Options())
	// A request must reach a new leader within its first epoch, but followers redirect to the
	// frozen one until they elect another. So the timeout of requests is short.
	load := chaos.StartLoad(t, chaos.LoadOptions{Addrs: c.Addrs(), Timeout: 25 * time.Millisecond, Queries: []string{query}})
	load.WaitAnswer(t)

	led := map[uint64]int{}
	again := 0
	for range trial.Short(8, 4) {
		leader := c.WaitLeader()
		led[leader.ID]++
		leader.Stop()
		load.WaitAnswer(t, leader.HTTPAddr)
		leader.Cont()
		c.WaitReady()
		next := c.WaitLeader()
		if led[next.ID] > 0 {
			again++
		}
		time.Sleep(100 * time.Millisecond) // one epoch of the new leader
	}
	t.Logf("led: %v; %d times by a former leader", led, again)
	if again == 0 {
		t.Error("no former leader led again: nothing was tested")
	}
	load.End(t, 200, 0)
}
