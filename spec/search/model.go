package search

import (
	"reflect"
	"slices"

	"github.com/isotone/isotone/spec"
)

// The sizes of a model. Nodes are 0 to 2 here, and 1 to 3 in events.
const (
	nodes      = 3
	termsMax   = 3
	roundsMax  = 3
	requestMax = 3
)

// A tick takes tickLength on the clock of a node, and ticks may come tickLag late, and then at once. A lease of promiseTicks is one tick less what clocks may be wrong by: see
// spec.node.lease.
const (
	tickLength    = 11
	tickLag       = 3
	promiseTicks  = 4
	startTicks    = 10    // a node votes for nobody before
	slow, fast    = 9, 11 // how far clocks go on when time passes
	firstCeiling  = 2
	firstProcess  = 10
	clusterID     = 1
	reservedATerm = 2
)

// state is a state of the model: what the specification knows, and what surrounds it.
type state struct {
	Spec     *spec.Spec
	Nodes    [nodes]node
	Terms    [termsMax + 1]term
	Requests [requestMax]request
	// Issued has a bit for each timestamp that was answered.
	Issued   uint64
	Restarts uint8
	Time     uint8 // how often it has passed
}

// node is what Raft knows in a node, and its clock.
type node struct {
	Process uint64
	Term    uint8
	Leads   bool
	Log     []uint8 // the terms of its entries
	Applied uint8
	// Voted is its vote in its term, one more than the node. Disk is what is durable.
	Voted uint8
	Disk  struct{ Term, Voted uint8 }
	// Clock is its steady clock, Ticks what has come of that.
	Clock int64
	Ticks int64
}

// term is what has happened in a term.
type term struct {
	Leader    uint8 // one more than the node; 0: none
	Log       []uint8
	Acked     [nodes]bool
	Rounds    uint8
	Confirmed [roundsMax + 1][nodes]bool
	Counted   [roundsMax + 1][nodes]bool
}

// request is waiting if Node is not 0, which is one more than the node.
type request struct {
	Node     uint8
	Answered uint64 // its timestamp; 0: none
	// Above is the largest timestamp that was answered before it came.
	Above uint64
}

// Size bounds a search to terms with a leader, rounds of each term, requests, restarts of nodes.
type Size struct {
	Terms, Rounds, Requests, Restarts int
	// Lease: requests may be answered by a lease. Time is how often the clocks go on: by a tick on Fast nodes, by 9/11 of one on the others.
	Lease bool
	Time  int
	Fast  [nodes]bool
	// Hasty: nodes may send votes that are not on disk. Forged: leaders may count what nobody has confirmed.
	Hasty, Forged bool
}

// action is something that may happen next.
type action struct {
	name string
	do   func(*move)
}

// move is an action under way: it changes the state, and gives events to the specification.
type move struct {
	*state
	broken  string // the promise that is broken
	refused bool   // by a rule
}

// on gives events of a step to the specification.
func (m *move) on(i int, events ...spec.Event) {
	n := &m.Nodes[i]
	for _, e := range append([]spec.Event{{Kind: spec.BeginStep, At: n.Clock}}, events...) {
		m.give(i, e)
	}
}

// give gives an event of the process of a node to the specification, unless it has refused one before.
func (m *move) give(i int, e spec.Event) {
	e.Node, e.Process = uint64(i+1), m.Nodes[i].Process
	m.refused = m.refused || m.Spec.Step(e) != nil
}

// initial is a state in which all nodes follow nobody, with an entry that is applied.
func initial(ignored []string) *state {
	s := &state{Spec: spec.New()}
	s.Spec.Ignored = ignored
	m := move{state: s}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		n.Process, n.Log = uint64(firstProcess*(i+1)), []uint8{0}
		n.Clock = (startTicks + tickLag) * tickLength
		m.begin(i)
		n.Ticks = startTicks
		m.on(i, spec.Event{Kind: spec.Tick, Count: startTicks})
	}
	return s
}

// begin starts the process of a node, from its disk.
func (m *move) begin(i int) {
	n := &m.Nodes[i]
	m.give(i, spec.Event{Kind: spec.Start, Cluster: clusterID, Tick: tickLength, Term: uint64(n.Disk.Term), Peer: uint64(n.Disk.Voted), Index: uint64(len(n.Log))})
	m.give(i, spec.Event{Kind: spec.Restore, Cluster: clusterID, Index: 1, Ceiling: firstCeiling, Config: &spec.Config{Voters: []uint64{1, 2, 3}}})
	n.Applied, n.Term, n.Voted, n.Leads = 1, n.Disk.Term, n.Disk.Voted, false
}

