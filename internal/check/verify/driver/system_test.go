//go:build linux

package driver_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/child"
	"github.com/isotone/isotone/internal/check/cluster"
	"github.com/isotone/isotone/internal/check/ports"
	"github.com/isotone/isotone/internal/check/trial"
	"github.com/isotone/isotone/internal/check/verify/driver"
)

// asDriver has this binary be the driver of the system that it names.
const asDriver = "ISOTONE_TEST_DRIVER"

func TestMain(m *testing.M) {
	name := os.Getenv(asDriver)
	if name == "" {
		os.Exit(trial.Main(m))
	}
	var system driver.System = &counting{}
	var err error
	if name != "counting" {
		system, err = driver.New(name)
	}
	if err == nil {
		err = driver.Serve(os.Stdin, os.Stdout, system)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var self = os.Args[0]

// start starts a driver of a system of this program.
func start(t *testing.T, system string) *driver.Process {
	t.Helper()
	return startCommand(t, system, "env", asDriver+"="+system, self)
}

func startCommand(t *testing.T, name string, command ...string) *driver.Process {
	t.Helper()
	p, err := driver.Start(name, filepath.Join(t.TempDir(), "log"), command)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// running is a system whose nodes run, and its driver.
type running struct {
	t     *testing.T
	p     *driver.Process
	hello driver.Hello
	nodes []*child.Process
	plan  driver.Plan
	dir   string
}

// run starts a cluster as a driver plans it, and waits until its nodes are ready.
func run(t *testing.T, p *driver.Process, nodes int, options map[string]string) *running {
	t.Helper()
	ctx := t.Context()
	r := &running{t: t, p: p, dir: t.TempDir()}
	var err error
	if r.hello, err = p.Hello(ctx, options); err != nil {
		t.Fatal(err)
	}
	where := driver.PlanRequest{Dir: filepath.Join(r.dir, "data")}
	if err := os.Mkdir(where.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for range nodes {
		first, err := ports.Free(r.hello.Ports)
		if err != nil {
			t.Fatal(err)
		}
		spot := driver.NodeSpot{Host: "127.0.0.1"}
		for i := range r.hello.Ports {
			spot.Ports = append(spot.Ports, first+i)
		}
		where.Nodes = append(where.Nodes, spot)
	}
	if r.plan, err = p.Plan(ctx, where, options); err != nil {
		t.Fatal(err)
	}
	for _, c := range r.plan.Prepare {
		cmd := exec.CommandContext(ctx, c.Command[0], c.Command[1:]...)
		cmd.Env, cmd.Dir = append(cluster.Inherited(), c.Env...), c.Dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", c.Command, err, out)
		}
	}
	r.nodes = make([]*child.Process, nodes)
	var addresses []string
	for i, n := range r.plan.Nodes {
		addresses = append(addresses, n.Address)
		r.start(i)
	}
	if err := p.Connect(ctx, addresses, options); err != nil {
		t.Fatal(err)
	}
	for i := range nodes {
		r.waitReady(i)
	}
	return r
}

func (r *running) start(node int) {
	r.t.Helper()
	n := r.plan.Nodes[node]
	name := fmt.Sprintf("node %d", node)
	p, err := child.Run(name, filepath.Join(r.dir, name), append(cluster.Inherited(), n.Env...), n.Command.Command)
	if err != nil {
		r.t.Fatal(err)
	}
	r.nodes[node] = p
	r.t.Cleanup(func() { r.end(node, os.Kill) })
}

// end ends a node by a signal.
func (r *running) end(node int, signal os.Signal) {
	r.t.Helper()
	if err := r.nodes[node].Signal(signal); err != nil {
		r.t.Error(err)
	}
	<-r.nodes[node].Ended()
}

func (r *running) waitReady(node int) {
	r.t.Helper()
	await.Done(r.t, await.Timeout, func() (bool, string) {
		err := r.p.Ready(r.t.Context(), node, time.Second)
		return err == nil, fmt.Sprintf("node %d is not ready: %v\n%s", node, err, r.nodes[node].Log())
	})
}

// ask has a client ask a node, and returns the calls that were answered.
func (r *running) ask(node, client, times int, count uint64) driver.Answer {
	r.t.Helper()
	a, err := r.p.Ask(r.t.Context(), driver.AskRequest{Node: node, Client: client, Count: count, Times: times, Timeout: await.Timeout})
	if err != nil {
		r.t.Error(err)
	}
	return a
}

// refused returns why a node answers a call with no numbers.
func (r *running) refused(node int) *driver.Failed {
	r.t.Helper()
	a := r.ask(node, 0, 1, 1)
	if a.Failed == nil {
		r.t.Fatalf("%+v: want a call that failed", a)
	}
	return a.Failed
}

// increase checks that clients that ask side by side get numbers that increase for each, none twice. They begin with a
// node, and go on with the next one when it refuses: the leadership may move on a busy machine.
func (r *running) increase(node int, count uint64) {
	r.t.Helper()
	const clients, requests = 8, 20
	seen := numbers{t: r.t, known: map[isotone.Timestamp]bool{}}
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			node, deadline := node, time.Now().Add(await.Timeout)
			var last isotone.Timestamp
			for left := requests; left > 0; {
				a := r.ask(node, client, min(r.hello.TimesMax, 16), count)
				last = seen.add(last, a.Calls, count)
				if a.Failed == nil {
					left--
					continue
				}
				if len(r.nodes) == 1 || time.Now().After(deadline) {
					r.t.Errorf("node %d: %+v", node, a.Failed)
					return
				}
				node = (node + 1) % len(r.nodes)
			}
		})
	}
	all.Wait()
}

