//go:build linux

package service_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
	"github.com/isotone/isotone/internal/host/faults"
)

// twitterEpoch is the default of SNOWFLAKE_EPOCH_MS.
const twitterEpoch = 1288834974657

// millisOf returns the unix millisecond of an ID with the default layout.
func millisOf(id int64) int64 { return id>>22 + twitterEpoch }

// workerLease is a lease as in /state.
type workerLease struct {
	Worker, Datacenter int64
	Start, End         int64 `json:",string"`
}

// leases returns the leases that a node holds now. Its clock must be right.
func leases(t *testing.T, n *chaos.Node) (list []workerLease) {
	t.Helper()
	asked := time.Now()
	await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
		var state struct {
			Now     time.Time
			Workers []workerLease
		}
		a := trial.Get(t, n, "/state")
		err := json.Unmarshal(a.Body, &state)
		list = state.Workers
		return err == nil && state.Now.After(asked), fmt.Sprintf("node %d has no new state: %v; %s", n.ID, err, a.Body)
	})
	return list
}

// lease returns the one lease of a node, once it has one.
func lease(t *testing.T, n *chaos.Node) workerLease {
	t.Helper()
	waitIDs(t, n)
	list := leases(t, n)
	if len(list) != 1 {
		t.Fatalf("node %d holds %+v, want one lease", n.ID, list)
	}
	return list[0]
}

// workerOptions are a cluster whose nodes have one worker each, leased for a short time.
func workerOptions(leaseTime time.Duration) chaos.Options {
	o := trial.Options()
	o.Env = map[string]string{"SNOWFLAKE_WORKERS": "1", "SNOWFLAKE_LEASE_MS": fmt.Sprint(leaseTime.Milliseconds()), "LIVE_INTERVAL_MS": "100"}
	return o
}

// wantNotReadyBecause waits until a node is not ready for the given reason.
func wantNotReadyBecause(t *testing.T, n *chaos.Node, words string) {
	t.Helper()
	await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
		a, err := chaos.Get(n.HTTPAddr, "/ready", trial.AnswerTimeout)
		return err == nil && a.Status == 503 && strings.Contains(string(a.Body), words), fmt.Sprintf("/ready of node %d: %v, %v; want %q", n.ID, a, err, words)
	})
}

// wantNoIDs expects a node to refuse IDs with one of the codes.
func wantNoIDs(t *testing.T, n *chaos.Node, code, words string) {
	t.Helper()
	a := trial.Get(t, n, "/api/snowflake")
	if a.Status != 503 || string(a.Code()) != code || !strings.Contains(string(a.Body), words) {
		t.Errorf("node %d: /api/snowflake: %d %s, want code %s and %q", n.ID, a.Status, a.Body, code, words)
	}
}

// TestWorker_FixedIDBelongsToOneNode gives one worker ID to two nodes, and has its holder
// killed and restarted.
func TestWorker_FixedIDBelongsToOneNode(t *testing.T) {
	t.Parallel() // it waits most of the time
	const leaseTime = 4 * time.Second
	c := chaos.NewCluster(t, workerOptions(leaseTime))
	holder, second := c.Node(1), c.Node(2)
	holder.Env["WORKER_ID"], holder.Env["DATACENTER_ID"] = "7", "3"
	formWithout(c, second)
	second.Env["WORKER_ID"], second.Env["DATACENTER_ID"] = "7", "3"
	const worker = 3<<5 | 7
	ids := newIDSet()
	if l := lease(t, holder); l.Worker != worker || l.Datacenter != 3 {
		t.Errorf("node 1 holds %+v", l)
	}
	load := idLoad(t, c)
	second.Start()
	wantNotReadyBecause(t, second, "worker 103 is held by node 1 until ")
	wantNoIDs(t, second, "no_worker", "")
	trial.Timestamps(t, c.WaitLeader(), 1)
	second.Shutdown()
	delete(second.Env, "WORKER_ID")
	delete(second.Env, "DATACENTER_ID")
	second.Start()
	c.WaitReady()
	if l := lease(t, second); l.Worker == worker {
		t.Errorf("node 2 holds %+v", l)
	}

	before := lease(t, holder)
	last := someIDs(t, holder, ids)
	holder.Kill()
	holder.Start()
	after := lease(t, holder)
	first := someIDs(t, holder, ids)
	if after.Worker != worker || after.Start < before.End || first <= last {
		t.Errorf("killed with %+v and the ID %d, it goes on with %+v and %d", before, last, after, first)
	}
	if early := time.Until(time.UnixMilli(before.End)); early > 0 {
		t.Errorf("it has a lease again %v before the one that it lost has ended", early)
	}

	holder.Env["SNOWFLAKE_LEASE_MS"] = "60000" // the test does not wait for its end
	holder.Shutdown()
	holder.Start()
	before = lease(t, holder)
	last = someIDs(t, holder, ids)
	holder.Shutdown()
	holder.Start()
	after = lease(t, holder)
	first = someIDs(t, holder, ids)
	if after.Worker != worker || after.Start >= before.End || after.Start <= before.Start || first <= last {
		t.Errorf("ended with %+v and the ID %d, it goes on with %+v and %d", before, last, after, first)
	}
	for _, n := range c.Nodes {
		someIDs(t, n, ids)
	}
	wantIDs(t, load, 1000)
}

