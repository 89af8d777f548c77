package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/config"
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

// reconcileReplicasMax is as many as PEERS may name in DNS.
const reconcileReplicasMax = 64

const ordinalPlace = "{ordinal}"

// memberStep is one change of the members.
type memberStep struct {
	change front.MemberChange
	what   string // as in "node 4 is removed"
}

// memberPlan says how to come from the present members to those that are wanted.
type memberPlan struct {
	steps []memberStep // removals before additions
	// blocked says why the first step has to wait, or is "".
	blocked string
	// notes are about members that are left as they are.
	notes []string
}

// podSet is what the members are to be.
type podSet struct {
	addrs         map[uint64]string // peer address by node ID
	before, after string            // of the address, around the ordinal
	minimum       int               // voters
}

// podsWanted parses the flags.
func (c *memberReconcileCmd) podsWanted() (set podSet, err error) {
	var found bool
	set = podSet{addrs: map[uint64]string{}, minimum: c.Minimum}
	set.before, set.after, found = strings.Cut(c.PeerAddr, ordinalPlace)
	_, _, addrErr := net.SplitHostPort(set.before + "0" + set.after)
	switch {
	case c.Replicas < 1 || c.Replicas > reconcileReplicasMax:
		return set, usagef("--replicas: want 1 to %d", reconcileReplicasMax)
	case !found || addrErr != nil || strings.Contains(set.after, ordinalPlace):
		return set, usagef("--peer-addr: want host:port with one %s in the host, as in isotone-%s.isotone:60001", ordinalPlace, ordinalPlace)
	case c.Minimum < 1:
		return set, usageError("--minimum: want 1 or more")
	}
	if err := checkWait(c.Wait); err != nil {
		return set, err
	}
	ids, err := config.ParseNodeIDs(c.NodeIDs)
	if err != nil {
		return set, usagef("--node-ids: %v", err)
	}
	for ordinal := range c.Replicas {
		set.addrs[ids.Of(ordinal)] = set.before + strconv.FormatUint(ordinal, 10) + set.after
	}
	return set, nil
}

// has reports whether an address is that of a node of the set, whatever its ordinal.
func (s podSet) has(addr string) bool {
	rest, ok := strings.CutPrefix(addr, s.before)
	number, isPod := strings.CutSuffix(rest, s.after)
	_, err := strconv.ParseUint(number, 10, 48)
	return ok && isPod && err == nil
}

// plan decides what is to be done. It changes nothing, and fails if the members cannot become those
// that are wanted.
func (s podSet) plan(l front.MemberList) (p memberPlan, err error) {
	var gone []front.MemberRecord
	found := false
	for _, m := range l.Members {
		want := s.addrs[m.NodeID]
		switch {
		case want == "" && !s.has(m.PeerAddr):
			p.notes = append(p.notes, fmt.Sprintf("node %d, at %s, is none of these nodes, and is left alone", m.NodeID, m.PeerAddr))
			continue
		case want == "":
			gone = append(gone, m)
		case m.PeerAddr != want && m.PeerAddr != "" && !isReplaced(l, m):
			return p, fmt.Errorf("node %d is on record at %s, and is to be at %s: correct --peer-addr or --node-ids, or change the record (isotone member update %d %s); nothing was changed",
				m.NodeID, m.PeerAddr, want, m.NodeID, want)
		}
		found = true
	}
	if !found {
		return p, fmt.Errorf("no member is one of these nodes, which are at %s%s%s: correct --endpoint or --peer-addr; nothing was changed", s.before, ordinalPlace, s.after)
	}
	added, err := s.missing(l)
	if err != nil {
		return p, err
	}
	p.remove(gone)
	p.steps = append(p.steps, added...)
	if slices.ContainsFunc(gone, isVoter) {
		p.blocked, err = s.checkStaying(l, gone)
	}
	return p, err
}

// isReplaced reports whether a member is to go once its successor is a voter.
func isReplaced(l front.MemberList, m front.MemberRecord) bool {
	return m.Replaces == 0 && slices.ContainsFunc(l.Members, func(o front.MemberRecord) bool { return o.Replaces == m.NodeID })
}

func isVoter(m front.MemberRecord) bool { return m.Role != "learner" }

// missing returns the additions, by ID.
func (s podSet) missing(l front.MemberList) (steps []memberStep, err error) {
	for _, id := range sortedIDs(s.addrs) {
		switch {
		case has(l, id, isAny):
		case slices.Contains(l.Removed, id):
			return nil, fmt.Errorf("node %d, at %s, was removed before, and an ID is used once: give that ordinal a new NODE_ID (NODE_ID=ordinal,ORDINAL=ID, and --node-ids here), and delete its old data directory; nothing was changed", id, s.addrs[id])
		default:
			steps = append(steps, memberStep{
				front.MemberChange{Action: front.AddMember, NodeID: id, PeerAddr: s.addrs[id]},
				fmt.Sprintf("node %d is added, at %s; it becomes a voter once it runs and has caught up", id, s.addrs[id]),
			})
		}
	}
	return steps, nil
}

