package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/front"
)

// What operators ask for; see front.Operator. Every request becomes part of the input of one
// step of the replica, which refuses or proposes it. The answer waits until the applied log
// shows the effect.

const (
	// operationsMax bounds the requests of operators that wait for a step.
	operationsMax = 64
	// transferTicks is the time between two attempts to transfer the leadership: Raft gives one up
	// after 20 ticks if the other node does not get a majority.
	transferTicks = 40
	// appliedPoll paces the wait for a commit.
	appliedPoll = 5 * time.Millisecond
)

// operation is one request of an operator.
type operation struct {
	set func(*replica.Input)
	// refusal returns why the step refused it, or nil.
	refusal func(*replica.Effects) *isotone.Error
	// done gets the refusal. It has room for it.
	done chan *isotone.Error
}

// operate has the leader's replica take in one request, and returns its refusal.
func (n *Node) operate(set func(*replica.Input), refusal func(*replica.Effects) *isotone.Error) error {
	op := operation{set, refusal, make(chan *isotone.Error, 1)}
	var err error
	if !n.call(func() {
		switch {
		case !n.core.replica.Status().Serving:
			err = n.redirect()
		case len(n.core.operations) >= operationsMax:
			err = isotone.ErrOverloaded
		default:
			n.core.operations = append(n.core.operations, op)
		}
	}) {
		return errStopped
	}
	if err != nil {
		return err
	}
	select {
	case refused := <-op.done:
		if refused != nil {
			return refused
		}
		return nil
	case <-n.hosts[0].Done():
		return errStopped
	}
}

// takeOperation puts the first waiting request into the input of this turn, and returns it.
func (c *core) takeOperation() (op operation) {
	if len(c.operations) > 0 {
		op = c.operations[0]
		c.operations = slices.Delete(c.operations, 0, 1)
		op.set(&c.next)
	}
	return op
}

// answer tells the operator whether the step refused the request.
func (op *operation) answer(e *replica.Effects) {
	if op.done != nil {
		op.done <- op.refusal(e)
	}
}

// await waits until the applied log shows the effect of a proposal. what completes the
// sentence "… was not confirmed in time".
func (n *Node) await(ctx context.Context, what string, isDone func(*replica.Replica) bool) error {
	tick := time.NewTicker(appliedPoll)
	defer tick.Stop()
	for {
		done, lost := false, false
		if !n.call(func() {
			done = isDone(n.core.replica)
			lost = n.core.replica.Status().Role != raft.StateLeader
		}) {
			return errStopped
		}
		switch {
		case done:
			return nil
		case lost:
			return isotone.Errorf(isotone.CodeNoLeader, "the leadership changed before %s was confirmed: it may or may not have happened; look, and try again", what)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return isotone.Errorf(isotone.CodeDeadlineExceeded, "%s was not confirmed in time: it may still happen; look before you try again", what)
		}
	}
}

// RaiseFloor raises the floor; see front.Operator.
func (n *Node) RaiseFloor(ctx context.Context, text string, force bool) (front.FloorRaised, error) {
	floor, err := oracle.ParseFloor(text, uint64(max(0, n.cfg.Clock.Wall().UnixNano())))
	if err != nil {
		return front.FloorRaised{}, isotone.Errorf(isotone.CodeInvalidArgument, "time: %v", err)
	}
	a := front.FloorRaised{Time: floor.Time}
	err = n.operate(func(in *replica.Input) {
		in.RaiseFloor = &replica.FloorRequest{Time: floor.Time, Force: force}
		a.Before = n.core.replica.Status().Time
	}, func(e *replica.Effects) *isotone.Error { return e.FloorRefused })
	if err == nil {
		err = n.await(ctx, "the floor", func(r *replica.Replica) bool {
			s := r.Status()
			a.After = s.Time
			return s.Serving && s.Time > floor.Time
		})
	}
	a.Raised = a.Before <= floor.Time
	return a, err
}