// actions are all that may happen in a state.
func (s *state) actions(size *Size) (list []action) {
	add := func(name string, do func(*move)) { list = append(list, action{name, do}) }
	for i := range s.Nodes {
		s.elections(i, size, add)
		s.appends(i, add)
		s.rounds(i, size, add)
		s.answers(i, size, add)
		if int(s.Restarts) < size.Restarts {
			add("restart", func(m *move) { m.restart(i, size) })
		}
	}
	if int(s.Time) < size.Time {
		add("time", func(m *move) { m.advance(size.Fast) })
	}
	return list
}

// advance has clocks go on. Ticks come as late as they may: a promise is then over the sooner.
func (m *move) advance(isFast [nodes]bool) {
	m.Time++
	for i := range m.Nodes {
		n := &m.Nodes[i]
		if n.Clock += slow; isFast[i] {
			n.Clock += fast - slow
		}
		m.tick(i, n.Clock/tickLength-tickLag)
	}
}

// tick gives a node its ticks up to a number of them, as far as they are due.
func (m *move) tick(i int, to int64) {
	n := &m.Nodes[i]
	if count := min(to, n.Clock/tickLength) - n.Ticks; count > 0 {
		n.Ticks += count
		m.on(i, spec.Event{Kind: spec.Tick, Count: uint64(count)})
	}
}

// free returns with which tick a node may vote again in a term, by what it has promised.
func (s *state) free(i, t int) (at int64) {
	promises := reflect.ValueOf(s.Spec).Elem().FieldByName("nodes").MapIndex(reflect.ValueOf(s.Nodes[i].Process)).Elem().FieldByName("promises")
	for k := range promises.Len() {
		if p := promises.Index(k); p.FieldByName("term").Uint() < uint64(t) {
			at = max(at, int64(p.FieldByName("until").Uint()))
		}
	}
	return max(at, startTicks)
}

// restart ends the process of a node and starts another one.
func (m *move) restart(i int, size *Size) {
	m.Restarts++
	n := &m.Nodes[i]
	if n.Leads {
		m.forgetTerm(int(n.Term))
	}
	m.forget(n.Process)
	n.Process++
	for k := range m.Requests {
		if r := &m.Requests[k]; r.Node == uint8(i+1) && r.Answered == 0 {
			*r = request{}
		}
	}
	m.begin(i)
	// Without leases, time makes no difference, and it may have waited. With them it has to wait for as long as the promises are that may have been made.
	n.Ticks = startTicks
	if size.Lease {
		n.Ticks -= promiseTicks
	}
	n.Clock = (n.Ticks + tickLag) * tickLength
	m.on(i, spec.Event{Kind: spec.Tick, Count: uint64(n.Ticks)})
}

// forget removes a process that has ended from the state of the specification.
func (s *state) forget(process uint64) {
	list := reflect.ValueOf(s.Spec).Elem().FieldByName("nodes")
	writable(list).SetMapIndex(reflect.ValueOf(process), reflect.Value{})
}

// forgetTerm removes what nodes have confirmed in a term whose leader has ended: it makes no difference any more.
func (s *state) forgetTerm(t int) {
	s.Terms[t].Rounds, s.Terms[t].Confirmed, s.Terms[t].Counted = 0, [roundsMax + 1][nodes]bool{}, [roundsMax + 1][nodes]bool{}
	for iter := reflect.ValueOf(s.Spec).Elem().FieldByName("confirmed").MapRange(); iter.Next(); {
		promises := writable(iter.Value().Elem().FieldByName("promises"))
		for _, key := range promises.MapKeys() {
			if key.FieldByName("term").Uint() == uint64(t) {
				promises.SetMapIndex(key, reflect.Value{})
			}
		}
	}
}

