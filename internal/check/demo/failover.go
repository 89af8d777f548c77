package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/isotone/isotone/internal/check/child"
	"github.com/isotone/isotone/internal/check/cluster"
)

// showInterval is the time between two calls of Options.Show.
const showInterval = 100 * time.Millisecond

// downtimeMax bounds how long a leader that has ended is away: it is a third of Options.Every, or
// this.
const downtimeMax = time.Second

// failover is a run under way.
type failover struct {
	*Options
	nodes  *cluster.Cluster
	load   *load
	leader *leadership
}

// Failover starts three nodes as processes, has clients ask for timestamps, ends leaders meanwhile,
// and returns what the clients saw. If ctx is done, it returns what was measured until then. Check the
// answers by [Result.Err]. An error of Failover means that the run itself failed. When it returns,
// all processes have ended and their files are removed.
func Failover(ctx context.Context, o Options) (r *Result, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "isotone-demo-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	f := &failover{Options: &o}
	if f.nodes, err = cluster.New(Nodes, dir, o.Command); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.nodes.Kill()) }()
	if err := f.start(ctx); err != nil {
		return nil, err
	}
	return f.run(ctx)
}

// start starts the nodes and connects the clients.
func (f *failover) start(ctx context.Context) error {
	if err := f.nodes.Start(); err != nil {
		return err
	}
	if err := f.nodes.WaitReady(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cluster.ReadyTimeout)
	defer cancel()
	var err error
	f.load, err = connect(ctx, f.nodes.Addrs(), f.Clients)
	return err
}

// run runs the load, ends leaders, and returns the result.
func (f *failover) run(ctx context.Context) (*Result, error) {
	f.leader = &leadership{note: func(node uint64) { f.load.tally.leads(node, f.load.now()) }}
	f.load.start()
	watching, endWatch := context.WithCancel(context.Background())
	var beside sync.WaitGroup
	beside.Go(func() { f.leader.watch(watching, f.nodes.Nodes) })
	beside.Go(func() { f.show(watching) })
	bounded, cancel := context.WithTimeout(ctx, f.bound())
	err := f.breakAll(bounded)
	cancel()
	f.load.tally.end(f.load.now())
	f.load.stop()
	now := f.load.now()
	endWatch()
	beside.Wait()
	if err != nil {
		return nil, err
	}
	r := f.result(now)
	r.Interrupted = ctx.Err() != nil
	return r, nil
}

// bound returns how long the load may last: without Duration, until all leaders have ended.
func (f *failover) bound() time.Duration {
	if f.Duration > 0 {
		return f.Duration
	}
	return durationMax
}

func (f *failover) result(now time.Duration) *Result {
	r := &Result{Isotone: f.Version, Nodes: Nodes, Clients: f.Clients, How: f.How, CPUs: runtime.NumCPU()}
	f.load.fill(r, now)
	return r
}

// show calls Options.Show until ctx is done.
func (f *failover) show(ctx context.Context) {
	if f.Show == nil {
		return
	}
	ticker := time.NewTicker(showInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f.Show(f.result(f.load.now()))
		}
	}
}

// breakAll ends leaders until all have had their turn, or ctx is done. The first ends after half of
// Every, and half of it is left after the last.
func (f *failover) breakAll(ctx context.Context) error {
	next := f.Every / 2
	for range f.Kills {
		if !f.until(ctx, next) {
			return nil
		}
		leader, err := f.whole(ctx)
		if leader == nil || err != nil {
			return err
		}
		at := f.load.now()
		if err := f.breakOne(ctx, leader); err != nil {
			return err
		}
		next = max(next, at) + f.Every
	}
	if f.Duration > 0 {
		f.until(ctx, f.Duration)
		return nil
	}
	f.until(ctx, next-f.Every/2)
	return nil
}

// until waits until a time of the run. It reports false if ctx is done before.
func (f *failover) until(ctx context.Context, at time.Duration) bool {
	select {
	case <-time.After(at - f.load.now()):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// whole waits until all nodes are ready, and returns the leader, or nil if ctx is done.
func (f *failover) whole(ctx context.Context) (*cluster.Node, error) {
	limit := time.Now().Add(cluster.ReadyTimeout)
	for {
		err := f.nodes.WaitReady(ctx)
		switch leader := f.leader.known(); {
		case ctx.Err() != nil:
			return nil, nil
		case err != nil:
			return nil, err
		case leader != 0:
			return f.nodes.Nodes[leader-1], nil
		case time.Now().After(limit):
			return nil, fmt.Errorf("no node leads after %v", cluster.ReadyTimeout)
		}
		f.until(ctx, f.load.now()+cluster.PollInterval)
	}
}

// breakOne ends a leader, and brings it back a while later, or when ctx is done.
func (f *failover) breakOne(ctx context.Context, n *cluster.Node) error {
	if !n.Running() {
		return n.Fault()
	}
	f.load.tally.killed(n.ID, f.load.now())
	away := f.load.now() + min(f.Every/3, downtimeMax)
	switch f.How {
	case HowStop:
		f.leader.lose()
		if err := n.Signal(child.Stop); err != nil {
			return err
		}
		f.until(ctx, away)
		f.succeed(ctx) // otherwise it would lead on
		return n.Signal(child.Cont)
	case HowDrain:
		if err := n.Stop(); err != nil {
			return err
		}
	default:
		f.leader.lose()
		if err := n.Kill(); err != nil {
			return err
		}
	}
	if !f.until(ctx, away) || !f.succeed(ctx) {
		return nil
	}
	return n.Start()
}

// succeed waits until another node leads than the one that has ended, and a call was answered since. It reports false if ctx is done
// before. A machine that is too busy for that has a result without a successor.
func (f *failover) succeed(ctx context.Context) bool {
	for limit := time.Now().Add(cluster.ReadyTimeout); !f.load.tally.succeeded() && time.Now().Before(limit); {
		if !f.until(ctx, f.load.now()+cluster.PollInterval) {
			return false
		}
	}
	return ctx.Err() == nil
}