// Transfer transfers the leadership; see front.Operator.
func (n *Node) Transfer(ctx context.Context, to uint64) error {
	var err error
	var target uint64
	if !n.call(func() { target, err = n.core.transferTarget(to) }) {
		return errStopped
	}
	if err != nil || target == n.cfg.NodeID {
		return err
	}
	reached(n.cfg.Steps, "transfer received")
	ask := func() error {
		return n.operate(func(in *replica.Input) { in.Transfer, in.TransferTo = true, target }, func(*replica.Effects) *isotone.Error { return nil })
	}
	if err := ask(); err != nil {
		return err
	}
	tick, again := time.NewTicker(appliedPoll), time.NewTicker(transferTicks*n.cfg.Tick)
	defer tick.Stop()
	defer again.Stop()
	for {
		switch s := n.Status(); {
		case s.Leader == 0 || s.Leader == s.NodeID:
		case to == 0 || s.Leader == to:
			reached(n.cfg.Steps, "transfer confirmed")
			return nil
		default:
			return n.redirect() // a third node was elected, and has to transfer it
		}
		select {
		case <-tick.C:
		case <-again.C:
			_ = ask() // if this node does not lead any more, its status will tell
		case <-n.hosts[0].Done():
			return errStopped
		case <-ctx.Done():
			return isotone.Errorf(isotone.CodeDeadlineExceeded, "the leadership was not transferred in time; the other node may be behind, or not connected")
		}
	}
}

// transferTarget checks to whom the leadership is to be transferred: a node, or 0 for any.
func (c *core) transferTarget(node uint64) (uint64, error) {
	if !c.replica.Status().Serving {
		return 0, c.node.redirect()
	}
	if node == 0 {
		if c.replica.Voters() < 2 {
			return 0, isotone.Errorf(isotone.CodeInvalidArgument, "there is no other voter to transfer the leadership to")
		}
		return 0, nil
	}
	why := "is no voter of this cluster"
	for _, m := range c.replica.Members() {
		switch {
		case oracle.NodeOf(m.ID) != node || m.Learner:
		case m.ID != c.node.cfg.NodeID && c.peers.conns[m.ID] == nil:
			why = "is not connected" // or this is the former member of a node that was replaced
		default:
			return m.ID, nil
		}
	}
	return 0, isotone.Errorf(isotone.CodeInvalidArgument, "node %d %s", node, why)
}

// Members describes the members; see front.Operator.
func (n *Node) Members() (l front.MemberList, err error) {
	if !n.call(func() {
		if !n.core.replica.Status().Serving {
			err = n.redirect()
			return
		}
		l = n.core.memberList()
	}) {
		err = errStopped
	}
	return l, err
}

func (c *core) memberList() front.MemberList {
	s := c.replica.Status()
	l := front.MemberList{ClusterID: isotone.ClusterID(s.ClusterID).String(), Leader: oracle.NodeOf(s.Leader), Removed: []uint64{}}
	lags := map[uint64]uint64{}
	for _, lag := range c.replica.Lags() {
		lags[lag.ID] = lag.Entries
	}
	for _, m := range c.replica.Members() {
		r := front.MemberRecord{
			NodeID: oracle.NodeOf(m.ID), Generation: oracle.GenerationOf(m.ID), Role: "voter", PeerAddr: m.PeerAddr, Addr: m.ClientAddr,
			Level: m.Level, Start: m.Boot, Connected: m.ID == c.node.cfg.NodeID || c.peers.conns[m.ID] != nil, Lag: lags[m.ID],
			Promote: m.Promote, Replaces: oracle.NodeOf(m.Replaces),
		}
		if m.Incarnation != 0 {
			r.Incarnation = isotone.ClusterID(m.Incarnation).String()
		}
		switch {
		case m.ID == s.Leader:
			r.Role = "leader"
		case m.Learner:
			r.Role = "learner"
		}
		l.Members = append(l.Members, r)
	}
	slices.SortStableFunc(l.Members, func(a, b front.MemberRecord) int {
		return cmp.Or(cmp.Compare(a.NodeID, b.NodeID), cmp.Compare(a.Generation, b.Generation))
	})
	for _, id := range c.replica.Removed() {
		l.Removed = append(l.Removed, oracle.NodeOf(id))
	}
	return l
}

