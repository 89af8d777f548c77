package spec

import (
	"slices"
	"sort"
)

// request came in a step, and waits for its answer.
type request struct {
	step     uint64
	timeline string
	lease    bool // it may be answered under a lease
	floor    Timestamp
	// term is that in which it came, above the largest timestamp that its leader had answered then, order the largest that any node had.
	term         uint64
	above, order Timestamp
	raised       uint64 // the floor that an operator had raised then
	fence        uint64 // of the log of its node then
	clock        uint64 // what bounds of the cluster clock may have shown then
	// session is what it says about a session, and took effect when its leader had run for heard. refused is the rule by which it must not bind its session, doubts are stamps that that may write,
	// breaks is the session that it ends.
	session *SessionRequest
	heard   int64
	refused string
	doubts  []Stamps
	breaks  uint64
}

func (s *Spec) request(n *node, e Event) {
	q := &request{step: n.steps, lease: e.Lease, floor: e.Floor, timeline: e.Timeline, fence: n.fence(), order: s.answered}
	if e.Raise {
		n.mayRaise = max(n.mayRaise, e.Floor.Time)
	}
	if e.Timeline != "" {
		q.order = s.timeline(n, e.Timeline).answered
	}
	if l := n.leading; l != nil {
		q.term, q.above, q.raised = l.term, l.answered, l.raised
		q.clock = min(l.shows(n.steady), l.told)
	}
	n.requests[e.Token] = q
}

// mayAnswer reports whether a leader has confirmed its term since a request came, or has a lease for it.
func (s *Spec) mayAnswer(n *node, l *leading, q *request) bool {
	return l.isConfirmed(n, n.config, q.step) || l.isConfirmed(n, n.configBefore, q.step) || q.lease && (l.isLeased(n, n.config) || l.isLeased(n, n.configBefore))
}

// answer checks the answer to a request.
func (s *Spec) answer(n *node, e Event) {
	q := n.requests[e.Token]
	delete(n.requests, e.Token)
	if e.Tenure != nil && q != nil {
		s.answerOwned(n, q, e)
		return
	}
	if len(e.Ranges) == 0 && e.Reply == nil {
		return
	}
	if q == nil {
		s.require("arrival", false, "nobody has asked for %v", e.Ranges)
		return
	}
	l := n.leading
	if l == nil {
		l = n.leadingBefore
	}
	if l == nil {
		s.require("opening", false, "it answers, and does not lead")
		return
	}
	s.require("opening", l.open, "it answers in term %d, of which it has applied no reservation", l.term)
	if e.Reply != nil {
		s.answerSession(n, l, q, e)
	} else if q.lease {
		s.require("lease", s.mayAnswer(n, l, q), "no promises of a quorum cover it, and no quorum has confirmed a round that began since the request came")
	} else {
		s.require("round", s.mayAnswer(n, l, q), "no quorum has confirmed a round that began since the request came")
	}
	for _, r := range e.Ranges {
		s.require("ceiling", r.Last.Time < n.ceiling, "%v is not below the ceiling %d", r.Last, n.ceiling)
		s.require("opening", r.First.Time >= l.floor, "%v is below the ceiling of the term before, %d", r.First, l.floor)
		s.require("floor", q.floor == Timestamp{} || q.floor.Before(r.First), "%v is not above the floor of the request, %v", r.First, q.floor)
		s.require("floor", q.term != l.term || r.First.Time > q.raised || q.raised == 0, "%v is not above the floor %d, which was raised before the request came", r.First, q.raised)
		s.require("axis", q.term != l.term || r.First.Time >= q.clock, "%v is before %d, which the cluster clock showed when the request came", r.First, q.clock)
		s.require("axis", l.base == 0 || r.Last.Time <= l.shows(n.steady), "%v is ahead of the cluster clock, which shows %d", r.Last, l.shows(n.steady))
		s.require("arrival", q.term != l.term || q.above == Timestamp{} || q.above.Before(r.First), "%v is not above %v, which was answered before the request came", r.First, q.above)
		s.require("order", q.order == Timestamp{} || q.order.Before(r.First), "%v is not above %v, which was answered before the request came", r.First, q.order)
		s.require("once", l.issued.add(r), "%v to %v is no range, or was issued before", r.First, r.Last)
		l.answered, s.answered = larger(l.answered, r.Last), larger(s.answered, r.Last)
	}
	if len(l.issued) > issuedMax {
		l.issued.forget(n.lowest(l))
	}
	if l.sessions != nil && len(e.Ranges) > 0 {
		l.sessions.issued(n, e.Ranges[len(e.Ranges)-1].Last)
	}
}

// lowest returns a timestamp below all further answers of a leader.
func (n *node) lowest(l *leading) Timestamp {
	low := l.answered
	for _, q := range n.requests {
		if q.term == l.term && q.above.Before(low) {
			low = q.above
		}
	}
	return low
}

// issued are the timestamps of a term that were answered: ranges in order, that do not overlap.
type issued []Range

// issuedMax is how many ranges are kept before those are dropped that no answer can overlap any more.
const issuedMax = 1024

// add adds a range, and reports whether it is one, and no other one overlaps it.
func (list *issued) add(r Range) bool {
	if r.Last.Before(r.First) {
		return false
	}
	i := sort.Search(len(*list), func(i int) bool { return !(*list)[i].Last.Before(r.First) })
	if i < len(*list) && !r.Last.Before((*list)[i].First) {
		return false
	}
	*list = slices.Insert(*list, i, r)
	return true
}

// forget drops ranges that no answer can overlap any more, because all are larger than low.
func (list *issued) forget(low Timestamp) {
	i := sort.Search(len(*list), func(i int) bool { return low.Before((*list)[i].Last) })
	*list = slices.Delete(*list, 0, i)
}
