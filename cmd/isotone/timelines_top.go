package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/inspect/survey"
	"github.com/isotone/isotone/internal/operator"
)

// timelineTopCmd shows the timelines that are asked for most, of all nodes together.
type timelineTopCmd struct {
	endpointFlags
	Limit    int           `name:"limit" default:"20" help:"How many timelines to show, 1024 at most."`
	Once     bool          `name:"once" help:"Show them once. Without it the table is shown again and again until Ctrl-C."`
	Interval time.Duration `name:"interval" default:"1s" help:"Time between two tables."`
	Timeout  time.Duration `name:"timeout" default:"4s" help:"Maximum time for each table: a third of it each for the answers of the nodes that are named, for those of the other members, and for what these serve."`
	JSON     bool          `name:"json" help:"Print a line of JSON instead of a table."`

	accessFlags
}

// topSteps is in how many steps a table is made.
const topSteps = 3

// Run asks all nodes, as each one knows only what it serves itself. Only with --once it is an error if none tells anything.
func (c *timelineTopCmd) Run(ctx context.Context, con console) error {
	if c.Limit < 1 || c.Limit > front.BusyTimelinesMax {
		return usagef("--limit %d: want 1 to %d", c.Limit, front.BusyTimelinesMax)
	}
	reach, err := c.open()
	if err != nil {
		return err
	}
	asked, err := newSurvey(reach, c.Interval, c.Timeout, topSteps)
	if err != nil {
		return err
	}
	defer asked.Client.CloseIdleConnections()
	named := c.Endpoint
	if len(named) == 0 {
		addr, err := operator.Find(ctx, reach)
		if err != nil {
			return fmt.Errorf("%w with --endpoint", err)
		}
		named = endpointList{addr}
	}
	addrs, err := reach.URLs("--endpoint", named)
	if err != nil {
		return err
	}
	if !c.Once {
		return watch(ctx, con, c.Interval, c.JSON, func() (time.Time, func(io.Writer) error, error) {
			r, err := c.ask(ctx, asked, addrs)
			return r.At, func(w io.Writer) error { return c.write(w, r) }, err
		})
	}
	r, err := c.ask(ctx, asked, addrs)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case r.Nodes == 0:
		return fmt.Errorf("no node tells what it serves: %s", strings.Join(r.Untold, "; "))
	}
	return c.write(con.out, r)
}

// topReport has the timelines that are asked for most.
type topReport struct {
	At time.Time `json:"at"`
	// TimelineLoad is that of all timelines of the Nodes that tell it.
	front.TimelineLoad
	Nodes     int           `json:"nodes"`
	Timelines []topTimeline `json:"timelines"`
	// Untold says why the figures of some nodes are missing.
	Untold []string `json:"untold"`
}

// topTimeline is one timeline, and the node that serves it.
type topTimeline struct {
	front.BusyTimeline
	NodeID uint64 `json:"nodeID"`
}

// ask asks all members.
func (c *timelineTopCmd) ask(ctx context.Context, asked *survey.Survey, addrs []string) (topReport, error) {
	report, err := asked.Ask(ctx, addrs)
	if err != nil {
		return topReport{}, err
	}
	told, failed := make([]front.BusyTimelines, len(report.Views)), make([]error, len(report.Views))
	var asking sync.WaitGroup
	for i, v := range report.Views {
		if v.State != nil {
			asking.Go(func() {
				failed[i] = asked.Get(ctx, v, fmt.Sprintf("%s/top?limit=%d", timelinesPath, c.Limit), &told[i])
			})
		}
	}
	asking.Wait()
	return gatherTop(report, told, failed, c.Limit), nil
}

// gatherTop puts together what nodes have told, or why they have not.
func gatherTop(report *survey.Report, told []front.BusyTimelines, failed []error, limit int) topReport {
	r := topReport{At: report.At, Timelines: []topTimeline{}, Untold: []string{}}
	for i, v := range report.Views {
		switch {
		case v.State == nil:
			r.Untold = append(r.Untold, fmt.Sprintf("the node at %s does not answer: what it serves is missing: %s", v.Addr, v.Error))
			continue
		case failed[i] != nil:
			r.Untold = append(r.Untold, fmt.Sprintf("node %d does not tell what it serves, which takes the role admin: %v", v.NodeID, failed[i]))
			continue
		}
		r.Nodes++
		r.Requests += told[i].Requests
		r.Timestamps += told[i].Timestamps
		r.Refused += told[i].Refused
		for _, b := range told[i].Timelines {
			r.Timelines = append(r.Timelines, topTimeline{b, v.NodeID})
		}
	}
	slices.SortStableFunc(r.Timelines, func(a, b topTimeline) int {
		return cmp.Or(cmp.Compare(b.Requests+b.Refused, a.Requests+a.Refused), strings.Compare(a.Name, b.Name))
	})
	r.Timelines = r.Timelines[:min(len(r.Timelines), limit)]
	return r
}

func (c *timelineTopCmd) write(w io.Writer, r topReport) error {
	if c.JSON {
		return json.NewEncoder(w).Encode(r)
	}
	var out strings.Builder
	t := tabwriter.NewWriter(&out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "TIMELINE\tGROUP\tOWNER\tREQUESTS/S\tTS/S\tREFUSED/S")
	for _, b := range r.Timelines {
		fmt.Fprintf(t, "%s\t%s\t%s\t%.1f\t%.1f\t%.1f\n", b.Name, b.Group, ownerOf(b.NodeID), b.Requests, b.Timestamps, b.Refused)
	}
	_ = t.Flush()
	fmt.Fprintf(&out, "all timelines of %d nodes: %.1f requests and %.1f timestamps a second; %.1f requests refused by quotas\n", r.Nodes, r.Requests, r.Timestamps, r.Refused)
	for _, why := range r.Untold {
		fmt.Fprintf(&out, "! %s\n", why)
	}
	_, err := io.WriteString(w, out.String())
	return err
}
