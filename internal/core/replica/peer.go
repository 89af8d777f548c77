package replica

import "time"

// peerView is what this process knows of a peer from its own contacts with it.
type peerView struct {
	id    uint64
	hello Hello // the latest that connected; zero if none
	// admitted is the latest hello that was admitted. Of two processes that run from copies of
	// one directory only one may pass, even before either has connected.
	admitted Hello
	// session is that of the process which is connected, 0 for none, and heardAt the tick at which
	// it was last heard.
	session, heardAt uint64
	// leaves is the session of its process that is to own no timelines any more, 0 for none.
	leaves uint64
	// since is the tick at which the process that is connected first was.
	since uint64
	// rival is the session of another process that wants its place, since the tick rivalSince.
	rival, rivalSince uint64
	// refusal is the peer's latest refusal of this node, nil once the peer speaks again.
	refusal *Refusal
	// refusedSince is the tick of the first refusal with the same code in a row.
	refusedSince uint64
	// refusedAt is the tick of the latest refusal.
	refusedAt uint64
	// clock is its wall clock.
	clock reading
	// lastActive is the tick of its latest answer to a heartbeat of this leader, 0 if none.
	lastActive uint64
	preVote    preVoteAsked
	// blamesAt is the tick at which it last held the steady clock of this leader, or its own, for wrong.
	blamesAt uint64
	// term is the highest term in which the peer made a durable promise.
	term uint64
	// read is about the rounds of this leader in its term, owned about those of this owner of timelines.
	read, owned roundsOf
	// promisedUntil is when its promises to this leader run out, by Input.Mono and with all
	// margins.
	promisedUntil time.Duration
}

// isLeaving reports whether its process that is connected is to own no timelines any more.
func (p *peerView) isLeaving() bool { return p.leaves != 0 && p.leaves == p.session }

// roundsOf are the latest rounds for which a peer was asked and has answered.
type roundsOf struct{ asked, answered uint64 }

// isPreferred reports whether to ask the peer of r rather than that of o: one that owes no answer first,
// then the one with the latest answer.
func (r roundsOf) isPreferred(o roundsOf) bool {
	if owes := r.asked > r.answered; owes != (o.asked > o.answered) {
		return !owes
	}
	return r.answered > o.answered
}

// peer returns the view of a peer and makes one if there is none. That of a node that is no
// member is not kept.
func (f *facts) peer(id uint64) *peerView {
	p := f.peers[id]
	if p == nil {
		p = &peerView{id: id}
		if _, isMember := f.state.Member(id); isMember || f.applied == 0 {
			f.peers[id] = p
		}
	}
	return p
}
