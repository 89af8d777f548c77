package node

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/timeline"
	"github.com/isotone/isotone/internal/core/wire"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/telemetry"
)

// What operators ask for about timelines; see front.Timelines.

var errTimelinesOff = isotone.Errorf(isotone.CodeInvalidArgument, "timelines are off; start all nodes with TIMELINES=1")

// timelineRequests are changes of timelines that are not answered. They belong to the core loop's goroutine.
type timelineRequests struct {
	open   map[uint64]chan<- replica.TimelineAnswer // by token; each has room for the answer
	tokens uint64
}

// take adds a change to the input of the next turn.
func (t *timelineRequests) take(q replica.TimelineRequest, done chan<- replica.TimelineAnswer, in *replica.Input) {
	if len(t.open) >= operationsMax {
		done <- replica.TimelineAnswer{Err: isotone.ErrOverloaded}
		return
	}
	t.tokens++
	q.Token = t.tokens
	t.open[q.Token] = done
	in.TimelineRequests = append(in.TimelineRequests, q)
}

func (t *timelineRequests) answer(a replica.TimelineAnswer) {
	t.open[a.Token] <- a
	delete(t.open, a.Token)
}

// Timelines describes timelines; see front.Timelines.
func (n *Node) Timelines(prefix, after string, limit int) (l front.TimelineList, err error) {
	err = n.asLeader(func(r *replica.Replica) {
		table, addrs := r.Timelines(), clientAddrs(r)
		l = front.TimelineList{Total: table.Len(), Timelines: []front.TimelineRecord{}}
		limit = min(max(limit, 1), front.TimelinesPage)
		names := table.Timelines(prefix, after, limit+1)
		if len(names) > limit {
			names = names[:limit]
			l.After = names[limit-1]
		}
		for _, name := range names {
			have, _ := table.Timeline(name)
			g, _ := table.Group(have.Group)
			l.Timelines = append(l.Timelines, front.TimelineRecord{
				Name: name, ID: have.ID, Group: have.Group, NodeID: oracle.NodeOf(g.Owner), Addr: addrs[g.Owner], Sealed: have.Bound != 0, Bound: have.Bound, Quota: front.TimelineQuota(have.Quota),
			})
		}
	})
	return l, err
}

// Timeline returns the state of a timeline; see front.TimelineTable.
func (n *Node) Timeline(name string) (state front.TimelineState, ok bool) {
	n.call(func() { state, ok = stateOf(n.core.replica.Timelines(), name) })
	return state, ok
}

// Timeline is [Node.Timeline] for the fronts in the core loop.
func (b coreBackend) Timeline(name string) (front.TimelineState, bool) {
	return stateOf(b.replica.Timelines(), name)
}

func stateOf(table *timeline.Table, name string) (front.TimelineState, bool) {
	have, ok := table.Timeline(name)
	g, _ := table.Group(have.Group)
	return front.TimelineState{NodeID: oracle.NodeOf(g.Owner), Base: max(have.Base, g.Base), Bound: have.Bound}, ok
}

// Groups describes groups of timelines; see front.Timelines.
func (n *Node) Groups() (l front.GroupList, err error) {
	err = n.asLeader(func(r *replica.Replica) { l.Groups = groupsOf(r) })
	return l, err
}

// groupsOf describes all groups that a replica has on record.
func groupsOf(r *replica.Replica) []front.GroupRecord {
	table, addrs, groups := r.Timelines(), clientAddrs(r), []front.GroupRecord{}
	for _, name := range table.Groups() {
		g, _ := table.Group(name)
		groups = append(groups, front.GroupRecord{
			Name: name, NodeID: oracle.NodeOf(g.Owner), Addr: addrs[g.Owner], Grant: g.Grant, Timelines: table.LenOf(name), Prefer: slices.Clone(g.Prefer), Lease: g.Lease != 0, Made: g.Made != 0,
		})
	}
	return groups
}

// BusyTimelines describes timelines that this process owns now; see front.Timelines.
func (n *Node) BusyTimelines(limit int) (l front.BusyTimelines, err error) {
	l.Timelines = []front.BusyTimeline{}
	if !n.call(func() {
		table, self := n.core.replica.Timelines(), n.core.replica.Hello()
		l.NodeID = oracle.NodeOf(self.NodeID)
		l.TimelineLoad = front.TimelineLoad(n.core.busy.Report(n.core.mono, func(name string, load telemetry.Load) bool {
			have, ok := table.Timeline(name)
			if g, _ := table.Group(have.Group); ok && g.Owner == self.NodeID && g.Session == self.Session {
				l.Timelines = append(l.Timelines, front.BusyTimeline{Name: name, ID: have.ID, Group: have.Group, TimelineLoad: front.TimelineLoad(load)})
			}
			return len(l.Timelines) < limit
		}))
	}) {
		err = errStopped
	}
	return l, err
}

