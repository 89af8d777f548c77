package sim

import (
	"cmp"
	"math/rand/v2"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/lincheck"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/timeline"
)

// Timelines: each has clients, and a history that is judged by itself, whatever was deleted and created again, and
// operators who create, delete, move and seal them and raise their floors. They have a source of randomness of their own.

// timelineRuns is one in how many runs has timelines.
const timelineRuns = 3

// timelines is the part of the world that has to do with timelines.
type timelines struct {
	rng   *rand.Rand
	lines []*timelineOrder
	// ceiling is the largest that all timelines shared.
	ceiling uint64
	// creating counts the creations that are not answered. created is when the latest one was.
	creating int
	created  time.Duration
	// raised is set once the floor of one was raised.
	raised bool
	// settleTicks is replica.Config.SettleTicks.
	settleTicks int
}

// timelineOrder is what the timestamps of one name keep for ever.
type timelineOrder struct {
	name    string
	history []lincheck.Operation
	// readWrites is what its oracle of reads and writes was asked for, written the latest time of a write that was answered, and seenMillis the
	// largest time of all answers.
	readWrites          []lincheck.ReadWrite
	written, seenMillis uint64
	asked               bool // it was to be created once
	answers             int  // since the last fault
	// seen is the largest timestamp that a client has received.
	seen isotone.Timestamp
	// floor is acknowledged since floorAt.
	floor   uint64
	floorAt time.Duration
	// goneAt is since when the name is known to issue nothing, as it is deleted or sealed; 0: it may.
	goneAt time.Duration
}

// nameOf returns its name, "" for the default order.
func (c *timelineClient) nameOf() string {
	if c == nil {
		return ""
	}
	return c.order.name
}

// timelineClient sends one request after the other, to the node that it takes for the owner. A sticky one stays with a node whatever that answers:
// it notices that a former owner still answers.
type timelineClient struct {
	order  *timelineOrder
	id     uint64
	sticky bool
	target *node
}

// timelineChange is an operator's command that is not answered.
type timelineChange struct {
	order   *timelineOrder
	command timeline.Command
	at      time.Duration // when it was sent
}

func newTimelines(seed uint64) timelines {
	t := timelines{rng: rand.New(rand.NewPCG(seed, 0x71e11))}
	if t.rng.IntN(timelineRuns) == 0 {
		for _, name := range []string{"orders", "tenant-7/orders", "x"}[:1+t.rng.IntN(3)] {
			t.lines = append(t.lines, &timelineOrder{name: name})
		}
		t.settleTicks = t.rng.IntN(2) * (1 + t.rng.IntN(200))
	}
	return t
}

// runTimelines starts the clients and the operators.
func (w *world) runTimelines() {
	for i, o := range w.timelines.lines {
		for c := range uint64(1 + w.timelines.rng.IntN(3)) {
			w.runTimelineClient(&timelineClient{order: o, id: uint64(i)<<8 | c, sticky: w.timelines.rng.IntN(3) == 0})
		}
		w.runTimelineOperator(o)
	}
}

// sendOwners sends what owners of timelines ask, and what they are told.
func (w *world) sendOwners(n *node, e *replica.Effects) {
	for _, q := range e.AskVoters {
		w.sendOwnerMessage(n, q.Peer, func(to *node) { to.in.ownerAsks = append(to.in.ownerAsks, w.carryOwnerAsk(n, to, q)) })
	}
	for _, a := range e.TellOwners {
		w.sendOwnerMessage(n, a.Peer, func(to *node) { to.in.ownerAnswers = append(to.in.ownerAnswers, w.carryOwnerTold(n, to, a)) })
	}
}

// sendOwnerMessage sends a message, which may get lost, be late or come twice.
func (w *world) sendOwnerMessage(from *node, id uint64, deliver func(to *node)) {
	rng, to := w.timelines.rng, w.node(id)
	if to == nil || to == from || !w.connected(from, to) || w.link(from, to).blocked > 0 || rng.Float64() < w.weather.loss {
		return
	}
	lives := sessions(from, to)
	for range 1 + rng.IntN(20)/19 {
		delay := w.weather.base + time.Duration(rng.Int64N(int64(w.weather.spread)+1))
		if rng.IntN(50) == 0 {
			delay += time.Duration(rng.Int64N(int64(30 * w.cfg.tick)))
		}
		w.after(delay, func() {
			if w.connected(from, to) && lives == sessions(from, to) {
				deliver(to)
				w.wake(to)
			}
		})
	}
}

// timelineTarget returns a node to ask, mostly the leader.
func (w *world) timelineTarget() *node {
	if l := w.leader(); l != nil && w.timelines.rng.IntN(4) > 0 {
		return l
	}
	return w.nodes[w.timelines.rng.IntN(len(w.nodes))]
}

