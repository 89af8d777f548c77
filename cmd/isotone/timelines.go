package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/operator"
)

// timelineCmd has the commands about timelines; see docs/operations.md.
type timelineCmd struct {
	List   timelineListCmd   `cmd:"" help:"List the timelines: their groups, and who serves them."`
	Show   timelineShowCmd   `cmd:"" help:"Show one timeline."`
	Top    timelineTopCmd    `cmd:"" help:"Show the timelines that are asked for most, and which nodes serve them, until Ctrl-C."`
	Create timelineCreateCmd `cmd:"" help:"Create timelines."`
	Delete timelineDeleteCmd `cmd:"" help:"Delete timelines. One that is created again under such a name goes on above."`
	Move   timelineMoveCmd   `cmd:"" help:"Move a timeline to another group."`
	Floor  timelineFloorCmd  `cmd:"" help:"Have all later timestamps of a timeline be larger than a given one."`
	Quota  timelineQuotaCmd  `cmd:"" help:"Limit what is served of a timeline in a second."`
	Seal   timelineSealCmd   `cmd:"" help:"End a timeline for good: its name stays, and it issues no timestamps any more."`
}

const timelinesPath = "/admin/timelines"

type timelineListCmd struct {
	operatorFlags
	Prefix string `name:"prefix" placeholder:"PREFIX" help:"List only those whose names begin so."`
}

// Run lists the timelines, page by page.
func (c *timelineListCmd) Run(ctx context.Context, con console) error {
	all := front.TimelineList{Timelines: []front.TimelineRecord{}}
	for after := ""; ; {
		var page front.TimelineList
		if err := c.do(ctx, http.MethodGet, timelinesPath+"?"+url.Values{"prefix": {c.Prefix}, "after": {after}}.Encode(), nil, &page); err != nil {
			return err
		}
		all.Total, all.Timelines = page.Total, append(all.Timelines, page.Timelines...)
		if page.After <= after { // none after the last page
			break
		}
		after = page.After
	}
	return c.print(con, all, func(w io.Writer) { describeTimelines(w, all) })
}

func describeTimelines(w io.Writer, l front.TimelineList) {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "TIMELINE\tID\tGROUP\tOWNER\tADDRESS\tNOTE")
	for _, r := range l.Timelines {
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\n", r.Name, r.ID, r.Group, ownerOf(r.NodeID), orDash(r.Addr), timelineNote(r))
	}
	_ = t.Flush()
	fmt.Fprintf(w, "%d of %d timelines\n", len(l.Timelines), l.Total)
}

func ownerOf(node uint64) string {
	if node == 0 {
		return "-"
	}
	return fmt.Sprintf("node %d", node)
}

// timelineNote says what is special about a timeline.
func timelineNote(r front.TimelineRecord) string {
	if !r.Sealed {
		if r.Quota == (front.TimelineQuota{}) {
			return ""
		}
		return quotaText(r.Quota)
	}
	return "sealed; all its timestamps are before " + nanoTime(r.Bound)
}

// timeline returns the record of a timeline.
func (f *operatorFlags) timeline(ctx context.Context, name string) (front.TimelineRecord, error) {
	var l front.TimelineList
	if err := f.do(ctx, http.MethodGet, timelinesPath+"?"+url.Values{"name": {name}}.Encode(), nil, &l); err != nil {
		return front.TimelineRecord{}, err
	}
	if len(l.Timelines) == 0 || l.Timelines[0].Name != name {
		return front.TimelineRecord{}, noTimelineError(name)
	}
	return l.Timelines[0], nil
}

// noTimelineError is the name of a timeline that does not exist.
type noTimelineError string

func (e noTimelineError) Error() string {
	return fmt.Sprintf("there is no timeline %q; see: isotone timeline list", string(e))
}

// changeTimeline changes one timeline. After an attempt whose answer was lost it looks whether there is anything left to do; isDone judges
// the timeline, of which nothing is left if its ID is 0.
func (f *operatorFlags) changeTimeline(ctx context.Context, c front.TimelineChange, isDone func(front.TimelineRecord) bool) error {
	err := f.do(ctx, http.MethodPost, timelinesPath, c, &front.TimelineChanged{})
	var unsure *operator.UnsureError
	if !errors.As(err, &unsure) {
		return err
	}
	now, lookErr := f.timeline(ctx, c.Names[0])
	switch {
	case lookErr != nil && !errors.As(lookErr, new(noTimelineError)):
		return err
	case lookErr == nil && now.ID != c.ID:
		now = front.TimelineRecord{}
	}
	if isDone(now) {
		return nil
	}
	return unsure.Cause
}

type timelineShowCmd struct {
	operatorFlags
	Name string `arg:"" help:"Name of the timeline."`
}

