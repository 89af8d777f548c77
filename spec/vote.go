package spec

import "slices"

// promiseMax is the longest promise that a leader asks for, in ticks. For as long after its start a node does not know what its former process has promised.
const promiseMax = 10

// vote checks a vote that the node has decided on.
func (s *Spec) vote(n *node, e Event) {
	s.require("vote", e.Term > n.voted.term || e.Term == n.voted.term && (n.voted.vote == 0 || n.voted.vote == e.Peer),
		"it votes for node %d in term %d, and has voted for node %d in term %d", e.Peer, e.Term, n.voted.vote, n.voted.term)
	n.voted.term, n.voted.vote = e.Term, e.Peer
	if e.Transfer || n.isAlone() {
		return
	}
	s.require("start", n.ticks >= promiseMax, "it votes for node %d in term %d, %d ticks after its start", e.Peer, e.Term, n.ticks)
	for _, p := range n.promises {
		s.require("promise", p.term >= e.Term || n.ticks >= p.until, "it votes for node %d in term %d, and has promised the leader of term %d not to, for %d ticks more", e.Peer, e.Term, p.term, p.until-min(p.until, n.ticks))
	}
}

// isAlone reports whether nobody else votes.
func (n *node) isAlone() bool {
	return len(n.config.Outgoing) == 0 && len(n.config.Voters) == 1 && n.config.Voters[0] == n.id
}

// noteAsked notes the latest question of each term and promise.
func (n *node) noteAsked(e Event) {
	n.asked = slices.DeleteFunc(n.asked, func(q question) bool { return q.term == e.Term && q.promise == e.Count || q.term < n.termBefore })
	n.asked = append(n.asked, question{term: e.Term, tick: n.ticks, promise: e.Count})
}

// confirm checks a confirmation, and notes the promise that it makes.
func (s *Spec) confirm(n *node, e Event) {
	s.require("confirmation", e.Term >= n.termBefore, "it confirms round %d of term %d, and is in term %d", e.Round, e.Term, n.termBefore)
	n.answeredIn(e.Term)
	if e.Count > 0 {
		asked := int64(-1) // when it was asked for as many last
		for _, q := range n.asked {
			if q.term == e.Term && q.promise >= e.Count {
				asked = max(asked, int64(q.tick))
			}
		}
		s.require("promise", asked >= 0, "it promises the leader of term %d %d ticks, and was not asked for as many", e.Term, e.Count)
		if asked >= 0 {
			n.promises = slices.DeleteFunc(n.promises, func(p promise) bool { return p.until <= n.ticks })
			n.promises = append(n.promises, promise{e.Term, uint64(asked) + e.Count})
		}
	}
	key := confirmation{e.Peer, e.Term, e.Round}
	v := s.confirmed[n.id]
	if _, ok := v.promises[key]; !ok {
		list := append(v.recent[e.Peer], key)
		if len(list) > confirmationsMax {
			delete(v.promises, list[0])
			list = list[1:]
		}
		v.recent[e.Peer] = list
	}
	v.promises[key] = max(v.promises[key], e.Count)
}

// confirmationsMax is how many confirmations of a node to a leader are kept, roundsMax how many rounds of a leader or an owner. Older ones confirm nothing.
const confirmationsMax, roundsMax = 1024, 64
