// Bank moves money between accounts of which one half is in Redis and the other in Postgres, by many
// clients at once, through package txn and an Isotone cluster. All the while it adds up all accounts
// in one snapshot: the total must never change, also while clients and leaders of the oracle are
// killed. README.md shows how to run it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/isotone/isotone/txn"
)

// Exit codes of a failure while running or a wrong total, and of an invalid command line.
const (
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, out, progress io.Writer) int {
	s, err := parseSettings(args, progress)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(progress, "bank: %v\nRun with --help for the flags.\n", err)
		return exitUsage
	}
	if err := demonstrate(ctx, s, out, progress); err != nil {
		fmt.Fprintf(progress, "bank: %v\n", err)
		return exitFailure
	}
	return 0
}

// demonstrate opens the stores and the oracle, and runs the bank.
func demonstrate(ctx context.Context, s settings, out, progress io.Writer) (err error) {
	stores, closeStores, err := openStores(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeStores()) }()
	o, err := openOracle(ctx, s, progress)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	b := &bank{settings: s, oracle: o, stores: stores, out: out}
	if s.kill && o.nodes != nil {
		b.killLeader = o.killLeader
	}
	return b.run(ctx)
}

// stores are the places where accounts are, by name.
type stores map[string]txn.Store
