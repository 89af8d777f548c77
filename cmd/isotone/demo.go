package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/demo"
)

// demoCmd is the group of demos. Each runs what it shows.
type demoCmd struct {
	Failover demoFailoverCmd `cmd:"" help:"Kill the leader of three nodes again and again, and show what clients see of it."`
	Fencing  demoFencingCmd  `cmd:"" help:"Pause a holder of a lock until another one has it, and show how a fence refuses its late write."`
	Live     demoLiveCmd     `cmd:"" help:"Serve a document that changes each second to thousands of readers, and check what each of them sees."`
	Scale    demoScaleCmd    `cmd:"" help:"Distribution, balance and locality in five acts: workers per core, proxies, strategies, caches."`
}

type demoFailoverCmd struct {
	Kills    int           `name:"kills" default:"5" help:"How often a leader is killed, 0 to 100."`
	Every    time.Duration `name:"every" default:"3s" help:"Time between two kills, 1s to 1m. It is longer if a node takes longer to return."`
	How      string        `name:"how" default:"kill" complete:"kill,stop,drain" help:"What befalls the leader: kill (SIGKILL), stop (SIGSTOP, later SIGCONT) or drain (SIGTERM)."`
	Clients  int           `name:"clients" default:"8" help:"Number of clients, 1 to 64, each with one call under way at a time."`
	Duration time.Duration `name:"duration" help:"End after this long, 1s to 10m, whatever --kills says. Default: --kills times --every."`
	JSON     bool          `name:"json" help:"Print the result as JSON, and what else is shown to the standard error."`
	SVG      string        `name:"svg" placeholder:"FILE" complete:"files" help:"Write a picture of the result."`
	Replay   string        `name:"replay" placeholder:"FILE" complete:"files" help:"Run nothing, and show the result that --json printed."`
}

// Help says what the demo does to the machine.
func (demoFailoverCmd) Help() string {
	return "It starts three nodes as processes on free ports of 127.0.0.1, with data in a temporary directory, and ends and removes " +
		"all of that. A leader that has ended is started again within a second. The clients are those of the Go package client, which retry. " +
		"The order and uniqueness of every answer is checked.\n\n" +
		"It exits with code 1 if a call failed or an answer was wrong."
}

// Run runs the demo, or shows an earlier one.
func (c *demoFailoverCmd) Run(ctx context.Context, con console) error {
	ignoreBrokenPipe()
	out := con.out
	if c.JSON {
		out = con.err
	}
	svg, err := openReport("--svg", c.SVG)
	if err != nil {
		return err
	}
	defer svg.discard()
	if c.Replay != "" {
		return c.replay(con, out, svg)
	}
	o, err := c.options()
	if err != nil {
		return err
	}
	screen := &demo.Screen{W: out, Terminal: isTerminal(out), Color: colored(out)}
	o.Show = screen.Show
	r, err := demo.Failover(ctx, o)
	screen.End(r)
	if r == nil || ctx.Err() != nil && r.Answers == 0 {
		return withoutResult(ctx, err, "answer")
	}
	return errors.Join(err, c.write(con, out, svg, r), r.Err())
}

// withoutResult returns the error of a demo that ended with err before it had measured anything; measured says what.
func withoutResult(ctx context.Context, err error, measured string) error {
	var told *isotone.Error
	switch {
	case errors.As(err, &told) && told.Code == isotone.CodeInvalidArgument:
		return usageError(told.Message)
	case ctx.Err() != nil:
		return usagef("interrupted before there was an %s", measured)
	}
	return err
}

// options returns the options that the flags set.
func (c *demoFailoverCmd) options() (demo.Options, error) {
	o := demo.Default()
	self, err := os.Executable()
	if err != nil {
		return o, err
	}
	o.Command, o.Version = []string{self}, version
	o.Kills, o.Every, o.How, o.Clients, o.Duration = c.Kills, c.Every, demo.How(c.How), c.Clients, c.Duration
	return o, nil
}

// replay shows a result that was stored.
func (c *demoFailoverCmd) replay(con console, out io.Writer, svg *reportFile) error {
	file, err := os.Open(c.Replay)
	if err != nil {
		return usagef("--replay: %v", err)
	}
	defer file.Close()
	r, err := demo.ReadResult(file)
	if err != nil {
		return usagef("--replay %s: %v", c.Replay, err)
	}
	if _, err := io.WriteString(out, r.Timeline(colored(out))); err != nil {
		return err
	}
	return errors.Join(c.write(con, out, svg, r), r.Err())
}

// write writes the result in all forms that are wanted.
func (c *demoFailoverCmd) write(con console, out io.Writer, svg *reportFile, r *demo.Result) error {
	_, err := fmt.Fprint(out, "\n"+r.Summary())
	if c.JSON {
		err = errors.Join(err, r.WriteJSON(con.out))
	}
	return errors.Join(err, svg.writeText(r.Picture))
}
