// Command record runs what the ledgers in docs/evidence are about, and adds a line to them. In the root of the repository:
//
//	go run ./internal/check/evidence/record sim --seed N --runs N     # simulations, by two processes; --minutes N ends them earlier
//	go run ./internal/check/evidence/record fuzz PACKAGE TARGET N     # a campaign that .ci/fuzz has run
//	go run ./internal/check/evidence/record flakes totals [-race]     # how often tests ran in the present state; .ci/flakes adds to it
//
// sim and fuzz note the present commit, unless sources have changed since. sim also notes which state of the core it is, and updates the totals in docs/correctness.md.
// It fails if a run broke a promise, and records nothing if the simulator itself failed.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/isotone/isotone/internal/check/evidence"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) > 0 && args[0] == "sim":
		flags := flag.NewFlagSet("sim", flag.ContinueOnError)
		seed := flags.Uint64("seed", 0, "the first seed")
		runs := flags.Uint64("runs", 2000, "number of runs")
		minutes := flags.Uint64("minutes", 0, "end after this many minutes; 0: when all runs have ended")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return recordSim(*seed, *runs, *minutes)
	case len(args) > 0 && args[0] == "flakes":
		return flakes(args[1:])
	case len(args) == 4 && args[0] == "fuzz":
		n, err := strconv.ParseUint(args[3], 10, 64)
		if err != nil {
			return err
		}
		return evidence.AppendFuzz(".", evidence.Fuzz{Commit: evidence.Commit("."), Package: args[1], Target: args[2], Executions: n})
	}
	return errors.New("want sim --seed N --runs N, fuzz PACKAGE TARGET N, or flakes totals")
}

// summary is what isotone sim --json prints.
type summary struct {
	Runs, Operations, Answered, Terms, IDs uint64
	Simulated                              time.Duration
	Violations                             []struct {
		Seed      uint64
		Violation string
	}
}

func recordSim(seed, runs, minutes uint64) error {
	core, err := evidence.Core(".")
	if err != nil {
		return err
	}
	at := evidence.Commit(".")
	sim := exec.Command("go", "run", "./cmd/isotone", "sim", "--json", "--workers", "2", "--seed", fmt.Sprint(seed), "--runs", fmt.Sprint(runs), "--minutes", fmt.Sprint(minutes))
	sim.Stderr = os.Stderr
	out, failed := sim.Output()
	var s summary
	if err := json.Unmarshal(out, &s); err != nil {
		return errors.Join(failed, fmt.Errorf("the output of isotone sim --json: %w", err))
	}
	if failed != nil && len(s.Violations) == 0 || s.Runs == 0 {
		return fmt.Errorf("nothing is recorded: isotone sim: %w", cmp.Or(failed, errors.New("no run was complete")))
	}
	if now, err := evidence.Core("."); err != nil || now != core {
		return errors.Join(errors.New("nothing is recorded: the core has changed meanwhile"), err)
	}
	var note []string
	for _, v := range s.Violations {
		note = append(note, fmt.Sprintf("seed %d: %.100s", v.Seed, v.Violation))
	}
	fmt.Printf("%d runs, %v simulated, %d operations, %d violations\n", s.Runs, s.Simulated.Round(time.Second), s.Operations, len(s.Violations))
	err = evidence.AppendSim(".", evidence.Sim{
		Core: core, Commit: at, Seed: seed, Runs: s.Runs, Hours: s.Simulated.Hours(), Operations: s.Operations, Answered: s.Answered,
		Terms: s.Terms, IDs: s.IDs, Violations: uint64(len(s.Violations)), Note: strings.Join(note, "; "),
	})
	if err == nil {
		err = evidence.UpdatePage(".")
	}
	if len(note) > 0 {
		err = errors.Join(err, errors.New(note[0]))
	}
	return err
}
