//go:build linux

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/core/lincheck"
	"github.com/isotone/isotone/snowflake"
)

// callDeadline is the deadline of each call of the Go client. No call may miss it while a
// majority of the nodes runs: an election takes some hundred milliseconds.
const callDeadline = 2 * time.Second

// clientLoad runs goroutines that call the Go client all the time.
type clientLoad struct {
	client *client.Client
	modes  []isotone.ReadMode // of the goroutines, in turn
	online *lincheck.Online
	// deadline is that of each call.
	deadline time.Duration
	// only128 requests no timestamps of 64 bits.
	only128 bool
	stop    context.CancelFunc
	work    sync.WaitGroup

	answered, expired atomic.Int64
	mu                sync.Mutex
	faults            []error
	slowest           time.Duration
	retried           int
}

// startClientLoad starts a load in the default read mode of the nodes, or in several. It requests
// timestamps of 64 bits as well, unless nodes may run a version that knows none.
func startClientLoad(t *testing.T, c *chaos.Cluster, goroutines int, modes ...isotone.ReadMode) *clientLoad {
	t.Helper()
	return (&clientLoad{modes: modes, deadline: callDeadline, only128: c.HasPrevious()}).start(t, c.Addrs(), goroutines)
}

func startClientLoadAt(t *testing.T, addrs []string, goroutines int) *clientLoad {
	t.Helper()
	return (&clientLoad{deadline: callDeadline}).start(t, addrs, goroutines)
}

// startClientLoadWithin starts a load whose calls have the given deadline.
func startClientLoadWithin(t *testing.T, addrs []string, goroutines int, deadline time.Duration) *clientLoad {
	t.Helper()
	return (&clientLoad{deadline: deadline}).start(t, addrs, goroutines)
}

