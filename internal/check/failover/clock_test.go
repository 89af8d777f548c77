//go:build linux

package failover_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
	"github.com/isotone/isotone/internal/host/faults"
)

// hourMS is a jump that no drift explains: a wrong time zone, a battery gone flat.
const hourMS = int64(time.Hour / time.Millisecond)

func setClocks(nodes []*chaos.Node, offsetMS int64) {
	for _, n := range nodes {
		n.SetClock(faults.ClockSetting{OffsetMS: offsetMS})
	}
	time.Sleep(chaos.ClockSettle)
}

// centuryMS is how far a clock may be off that has lost its state.
const centuryMS = 100 * 365 * 24 * hourMS

// TestClock_JumpsKeepTheOrder sets clocks wrong under load, those of all nodes and
// that of the leader alone, and takes the leader away while they are wrong (I3). Time goes
// by the clocks of a quorum (I11).
func TestClock_JumpsKeepTheOrder(t *testing.T) {
	t.Parallel()
	o := trial.Options()
	o.FaultClock = true
	c := chaos.StartCluster(t, o)
	load := chaos.StartLoad(t, chaos.LoadOptions{Addrs: c.Addrs()})
	replaceLeader := func() {
		leader := c.WaitLeader()
		leader.Kill()
		load.WaitAnswer(t)
		leader.Start()
		c.Settle()
	}

	for _, off := range []int64{-hourMS, hourMS, -centuryMS, centuryMS} {
		leader := c.WaitLeader()
		setClocks([]*chaos.Node{leader}, off)
		wantTrueTime(t, c)
		replaceLeader()
		wantTrueTime(t, c)
		setClocks([]*chaos.Node{leader}, 0)
		if testing.Short() {
			break
		}
	}
	setClocks(c.Nodes, -hourMS)
	wantHeldTime(t, c)
	replaceLeader()
	wantHeldTime(t, c)
	setClocks([]*chaos.Node{c.WaitLeader()}, hourMS)
	wantHeldTime(t, c) // the others' clocks say the same
	setClocks(c.Nodes, 0)
	replaceLeader()
	wantTrueTime(t, c)
	if !testing.Short() {
		setClocks(c.Nodes, hourMS)
		deadline := time.Now().Add(chaos.ReadyTimeout) // they tell each other every second
		for time.Until(time.Unix(0, int64(trial.Highest(t, c).Time))) < 59*time.Minute {
			if time.Now().After(deadline) {
				t.Fatal("all clocks are an hour ahead, and time does not follow")
			}
		}
		setClocks(c.Nodes, 0)
		wantHeldTime(t, c) // all clocks are an hour behind the ceiling
		replaceLeader()
		wantHeldTime(t, c)
	}
	load.End(t, 1000, 0)
}

// TestClock_ANodeAloneFollowsNoJump sets the clock of a single node ahead while it runs, and
// over restarts (I11).
func TestClock_ANodeAloneFollowsNoJump(t *testing.T) {
	t.Parallel()
	o := trial.Options()
	o.Nodes, o.FaultClock = 1, true
	c := chaos.StartCluster(t, o)
	n := c.Node(1)
	setClocks(c.Nodes, hourMS)
	wantTrueTime(t, c)
	if log := n.Log(); !strings.Contains(log, "wall clock has jumped") {
		t.Errorf("its log does not say so:\n%s", log)
	}
	restart := func() {
		n.Shutdown()
		n.Start()
		// It may not be ready: with such a clock it makes no IDs.
		await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
			a, err := chaos.Get(n.HTTPAddr, "/timestamp", trial.AnswerTimeout)
			return err == nil && a.Status == 200, fmt.Sprintf("no timestamp: %v %v", a, err)
		})
	}
	setClocks(c.Nodes, centuryMS)
	wantTrueTime(t, c)
	restart() // more than a year ahead of the ceiling: not even now
	wantTrueTime(t, c)
	setClocks(c.Nodes, hourMS)
	restart() // an operator's word
	if ahead := wantMovingTime(t, c); time.Until(time.Unix(0, int64(ahead.Time))) < 59*time.Minute {
		t.Errorf("%v after a restart with a clock an hour ahead", ahead)
	}
	n.Env["CLOCK_JUMP_MAX_MS"] = "0"
	setClocks(c.Nodes, centuryMS)
	restart()
	if ahead := wantMovingTime(t, c); time.Until(time.Unix(0, int64(ahead.Time))) < 99*365*24*time.Hour {
		t.Errorf("%v with CLOCK_JUMP_MAX_MS=0 and a clock a century ahead", ahead)
	}
}

// wantTrueTime expects time to go on and to match the right clocks.
func wantTrueTime(t *testing.T, c *chaos.Cluster) {
	t.Helper()
	last := wantMovingTime(t, c)
	// The bound is half a second; reservations run ahead of a new leader by as much.
	if off := time.Until(time.Unix(0, int64(last.Time))); off.Abs() > 3*time.Second {
		t.Errorf("time is %v off", off)
	}
}

// TestClock_SetBackWhileAllAreDown starts a cluster at a time before its last one.
func TestClock_SetBackWhileAllAreDown(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a restart under a clock that was set back; left out by -short")
	}
	o := trial.Options()
	o.FaultClock = true
	c := chaos.StartCluster(t, o)
	before := trial.Highest(t, c)
	c.Shutdown()
	setClocks(c.Nodes, -hourMS)
	c.Start()
	c.WaitReady()
	if after := trial.Highest(t, c); !before.Before(after) {
		t.Errorf("%v after %v", after, before)
	}
	wantHeldTime(t, c)
}

// sampleTime is how long timestamps are watched: several epochs of 100 ms.
const sampleTime = 350 * time.Millisecond

// wantHeldTime expects time to stand still and the index to grow.
func wantHeldTime(t *testing.T, c *chaos.Cluster) {
	t.Helper()
	first, last := watchTime(t, c)
	if first.Time != last.Time {
		t.Errorf("time went on from %v to %v", first, last)
	}
	if last.Index <= first.Index {
		t.Errorf("the index did not grow: %v, %v", first, last)
	}
}

// wantMovingTime waits until time goes on, and returns the last timestamp. Time stands still until the clock has reached the floor
// of a new leader, and while a busy machine reserves late.
func wantMovingTime(t *testing.T, c *chaos.Cluster) (last isotone.Timestamp) {
	t.Helper()
	await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
		var first isotone.Timestamp
		first, last = watchTime(t, c)
		return last.Time > first.Time, fmt.Sprintf("time stands still: %v, %v", first, last)
	})
	return last
}

// watchTime returns the first and the last of the timestamps in a while that lies
// within one term: a busy machine may bring an election of its own, and time moves
// on with it.
func watchTime(t *testing.T, c *chaos.Cluster) (first, last isotone.Timestamp) {
	t.Helper()
	for range 10 {
		before := termOf(t, c)
		first = trial.Highest(t, c)
		last = first
		for end := time.Now().Add(sampleTime); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			next := trial.Highest(t, c)
			if !last.Before(next) {
				t.Fatalf("%v after %v", next, last)
			}
			last = next
		}
		if termOf(t, c) == before {
			return first, last
		}
	}
	t.Fatal("the leader changes all the time")
	return first, last
}

func termOf(t *testing.T, c *chaos.Cluster) uint64 {
	t.Helper()
	m, err := chaos.Members(c.WaitLeader().HTTPAddr, trial.AnswerTimeout)
	if err != nil {
		t.Fatal(err)
	}
	return m.Term
}
