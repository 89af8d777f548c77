// Verify runs "isotone verify" on systems of which is known whether they are right, and prints what it found. It exits with 1
// unless it found all that is wrong and nothing else. Run it in the root of the repository:
//
//	go run ./bench/verify [-minutes 10] [-only PATTERN] [-list]
//
// Systems that are wrong are nodes of Isotone with one deliberate bug each (package mutant), and others with known defects. A run
// ends with the first wrong answer, at the latest after so many minutes; systems that are right run for all of that time. With
// RECORD=1 each run is a line in docs/evidence/storms.csv.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/isotone/isotone/internal/check/evidence"
	"github.com/isotone/isotone/internal/check/verify"
)

// subject is a system and how it is run.
type subject struct {
	name  string
	args  []string // of isotone verify
	wrong bool
}

// mutants are bugs that show within minutes, with settings of the nodes and what else the run takes. Those of leases are not among them: their harm
// lasts for a tick or two, which real processes hardly ever show; the simulator finds them.
var mutants = []struct {
	name, settings string
	args           []string
}{
	{name: "confirm-by-too-few"},
	{name: "ignore-limit", args: []string{"--option=numbers=interval"}},
	{name: "index-restarts"},
	{name: "keep-allocator"},
	{name: "keep-epoch-reset-index", settings: ",EPOCH_INTERVAL_MS=5000"},
	{name: "merge-terms", args: []string{"--option=numbers=interval"}},
	{name: "no-round"},
	{name: "no-wait", settings: ",INTERVAL_MS=2000", args: []string{"--option=numbers=interval", "--faults=kill,partition"}},
	{name: "range-overlaps"},
	{name: "range-overlaps-64", args: []string{"--option=numbers=timestamps64"}},
	{name: "reuse-round-number"},
	{name: "same-time-64", args: []string{"--option=numbers=timestamps64"}},
}

func subjects(mutated string) (list []subject) {
	list = []subject{
		{name: "isotone", args: []string{"--count=8"}},
		{name: "isotone/lease", args: []string{"--count=8", "--option=mode=lease"}},
		{name: "isotone/64", args: []string{"--count=8", "--option=numbers=timestamps64"}},
		{name: "isotone/ids", args: []string{"--option=numbers=ids"}},
		{name: "isotone/interval", args: []string{"--option=numbers=interval"}},
		{name: "redis/always", args: []string{"--system=redis", "--option=appendonly=always", "--faults=kill,term,pause"}},
		{name: "redis/no", args: []string{"--system=redis", "--option=appendonly=no", "--faults=kill"}, wrong: true},
		{name: "postgres", args: []string{"--system=postgres", "--faults=kill", "--clients=64"}, wrong: true},
		{name: "postgres/standby", args: []string{"--system=postgres", "--nodes=2", "--option=failover=2", "--faults=kill,pause"}, wrong: true},
	}
	for _, m := range mutants {
		args := []string{"--count=8", "--option=binary=" + mutated, "--option=env=ISOTONE_MUTANT=" + m.name + m.settings}
		list = append(list, subject{name: "mutant/" + m.name, args: append(args, m.args...), wrong: true})
	}
	return list
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	minutes := flag.Float64("minutes", 10, "how long a run lasts at most")
	only := flag.String("only", "*", "systems with such names; * stands for anything but /")
	list := flag.Bool("list", false, "print the names of all systems")
	flag.Parse()
	if *list {
		for _, s := range subjects("") {
			fmt.Println(s.name)
		}
		return
	}
	if err := run(ctx, os.Stdout, *only, time.Duration(*minutes*float64(time.Minute))); err != nil {
		fmt.Fprintln(os.Stderr, "verify:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, only string, length time.Duration) (err error) {
	dir, err := os.MkdirTemp("", "isotone-verify-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	isotone, mutated := filepath.Join(dir, "isotone"), filepath.Join(dir, "isotone-mutants")
	if err := errors.Join(build(ctx, isotone), build(ctx, mutated, "-tags=mutants")); err != nil {
		return err
	}
	var errs []error
	for _, s := range subjects(mutated) {
		if ok, err := path.Match(only, s.name); err != nil {
			return err
		} else if !ok && only != "*" || ctx.Err() != nil {
			continue
		}
		errs = append(errs, try(ctx, out, isotone, s, length))
	}
	return errors.Join(append(errs, ctx.Err())...)
}

func build(ctx context.Context, file string, flags ...string) error {
	out, err := exec.CommandContext(ctx, "go", append(append([]string{"build", "-o", file}, flags...), "./cmd/isotone")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// try runs one system.
func try(ctx context.Context, out io.Writer, isotone string, s subject, length time.Duration) error {
	args := append([]string{"verify", "--json", "--until-broken", "--duration=" + length.String()}, s.args...)
	cmd := exec.CommandContext(ctx, isotone, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it ends its processes
	text, failed := cmd.Output()
	var r verify.Result
	if err := json.Unmarshal(text, &r); err != nil {
		var exit *exec.ExitError
		if errors.As(failed, &exit) {
			failed = fmt.Errorf("%w: %s", failed, exit.Stderr)
		}
		return fmt.Errorf("%s: %w", s.name, errors.Join(failed, err))
	}
	verdict := "held: " + string(r.Held())
	if r.Broken() {
		verdict = fmt.Sprintf("broken; held: %q", r.Held())
	}
	fmt.Fprintf(out, "%-32s %6.1f s  %9d answers  %4d faults  %s\n", s.name, r.Seconds, r.Answers, len(r.Faults), verdict)
	if ctx.Err() != nil {
		return nil
	}
	if os.Getenv("RECORD") != "" {
		if err := record(s, &r, verdict); err != nil {
			return err
		}
	}
	if r.Broken() != s.wrong {
		return fmt.Errorf("%s: %s", s.name, verdict)
	}
	return nil
}

// record adds a line to the ledger.
func record(s subject, r *verify.Result, verdict string) error {
	settings := slices.DeleteFunc(slices.Clone(s.args), func(arg string) bool { return strings.HasPrefix(arg, "--option=binary=") })
	line := evidence.Storm{
		Commit: evidence.Commit("."), Command: "isotone verify", Settings: strings.Join(append(settings, fmt.Sprint("--seed=", r.Seed)), " "),
		Took: time.Duration(r.Seconds * float64(time.Second)), Faults: fmt.Sprintf("%d faults", len(r.Faults)),
		Operations: r.Answers + r.Failed, Answered: r.Answers,
		Note: fmt.Sprintf("%s %s; %s after %.0f s", r.System, r.Version, verdict, r.Seconds),
	}
	for _, v := range r.Verdicts {
		if v.Promised {
			line.Violations += v.Violations
		}
	}
	return evidence.AppendStorm(".", line)
}
