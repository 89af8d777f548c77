package spec

import (
	"fmt"
	"slices"
)

// Violation says why the specification does not permit an event.
type Violation struct {
	// Number counts the events before it. Rule is the name of the rule; see the package comment.
	Number uint64
	Event  Event
	Rule   string
	Why    string
}

func (v *Violation) Error() string {
	return fmt.Sprintf("event %d, %s of node %d: rule %s: %s", v.Number, v.Event.Kind, v.Event.Node, v.Rule, v.Why)
}

// Spec is the state of a run: what its events have said so far.
type Spec struct {
	// Ignored are the names of rules that are not checked.
	Ignored []string

	number    uint64
	event     *Event
	violation *Violation

	nodes     map[uint64]*node          // by process
	confirmed map[uint64]*confirmations // by node
	leaders   map[place]uint64          // by term
	log       map[place]entry           // by index
	states    map[place]uint64          // by index: the digest of what is applied
	timelines map[timelineKey]*timeline // timelines
	told      map[toldKey]uint64        // fences
	// answered is the largest timestamp that any node has answered.
	answered Timestamp
}

// entry is what is applied at an index.
type entry struct{ term, digest uint64 }

// place is an index or a term of a cluster.
type place struct{ cluster, at uint64 }

// node is a process of a node. Another one may run from a copy of its directory, until the others refuse one of them.
type node struct {
	id, cluster uint64
	tick        int64 // the length of a tick, in nanoseconds
	// at is the time of the present step, ticks and steps the number of ticks and steps since the start.
	at           int64
	ticks, steps uint64
	// term is the present one, termBefore that at the beginning of the step.
	term, termBefore uint64
	// durable is what is on its disk.
	durable struct{ term, vote, index uint64 }
	// voted is its latest vote.
	voted struct{ term, vote uint64 }
	// asked are the latest questions of leaders, promises those that it has made.
	asked    []question
	promises []promise

	applied uint64
	ceiling uint64
	// An answer may rest on the configuration and the leadership at the beginning of the step.
	config, configBefore   Config
	leading, leadingBefore *leading
	requests               map[uint64]*request
	// workers are the applied records, by worker, of the layout space. commands are those about workers that were applied in this step. held are the leases under which it makes IDs.
	workers  map[uint64]Worker
	space    string
	commands []*Command
	held     []Worker
	// holds are the locks that are held, by name, heldNow those that were claimed or released in this step. token is the largest one so far. Nothing is claimed before claimsFrom, in unix
	// nanoseconds.
	holds      map[string]Hold
	heldNow    []Hold
	token      Timestamp
	claimsFrom uint64
	// fences are the indexes of those in the log, appliedAt when they were applied, fenceRounds the latest rounds of an owner. configAt is the step in which the configuration changed.
	fences                   []uint64
	fenceBefore              uint64 // the latest when the step began
	fencedAt                 uint64 // the step in which one was applied
	fenceRounds              map[uint64]fenceRound
	latestFenceRound         uint64
	configAt, configAtBefore uint64
	appliedAt                map[uint64]int64
	fenceLease               int64 // the end of its lease as an owner

	hellos  map[uint64]Hello // the latest of each peer
	records map[uint64]records
	intervals
	wallClocks
}

// question is that of the leader of term, which came at a tick and asked for a promise of so many ticks.
type question struct{ term, tick, promise uint64 }

// promise is to vote for nobody in a later term before a tick.
type promise struct{ term, until uint64 }

// confirmation is that of a round of a leader.
type confirmation struct{ to, term, round uint64 }

// confirmations are the latest ones of a node to each leader, with the largest promise of each. A leader that was paused may count some while the voter has long confirmed
// rounds of another one.
type confirmations struct {
	promises map[confirmation]uint64
	recent   map[uint64][]confirmation // by leader, the oldest first
	ended    bool                      // later ones are not known
}

// isKnown reports whether the messages of a node are known. Otherwise the node is taken at its word.
func (s *Spec) isKnown(node uint64) bool {
	v := s.confirmed[node]
	return v != nil && !v.ended
}

