package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/isotone/isotone/internal/check/evidence"
)

// modulePath is before the names of all packages of the module.
const modulePath = "github.com/isotone/isotone"

// flakes does what .ci/flakes asks for.
func flakes(args []string) error {
	flags := flag.NewFlagSet("flakes", flag.ContinueOnError)
	race := flags.Bool("race", false, "with the race detector")
	commit := flags.String("commit", "", "the commit before the runs, as flakes commit prints it")
	seconds := flags.Uint64("seconds", 0, "how long the runs took")
	if len(args) == 0 {
		return errors.New("flakes: want commit, order, totals or add")
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	switch rest := flags.Args(); {
	case args[0] == "commit":
		fmt.Println(evidence.Clean("."))
		return nil
	case args[0] == "add" && len(rest) == 2:
		return addFlakes(evidence.Flakes{Package: name(rest[0]), Commit: *commit, Race: *race, Seconds: *seconds}, rest[1])
	case args[0] == "order", args[0] == "totals":
		list, err := evidence.ReadFlakes(".")
		if err != nil {
			return err
		}
		totals := evidence.Totals(evidence.Present(".", list), *race)
		if args[0] == "totals" {
			return evidence.WriteFlakes(os.Stdout, totals)
		}
		for i := range rest {
			rest[i] = name(rest[i])
		}
		evidence.Order(rest, totals)
		for _, p := range rest {
			fmt.Println(cmp.Or(strings.TrimSuffix("./"+p, "/."), "."))
		}
		return nil
	}
	return errors.New("flakes: want commit, order PACKAGE..., totals, or add PACKAGE FILE")
}

// name is a package as it stands in the ledgers: without the path of the module, and without the "./" that go test wants.
func name(pkg string) string {
	return cmp.Or(strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(pkg, modulePath), "/"), "./"), ".")
}

// addFlakes counts the runs of a package in what "go test -json" wrote to a file. It adds them to the ledger if there was a
// commit before them, which there is not for a part of the tests, and is the same one now, and prints a line for each failure, as "PACKAGE TEST TIMES".
func addFlakes(f evidence.Flakes, file string) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	var failed map[string]uint64
	if f.Runs, f.Failures, failed, err = evidence.CountRuns(in); err != nil {
		return err
	}
	note := ""
	switch {
	case f.Runs == 0:
	case f.Commit == "" || f.Commit != evidence.Clean("."):
		note = " (not recorded)"
	default:
		err = evidence.AppendFlakes(".", f)
	}
	fmt.Fprintf(os.Stderr, "%s: %d of %d runs failed, %d s%s\n", f.Package, f.Failures, f.Runs, f.Seconds, note)
	for _, test := range slices.Sorted(maps.Keys(failed)) {
		fmt.Println(f.Package, test, failed[test])
	}
	return err
}
