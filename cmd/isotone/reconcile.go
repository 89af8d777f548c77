package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/operator"
)

// memberReconcileCmd makes the members those of a set of machines with numbered names, as the pods
// of a StatefulSet are, before their number is changed. See docs/kubernetes.md.
type memberReconcileCmd struct {
	operatorFlags
	Replicas uint64        `name:"replicas" required:"" placeholder:"N" help:"How many nodes there are to be: those with the ordinals 0 to N-1. 1 to 64."`
	PeerAddr string        `name:"peer-addr" required:"" placeholder:"HOST:PORT" help:"Peer address of all nodes, with {ordinal} in place of the number of each, as in isotone-{ordinal}.isotone:60001. Members with other IDs at other addresses are left alone."`
	NodeIDs  string        `name:"node-ids" placeholder:"ORDINAL=ID,..." help:"NODE_ID of nodes for which it is not one more than the ordinal; as after NODE_ID=ordinal."`
	Minimum  int           `name:"minimum" default:"3" help:"Remove no voter if fewer than this would be left."`
	Wait     time.Duration `name:"wait" default:"2m" help:"Maximum time to wait until members that stay are connected, and until those that go are gone."`
	DryRun   bool          `name:"dry-run" help:"Only say what is to be done."`
}

// Help is shown below the flags.
func (*memberReconcileCmd) Help() string {
	return `Run it before the number of pods is changed: it adds the members that are missing, which become voters
once their pods have started and caught up, and removes those that are too many, the highest ID first. Voters are removed one
at a time, and only while all voters that stay are connected. What is done already is left as it is, so it may be
repeated at any time.`
}

// podsWanted parses the flags.
func (c *memberReconcileCmd) podsWanted() (set operator.Pods, err error) {
	if c.Replicas < 1 || c.Replicas > operator.PodsMax {
		return set, usagef("--replicas: want 1 to %d", operator.PodsMax)
	}
	ids, err := config.ParseNodeIDs(c.NodeIDs)
	if err != nil {
		return set, usagef("--node-ids: %v", err)
	}
	set, ok := operator.NewPods(c.PeerAddr, c.Replicas, c.Minimum, ids.Of)
	switch {
	case !ok:
		return set, usagef("--peer-addr: want host:port with one %s in the host, as in isotone-%s.isotone:60001", operator.OrdinalPlace, operator.OrdinalPlace)
	case c.Minimum < 1:
		return set, usageError("--minimum: want 1 or more")
	}
	return set, checkWait(c.Wait)
}

// Run changes the members step by step, each time as they are by then.
func (c *memberReconcileCmd) Run(ctx context.Context, con console) error {
	set, err := c.podsWanted()
	if err != nil {
		return err
	}
	c.waits = true
	l, p, err := c.look(ctx, set)
	if err != nil {
		return err
	}
	for _, note := range p.Notes {
		fmt.Fprintln(con.err, note)
	}
	if c.DryRun {
		return c.print(con, l, func(w io.Writer) { describePlan(w, p) })
	}
	if err := c.confirmRemovals(ctx, con, p); err != nil {
		return err
	}
	until := time.Now().Add(c.Wait)
	told := ""
	for len(p.Steps) > 0 {
		why := p.Blocked
		if why == "" {
			if why, err = c.client.Take(ctx, p.Steps[0]); err != nil {
				return err
			}
			if why == "" {
				con.tell(p.Steps[0].What)
			}
		}
		if why != told && why != "" {
			fmt.Fprintf(con.err, "waiting: %s\n", why)
		}
		told = why
		if err := c.pause(ctx, until, why); err != nil {
			return err
		}
		if l, p, err = c.look(ctx, set); err != nil {
			return err
		}
	}
	return c.print(con, l, func(w io.Writer) {
		fmt.Fprintf(w, "the members are as wanted: node %s\n", numbers(set.IDs()))
	})
}

// look asks for the members, and decides.
func (c *memberReconcileCmd) look(ctx context.Context, set operator.Pods) (l front.MemberList, p operator.Plan, err error) {
	if err = c.do(ctx, http.MethodGet, operator.MembersPath, nil, &l); err == nil {
		p, err = set.Plan(l)
	}
	return l, p, err
}

// pause waits a moment after a step that has to be repeated. At the end of --wait it says why.
func (c *memberReconcileCmd) pause(ctx context.Context, until time.Time, why string) error {
	switch {
	case why == "":
		return nil
	case time.Now().After(until):
		return fmt.Errorf("given up after %v: %s; what was done remains, and the command may be repeated", c.Wait, why)
	}
	within, cancel := c.limit.Context(ctx)
	defer cancel()
	if err := operator.Pause(within); err != nil && ctx.Err() == nil {
		return fmt.Errorf("given up after %v, the --timeout: %s; what was done remains, and the command may be repeated", *c.Timeout, why)
	} else if err != nil {
		return err
	}
	return nil
}

// confirmRemovals asks before nodes are removed.
func (c *memberReconcileCmd) confirmRemovals(ctx context.Context, con console, p operator.Plan) error {
	var ids []uint64
	for _, s := range p.Steps {
		if s.Change.Action == front.RemoveMember {
			ids = append(ids, s.Change.NodeID)
		}
	}
	if ids == nil {
		return nil
	}
	slices.Sort(ids)
	return c.confirm(ctx, con, fmt.Sprintf("Node %s is removed for good: neither a data directory nor an ID of those can be used again.", numbers(slices.Compact(ids))))
}

func describePlan(w io.Writer, p operator.Plan) {
	for _, s := range p.Steps {
		fmt.Fprintf(w, "to do: %s\n", s.What)
	}
	if p.Blocked != "" {
		fmt.Fprintf(w, "waits: %s\n", p.Blocked)
	}
	if len(p.Steps) == 0 {
		fmt.Fprintln(w, "nothing is to be done")
	}
}
