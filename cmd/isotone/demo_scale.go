package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/isotone/isotone/internal/check/demoscale"
)

type demoScaleCmd struct {
	Act      string        `name:"act" default:"1,2,3,4,5" placeholder:"N,…" help:"Run only these acts: 1 an echo, 2 CPU and stall, 3 workers per core, 4 three models, 5 balance and locality."`
	Duration time.Duration `name:"duration" default:"0s" help:"How long the acts that run take together, 2s to 30m. 0: as long as they are in the script, 3m for all of them."`
	Sleep    time.Duration `name:"sleep" default:"1s" help:"Average sleep of a request in act 5, 1ms to 10s; it is shorter in the other acts, in proportion."`
	JSON     bool          `name:"json" help:"Print the result as JSON, and what else is shown to the standard error."`
	SVG      string        `name:"svg" placeholder:"FILE" complete:"files" help:"Write a picture of all acts."`
}

// Help says what the demo does.
func (demoScaleCmd) Help() string {
	return "It tells a talk on distribution, balance and locality in five acts, and compares its figures with those of this run. " +
		"Workers, clients and proxies are in this process, on free ports of 127.0.0.1. Every answer is checked; the first wrong one ends the run. " +
		"Ctrl-C ends it with what was measured until then.\n\n" +
		"It exits with code 1 if an answer was wrong."
}

// Run runs the acts.
func (c *demoScaleCmd) Run(ctx context.Context, con console) error {
	out := con.out
	if c.JSON {
		out = con.err
	}
	o := demoscale.ScaleDefault()
	o.Version, o.Duration, o.Sleep, o.Acts = version, c.Duration, c.Sleep, nil
	for text := range strings.SplitSeq(c.Act, ",") {
		act, err := strconv.Atoi(text)
		if err != nil {
			return usagef("--act %q: want numbers from 1 to %d, separated by commas", c.Act, demoscale.ActsMax)
		}
		o.Acts = append(o.Acts, act)
	}
	if err := o.Validate(); err != nil {
		return withoutResult(ctx, err, "answer")
	}
	svg, err := openReport("--svg", c.SVG)
	if err != nil {
		return err
	}
	defer svg.discard()
	ignoreBrokenPipe()
	var written error
	o.Show = func(text string) { // the demo does not end with its reader
		_, err := fmt.Fprint(out, text)
		written = cmp.Or(written, err)
	}
	o.Progress = con.tell
	r, err := demoscale.Scale(ctx, o)
	if r == nil || len(r.Acts) == 0 && r.Interrupted {
		return withoutResult(ctx, err, "answer")
	}
	if r.Interrupted {
		con.tell("Interrupted before its end.")
	}
	if c.JSON {
		err = errors.Join(err, r.WriteJSON(con.out))
	}
	return errors.Join(err, written, svg.writeText(r.Picture))
}
