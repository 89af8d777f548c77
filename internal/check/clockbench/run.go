package clockbench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/isotone/isotone/internal/check/bench"
)

const (
	// graceTimeout is by how much a process may be late, beyond its phase and one call.
	graceTimeout = 10 * time.Second
	// showEvery is how often Options.Show is called.
	showEvery = time.Second
)

// run is one run of the command.
type run struct {
	options   *Options
	processes []*process
	start     time.Time
	result    *Result

	mu         sync.Mutex
	evidence   Evidence
	errors     bench.Errors
	histograms map[string]*hdrhistogram.Histogram
	perSecond  map[string]float64 // by step
}

// Run measures and checks the cluster clock for o.Duration or until ctx ends, and returns the result. A
// [bench.TargetError] means that no target reads a cluster clock, or nothing was answered. A result
// with violations is not an error. All its goroutines and processes have ended when it returns.
func Run(ctx context.Context, o Options) (*Result, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	node, err := bench.ClockNode(ctx, o.Options)
	if err != nil {
		return nil, err
	}
	r := &run{
		options: &o, result: newResult(&o), errors: bench.Errors{},
		histograms: map[string]*hdrhistogram.Histogram{}, perSecond: map[string]float64{},
	}
	r.result.Result.Readings.Node = node
	// The processes are to be told when ctx ends, not killed.
	hard, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	impatient := context.AfterFunc(ctx, kill)
	err = r.open(hard)
	if !impatient() && err == nil {
		err = ctx.Err()
	}
	if err == nil {
		r.start = time.Now()
		err = r.steps(ctx, kill)
	}
	if err != nil {
		kill()
	}
	for _, p := range r.processes {
		if closed := p.close(); err == nil {
			err = closed
		}
	}
	if err != nil {
		return nil, bench.TargetError(oneLine(err))
	}
	return r.finish(ctx.Err() != nil)
}

// open starts the processes, and waits until they are connected.
func (r *run) open(ctx context.Context) error {
	for i := range r.options.Processes {
		cmd, err := r.options.Command()
		if err != nil {
			return err
		}
		p, err := newProcess(ctx, i, cmd, r.collect)
		if err != nil {
			return err
		}
		r.processes = append(r.processes, p)
	}
	for _, p := range r.processes {
		if _, err := p.answer(time.Now().Add(startTimeout + graceTimeout)); err != nil {
			return err
		}
	}
	return nil
}

// steps runs all phases. When ctx ends, the processes are told to stop.
func (r *run) steps(ctx context.Context, kill func()) error {
	var stopping sync.WaitGroup
	defer stopping.Wait()
	stopping.Add(1)
	stop := context.AfterFunc(ctx, func() {
		defer stopping.Done()
		for _, p := range r.processes {
			if p.tell(order{Stop: true}) != nil {
				kill()
			}
		}
	})
	defer func() {
		if stop() {
			stopping.Done()
		}
	}()
	list, readings := r.options.steps()
	for _, s := range list {
		if ctx.Err() != nil {
			return nil
		}
		if err := r.step(s, func() error { return nil }); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return r.step(step{name: "readings", phase: readings}, func() error {
		o := r.options.Options
		o.Targets, o.Duration = []string{r.result.Result.Readings.Node}, readings.Duration
		got, err := bench.LoadReadings(ctx, o)
		if err == nil {
			r.result.Result.Readings.Readings = *got
		}
		return err
	})
}

// step has all processes work for one phase, and calls with meanwhile.
func (r *run) step(s step, with func() error) error {
	for i, p := range r.processes {
		ph := s.phase
		if s.alone {
			ph.Lanes = max(0, 1-i)
		}
		if err := p.tell(order{Phase: ph}); err != nil {
			return err
		}
	}
	defer r.show(s)()
	err := with()
	deadline := time.Now().Add(s.Duration + 2*r.options.Timeout + graceTimeout)
	for _, p := range r.processes {
		done, failed := p.answer(deadline)
		if failed == nil {
			failed = r.merge(s, p.number, done)
		}
		err = errors.Join(err, failed)
	}
	return err
}

// show has Options.Show called until the function that it returns is.
func (r *run) show(s step) (stop func()) {
	if r.options.Show == nil {
		return func() {}
	}
	quit := make(chan struct{})
	var shown sync.WaitGroup
	shown.Go(func() {
		ticker := time.NewTicker(showEvery)
		defer ticker.Stop()
		for {
			select {
			case <-quit:
				return
			case <-ticker.C:
			}
			r.mu.Lock()
			line := fmt.Sprintf("%v of %v  %s  %s operations  %s reads  errors %s", time.Since(r.start).Round(time.Second), r.options.Duration,
				s.name, bench.Group(len(r.evidence.Operations)), bench.Group(len(r.evidence.Reads)), r.errors)
			r.mu.Unlock()
			r.options.Show(line)
		}
	})
	return func() { close(quit); shown.Wait() }
}

// collect takes in the records of a process.
func (r *run) collect(number int, m message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.evidence.Operations)+len(m.Operations) > 2*recordsMax || len(r.evidence.Reads)+len(m.Reads) > 2*recordsMax {
		return fmt.Errorf("process %d recorded more than it was asked to", number)
	}
	for _, o := range m.Operations {
		o.Process = number
		r.evidence.Operations = append(r.evidence.Operations, o)
	}
	for _, read := range m.Reads {
		read.Process = number
		r.evidence.Reads = append(r.evidence.Reads, read)
	}
	return nil
}

// merge takes in the outcome of a phase of a process.
func (r *run) merge(s step, number int, o *outcome) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o == nil {
		return fmt.Errorf("process %d has not done its phase", number)
	}
	for _, g := range o.Generators {
		g.Process = number
		r.evidence.Generators = append(r.evidence.Generators, g)
	}
	for code, n := range o.Errors {
		r.errors[code] += n
	}
	if s.Batch > 0 {
		r.perSecond[s.name] += o.PerSecond
	}
	for name, snapshot := range o.Histograms {
		if err := snapshot.Validate(); err != nil {
			return fmt.Errorf("process %d: %w", number, err)
		}
		if r.histograms[name] == nil {
			r.histograms[name] = newHistogram()
		}
		r.histograms[name].Merge(hdrhistogram.Import(snapshot))
	}
	return nil
}
