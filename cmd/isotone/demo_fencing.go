package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/isotone/isotone/internal/check/bench"
	"github.com/isotone/isotone/internal/check/demofencing"
)

type demoFencingCmd struct {
	Rounds int           `name:"rounds" default:"1" help:"How often a holder is paused, 1 to 1000."`
	TTL    time.Duration `name:"ttl" default:"1s" help:"A holder loses its lock after this time without contact to the cluster: 100ms to 1m. A round takes about twice as long."`
	JSON   bool          `name:"json" help:"Print the result as JSON, and what else is shown to the standard error."`
	SVG    string        `name:"svg" placeholder:"FILE" complete:"files" help:"Write a picture of the first round."`
	Holder bool          `name:"holder" hidden:"" help:"Be one of the holders."`
}

// Help says what the demo does to the machine.
func (demoFencingCmd) Help() string {
	return "It starts three nodes, a redis-server and two holders of a lock as processes, on free ports of 127.0.0.1, with data in a temporary directory, and ends and removes " +
		"all of that. Holder A is paused (SIGSTOP) until its session has ended and B has the lock, and then writes under its old token: to a key with a fence, and to one without. " +
		"redis-server has to be installed.\n\n" +
		"It exits with code 1 if the fence accepted the late write, or refused another."
}

// Run runs the demo, or a holder of it.
func (c *demoFencingCmd) Run(ctx context.Context, con console) error {
	ignoreBrokenPipe()
	if c.Holder {
		return demofencing.Hold(ctx, os.Stdin, con.out)
	}
	out := con.out
	if c.JSON {
		out = con.err
	}
	svg, err := openReport("--svg", c.SVG)
	if err != nil {
		return err
	}
	defer svg.discard()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	o := demofencing.Default()
	o.Command, o.HolderArgs, o.Version = []string{self}, []string{"demo", "fencing", "--holder"}, version
	o.Rounds, o.TTL = c.Rounds, c.TTL
	screen := &demofencing.Screen{W: out, Color: colored(out), TTL: c.TTL}
	o.Show = screen.Show
	r, err := demofencing.Run(ctx, o)
	if r == nil || ctx.Err() != nil && len(r.Result.Rounds) == 0 {
		return withoutResult(ctx, err, "outcome")
	}
	_, printed := fmt.Fprint(out, r.Summary())
	if c.JSON {
		printed = errors.Join(printed, bench.WriteJSON(con.out, r))
	}
	return errors.Join(err, printed, svg.writeText(r.Picture), r.Err())
}
