// Package search decides what a client does to find the leader of its cluster, and which of its
// answers it uses.
//
// It opens no connection and reads no clock: whoever does tells a [Search] what happened and when,
// and is told what to do. Times are those of a steady clock. The client of the module and those of
// the simulator run it.
package search

import (
	"maps"
	"slices"
	"time"

	"github.com/isotone/isotone/internal/core/mutant"
)

const (
	// MembersMax bounds the addresses that a client is given, and those that it learns from nodes.
	MembersMax = 64
	// MovesMax is how many nodes in a row may redirect to another one before the client
	// pauses between them.
	MovesMax = 3
	// RefreshInterval is how often an active client asks the leader for the members while all is
	// well. If all other members are replaced and the leader dies within this time, the client
	// knows none that remains.
	RefreshInterval = 10 * time.Second
)

// Search knows the nodes of a cluster, takes one of them for the leader, and says which to ask.
// It is not safe for concurrent use.
//
// A search begins when the leader has failed, refused or been silent. It asks all members at once,
// and again after pauses from PauseMin on. A node that says that it leads is followed at once; one
// that names another leader may not have noticed yet that this leader is down: see accepts.
type Search struct {
	addrs  []string
	jitter Jitter
	nodes  map[string]*node
	// members are those that the leader reported last, and what others have added since; empty
	// until then.
	members []string
	leader  string // the last known leader
	// suspected: the leader has failed, refused, or been silent, so all members are asked.
	suspected  bool
	connecting bool          // to a new leader
	asked      time.Duration // when all were last asked
	askAfter   time.Duration
	rounds     int           // of questions since all was well
	begun      time.Duration // the first of them
	moves      int           // redirections in a row
}

// node is what is known of an address.
type node struct {
	outcome Outcome
	asking  bool // a question is under way
	dials   [Uses]dial
	// leftUntil is how long only the node's own word, and no other's, makes it the leader again
	// that it was.
	leftUntil time.Duration
	// refusals counts those of the client in a row; after one the node is asked at askAfter.
	refusals int
	askAfter time.Duration
}

// dial paces the dials of one address for one use.
type dial struct {
	failures int // in a row
	after    time.Duration
}

// Use is what a connection is for.
type Use uint8

// The uses. Stamps are those that the leader is found by; Ahead is for requests that the leader may hold.
const (
	Stamps Use = iota
	Direct
	Ahead
	IDs
	Uses // how many there are
)

// Outcome is that of the latest exchange with a node.
type Outcome uint8

// The outcomes.
const (
	Unreachable Outcome = iota
	Ours                // or at least not known to be of another cluster
	Foreign             // of another cluster
	Refuses             // it refuses this client: its credentials or rights
)

// View is what a node reports about the cluster.
type View struct {
	Leader  string
	Members []string
}

// Verdict says what follows from a report.
type Verdict uint8

// The verdicts.
const (
	Nothing   Verdict = iota
	Confirmed         // the suspected leader itself says that it leads; see Search.Confirm
	Followed          // there is another leader now
)

// New returns the search of a client that is given addrs.
func New(addrs []string, jitter Jitter) *Search {
	return &Search{addrs: addrs, jitter: jitter, nodes: map[string]*node{}, suspected: true}
}

// Leader returns the last known leader; "" if there was none yet.
func (s *Search) Leader() string { return s.leader }

// Connecting reports whether the leader is one to which there was no connection yet.
func (s *Search) Connecting() bool { return s.connecting }

// Suspects reports whether the leader is being searched for.
func (s *Search) Suspects() bool { return s.suspected }