// numbers are those that clients got.
type numbers struct {
	t     *testing.T
	mu    sync.Mutex
	known map[isotone.Timestamp]bool
}

// add checks the calls of a client against its last number and those of all, and returns its last one now.
func (s *numbers) add(last isotone.Timestamp, calls []driver.Call, count uint64) isotone.Timestamp {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range calls {
		n, err := driver.ParseNumber(c.First)
		if err != nil || !last.Before(n) || s.known[n] {
			s.t.Errorf("%+v after %v: %v", c, last, err)
		}
		s.known[n] = true
		last = isotone.Timestamp{Time: n.Time, Index: n.Index + count - 1}
	}
	return last
}

func TestRedis_ItCountsAndForgetsWithoutADisk(t *testing.T) {
	needs(t, "redis-server")
	r := run(t, start(t, "redis"), 2, nil)
	if r.hello.Version == "" {
		t.Error("there is no version")
	}
	r.increase(0, 100)
	if f := r.refused(1); !strings.HasPrefix(f.Message, "READONLY") {
		t.Errorf("a replica: %+v", f)
	}
	before := r.ask(0, 0, 1, 1)
	r.end(0, os.Kill)
	if f := r.refused(0); f.Error != driver.Unavailable {
		t.Errorf("a server that has ended: %+v", f)
	}
	r.start(0)
	r.waitReady(0)
	if after := r.ask(0, 0, 1, 1); after.Calls[0].First != "1" || before.Calls[0].First == "1" {
		t.Errorf("%+v, then %+v: want 1 again", before, after)
	}
}

func TestRedis_ADiskKeepsTheCount(t *testing.T) {
	needs(t, "redis-server")
	r := run(t, start(t, "redis"), 1, map[string]string{"appendonly": "always"})
	r.ask(0, 0, 1, 10)
	r.end(0, os.Kill)
	r.start(0)
	r.waitReady(0)
	if a := r.ask(0, 0, 1, 1); a.Calls[0].First != "11" {
		t.Errorf("%+v: want 11", a)
	}
}

