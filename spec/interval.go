package spec

import "slices"

// The assumed rates (docs/intervals.md), in millionths: a cluster clock runs at most slewMax faster or slower than the steady clock of its leader. Clocks of two processes, with that,
// differ by less than a thousandth.
const slewMax, million, thousand = 500, 1_000_000, 1000

// Reading is what a process tells of the cluster clock of Term: it is between Earliest and Latest, in unix nanoseconds, and may be used up to Limit.
type Reading struct {
	Term     uint64 `json:"t"`
	Earliest uint64 `json:"e"`
	Latest   uint64 `json:"l"`
	Limit    uint64 `json:"limit"`
}

// clusterClock is the clock of a leader's term, 0 if it runs none: it shows base at the time at of the steady clock, and runs slew millionths faster than that.
type clusterClock struct {
	base     uint64
	at, slew int64
}

func (c clusterClock) shows(at int64) uint64 {
	if c.base == 0 {
		return 0
	}
	since := max(0, at-c.at)
	return min(c.base+uint64(since+since*c.slew/million), ceilingMax)
}

// limits are what a leader may tell of its clock, which runs once base is not 0.
type limits struct {
	clusterClock
	// opensAt is when the limits of earlier terms have run out, electedAt when it was elected, and unheard for how long before no voter of a quorum had answered a leader.
	opensAt, electedAt, unheard int64
	// most is the largest limit that confirmed rounds allow, told the largest that it has told.
	most, told uint64
	// ends are the indexes of the entries that it has proposed to say that no limit runs, and that are not applied.
	ends []uint64
}

// estimate is what follows from the readings of a term: the narrowest bounds, and the largest limit.
type estimate struct {
	Reading
	earliestAt, latestAt int64
}

// lines returns the bounds at a time, by which they have widened.
func (b *estimate) lines(at int64) (earliest, latest uint64) {
	e, l := uint64(max(0, at-b.earliestAt)), uint64(max(0, at-b.latestAt))
	return b.Earliest + e - (e+thousand-1)/thousand, b.Latest + l + l/thousand + 1
}

// intervals is what a process knows of cluster clocks.
type intervals struct {
	// interval is the length of its limits, steady its steady clock in the present step.
	interval, steady int64
	// limits is how long limits may be by what is applied, limitsBefore by what was when the step began.
	limits, limitsBefore int64
	// answered is when it last answered a leader or led, and in which term, answeredBefore when it last did so in an earlier term.
	answered, answeredBefore struct {
		term uint64
		at   int64
	}
	// votes are for how long the voters of a candidate in votesTerm have answered no leader.
	votes     map[uint64]int64
	votesTerm uint64
	asks      map[uint64]clockAsk // the latest questions for readings
	estimate  estimate
}

// clockAsk is a question for a reading. clockAsksMax is how many are kept.
type clockAsk struct {
	token, peer uint64
	at          int64
}

const clockAsksMax = 1024

// stepClock handles the events of the cluster clock.
func (s *Spec) stepClock(n *node, e Event) {
	switch e.Kind {
	case VoteTold:
		if n.votesTerm != e.Term {
			n.votes, n.votesTerm = map[uint64]int64{}, e.Term
		}
		n.votes[e.Peer] = e.Since
	case ClusterClock:
		s.clock(n, e)
	case AskClock:
		n.asks[e.Token/2] = clockAsk{e.Token, e.Peer, n.steady}
		delete(n.asks, e.Token/2-clockAsksMax)
	case TellClock:
		s.tellClock(n, e)
	case ToldClock:
		if q := n.asks[e.Token/2]; q.token == e.Token && q.peer == e.Peer && e.Cluster == n.cluster {
			n.estimate.take(q.at, n.steady, *e.Reading)
		}
	case Bounds:
		s.bounds(n, e)
	}
}

// beginInterval reads the steady clock, for which another stands in a process that runs no cluster clock.
func (n *node) beginInterval(e Event) {
	n.limitsBefore, n.steady = n.limits, e.Steady
	if n.interval == 0 {
		n.steady = e.At
	}
	if n.leading != nil || n.steps == 1 {
		n.answeredIn(n.term)
	}
	if l := n.leading; l != nil && n.isAlone() {
		n.extendLimit(l) // all rounds of this step are confirmed at once
	}
}

// take adds a reading that was asked for at a time and received at another.
func (b *estimate) take(sent, received int64, r Reading) {
	next := estimate{r, received, sent}
	if r.Term < b.Term {
		return
	}
	if r.Term == b.Term {
		at := max(received, b.earliestAt)
		earliest, latest := b.lines(at)
		e, l := next.lines(at)
		if e < earliest {
			next.Earliest, next.earliestAt = b.Earliest, b.earliestAt
		}
		if l > latest {
			next.Latest, next.latestAt = b.Latest, b.latestAt
		}
		next.Limit = max(next.Limit, b.Limit)
	}
	*b = next
}

// answeredIn notes that the node answers a leader of a term, leads in it, or has started.
func (n *node) answeredIn(term uint64) {
	if term > n.answered.term {
		n.answeredBefore = n.answered
	}
	n.answered.term, n.answered.at = max(n.answered.term, term), n.steady
}

// unheard returns for how long the node has answered no leader of a term before one, if that is known: a vote may be sent so late that there were two later terms.
func (n *node) unheard(term uint64) (since int64, known bool) {
	switch {
	case n.answered.term < term:
		return n.steady - n.answered.at, true
	case n.answeredBefore.term < term:
		return n.steady - n.answeredBefore.at, true
	}
	return 0, false
}