// New returns the state before anything has happened.
func New() *Spec {
	return &Spec{nodes: map[uint64]*node{}, confirmed: map[uint64]*confirmations{}, timelines: map[timelineKey]*timeline{}, told: map[toldKey]uint64{}, leaders: map[place]uint64{}, log: map[place]entry{}, states: map[place]uint64{}}
}

// Violation returns what the first event was that is not permitted, or nil.
func (s *Spec) Violation() *Violation { return s.violation }

// Events returns the number of events that were checked.
func (s *Spec) Events() uint64 { return s.number }

// Step checks the next event, and changes the state by it. It returns nil, or the first violation, from then on again.
func (s *Spec) Step(e Event) *Violation {
	if s.violation != nil {
		return s.violation
	}
	s.event = &e
	n := s.nodes[e.Process]
	switch {
	case e.Kind == Start:
		s.start(e)
	case n == nil:
		s.require("event", false, "its process has not started")
	case e.Kind == End:
		s.confirmed[n.id].ended = true
	default:
		s.step(n, e)
	}
	s.number++
	return s.violation
}

func (s *Spec) step(n *node, e Event) {
	switch e.Kind {
	case BeginStep:
		n.beginStep(e)
	case Tick:
		n.ticks += e.Count
		if l := n.leading; l != nil && l.sessions != nil {
			l.sessions.tick(n)
		}
		n.updateQuorum()
	case Met:
		s.meet(n, e)
	case Prepare:
		s.prepare(n, e)
	case Form:
		s.form(n)
	case WallClock:
		if n.records[e.Peer].latest().ID != 0 { // it is a member
			n.told[e.Peer] = wallReading{e.Clock, n.at, true}
		}
		n.updateQuorum()
	case RaiseFloor:
		n.operator = max(n.operator, e.Clock)
	case Durable:
		n.durable.term, n.durable.vote, n.durable.index = e.Term, e.Peer, e.Index
	case Role:
		s.role(n, e)
	case VoteTold, ClusterClock, AskClock, TellClock, ToldClock, Bounds:
		s.stepClock(n, e)
	case State:
		s.state(n, e)
	case Campaign:
		// If the term has a leader by now, the request was slow, and does no harm.
		over := slices.ContainsFunc(n.asked, func(q question) bool { return q.term == e.Term })
		s.require("disk", over || n.durable.index >= e.Index, "it campaigns with a log to %d, and has %d on disk", e.Index, n.durable.index)
	case Entry:
		s.entry(n, e)
	case Restore:
		n.restore(e)
	case WorkerLeases:
		s.workersChanged(n, e)
	case WorkersHeld:
		n.held = e.Workers
		s.checkHeld(n)
	case Vote:
		s.vote(n, e)
	case VoteSent:
		s.report(n, e)
		s.require("disk", n.durable.term > e.Term || n.durable.term == e.Term && n.durable.vote == e.Peer, "the vote for node %d in term %d is not on disk", e.Peer, e.Term)
	case Ack:
		// If a later term is on disk, which has cut the entry off, the acknowledgement was slow, and does no harm.
		s.require("disk", n.durable.index >= e.Index || n.durable.term > e.Term, "it acknowledges the log to %d, and has %d on disk", e.Index, n.durable.index)
	case Ask:
		n.ask(e)
	case Asked:
		n.noteAsked(e)
	case Confirm:
		s.confirm(n, e)
	case Confirmed:
		s.hear(n, e)
	case Cut:
		n.cut(e.Index)
	case Append:
		n.appended(e)
		s.proposed(n, e)
	case AskFence:
		n.askFence(e)
	case TellFence:
		s.tellFence(n, e)
	case ToldFence:
		s.toldFence(n, e)
	case Transfer:
		if l := n.leading; l != nil {
			l.forgone = true
		}
	case Request:
		s.request(n, e)
	case Answer:
		s.answer(n, e)
	case Held:
		for _, h := range e.Holds {
			s.require("log", n.holds[h.Name].Token == h.Token && n.holds[h.Name].Session == h.Session, "it has %+v, and its log says %+v", h, n.holds[h.Name])
		}
	case Session, Gone, Frontier, TellExpired, TellHeld, TellFree, AskSeal, TellFenced:
		s.stepSessions(n, e)
	default:
		s.require("event", false, "there are no events of this kind")
	}
}