// formWithout forms the cluster, which takes all nodes, and ends one of them.
func formWithout(c *chaos.Cluster, n *chaos.Node) {
	c.Start()
	c.WaitReady()
	n.Shutdown()
}

// idLoad starts a load that requests IDs from all nodes, and some timestamps.
func idLoad(t *testing.T, c *chaos.Cluster) *chaos.Load {
	t.Helper()
	return chaos.StartLoad(t, chaos.LoadOptions{Addrs: c.Addrs(), Callers: 2, Pause: 5 * time.Millisecond})
}

// wantIDs ends a load, which has checked that no ID is repeated.
func wantIDs(t *testing.T, load *chaos.Load, idsMin int) {
	t.Helper()
	t.Logf("%d IDs", load.End(t, 10, idsMin).IDs)
}

// TestWorker_IDsNeverRepeatAfterACrashOfAll kills all nodes while they make IDs, and starts
// them again with the same time, and with an earlier one.
func TestWorker_IDsNeverRepeatAfterACrashOfAll(t *testing.T) {
	t.Parallel()         // it waits most of the time
	o := trial.Options() // as many workers as a node has by default
	o.FaultClock = true
	c := chaos.StartCluster(t, o)
	ids := newIDSet()
	for _, back := range []time.Duration{0, 2 * time.Second, time.Hour} {
		waitIDs(t, c.Nodes...)
		var wg sync.WaitGroup
		for _, n := range c.Nodes {
			wg.Go(func() { askHTTP(t, n, ids, 50) })
		}
		wg.Wait()
		c.Kill()
		for _, n := range c.Nodes {
			n.SetClock(faults.ClockSetting{OffsetMS: -back.Milliseconds()})
		}
		c.Start()
		c.WaitReady()
	}
	waitIDs(t, c.Nodes...)
	for _, n := range c.Nodes {
		askHTTP(t, n, ids, 50)
	}
	if want := 4 * 50 * idBatch * len(c.Nodes); ids.len() != want {
		t.Errorf("%d IDs, want %d", ids.len(), want)
	}
}

