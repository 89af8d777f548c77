package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/bench"
	"github.com/isotone/isotone/internal/check/clockbench"
	"github.com/isotone/isotone/internal/operator"
)

// This file is "isotone bench --interval".

// intervalOptions returns the options of a run with --interval.
func (c *benchCmd) intervalOptions(o *bench.Options) *clockbench.Options {
	return &clockbench.Options{Options: *o, Processes: c.Processes, Generators: c.Generators}
}

// withoutInterval lists the flags that are set and have no meaning with --interval.
func (c *benchCmd) withoutInterval() (faults bench.Faults) {
	for _, each := range []struct {
		flag string
		set  bool
	}{
		{"rate", c.Rate != 0}, {"count", c.Count != 1}, {"mode", c.Mode != ""}, {"requests", c.Requests != 0},
		{"warmup", c.Warmup != 0}, {"html", c.HTML != ""}, {"timeline", c.Timeline != nil}, {"static", c.Static != ""},
	} {
		if each.set {
			faults = append(faults, fmt.Sprintf("--%s: has no meaning with --interval", each.flag))
		}
	}
	return faults
}

// runInterval measures and checks the cluster clock.
func (c *benchCmd) runInterval(ctx context.Context, con console, base *bench.Options, files *benchFiles) error {
	o := c.intervalOptions(base)
	o.Command = func() (*exec.Cmd, error) { return c.processCommand(base) }
	progress := lineProgress{w: con.err, terminal: isTerminal(con.err)}
	o.Show = progress.show
	result, err := clockbench.Run(ctx, *o)
	progress.end()
	if result == nil || errors.As(err, new(bench.TargetError)) {
		return notMeasured(ctx, c.Target, err)
	}
	result.Isotone = version
	return c.report(con, files, result, result.Verdict.Judgement, "this cluster broke its promise, or a steady clock has a wrong rate", err)
}

// processCommand returns one of the processes. It has the same flags that concern nodes, none of which
// has a secret, and the same environment.
func (c *benchCmd) processCommand(o *bench.Options) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := []string{"bench", "--interval-process", "--timeout", c.Timeout.String(), "--threads", fmt.Sprint(o.Threads)}
	for _, target := range o.Targets {
		args = append(args, "--target="+target)
	}
	for _, each := range [][2]string{
		{"ca", c.CA}, {"cert", c.Cert}, {"key", c.Key}, {"server-name", c.ServerName}, {"user", c.User}, {"password-file", c.PasswordFile},
	} {
		if each[1] != "" {
			args = append(args, "--"+each[0]+"="+each[1])
		}
	}
	if c.Insecure {
		args = append(args, "--insecure")
	}
	return exec.Command(self, args...), nil
}

// intervalProcess is one of the processes.
func (c *benchCmd) intervalProcess(ctx context.Context, con console, reach *operator.Access) error {
	bases, err := reach.URLs("--target", c.Target)
	if err != nil {
		return err
	}
	o := clockbench.ServeOptions{Client: client.Options{Mode: isotone.ReadQuorum}, Timeout: c.Timeout}
	reach.Options(&o.Client, bases, c.renewing())
	runtime.GOMAXPROCS(max(1, c.Threads))
	return clockbench.Serve(ctx, os.Stdin, con.out, o)
}

// lineProgress shows a line: on a terminal in place of the one before, otherwise one every ten seconds.
type lineProgress struct {
	w        io.Writer
	terminal bool
	shown    time.Time
	any      bool
}

func (p *lineProgress) show(line string) {
	if p.shown.IsZero() {
		p.shown = time.Now()
	}
	switch {
	case p.terminal:
		p.any = true
		fmt.Fprintf(p.w, "\r\x1b[K%s", line)
	case time.Since(p.shown) >= progressLogEvery-progressLogEvery/100:
		p.shown = time.Now()
		fmt.Fprintln(p.w, line)
	}
}

// end clears the line.
func (p *lineProgress) end() {
	if p.any {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
