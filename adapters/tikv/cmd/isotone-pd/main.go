// Command isotone-pd serves the timestamp part of PD's protocol from an Isotone cluster; see package
// gateway.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// Exit codes, as those of isotone: a failure while running, and an invalid command line.
const (
	exitFailure = 1
	exitUsage   = 2
)

const description = `Serve the timestamps of an Isotone cluster to clients of PD, TiKV's placement driver.

It serves GetMembers, GetClusterInfo and Tso of pdpb.PD, and nothing else of PD. Try it: "isotone dev", then
"isotone-pd --endpoint 127.0.0.1:8081", and point a client of PD at 127.0.0.1:2379.`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr, connect)) }

// run executes one command line and returns the exit code.
func run(args []string, out, errs io.Writer, dial dialer) int {
	var c command
	exited, code := false, 0
	parser, err := kong.New(&c, kong.Name("isotone-pd"), kong.Description(description), kong.Writers(out, errs),
		kong.Exit(func(n int) { exited, code = true, n }))
	if err != nil {
		panic(err) // the tags of the command are wrong
	}
	_, err = parser.Parse(args)
	if exited {
		return code // --help has been printed
	}
	if err != nil {
		fmt.Fprintf(errs, "isotone-pd: %v\nRun \"isotone-pd --help\" for its settings.\n", err)
		return exitUsage
	}
	log := c.logger(errs)
	signal.Ignore(syscall.SIGPIPE) // the reader of the log may go
	ctx, stop := interruptible()
	defer stop()
	if err := c.serve(ctx, dial, log); err != nil {
		fmt.Fprintf(errs, "isotone-pd: %v\n", err)
		if errors.As(err, new(usageError)) {
			return exitUsage
		}
		return exitFailure
	}
	return 0
}

func (c *command) logger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: slog.LevelInfo}
	if c.Debug {
		options.Level = slog.LevelDebug
	}
	if c.Pretty {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

// interruptible returns a context that SIGINT or SIGTERM cancels. A second signal ends the process at
// once.
func interruptible() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		select {
		case s := <-signals:
			cancel(errors.New(s.String()))
			signal.Stop(signals) // the next signal has its default effect
		case <-done:
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(nil)
	}
}

// usageError is a command line that can be parsed but is invalid.
type usageError string

func (e usageError) Error() string { return string(e) }

func usagef(format string, args ...any) error { return usageError(fmt.Sprintf(format, args...)) }
