// Package conformance checks that a client keeps the rules of docs/client-protocol.md. It plays the nodes of
// scenarios to a client, which it drives by a driver, and judges what the client does. conformance/README.md
// describes it. [RunStorm] has real nodes restart and die while clients call them. It knows nothing of any client.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/isotone/isotone"
)

// Scenario is a script of what nodes and calls do.
type Scenario struct {
	Name  string   `json:"scenario"`
	Rules []string `json:"rules"`           // that it is about
	Needs []string `json:"needs,omitempty"` // features of the client
	play  func(*stage)
}

// Defaults of [Suite].
const (
	ParallelDefault = 4
	PatienceDefault = 20 * time.Second
)

// Suite is what [Run] runs.
type Suite struct {
	Driver    []string // the command line
	Scenarios []Scenario
	Parallel  int           // drivers at once; 0: ParallelDefault
	Patience  time.Duration // how long a client may take for what it must do at all; 0: PatienceDefault
	Done      func(Outcome) // called for each scenario, one at a time; may be nil
}

// Outcome is that of a scenario.
type Outcome struct {
	Scenario
	Passed  bool          `json:"passed"`
	Skipped string        `json:"skipped,omitempty"` // why it was not played; "" if it was
	Faults  []Fault       `json:"faults,omitempty"`
	Trace   []string      `json:"trace,omitempty"` // what happened, if it failed
	Took    time.Duration `json:"-"`
	TookMS  int64         `json:"ms"`
}

// Report is that of a run.
type Report struct {
	Client   string    `json:"client"`
	Version  string    `json:"version"`
	Features []string  `json:"features"`
	Outcomes []Outcome `json:"outcomes"`
	Passed   int       `json:"passed"`
	Failed   int       `json:"failed"`
	Skipped  int       `json:"skipped"`
}

// Select returns the scenarios whose names match a pattern, as in path.Match; all for "".
func Select(pattern string) (list []Scenario, err error) {
	for _, sc := range Scenarios() {
		ok, err := path.Match(pattern, sc.Name)
		if err != nil {
			return nil, isotone.Errorf(isotone.CodeInvalidArgument, "pattern %.80q: %v", pattern, err)
		}
		if ok || pattern == "" {
			list = append(list, sc)
		}
	}
	if len(list) == 0 {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "no scenario has a name like %.80q", pattern)
	}
	return list, nil
}

// Run plays scenarios to a client. An error says that they could not all be played; the report has what was.
func Run(ctx context.Context, o Suite) (*Report, error) {
	if o.Parallel == 0 {
		o.Parallel = ParallelDefault
	}
	if o.Patience == 0 {
		o.Patience = PatienceDefault
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &runner{Suite: o, report: &Report{}}
	queue := make(chan Scenario)
	var work sync.WaitGroup
	for range min(o.Parallel, len(o.Scenarios)) {
		work.Go(func() {
			if err := r.work(ctx, queue); err != nil {
				cancel(err)
			}
		})
	}
	for _, sc := range byLength(o.Scenarios) {
		select {
		case queue <- sc:
		case <-ctx.Done():
		}
	}
	close(queue)
	work.Wait()
	slices.SortStableFunc(r.report.Outcomes, func(a, b Outcome) int { return place(o.Scenarios, a.Name) - place(o.Scenarios, b.Name) })
	return r.report, context.Cause(ctx)
}

// byLength returns the scenarios, those that take long first, so that they do not all come last.
func byLength(list []Scenario) []Scenario {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b Scenario) int { return slow(b) - slow(a) })
	return list
}

// slowRules are those whose scenarios take ten seconds.
var slowRules = rules("C46", "C69", "C74")

func slow(sc Scenario) int {
	if slices.ContainsFunc(sc.Rules, func(rule string) bool { return slices.Contains(slowRules, rule) }) {
		return 1
	}
	return 0
}

func place(list []Scenario, name string) int {
	return slices.IndexFunc(list, func(sc Scenario) bool { return sc.Name == name })
}