// state checks what a node says of itself after a step.
func (s *Spec) state(n *node, e Event) {
	at := place{n.cluster, n.applied}
	other, ok := s.states[at]
	s.require("state", !ok || other == e.State, "another node has the state %x after entry %d, not %x", other, n.applied, e.State)
	s.states[at] = e.State
	if l := n.leading; l != nil && l.open && e.Serves && l.sessions == nil {
		n.openSessions(l)
	}
	s.require("ceiling", n.ceiling == e.Ceiling, "its ceiling is %d, and the log says %d", e.Ceiling, n.ceiling)
	s.require("expiry", !e.Serves || n.leading == nil || n.steady >= n.leading.opensAt, "it issues timestamps, and limits of an earlier term may run")
	s.require("opening", !e.Serves || n.leading != nil && n.leading.open, "it issues timestamps, and has applied no reservation of its term")
}

// restore replaces the state of a node by a snapshot.
func (n *node) restore(e Event) {
	n.cluster, n.applied, n.ceiling = e.Cluster, e.Index, e.Ceiling
	n.changeConfig(*e.Config)
	n.limits = e.Interval
	for _, m := range e.Members {
		n.record(m)
	}
	n.restoreHolds(e)
	n.space = e.Space
	clear(n.workers)
	for _, w := range e.Workers {
		n.workers[w.Worker] = w
	}
}

// require records a violation of a rule unless ok.
func (s *Spec) require(rule string, ok bool, why string, args ...any) {
	if ok || s.violation != nil || slices.Contains(s.Ignored, rule) {
		return
	}
	s.violation = &Violation{Number: s.number, Event: *s.event, Rule: rule, Why: fmt.Sprintf(why, args...)}
}

// start begins a process.
func (s *Spec) start(e Event) {
	n := &node{id: e.Node, cluster: e.Cluster, tick: e.Tick, requests: map[uint64]*request{}, hellos: map[uint64]Hello{}, records: map[uint64]records{}, workers: map[uint64]Worker{}, holds: map[string]Hold{}, fenceRounds: map[uint64]fenceRound{}, appliedAt: map[uint64]int64{}, term: e.Term, termBefore: e.Term}
	n.durable.term, n.durable.vote, n.durable.index = e.Term, e.Peer, e.Index
	n.voted.term, n.voted.vote = e.Term, e.Peer
	n.intervals = intervals{interval: e.Interval, asks: map[uint64]clockAsk{}}
	n.wallClocks = wallClocks{jump: e.Jump, reach: e.Reach, reserved: e.Ceiling, told: map[uint64]wallReading{}}
	for _, m := range e.Members {
		n.record(m)
	}
	s.nodes[e.Process] = n
	if s.confirmed[e.Node] == nil {
		s.confirmed[e.Node] = &confirmations{promises: map[confirmation]uint64{}, recent: map[uint64][]confirmation{}}
	}
	s.confirmed[e.Node].ended = false
}

// beginStep begins a step.
func (n *node) beginStep(e Event) {
	n.steps++
	n.commands, n.heldNow, n.configAtBefore, n.fenceBefore = nil, n.heldNow[:0], n.configAt, n.fence()
	n.at, n.termBefore, n.configBefore, n.leadingBefore = e.At, n.term, n.config, n.leading
	n.beginInterval(e)
	n.beginClock(e)
}

