package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/admin"
	"github.com/isotone/isotone/internal/operator"
)

// memberCmd has the commands that change the members of a cluster; see docs/operations.md.
type memberCmd struct {
	List    memberListCmd    `cmd:"" help:"List the members as the leader sees them."`
	Add     memberAddCmd     `cmd:"" help:"Add a node. It becomes a voter once it has caught up."`
	Promote memberPromoteCmd `cmd:"" help:"Make a learner a voter."`
	Remove  memberRemoveCmd  `cmd:"" help:"Remove a node for good, or give up its replacement."`
	Replace memberReplaceCmd `cmd:"" help:"Replace a node that has lost its data directory, and wait until its successor is a voter."`
	Update  memberUpdateCmd  `cmd:"" help:"Change the addresses of a node."`

	Reconcile memberReconcileCmd `cmd:"" help:"Add and remove nodes until those of a set of numbered machines, such as a StatefulSet, are the members."`
}

type memberListCmd struct{ operatorFlags }

// Run lists the members.
func (c *memberListCmd) Run(ctx context.Context, con console) error {
	var l front.MemberList
	if err := c.do(ctx, http.MethodGet, operator.MembersPath, nil, &l); err != nil {
		return err
	}
	return c.print(con, l, func(w io.Writer) { describeMemberList(w, l) })
}

func describeMemberList(w io.Writer, l front.MemberList) {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "NODE\tROLE\tPEER ADDRESS\tCLIENT ADDRESS\tCONNECTED\tBEHIND\tSTARTS\tNOTE")
	for _, m := range l.Members {
		connected := "no"
		if m.Connected {
			connected = "yes"
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%d\t%d\t%s\n", m.NodeID, m.Role, orDash(m.PeerAddr), orDash(m.Addr), connected, m.Lag, m.Start, memberNote(m, l.Members))
	}
	_ = t.Flush()
	fmt.Fprintf(w, "cluster %s", l.ClusterID)
	if len(l.Removed) > 0 {
		fmt.Fprintf(w, "; removed or replaced before: node %s", numbers(l.Removed))
	}
	fmt.Fprintln(w)
}