// asLeader runs f on the loop of the core if this node leads.
func (n *Node) asLeader(f func(*replica.Replica)) (err error) {
	if !n.call(func() {
		if !n.core.replica.Status().Serving {
			err = n.redirect()
			return
		}
		f(n.core.replica)
	}) {
		return errStopped
	}
	return err
}

// clientAddrs returns the client addresses of the members.
func clientAddrs(r *replica.Replica) map[uint64]string {
	addrs := map[uint64]string{}
	for _, m := range r.Members() {
		addrs[m.ID] = m.ClientAddr
	}
	return addrs
}

// memberOf returns the member that a node is, the latest if it is being replaced.
func (n *Node) memberOf(node uint64) (id uint64, ok bool) {
	n.call(func() {
		for _, m := range n.core.replica.Members() {
			if oracle.NodeOf(m.ID) == node && m.ID >= id {
				id, ok = m.ID, true
			}
		}
	})
	return id, ok
}

// ChangeTimelines changes timelines; see front.Timelines.
func (n *Node) ChangeTimelines(ctx context.Context, c front.TimelineChange) (changed front.TimelineChanged, err error) {
	if !n.cfg.Timelines {
		return changed, errTimelinesOff
	}
	command, err := n.timelineCommand(c)
	if err != nil {
		return changed, err
	}
	changed.Above = command.Time
	done := make(chan replica.TimelineAnswer, 1)
	if !n.call(func() {
		_, exists := n.core.replica.Timelines().Group(c.Group)
		switch serves := n.core.replica.Status().Serving; {
		case serves && c.Action == front.MakeGroup && exists && len(c.Prefer) == 0:
			done <- replica.TimelineAnswer{Outcomes: []timeline.Refusal{timeline.Done}} // it keeps what it prefers
			return
		case serves && c.Action == front.PreferNodes && !exists:
			done <- replica.TimelineAnswer{Outcomes: []timeline.Refusal{timeline.NoGroup}}
			return
		}
		n.core.timelines.take(replica.TimelineRequest{Command: command, Force: c.Force}, done, &n.core.next)
	}) {
		return changed, errStopped
	}
	select {
	case a := <-done:
		if a.Err != nil {
			return changed, a.Err
		}
		return changed, refusalOf(c, a.Outcomes)
	case <-ctx.Done():
	case <-n.hosts[0].Done():
		return changed, errStopped
	}
	return changed, isotone.Errorf(isotone.CodeDeadlineExceeded, "the change was not confirmed in time: it may still happen; list the timelines before you try again")
}

// timelineKinds are the kinds of commands by action.
var timelineKinds = map[string]timeline.Kind{
	front.CreateTimelines: timeline.KindCreate, front.DeleteTimeline: timeline.KindDelete, front.MoveTimeline: timeline.KindMove, front.RaiseTimeline: timeline.KindFloor,
	front.SealTimeline: timeline.KindSeal, front.MakeGroup: timeline.KindMake, front.DropGroup: timeline.KindDrop, front.GrantGroup: timeline.KindGrant,
	front.PreferNodes: timeline.KindMake, front.LimitTimeline: timeline.KindQuota, front.LeaseGroup: timeline.KindLeaseOn, front.UnleaseGroup: timeline.KindLeaseEnd,
}

