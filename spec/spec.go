package spec

import (
	"fmt"
	"slices"
)

// Violation is an event that the specification does not permit.
type Violation struct {
	// Number is that of the event, from 0. Rule is the name of the rule; see the package comment.
	Number uint64
	Event  Event
	Rule   string
	Why    string
}

func (v *Violation) Error() string {
	return fmt.Sprintf("event %d, %s of node %d: rule %s: %s", v.Number, v.Event.Kind, v.Event.Node, v.Rule, v.Why)
}

// Spec is the state of a run.
type Spec struct {
	// Ignored are rules that are not checked.
	Ignored []string

	number    uint64
	event     *Event
	violation *Violation

	nodes   map[uint64]*node    // by process
	vouched map[uint64]*vouched // by node
	leaders map[place]uint64    // by term
	log     map[place]entry     // by index
	lines   map[lineKey]*line   // timelines
	told    map[toldKey]uint64  // fences
	// answered is the largest timestamp that any node has answered.
	answered Timestamp
}

// entry is what is applied at an index.
type entry struct{ term, digest uint64 }

// place is an index or a term of a cluster.
type place struct{ cluster, at uint64 }

// node is a process of a member. A copy of a directory may run beside it, until the others refuse one of them.
type node struct {
	id, cluster uint64
	tick        int64 // length of a tick
	// at is the time of the present step, ticks and turns the number of ticks and steps since the start.
	at           int64
	ticks, turns uint64
	// term is the latest that it was seen in, termBefore that at the beginning of the step.
	term, termBefore uint64
	// durable is what is on its disk.
	durable struct{ term, vote, index uint64 }
	// voted is its latest vote.
	voted struct{ term, vote uint64 }
	// asked are the latest questions of leaders, and promises what was promised to which term.
	asked    []question
	promises []promise

	applied uint64
	ceiling uint64
	// config and leading may have changed within a step: an answer may rest on what was before.
	config, configBefore   Config
	leading, leadingBefore *leading
	requests               map[uint64]*request
	// workers are the records of the applied log, by worker, of the layout space; commands those about workers that this step has applied, held what the process holds.
	workers  map[uint64]Worker
	space    string
	commands []*Command
	held     []Worker
	// fences are those of the log, fenceRounds the latest rounds for those of other logs. configAt is the step in which the configuration has changed, appliedAt when fences were applied.
	fences                   []uint64
	fenceBefore              uint64 // the latest when the step began
	fencedAt                 uint64 // the step in which one was applied
	fenceRounds              map[uint64]fenceRound
	configAt, configAtBefore uint64
	appliedAt                map[uint64]int64
	fenceLease               int64 // until when it may answer for timelines by a lease
}

// question is that of a leader of term, which came at a tick and asks for a promise.
type question struct{ term, tick, promise uint64 }

// promise is that no vote for a later term is granted before a tick.
type promise struct{ term, until uint64 }

// confirmation of a round of a leader.
type confirmation struct{ to, term, round uint64 }

// vouched are the latest confirmations of a node, and the largest promise of each.
type vouched struct {
	promises map[confirmation]uint64
	recent   []confirmation // the oldest first
	ended    bool           // what it says from now on is not known
}

// isKnown reports whether all that a node says is known: otherwise its word counts.
func (s *Spec) isKnown(node uint64) bool {
	v := s.vouched[node]
	return v != nil && !v.ended
}

// New returns the state before anything has happened.
func New() *Spec {
	return &Spec{nodes: map[uint64]*node{}, vouched: map[uint64]*vouched{}, lines: map[lineKey]*line{}, told: map[toldKey]uint64{}, leaders: map[place]uint64{}, log: map[place]entry{}}
}

// Events returns how many events were taken.
func (s *Spec) Events() uint64 { return s.number }

// Step takes the next event. It returns the first violation from then on.
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
		s.require("start", false, "the process of this event has not started")
	case e.Kind == End:
		s.vouched[n.id].ended = true
	default:
		s.step(n, e)
	}
	s.number++
	return s.violation
}