// Known returns all addresses that may be those of nodes.
func (s *Search) Known() []string {
	list := slices.Concat(s.members, s.addrs)
	if s.leader != "" {
		list = append(list, s.leader)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// Members returns the addresses of the members, or all known addresses while the members are
// unknown.
func (s *Search) Members() []string {
	if len(s.members) > 0 {
		return s.members
	}
	return s.Known()
}

func (s *Search) node(addr string) *node {
	n := s.nodes[addr]
	if n == nil {
		n = &node{}
		s.nodes[addr] = n
	}
	return n
}

// Forget removes addresses that are unknown and not used for anything, so that they do not
// accumulate.
func (s *Search) Forget(used func(addr string) bool) {
	known := s.Known()
	maps.DeleteFunc(s.nodes, func(addr string, n *node) bool {
		return !n.asking && !slices.Contains(known, addr) && !used(addr)
	})
}

// Ask returns the nodes to ask now for the leader and the members, each of which is then being
// asked until Answered, and how long to wait until the next call; 0 means until something happens.
func (s *Search) Ask(now time.Duration) (addrs []string, wait time.Duration) {
	if !s.suspected {
		return nil, 0
	}
	if wait := s.askAfter - now; wait > 0 {
		return nil, wait
	}
	if s.rounds == 0 {
		s.begun = now
	}
	for _, addr := range s.Known() {
		if s.Question(addr, now) {
			addrs = append(addrs, addr)
		}
	}
	pause := s.jitter.Pause(s.rounds, s.DialPauseMax(now))
	s.rounds++
	s.asked, s.askAfter = now, now+pause
	return addrs, pause
}

// Refresh reports whether an active client is to ask the leader for the members, though all is
// well. It does so once for each RefreshInterval.
func (s *Search) Refresh(now time.Duration) bool {
	if s.suspected || s.leader == "" || now-s.asked <= RefreshInterval || mutant.On(mutant.NeverRefresh) {
		return false
	}
	s.asked = now
	return true
}

// Question reports whether to ask one node, and notes that it is being asked: unless it is
// already, or has just refused this client.
func (s *Search) Question(addr string, now time.Duration) bool {
	n := s.node(addr)
	if n.asking || now < n.askAfter {
		return false
	}
	n.asking = true
	return true
}

// Answered notes that a question has ended, with an answer or without.
func (s *Search) Answered(addr string) { s.node(addr).asking = false }

// Has reports whether anything is kept of an address, or it may be that of a node.
func (s *Search) Has(addr string) bool {
	return s.nodes[addr] != nil || slices.Contains(s.Known(), addr)
}

// Asking reports whether a node is being asked.
func (s *Search) Asking(addr string) bool {
	n := s.nodes[addr]
	return n != nil && n.asking
}

// Outcome returns that of the latest exchange with a node.
func (s *Search) Outcome(addr string) Outcome {
	if n := s.nodes[addr]; n != nil {
		return n.outcome
	}
	return Unreachable
}

// Reported handles the outcome of any exchange with a node. One that refuses this client is asked
// less and less often.
func (s *Search) Reported(addr string, o Outcome, now time.Duration) {
	n := s.node(addr)
	switch {
	case o == Refuses && now >= n.askAfter: // concurrent attempts count once
		n.askAfter = now + s.jitter.Pause(n.refusals, RefusedPauseMax)
		n.refusals++
	case o == Ours:
		if n.outcome == Unreachable {
			n.dials[Stamps].after = 0 // the pause after failed dials: it is reached again
		}
		n.refusals, n.askAfter = 0, 0
	}
	n.outcome = o
}

// Heard handles what a node reports.
func (s *Search) Heard(addr string, v View, now time.Duration) Verdict {
	s.learn(addr, v)
	switch {
	case v.Leader == s.leader && (addr == s.leader || mutant.On(mutant.ConfirmByOthers)):
		return Confirmed
	case v.Leader != s.leader && s.suspected && s.accepts(addr, v.Leader, now):
		s.follow(v.Leader, now)
		return Followed
	}
	return Nothing
}

// learn handles the members that a node has reported. Those of the leader that serves this client are all there are. Other
// nodes may have been removed without knowing it, have joined just now, or have led once: what they report adds
// to the list, and the next report of the leader ends that.
func (s *Search) learn(addr string, v View) {
	list := v.Members
	serves := addr == s.leader && !s.suspected || mutant.On(mutant.BelieveClaims)
	if addr != v.Leader || !serves {
		list = slices.Concat(s.members, v.Members)
		slices.Sort(list)
		list = slices.Compact(list)
	}
	if len(list) > MembersMax {
		list = v.Members
	}
	s.members = mutant.Pick(mutant.ForgetMembers, nil, list)
}

// accepts reports whether to follow a node that names a leader other than the suspected
// one. A node that names itself is at least alive. Others may not have noticed yet that
// their leader is down, so their answers count neither against a leader that the client is
// still connecting to, nor for one that has failed.
func (s *Search) accepts(addr, leader string, now time.Duration) bool {
	if s.leader == "" || addr == leader {
		return true
	}
	connecting := s.connecting && now >= s.node(s.leader).dials[Stamps].after
	n := s.node(leader)
	return !connecting && now >= n.dials[Stamps].after && (now >= n.leftUntil || mutant.On(mutant.ReturnToFailed))
}

// follow makes addr the leader.
func (s *Search) follow(addr string, now time.Duration) {
	if s.leader != "" && s.suspected {
		s.node(s.leader).leftUntil = now + PauseMax
	}
	s.leader, s.connecting = addr, true
}

// Moved records that the node at from redirects to another leader. It reports whether to follow:
// only the word of the present leader counts.
func (s *Search) Moved(from, leader string, now time.Duration) bool {
	if from != s.leader || leader == from || mutant.On(mutant.IgnoreMoved) {
		return false
	}
	n := s.node(leader)
	n.leftUntil, n.dials[Stamps].after = 0, 0 // at once: the node knows that it does not lead
	if s.moves++; s.moves > MovesMax && !mutant.On(mutant.MoveUnpaced) {
		n.dials[Stamps].after = now + s.jitter.Pause(s.moves-MovesMax, PauseMax)
	}
	s.follow(leader, now)
	return true
}

// Suspect records that a node has failed, refused, or been silent. It reports whether that is the
// leader, so that a search begins.
func (s *Search) Suspect(addr string) bool {
	if addr != s.leader || mutant.On(mutant.NeverSuspect) {
		return false
	}
	s.suspected = true
	return true
}

// Confirm ends the search: there are connections to the leader, and it says itself that it leads.
// Others than that leader may not have noticed yet that it is down. It is suspected again as soon
// as it is silent or refuses.
func (s *Search) Confirm() { s.suspected = false }

// Connected records that there is a connection to the leader. It reports whether that is the
// first to a new one.
func (s *Search) Connected() (isNew bool) {
	isNew = s.connecting
	s.suspected, s.connecting = false, false
	return isNew
}

// Recovered records that a node has answered a request, after a suspicion.
func (s *Search) Recovered(addr string) {
	if addr != s.leader {
		return
	}
	s.suspected, s.rounds, s.moves = false, 0, 0
	s.askAfter = s.asked + PauseMin // the next search begins without the pause of this one
	s.node(addr).dials[Stamps].failures = 0
}
