// Joke is the lesson of distribution, balance and locality as one program: ten echo
// servers, each slow, single-threaded and with a cache for two answers, behind
// internal/proxy, with each of its strategies in turn under the same load. README.md
// tells what comes out, and why.
//
// It owns the workers, the load, and how the result is shown. The strategies are
// internal/balance's, and all requests go through the proxy.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes: a failure while running, and a command line that cannot be used.
const (
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal has its default effect
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run carries out one command line and returns the exit code.
func run(ctx context.Context, args []string, out, progress io.Writer) int {
	s, err := parseSettings(args, progress)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(progress, "joke: %v\nRun with --help for the flags.\n", err)
		return exitUsage
	}
	if err := tell(ctx, s, out, progress); err != nil {
		fmt.Fprintf(progress, "joke: %v\n", err)
		return exitFailure
	}
	return 0
}

// tell tries everything that s asks for and shows the result.
func tell(ctx context.Context, s settings, out, progress io.Writer) error {
	results, err := tryAll(ctx, s, progress)
	if err != nil {
		return err
	}
	if s.picture != "" {
		if err := os.WriteFile(s.picture, []byte(picture(s, results)), 0o644); err != nil {
			return fmt.Errorf("--svg: %w", err)
		}
	}
	if s.json {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(results)
	}
	_, err = io.WriteString(out, table(results)+"\n"+plot(results))
	return err
}
