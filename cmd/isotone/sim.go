package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"time"

	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/sim"
	"github.com/isotone/isotone/internal/inspect/protocoltrace"
	"github.com/isotone/isotone/spec"
)

type simCmd struct {
	Seed     uint64        `name:"seed" placeholder:"N" help:"Seed of the first run. The same seed gives the same run."`
	Runs     uint64        `name:"runs" default:"1" help:"Number of runs, with consecutive seeds."`
	Minutes  float64       `name:"minutes" placeholder:"N" help:"Stop after this many minutes, whatever --runs says. 0: no limit. The command fails if no run was complete by then."`
	Duration time.Duration `name:"duration" help:"How long faults last in a run, in simulated time. Default: drawn from the seed."`
	Workers  int           `name:"workers" default:"1" help:"Number of processes that share the runs."`
	Trace    bool          `name:"trace" help:"Print every event of a run. Needs --runs 1."`
	JSON     bool          `name:"json" help:"Print the summary as JSON."`
	Part     bool          `name:"part" hidden:"" help:"Print a line of JSON for each run, for a parent process."`
	Stride   uint64        `name:"stride" default:"1" hidden:"" help:"Distance between consecutive seeds."`
}

// simMinutesMax is some two years, which a time.Duration holds.
const simMinutesMax = 1e6

// simRun is the outcome of one run, as a worker process reports it.
type simRun struct {
	Seed      uint64
	Hash      uint64
	Stats     sim.Stats
	Coverage  *sim.Coverage
	Events    uint64 // that the specification has checked
	Violation string `json:",omitempty"`
}

// simSummary is the outcome of all runs.
type simSummary struct {
	sim.Stats
	Hash       string            `json:"hash,omitempty"` // of a single run
	Faults     map[string]uint64 `json:"faults"`
	Violations []simRun          `json:"violations"`
	Events     uint64            `json:"events"` // that the specification has checked
	WallTime   time.Duration     `json:"wallTime"`
	coverage   sim.Coverage
	shown      time.Duration // when progress was last shown
}

// Run executes the runs, prints a summary, and fails if a promise was broken.
func (c *simCmd) Run(ctx context.Context, con console) error {
	if c.Runs == 0 || c.Workers < 1 {
		return usagef("--runs and --workers: want 1 or more")
	}
	if c.Trace && c.Runs > 1 {
		return usagef("--trace needs a single run: select it with --seed and leave --runs at 1")
	}
	if !(0 <= c.Minutes && c.Minutes <= simMinutesMax) { // not a number is refused as well
		return usagef("--minutes: want 0 to %d", int(simMinutesMax))
	}
	if c.Minutes > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(c.Minutes*float64(time.Minute)))
		defer cancel()
	}
	// The live heap is a few megabytes; at the default rate, collecting garbage takes a
	// third of the time.
	defer debug.SetGCPercent(debug.SetGCPercent(1000))
	began := time.Now()
	summary := simSummary{Violations: []simRun{}}
	report := func(r simRun) { c.add(con, &summary, r, time.Since(began)) }
	var err error
	if c.Workers == 1 {
		c.explore(ctx, con, report)
	} else {
		err = c.spread(ctx, con, report)
	}
	if c.Part {
		return err
	}
	summary.WallTime = time.Since(began)
	if err := c.print(con, &summary); err != nil {
		return err
	}
	if summary.Runs == 0 && err == nil {
		return errors.New("ended before one run was complete")
	}
	if n := len(summary.Violations); n > 0 {
		first := summary.Violations[0]
		return fmt.Errorf("%d of %d runs broke a promise; see the first with: isotone sim --trace --seed %d", n, summary.Runs, first.Seed)
	}
	return err
}

// explore executes the runs in this process.
func (c *simCmd) explore(ctx context.Context, con console, report func(simRun)) {
	for i := range c.Runs {
		if ctx.Err() != nil {
			return
		}
		seed := c.Seed + i*c.Stride
		o := sim.Options{Seed: seed, Duration: c.Duration, Lease: true}
		if c.Trace {
			o.Trace = con.out
		}
		report(runSim(o))
	}
}

// runSim executes a run, and holds each step of each replica against the specification.
func runSim(o sim.Options) simRun {
	check := spec.New()
	o.Observe = func(cfg replica.Config) replica.Observer {
		return protocoltrace.Observe(cfg, func(e spec.Event) { check.Step(e) })
	}
	r := sim.Run(o)
	out := simRun{Seed: o.Seed, Hash: r.Hash, Stats: r.Stats, Coverage: r.Coverage, Events: check.Events()}
	if r.Violation != nil {
		out.Violation = r.Violation.Error()
	} else if v := check.Violation(); v != nil {
		out.Violation = fmt.Sprintf("the specification does not permit a step: %v", v)
	}
	return out
}

// spread starts worker processes. A process executes one run at a time, because Raft's
// jitter is a global variable.
func (c *simCmd) spread(ctx context.Context, con console, report func(simRun)) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	runs := make(chan simRun)
	errs := make(chan error, c.Workers)
	for w := range uint64(c.Workers) {
		share := (c.Runs + uint64(c.Workers) - 1 - w) / uint64(c.Workers)
		go func() { errs <- c.worker(ctx, self, con, c.Seed+w, share, runs) }()
	}
	for left := c.Workers; left > 0; {
		select {
		case r := <-runs:
			report(r)
		case e := <-errs:
			left--
			if err == nil {
				err = e
			}
		}
	}
	return err
}

