package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
)

// frontierCmd has the commands about the frontiers of groups of writers; see docs/locks.md.
type frontierCmd struct {
	Watch    frontierWatchCmd    `cmd:"" help:"Print the frontier of a group each time that it has moved."`
	Wait     frontierWaitCmd     `cmd:"" help:"Wait until all writes that ended before now, or all up to a timestamp, are at or below the frontier."`
	Blockers frontierBlockersCmd `cmd:"" help:"Show which writers the frontier of a group waits for."`
}

// frontierFlags are those of the commands that need no operator.
type frontierFlags struct {
	Endpoint endpointList  `name:"endpoint" placeholder:"HOST:PORT,..." help:"Client addresses of nodes of the cluster, or https URLs; the leader and the other members are found through any of them. Default: localhost:8080, or a node of \"isotone dev\" at ports 8081 to 8083 of 127.0.0.1."`
	Group    string        `arg:"" help:"Name of the group: 1 to 128 bytes."`
	Timeout  time.Duration `name:"timeout" default:"10s" help:"Maximum wait for an answer."`
	JSON     bool          `name:"json" help:"Print lines of JSON."`

	accessFlags
}

// frontierLine is a line of JSON.
type frontierLine struct {
	Group    string `json:"group"`
	Frontier string `json:"frontier"`
}

func (c *frontierFlags) print(con console, f isotone.Timestamp) error {
	if c.JSON {
		return json.NewEncoder(con.out).Encode(frontierLine{c.Group, f.String()})
	}
	_, err := fmt.Fprintln(con.out, f)
	return err
}

type frontierWatchCmd struct {
	frontierFlags
	Count int `name:"count" short:"n" help:"End after so many lines. Default: on Ctrl-C."`
}

// Run prints the frontier again and again.
func (c *frontierWatchCmd) Run(ctx context.Context, con console) error {
	if c.Count < 0 {
		return usagef("--count %d: want more than 0", c.Count)
	}
	cl, err := dialClient(ctx, c.accessFlags, c.Endpoint, c.Timeout)
	if err != nil {
		return err
	}
	defer cl.Close()
	r := cl.Frontier(c.Group)
	defer r.Close()
	lines := 0
	for f, err := range r.Follow(ctx) {
		if err == nil {
			err = c.print(con, f)
			lines++
		}
		if err != nil {
			return interrupted(ctx, err)
		}
		if lines == c.Count {
			return nil
		}
	}
	return nil
}

type frontierWaitCmd struct {
	frontierFlags
	Timestamp string `arg:"" optional:"" help:"Wait for this timestamp, of 32 hexadecimal digits. Default: one that is taken now."`
}

// Run waits for the frontier.
func (c *frontierWaitCmd) Run(ctx context.Context, con console) error {
	var at isotone.Timestamp
	if c.Timestamp != "" {
		var err error
		if at, err = isotone.ParseTimestamp(c.Timestamp); err != nil {
			return usagef("%.40q: want a timestamp of 32 hexadecimal digits", c.Timestamp)
		}
	}
	cl, err := dialClient(ctx, c.accessFlags, c.Endpoint, c.Timeout)
	if err != nil {
		return err
	}
	defer cl.Close()
	waiting, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if c.Timestamp == "" {
		if at, err = cl.Timestamp(waiting); err != nil {
			return interrupted(ctx, err)
		}
	}
	r := cl.Frontier(c.Group)
	defer r.Close()
	f, err := r.Wait(waiting, at)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case waiting.Err() != nil || errors.Is(err, isotone.ErrDeadlineExceeded):
		return fmt.Errorf("the frontier of %q is at %v, and not at %v, after %v; see: isotone frontier blockers %s", c.Group, f, at, c.Timeout, c.Group)
	case err != nil:
		return err
	}
	return c.print(con, f)
}

type frontierBlockersCmd struct {
	clusterFlags
	Group string `arg:"" help:"Name of the group."`
}

// Run shows what a frontier waits for.
func (c *frontierBlockersCmd) Run(ctx context.Context, con console) error {
	var l front.BlockerList
	if err := c.do(ctx, http.MethodGet, frontierPath+"?"+url.Values{"group": {c.Group}}.Encode(), nil, &l); err != nil {
		return err
	}
	return c.clusterFlags.print(con, l, func(w io.Writer) { describeBlockers(w, &l) })
}

func describeBlockers(w io.Writer, l *front.BlockerList) {
	fmt.Fprintf(w, "the frontier of %q is at %v\n", l.Group, l.Frontier)
	if len(l.Blockers) == 0 {
		fmt.Fprintln(w, "it waits for nothing")
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "WAITS FOR\tSESSION\tLOW\tHIGH\tFOR\tNOTE")
	for _, b := range l.Blockers {
		who, since, note := fmt.Sprintf("%q", b.Label), (time.Duration(b.Seconds * float64(time.Second))).Round(time.Millisecond).String(), ""
		switch {
		case b.Session == "":
			who, since, note = "a seal", "", "of writers that have ended, or of an earlier leader: a member of the group raises the fence of its stores"
		case !b.Connected:
			note = "not connected"
		}
		fmt.Fprintf(t, "%s\t%s\t%v\t%v\t%s\t%s\n", who, b.Session, b.Low, b.High, since, note)
	}
	_ = t.Flush()
}