// runTimelineClient sends a request after a while.
func (w *world) runTimelineClient(c *timelineClient) {
	rng, o := w.timelines.rng, c.order
	w.after(time.Duration(rng.Int64N(int64(4*w.cfg.tick))), func() {
		switch {
		case w.closing:
			return
		case len(o.history)+len(o.readWrites) >= operationsMax/4 && !w.quiet:
			w.runTimelineClient(c)
			return
		}
		k := w.drawTimelineCall(c)
		if rng.Float64() < w.cfg.leaseShare {
			k.mode = isotone.ReadLease
		} else {
			k.mode = isotone.ReadQuorum
		}
		if c.target == nil || rng.IntN(20) == 0 {
			c.target = w.timelineTarget()
		}
		n := c.target
		w.after(w.clientTransit(), func() { w.arrive(n, k) })
		w.after(time.Duration(3+rng.IntN(timeoutMax))*w.cfg.tick, func() { w.finish(k, errConnectionLost) })
	})
}

// drawTimelineCall draws what a client asks for, and notes that in a history.
func (w *world) drawTimelineCall(c *timelineClient) *call {
	rng, o := w.timelines.rng, c.order
	if rng.IntN(4) == 0 {
		return w.drawReadWrite(c)
	}
	counts := make([]uint64, 1+rng.IntN(2))
	for i := range counts {
		counts[i] = 1 + rng.Uint64N(4)
	}
	k := &call{timeline: c, op: len(o.history), counts: counts, ranges: make([]isotone.Range, len(counts)), u64: rng.IntN(4) == 0}
	if rng.IntN(3) == 0 {
		k.floor = o.seen
	}
	for range counts {
		o.history = append(o.history, lincheck.Operation{Client: c.id, Invocation: int64(w.now)})
	}
	return k
}

// finishTimeline ends a call of a timeline, and judges what can be judged at once.
func (w *world) finishTimeline(k *call, err *isotone.Error) {
	c, o := k.timeline, k.timeline.order
	w.runTimelineClient(c)
	if err != nil && (!c.sticky || w.healing || w.timelines.rng.IntN(20) == 0) {
		c.target = nil
		for _, n := range w.nodes {
			if err.Leader != "" && w.clientAddr(n) == err.Leader {
				c.target = n
			}
		}
	}
	if err != nil {
		w.trace("timeline %q: %v", o.name, err)
		return
	}
	o.answers++
	invoked := k.invoked()
	if !o.asked || o.goneAt > 0 && invoked > o.goneAt {
		w.fail("T11: the timeline %q issues, which there is not", o.name)
	}
	if k.asks != timeline.OpIssue {
		w.takeReadWrite(k)
		return
	}
	for i := range k.ranges {
		w.stats.Timelines++
		for _, part := range k.parts(i) {
			w.takeTimeline(k, i, part, part.First == k.ranges[i].First)
			if o.floorAt > 0 && invoked > o.floorAt && part.First.Time <= o.floor {
				w.fail("T9: the timeline %q issues %v after its floor was raised to %d", o.name, part.First, o.floor)
			}
			if !k.floor.Before(part.First) {
				w.fail("I13: the timeline %q issues %v to a client whose floor was %v", o.name, part.First, k.floor)
			}
		}
	}
}

// takeTimeline adds part of an answer to the history.
func (w *world) takeTimeline(k *call, i int, part isotone.Range, first bool) {
	o := k.timeline.order
	op := lincheck.Operation{Client: k.timeline.id, Invocation: o.history[k.op+i].Invocation, Completion: int64(w.now), Range: part, Answered: true}
	if first {
		o.history[k.op+i] = op
	} else {
		o.history = append(o.history, op)
	}
	if o.seen.Before(part.Last()) {
		o.seen = part.Last()
	}
}

// runTimelineOperator changes a timeline now and then.
func (w *world) runTimelineOperator(o *timelineOrder) {
	rng := w.timelines.rng
	w.after(time.Duration(1+rng.IntN(40))*w.cfg.tick, func() {
		if w.closing {
			return
		}
		if n := w.timelineTarget(); n.up() && !n.paused {
			if c, ok := w.drawTimelineChange(n, o); ok {
				w.sendTimelineChange(n, o, c)
			}
		}
		w.runTimelineOperator(o)
	})
}

// drawTimelineChange draws what an operator asks a node for, by what that knows.
func (w *world) drawTimelineChange(n *node, o *timelineOrder) (c timeline.Command, ok bool) {
	rng := w.timelines.rng
	have, exists := n.replica.Timelines().Timeline(o.name)
	if !exists || rng.IntN(20) == 0 {
		c = timeline.Command{Kind: timeline.KindCreate, Creations: []timeline.Creation{{Name: o.name}}}
		if rng.IntN(4) == 0 {
			c.Creations[0].Above = max(o.seen.Time, o.seenMillis*uint64(time.Millisecond))
		}
		return c, true
	}
	c = timeline.Command{Name: o.name, ID: have.ID}
	switch rng.IntN(20) {
	case 16, 17, 18:
		c = timeline.Command{Kind: timeline.KindLeaseOn, Group: have.Group}
	case 19:
		c = timeline.Command{Kind: timeline.KindLeaseEnd, Group: have.Group}
	case 10, 11, 12, 13, 14, 15:
		members := n.replica.Members()
		c = timeline.Command{Kind: timeline.KindGrant, Grants: []timeline.Grant{{Group: have.Group, Member: members[rng.IntN(len(members))].ID}}}
	case 0:
		c.Kind = timeline.KindDelete
	case 1, 2:
		c.Kind, c.Group = timeline.KindMove, "eu"
		if have.Group == "eu" {
			c.Group = timeline.GroupOf(o.name)
		}
	case 3, 4:
		c.Kind, c.Time = timeline.KindFloor, n.replica.Timelines().Ceiling+uint64(rng.Int64N(int64(time.Second)))
	case 5:
		c = timeline.Command{Kind: timeline.KindMake, Group: "eu"}
	case 6:
		c = timeline.Command{Kind: timeline.KindDrop, Group: "eu"}
	case 7:
		c.Kind = timeline.KindSeal
		return c, rng.IntN(4) == 0
	default:
		return c, have.Bound != 0 && rng.IntN(2) == 0 && deletes(&c)
	}
	return c, !w.quiet
}