// ChangeMember changes the membership; see front.Operator.
func (n *Node) ChangeMember(ctx context.Context, q front.MemberChange) error {
	var change replica.MemberChange
	var isDone func(*replica.Replica) bool
	var err error
	if !n.call(func() {
		if !n.core.replica.Status().Serving {
			err = n.redirect()
			return
		}
		change, isDone, err = n.core.resolve(q)
	}) {
		return errStopped
	}
	if err != nil {
		return err
	}
	reached(n.cfg.Steps, "change received")
	if change.Kind == replica.Remove && change.Member.ID == n.cfg.NodeID {
		// It may be the last voter: then the change is refused below.
		if err := n.Transfer(ctx, 0); err == nil {
			return n.redirect()
		}
	}
	err = n.operate(func(in *replica.Input) { in.Change = &change }, func(e *replica.Effects) *isotone.Error { return e.ChangeRefused })
	if refusal := (*isotone.Error)(nil); errors.As(err, &refusal) && refusal.Code == isotone.CodeOverloaded {
		missing := ""
		if n.call(func() { missing = n.core.missingAfter(change) }) && missing != "" {
			return isotone.Errorf(isotone.CodeNoQuorum, "%s; not connected: %s; start what is missing or, if it is lost for good, remove it first", refusal.Message, missing)
		}
	}
	if err != nil {
		return err
	}
	if err := n.await(ctx, "the change", isDone); err != nil {
		return err
	}
	reached(n.cfg.Steps, "change confirmed")
	return nil
}

// missingAfter names the voters that are not connected, if the connected ones would be no quorum after a change. It returns ""
// if they would, or if the change waits for the node itself.
func (c *core) missingAfter(change replica.MemberChange) string {
	isConnected := func(id uint64) bool { return id == c.node.cfg.NodeID || c.peers.conns[id] != nil }
	promoted := change.Kind == replica.AddVoter
	if change.Kind != replica.Remove && !promoted || promoted && !isConnected(change.Member.ID) {
		return ""
	}
	gone, all := change.Member.ID, c.replica.Members()
	if promoted {
		i := slices.IndexFunc(all, func(m replica.Member) bool { return m.ID == change.Member.ID })
		if i < 0 {
			return ""
		}
		gone = all[i].Replaces
	}
	voters, missing := 0, []string{}
	for _, m := range all {
		if m.ID == gone || m.Learner && (!promoted || m.ID != change.Member.ID) {
			continue
		}
		if voters++; !isConnected(m.ID) {
			missing = append(missing, fmt.Sprintf("node %d (%s)", oracle.NodeOf(m.ID), cmp.Or(m.PeerAddr, "address unknown")))
		}
	}
	if voters-len(missing) > voters/2 {
		return ""
	}
	return strings.Join(missing, ", ")
}

// resolve translates a change of nodes into one of members, and says when it is done.
func (c *core) resolve(q front.MemberChange) (change replica.MemberChange, isDone func(*replica.Replica) bool, err error) {
	current, joining := c.membersOf(q.NodeID)
	id := cmp.Or(q.MemberID, current.ID, joining.ID, q.NodeID)
	has := func(r *replica.Replica, found func(replica.Member) bool) bool {
		return slices.ContainsFunc(r.Members(), found)
	}
	if err := c.checkMemberID(q); err != nil {
		return change, nil, err
	}
	m := oracle.Member{ID: id, PeerAddr: q.PeerAddr, ClientAddr: q.ClientAddr}
	switch q.Action {
	case front.AddMember:
		m.Promote = !q.Learner
		change = replica.MemberChange{Kind: replica.AddLearner, Member: m}
		isDone = func(r *replica.Replica) bool { return has(r, func(o replica.Member) bool { return o.ID == id }) }
	case front.PromoteMember:
		m.ID = cmp.Or(joining.ID, id)
		change = replica.MemberChange{Kind: replica.AddVoter, Member: m}
		isDone = func(r *replica.Replica) bool {
			return has(r, func(o replica.Member) bool { return o.ID == m.ID && !o.Learner })
		}
	case front.RemoveMember:
		if joining.Replaces != 0 && q.MemberID == 0 {
			m.ID = joining.ID // the replacement is given up
		}
		change = replica.MemberChange{Kind: replica.Remove, Member: m}
		isDone = func(r *replica.Replica) bool { return !has(r, func(o replica.Member) bool { return o.ID == m.ID }) }
	case front.ReplaceMember:
		change = replica.MemberChange{Kind: replica.ReplaceMember, Member: m}
		before := max(current.ID, joining.ID) // the successor may be a voter already when this looks
		isDone = func(r *replica.Replica) bool {
			return has(r, func(o replica.Member) bool { return oracle.NodeOf(o.ID) == q.NodeID && o.ID > before })
		}
	case front.UpdateMember:
		change = replica.MemberChange{Kind: replica.UpdateMember, Member: m}
		isDone = func(r *replica.Replica) bool {
			return has(r, func(o replica.Member) bool {
				return o.ID == id && (q.PeerAddr == "" || o.PeerAddr == q.PeerAddr) && (q.ClientAddr == "" || o.ClientAddr == q.ClientAddr)
			})
		}
	default:
		return change, nil, isotone.Errorf(isotone.CodeInvalidArgument, "action: want add, promote, remove, replace or update, not %.32q", q.Action)
	}
	return change, isDone, nil
}

