// Storm restarts and kills three nodes on this machine, one after the other, while clients call them, and prints
// what each client saw. It exits with 1 unless every call was answered in time, and rightly, and with 130 after Ctrl-C.
// bench/clients-storm.sh runs it with the clients in all languages.
//
//	storm --isotone PATH [--rolls 100] [--kills 50] [--callers 8] [--deadline 2s] {-- DRIVER [ARG...]}
//
// conformance/README.md describes drivers. With RECORD=1 it adds a line for each client to docs/evidence/storms.csv.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/isotone/isotone/internal/check/conformance"
	"github.com/isotone/isotone/internal/check/evidence"
)

// timesMax bounds --rolls and --kills.
const timesMax = 10_000

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "storm:", err)
		switch {
		case ctx.Err() != nil:
			os.Exit(130)
		case errors.Is(err, errUsage):
			os.Exit(2)
		}
		os.Exit(1)
	}
}

// errUsage is the error of a command line that cannot be run.
var errUsage = errors.New("usage: storm --isotone PATH [FLAGS] {-- DRIVER [ARG...]}")

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	o, err := parse(args)
	if err != nil {
		return fmt.Errorf("%w\n%w", err, errUsage)
	}
	if o.Dir, err = os.MkdirTemp("", "isotone-storm-"); err != nil {
		return err
	}
	o.Log = func(event string) { fmt.Fprintln(os.Stderr, time.Now().Format(time.TimeOnly), event) }
	commit := evidence.Commit(".")
	report, err := conformance.RunStorm(ctx, o)
	if err == nil || ctx.Err() != nil {
		err = errors.Join(err, show(out, report), record(ctx, commit, o, report), report.Err())
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w\nthe data and the logs of the nodes are in %s", err, o.Dir)
	}
	return errors.Join(err, os.RemoveAll(o.Dir))
}

func parse(args []string) (o conformance.Storm, err error) {
	flags := flag.NewFlagSet("storm", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	isotone := flags.String("isotone", "", "the isotone command")
	flags.IntVar(&o.Rolls, "rolls", 100, "how often all nodes are restarted, one after the other")
	flags.IntVar(&o.Kills, "kills", 50, "how often a node is killed")
	flags.IntVar(&o.Callers, "callers", conformance.StormCallersDefault, "callers of each client")
	flags.DurationVar(&o.Deadline, "deadline", conformance.StormDeadlineDefault, "of each call")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.Isotone, o.Pause, o.Drivers = []string{*isotone}, conformance.StormPauseDefault, split(flags.Args())
	switch {
	case *isotone == "":
		return o, errors.New("--isotone: want the path of the command")
	case o.Rolls < 0 || o.Rolls > timesMax || o.Kills < 0 || o.Kills > timesMax || o.Rolls+o.Kills == 0:
		return o, fmt.Errorf("--rolls %d --kills %d: want 0 to %d, and not both 0", o.Rolls, o.Kills, timesMax)
	case o.Callers < 1 || o.Callers > 1000:
		return o, fmt.Errorf("--callers %d: want 1 to 1000", o.Callers)
	case o.Deadline < time.Millisecond || o.Deadline > time.Hour:
		return o, fmt.Errorf("--deadline %v: want 1ms to 1h", o.Deadline)
	case len(o.Drivers) == 0 || slices.ContainsFunc(o.Drivers, func(d []string) bool { return len(d) == 0 }):
		return o, errors.New("want a driver after each --")
	}
	return o, nil
}

// split returns the parts between which "--" stands.
func split(args []string) (parts [][]string) {
	for len(args) > 0 {
		end := slices.Index(args, "--")
		if end < 0 {
			end = len(args)
		}
		parts = append(parts, args[:end])
		args = args[min(end+1, len(args)):]
	}
	return parts
}

// show prints a table and the first faults.
func show(out io.Writer, r *conformance.StormReport) error {
	fmt.Fprintf(out, "%d restarts and %d kills, %d of them of the leader, in %v\n\n", r.Restarts, r.Kills, r.Leaders, r.Took.Round(time.Second))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "client\tcalls\tfailed\twrong\tIDs\tslowest call\tafter")
	for _, c := range r.Clients {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%v\t%s\n", c.Client, c.Calls, c.Failed, c.Wrong, c.IDs, c.Slowest.Round(time.Millisecond), c.During)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, c := range r.Clients {
		for _, fault := range c.Faults {
			fmt.Fprintf(out, "%s: %s\n", c.Client, fault)
		}
	}
	return nil
}

// record adds a line for each client to the ledger, unless the storm was interrupted.
func record(ctx context.Context, commit string, o conformance.Storm, r *conformance.StormReport) error {
	if os.Getenv("RECORD") == "" || ctx.Err() != nil {
		return nil
	}
	var errs []error
	for _, c := range r.Clients {
		errs = append(errs, evidence.AppendStorm(".", evidence.Storm{
			Commit: commit, Command: "make clients-storm", Settings: fmt.Sprintf("%s, deadlines of %v", c.Client, o.Deadline), Took: r.Took,
			Faults:     fmt.Sprintf("%d restarts and %d kills, %d of them of the leader", r.Restarts, r.Kills, r.Leaders),
			Operations: c.Calls, Answered: c.Calls - c.Failed, IDs: c.IDs, Violations: c.Wrong,
			Note: fmt.Sprintf("%d calls failed; %v at most for a call", c.Failed, c.Slowest.Round(time.Millisecond)),
		}))
	}
	return errors.Join(errs...)
}
