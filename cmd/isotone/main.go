// Command isotone runs and operates the Isotone timestamp oracle. Each subcommand
// has a file of its own; what it does is wiring, and the work is done in the
// packages that it wires together.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/isotone/isotone/internal/host/telemetry"
)

// Exit codes: a failure while running, and a command line or setting that cannot be
// used.
const (
	exitFailure = 1
	exitUsage   = 2
)

// cli is the command line. Every subcommand is a struct with a Run method.
type cli struct {
	Serve   serveCmd   `cmd:"" help:"Run one node. With nothing set it is a working oracle of one node."`
	Dev     devCmd     `cmd:"" help:"Run three nodes in this process on 127.0.0.1, to try things out."`
	Sim     simCmd     `cmd:"" help:"Simulate clusters under faults, and check every promise."`
	Bench   benchCmd   `cmd:"" help:"Load a cluster, measure it, and check every answer."`
	Proxy   proxyCmd   `cmd:"" help:"Forward HTTP requests to backends, or timestamps to a cluster."`
	Status  statusCmd  `cmd:"" help:"Show the leader and every member of a running cluster."`
	Upgrade upgradeCmd `cmd:"" help:"Show or finalize the upgrade of a cluster to a newer version."`
	Stats   statsCmd   `cmd:"" help:"Read logs of requests: what they cost, and how many workers a core can keep busy."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

// console is where a subcommand writes.
type console struct{ out, err io.Writer }

func main() {
	os.Exit(run(os.Args[1:], console{os.Stdout, os.Stderr}))
}

// run carries out one command line and returns the exit code.
func run(args []string, con console) int {
	args = spelled(args)
	var c cli
	exited, code := false, 0
	parser, err := kong.New(&c,
		kong.Name("isotone"),
		kong.Description("Isotone hands out unique, strictly increasing timestamps in real-time order.\n\n"+
			"Try it: \"isotone dev\", then \"curl 127.0.0.1:8081/timestamp?format=json\"."),
		kong.Writers(con.out, con.err),
		kong.Exit(func(n int) { exited, code = true, n }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
	if err != nil {
		panic(err) // the structs above are wrong
	}
	ctx, err := parser.Parse(args)
	if exited {
		return code // --help has been printed
	}
	if err != nil {
		fmt.Fprintln(con.err, misspelled(parser.Model, args, err))
		return exitUsage
	}
	sig, stop := interruptible()
	defer stop()
	ctx.BindTo(sig, (*context.Context)(nil))
	if err := ctx.Run(con); err != nil {
		complain(con.err, err)
		if errors.As(err, new(usageError)) {
			return exitUsage
		}
		return exitFailure
	}
	return 0
}

// spelled returns args as the parser wants them. "help" and "--version" are what people
// try first.
func spelled(args []string) []string {
	switch {
	case len(args) == 0:
		return []string{"--help"}
	case args[0] == "help":
		return append(slices.Clone(args[1:]), "--help")
	case args[0] == "--version":
		return append([]string{"version"}, args[1:]...)
	}
	return joinNegative(args)
}

// misspelled says what is wrong with a command line that cannot be parsed, and where to
// look.
func misspelled(app *kong.Application, args []string, err error) string {
	const general = "Run \"isotone --help\" for the commands, \"isotone COMMAND --help\" for their settings."
	text := fmt.Sprintf("isotone: %v\n", err)
	switch {
	case slices.ContainsFunc(app.Children, func(n *kong.Node) bool { return n.Name == args[0] }):
		return text + fmt.Sprintf("Run \"isotone %s --help\" for its settings.", args[0])
	case strings.HasPrefix(args[0], "-"):
		return text + general
	}
	return strings.Replace(text, "unexpected argument", "unknown command", 1) + general
}

// complainTimeout bounds the wait for whoever reads why a command has failed: a supervisor
// that is to start it again waits for its end.
const complainTimeout = 5 * time.Second

func complain(w io.Writer, err error) {
	said := make(chan struct{})
	go func() {
		defer close(said)
		fmt.Fprintf(w, "isotone: %v\n", err)
	}()
	timer := time.NewTimer(complainTimeout)
	defer timer.Stop()
	select {
	case <-said:
	case <-timer.C:
	}
}

// joinNegative turns "--flag -1" into "--flag=-1": the parser would take the number for
// another flag, and not say which setting is wrong.
func joinNegative(args []string) []string {
	var joined []string
	for _, a := range args {
		last := len(joined) - 1
		if len(a) > 1 && a[0] == '-' && '0' <= a[1] && a[1] <= '9' &&
			last >= 0 && strings.HasPrefix(joined[last], "--") && !strings.Contains(joined[last], "=") {
			joined[last] += "=" + a
			continue
		}
		joined = append(joined, a)
	}
	return joined
}

// usageError is a command line that can be parsed and makes no sense.
type usageError string

func (e usageError) Error() string { return string(e) }

func usagef(format string, args ...any) error { return usageError(fmt.Sprintf(format, args...)) }

// startLog starts the log of what serves others. Whoever reads it may be slow, end, or begin
// anew, and the service goes on; without Ignore writing to a pipe that nobody reads any more
// would end the process (SIGPIPE). What libraries say on the standard log goes there as well,
// at level debug: net/http would hold a lock while it waits for the reader.
func startLog(w io.Writer, o telemetry.LogOptions) *telemetry.Log {
	signal.Ignore(syscall.SIGPIPE)
	log := telemetry.StartLog(w, o)
	slog.SetLogLoggerLevel(slog.LevelDebug)
	slog.SetDefault(log.Logger)
	return log
}

// interruptible returns a context that SIGINT or SIGTERM ends. A second signal ends
// the process at once.
func interruptible() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		select {
		case s := <-signals:
			cancel(errors.New(s.String()))
			signal.Stop(signals) // the next one has its default effect
		case <-done:
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(nil)
	}
}