// TestWorker_IDsGoOnWithoutAQuorum freezes two nodes of three. The third makes IDs until
// its lease ends, and none after that.
func TestWorker_IDsGoOnWithoutAQuorum(t *testing.T) {
	t.Parallel() // it waits most of the time
	c := chaos.StartCluster(t, workerOptions(5*time.Second))
	waitIDs(t, c.Nodes...)
	ids := newIDSet()
	load := idLoad(t, c)
	n := c.Others(c.WaitLeader())[0]
	for _, other := range c.Others(n) {
		other.Stop()
	}
	stopped := time.Now()
	end := time.UnixMilli(lease(t, n).End)
	t.Logf("%v of the lease are left", end.Sub(stopped).Round(time.Millisecond))
	var last int64
	for made := 0; ; made++ {
		asked := time.Now()
		a, id, err := askIDs(t, n, ids)
		if err != nil {
			t.Fatal(err)
		}
		if a.Status != 200 {
			if a.Status != 503 || a.Code() != "no_worker" || a.Header.Get("Retry-After") == "" {
				t.Errorf("without a lease: %d %v %s", a.Status, a.Header, a.Body)
			}
			if left := time.Until(end); left > 0 || made == 0 {
				t.Errorf("refused after %d answers, %v before the end of the lease", made, left)
			}
			break
		}
		if last = id; millisOf(id) >= end.UnixMilli() {
			t.Errorf("an ID of %v, the lease ends at %v", time.UnixMilli(millisOf(id)), end)
		}
		if asked.After(end.Add(time.Second)) {
			t.Fatal("it makes IDs beyond its lease")
		}
		time.Sleep(5 * time.Millisecond)
	}
	wantNoIDs(t, n, "no_worker", "")
	for _, other := range c.Others(n) {
		other.Cont()
	}
	c.WaitReady()
	waitIDs(t, c.Nodes...)
	for _, each := range c.Nodes {
		if id := someIDs(t, each, ids); each == n && id <= last {
			t.Errorf("%d after %d", id, last)
		}
	}
	wantIDs(t, load, 1000)
}

// TestWorker_FrozenHolderMakesNothingOfItsSuccessors freezes the holder of a worker ID until
// another node has it, and sends it requests meanwhile. When it resumes, the requests are in
// its sockets while its state still says that it holds the worker.
func TestWorker_FrozenHolderMakesNothingOfItsSuccessors(t *testing.T) {
	t.Parallel() // it waits most of the time
	c := chaos.NewCluster(t, workerOptions(2*time.Second))
	holder, second := c.Node(1), c.Node(2)
	holder.Env["WORKER_ID"] = "7"
	formWithout(c, second)
	second.Env["WORKER_ID"] = "7"
	lease(t, holder)
	second.Start()
	wantNotReadyBecause(t, second, "worker 7 is held by node 1 until ")
	load := idLoad(t, c)
	ids := newIDSet()
	asked := make([]*chaos.Conn, 8)
	for i := range asked {
		var err error
		if asked[i], err = chaos.Dial(holder.HTTPAddr, trial.AnswerTimeout); err != nil {
			t.Fatal(err)
		}
		defer asked[i].Close()
		_ = asked[i].SetDeadline(time.Now().Add(chaos.ReadyTimeout))
	}

	holder.Stop()
	for _, conn := range asked {
		if err := conn.Send("/api/snowflake"); err != nil {
			t.Fatal(err)
		}
	}
	now := lease(t, second)
	if id := someIDs(t, second, ids); workerOf(id) != 7 || now.Worker != 7 {
		t.Errorf("node 2 has %+v, and makes %d", now, id)
	}
	holder.Cont()
	for _, conn := range asked {
		a, err := conn.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if id, _ := strconv.ParseInt(string(a.Body), 10, 64); a.Status == 200 && millisOf(id) >= now.Start {
			t.Errorf("I9: it resumes with %d, of a millisecond that is its successor's since %v", id, time.UnixMilli(now.Start))
		}
	}
	wantNotReadyBecause(t, holder, "worker 7 is held by node 2 until ")
	wantNoIDs(t, holder, "no_worker", "")
	someIDs(t, second, ids)
	wantIDs(t, load, 200)
}

// TestWorker_ASuccessorGetsTheFixedIDOfItsNode once the lease of the lost process has ended
// (I9).
func TestWorker_ASuccessorGetsTheFixedIDOfItsNode(t *testing.T) {
	t.Parallel() // it waits most of the time
	c := chaos.NewCluster(t, workerOptions(2*time.Second))
	n := c.Node(3)
	n.Env["WORKER_ID"] = "7"
	c.Start()
	c.WaitReady()
	ids := newIDSet()
	before := lease(t, n)
	last := someIDs(t, n, ids)
	n.Kill()
	c.LoseDisk(n)
	n.Start()
	if code, _, text := trial.Command(t, "member", "replace", fmt.Sprint(n.ID), n.RaftAddr, "--yes", "--endpoint", strings.Join(c.Addrs(), ",")); code != 0 {
		t.Fatalf("isotone member replace: exit code %d: %s", code, text)
	}
	after := lease(t, n)
	first := someIDs(t, n, ids)
	if before.Worker != 7 || after.Worker != 7 || after.Start < before.End || first <= last {
		t.Errorf("%+v with the last ID %d, and then %+v with the first ID %d", before, last, after, first)
	}
}

