package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/namespace"
	"github.com/isotone/isotone/internal/check/verify/driver"
)

const (
	// readyTimeout bounds how long nodes may take until all are ready, readyAsk one question.
	readyTimeout = 2 * time.Minute
	// runningTimeout is the same for nodes that run already, which Endpoints names.
	runningTimeout = 10 * time.Second
	readyAsk       = time.Second
	readyPoll      = 50 * time.Millisecond
	// recoverMax bounds the wait for an answer after a fault.
	recoverMax  = time.Minute
	recoverPoll = 5 * time.Millisecond
	// lastCalm is how long clients go on after the last fault, at most a quarter of the run.
	lastCalm = 3 * time.Second
	// endedPoll is the time between two looks for nodes that have ended by themselves, restartMin how long one has to have run, or
	// not, before it is started again.
	endedPoll  = 100 * time.Millisecond
	restartMin = time.Second
	// showInterval is the time between two calls of Options.Show.
	showInterval = 200 * time.Millisecond
)

// run is a run under way.
type run struct {
	*Options
	nodes   *nodes // nil: they run already
	load    *load
	kinds   []string
	leftOut []string
	at      time.Time
	names   []string
}

// Run starts the nodes, has clients ask, injects faults, and returns what it saw. If ctx is done, it returns what was
// seen until then. An error means that the run itself failed, for example because a driver ended; a wrong answer is no
// error. A result that comes with an error has what was seen before. When Run returns, all processes have ended, and
// their namespaces with them.
func Run(ctx context.Context, o Options) (result *Result, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	dir, remove, err := directory(o.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	r := &run{Options: &o}
	defer func() {
		if closed := r.close(); err == nil { // else it is a consequence
			err = closed
		}
	}()
	if err := r.prepare(ctx, dir); err != nil {
		return nil, refused(err)
	}
	return r.do(ctx)
}

// directory returns the directory for a run, and what removes it if it is a temporary one.
func directory(wanted string) (dir string, remove func() error, err error) {
	if wanted != "" {
		dir, err = ownDirectory(wanted)
		return dir, func() error { return nil }, err
	}
	dir, err = os.MkdirTemp("", "isotone-verify-")
	if err == nil {
		err = os.Chmod(dir, 0o755) // some systems run as another user
	}
	return dir, func() error { return os.RemoveAll(dir) }, err
}

// ownDirectory makes a directory, unless it is there and empty, and returns its absolute path: nodes start elsewhere.
func ownDirectory(wanted string) (dir string, err error) {
	if dir, err = filepath.Abs(wanted); err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	var files []os.DirEntry
	if err == nil {
		files, err = os.ReadDir(dir)
	}
	switch {
	case err != nil:
		return dir, isotone.Errorf(isotone.CodeInvalidArgument, "--dir: %v", err)
	case len(files) > 0:
		return dir, isotone.Errorf(isotone.CodeInvalidArgument, "--dir %s: it has files, maybe those of an earlier run: want a new or an empty directory", wanted)
	}
	return dir, nil
}

func (r *run) close() error {
	var errs []error
	if r.load != nil {
		errs = append(errs, closeDrivers(r.load.drivers))
	}
	if r.nodes != nil {
		errs = append(errs, r.nodes.close())
	}
	return errors.Join(errs...)
}

// prepare has the nodes run and the drivers know them.
func (r *run) prepare(ctx context.Context, dir string) error {
	r.load = &load{Options: r.Options}
	addresses, prefix := r.Addresses, same
	r.names = addresses
	if len(addresses) == 0 {
		if err := r.startNodes(ctx, dir); err != nil {
			return err
		}
		addresses, prefix = r.nodes.addresses(), r.nodes.on(0)
		r.names = r.nodes.names()
	} else if len(r.Faults) == 0 {
		r.leftOut = append(r.leftOut, "all kinds: the nodes were not started by this run")
	}
	r.load.nodes = len(addresses)
	if err := r.load.startDrivers(ctx, dir, prefix); err != nil {
		return err
	}
	for _, p := range r.load.drivers {
		ctx, cancel := context.WithTimeout(ctx, connectTimeout)
		err := p.Connect(ctx, addresses, r.DriverOptions)
		cancel()
		if err != nil {
			return fmt.Errorf("connect: %w", err)
		}
	}
	return r.waitReady(ctx)
}

// refused returns what a driver says of a wrong request, for example of an option that it does not have, as an error that
// matches isotone.ErrInvalidArgument. Other errors stay as they are.
func refused(err error) error {
	var told *driver.Error
	if errors.As(err, &told) && told.Kind == driver.Invalid {
		return isotone.Errorf(isotone.CodeInvalidArgument, "%s", told.Message)
	}
	return err
}

// Describe returns what a driver says of its system.
func Describe(ctx context.Context, system string, command []string, options map[string]string) (hello driver.Hello, err error) {
	p, err := driver.Start(system, os.DevNull, command)
	if err != nil {
		return hello, err
	}
	hello, err = p.Hello(ctx, options)
	if closed := p.Close(); err == nil { // else it is a consequence
		err = closed
	}
	return hello, refused(err)
}

// startNodes has a driver plan the nodes, and starts them.
func (r *run) startNodes(ctx context.Context, dir string) error {
	planner, err := driver.Start(r.System, filepath.Join(dir, "driver.log"), r.Driver)
	if err != nil {
		return err
	}
	defer planner.Close()
	hello, err := planner.Hello(ctx, r.DriverOptions)
	if err != nil {
		return err
	}
	count := r.Nodes
	if count == 0 {
		count = hello.Nodes
	}
	if most := min(hello.NodesMax, NodesMax); count > most {
		return isotone.Errorf(isotone.CodeInvalidArgument, "--nodes %d: %s has at most %d", count, r.System, most)
	}
	wantsNetwork := len(r.Faults) == 0 || slices.ContainsFunc(r.Faults, needsNetwork)
	network := wantsNetwork && namespace.NetworkDenied() == ""
	if r.kinds, r.leftOut, err = possible(r.Faults, count, network, hello.Members); err != nil {
		return err
	}
	r.nodes, err = newNodes(ctx, dir, count, hello.Ports, network, func(request driver.PlanRequest) (driver.Plan, error) {
		return planner.Plan(ctx, request, r.DriverOptions)
	})
	if err != nil {
		return err
	}
	return r.nodes.start()
}

// waitReady waits until all nodes are ready.
func (r *run) waitReady(ctx context.Context) error {
	timeout := readyTimeout
	if r.nodes == nil {
		timeout = runningTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("the nodes are not ready after %v", timeout))
	defer cancel()
	for node := range r.load.nodes {
		var why error // of the last question that was answered
		for {
			err := r.load.drivers[0].Ready(ctx, node, readyAsk)
			if err == nil {
				break
			}
			var known *driver.Error
			switch {
			case ctx.Err() != nil:
				return fmt.Errorf("%w; %s: %w", context.Cause(ctx), r.names[node], cmp.Or(why, err))
			case !errors.As(err, &known) || known.Kind == driver.Invalid:
				return err
			case r.nodes != nil && !r.nodes.list[node].running():
				n := r.nodes.list[node]
				return fmt.Errorf("%s has ended instead of getting ready (%v):\n%s", n.name, n.process.State(), tail(n.process.Log()))
			}
			why = err
			sleep(ctx, readyPoll)
		}
	}
	return nil
}

// do runs the load and the faults.
func (r *run) do(ctx context.Context) (*Result, error) {
	r.at, r.load.tally = time.Now(), newTally(r.Clients, r.Window)
	r.load.tally.checker.intervals = r.load.hello.Promises == driver.Intervals
	running, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.load.start(running, cancel)
	var beside sync.WaitGroup
	beside.Go(func() { r.watch(running, cancel) })
	err := r.breakAll(running)
	r.load.stop()
	fault := context.Cause(running)
	cancel(nil)
	beside.Wait()
	if ctx.Err() == nil && fault != errBroken {
		err = errors.Join(err, fault)
	}
	result := r.result()
	if err != nil && result.Answers == 0 {
		return nil, err
	}
	result.Interrupted = ctx.Err() != nil || err != nil
	return result, err
}

// breakAll injects faults until the run is over, or ctx is done, and ends them.
func (r *run) breakAll(ctx context.Context) error {
	end := time.Now().Add(r.Duration)
	last := end.Add(-min(lastCalm, r.Duration/4))
	planner := newPlanner(r.Seed, r.kinds, r.load.nodes)
	for len(r.kinds) > 0 && ctx.Err() == nil {
		f := planner.next()
		f.calm, f.lasts = f.calm/max(r.hurry, 1), f.lasts/max(r.hurry, 1)
		if err := errors.Join(r.rest(ctx, time.Now().Add(f.calm)), r.recover(ctx, last)); err != nil {
			return err
		}
		if f.lasts = min(f.lasts, time.Until(last)); f.lasts <= 0 {
			break
		}
		if err := r.runFault(ctx, f, end); err != nil {
			return err
		}
	}
	return r.rest(ctx, end)
}

// rest waits until a time, and starts nodes again that end meanwhile.
func (r *run) rest(ctx context.Context, end time.Time) error {
	for ctx.Err() == nil && time.Now().Before(end) {
		if err := r.startEnded(); err != nil {
			return err
		}
		sleep(ctx, min(endedPoll, time.Until(end)))
	}
	return nil
}

// recover waits until there was an answer after the latest fault: what no longer answers cannot answer wrongly. It gives up
// after recoverMax, or at the end.
func (r *run) recover(ctx context.Context, end time.Time) error {
	end = earlier(end, time.Now().Add(recoverMax))
	for ctx.Err() == nil && time.Now().Before(end) && !r.load.tally.recovered() {
		if err := r.rest(ctx, time.Now().Add(recoverPoll)); err != nil {
			return err
		}
	}
	return nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// runFault injects a fault for as long as it lasts, or until ctx is done. What the system has to agree to may take longer, until the end of the run.
func (r *run) runFault(ctx context.Context, f plannedFault, runEnd time.Time) error {
	if ctx.Err() != nil {
		return nil
	}
	targets := f.targets(r.load.tally.latestNode(), r.load.nodes)
	over := r.load.tally.beginFault(Fault{Kind: f.kind, Nodes: targets, ClockMS: f.off.Milliseconds()})
	defer over()
	if f.kind == Member {
		return r.changeMember(ctx, targets[0], f.lasts, runEnd)
	}
	end, err := r.nodes.inject(f, targets)
	if err == nil {
		sleep(ctx, f.lasts)
	}
	if end != nil {
		err = errors.Join(err, end())
	}
	if err != nil {
		return fmt.Errorf("%s of %s: %w", f.kind, r.names[targets[0]], err)
	}
	return nil
}

// startEnded starts nodes again that have ended by themselves, and has the result say so.
func (r *run) startEnded() error {
	if r.nodes == nil {
		return nil
	}
	for _, i := range r.nodes.ended() {
		r.load.tally.beginFault(Fault{Kind: EndedByItself, Nodes: []int{i}})()
		if err := r.nodes.list[i].start(); err != nil {
			return err
		}
	}
	return nil
}

// errBroken ends a run with UntilBroken.
var errBroken = errors.New("a promise is broken")

// watch calls Options.Show until ctx is done, and ends the run if that is wanted.
func (r *run) watch(ctx context.Context, end func(error)) {
	for (r.Show != nil || r.UntilBroken) && ctx.Err() == nil {
		result := r.result()
		if r.Show != nil {
			r.Show(result)
		}
		if r.UntilBroken && result.Broken() {
			end(errBroken)
		}
		sleep(ctx, showInterval)
	}
}

func (r *run) result() *Result {
	h := r.load.hello
	out := &Result{
		Isotone: r.Version, At: r.at, System: cmp.Or(h.System, r.System), Version: h.Version, Command: r.Repeat, Seed: r.Seed,
		CPUs: runtime.NumCPU(), Machine: runtime.GOOS + "/" + runtime.GOARCH,
		Nodes: r.names, Clients: r.Clients, Processes: r.Processes, Network: r.nodes != nil && r.nodes.network != nil, LeftOut: r.leftOut,
	}
	r.load.tally.fill(out, Order(h.Promises))
	return out
}
