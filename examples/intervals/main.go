// Intervals compares two ways to take the timestamp of a write in a cluster whose nodes are far apart:
// from the oracle, which is a request to the leader, and from the cluster clock, which is none. It
// runs three nodes of isotone as three regions, delays what passes between regions, and measures
// transactions in each region. README.md explains the results.
//
// It owns the nodes' processes, the delayed links, the load and the output. Everything listens on
// 127.0.0.1, and ends with the program.
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

	"github.com/isotone/isotone/internal/check/cluster"
)

// Exit codes of a failure while running, and of an invalid command line.
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
		fmt.Fprintf(progress, "intervals: %v\nRun with --help for the flags.\n", err)
		return exitUsage
	}
	if err := demonstrate(ctx, s, out, progress); err != nil {
		fmt.Fprintf(progress, "intervals: %v\n", err)
		return exitFailure
	}
	return 0
}

// demonstrate runs the cluster and the load, and prints the results, as a picture too if s names one.
func demonstrate(ctx context.Context, s settings, out, progress io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "isotone-intervals-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if s.binary == "" {
		fmt.Fprintln(progress, "building isotone")
		if s.binary, err = cluster.Build(ctx, dir); err != nil {
			return err
		}
	}
	r, err := measure(ctx, s, dir, progress)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(out, table(r)+"\n"+summary(r)); err != nil || s.picture == "" {
		return err
	}
	if err := os.WriteFile(s.picture, []byte(picture(s, r)), 0o644); err != nil {
		return fmt.Errorf("--svg: %w", err)
	}
	return nil
}

// measure starts the cluster, runs the load and stops the cluster. dir has the data and the logs of
// the nodes.
func measure(ctx context.Context, s settings, dir string, progress io.Writer) (r results, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	wires := newNetwork(ctx)
	defer wires.close()
	fmt.Fprintln(progress, "starting three nodes")
	c, stop, err := startCluster(ctx, s, wires, dir, cancel)
	if err != nil {
		return r, causeOr(ctx, err)
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := lead(ctx, c, s.binary); err != nil {
		return r, causeOr(ctx, err)
	}
	fmt.Fprintf(progress, "node 1 leads; measuring for %v\n", s.duration)
	r, err = load(ctx, s, wires, c)
	return r, causeOr(ctx, err)
}

// causeOr returns the error with which ctx was cancelled, or else err.
func causeOr(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