// worker starts one process with every Workers-th seed and passes on its reports.
func (c *simCmd) worker(ctx context.Context, self string, con console, first, count uint64, runs chan<- simRun) error {
	if count == 0 {
		return nil
	}
	cmd := exec.CommandContext(ctx, self, "sim", "--part", "--seed", fmt.Sprint(first), "--runs", fmt.Sprint(count),
		"--stride", fmt.Sprint(c.Workers), "--duration", c.Duration.String())
	cmd.Stderr = con.err
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	d := json.NewDecoder(out)
	for {
		var r simRun
		if err := d.Decode(&r); err != nil {
			break // the process has ended; Wait returns why
		}
		runs <- r
	}
	if err := cmd.Wait(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("a worker process failed: %w", err)
	}
	return nil
}

// add adds one run to the summary and shows progress.
func (c *simCmd) add(con console, s *simSummary, r simRun, passed time.Duration) {
	if c.Part {
		_ = json.NewEncoder(con.out).Encode(r)
		return
	}
	s.Stats.Add(r.Stats)
	s.Events += r.Events
	s.coverage.Add(r.Coverage)
	s.Hash = fmt.Sprintf("%016x", r.Hash)
	if r.Violation != "" {
		r.Coverage = nil
		s.Violations = append(s.Violations, r)
		fmt.Fprintf(con.err, "\nseed %d: %s\n", r.Seed, r.Violation)
	}
	s.progress(con.err, c.Runs, passed)
}

// progress shows how far the runs are: on a terminal in one line several times a second,
// otherwise a line twice a minute.
func (s *simSummary) progress(w io.Writer, runs uint64, passed time.Duration) {
	every, begin, end := 30*time.Second, "", "\n"
	if isTerminal(w) {
		every, begin, end = 200*time.Millisecond, "\r", "   "
	}
	if passed-s.shown < every {
		return
	}
	s.shown = passed
	fmt.Fprintf(w, "%s%d of %d runs, %v simulated, %d operations, %d violations, %v%s", begin, s.Runs, runs,
		s.Simulated.Round(time.Minute), s.Operations, len(s.Violations), passed.Round(time.Second), end)
}

func (c *simCmd) print(con console, s *simSummary) error {
	s.Faults = s.coverage.ByName()
	if c.JSON {
		e := json.NewEncoder(con.out)
		e.SetIndent("", "  ")
		return e.Encode(s)
	}
	fmt.Fprintln(con.err)
	w := io.Writer(con.out)
	fmt.Fprintf(w, "runs         %d", s.Runs)
	if s.Runs < c.Runs {
		fmt.Fprintf(w, " of %d: ended early", c.Runs)
	}
	fmt.Fprintln(w)
	fmt.Fprintf(w, "simulated    %v (%.0f s in each second of real time)\n", s.Simulated.Round(time.Second), s.Simulated.Seconds()/s.WallTime.Seconds())
	fmt.Fprintf(w, "operations   %d, answered %d, in %d terms\n", s.Operations, s.Answered, s.Terms)
	fmt.Fprintf(w, "ids          %d, under %d leases of workers, renewed %d times; %d taken over, %d given back, %d revoked, %d requests refused\n",
		s.IDs, s.WorkerGrants, s.WorkerRenewals, s.WorkerTakeovers, s.WorkerReleases, s.WorkerRevocations, s.WorkerRefusals)
	fmt.Fprintf(w, "intervals    %d read, %d timestamps made of them waited out; %d contradictions of clocks with wrong rates\n", s.Readings, s.Waited, s.Contradictions)
	fmt.Fprintf(w, "timelines    %d answers, %d changes by operators\n", s.Timelines, s.TimelineChanges)
	fmt.Fprintf(w, "sessions     %d answers, %d locks granted; %d of %d writes under locks and %d of %d stamped ones fenced; %d seals; %d sessions ended; %d times over a limit\n",
		s.SessionAnswers, s.LocksGranted, s.LockedFenced, s.LockedWrites, s.StampedFenced, s.StampedWrites, s.Seals, s.SessionsExpired, s.OverQuota)
	fmt.Fprintf(w, "Redis locks  %d answers, %d locks taken\n", s.RedisAnswers, s.RedisLocks)
	fmt.Fprintf(w, "steps        %d events, held against the specification\n", s.Events)
	if c.Runs == 1 {
		fmt.Fprintf(w, "hash         %s\n", s.Hash)
	}
	fmt.Fprintf(w, "violations   %d\n\nfaults\n", len(s.Violations))
	if _, err := s.coverage.WriteTo(w); err != nil {
		return err
	}
	if kinds, pairs := s.coverage.Missing(); c.Runs >= 1000 {
		fmt.Fprintf(w, "\nkinds that never occurred: %d, and pairs of kinds: %d\n", len(kinds), len(pairs))
		for _, pair := range pairs[:min(len(pairs), 10)] {
			fmt.Fprintf(w, "  %v with %v\n", pair[0], pair[1])
		}
		if more := len(pairs) - 10; more > 0 {
			fmt.Fprintf(w, "  … and %d more\n", more)
		}
	}
	return nil
}
