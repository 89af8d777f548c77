package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/isotone/isotone/internal/check/bench"
	"github.com/isotone/isotone/internal/check/demolive"
)

type demoLiveCmd struct {
	Readers  int           `name:"readers" default:"0" help:"Number of readers, 1 to 9980, each with a connection. 0 (default): 9000, or as many as the limit of open files allows."`
	Duration time.Duration `name:"duration" default:"20s" help:"How long the votes change, 2s to 10m, without the time that readers take to connect."`
	TLS      string        `name:"tls" default:"both" complete:"both,on,off" help:"Readers use TLS: on, off, or both (half of the time without, then half with)."`
	Redis    string        `name:"redis" placeholder:"URL" help:"Keep the document in Redis: redis://[[user]:password@]host[:port][/db]#KEY, a key that does not exist, and is removed in the end. Default: in a file."`
	Open     bool          `name:"open" help:"Open the page with the votes in the browser."`
	JSON     bool          `name:"json" help:"Print the result as JSON, and what else is shown to the standard error."`
	SVG      string        `name:"svg" placeholder:"FILE" complete:"files" help:"Write a picture of the result."`
}

// Help says what the demo does to the machine.
func (demoLiveCmd) Help() string {
	return "It starts one node as a process on free ports of 127.0.0.1, with data in a temporary directory, writes the votes of a made-up " +
		"election each second, and ends and removes all of that. The readers follow the document as server-sent events; each event is " +
		"compared with what was written. A page over HTTPS shows the votes; its certificate is self-signed.\n\n" +
		"It exits with code 1 if a reader got something wrong, or missed the last document."
}

// Run runs the demo.
func (c *demoLiveCmd) Run(ctx context.Context, con console) error {
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
	self, err := os.Executable()
	if err != nil {
		return err
	}
	screen := &demolive.Screen{W: out, Terminal: isTerminal(out), Color: colored(out)}
	o := demolive.Default()
	o.Command, o.Version = []string{self}, version
	o.Readers, o.Duration, o.TLS, o.Redis = c.Readers, c.Duration, demolive.TLS(c.TLS), c.Redis
	o.Show = screen.Show
	if note := o.Note(); note != "" {
		fmt.Fprintln(out, note)
	}
	o.Opened = func(url string) {
		fmt.Fprintf(out, "One node serves the votes of a made-up election. See them at %s (a self-signed certificate).\n\n", url)
		if c.Open {
			if err := openBrowser(url); err != nil {
				fmt.Fprintln(con.err, err)
			}
		}
	}
	r, err := demolive.Run(ctx, o)
	screen.End()
	if r == nil || ctx.Err() != nil && r.Verdict.Checked == 0 {
		return withoutResult(ctx, err, "event")
	}
	_, printed := fmt.Fprint(out, "\n"+r.Summary())
	if c.JSON {
		printed = errors.Join(printed, bench.WriteJSON(con.out, r))
	}
	return errors.Join(err, printed, svg.writeText(r.Picture), r.Err())
}