// elections have a node elected by itself and another one, in the latest term that has a leader or in the next one. Votes do nothing until a majority has them, so both are given at once.
// With Hasty, one of them may not be on disk.
func (s *state) elections(i int, size *Size, add func(string, func(*move))) {
	last := 0
	for t := range s.Terms {
		if s.Terms[t].Leader != 0 {
			last = t
		}
	}
	for v := range s.Nodes {
		if v == i || last == 0 && (i != 0 || v != 1) || !isAsGood(s.Nodes[i].Log, s.Nodes[v].Log) { // nodes are alike
			continue
		}
		for t := max(last, 1); t <= min(last+1, size.Terms); t++ { // terms without a leader would be as good as none
			if int(s.Nodes[i].Term) >= t || int(s.Nodes[v].Term) > t {
				continue
			}
			add("elect", func(m *move) { m.elect(i, v, t, -1) })
			if size.Hasty {
				add("elect before a vote is on disk", func(m *move) { m.elect(i, v, t, v) })
				add("elect before its own vote is on disk", func(m *move) { m.elect(i, v, t, i) })
			}
		}
	}
}

// isAsGood reports whether a candidate's log is as good as that of a voter.
func isAsGood(candidate, voter []uint8) bool {
	a, b := candidate[len(candidate)-1], voter[len(voter)-1]
	return a > b || a == b && len(candidate) >= len(voter)
}

// enter has a node be in a term, without a vote in it if it is a later one. If it led, it refuses what waits.
func (m *move) enter(i, t int) {
	n := &m.Nodes[i]
	if int(n.Term) >= t {
		return
	}
	if n.Leads {
		for k := range m.Requests {
			if r := &m.Requests[k]; r.Node == uint8(i+1) && r.Answered == 0 {
				*r = request{}
				m.on(i, spec.Event{Kind: spec.Answer, Token: uint64(k + 1)})
			}
		}
		m.forgetTerm(int(n.Term))
	}
	n.Term, n.Voted, n.Leads = uint8(t), 0, false
}

// persist makes what a node has durable.
func (m *move) persist(i int) spec.Event {
	n := &m.Nodes[i]
	n.Disk.Term, n.Disk.Voted = n.Term, n.Voted
	return spec.Event{Kind: spec.Durable, Term: uint64(n.Term), Peer: uint64(n.Voted), Index: uint64(len(n.Log))}
}

// vote has a node vote, as soon as it may. hasty: it sends the vote before that is on disk.
func (m *move) vote(i, candidate, t int, hasty bool) {
	m.tick(i, m.free(i, t))
	m.enter(i, t)
	m.Nodes[i].Voted = uint8(candidate + 1)
	vote := spec.Event{Term: uint64(t), Peer: uint64(candidate + 1)}
	decided, sent := vote, vote
	decided.Kind, sent.Kind = spec.Vote, spec.VoteSent
	list := []spec.Event{{Kind: spec.Role, Term: uint64(t)}, decided}
	if !hasty {
		list = append(list, m.persist(i))
	}
	if i != candidate {
		list = append(list, sent)
	}
	m.on(i, list...)
}

// elect has a node lead by the vote of another one, and append a reservation to its log. hasty is a node whose vote is not on disk.
func (m *move) elect(i, voter, t, hasty int) {
	m.vote(i, i, t, i == hasty)
	m.vote(voter, i, t, voter == hasty)
	if m.Terms[t].Leader != 0 {
		m.broken = "two nodes lead in a term"
	}
	n := &m.Nodes[i]
	n.Leads = true
	n.Log = append(slices.Clip(n.Log), uint8(t))
	m.Terms[t].Leader, m.Terms[t].Log = uint8(i+1), n.Log
	list := []spec.Event{{Kind: spec.Role, Term: uint64(t), Leads: true}}
	if i != hasty {
		list = append(list, m.persist(i))
	}
	m.on(i, list...)
}

// appends have a node get the log of a leader. If that leads still, it applies its log then: two of three have it.
func (s *state) appends(i int, add func(string, func(*move))) {
	for t := range s.Terms {
		l := &s.Terms[t]
		if l.Leader == 0 || l.Leader == uint8(i+1) || int(s.Nodes[i].Term) > t || l.Acked[i] {
			continue
		}
		if n := &s.Nodes[l.Leader-1]; !n.Leads || int(n.Term) != t {
			continue // those of a leader that has ended are lost
		}
		add("append", func(m *move) {
			m.enter(i, t)
			m.Nodes[i].Log = m.Terms[t].Log
			m.Terms[t].Acked[i] = true
			m.on(i, spec.Event{Kind: spec.Role, Term: uint64(t)}, m.persist(i))
			m.apply(int(l.Leader) - 1)
		})
	}
}

