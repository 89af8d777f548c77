package spec

// Tenure is what the applied log of a process says of a timeline: the process Session of Owner owns it since the entry Grant. Since is the entry that put the timeline into its group.
type Tenure struct {
	Owner   uint64 `json:"o,omitempty"`
	Session uint64 `json:"s,omitempty"`
	Grant   uint64 `json:"grant,omitempty"`
	Since   uint64 `json:"since,omitempty"`
	Sealed  bool   `json:"sealed,omitempty"`
	// Leased: the owner may answer by a lease. Waits: an earlier owner may still do so.
	Leased bool `json:"leased,omitempty"`
	Waits  bool `json:"waits,omitempty"`
}

// fenceRound is a round of an owner: a question to the voters for the fences of their logs.
type fenceRound struct {
	step uint64
	at   int64
	told map[uint64]uint64 // by voter: the lowest fence that it has told since
}

// timeline has what was issued of a timeline: in its latest tenure, and the largest timestamp of earlier ones.
type timeline struct {
	tenure   uint64
	earlier  Timestamp
	first    Timestamp
	last     Timestamp
	issued   issued
	answered Timestamp
}

// timelineKey names a timeline of a cluster.
type timelineKey struct {
	cluster uint64
	name    string
}

func (s *Spec) timeline(n *node, name string) *timeline {
	key := timelineKey{n.cluster, name}
	l := s.timelines[key]
	if l == nil {
		l = &timeline{}
		s.timelines[key] = l
	}
	return l
}

// appended notes the fences of the log of a node.
func (n *node) appended(e Event) {
	n.cut(e.Index)
	n.fences = append(n.fences, e.Fences...)
	if extra := len(n.fences) - fencesMax; extra > 0 {
		n.fences = n.fences[extra:]
	}
}

// cut forgets the fences of the log from an index on. Those of its own that a round has counted do not count any more.
func (n *node) cut(from uint64) {
	keep := len(n.fences)
	for keep > 0 && n.fences[keep-1] >= from {
		keep--
	}
	n.fences = n.fences[:keep:keep]
	for _, r := range n.fenceRounds {
		r.told[n.id] = min(r.told[n.id], n.fence())
	}
}

// fencesMax is how many fences of a log are kept: more than are ever taken back.
const fencesMax = 1024

// fence returns the latest fence of the log of a node.
func (n *node) fence() uint64 {
	if len(n.fences) == 0 {
		return 0
	}
	return n.fences[len(n.fences)-1]
}

// askFence begins a round of an owner, or repeats it.
func (n *node) askFence(e Event) {
	if _, ok := n.fenceRounds[e.Round]; !ok {
		n.latestFenceRound = e.Round
		n.fenceRounds[e.Round] = fenceRound{step: n.steps, at: n.at, told: map[uint64]uint64{n.id: n.fence()}}
		delete(n.fenceRounds, e.Round-roundsMax)
	}
}

// tellFence checks that a voter tells all fences of its log.
func (s *Spec) tellFence(n *node, e Event) {
	has := min(n.fenceBefore, n.fence()) // what it appends in this step may come later
	s.require("fence", e.Index >= has, "it tells the fence %d, and its log has one at %d", e.Index, has)
	key := toldKey{n.id, e.Token, e.Round}
	if was, ok := s.told[key]; !ok || e.Index < was {
		s.told[key] = e.Index
	}
	delete(s.told, toldKey{n.id, e.Token, e.Round - confirmationsMax})
}

// toldKey names what a voter has told a process in a round.
type toldKey struct{ voter, process, round uint64 }

// toldFence notes what a voter has told for a round, and for all earlier ones.
func (s *Spec) toldFence(n *node, e Event) {
	if e.Round+roundsMax <= n.latestFenceRound {
		return // it is over
	}
	if s.isKnown(e.Peer) {
		told, ok := s.told[toldKey{e.Peer, e.Process, e.Round}]
		s.require("fence", ok && e.Index >= told, "node %d did not tell the fence %d in round %d", e.Peer, e.Index, e.Round)
	}
	for id, r := range n.fenceRounds {
		if was, ok := r.told[e.Peer]; id <= e.Round && (!ok || e.Index < was) {
			r.told[e.Peer] = e.Index
		}
	}
}