// report checks what a vote says: for how long the voter has answered no leader.
func (s *Spec) report(n *node, e Event) {
	since, known := n.unheard(e.Term)
	s.require("report", !known || e.Since <= since, "its vote says that it has answered no leader for %d ns, and it did %d ns ago", e.Since, since)
}

// elected begins the limits of a term: by what a quorum has said, nobody had answered a leader for unheard.
func (n *node) elected(l *leading) {
	own, _ := n.unheard(l.term)
	said := func(id uint64) int64 {
		if id == n.id {
			return own
		}
		if n.votesTerm != l.term {
			return 0
		}
		return n.votes[id]
	}
	l.electedAt = n.steady
	for _, id := range slices.Concat(n.config.Voters, n.config.Outgoing) {
		u := said(id)
		if n.config.quorum(func(id uint64) bool { return said(id) >= u }) {
			l.unheard = max(l.unheard, u)
		}
	}
}

// opens notes when limits of earlier terms have run out, as the log says how long they may be. A clock that may be slewed is less exact.
func (n *node) opens(l *leading) {
	if l.opensAt = l.electedAt; n.limits == 0 {
		return
	}
	wait := n.limits + n.limits/thousand + 1
	if n.interval == 0 {
		wait += wait * rateErrorPercent / 100
	}
	l.opensAt += max(0, wait-l.unheard)
}

// clock checks how the clock of a leader goes on.
func (s *Spec) clock(n *node, e Event) {
	l := n.leading
	if l == nil {
		return
	}
	c := clusterClock{e.Clock, e.At, e.Slew}
	s.require("clock", c.slew >= -slewMax && c.slew <= slewMax, "the clock runs %d millionths faster than its steady clock", c.slew)
	if l.base == 0 {
		s.require("clock", l.open && c.base > l.floor, "its clock starts at %d, and the ceiling of the term before is %d", c.base, l.floor)
		s.require("ahead", n.jump == 0 || c.base <= max(n.vouched, n.time(n.at))+aheadMax, "its clock starts at %d, and the clocks of a quorum show %d", c.base, n.vouched)
	} else {
		s.require("clock", c.base == l.shows(c.at), "its clock goes on from %d, and showed %d", c.base, l.shows(c.at))
	}
	l.clusterClock = c
}

// extendLimit notes up to where the latest round that a quorum has confirmed allows a leader to tell limits.
func (n *node) extendLimit(l *leading) {
	if l.base == 0 {
		return
	}
	if n.isAlone() {
		l.most = max(l.most, l.shows(n.steady)+uint64(n.interval))
		return
	}
	for _, heard := range l.heard {
		if r := l.rounds[heard]; r.clock != 0 && n.config.quorum(func(id uint64) bool { return id == n.id || l.heard[id] >= heard }) {
			l.most = max(l.most, r.clock+uint64(n.interval))
		}
	}
}

// inForce reports whether the log of a leader says that limits of its length are told, and is not to say otherwise.
func (n *node) inForce(l *leading) bool {
	l.ends = slices.DeleteFunc(l.ends, func(index uint64) bool { return index <= n.applied })
	return n.interval > 0 && (n.limits == n.interval || n.limitsBefore == n.interval) && len(l.ends) == 0
}

// tellClock checks a reading that a leader tells.
func (s *Spec) tellClock(n *node, e Event) {
	l, r := n.led(e.Reading.Term), e.Reading
	if l == nil || l.base == 0 {
		s.require("limit", false, "it tells of the clock of term %d, and runs none", r.Term)
		return
	}
	n.extendLimit(l)
	now := l.shows(n.steady)
	s.require("limit", n.inForce(l), "it tells %+v, and its log does not say so, or is to say that no limit runs", *r)
	s.require("limit", r.Limit <= l.most && r.Limit < n.ceiling, "it tells the limit %d, rounds that a quorum has confirmed allow %d, and the ceiling is %d", r.Limit, l.most, n.ceiling)
	s.require("bounds", r.Earliest <= now && now <= r.Latest && now <= r.Limit, "it tells %+v, and its clock shows %d", *r, now)
	l.told = max(l.told, r.Limit)
}

// bounds checks what a process holds for the bounds of a clock, and would tell of it.
func (s *Spec) bounds(n *node, e Event) {
	r := e.Reading
	if l := n.led(r.Term); l != nil && l.base != 0 {
		n.extendLimit(l)
		own := Reading{Term: r.Term, Earliest: l.shows(n.steady), Latest: l.shows(n.steady)}
		if n.inForce(l) {
			own.Limit = min(l.most, n.ceiling-1)
		}
		n.estimate.take(n.steady, n.steady, own)
		l.told = max(l.told, r.Limit)
	}
	b := &n.estimate
	earliest, latest := b.lines(e.At)
	s.require("bounds", r.Term == b.Term && r.Limit <= b.Limit, "it uses the clock of term %d up to %d, and was told of %+v", r.Term, r.Limit, b.Reading)
	const rounding = 2
	s.require("bounds", r.Earliest <= earliest+rounding && r.Latest+rounding >= latest, "it takes the clock to be between %d and %d, and was told so of %d and %d", r.Earliest, r.Latest, earliest, latest)
	s.require("bounds", r.Latest <= r.Limit, "it uses the bound %d beyond the limit %d", r.Latest, r.Limit)
}
