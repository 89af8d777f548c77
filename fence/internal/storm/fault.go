package storm

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/isotone/isotone/internal/check/child"
	"github.com/isotone/isotone/internal/check/cluster"
)

const (
	// A pause lasts from pauseMin to pauseMax for a worker, and from leaderPauseMin for the leader.
	pauseMin, leaderPauseMin, pauseMax = 100 * time.Millisecond, 50 * time.Millisecond, 3 * time.Second
	// faultGapMin and faultGapMax bound the time between two faults of one kind, and leaderGapMax that between two of the leader.
	faultGapMin, faultGapMax, leaderGapMax = 50 * time.Millisecond, 500 * time.Millisecond, 4 * time.Second
	// killOneIn is how many faults have one kill among them, the others being pauses.
	killOneIn = 8
	// downMax bounds the time from a kill to the restart.
	downMax = time.Second
	// askTimeout bounds a question who holds a lock or leads.
	askTimeout = time.Second
)

// breakAll has faults of holders, writers and leaders for a while. When it returns, all processes run.
func (r *round) breakAll(ctx context.Context, length time.Duration) error {
	faults, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	var all sync.WaitGroup
	errs := make([]error, 3)
	for i, repeat := range []func(context.Context) error{r.breakHolders, r.breakWriters, r.breakLeaders} {
		all.Go(func() { errs[i] = repeat(faults) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// breakHolders breaks workers that hold a lock.
func (r *round) breakHolders(ctx context.Context) error {
	for sleep(ctx, between(faultGapMin, faultGapMax)) {
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		holder, err := r.client.Holder(asking, r.locks[rand.IntN(len(r.locks))])
		cancel()
		if err != nil {
			continue // there is no leader
		}
		i := slices.IndexFunc(r.workers, func(p *process) bool { return p.name == holder.Value })
		if i < 0 {
			continue // nobody holds it
		}
		if err := r.breakWorker(ctx, r.workers[i], &r.result.HolderPauses); err != nil {
			return err
		}
	}
	return nil
}

// breakWriters breaks any workers: each has stamps of groups.
func (r *round) breakWriters(ctx context.Context) error {
	for sleep(ctx, between(faultGapMin, faultGapMax)) {
		if err := r.breakWorker(ctx, r.workers[rand.IntN(len(r.workers))], &r.result.WriterPauses); err != nil {
			return err
		}
	}
	return nil
}

// breakWorker pauses a worker, or kills it and starts it again, unless another fault has it.
func (r *round) breakWorker(ctx context.Context, p *process, pauses *int) error {
	if !p.TryLock() {
		return nil
	}
	defer p.Unlock()
	if p.Exited() {
		return errors.New(p.name + " has ended by itself:\n" + p.Log())
	}
	if rand.IntN(killOneIn) > 0 {
		r.add(pauses)
		return pause(ctx, p, between(pauseMin, pauseMax))
	}
	r.add(&r.result.WorkerKills)
	if err := p.kill(); err != nil {
		return err
	}
	sleep(ctx, between(0, downMax))
	return r.start(p)
}

// breakLeaders breaks the leader, or any node if nobody leads.
func (r *round) breakLeaders(ctx context.Context) error {
	for sleep(ctx, between(faultGapMin, leaderGapMax)) {
		asking, cancel := context.WithTimeout(ctx, nodes*askTimeout)
		leader, _ := r.cluster.Leader(asking)
		cancel()
		if leader == nil {
			leader = r.cluster.Nodes[rand.IntN(nodes)]
		}
		if err := r.breakLeader(ctx, leader); err != nil {
			return err
		}
	}
	return nil
}

func (r *round) breakLeader(ctx context.Context, n *cluster.Node) error {
	if !n.Running() {
		return n.Fault()
	}
	if rand.IntN(killOneIn) > 0 {
		r.add(&r.result.LeaderPauses)
		return pause(ctx, n, between(leaderPauseMin, pauseMax))
	}
	r.add(&r.result.LeaderKills)
	if err := n.Kill(); err != nil {
		return err
	}
	sleep(ctx, between(0, downMax))
	return n.Start()
}

// pause stops a process for a while, or until ctx is done.
func pause(ctx context.Context, p interface{ Signal(os.Signal) error }, d time.Duration) error {
	if err := p.Signal(child.Stop); err != nil {
		return err
	}
	sleep(ctx, d)
	return p.Signal(child.Cont)
}

// add counts a fault.
func (r *round) add(count *int) {
	r.mu.Lock()
	*count++
	r.mu.Unlock()
}
