package spec

import "math"

// Hold is a session's right to a lock. TTL is that of the session, in nanoseconds.
type Hold struct {
	Name    string    `json:"name"`
	Session uint64    `json:"s,omitempty"`
	Token   Timestamp `json:"token,omitzero"`
	TTL     int64     `json:"ttl,omitempty"`
}

// LockChange claims a lock for Hold, or releases it if Token is that of its holder.
type LockChange struct {
	Claim bool `json:"claim,omitempty"`
	Hold
}

// Lock is what a session asks for about a lock. Ticket is its place in the queue; it is issued in this step if Fresh is set.
type Lock struct {
	Op     LockOp    `json:"op"`
	Name   string    `json:"name"`
	Token  Timestamp `json:"token,omitzero"`
	Ticket Timestamp `json:"ticket,omitzero"`
	Fresh  bool      `json:"fresh,omitempty"`
}

// LockOp is what is to be done about a lock.
type LockOp string

// The operations. LockBreak is that of an operator.
const (
	LockAcquire LockOp = "acquire"
	LockCancel  LockOp = "cancel"
	LockRelease LockOp = "release"
	LockBreak   LockOp = "break"
)

// waiter is a session that has asked for a lock.
type waiter struct {
	above  Timestamp // the largest timestamp that was answered before
	ticket Timestamp
	waits  bool // surely, since its ticket was issued
}

// lock notes what a session asks for.
func (t *sessions) lock(n *node, id uint64, q *request) {
	r := q.session.Lock
	w := t.waiters[r.Name][id]
	switch r.Op {
	case LockAcquire:
		if t.waiters[r.Name] == nil {
			t.waiters[r.Name] = map[uint64]*waiter{}
		}
		if w == nil {
			w = &waiter{above: q.above}
			t.waiters[r.Name][id] = w
		}
		if r.Fresh {
			w.ticket, w.waits = r.Ticket, true
			t.issued(n, r.Ticket)
		}
	case LockCancel:
		if w != nil {
			w.waits = false
		}
	case LockRelease:
		if h := n.holds[r.Name]; h.Session != id || h.Token != r.Token || t.released[r.Token] != 0 {
			return
		}
		t.released[r.Token] = math.MaxUint64
		if t.all[id].conn == q.session.Conn && !q.session.Refused {
			t.released[r.Token] = n.steps
		}
	}
}

// leave notes that a session may not wait for locks any more.
func (t *sessions) leave(id uint64) {
	for _, list := range t.waiters {
		if w := list[id]; w != nil {
			w.waits = false
		}
	}
}

// locks applies changes of locks.
func (s *Spec) locks(n *node, e Event) {
	var t *sessions
	if l := n.leading; l != nil && l.term == e.Term {
		t = s.sessions(n)
	}
	for _, c := range e.Command.Locks {
		switch have, held := n.holds[c.Name]; {
		case c.Claim:
			s.require("claim", !held, "%q is claimed, which the session %x holds under the token %v", c.Name, have.Session, have.Token)
			s.require("claim", c.Token.Time >= n.claimsFrom, "%q is claimed, and holders of the former cluster may believe in theirs until %d", c.Name, n.claimsFrom)
			s.require("token", n.token.Before(c.Token), "the token %v is not above %v, which was granted before", c.Token, n.token)
			if t != nil {
				s.claim(n, t, c.Hold)
			}
			n.holds[c.Name], n.token = c.Hold, c.Token
			n.heldNow = append(n.heldNow, c.Hold)
		case held && have.Token == c.Token:
			if t != nil {
				x := t.all[have.Session]
				s.require("release", t.released[c.Token] != 0 || t.mayEnd(n, x), "%q is released, which the session %x holds and did not ask for", c.Name, have.Session)
				delete(t.released, c.Token)
			}
			delete(n.holds, c.Name)
			n.heldNow = append(n.heldNow, have)
		}
	}
}

// claim checks a claim of the node's own term.
func (s *Spec) claim(n *node, t *sessions, h Hold) {
	l, x, w := n.leading, t.all[h.Session], t.waiters[h.Name][h.Session]
	s.require("ceiling", h.Token.Time < n.ceiling, "the token %v is not below the ceiling %d", h.Token, n.ceiling)
	s.require("opening", h.Token.Time >= l.floor, "the token %v is below the ceiling of the term before, %d", h.Token, l.floor)
	s.require("once", l.issued.add(Range{h.Token, h.Token}), "the token %v was issued before", h.Token)
	s.require("claim", w != nil, "%q is claimed for the session %x, which did not ask for it", h.Name, h.Session)
	if w == nil {
		return
	}
	s.require("claim", x.over == Timestamp{} || h.Token.Before(x.over), "%q is claimed for the session %x after its end", h.Name, h.Session)
	s.require("ttl", x.ttl == 0 || h.TTL == x.ttl, "the hold has a TTL of %d ns, and its session one of %d", h.TTL, x.ttl)
	s.require("arrival", w.above == Timestamp{} || w.above.Before(h.Token), "the token %v is not above %v, which was answered before the lock was asked for", h.Token, w.above)
	for id, o := range t.waiters[h.Name] {
		before := w.waits && o.waits && o.ticket.Before(w.ticket) && o.ticket.Before(h.Token)
		s.require("queue", !before, "%q is claimed for the session %x, and %x waits with an earlier ticket", h.Name, h.Session, id)
	}
	delete(t.waiters[h.Name], h.Session)
}

// tellHold checks that a session is told of a hold that it has, or had in this step.
func (s *Spec) tellHold(n *node, t *sessions, id uint64, h Hold) {
	has := n.holds[h.Name].Session == id && n.holds[h.Name].Token == h.Token
	for _, o := range n.heldNow {
		has = has || o.Name == h.Name && o.Session == id && o.Token == h.Token
	}
	s.require("told", has, "the session %x is told that it holds %q under the token %v, and that is not applied", id, h.Name, h.Token)
	at := t.released[h.Token]
	s.require("release", at == 0 || at >= n.steps, "the session %x is told that it holds %q under the token %v, whose release it has asked for", id, h.Name, h.Token)
}

// isHolder reports whether a session holds a lock.
func (n *node) isHolder(id uint64) bool {
	for _, h := range n.holds {
		if h.Session == id {
			return true
		}
	}
	return false
}

// believeMax is for how long a client believes in its locks at most, in nanoseconds: the longest TTL.
const believeMax = 60e9

// restoreHolds takes the holds of a snapshot.
func (n *node) restoreHolds(e Event) {
	clear(n.holds)
	for _, h := range e.Holds {
		n.holds[h.Name], n.token = h, larger(n.token, h.Token)
	}
	if n.claimsFrom = e.Restored; n.claimsFrom != 0 {
		n.claimsFrom += believeMax
	}
}
