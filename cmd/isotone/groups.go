package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/isotone/isotone/internal/front"
)

// groupCmd has the commands about groups of timelines; see docs/operations.md.
type groupCmd struct {
	List   groupListCmd   `cmd:"" help:"List the groups that have or had timelines, and those that were created: which node owns them."`
	Create groupCreateCmd `cmd:"" help:"Create a group, beside the 256 of hash slots."`
	Drop   groupDropCmd   `cmd:"" help:"Remove a group that was created and has no timelines."`
	Move   groupMoveCmd   `cmd:"" help:"Have another node own a group."`
	Prefer groupPreferCmd `cmd:"" help:"Set which nodes are to own a group whenever they can."`
	Lease  groupLeaseCmd  `cmd:"" help:"Turn leases of a group on or off. With a lease, its owner answers requests in lease mode without asking other nodes."`
}

type groupListCmd struct{ operatorFlags }

// Run lists the groups.
func (c *groupListCmd) Run(ctx context.Context, con console) error {
	var l front.GroupList
	if err := c.do(ctx, http.MethodGet, "/admin/groups", nil, &l); err != nil {
		return err
	}
	return c.print(con, l, func(w io.Writer) { describeGroups(w, l) })
}

func describeGroups(w io.Writer, l front.GroupList) {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "GROUP\tTIMELINES\tOWNER\tADDRESS\tSINCE\tPREFERS\tLEASE")
	for _, r := range l.Groups {
		lease := ""
		if r.Lease {
			lease = "on"
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%d\t%s\t%s\n", r.Name, r.Timelines, ownerOf(r.NodeID), orDash(r.Addr), r.Grant, orDash(joinNodes(r.Prefer)), orDash(lease))
	}
	_ = t.Flush()
	fmt.Fprintf(w, "%d groups; those of the 256 hash slots that never had a timeline are not listed\n", len(l.Groups))
}

type groupCreateCmd struct {
	operatorFlags
	Group  string   `arg:"" help:"Name of the group: 1 to 64 letters, digits and . _ / -."`
	Prefer []uint64 `placeholder:"NODE,..." help:"IDs of the nodes that are to own it whenever they can, the first one before the others."`
}

// Run creates a group. One that exists already is no error, and keeps the nodes that it prefers if none are given.
func (c *groupCreateCmd) Run(ctx context.Context, con console) error {
	return c.changeGroup(ctx, con, front.TimelineChange{Action: front.MakeGroup, Group: c.Group, Prefer: c.Prefer}, "exists")
}

type groupPreferCmd struct {
	operatorFlags
	Group string   `arg:"" help:"Name of the group."`
	Nodes []uint64 `arg:"" optional:"" help:"IDs of the nodes, the first one before the others. Without any, no node is preferred."`
}

// Run sets which nodes are to own a group.
func (c *groupPreferCmd) Run(ctx context.Context, con console) error {
	then := "prefers no node"
	if len(c.Nodes) > 0 {
		then = "prefers " + joinNodes(c.Nodes)
	}
	return c.changeGroup(ctx, con, front.TimelineChange{Action: front.PreferNodes, Group: c.Group, Prefer: c.Nodes}, then)
}

// joinNodes writes the IDs of nodes.
func joinNodes(ids []uint64) string {
	var texts []string
	for _, id := range ids {
		texts = append(texts, strconv.FormatUint(id, 10))
	}
	return strings.Join(texts, ",")
}

type groupDropCmd struct {
	operatorFlags
	Group string `arg:"" help:"Name of the group."`
}

// Run removes a group.
func (c *groupDropCmd) Run(ctx context.Context, con console) error {
	return c.changeGroup(ctx, con, front.TimelineChange{Action: front.DropGroup, Group: c.Group}, "is removed")
}

type groupMoveCmd struct {
	operatorFlags
	Group string `arg:"" help:"Name of the group."`
	Node  uint64 `arg:"" help:"ID of the node that is to own it."`
}

// Run has a node own a group.
func (c *groupMoveCmd) Run(ctx context.Context, con console) error {
	return c.changeGroup(ctx, con, front.TimelineChange{Action: front.GrantGroup, Group: c.Group, NodeID: c.Node}, fmt.Sprintf("is owned by node %d", c.Node))
}

type groupLeaseCmd struct {
	operatorFlags
	Group string `arg:"" help:"Name of the group."`
	State string `arg:"" enum:"on,off" help:"on or off. While leases are on, timelines of the group cannot be moved, deleted or sealed, and a new owner waits 86 ms before it answers."`
}

// Run turns leases on or off.
func (c *groupLeaseCmd) Run(ctx context.Context, con console) error {
	action, then := front.LeaseGroup, "has leases"
	if c.State == "off" {
		action, then = front.UnleaseGroup, "has no leases"
	}
	return c.changeGroup(ctx, con, front.TimelineChange{Action: action, Group: c.Group}, then)
}

// changeGroup changes a group, and prints what it is then.
func (f *operatorFlags) changeGroup(ctx context.Context, con console, change front.TimelineChange, then string) error {
	var changed front.TimelineChanged
	if err := f.do(ctx, http.MethodPost, timelinesPath, change, &changed); err != nil {
		return err
	}
	return f.print(con, changed, func(w io.Writer) { fmt.Fprintf(w, "group %s %s\n", change.Group, then) })
}
