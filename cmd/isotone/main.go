// Command isotone runs and operates the Isotone timestamp oracle. Each subcommand
// has its own file, which only wires packages together.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/telemetry"
	"github.com/isotone/isotone/internal/operator"
)

// Exit codes: a failure while running, and an invalid command line or setting.
const (
	exitFailure = 1
	exitUsage   = 2
)

// cli is the command line. Every subcommand is a struct with a Run method.
type cli struct {
	Serve       serveCmd       `cmd:"" help:"Run one node. Without any settings it is a complete oracle of one node."`
	Dev         devCmd         `cmd:"" help:"Run three nodes on 127.0.0.1 in this process, to try things out."`
	Demo        demoCmd        `cmd:"" help:"Show what Isotone does: kill leaders under load, for instance."`
	Sim         simCmd         `cmd:"" help:"Simulate clusters under faults and check every promise."`
	Bench       benchCmd       `cmd:"" help:"Load a cluster, measure it and check every answer."`
	Proxy       proxyCmd       `cmd:"" help:"Forward HTTP requests or TCP connections to backends, or timestamps to a cluster."`
	Verify      verifyCmd      `cmd:"" help:"Test a timestamp oracle, of whatever make, under faults, and write a report."`
	Conformance conformanceCmd `cmd:"" help:"Check that a client, in any language, keeps the rules of clients."`
	Timestamp   timestampCmd   `cmd:"" help:"Print timestamps of a running cluster."`
	ID          idCmd          `cmd:"" name:"id" help:"Print Snowflake IDs of a running cluster."`
	Lock        lockCmd        `cmd:"" help:"Run a command while holding a lock, and end it in time if the lock is lost."`
	Locks       locksCmd       `cmd:"" help:"List the locks that are held, and break one."`
	Frontier    frontierCmd    `cmd:"" help:"Follow the frontier of a group of writers, wait for it, and show what it waits for."`
	Decode      decodeCmd      `cmd:"" help:"Explain timestamps, IDs and cluster IDs."`
	Status      statusCmd      `cmd:"" help:"Show the leader and every member of a running cluster."`
	Ready       readyCmd       `cmd:"" help:"Succeed if a node is ready: for the health checks of containers and scripts."`
	Drain       drainCmd       `cmd:"" help:"Stop a node gently: its clients go elsewhere, leadership moves, then it ends."`
	Doctor      doctorCmd      `cmd:"" help:"Check the machine of a node, and a running cluster: what is wrong, and what to do."`
	Member      memberCmd      `cmd:"" help:"List, add, promote, remove, replace and move the members of a running cluster."`
	Worker      workerCmd      `cmd:"" help:"List the worker leases of a running cluster, and revoke one."`
	Leader      leaderCmd      `cmd:"" help:"Show or transfer the leadership."`
	Floor       floorCmd       `cmd:"" help:"Move the timestamps of a running cluster ahead."`
	Timeline    timelineCmd    `cmd:"" help:"List, create, change and delete timelines: orders of timestamps beside the default one."`
	Group       groupCmd       `cmd:"" help:"List, create, move and remove the groups of timelines, which change hands together."`
	Init        initCmd        `cmd:"" help:"Permit the first start of a node with REQUIRE_DATA in an empty data directory."`
	Backup      backupCmd      `cmd:"" help:"Write a backup of a running cluster, or of a stopped node."`
	Restore     restoreCmd     `cmd:"" help:"Prepare an empty data directory to form a new cluster from a backup."`
	Recover     recoverCmd     `cmd:"" help:"Make a new cluster of the data directory of the only node that is left."`
	Cert        certCmd        `cmd:"" help:"Make the certificates of nodes and clients, and revoke them."`
	User        userCmd        `cmd:"" help:"Make the hash of a user's secret, and check a list of users."`
	Upgrade     upgradeCmd     `cmd:"" help:"Show or finalize the upgrade of a cluster to a newer version."`
	Stats       statsCmd       `cmd:"" help:"Analyse request logs: what requests cost, and how many workers a core can keep busy."`
	Version     versionCmd     `cmd:"" help:"Print the version."`
	Completion  completionCmd  `cmd:"" help:"Print a script that has bash, zsh or fish complete command lines."`
	Complete    completeCmd    `cmd:"" hidden:"" help:"For these scripts: print what may follow."`
	Man         manCmd         `cmd:"" hidden:"" help:"Write the manual pages."`
}

