// Command record adds to the ledgers in docs/evidence. In the root of the repository:
//
//	isotone sim --json … | go run ./internal/check/evidence/record sim --seed N
//	go run ./internal/check/evidence/record fuzz PACKAGE TARGET EXECUTIONS
//
// Both note the present commit; sim also which state of the core it is. With changes that are not committed, the commit is empty.
package main

import (
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
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return recordSim(*seed)
	case len(args) == 4 && args[0] == "fuzz":
		n, err := strconv.ParseUint(args[3], 10, 64)
		if err != nil {
			return err
		}
		return evidence.AppendFuzz(".", evidence.Fuzz{Commit: commit(), Package: args[1], Target: args[2], Executions: n})
	}
	return errors.New("want sim --seed N, or fuzz PACKAGE TARGET EXECUTIONS")
}

// recordSim records the summary on the standard input, and passes it on.
func recordSim(seed uint64) error {
	var s struct {
		Runs, Operations, Answered, Terms, IDs uint64
		Simulated                              time.Duration
		Violations                             []struct {
			Seed      uint64
			Violation string
		}
	}
	if err := json.NewDecoder(os.Stdin).Decode(&s); err != nil {
		return fmt.Errorf("the output of isotone sim --json: %w", err)
	}
	core, err := evidence.Core(".")
	if err != nil {
		return err
	}
	var note []string
	for _, v := range s.Violations {
		note = append(note, fmt.Sprintf("seed %d: %.100s", v.Seed, v.Violation))
	}
	fmt.Printf("%d runs, %v simulated, %d operations, %d violations\n", s.Runs, s.Simulated.Round(time.Second), s.Operations, len(s.Violations))
	err = evidence.AppendSim(".", evidence.Sim{
		Core: core, Commit: commit(), Seed: seed, Runs: s.Runs, Hours: s.Simulated.Hours(), Operations: s.Operations, Answered: s.Answered,
		Terms: s.Terms, IDs: s.IDs, Violations: uint64(len(s.Violations)), Note: strings.Join(note, "; "),
	})
	if err == nil && len(note) > 0 {
		err = errors.New(note[0])
	}
	return err
}

// commit returns the present commit, or "" if files have changed since.
func commit() string {
	if err := exec.Command("git", "diff", "--quiet", "HEAD").Run(); err != nil {
		return ""
	}
	out, err := exec.Command("git", "rev-parse", "--short=8", "HEAD").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