// role notes the term, and who leads in it.
func (s *Spec) role(n *node, e Event) {
	n.term = max(n.term, e.Term)
	if !e.Leads {
		n.leading = nil
		return
	}
	if n.leading != nil && n.leading.term == e.Term {
		return
	}
	at := place{n.cluster, e.Term}
	other := s.leaders[at]
	s.require("leader", other == 0 || other == n.id, "node %d leads in term %d as well", other, e.Term)
	voted := n.durable.term > e.Term || n.durable.term == e.Term && n.durable.vote == n.id
	s.require("disk", voted, "it leads in term %d, and has the vote for node %d in term %d on disk", e.Term, n.durable.vote, n.durable.term)
	s.leaders[at] = n.id
	n.leading = newLeading(e.Term)
	n.elected(n.leading)
}

// entry applies an entry of the log.
func (s *Spec) entry(n *node, e Event) {
	this := entry{e.Term, e.Command.Digest}
	s.require("log", n.applied+1 == e.Index, "it applies entry %d after %d", e.Index, n.applied)
	at := place{n.cluster, e.Index}
	if other, ok := s.log[at]; ok {
		s.require("log", other == this, "another node has applied %v there, not %v", other, this)
	}
	s.log[at] = this
	n.applied = e.Index
	if e.Command.Fence {
		n.appliedAt[e.Index], n.fencedAt = n.at, n.steps
	}
	if m := e.Command.Register; m != nil {
		n.register(*m)
	}
	for _, m := range e.Command.Durable {
		if now := n.records[m.ID].latest(); now.ID != 0 {
			now.Durable = max(now.Durable, m.Durable)
			n.record(now)
		}
	}
	before := n.ceiling
	switch c := e.Command; {
	case c.Reserve != 0:
		n.ceiling = max(n.ceiling+1, min(c.Reserve, ceilingMax))
		if l := n.leading; l != nil && l.term == e.Term && !l.open {
			l.open, l.floor = true, before
			l.room, l.roomAt = n.ceiling, n.at
			n.opens(l)
		}
	case c.Raise != 0:
		n.ceiling = max(n.ceiling, min(c.Raise, ceilingMax-2)+2)
		if l := n.leading; l != nil && l.open {
			l.raised = max(l.raised, min(c.Raise, ceilingMax-2))
			l.room, l.roomAt = max(l.room+uint64(n.at-l.roomAt), l.raised+n.reach), n.at
		}
	case c.Interval != nil:
		n.limits = *c.Interval
	case c.Lease != nil, c.Release != nil, c.Revoke != nil:
		n.commands = append(n.commands, c)
	case c.Locks != nil:
		s.locks(n, e)
	case c.Change != nil:
		n.changeConfig(n.config.after(*c.Change))
		for _, id := range slices.Concat(c.Change.Add, c.Change.Remove) {
			if n.records[id].latest().ID == 0 {
				n.record(Member{ID: id})
			}
		}
	}
}

// ceilingMax is the largest ceiling: the year 2262.
const ceilingMax = 1<<63 - 1

func (n *node) changeConfig(c Config) {
	n.extendFenceLease()
	n.config, n.configAt = c, n.steps
	if l := n.leading; l != nil {
		l.notBefore, l.promised = n.at, map[uint64]int64{}
	}
}

// after returns the configuration after a change.
func (c Config) after(by Change) Config {
	next := Config{Voters: slices.Clone(c.Voters)}
	if by.Joint {
		next.Outgoing = slices.Clone(c.Voters)
	}
	for _, id := range by.Remove {
		next.Voters = slices.DeleteFunc(next.Voters, func(v uint64) bool { return v == id })
	}
	for _, id := range by.Add {
		if !slices.Contains(next.Voters, id) {
			next.Voters = append(next.Voters, id)
		}
	}
	return next
}

// quorum reports whether those for which has is true are a majority of each list.
func (c Config) quorum(has func(uint64) bool) bool {
	return majority(c.Voters, has) && (len(c.Outgoing) == 0 || majority(c.Outgoing, has))
}

func majority(ids []uint64, has func(uint64) bool) bool {
	count := 0
	for _, id := range ids {
		if has(id) {
			count++
		}
	}
	return count > len(ids)/2
}