// Run shows a timeline.
func (c *timelineShowCmd) Run(ctx context.Context, con console) error {
	return c.showTimeline(ctx, con, c.Name, "")
}

// showTimeline prints the record of a timeline as it is now, or only a line, if there is one.
func (f *operatorFlags) showTimeline(ctx context.Context, con console, name, line string) error {
	r, err := f.timeline(ctx, name)
	if err != nil {
		return err
	}
	return f.print(con, r, func(w io.Writer) {
		if line != "" {
			fmt.Fprintln(w, line)
			return
		}
		fmt.Fprintf(w, "timeline %s, ID %d, in group %s\n", r.Name, r.ID, r.Group)
		switch {
		case r.Sealed:
			fmt.Fprintln(w, timelineNote(r))
		case r.NodeID == 0:
			fmt.Fprintln(w, "no node serves it yet")
		default:
			fmt.Fprintf(w, "served by node %d, at %s\n", r.NodeID, orDash(r.Addr))
		}
		if note := timelineNote(r); note != "" && !r.Sealed {
			fmt.Fprintln(w, note)
		}
	})
}

type timelineCreateCmd struct {
	operatorFlags
	Names []string `arg:"" name:"name" help:"Names: 1 to 64 letters, digits and . _ / - each."`
	Group string   `name:"group" placeholder:"GROUP" help:"Group to create them in. Default: that of the hash slot of each name."`
	Above string   `name:"above" placeholder:"TIME" help:"Have all their timestamps be larger than this one, in any form that isotone floor raise takes: for what another system has issued."`
	Force bool     `name:"force" help:"Permit a time more than 24 hours ahead of the clock: time stands still until the clock has caught up."`
	quotaFlags
}

// quotaFlags are the flags of a quota.
type quotaFlags struct {
	Requests   uint64 `name:"requests" placeholder:"N" help:"How many requests are served in a second at most, to all users together. Default: no limit."`
	Timestamps uint64 `name:"timestamps" placeholder:"N" help:"How many timestamps are served in a second at most. Default: no limit."`
}

// Run creates timelines, in as many requests as it takes.
func (c *timelineCreateCmd) Run(ctx context.Context, con console) error {
	change := front.TimelineChange{Action: front.CreateTimelines, Group: c.Group, Force: c.Force, Quota: front.TimelineQuota(c.quotaFlags)}
	if c.Above != "" {
		above, err := parseFloor(c.Above, time.Now())
		if err != nil {
			return err
		}
		change.Time = strconv.FormatUint(above.Time, 10)
	}
	created := 0
	for names := range slices.Chunk(c.Names, front.TimelinesAtOnce) {
		change.Names = names
		if err := c.do(ctx, http.MethodPost, timelinesPath, change, &front.TimelineChanged{}); err != nil {
			err = spelledAsFlags(err)
			if len(c.Names) > front.TimelinesAtOnce {
				err = fmt.Errorf("of %d timelines, the first %d were created; then %w", len(c.Names), created, err)
			}
			return err
		}
		created += len(names)
	}
	return c.print(con, timelinesCreated{created}, func(w io.Writer) {
		if created == 1 {
			fmt.Fprintf(w, "timeline %s is created\n", c.Names[0])
			return
		}
		fmt.Fprintf(w, "%d timelines are created\n", created)
	})
}

// timelinesCreated is the output of the command that creates timelines.
type timelinesCreated struct {
	Created int `json:"created"`
}

type timelineDeleteCmd struct {
	operatorFlags
	Names []string `arg:"" name:"name" help:"Names of the timelines."`
}

// Run deletes the timelines that have these names now.
func (c *timelineDeleteCmd) Run(ctx context.Context, con console) error {
	var all []front.TimelineRecord
	for _, name := range c.Names {
		r, err := c.timeline(ctx, name)
		if err != nil {
			return err
		}
		all = append(all, r)
	}
	if err := c.confirm(ctx, con, fmt.Sprintf("Requests for these timelines will fail from now on: %s.", strings.Join(c.Names, ", "))); err != nil {
		return err
	}
	for i, r := range all {
		change := front.TimelineChange{Action: front.DeleteTimeline, Names: []string{r.Name}, ID: r.ID}
		if err := c.changeTimeline(ctx, change, func(now front.TimelineRecord) bool { return now.ID == 0 }); err != nil {
			if i > 0 {
				err = fmt.Errorf("of %d timelines, the first %d were deleted; then %w", len(all), i, err)
			}
			return err
		}
	}
	return c.print(con, timelinesDeleted{all}, func(w io.Writer) {
		for _, r := range all {
			fmt.Fprintf(w, "timeline %s is deleted\n", r.Name)
		}
	})
}

// timelinesDeleted is the output of the command that deletes timelines.
type timelinesDeleted struct {
	Deleted []front.TimelineRecord `json:"deleted"`
}