// apply has a leader apply its log. Nobody else needs to.
func (m *move) apply(i int) {
	n := &m.Nodes[i]
	for ; int(n.Applied) < len(n.Log); n.Applied++ {
		t := uint64(n.Log[n.Applied])
		m.on(i, spec.Event{Kind: spec.Entry, Index: uint64(n.Applied) + 1, Term: t, Command: &spec.Command{Digest: t, Reserve: firstCeiling + reservedATerm*t}})
	}
}

// rounds are questions of a leader, and their answers.
func (s *state) rounds(i int, size *Size, add func(string, func(*move))) {
	n, t := &s.Nodes[i], int(s.Nodes[i].Term)
	promise := uint64(0)
	if size.Lease {
		promise = promiseTicks
	}
	if l := &s.Terms[t]; n.Leads && int(l.Rounds) < size.Rounds {
		add("ask", func(m *move) {
			m.Terms[t].Rounds++
			m.on(i, spec.Event{Kind: spec.Ask, Term: uint64(t), Round: uint64(m.Terms[t].Rounds), Count: promise})
		})
	}
	for t := range s.Terms {
		leader := int(s.Terms[t].Leader) - 1
		if leader < 0 || leader == i || !s.Nodes[leader].Leads || int(s.Nodes[leader].Term) != t {
			continue // nobody waits for its answer
		}
		for round := 1; round <= int(s.Terms[t].Rounds); round++ {
			e := spec.Event{Term: uint64(t), Round: uint64(round), Count: promise}
			confirmed := e
			confirmed.Kind, confirmed.Peer = spec.Confirmed, uint64(i+1)
			if l := &s.Terms[t]; !l.Counted[round][i] && (l.Confirmed[round][i] || size.Forged) {
				name := "count"
				if !l.Confirmed[round][i] {
					name = "count what nobody has confirmed"
				}
				add(name, func(m *move) {
					m.Terms[t].Counted[round][i] = true
					m.on(leader, confirmed)
				})
			}
			if s.Terms[t].Confirmed[round][i] || int(s.Nodes[i].Term) > t && !size.Forged {
				continue
			}
			add("confirm", func(m *move) {
				m.enter(i, t)
				m.Terms[t].Confirmed[round][i] = true
				asked, confirm := e, e
				asked.Kind, asked.Peer, confirm.Kind, confirm.Peer = spec.Asked, uint64(leader+1), spec.Confirm, uint64(leader+1)
				list := []spec.Event{{Kind: spec.Role, Term: uint64(m.Nodes[i].Term)}, asked, confirm}
				if promise == 0 {
					list = slices.Delete(list, 1, 2)
				}
				m.on(i, list...)
			})
		}
	}
}

// answers are requests to a leader, and their answers, with each timestamp that there may be.
func (s *state) answers(i int, size *Size, add func(string, func(*move))) {
	if !s.Nodes[i].Leads {
		return
	}
	if k := slices.IndexFunc(s.Requests[:size.Requests], func(r request) bool { return r.Node == 0 }); k >= 0 {
		add("request", func(m *move) {
			above := uint64(0)
			for _, r := range m.Requests {
				above = max(above, r.Answered)
			}
			m.Requests[k] = request{Node: uint8(i + 1), Above: above}
			m.on(i, spec.Event{Kind: spec.Request, Token: uint64(k + 1), Lease: size.Lease})
		})
	}
	for k, r := range s.Requests {
		if r.Node != uint8(i+1) || r.Answered != 0 {
			continue
		}
		for at := uint64(firstCeiling); at < firstCeiling+reservedATerm*uint64(size.Terms); at++ {
			add("answer", func(m *move) {
				r := &m.Requests[k]
				switch {
				case m.Issued&(1<<at) != 0:
					m.broken = "a timestamp is issued twice"
				case at <= r.Above:
					m.broken = "a timestamp is not above one that was answered before the request came"
				}
				r.Answered = at
				m.Issued |= 1 << at
				stamp := spec.Timestamp{Time: at}
				m.on(i, spec.Event{Kind: spec.Answer, Token: uint64(k + 1), Ranges: []spec.Range{{First: stamp, Last: stamp}}})
			})
		}
	}
}