// console is the standard output and error of a subcommand.
type console struct{ out, err io.Writer }

// tell writes a line about what a command waits for or has done.
func (c console) tell(text string) { fmt.Fprintln(c.err, text) }

func main() {
	os.Exit(run(os.Args[1:], console{os.Stdout, os.Stderr}))
}

// run executes one command line and returns the exit code.
func run(args []string, con console) int {
	args = normalize(args)
	var c cli
	exited, code := false, 0
	parser, err := newParser(&c, args,
		kong.Name("isotone"),
		kong.Description("Isotone hands out unique, strictly increasing timestamps in real-time order.\n\n"+
			"Try it: \"isotone dev\", then \"curl 127.0.0.1:8081/timestamp?format=json\"."),
		kong.Writers(con.out, con.err),
		kong.Exit(func(n int) { exited, code = true, n }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
	if err != nil {
		panic(err) // the tags of the commands are wrong
	}
	ctx, err := parser.Parse(args)
	if exited {
		return code // --help has been printed
	}
	if err == nil {
		err = cmp.Or(refuseRepeated(ctx), refuseEmpty(ctx))
	}
	if err != nil {
		fmt.Fprintln(con.err, config.Redact(parseHint(parser.Model, args, err)))
		return exitUsage
	}
	sig, stop := interruptible()
	defer stop()
	ctx.BindTo(sig, (*context.Context)(nil))
	if err := ctx.Run(con); err != nil {
		var exit exitCode
		if errors.As(err, &exit) {
			if exit.err != nil {
				printError(con.err, exit.err)
			}
			return exit.code
		}
		printError(con.err, err)
		if errors.As(err, new(usageError)) {
			return exitUsage
		}
		return exitFailure
	}
	return 0
}

// exitCode has isotone exit with a code of its own. Without err it has said why.
type exitCode struct {
	code int
	err  error
}

// Error returns what is to be said.
func (e exitCode) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

// newParser returns a parser of args into c. It knows no other command than the one that args name, because to describe all
// of them takes longer than most commands run. Those that tell of the others have them all, as has the help of isotone itself.
func newParser(c *cli, args []string, options ...kong.Option) (*kong.Kong, error) {
	all := reflect.ValueOf(c).Elem()
	for i := range all.NumField() {
		field := all.Type().Field(i)
		if name := strings.ToLower(field.Name); name == args[0] && name != "completion" && name != "complete" && name != "man" {
			return kong.New(&struct{}{}, append(options, kong.DynamicCommand(name, field.Tag.Get("help"), "", all.Field(i).Addr().Interface()))...)
		}
	}
	return kong.New(c, options...)
}

// refuseRepeated refuses a flag that is given twice and takes one value: the parser would take the last one.
func refuseRepeated(ctx *kong.Context) error {
	given := map[*kong.Flag]bool{}
	for _, p := range ctx.Path {
		if p.Flag == nil || p.Resolved || p.Flag.Target.Kind() == reflect.Slice || p.Flag.Target.Kind() == reflect.Map {
			continue
		}
		if given[p.Flag] {
			return fmt.Errorf("--%s is given twice, and takes one value", p.Flag.Name)
		}
		given[p.Flag] = true
	}
	return nil
}

// refuseEmpty refuses a flag that takes a list and is given none, as by a variable of a shell that is not set: the command would do
// what it does without the flag.
func refuseEmpty(ctx *kong.Context) error {
	for _, p := range ctx.Path {
		if p.Flag != nil && !p.Resolved && p.Flag.Target.Kind() == reflect.Slice && p.Flag.Target.Len() == 0 {
			return fmt.Errorf("--%s is empty", p.Flag.Name)
		}
	}
	return nil
}

// normalize returns args in the form that the parser expects. People try "help" and
// "--version" first.
func normalize(args []string) []string {
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

// parseHint describes why a command line cannot be parsed, and where to find help.
func parseHint(app *kong.Application, args []string, err error) string {
	const general = "Run \"isotone --help\" for the commands, \"isotone COMMAND --help\" for their settings."
	text := fmt.Sprintf("isotone: %v\n", err)
	if strings.Contains(text, "unknown flag --password,") || strings.Contains(text, "unknown flag --password\n") {
		return text + noPasswordFlag
	}
	node := app.Node
	for _, name := range args {
		i := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == name })
		if i < 0 {
			break
		}
		node = node.Children[i]
	}
	switch {
	case node != app.Node:
		if _, found, _ := strings.Cut(err.Error(), "unexpected argument "); strings.Contains(found, ":") && slices.ContainsFunc(node.Flags, func(f *kong.Flag) bool { return f.Name == "endpoint" }) {
			text += "An address is named with --endpoint.\n"
		}
		return text + fmt.Sprintf("Run \"isotone %s --help\" for its settings.", strings.TrimPrefix(node.Path(), app.Name+" "))
	case strings.HasPrefix(args[0], "-"):
		return text + general
	}
	return strings.Replace(text, "unexpected argument", "unknown command", 1) + general
}

// errorTimeout bounds the wait for a slow reader of the error: a supervisor that restarts
// the command waits for its exit.
const errorTimeout = 5 * time.Second

func printError(w io.Writer, err error) {
	written := make(chan struct{})
	go func() {
		defer close(written)
		fmt.Fprintf(w, "isotone: %s\n", config.Redact(err.Error()))
	}()
	timer := time.NewTimer(errorTimeout)
	defer timer.Stop()
	select {
	case <-written:
	case <-timer.C:
	}
}

// joinNegative turns "--flag -1" into "--flag=-1". Otherwise the parser takes the number
// for another flag and does not name the setting that is wrong.
func joinNegative(args []string) []string {
	var joined []string
	for _, a := range args {
		last := len(joined) - 1
		if slices.Contains(joined, "--") { // no flags follow
			joined = append(joined, a)
			continue
		}
		if len(a) > 1 && a[0] == '-' && '0' <= a[1] && a[1] <= '9' &&
			last >= 0 && strings.HasPrefix(joined[last], "--") && !strings.Contains(joined[last], "=") {
			joined[last] += "=" + a
			continue
		}
		joined = append(joined, a)
	}
	return joined
}

// usageError is a command line that can be parsed but is invalid.
type usageError = operator.UsageError

func usagef(format string, args ...any) error { return usageError(fmt.Sprintf(format, args...)) }

// startLog starts the log of a service. Its reader may be slow, stop or restart without
// affecting the service: SIGPIPE is ignored, because a write to a pipe without a reader
// would end the process. Lines of the standard log go to it as well, at debug level:
// net/http would hold a lock while it waits for the reader.
func startLog(w io.Writer, o telemetry.LogOptions) *telemetry.Log {
	ignoreBrokenPipe()
	log := telemetry.StartLog(w, o)
	slog.SetLogLoggerLevel(slog.LevelDebug)
	slog.SetDefault(log.Logger)
	return log
}

// ignoreBrokenPipe has a write to a pipe without a reader be an error, which does not end the process before it has cleaned up.
func ignoreBrokenPipe() { signal.Ignore(syscall.SIGPIPE) }

// interruptible returns a context that SIGINT, SIGTERM or SIGHUP cancels. A second signal ends
// the process at once.
func interruptible() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // by nohup
		signal.Notify(signals, syscall.SIGHUP) // the terminal was closed
	}
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