// timelineCommand returns the command for a change.
func (n *Node) timelineCommand(c front.TimelineChange) (command timeline.Command, err error) {
	command = timeline.Command{Kind: timelineKinds[c.Action], ID: c.ID, Group: c.Group, Prefer: c.Prefer, Quota: timeline.Quota(c.Quota)}
	if err := checkTimelineChange(c, command.Kind); err != nil {
		return command, err
	}
	if command.Kind == timeline.KindGrant {
		member, ok := n.memberOf(c.NodeID)
		if !ok {
			return command, isotone.Errorf(isotone.CodeInvalidArgument, "nodeID: node %d is no member of this cluster", c.NodeID)
		}
		command.Grants = []timeline.Grant{{Group: c.Group, Member: member}}
	}
	for _, id := range c.Prefer {
		if _, ok := n.memberOf(id); !ok {
			return command, isotone.Errorf(isotone.CodeInvalidArgument, "prefer: node %d is no member of this cluster", id)
		}
	}
	if c.Time != "" {
		floor, err := oracle.ParseFloor(c.Time, uint64(max(0, n.cfg.Clock.Wall().UnixNano())))
		if err != nil {
			return command, isotone.Errorf(isotone.CodeInvalidArgument, "time: %v", err)
		}
		command.Time = floor.Time
	}
	for _, name := range c.Names {
		if err := timeline.CheckName(name); err != nil {
			return command, isotone.Errorf(isotone.CodeInvalidArgument, "names: %v", err)
		}
		if command.Name = name; command.Kind == timeline.KindCreate {
			command.Creations = append(command.Creations, timeline.Creation{Name: name, Group: c.Group, Above: command.Time, Quota: command.Quota})
		}
	}
	if c.Group != "" {
		if err := timeline.CheckName(c.Group); err != nil {
			return command, isotone.Errorf(isotone.CodeInvalidArgument, "group: %v", err)
		}
	}
	return command, nil
}

// checkTimelineChange returns an error if a change lacks a field that its action needs, or has one that would have no effect.
func checkTimelineChange(c front.TimelineChange, kind timeline.Kind) error {
	creates, grants, moves, makes := kind == timeline.KindCreate, kind == timeline.KindGrant, kind == timeline.KindMove, kind == timeline.KindMake
	ofGroup := grants || makes || kind == timeline.KindDrop || kind == timeline.KindLeaseOn || kind == timeline.KindLeaseEnd
	timed := creates || kind == timeline.KindFloor
	switch {
	case kind == 0:
		return isotone.Errorf(isotone.CodeInvalidArgument, "action: want create, delete, move, floor, seal, make, drop, grant, prefer, quota, lease or unlease, not %.32q", c.Action)
	case creates && (len(c.Names) == 0 || len(c.Names) > front.TimelinesAtOnce):
		return isotone.Errorf(isotone.CodeInvalidArgument, "names: want 1 to %d timelines to create at once", front.TimelinesAtOnce)
	case ofGroup && len(c.Names) > 0:
		return isotone.Errorf(isotone.CodeInvalidArgument, "names: %s is about a group", c.Action)
	case !ofGroup && !creates && len(c.Names) != 1:
		return isotone.Errorf(isotone.CodeInvalidArgument, "names: %s takes one timeline", c.Action)
	case (ofGroup || creates) && c.ID != 0:
		return isotone.Errorf(isotone.CodeInvalidArgument, "id: %s is not about a timeline that exists", c.Action)
	case (ofGroup || moves) && c.Group == "":
		return isotone.Errorf(isotone.CodeInvalidArgument, "group: %s needs the name of a group", c.Action)
	case !ofGroup && !moves && !creates && c.Group != "":
		return isotone.Errorf(isotone.CodeInvalidArgument, "group: %s takes none", c.Action)
	case grants != (c.NodeID != 0):
		return isotone.Errorf(isotone.CodeInvalidArgument, "nodeID: grant names the node that is to own a group, and nothing else does")
	case !makes && len(c.Prefer) > 0:
		return isotone.Errorf(isotone.CodeInvalidArgument, "prefer: %s takes none", c.Action)
	case !creates && kind != timeline.KindQuota && c.Quota != (front.TimelineQuota{}):
		return isotone.Errorf(isotone.CodeInvalidArgument, "quota: %s takes none", c.Action)
	case c.Quota.Requests > access.RateMax || c.Quota.Timestamps > access.RateMax:
		return isotone.Errorf(isotone.CodeInvalidArgument, "quota: a rate is at most %d a second", access.RateMax)
	case len(c.Prefer) > timeline.PreferMax:
		return isotone.Errorf(isotone.CodeInvalidArgument, "prefer: want at most %d nodes", timeline.PreferMax)
	case kind == timeline.KindFloor && c.Time == "":
		return isotone.Errorf(isotone.CodeInvalidArgument, "time: want the time or the timestamp that all later ones are to be above")
	case !timed && (c.Time != "" || c.Force):
		return isotone.Errorf(isotone.CodeInvalidArgument, "time, force: %s takes neither", c.Action)
	}
	return nil
}