// hasFences reports whether a quorum has told fences that are applied, in a round that began in step or since, whichever is later, or after that: in which a request came, and in which the
// members changed.
func (n *node) hasFences(c Config, step, since uint64) bool {
	if n.isAlone() {
		return n.fence() <= n.applied
	}
	for _, r := range n.fenceRounds {
		if r.step >= max(step, since) && n.isTold(c, r) {
			return true
		}
	}
	return false
}

func (n *node) isTold(c Config, r fenceRound) bool {
	return c.quorum(func(id uint64) bool { f, ok := r.told[id]; return ok && f <= n.applied })
}

// extendFenceLease extends the lease of an owner by the rounds of the present configuration that are confirmed. The lease outlives that configuration.
func (n *node) extendFenceLease() {
	for _, r := range n.fenceRounds {
		if until := r.at + ownerLeaseTicks*n.tick; until > n.fenceLease && r.step >= n.configAt && n.isTold(n.config, r) {
			n.fenceLease = until
		}
	}
}

// ownerLeaseTicks is how long the lease of an owner lasts, in ticks from the beginning of its round.
const ownerLeaseTicks = 7

// answerOwned checks the answer to a request for a timeline.
func (s *Spec) answerOwned(n *node, q *request, e Event) {
	t := e.Tenure
	if n.fencedAt == n.steps {
		return // the tenure may be another one than when it answered, earlier in this step
	}
	s.require("owner", t.Owner == n.id && t.Session == e.Process && !t.Sealed, "it answers for the timeline %q, of which its log says %+v", q.timeline, *t)
	if at, ok := n.appliedAt[t.Grant]; t.Waits && ok {
		wait := ownerLeaseTicks * n.tick * (100 + rateErrorPercent) / (100 - rateErrorPercent)
		s.require("wait", n.at >= at+wait, "an earlier owner of %q may answer under its lease for %d ns more", q.timeline, at+wait-n.at)
	}
	n.extendFenceLease()
	fenced := n.hasFences(n.config, q.step, n.configAt) || n.hasFences(n.configBefore, q.step, n.configAtBefore) || q.lease && t.Leased && (n.at < n.fenceLease || n.isAlone())
	for _, l := range []*leading{n.leading, n.leadingBefore} {
		if l != nil && l.open && q.fence <= n.applied {
			fenced = fenced || s.mayAnswer(n, l, q)
		}
	}
	s.require("fences", fenced, "no quorum has told fences that it has applied, in a round that began since the request came")
	l, tenure := s.timeline(n, q.timeline), max(t.Grant, t.Since)
	for _, r := range e.Ranges {
		if tenure > l.tenure {
			*l = timeline{tenure: tenure, earlier: larger(l.earlier, l.last), first: r.First, answered: l.answered}
		}
		s.require("order", q.order == Timestamp{} || q.order.Before(r.First), "%v of %q is not above %v, which was answered before the request came", r.First, q.timeline, q.order)
		l.answered = larger(l.answered, r.Last)
		if tenure < l.tenure {
			s.require("tenure", r.Last.Before(l.first), "%v of %q is not below %v, which a later owner has issued", r.Last, q.timeline, l.first)
			continue
		}
		s.require("tenure", l.earlier == Timestamp{} || l.earlier.Before(r.First), "%v of %q is not above %v, which an earlier owner has issued", r.First, q.timeline, l.earlier)
		s.require("floor", q.floor == Timestamp{} || q.floor.Before(r.First), "%v is not above the floor of the request, %v", r.First, q.floor)
		s.require("once", l.issued.add(r), "%v to %v of %q is no range, or was issued before", r.First, r.Last, q.timeline)
		if l.last = larger(l.last, r.Last); r.First.Before(l.first) {
			l.first = r.First
		}
	}
	if len(l.issued) > issuedMax {
		l.issued.forget(l.issued[len(l.issued)/2].Last)
	}
}
