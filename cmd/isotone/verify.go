package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/verify"
	"github.com/isotone/isotone/internal/check/verify/driver"
	"github.com/isotone/isotone/internal/check/verify/report"
)

type verifyCmd struct {
	Driver      []string          `arg:"" optional:"" name:"driver" complete:"files" help:"With --system exec: a driver and its arguments, after --. Or: trace FILE..., to check what nodes have written to TRACE_FILE."`
	System      string            `name:"system" default:"isotone" complete:"isotone,redis,postgres,http,exec" help:"The system: isotone, redis, postgres or http, or exec for a driver of your own."`
	Option      map[string]string `name:"option" short:"o" placeholder:"KEY=VALUE" help:"An option of the driver; --system NAME --options lists them. Can be repeated."`
	Options     bool              `name:"options" help:"Print what the system is, what it promises and the options of its driver, and run nothing."`
	Nodes       int               `name:"nodes" help:"How many nodes are started, up to 25. Default: the driver's."`
	Endpoint    []string          `name:"endpoint" placeholder:"HOST:PORT" help:"Ask the nodes of a running system, separated by commas, start none and inject no faults."`
	Duration    time.Duration     `name:"duration" short:"d" default:"1m" help:"How long clients ask, 1s to 168h."`
	Faults      []string          `name:"faults" placeholder:"KIND,…" help:"Kinds of faults: kill, term, pause, member, cut, partition, cut-in, cut-out, loss, slow-disk, fail-disk, clock, clock-kill; or none. Default: all that are possible."`
	Seed        *uint64           `name:"seed" help:"What decides which faults begin when. Default: another one each time, in the report."`
	Clients     int               `name:"clients" default:"24" help:"Clients, each with one call under way at a time, 1 to 1024."`
	Processes   int               `name:"processes" default:"3" help:"Processes that the clients are spread over, 1 to 16."`
	Count       int               `name:"count" default:"1" help:"A call asks for a random number of numbers, up to this; at most what the system allows."`
	Timeout     time.Duration     `name:"timeout" default:"1s" help:"How long a call may take, 1ms to 1m."`
	UntilBroken bool              `name:"until-broken" help:"End as soon as an answer breaks what the system promises."`
	Window      int               `name:"window" default:"1048576" help:"How many calls may overtake another one that is checked for duplicates, up to 16777216. Each takes 36 bytes."`
	Report      string            `name:"report" placeholder:"FILE.html" complete:"files" help:"Write a page that shows all of it: one file, which loads no other."`
	JSON        bool              `name:"json" help:"Print the result as JSON, and what else is shown to the standard error."`
	Live        bool              `name:"live" help:"Show how it goes, each second. Default: if the output is a terminal."`
	Dir         string            `name:"dir" placeholder:"DIR" complete:"dirs" help:"Keep the data and the logs of all nodes there; a new or an empty directory. Default: a temporary directory that is removed."`
	Replay      string            `name:"replay" placeholder:"FILE" complete:"files" help:"Run nothing, and show the result that --json printed."`

	ServeDriver bool `name:"serve-driver" hidden:"" help:"Be the driver of the system."`
}

// Help says what is done to the machine, and what the exit codes are.
func (verifyCmd) Help() string {
	return "It starts a cluster of any timestamp oracle, has clients in several processes ask all the time, kills and pauses nodes, cuts links, disturbs disks, sets clocks, " +
		"and checks every answer: no number twice, and a call that begins after another has ended gets larger numbers.\n\n" +
		"  isotone verify --report report.html\n" +
		"  isotone verify --system redis --option appendonly=no --faults kill\n" +
		"  isotone verify --system exec --report report.html -- ./my-driver\n" +
		"  isotone verify trace node1.trace\n\n" +
		"Nodes listen on 127.0.0.1 or, if the links between them are to be cut, in network namespaces of their own, which takes root. Nodes, namespaces and rules " +
		"end with this command, however it ends. docs/verify.md has the protocol of drivers.\n\n" +
		"verify trace runs nothing. It checks what nodes have written to TRACE_FILE against a specification of the protocol: the file of one node, or those of several nodes that ran on one machine. Of the flags it takes --json only, after the files.\n\n" +
		"It exits with code 1 if the system broke what it promises, an event is not permitted, or the run failed."
}

// Run runs the system, or shows an earlier result.
func (c *verifyCmd) Run(ctx context.Context, con console) error {
	switch {
	case c.ServeDriver:
		return c.serveDriver()
	case c.Options:
		return c.describe(ctx, con)
	case c.System == "isotone" && len(c.Driver) > 0 && c.Driver[0] == "trace":
		if c.Report != "" || c.Replay != "" || c.Dir != "" || len(c.Endpoint) > 0 || len(c.Faults) > 0 || len(c.Option) > 0 {
			return usagef("verify trace: it runs nothing, and of the flags takes --json only")
		}
		return verifyTrace(ctx, con, c.Driver[1:], c.JSON)
	}
	ignoreBrokenPipe()
	page, err := openReport("--report", c.Report)
	if err != nil {
		return err
	}
	defer page.discard()
	result, err := c.result(ctx, con)
	if result == nil {
		return withoutResult(ctx, err, "answer")
	}
	return errors.Join(err, c.write(con, page, result), broken(result))
}