func deletes(c *timeline.Command) bool {
	c.Kind = timeline.KindDelete
	return true
}

func (w *world) sendTimelineChange(n *node, o *timelineOrder, c timeline.Command) {
	switch c.Kind {
	case timeline.KindCreate:
		o.asked, o.goneAt = true, 0
		w.timelines.creating++
	case timeline.KindFloor:
		w.timelines.raised = true
	}
	w.deafenOwner(n, o, c)
	n.in.timelines = append(n.in.timelines, replica.TimelineRequest{Token: uint64(len(n.timelineCalls)), Command: c, Force: true})
	n.timelineCalls = append(n.timelineCalls, &timelineChange{o, c, w.now})
	w.wake(n)
}

// deafTicks bounds for how many ticks an owner may not hear of a change.
const deafTicks = 15

// deafenOwner has the owner of a timeline, as a node knows it, not hear of a change that concerns it for a while, now and then: without this it takes
// long until a former owner might answer beside a later one.
func (w *world) deafenOwner(n *node, o *timelineOrder, c timeline.Command) {
	have, _ := n.replica.Timelines().Timeline(o.name)
	g, _ := n.replica.Timelines().Group(have.Group)
	owner := w.node(g.Owner)
	if !c.Fences() || c.Kind == timeline.KindCreate || w.quiet || owner == nil || w.timelines.rng.IntN(2) == 0 {
		return
	}
	owner.deafUntil = w.now + time.Duration(1+w.timelines.rng.IntN(deafTicks))*w.cfg.tick
	w.trace("node %d does not hear of a change of %q", owner.id, o.name)
}

// timelineChanged handles the answer to an operator's command.
func (w *world) timelineChanged(n *node, a replica.TimelineAnswer) {
	k := n.timelineCalls[a.Token]
	n.timelineCalls[a.Token] = nil
	if k.command.Kind == timeline.KindCreate {
		w.timelines.creating--
		w.timelines.created = w.now
	}
	if a.Err != nil || a.Outcomes[0] != timeline.Done {
		return
	}
	w.stats.TimelineChanges++
	w.trace("timeline %q: command %d is applied", k.order.name, k.command.Kind)
	switch o := k.order; k.command.Kind {
	case timeline.KindDelete, timeline.KindSeal:
		// A creation that was under way meanwhile may come after it in the log.
		if w.timelines.creating == 0 && w.timelines.created < k.at {
			o.goneAt = w.now
		}
	case timeline.KindFloor:
		if k.command.Time >= o.floor {
			o.floor, o.floorAt = k.command.Time, w.now
		}
	}
}

// dropTimelineChanges forgets the commands of a process that has died.
func (w *world) dropTimelineChanges(n *node) {
	for _, k := range n.timelineCalls {
		if k != nil && k.command.Kind == timeline.KindCreate {
			w.timelines.creating--
			w.timelines.created = w.now
		}
	}
	n.timelineCalls = nil
}

// forgetTimelines is called when the cluster is restored: from a backup that may have other timelines and lower floors.
func (w *world) forgetTimelines() {
	for _, o := range w.timelines.lines {
		o.floor, o.floorAt, o.goneAt = 0, 0, 0
	}
}

// latestOfTimelines returns the largest time of an answer on a timeline.
func (w *world) latestOfTimelines() (latest uint64) {
	for _, o := range w.timelines.lines {
		latest = max(latest, o.seen.Time, o.floor, o.seenMillis*uint64(time.Millisecond))
	}
	return latest
}

// silentTimeline returns a timeline that had no answer since the last fault though it is there, or "".
func (w *world) silentTimeline() string {
	l := w.leader()
	if l == nil {
		return ""
	}
	for _, o := range w.timelines.lines {
		if have, ok := l.replica.Timelines().Timeline(o.name); ok && have.Bound == 0 && o.answers == 0 {
			return o.name
		}
	}
	return ""
}

// judgeTimelines checks the history of each name.
func (w *world) judgeTimelines() {
	for _, o := range w.timelines.lines {
		if err := cmp.Or(lincheck.Check(o.history), lincheck.CheckReadWrite(o.readWrites)); err != nil && w.violation == nil {
			w.fail("timeline %q: %w", o.name, err)
		}
	}
}