// checkMemberID refuses a change of a member that the node has no more.
func (c *core) checkMemberID(q front.MemberChange) error {
	switch {
	case q.MemberID == 0:
		return nil
	case q.Action != front.RemoveMember && q.Action != front.ReplaceMember:
		return isotone.Errorf(isotone.CodeInvalidArgument, "memberID: want none with action %.32q", q.Action)
	case oracle.NodeOf(q.MemberID) != q.NodeID:
		return isotone.Errorf(isotone.CodeInvalidArgument, "memberID: %d is of node %d, not of node %d", q.MemberID, oracle.NodeOf(q.MemberID), q.NodeID)
	case !slices.ContainsFunc(c.replica.Members(), func(m replica.Member) bool { return m.ID == q.MemberID }):
		return isotone.Errorf(isotone.CodeInvalidArgument, "node %d is no member with generation %d: that one was removed or replaced; look (isotone member list), and try again",
			q.NodeID, oracle.GenerationOf(q.MemberID))
	}
	return nil
}

// membersOf returns the member that a node is, and the one that it is to become; a zero
// record stands for none.
func (c *core) membersOf(node uint64) (current, joining replica.Member) {
	for _, m := range c.replica.Members() {
		switch {
		case oracle.NodeOf(m.ID) != node:
		case m.Learner && (m.Promote || m.Replaces != 0):
			joining = m
		default:
			current = m
		}
	}
	return current, joining
}

// Joining tells a node with an empty data directory how to join; see front.Operator.
func (n *Node) Joining(node, incarnation uint64, proof string) (j front.Joining, err error) {
	if !n.call(func() { j, err = n.core.joining(node, incarnation) }) {
		err = errStopped
	}
	// Nodes without a cluster say so without a proof: founders need the answer to decide whether to form one.
	if !errors.Is(err, errNoCluster) && err != errStopped {
		if refused := n.cfg.PeerTLS.mayJoin(node, incarnation, proof); refused != nil {
			return front.Joining{}, refused
		}
	}
	if err == nil {
		reached(n.cfg.Steps, "join answered")
	}
	return j, err
}

var errNoCluster = isotone.Errorf(isotone.CodeNoLeader, "this node has no cluster yet")

func (c *core) joining(node, incarnation uint64) (front.Joining, error) {
	s := c.replica.Status()
	if s.ClusterID == 0 {
		return front.Joining{}, errNoCluster
	}
	cluster := isotone.ClusterID(s.ClusterID).String()
	j := front.Joining{ClusterID: cluster, Peers: map[uint64]string{}}
	known := false
	for _, m := range c.replica.Members() {
		j.Peers[m.ID] = m.PeerAddr
		if oracle.NodeOf(m.ID) == node {
			known = true
			if m.Incarnation == 0 || m.Incarnation == incarnation {
				j.MemberID = m.ID
			}
		}
	}
	switch {
	case j.MemberID != 0:
		return j, nil
	case known:
		return front.Joining{}, isotone.Errorf(isotone.CodeInvalidArgument,
			"node %d is a member of cluster %s with another data directory; if that is lost, run: isotone member replace %d PEER_ADDR", node, cluster, node)
	}
	return front.Joining{}, isotone.Errorf(isotone.CodeNotFound, "node %d is not a member of cluster %s yet; run: isotone member add %d PEER_ADDR", node, cluster, node)
}