// refusalsTold bounds how many refusals an error names.
const refusalsTold = 5

// refusalOf returns why a change was refused, or nil. Of several creations it names the first of those.
func refusalOf(c front.TimelineChange, outcomes []timeline.Refusal) error {
	var texts []string
	refused, code := 0, isotone.CodeInvalidArgument
	for i, o := range outcomes {
		if o == timeline.Done {
			continue
		}
		name := c.Group
		if i < len(c.Names) {
			name = c.Names[i]
		}
		if refused++; refused <= refusalsTold {
			texts = append(texts, fmt.Sprintf(refusalTexts[o], name, c.Group))
		}
		if o == timeline.NotFound || o == timeline.NoGroup {
			code = isotone.CodeNotFound
		}
	}
	switch {
	case refused == 0:
		return nil
	case refused > refusalsTold:
		texts = append(texts, fmt.Sprintf("and so on, %d in all", refused))
	}
	if len(outcomes) > 1 {
		texts[0] = fmt.Sprintf("%d of %d were created; ", len(outcomes)-refused, len(outcomes)) + texts[0]
	}
	return isotone.Errorf(code, "%s", strings.Join(texts, "; "))
}

// refusalTexts say why a change was refused, of the timeline or group with the first name, and with the group as the second one.
var refusalTexts = map[timeline.Refusal]string{
	timeline.NotFound:   "there is no timeline %[1]q, or it has another ID",
	timeline.NoGroup:    "there is no group %[2]q",
	timeline.Exists:     "the timeline %[1]q exists",
	timeline.Sealed:     "the timeline %[1]q is sealed",
	timeline.Leased:     "leases are on for the group of timeline %[1]q, so it cannot be moved, deleted or sealed; turn them off first: isotone group lease GROUP off",
	timeline.Superseded: "the group %[2]q has another owner by now, or its lease is ending; try again",
	timeline.NoMember:   "the owner of the group %[2]q is no member",
	timeline.Full:       "there is no room for %[1]q: the cluster has as many as there may be",
	timeline.NotEmpty:   "the group %[2]q has timelines; move or delete these first",
	timeline.Fixed:      "the group %[2]q is one of the 256 of hash slots, which stay",
	timeline.TooLate:    "the time is so near the end of all times that no timestamp of %[1]q would be above it",
}

// ownerFramesMax bounds the questions of one owner in one turn, and the answers of one voter. An owner has two rounds under way, and repeats
// one with each tick; more of them are dropped, which is as if they were lost.
const ownerFramesMax = 8

// exchangeOwners sends what owners of timelines ask, and what they are told.
func (c *core) exchangeOwners(e *replica.Effects) {
	for _, q := range e.AskVoters {
		if p := c.peers.conns[q.Peer]; p != nil && !p.full() {
			p.write(wire.AppendOwnerAsk(p.conn.Buffered(), q.Session, q.Round))
		}
	}
	for _, a := range e.TellOwners {
		if p := c.peers.conns[a.Peer]; p != nil && !p.full() {
			p.write(wire.AppendOwnerTold(p.conn.Buffered(), a.Session, a.Round, a.Fence))
		}
	}
}

// askedByOwner takes in a question of the peer.
func (p *peerConn) askedByOwner(session, round uint64) {
	in, q := &p.core.next, replica.OwnerAsk{Peer: p.stream.Peer(), Session: session, Round: round}
	if mayTake(in.OwnerAsks, func(o replica.OwnerAsk) bool { return o.Peer == q.Peer }) {
		in.OwnerAsks = append(in.OwnerAsks, q)
	}
}

// toldOwner takes in the answer of the peer to a question of this node.
func (p *peerConn) toldOwner(session, round, fence uint64) {
	in, a := &p.core.next, replica.OwnerAnswer{OwnerAsk: replica.OwnerAsk{Peer: p.stream.Peer(), Session: session, Round: round}, Fence: fence}
	if mayTake(in.OwnerAnswers, func(o replica.OwnerAnswer) bool { return o.Peer == a.Peer }) {
		in.OwnerAnswers = append(in.OwnerAnswers, a)
	}
}

// mayTake reports whether fewer than ownerFramesMax of the list are of a peer.
func mayTake[T any](list []T, isOfPeer func(T) bool) bool {
	n := 0
	for _, one := range list {
		if isOfPeer(one) {
			n++
		}
	}
	return n < ownerFramesMax
}