// needs skips the test if there is no such program, but not in CI.
func needs(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

func TestIsotone_OnlyTheLeaderAnswers(t *testing.T) {
	for _, numbers := range []string{"timestamps", "timestamps64", "ids"} {
		t.Run(numbers, func(t *testing.T) {
			r := run(t, start(t, "isotone"), 3, map[string]string{"binary": trial.Binary, "numbers": numbers, "env": "INTERVAL_MS=0,LOG_LEVEL=warn"})
			if r.hello.Version == "" {
				t.Error("there is no version")
			}
			want := 1
			if numbers == "ids" {
				want = 3
			}
			var leader int
			await.Done(t, await.Timeout, func() (bool, string) { // the leadership may move meanwhile
				leaders := r.leaders()
				if len(leaders) > 0 {
					leader = leaders[0]
				}
				return len(leaders) == want, fmt.Sprintf("%v answer: want %d", leaders, want)
			})
			r.increase(leader, r.hello.CountMax)
		})
	}
}

func TestIsotone_EachNodeKnowsTheTime(t *testing.T) {
	r := run(t, start(t, "isotone"), 3, map[string]string{"binary": trial.Binary, "numbers": "interval", "env": "LOG_LEVEL=warn"})
	if r.hello.Promises != driver.Intervals || r.hello.CountMax != 1 {
		t.Errorf("%+v", r.hello)
	}
	for node := range r.nodes {
		await.Done(t, await.Timeout, func() (bool, string) { // the leadership may move meanwhile
			a := r.ask(node, 0, 2, 1)
			for _, c := range a.Calls {
				earliest, err := driver.ParseNumber(c.First)
				latest, err2 := driver.ParseNumber(c.Last)
				if err != nil || err2 != nil || !earliest.Before(latest) || c.Count != 1 {
					t.Errorf("node %d: %+v", node, c)
				}
			}
			return len(a.Calls) == 2, fmt.Sprintf("%+v", a)
		})
	}
}

// TestIsotone_AMemberJoinsAgain without data, after it was removed; and the others count it.
func TestIsotone_AMemberJoinsAgain(t *testing.T) {
	r := run(t, start(t, "isotone"), 3, map[string]string{"binary": trial.Binary, "env": "LOG_LEVEL=warn"})
	if !r.hello.Members {
		t.Fatalf("%+v", r.hello)
	}
	const node, other = 1, 2
	for range 2 {
		r.leave(node)
		command, err := r.p.Add(t.Context(), node, r.plan.Nodes[node].Command, await.Timeout)
		if err != nil {
			t.Fatal(err)
		}
		r.plan.Nodes[node].Command = command
		r.start(node)
		r.waitReady(node)
	}
	r.leave(other) // without it the leader needs the one that has joined
	r.increase(0, 1)
}

// leave has a node removed, which it may be told twice, and ends it.
func (r *running) leave(node int) {
	r.t.Helper()
	for range 2 {
		await.Done(r.t, await.Timeout, func() (bool, string) { // the leadership may move meanwhile
			err := r.p.Remove(r.t.Context(), node, r.plan.Nodes[node].Command, await.Timeout)
			return err == nil, fmt.Sprint(err)
		})
	}
	r.end(node, os.Kill)
}

// refusal is what a node says that does not lead, or during an election.
var refusal = regexp.MustCompile(`^(MOVED 0 127\.0\.0\.1:\d+$|CLUSTERDOWN |TRYAGAIN )`)

// leaders returns the nodes that give numbers. All others have to refuse.
func (r *running) leaders() (list []int) {
	r.t.Helper()
	for node := range r.nodes {
		a := r.ask(node, 0, 1, 1)
		switch {
		case a.Failed == nil:
			list = append(list, node)
		case a.Failed.Error != driver.Unavailable || !refusal.MatchString(a.Failed.Message):
			r.t.Errorf("node %d: %+v", node, a.Failed)
		}
	}
	return list
}