// memberNote says what is to become of a member, or what it waits for.
func memberNote(m front.MemberRecord, all []front.MemberRecord) string {
	switch {
	case m.Promote && m.Incarnation == "":
		return "to be started with JOIN, on an empty data directory"
	case m.Promote && m.Role == "learner":
		return "becomes a voter when it has caught up"
	case m.Incarnation == "":
		return "has never connected"
	case slices.ContainsFunc(all, func(o front.MemberRecord) bool { return o.Replaces == m.NodeID && o.Generation > m.Generation }):
		return "is being replaced"
	}
	return ""
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// change sends a change of membership and prints the result.
func (f *operatorFlags) change(ctx context.Context, con console, change front.MemberChange, isDone func(front.MemberList) bool, text string) error {
	leader, err := f.connect(ctx)
	if err != nil {
		return err
	}
	l, err := leader.Apply(ctx, change, isDone)
	if err != nil {
		return err
	}
	return f.print(con, l, func(w io.Writer) { fmt.Fprintln(w, text) })
}

// waitFlags are those of commands that wait for a node to become a voter.
type waitFlags struct {
	Wait time.Duration `name:"wait" default:"10m" help:"Maximum time to wait until the node is a voter. 0: do not wait; the cluster goes on by itself."`
}

// checkWait refuses a time that is over before the command begins.
func checkWait(wait time.Duration) error {
	if wait < 0 {
		return usagef("--wait %v: want 0s or more", wait)
	}
	return nil
}

type memberAddCmd struct {
	operatorFlags
	ID       uint64         `arg:"" help:"NODE_ID of the new node: one that this cluster has never used."`
	PeerAddr string         `arg:"" name:"peer-addr" help:"Its peer address, host:port, as the other members reach it."`
	Learner  bool           `name:"learner" xor:"role" help:"Keep it a learner until it is promoted."`
	Voter    bool           `name:"voter" xor:"role" help:"Wait until it is a voter."`
	Wait     *time.Duration `name:"wait" placeholder:"DURATION" help:"With --voter: maximum time to wait. Default: 10m."`
}

// Run adds a node. If that was done already with the same address, it only waits.
func (c *memberAddCmd) Run(ctx context.Context, con console) error {
	wait := 10 * time.Minute
	c.waits = c.Voter
	switch {
	case c.Wait != nil && !c.Voter:
		return usagef("--wait needs --voter: otherwise the command does not wait")
	case c.Wait != nil:
		wait = *c.Wait
	}
	if err := checkWait(wait); err != nil {
		return err
	}
	var l front.MemberList
	if err := c.do(ctx, http.MethodGet, operator.MembersPath, nil, &l); err != nil {
		return err
	}
	if !c.isAdded(l) {
		change := front.MemberChange{Action: front.AddMember, NodeID: c.ID, PeerAddr: c.PeerAddr, Learner: c.Learner}
		var err error
		before := operator.Newest(l, c.ID)
		if l, err = c.client.Apply(ctx, change, c.isAdded); err != nil {
			return c.withRecord(err, before)
		}
	}
	if c.Voter {
		var err error
		if l, err = c.client.UntilVoter(ctx, c.ID, 0, wait, con.tell); err != nil {
			return err
		}
	}
	return c.print(con, l, func(w io.Writer) {
		_, voter := operator.Progress(l, c.ID)
		switch line := operator.StartLine(front.MemberRecord{NodeID: c.ID, PeerAddr: c.PeerAddr}); {
		case voter:
			fmt.Fprintf(w, "node %d is a voter\n", c.ID)
		case c.Learner:
			fmt.Fprintf(w, "node %d is added as a learner. Now, %s\nTo make it a voter: isotone member promote %d\n", c.ID, line, c.ID)
		default:
			fmt.Fprintf(w, "node %d is added, and becomes a voter once it has caught up. Now, %s\n", c.ID, line)
		}
	})
}

// withRecord adds to a refusal what is on record of a node that is a member already, and how to change that.
func (c *memberAddCmd) withRecord(err error, m front.MemberRecord) error {
	var told *operator.Error
	if m.NodeID == 0 || !errors.As(err, &told) || told.Code != isotone.CodeInvalidArgument {
		return err
	}
	text := fmt.Sprintf("on record: %s, peer address %s, client address %s", m.Role, orDash(m.PeerAddr), orDash(m.Addr))
	if m.PeerAddr != c.PeerAddr {
		text += fmt.Sprintf("; to change the address: isotone member update %d %s", c.ID, c.PeerAddr)
	}
	return fmt.Errorf("%w; %s", err, text)
}

// isAdded reports whether the node is a member as the command line says.
func (c *memberAddCmd) isAdded(l front.MemberList) bool {
	return operator.Has(l, c.ID, func(m front.MemberRecord) bool {
		stays := m.Role == "learner" && !m.Promote
		return m.PeerAddr == c.PeerAddr && stays == c.Learner
	})
}

type memberPromoteCmd struct {
	operatorFlags
	ID uint64 `arg:"" help:"NODE_ID of a learner."`
}

// Run promotes a learner. A node that is a voter already is no error.
func (c *memberPromoteCmd) Run(ctx context.Context, con console) error {
	var l front.MemberList
	if err := c.do(ctx, http.MethodGet, operator.MembersPath, nil, &l); err != nil {
		return err
	}
	done := fmt.Sprintf("node %d is a voter", c.ID)
	if _, voter := operator.Progress(l, c.ID); voter {
		return c.print(con, l, func(w io.Writer) { fmt.Fprintln(w, done) })
	}
	change := front.MemberChange{Action: front.PromoteMember, NodeID: c.ID}
	return c.change(ctx, con, change, func(l front.MemberList) bool { _, voter := operator.Progress(l, c.ID); return voter }, done)
}

type memberRemoveCmd struct {
	operatorFlags
	ID          uint64 `arg:"" help:"NODE_ID of the node."`
	Replacement bool   `name:"replacement" help:"Only give up the replacement of the node, if there is one. For scripts: repeated without it, the command removes the node itself."`
}

// Run removes a node. One that was removed before, or with --replacement is not being replaced, is
// no error.
func (c *memberRemoveCmd) Run(ctx context.Context, con console) error {
	var l front.MemberList
	if err := c.do(ctx, http.MethodGet, operator.MembersPath, nil, &l); err != nil {
		return err
	}
	member := operator.RecordOf(l, c.ID, func(m front.MemberRecord) bool { return m.Replaces == 0 })
	question, done := fmt.Sprintf("Node %d is removed for good: neither its data directory nor its ID can be used again.", c.ID), fmt.Sprintf("node %d is removed; stop it and delete its data directory", c.ID)
	isDone := func(l front.MemberList) bool { return member.NodeID != 0 && !operator.Has(l, c.ID, operator.IsAny) }
	switch {
	case operator.Has(l, c.ID, operator.IsSuccessor):
		member = operator.RecordOf(l, c.ID, operator.IsSuccessor)
		isDone = func(l front.MemberList) bool { return !operator.Has(l, c.ID, operator.IsSuccessor) }
		question, done = fmt.Sprintf("The replacement of node %d is given up.", c.ID), fmt.Sprintf("the replacement of node %d is given up; the node itself remains a member", c.ID)
	case c.Replacement && member.NodeID != 0:
		return c.print(con, l, func(w io.Writer) { fmt.Fprintf(w, "node %d is not being replaced\n", c.ID) })
	case c.Replacement:
		return fmt.Errorf("node %d is no member", c.ID)
	case member.NodeID == 0 && slices.Contains(l.Removed, c.ID):
		return c.print(con, l, func(w io.Writer) { fmt.Fprintln(w, done) })
	}
	if err := c.confirm(ctx, con, question); err != nil {
		return err
	}
	return c.change(ctx, con, front.MemberChange{Action: front.RemoveMember, NodeID: c.ID, MemberID: operator.MemberID(member)}, isDone, done)
}

type memberReplaceCmd struct {
	operatorFlags
	waitFlags
	ID       uint64 `arg:"" help:"NODE_ID of the node, and of its successor."`
	PeerAddr string `arg:"" name:"peer-addr" help:"Peer address of the successor, host:port; it may be the old one."`
}

// Run replaces a node. If that is under way already with the same address, it only waits; and if
// a successor runs there, it does nothing: the command was repeated.
func (c *memberReplaceCmd) Run(ctx context.Context, con console) error {
	if err := checkWait(c.Wait); err != nil {
		return err
	}
	c.waits = c.Wait > 0
	var l front.MemberList
	if err := c.do(ctx, http.MethodGet, operator.MembersPath, nil, &l); err != nil {
		return err
	}
	generation := operator.Newest(l, c.ID).Generation // before the replacement
	if operator.Has(l, c.ID, operator.IsSuccessor) {
		generation--
	}
	member := operator.RecordOf(l, c.ID, func(m front.MemberRecord) bool { return m.Replaces == 0 })
	if c.isReplaced(operator.Newest(l, c.ID)) {
		return c.print(con, l, func(w io.Writer) {
			fmt.Fprintf(w, "node %d is replaced: its new data directory is in use at %s (to replace that one as well, stop the node first)\n", c.ID, c.PeerAddr)
		})
	}
	isUnderWay := func(l front.MemberList) bool {
		return operator.Has(l, c.ID, func(m front.MemberRecord) bool { return m.Generation > generation && m.PeerAddr == c.PeerAddr })
	}
	if !isUnderWay(l) {
		question := fmt.Sprintf("Node %d gets a new data directory, at %s. The old one can never be used again.", c.ID, c.PeerAddr)
		if err := c.confirm(ctx, con, question); err != nil {
			return err
		}
		var err error
		if l, err = c.client.Apply(ctx, front.MemberChange{Action: front.ReplaceMember, NodeID: c.ID, MemberID: operator.MemberID(member), PeerAddr: c.PeerAddr}, isUnderWay); err != nil {
			return err
		}
	}
	done := fmt.Sprintf("node %d is replaced", c.ID)
	if c.Wait > 0 {
		var err error
		if l, err = c.client.UntilVoter(ctx, c.ID, operator.Newest(l, c.ID).Generation, c.Wait, con.tell); err != nil {
			return err
		}
	} else {
		done, _ = operator.Progress(l, c.ID)
	}
	return c.print(con, l, func(w io.Writer) { fmt.Fprintln(w, done) })
}

// isReplaced reports whether the newest member of the node is a successor that runs at the address
// of the command line: the command was run before.
func (c *memberReplaceCmd) isReplaced(m front.MemberRecord) bool {
	return m.Generation > 0 && m.Replaces == 0 && m.Role != "learner" && m.Connected && m.PeerAddr == c.PeerAddr
}

type memberUpdateCmd struct {
	operatorFlags
	ID         uint64 `arg:"" help:"NODE_ID of the node."`
	PeerAddr   string `arg:"" name:"peer-addr" help:"Its new peer address, host:port, or - to keep the present one."`
	ClientAddr string `arg:"" optional:"" name:"client-addr" help:"Its new client address, host:port. Default: the present one. It counts until the node is started with another ADVERTISE_ADDR."`
}

// Run changes addresses.
func (c *memberUpdateCmd) Run(ctx context.Context, con console) error {
	if c.PeerAddr == "-" {
		c.PeerAddr = ""
	}
	if c.PeerAddr == "" && c.ClientAddr == "" {
		return usageError("no address to change")
	}
	change := front.MemberChange{Action: front.UpdateMember, NodeID: c.ID, PeerAddr: c.PeerAddr, ClientAddr: c.ClientAddr}
	return c.change(ctx, con, change, func(l front.MemberList) bool {
		return operator.Has(l, c.ID, func(m front.MemberRecord) bool {
			return (c.PeerAddr == "" || m.PeerAddr == c.PeerAddr) && (c.ClientAddr == "" || m.Addr == c.ClientAddr)
		})
	}, fmt.Sprintf("the addresses of node %d are changed", c.ID))
}

// leaderCmd has the commands about the leadership.
type leaderCmd struct {
	Show     leaderShowCmd     `cmd:"" help:"Show which node leads."`
	Transfer leaderTransferCmd `cmd:"" help:"Transfer the leadership to a node."`
	Resign   leaderResignCmd   `cmd:"" help:"Transfer the leadership to any other voter."`
}

type leaderShowCmd struct{ operatorFlags }

// leaderReport is the output of the commands about the leadership.
type leaderReport struct {
	NodeID uint64 `json:"nodeID"`
	Addr   string `json:"addr"`
}

// Run shows the leader.
func (c *leaderShowCmd) Run(ctx context.Context, con console) error { return c.showLeader(ctx, con) }

func (f *operatorFlags) showLeader(ctx context.Context, con console) error {
	var l front.MemberList
	if err := f.do(ctx, http.MethodGet, operator.MembersPath, nil, &l); err != nil {
		return err
	}
	for _, m := range l.Members {
		if m.Role == "leader" {
			return f.print(con, leaderReport{m.NodeID, m.Addr}, func(w io.Writer) { fmt.Fprintf(w, "node %d leads, at %s\n", m.NodeID, m.Addr) })
		}
	}
	return errors.New("no node leads")
}

type leaderTransferCmd struct {
	operatorFlags
	ID *uint64 `arg:"" optional:"" help:"NODE_ID of a voter. Default: the one that is most up to date."`
}

// Run transfers the leadership.
func (c *leaderTransferCmd) Run(ctx context.Context, con console) error {
	switch {
	case c.ID == nil:
		return c.transfer(ctx, con, 0)
	case *c.ID == 0:
		return usageError("0 is the NODE_ID of no node; without one, leadership goes to the voter that is most up to date")
	}
	return c.transfer(ctx, con, *c.ID)
}

type leaderResignCmd struct{ operatorFlags }

// Run transfers the leadership.
func (c *leaderResignCmd) Run(ctx context.Context, con console) error {
	return c.transfer(ctx, con, 0)
}

func (f *operatorFlags) transfer(ctx context.Context, con console, to uint64) error {
	if err := f.do(ctx, http.MethodPost, "/admin/leader", admin.Leader{To: to}, &struct{}{}); err != nil {
		return err
	}
	return f.showLeader(ctx, con)
}