// scenarioMax bounds a scenario, in patiences: none waits for more than some events that a client may miss.
const scenarioMax = 6

// runner is the state of a run.
type runner struct {
	Suite
	mu     sync.Mutex
	report *Report
}

// work plays scenarios of the queue to a driver of its own. One that has ended is started again.
func (r *runner) work(ctx context.Context, queue <-chan Scenario) error {
	var d *driver
	defer func() {
		if d != nil {
			d.stop()
		}
	}()
	for sc := range queue {
		if d == nil {
			var err error
			// Beginning is the driver's, and no client's, so a short patience is not for it.
			if d, err = startDriver(ctx, r.Driver, max(r.Patience, PatienceDefault)); err != nil {
				return err
			}
		}
		// A driver that does not read its input would have the kit wait for ever.
		watch := time.AfterFunc(scenarioMax*r.Patience, d.kill)
		out := present(ctx, d, sc, r.Patience, nil)
		watch.Stop()
		if ctx.Err() != nil {
			return nil
		}
		r.add(d.hello, out)
		if !out.Passed && out.Skipped == "" {
			d.kill() // whatever the client still does must not disturb others
			d.stop()
			d = nil
		}
	}
	return nil
}

func (r *runner) add(client Result, o Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rep := r.report
	rep.Client, rep.Version, rep.Features = client.Client, client.Version, client.Features
	rep.Outcomes = append(rep.Outcomes, o)
	switch {
	case o.Skipped != "":
		rep.Skipped++
	case o.Passed:
		rep.Passed++
	default:
		rep.Failed++
	}
	if r.Done != nil {
		r.Done(o)
	}
}

// present plays one scenario. log, if not nil, is called with each event.
func present(ctx context.Context, d *driver, sc Scenario, patience time.Duration, log func(string)) (o Outcome) {
	o.Scenario = sc
	if feature := d.lacks(sc.Needs); feature != "" {
		o.Skipped = "the client has no " + feature
		return o
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := newStage(ctx, d, sc.Name, patience, log)
	began := time.Now()
	d.serve(s.deliver)
	s.perform(sc)
	cancel()
	s.close()
	d.serve(nil)
	o.Took = time.Since(began)
	o.TookMS = o.Took.Milliseconds()
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.Faults = s.faults; len(o.Faults) > 0 {
		o.Trace = s.trace
	}
	o.Skipped = s.skipped
	o.Passed = len(o.Faults) == 0 && o.Skipped == ""
	return o
}

// perform plays the script, and closes the clients.
func (s *stage) perform(sc Scenario) {
	defer func() {
		switch end := recover().(type) {
		case nil:
		case broken:
			rule := sc.Rules[0]
			select {
			case <-s.driver.ended:
				rule = "driver"
			default:
			}
			s.blame(rule, "%s", end.text)
		case skipped:
			s.skipped = end.why
		default:
			panic(end)
		}
	}()
	sc.play(s)
	for name := range s.clients {
		s.begin(Command{Do: "close", Client: name}).wait()
	}
}

// Serve plays one scenario to a driver at in and out, and logs each event.
func Serve(ctx context.Context, sc Scenario, in io.Reader, out io.WriteCloser, patience time.Duration, log func(string)) (Outcome, error) {
	d := newDriver(out)
	go d.read(in)
	if err := d.greet(ctx, patience); err != nil {
		return Outcome{}, err
	}
	o := present(ctx, d, sc, patience, log)
	if o.Skipped != "" {
		return o, fmt.Errorf("the scenario was skipped: %s", o.Skipped)
	}
	return o, context.Cause(ctx)
}

// Err returns an error unless all scenarios have passed that were played.
func (r *Report) Err() error {
	switch {
	case r.Failed > 0:
		return fmt.Errorf("%d of %d scenarios failed", r.Failed, r.Failed+r.Passed)
	case r.Passed == 0:
		return errors.New("no scenario was played")
	}
	return nil
}