// remove adds the removals: learners first, then the highest ID. Of a node that is being replaced the
// successor goes first.
func (p *memberPlan) remove(gone []front.MemberRecord) {
	slices.SortFunc(gone, func(a, b front.MemberRecord) int {
		switch {
		case isVoter(a) != isVoter(b):
			return map[bool]int{false: -1, true: 1}[isVoter(a)]
		case memberID(a) > memberID(b):
			return -1
		}
		return 1
	})
	for _, m := range gone {
		what := fmt.Sprintf("node %d is removed", m.NodeID)
		if m.Replaces != 0 {
			what = fmt.Sprintf("the replacement of node %d is given up", m.NodeID)
		}
		p.steps = append(p.steps, memberStep{front.MemberChange{Action: front.RemoveMember, NodeID: m.NodeID, MemberID: memberID(m)}, what})
	}
}

// checkStaying returns what the removal of voters has to wait for, or why it is refused.
func (s podSet) checkStaying(l front.MemberList, gone []front.MemberRecord) (blocked string, err error) {
	staying, leaving := 0, 0
	for _, m := range l.Members {
		switch {
		case !isVoter(m):
		case slices.ContainsFunc(gone, func(g front.MemberRecord) bool { return memberID(g) == memberID(m) }):
			leaving++
		case !m.Connected && blocked == "":
			blocked = fmt.Sprintf("node %d stays and is not connected: bring it back, or replace it", m.NodeID)
			staying++
		default:
			staying++
		}
	}
	if staying < s.minimum {
		return "", fmt.Errorf("of %d voters %d would be left, and the minimum is %d: a cluster of fewer than three survives no failure (--minimum N allows it); nothing was changed", staying+leaving, staying, s.minimum)
	}
	return blocked, nil
}

// Run changes the members step by step, each time as they are by then.
func (c *memberReconcileCmd) Run(ctx context.Context, con console) error {
	set, err := c.podsWanted()
	if err != nil {
		return err
	}
	l, p, err := c.look(ctx, set)
	if err != nil {
		return err
	}
	for _, note := range p.notes {
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
	for len(p.steps) > 0 {
		why := p.blocked
		if why == "" {
			why, err = c.take(ctx, con, p.steps[0])
		}
		if err != nil {
			return err
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
		fmt.Fprintf(w, "the members are as wanted: node %s\n", numbers(sortedIDs(set.addrs)))
	})
}

// look asks for the members, and decides.
func (c *memberReconcileCmd) look(ctx context.Context, set podSet) (l front.MemberList, p memberPlan, err error) {
	if err = c.do(ctx, http.MethodGet, membersPath, nil, &l); err == nil {
		p, err = set.plan(l)
	}
	return l, p, err
}

// take sends one change. A cluster that cannot make it yet says why.
func (c *memberReconcileCmd) take(ctx context.Context, con console, step memberStep) (why string, err error) {
	isDone := func(l front.MemberList) bool {
		if step.change.Action == front.AddMember {
			return has(l, step.change.NodeID, isAny)
		}
		return !has(l, step.change.NodeID, func(m front.MemberRecord) bool { return memberID(m) == step.change.MemberID })
	}
	_, err = c.apply(ctx, step.change, isDone)
	var told *operatorError
	switch {
	case err == nil:
		fmt.Fprintln(con.err, step.what)
	case errors.As(err, &told) && told.code == isotone.CodeOverloaded:
		return told.message, nil
	}
	return "", err
}

// pause waits a moment after a step that has to be repeated. At the end of --wait it says why.
func (c *memberReconcileCmd) pause(ctx context.Context, until time.Time, why string) error {
	switch {
	case why == "":
		return nil
	case time.Now().After(until):
		return fmt.Errorf("given up after %v: %s; what was done remains, and the command may be repeated", c.Wait, why)
	}
	timer := time.NewTimer(waitPoll)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// confirmRemovals asks before nodes are removed.
func (c *memberReconcileCmd) confirmRemovals(ctx context.Context, con console, p memberPlan) error {
	var ids []uint64
	for _, s := range p.steps {
		if s.change.Action == front.RemoveMember {
			ids = append(ids, s.change.NodeID)
		}
	}
	if ids == nil {
		return nil
	}
	slices.Sort(ids)
	return c.confirm(ctx, con, fmt.Sprintf("Node %s is removed for good: neither a data directory nor an ID of those can be used again.", numbers(slices.Compact(ids))))
}

func describePlan(w io.Writer, p memberPlan) {
	for _, s := range p.steps {
		fmt.Fprintf(w, "to do: %s\n", s.what)
	}
	if p.blocked != "" {
		fmt.Fprintf(w, "waits: %s\n", p.blocked)
	}
	if len(p.steps) == 0 {
		fmt.Fprintln(w, "nothing is to be done")
	}
}

func sortedIDs(addrs map[uint64]string) []uint64 { return slices.Sorted(maps.Keys(addrs)) }
