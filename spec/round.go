package spec

// leading is the state of a leader in its term.
type leading struct {
	term uint64
	// open is set once a reservation of the term is applied, floor the ceiling before.
	open  bool
	floor uint64
	// rounds are the latest rounds, up to latest, heard the latest one that each voter has confirmed, promised until when it has promised, by the leader's clock.
	rounds   map[uint64]round
	latest   uint64
	heard    map[uint64]uint64
	promised map[uint64]int64
	// notBefore is when the voters last changed. forgone is set once the leader has asked another node to take over.
	notBefore int64
	forgone   bool
	// raised is a floor that an operator has raised in this term.
	raised uint64
	// room is a time above that to which reservations may reach in this term, at roomAt by the steady clock.
	room     uint64
	roomAt   int64
	issued   issued
	answered Timestamp
	limits
	sessions *sessions // nil until it issues timestamps
}

// round began in a step of the leader, at a time by its clock.
type round struct {
	step  uint64
	at    int64
	clock uint64 // of the cluster clock then
}

func newLeading(term uint64) *leading {
	return &leading{term: term, rounds: map[uint64]round{}, heard: map[uint64]uint64{}, promised: map[uint64]int64{}}
}

// led returns the state of the node as the leader of a term in which it leads, or led when the step began; nil if it did not.
func (n *node) led(term uint64) *leading {
	for _, l := range []*leading{n.leading, n.leadingBefore} {
		if l != nil && l.term == term {
			return l
		}
	}
	return nil
}

// ask notes when a round began: when the first voter was asked.
func (n *node) ask(e Event) {
	l := n.led(e.Term)
	if l == nil || e.Round == 0 {
		return
	}
	if _, ok := l.rounds[e.Round]; !ok {
		l.rounds[e.Round], l.latest = round{n.steps, n.at, l.shows(n.steady)}, e.Round
		delete(l.rounds, e.Round-roundsMax)
	}
}

// hear notes the confirmation of a round, and a promise.
func (s *Spec) hear(n *node, e Event) {
	l := n.led(e.Term)
	if l == nil {
		return
	}
	began, known := l.rounds[e.Round]
	if !known || e.Round+roundsMax <= l.latest { // nobody may have been asked in the round that would have replaced it
		return // it is over
	}
	promised := e.Count // a node whose events are not known is taken at its word
	if s.isKnown(e.Peer) {
		ticks, ok := s.confirmed[e.Peer].promises[confirmation{n.id, e.Term, e.Round}]
		s.require("confirmation", ok && ticks >= e.Count, "node %d did not confirm round %d of term %d with a promise of %d ticks", e.Peer, e.Round, e.Term, e.Count)
		promised = min(ticks, e.Count)
	}
	l.heard[e.Peer] = max(l.heard[e.Peer], e.Round)
	n.extendLimit(l)
	if length := n.lease(promised); length > 0 && began.at >= l.notBefore {
		l.promised[e.Peer] = max(l.promised[e.Peer], began.at+length)
	}
}

// A lease is leaseSlackTicks shorter than the promises that it rests on, as ticks of a voter may come at once, and allows for clocks whose rates are off by rateErrorPercent.
const leaseSlackTicks, rateErrorPercent = 3, 10

// lease returns how long a lease lasts that rests on a promise of so many ticks, in nanoseconds from the question.
func (n *node) lease(promised uint64) int64 {
	promised = min(promised, promiseMax)
	return int64(promised-min(promised, leaseSlackTicks)) * n.tick * (100 - rateErrorPercent) / (100 + rateErrorPercent)
}

// isConfirmed reports whether a quorum of c has confirmed a round that began in a step or later.
func (l *leading) isConfirmed(n *node, c Config, step uint64) bool {
	return c.quorum(func(id uint64) bool {
		if id == n.id {
			return true
		}
		// Numbers of rounds grow, so a later one confirms this one as well.
		began, ok := l.rounds[l.heard[id]]
		return ok && began.step >= step
	})
}

// isLeased reports whether promises of a quorum of c have not run out.
func (l *leading) isLeased(n *node, c Config) bool {
	if l.forgone {
		return false
	}
	if n.isAlone() {
		return true
	}
	return c.quorum(func(id uint64) bool { return id == n.id || l.promised[id] > n.at })
}