// start lets goroutines call the nodes at addrs until [clientLoad.end].
func (l *clientLoad) start(t *testing.T, addrs []string, goroutines int) *clientLoad {
	t.Helper()
	l.online = lincheck.NewOnline(0)
	if len(l.modes) == 0 {
		l.modes = []isotone.ReadMode{isotone.ReadDefault}
	}
	ctx, cancel := context.WithTimeout(context.Background(), chaos.ReadyTimeout)
	defer cancel()
	var err error
	l.client, err = client.NewWith(ctx, client.Options{Addrs: addrs, Hooks: client.Hooks{
		Retried: func(string, error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.retried++
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(context.Background())
	l.stop = stop
	for i := range goroutines {
		l.work.Go(func() {
			for running.Err() == nil {
				l.call(uint64(i))
				time.Sleep(time.Millisecond) // leaves processor time for the nodes
			}
		})
	}
	t.Cleanup(func() { l.end() })
	return l
}

func (l *clientLoad) end() {
	l.stop()
	l.work.Wait()
	_ = l.client.Close()
}

func (l *clientLoad) call(id uint64) {
	ctx, cancel := context.WithTimeout(context.Background(), l.deadline)
	defer cancel()
	floor, begin := l.online.Begin(), time.Now()
	r, err := l.ask(ctx, id)
	took := time.Since(begin)
	switch {
	case errors.Is(err, isotone.ErrDeadlineExceeded):
		l.expired.Add(1)
	case err == nil:
		l.answered.Add(1)
		err = l.online.End(floor, r)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slowest = max(l.slowest, took)
	if err != nil && len(l.faults) < 10 {
		l.faults = append(l.faults, err)
	}
}

// ask requests one to three timestamps or, every fourth time, one of 64 bits, which stands for its place
// among the others.
func (l *clientLoad) ask(ctx context.Context, id uint64) (isotone.Range, error) {
	reader := l.client.In(l.modes[id%uint64(len(l.modes))])
	if l.only128 || id/3%4 != 3 {
		return reader.Timestamps(ctx, 1+id%3)
	}
	u, err := reader.Timestamp64(ctx)
	return isotone.Range{First: u.Timestamp(), Count: 1}, err
}

// more waits for further answers.
func (l *clientLoad) more(t *testing.T, answers int64) {
	t.Helper()
	wantAnswers(t, &l.answered, answers)
}

// verify ends the load. No call may have failed or received a wrong answer.
func (l *clientLoad) verify(t *testing.T) {
	t.Helper()
	l.end()
	t.Logf("%d calls answered, %d expired, the slowest took %v; %d requests sent again", l.answered.Load(), l.expired.Load(), l.slowest, l.retried)
	for _, err := range l.faults {
		t.Error(err)
	}
	if s := l.online.Stats(); s.Violations > 0 || s.Unverified > 0 {
		t.Errorf("%+v", s)
	}
	if slack := 500 * time.Millisecond; l.slowest > callDeadline+slack {
		t.Errorf("a call with %v took %v", callDeadline, l.slowest)
	}
}

// TestClient_NoCallFailsWhenTheLeaderIsKilled with kill -9.
func TestClient_NoCallFailsWhenTheLeaderIsKilled(t *testing.T) {
	c := chaos.StartCluster(t, options())
	l := startClientLoad(t, c, 32)
	for range short(5, 1) {
		c.Settle()
		leader := c.WaitLeader()
		l.more(t, 500)
		leader.Kill()
		l.more(t, 500)
		leader.Start()
	}
	l.verify(t)
}

// TestClient_NoCallFailsWhenTheLeaderIsPaused: SIGSTOP leaves all connections open, and the
// kernel accepts more. When the leader resumes, the client must not use stale answers.
func TestClient_NoCallFailsWhenTheLeaderIsPaused(t *testing.T) {
	c := chaos.StartCluster(t, options())
	l := startClientLoad(t, c, 32)
	for range short(4, 1) {
		c.Settle()
		leader := c.WaitLeader()
		l.more(t, 500)
		leader.Stop()
		l.more(t, 1000)
		leader.Cont()
		l.more(t, 500)
	}
	l.verify(t)
}

// TestClient_NoCallFailsInARollingRestart: each node is ended by SIGTERM and started
// again, one after the other. CLIENT_ROLLS says how often, with 200 goroutines.
func TestClient_NoCallFailsInARollingRestart(t *testing.T) {
	rolls, goroutines := 1, 32
	if text := os.Getenv("CLIENT_ROLLS"); text != "" {
		var err error
		if rolls, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
		goroutines = 200
	}
	c := chaos.StartCluster(t, options())
	l := startClientLoad(t, c, goroutines)
	for range rolls {
		for _, n := range c.Nodes {
			n.Shutdown()
			n.Start()
			c.WaitReady()
			c.Settle()
			l.more(t, 500)
		}
	}
	l.verify(t)
}

// TestClient_RecoversAloneWhenAllNodesWereDown: calls with a late deadline succeed after it,
// the others fail at their deadlines.
func TestClient_RecoversAloneWhenAllNodesWereDown(t *testing.T) {
	c := chaos.StartCluster(t, options())
	l := startClientLoad(t, c, 8)
	l.more(t, 200)
	c.Kill()
	patient := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*chaos.ReadyTimeout)
		defer cancel()
		_, err := l.client.Timestamp(ctx)
		patient <- err
	}()
	for end := time.Now().Add(chaos.ReadyTimeout); l.expired.Load() < 8; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no call has expired")
		}
	}
	c.Start()
	if err := <-patient; err != nil {
		t.Errorf("the call with a late deadline: %v", err)
	}
	c.WaitReady()
	l.more(t, 500)
	l.mu.Lock()
	l.faults = slices.DeleteFunc(l.faults, func(err error) bool { return errors.Is(err, isotone.ErrDeadlineExceeded) })
	l.mu.Unlock()
	l.verify(t)
}

// TestClient_IDsNeverRepeat: IDs of all members and of two generators that lease workers,
// while the leader is killed (I9).
func TestClient_IDsNeverRepeat(t *testing.T) {
	c := chaos.StartCluster(t, options())
	l := startClientLoad(t, c, 4)
	ids := startClientIDs(t, l)
	for range short(3, 1) {
		c.Settle()
		leader := c.WaitLeader()
		l.more(t, 200)
		leader.Kill()
		l.more(t, 500)
		leader.Start()
		c.WaitReady()
	}
	ids.verify(t)
	l.verify(t)
}

// clientIDs runs goroutines that request IDs from the members through the client of a
// clientLoad, and others that make IDs of workers that they lease.
type clientIDs struct {
	stop context.CancelFunc
	work sync.WaitGroup

	generators []*client.Generator

	mu     sync.Mutex
	seen   map[snowflake.ID]bool
	faults []error
}

func startClientIDs(t *testing.T, l *clientLoad) *clientIDs {
	t.Helper()
	running, stop := context.WithCancel(context.Background())
	d := &clientIDs{stop: stop, seen: map[snowflake.ID]bool{}}
	t.Cleanup(d.end)
	for range 4 {
		d.run(running, 5*time.Millisecond, func(ctx context.Context) ([]snowflake.ID, error) {
			return l.client.Snowflakes(ctx, 100)
		})
	}
	for range 2 {
		ctx, cancel := context.WithTimeout(running, chaos.ReadyTimeout)
		g, err := l.client.NewGenerator(ctx, client.GeneratorOptions{Lease: 600 * time.Millisecond})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		d.generators = append(d.generators, g)
		d.run(running, time.Millisecond, func(ctx context.Context) ([]snowflake.ID, error) {
			id, err := g.Next(ctx)
			return []snowflake.ID{id}, err
		})
	}
	return d
}

// run requests IDs until the load ends, with a pause after each answer.
func (d *clientIDs) run(running context.Context, pause time.Duration, ask func(context.Context) ([]snowflake.ID, error)) {
	d.work.Go(func() {
		for running.Err() == nil {
			ctx, cancel := context.WithTimeout(context.Background(), callDeadline)
			ids, err := ask(ctx)
			cancel()
			d.note(ids, err)
			time.Sleep(pause)
		}
	})
}

func (d *clientIDs) note(ids []snowflake.ID, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.fault(fmt.Errorf("at %s: %w", time.Now().UTC().Format(time.RFC3339Nano), err))
		return
	}
	for _, id := range ids {
		if d.seen[id] {
			d.fault(fmt.Errorf("I9: %v twice", id))
		}
		d.seen[id] = true
	}
}

func (d *clientIDs) fault(err error) {
	if len(d.faults) < 10 {
		d.faults = append(d.faults, err)
	}
}

func (d *clientIDs) end() {
	d.stop()
	d.work.Wait()
}

// verify ends the load, before that of its client. No call may have failed, and no ID
// came twice.
func (d *clientIDs) verify(t *testing.T) {
	t.Helper()
	d.end()
	workers := map[int]bool{}
	for _, g := range d.generators {
		workers[g.Worker()] = true
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d IDs", len(d.seen))
	for _, err := range d.faults {
		t.Error(err)
	}
	if len(workers) != 2 || len(d.seen) < 1000 {
		t.Errorf("workers %v, %d IDs", workers, len(d.seen))
	}
}