// TestWorker_AnotherLayoutIsRefused starts a node with a layout that is not the cluster's.
func TestWorker_AnotherLayoutIsRefused(t *testing.T) {
	t.Parallel() // it waits most of the time
	c := chaos.NewCluster(t, workerOptions(10*time.Second))
	n := c.Node(3)
	formWithout(c, n)
	waitIDs(t, c.Others(n)...)
	for name, value := range map[string]string{"SNOWFLAKE_LAYOUT": "42/10/11", "SNOWFLAKE_EPOCH_MS": "0"} {
		n.Env[name] = value
		n.Start()
		wantNotReadyBecause(t, n, "this cluster makes ids of 41/5/5/12 bits since 1288834974657 ms; another layout would repeat them")
		wantNoIDs(t, n, "no_worker", "")
		n.Shutdown()
		delete(n.Env, name)
	}
	n.Start()
	c.WaitReady()
	waitIDs(t, n)
}

// TestWorker_WrongClockMakesNoIDs sets a follower's clock wrong by more than is allowed.
func TestWorker_WrongClockMakesNoIDs(t *testing.T) {
	t.Parallel() // it waits most of the time
	o := workerOptions(10 * time.Second)
	o.FaultClock = true
	c := chaos.StartCluster(t, o)
	waitIDs(t, c.Nodes...)
	ids := newIDSet()
	n := c.Others(c.WaitLeader())[0]
	for _, test := range []struct {
		offset time.Duration
		why    string
	}{
		{-20 * time.Second, "s behind the median of its peers', at most 10 s are allowed"},
		{20 * time.Second, "s ahead of the median of its peers', at most 10 s are allowed"},
	} {
		last := someIDs(t, n, ids)
		n.SetClock(faults.ClockSetting{OffsetMS: test.offset.Milliseconds()})
		wantNotReadyBecause(t, n, test.why)
		wantNoIDs(t, n, "clock", test.why)
		trial.WantMetric(t, n, "isotone_snowflake_refused", 1)
		for _, other := range c.Others(n) {
			someIDs(t, other, ids)
			trial.WantMetric(t, other, "isotone_snowflake_refused", 0)
		}
		trial.Timestamps(t, c.WaitLeader(), 1)
		n.SetClock(faults.ClockSetting{})
		n.WaitReady(chaos.ReadyTimeout)
		waitIDs(t, n)
		trial.WantMetric(t, n, "isotone_snowflake_refused", 0)
		if id := someIDs(t, n, ids); id <= last {
			t.Errorf("%d after %d", id, last)
		}
	}
}

// TestWorker_ReadyNodeMakesIDsAfterItsClockWasAhead requests IDs all the time. A node whose
// IDs have run ahead of its clock must either use another worker or report that it is not
// ready.
func TestWorker_ReadyNodeMakesIDsAfterItsClockWasAhead(t *testing.T) {
	t.Parallel()
	o := workerOptions(10 * time.Second)
	o.FaultClock = true
	c := chaos.StartCluster(t, o)
	waitIDs(t, c.Nodes...)
	ids := newIDSet()
	n := c.Others(c.WaitLeader())[0]
	now := time.Now().UnixMilli()
	n.SetClock(faults.ClockSetting{OffsetMS: 20_000})
	ahead := false
	await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
		a, id, err := askIDs(t, n, ids)
		ahead = ahead || millisOf(id) > now+15_000
		return err == nil && a.Status == 503 && a.Code() == "clock", fmt.Sprintf("IDs are not refused: %v, %v", a, err)
	})
	if !ahead {
		t.Log("it was noticed before any ID was made at the wrong time")
	}
	wantNotReadyBecause(t, n, "s ahead of the median")
	n.SetClock(faults.ClockSetting{})
	n.WaitReady(chaos.ReadyTimeout)
	ready := time.Now() // its IDs are 20 s ahead: it must not wait until its clock is there
	waitIDs(t, n)
	if took := time.Since(ready); took > 10*time.Second {
		t.Errorf("it makes IDs only %v after becoming ready", took)
	}
}
