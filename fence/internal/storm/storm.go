package storm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/child"
	"github.com/isotone/isotone/internal/check/cluster"
)

const (
	nodes   = 3
	workers = 6
	// roundMax bounds a round, and with it what the storm remembers.
	roundMax = time.Minute
	// endTimeout bounds the wait for the progress of all locks and groups after the last fault, and for the end of a process.
	endTimeout = 30 * time.Second
)

// WorkerVariable is the environment variable with the JSON of a [Worker], for a program that is to call [Work].
const WorkerVariable = "ISOTONE_FENCE_WORKER"

// Options describe a storm.
type Options struct {
	// Node is the path of isotone; Worker that of a program that does as WorkerVariable says.
	Node, Worker string
	// Dir is for data and logs.
	Dir     string
	Servers Servers
	// The storm lasts For, and further rounds until Enough returns true, but at most ForMax.
	For, ForMax time.Duration
	Enough      func(*Result) bool
}

// storm is a storm under way. It has one Result, of which mu guards what several goroutines count.
type storm struct {
	Options
	cluster *cluster.Cluster
	client  *client.Client
	stores  []store

	mu     sync.Mutex
	result *Result
}

// Run starts the nodes, and runs rounds. An error means that the storm itself has failed; what is wrong with writes and progress is in the result. When it returns, all
// its processes have ended.
func Run(ctx context.Context, o Options) (result *Result, err error) {
	s := &storm{Options: o, result: newResult()}
	stores, closing, err := o.Servers.open()
	if err != nil {
		return nil, err
	}
	defer closing()
	s.stores = stores
	if s.cluster, err = cluster.New(nodes, o.Dir, []string{o.Node}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.cluster.Kill()) }()
	if err := s.cluster.Start(); err != nil {
		return nil, err
	}
	if err := s.cluster.WaitReady(ctx); err != nil {
		return nil, err
	}
	if s.client, err = client.New(ctx, s.cluster.Addrs()...); err != nil {
		return nil, err
	}
	defer s.client.Close()
	began := time.Now()
	for n := 1; ; n++ {
		elapsed := time.Since(began)
		if elapsed >= o.ForMax || elapsed >= o.For && o.Enough(s.result) {
			break
		}
		rest := o.For - elapsed
		if rest <= 0 {
			rest = min(o.For, o.ForMax-elapsed)
		}
		if err := s.round(ctx, n, min(rest, roundMax)); err != nil {
			return s.result, err
		}
		s.result.ElapsedS, s.result.Rounds = time.Since(began).Seconds(), n
	}
	return s.result, nil
}

// round is a round under way, with locks and groups of its own.
type round struct {
	*storm
	dir           string
	locks, groups []string
	workers       []*process
	tolds         map[string]map[string][]told // by group, by store
}

// process is a worker. A fault that uses it locks it.
type process struct {
	sync.Mutex
	name string
	env  []string
	*child.Process
}

// round runs the workers under faults for a while, waits until all locks and groups make progress without, and checks the history.
func (s *storm) round(ctx context.Context, n int, length time.Duration) (err error) {
	r := &round{storm: s, dir: filepath.Join(s.Dir, fmt.Sprint("round", n)), tolds: map[string]map[string][]told{}}
	for i := range 2 {
		r.locks = append(r.locks, fmt.Sprintf("{r%d-lock%d}", n, i))
		r.groups = append(r.groups, fmt.Sprintf("{r%d-group%d}", n, i))
	}
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.dir)) }()
	defer func() { err = errors.Join(err, r.endWorkers()) }()
	if err := r.startWorkers(); err != nil {
		return err
	}
	reading, endReading := context.WithCancel(ctx)
	defer endReading()
	var readers sync.WaitGroup
	for _, group := range r.groups {
		r.tolds[group] = map[string][]told{}
		readers.Go(func() { r.read(reading, group) })
	}
	err = r.breakAll(ctx, length)
	if err == nil {
		err = r.awaitProgress(ctx)
	}
	endReading()
	readers.Wait()
	if err != nil {
		return err
	}
	if err := r.endWorkers(); err != nil {
		return err
	}
	return r.check(ctx)
}

func (r *round) startWorkers() error {
	for i := range workers {
		p := &process{name: fmt.Sprint("worker", i)}
		text, err := json.Marshal(Worker{Name: p.name, Nodes: r.cluster.Addrs(), Servers: r.Servers, Locks: r.locks, Groups: r.groups})
		if err != nil {
			return err
		}
		p.env = append(cluster.Inherited(), WorkerVariable+"="+string(text))
		r.workers = append(r.workers, p)
		if err := r.start(p); err != nil {
			return err
		}
	}
	return nil
}

// start starts a worker, also again: it goes on with the same log.
func (r *round) start(p *process) (err error) {
	p.Process, err = child.Run(p.name, r.log(p), p.env, []string{r.Worker})
	return err
}

func (r *round) log(p *process) string { return filepath.Join(r.dir, p.name+".log") }

// kill ends a worker.
func (p *process) kill() error {
	if p.Process == nil || p.Exited() {
		return nil
	}
	if err := p.Signal(os.Kill); err != nil {
		return err
	}
	_, err := p.WaitExit(endTimeout)
	return err
}

// endWorkers ends all workers.
func (r *round) endWorkers() error {
	var errs []error
	for _, p := range r.workers {
		errs = append(errs, p.kill())
	}
	return errors.Join(errs...)
}

// read follows the frontier of a group, and notes how many writes the stores have at or below it each time it has moved.
func (r *round) read(ctx context.Context, group string) {
	reader := r.client.Frontier(group)
	defer reader.Close()
	for ctx.Err() == nil {
		for frontier, err := range reader.Follow(ctx) {
			if err != nil {
				break
			}
			for _, store := range r.stores {
				n, err := store.countGroup(ctx, group, frontier)
				if err != nil {
					continue // the round has ended, or the store says so at its end
				}
				r.mu.Lock()
				r.tolds[group][store.name()] = append(r.tolds[group][store.name()], told{frontier, n})
				r.mu.Unlock()
			}
			r.mu.Lock()
			r.result.Told++
			r.mu.Unlock()
		}
		sleep(ctx, retryPause)
	}
}

// sleep returns false if ctx was done before the time was over.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// between returns a random time.
func between(low, high time.Duration) time.Duration { return low + rand.N(high-low) }
