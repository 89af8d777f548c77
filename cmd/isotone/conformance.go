package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/conformance"
)

// conformanceCmd is the group of commands that check a client.
type conformanceCmd struct {
	Run   conformanceRunCmd   `cmd:"" help:"Play scenarios to a client by its driver, and say which rules it breaks."`
	Serve conformanceServeCmd `cmd:"" help:"Play one scenario to a driver at the standard input and output, and print what happens."`
}

// conformanceTracedLines are the last events of a failed scenario that the table has.
const conformanceTracedLines = 30

// conformanceParallelMax bounds the drivers.
const conformanceParallelMax = 64

type conformanceRunCmd struct {
	Driver   []string      `arg:"" optional:"" name:"driver" complete:"files" help:"The driver and its arguments, after --."`
	Scenario string        `name:"scenario" short:"s" placeholder:"PATTERN" help:"Only scenarios with such names; * and ? stand for anything. Default: all."`
	List     bool          `name:"list" help:"Print the scenarios, the rules that each checks and the features that it needs, and play nothing."`
	Parallel int           `name:"parallel" default:"4" help:"Scenarios at once, each with a driver of its own, 1 to 64."`
	Patience time.Duration `name:"patience" default:"20s" help:"How long the client may take for what it must do, 1s to 10m. It has no effect on what the client must not do too early."`
	JSON     bool          `name:"json" help:"Print the result as JSON, with all events of the scenarios that failed."`
}

// Help says what is needed.
func (conformanceRunCmd) Help() string {
	return "It plays the nodes of a cluster on ports of 127.0.0.1, and tells the client what to do through a driver: a program that reads and writes " +
		"lines of JSON, as conformance/README.md describes. docs/client-protocol.md has the rules.\n\n" +
		"  isotone conformance run -- go run ./clients/go\n" +
		"  isotone conformance run --scenario 'moved-*' -- ./driver\n\n" +
		"It exits with code 1 if a scenario failed. Scenarios that need a feature which the client lacks are skipped."
}

// Run plays the scenarios.
func (c *conformanceRunCmd) Run(ctx context.Context, con console) error {
	list, err := selectScenarios(c.Scenario)
	switch {
	case err != nil:
		return err
	case c.List:
		return c.list(con.out, list)
	case len(c.Driver) == 0:
		return usagef("conformance run: want a driver after --, as in: isotone conformance run -- ./driver")
	case c.Parallel < 1 || c.Parallel > conformanceParallelMax:
		return usagef("--parallel %d: want 1 to %d", c.Parallel, conformanceParallelMax)
	case c.Patience < time.Second || c.Patience > 10*time.Minute:
		return usagef("--patience %v: want 1s to 10m", c.Patience)
	}
	suite := conformance.Suite{Driver: c.Driver, Scenarios: list, Parallel: c.Parallel, Patience: c.Patience}
	if !c.JSON {
		suite.Done = func(o conformance.Outcome) { printOutcome(con.out, o) }
	}
	report, err := conformance.Run(ctx, suite)
	if ctx.Err() != nil {
		err = fmt.Errorf("interrupted after %d of %d scenarios", len(report.Outcomes), len(list))
	}
	if c.JSON {
		text, _ := json.MarshalIndent(report, "", "  ")
		return errors.Join(printText(con.out, string(text)+"\n"), err, report.Err())
	}
	if len(report.Outcomes) > 0 {
		fmt.Fprintf(con.out, "\n%s %s: %d passed, %d failed, %d skipped\n", report.Client, report.Version, report.Passed, report.Failed, report.Skipped)
	}
	if err != nil {
		return err
	}
	return report.Err()
}

func selectScenarios(pattern string) ([]conformance.Scenario, error) {
	list, err := conformance.Select(pattern)
	var told *isotone.Error
	if errors.As(err, &told) {
		return nil, usagef("%s; \"isotone conformance run --list\" has all", told.Message)
	}
	return list, err
}

func (c *conformanceRunCmd) list(w io.Writer, list []conformance.Scenario) error {
	if c.JSON {
		text, err := json.MarshalIndent(list, "", "  ")
		return errors.Join(err, printText(w, string(text)+"\n"))
	}
	for _, sc := range list {
		if _, err := fmt.Fprintf(w, "%-56s %-12s %s\n", sc.Name, strings.Join(sc.Rules, " "), strings.Join(sc.Needs, " ")); err != nil {
			return err
		}
	}
	return nil
}

// printOutcome prints a line for a scenario, and what happened if it failed.
func printOutcome(w io.Writer, o conformance.Outcome) {
	verdict, detail := "pass", o.Took.Round(time.Millisecond).String()
	switch {
	case o.Skipped != "":
		verdict, detail = "skip", o.Skipped
	case !o.Passed:
		verdict = "FAIL"
	}
	fmt.Fprintf(w, "%s  %-56s %-12s %s\n", verdict, o.Name, strings.Join(o.Rules, " "), detail)
	for _, f := range o.Faults {
		fmt.Fprintf(w, "      %s: %s\n", f.Rule, f.Text)
	}
	for _, line := range o.Trace[max(0, len(o.Trace)-conformanceTracedLines):] {
		fmt.Fprintf(w, "        %s\n", line)
	}
}

type conformanceServeCmd struct {
	Scenario string        `arg:"" help:"Name of the scenario; \"isotone conformance run --list\" has them."`
	Patience time.Duration `name:"patience" default:"1h" help:"How long to wait for the client, 1s to 24h."`
}

// Help says how to use it.
func (conformanceServeCmd) Help() string {
	return "Commands for the driver go to the standard output, and answers are read from the standard input, so that a driver can run in a debugger, " +
		"or you can be the driver. Everything that the nodes see and answer is printed to the standard error.\n\n" +
		"  mkfifo to from; ./driver < to > from & isotone conformance serve an-election > to < from"
}

// Run plays the scenario.
func (c *conformanceServeCmd) Run(ctx context.Context, con console) error {
	if c.Patience < time.Second || c.Patience > 24*time.Hour {
		return usagef("--patience %v: want 1s to 24h", c.Patience)
	}
	list, err := selectScenarios(c.Scenario)
	if err != nil {
		return err
	}
	if len(list) > 1 {
		return usagef("%.80q is the name of %d scenarios: want one", c.Scenario, len(list))
	}
	o, err := conformance.Serve(ctx, list[0], os.Stdin, os.Stdout, c.Patience, con.tell)
	if err != nil {
		return err
	}
	o.Trace = nil
	printOutcome(con.err, o)
	if !o.Passed {
		return errors.New("the scenario failed")
	}
	return nil
}