// result runs the system, or reads an earlier result.
func (c *verifyCmd) result(ctx context.Context, con console) (*verify.Result, error) {
	if c.Replay != "" {
		file, err := os.Open(c.Replay)
		if err != nil {
			return nil, usagef("--replay: %v", err)
		}
		defer file.Close()
		r, err := report.Read(file)
		if err != nil {
			var told *isotone.Error
			if errors.As(err, &told) {
				return nil, usagef("--replay %s: %s", c.Replay, told.Message)
			}
			return nil, usagef("--replay %s: %v", c.Replay, err)
		}
		return r, nil
	}
	o, err := c.options()
	if err != nil {
		return nil, err
	}
	out := con.out
	if c.JSON {
		out = con.err
	}
	if c.Live || isTerminal(out) {
		screen := &report.Screen{W: out, Terminal: isTerminal(out), Color: colored(out)}
		o.Show = screen.Show
		defer screen.End()
	}
	return verify.Run(ctx, o)
}

// write writes the result in all forms that are wanted.
func (c *verifyCmd) write(con console, page *reportFile, r *verify.Result) error {
	out := con.out
	var err error
	if c.JSON {
		out, err = con.err, r.WriteJSON(con.out)
	}
	_, err2 := fmt.Fprint(out, report.Summary(r))
	err3 := page.write(func(w io.Writer) error { return report.HTML(w, r) })
	if err = errors.Join(err, err2, err3); err == nil && c.Report != "" {
		fmt.Fprintf(out, "\nThe report: %s\n", c.Report)
	}
	return err
}

// broken returns an error if the system broke what it promises, or answered nothing.
func broken(r *verify.Result) error {
	switch {
	case r.Broken():
		return fmt.Errorf("%s broke what it promises", report.System(r))
	case r.Answers == 0:
		return fmt.Errorf("%s did not answer a single call", report.System(r))
	}
	return nil
}

// options returns the options that the flags set.
func (c *verifyCmd) options() (verify.Options, error) {
	o := verify.Default()
	command, err := c.driver()
	if err != nil {
		return o, err
	}
	seed := uint64(time.Now().UnixNano()) % 1_000_000_000 // easy to type
	if c.Seed != nil {
		seed = *c.Seed
	}
	o.Version, o.Repeat = version, repeat(os.Args[1:], seed)
	o.System, o.Driver, o.DriverOptions, o.Nodes, o.Addresses = c.System, command, c.Option, c.Nodes, c.Endpoint
	o.Duration, o.Clients, o.Processes, o.Count, o.Timeout = c.Duration, c.Clients, c.Processes, c.Count, c.Timeout
	o.Seed, o.Faults, o.Window, o.UntilBroken, o.Dir = seed, c.Faults, c.Window, c.UntilBroken, c.Dir
	return o, nil
}

// driver returns the command line of the driver.
func (c *verifyCmd) driver() ([]string, error) {
	if c.System == "exec" {
		if len(c.Driver) == 0 {
			return nil, usagef("--system exec: want a driver after --, as in: isotone verify --system exec -- ./driver")
		}
		return c.Driver, nil
	}
	if len(c.Driver) > 0 {
		return nil, usagef("%s: a driver of your own takes --system exec", strings.Join(c.Driver, " "))
	}
	if _, err := driver.New(c.System); err != nil {
		return nil, usagef("--system %s: want %s or exec", c.System, strings.Join(driver.Systems(), ", "))
	}
	self, err := os.Executable()
	return []string{self, "verify", "--system", c.System, "--serve-driver"}, err
}

// serveDriver is the driver of a system that is part of this program.
func (c *verifyCmd) serveDriver() error {
	system, err := driver.New(c.System)
	if err != nil {
		return err
	}
	return driver.Serve(os.Stdin, os.Stdout, system)
}

// repeat returns the command line that repeats the run: that of this process, with the seed.
func repeat(args []string, seed uint64) []string {
	list := []string{"isotone", "verify", "--seed=" + strconv.FormatUint(seed, 10)}
	for i := 1; i < len(args); i++ {
		switch {
		case args[i] == "--":
			return append(list, args[i:]...)
		case args[i] == "--seed":
			i++ // its value
		case !strings.HasPrefix(args[i], "--seed="):
			list = append(list, args[i])
		}
	}
	return list
}

// describe prints what the driver says of its system.
func (c *verifyCmd) describe(ctx context.Context, con console) error {
	command, err := c.driver()
	if err != nil {
		return err
	}
	hello, err := verify.Describe(ctx, c.System, command, c.Option)
	if err != nil {
		return withoutResult(ctx, err, "answer")
	}
	if c.JSON {
		text, err := json.MarshalIndent(hello, "", "  ")
		return errors.Join(err, printText(con.out, string(text)+"\n"))
	}
	text := fmt.Sprintf("%s %s promises the order %q.\nIt has %d nodes unless --nodes says otherwise, at most %d. A call gets up to %d numbers.\n",
		hello.System, hello.Version, hello.Promises, hello.Nodes, hello.NodesMax, hello.CountMax)
	for _, name := range slices.Sorted(maps.Keys(hello.Options)) {
		text += fmt.Sprintf("  --option %s=…  %s\n", name, hello.Options[name])
	}
	return printText(con.out, text)
}