type timelineMoveCmd struct {
	operatorFlags
	Name  string `arg:"" help:"Name of the timeline."`
	Group string `arg:"" help:"The group to move it to."`
}

// Run moves a timeline. One that is there already is no error.
func (c *timelineMoveCmd) Run(ctx context.Context, con console) error {
	r, err := c.timeline(ctx, c.Name)
	if err != nil {
		return err
	}
	if r.Group != c.Group {
		change := front.TimelineChange{Action: front.MoveTimeline, Names: []string{c.Name}, ID: r.ID, Group: c.Group}
		if err := c.changeTimeline(ctx, change, func(now front.TimelineRecord) bool { return now.Group == c.Group }); err != nil {
			return err
		}
	}
	return c.showTimeline(ctx, con, c.Name, fmt.Sprintf("timeline %s is in group %s", c.Name, c.Group))
}

type timelineFloorCmd struct {
	operatorFlags
	Name      string `arg:"" help:"Name of the timeline."`
	Timestamp string `arg:"" help:"A timestamp or a time, in any form that isotone floor raise takes."`
	Force     bool   `name:"force" help:"Permit a floor more than 24 hours ahead of the clock: time stands still until the clock has caught up."`
}

// Run raises the floor of a timeline. Repeated, it changes nothing.
func (c *timelineFloorCmd) Run(ctx context.Context, con console) error {
	floor, err := parseFloor(c.Timestamp, time.Now())
	if err != nil {
		return err
	}
	r, err := c.timeline(ctx, c.Name)
	if err != nil {
		return err
	}
	when := nanoTime(floor.Time)
	if err := c.confirm(ctx, con, fmt.Sprintf("All later timestamps of timeline %s will be larger than %s, as which %q is read (%s). This cannot be undone.", c.Name, when, c.Timestamp, floor.Form)); err != nil {
		return err
	}
	change := front.TimelineChange{Action: front.RaiseTimeline, Names: []string{c.Name}, ID: r.ID, Time: strconv.FormatUint(floor.Time, 10), Force: c.Force}
	if err := c.do(ctx, http.MethodPost, timelinesPath, change, &front.TimelineChanged{}); err != nil {
		return spelledAsFlags(err)
	}
	return c.showTimeline(ctx, con, c.Name, fmt.Sprintf("all later timestamps of timeline %s are larger than %s", c.Name, when))
}

type timelineQuotaCmd struct {
	operatorFlags
	Name string `arg:"" help:"Name of the timeline."`
	quotaFlags
}

// Run sets the quota of a timeline. Repeated, it changes nothing.
func (c *timelineQuotaCmd) Run(ctx context.Context, con console) error {
	r, err := c.timeline(ctx, c.Name)
	if err != nil {
		return err
	}
	quota := front.TimelineQuota(c.quotaFlags)
	change := front.TimelineChange{Action: front.LimitTimeline, Names: []string{c.Name}, ID: r.ID, Quota: quota}
	if err := c.changeTimeline(ctx, change, func(now front.TimelineRecord) bool { return now.ID != 0 && now.Quota == quota }); err != nil {
		return err
	}
	return c.showTimeline(ctx, con, c.Name, fmt.Sprintf("timeline %s: %s", c.Name, quotaText(quota)))
}

// quotaText says what a quota permits.
func quotaText(q front.TimelineQuota) string {
	var parts []string
	if q.Requests > 0 {
		parts = append(parts, fmt.Sprintf("%d requests", q.Requests))
	}
	if q.Timestamps > 0 {
		parts = append(parts, fmt.Sprintf("%d timestamps", q.Timestamps))
	}
	if parts == nil {
		return "no quota"
	}
	return "at most " + strings.Join(parts, " and ") + " a second"
}

type timelineSealCmd struct {
	operatorFlags
	Name string `arg:"" help:"Name of the timeline."`
}

// Run seals the timeline that has the name now. One that is sealed already is no error.
func (c *timelineSealCmd) Run(ctx context.Context, con console) error {
	r, err := c.timeline(ctx, c.Name)
	if err != nil {
		return err
	}
	if !r.Sealed {
		if err := c.confirm(ctx, con, fmt.Sprintf("Timeline %s issues no timestamps any more. This cannot be undone.", c.Name)); err != nil {
			return err
		}
		change := front.TimelineChange{Action: front.SealTimeline, Names: []string{c.Name}, ID: r.ID}
		if err := c.changeTimeline(ctx, change, func(now front.TimelineRecord) bool { return now.Sealed }); err != nil {
			return err
		}
		if r, err = c.timeline(ctx, c.Name); err != nil {
			return err
		}
	}
	return c.print(con, r, func(w io.Writer) {
		fmt.Fprintf(w, "timeline %s is sealed: all its timestamps are before %s\n", c.Name, nanoTime(r.Bound))
	})
}