func (s *Spec) step(n *node, e Event) {
	switch e.Kind {
	case Turn:
		n.turn(e)
	case Tick:
		n.ticks += e.Count
	case Durable:
		n.durable.term, n.durable.vote, n.durable.index = e.Term, e.Peer, e.Index
	case Role:
		s.role(n, e)
	case State:
		s.require("ceiling", n.ceiling == e.Ceiling, "its ceiling is %d, and the log says %d", e.Ceiling, n.ceiling)
		s.require("opening", !e.Serves || n.leading != nil && n.leading.open, "it issues timestamps before it has applied a reservation of its term")
	case Campaign:
		// If it follows a leader of that term by now, the election is over, and the request was only slow.
		over := slices.ContainsFunc(n.asked, func(q question) bool { return q.term == e.Term })
		s.require("disk", over || n.durable.index >= e.Index, "it campaigns with a log to %d, and has %d on disk", e.Index, n.durable.index)
	case Entry:
		s.entry(n, e)
	case Restore:
		n.cluster, n.applied, n.ceiling = e.Cluster, e.Index, e.Ceiling
		n.changeConfig(*e.Config)
		n.space = e.Space
		clear(n.workers)
		for _, w := range e.Workers {
			n.workers[w.Worker] = w
		}
	case Granted:
		s.workersChanged(n, e)
	case Held:
		n.held = e.Workers
		s.checkHeld(n)
	case Vote:
		s.vote(n, e)
	case Grant:
		s.require("disk", n.durable.term > e.Term || n.durable.term == e.Term && n.durable.vote == e.Peer, "the vote for node %d in term %d is not on disk", e.Peer, e.Term)
	case Ack:
		// Once a later term is on disk, an entry that was cut off in it is as good as one that was on disk before: the acknowledgement was only slow.
		s.require("disk", n.durable.index >= e.Index || n.durable.term > e.Term, "it acknowledges the log to %d, and has %d on disk", e.Index, n.durable.index)
	case Ask:
		n.ask(e)
	case Asked:
		n.noteAsked(e)
	case Vouch:
		s.vouch(n, e)
	case Vouched:
		s.hear(n, e)
	case Append:
		n.appended(e)
	case AskFence:
		n.askFence(e)
	case TellFence:
		s.tellFence(n, e)
	case ToldFence:
		s.toldFence(n, e.Process, e)
	case Depose:
		if l := n.leading; l != nil {
			l.forgone = true
		}
	case Request:
		s.request(n, e)
	case Answer:
		s.answer(n, e)
	default:
		s.require("start", false, "there are no events of this kind")
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
	n := &node{id: e.Node, cluster: e.Cluster, tick: e.Tick, requests: map[uint64]*request{}, workers: map[uint64]Worker{}, fenceRounds: map[uint64]fenceRound{}, appliedAt: map[uint64]int64{}, term: e.Term, termBefore: e.Term}
	n.durable.term, n.durable.vote, n.durable.index = e.Term, e.Peer, e.Index
	n.voted.term, n.voted.vote = e.Term, e.Peer
	s.nodes[e.Process] = n
	if s.vouched[e.Node] == nil {
		s.vouched[e.Node] = &vouched{promises: map[confirmation]uint64{}}
	}
	s.vouched[e.Node].ended = false
}

// turn begins a step.
func (n *node) turn(e Event) {
	n.turns++
	n.commands, n.configAtBefore, n.fenceBefore = nil, n.configAt, n.fence()
	n.at, n.termBefore, n.configBefore, n.leadingBefore = e.At, n.term, n.config, n.leading
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
	s.require("disk", n.durable.term >= e.Term, "it leads in term %d, and has term %d on disk", e.Term, n.durable.term)
	s.leaders[at] = n.id
	n.leading = newLeading(e.Term)
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
		n.appliedAt[e.Index], n.fencedAt = n.at, n.turns
	}
	before := n.ceiling
	switch c := e.Command; {
	case c.Reserve != 0:
		n.ceiling = max(n.ceiling+1, min(c.Reserve, ceilingMax))
		if l := n.leading; l != nil && l.term == e.Term && !l.open {
			l.open, l.floor = true, before
		}
	case c.Raise != 0:
		n.ceiling = max(n.ceiling, min(c.Raise, ceilingMax-2)+2)
		if l := n.leading; l != nil && l.open {
			l.raised = max(l.raised, min(c.Raise, ceilingMax-2))
		}
	case c.Lease != nil, c.Release != nil, c.Revoke != nil:
		n.commands = append(n.commands, c)
	case c.Change != nil:
		n.changeConfig(n.config.after(*c.Change))
	}
}

// ceilingMax is the largest ceiling: the year 2262.
const ceilingMax = 1<<63 - 1

func (n *node) changeConfig(c Config) {
	n.extendFenceLease()
	n.config, n.configAt = c, n.turns
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
