package protocoltrace

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/session"
	"github.com/isotone/isotone/spec"
)

// sessionRecorder makes events of what a leader does for sessions.
type sessionRecorder struct {
	// waiting are requests that have not taken effect, in their order, gone the connections that end in this step.
	waiting []sessionRequest
	gone    []session.Conn
	// changed are the names of the locks that were changed in this step.
	changed []string
	// term is that of the frontiers that were told last, of groups in the order in which they were named.
	term      uint64
	frontiers []spec.Stamps
}

// sessionRequest is a request about a session. It came with a ticket if ticket is set.
type sessionRequest struct {
	token uint64
	*session.Request
	ticket bool
}

// hashOf returns the hash by which a trace knows a session: its ID is a secret.
func hashOf(id uint64) uint64 {
	if id == 0 {
		return 0
	}
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(nil, id))
	return binary.BigEndian.Uint64(sum[:])
}

// come notes what comes with a step.
func (s *sessionRecorder) come(in *replica.Input) {
	for _, q := range in.Requests {
		if r := q.Session; r != nil {
			s.waiting = append(s.waiting, sessionRequest{q.Token, r, r.Lock != nil && r.Lock.Ticket != isotone.Timestamp{}})
		}
	}
	s.gone = in.SessionsGone
}

// sessionsBefore says what of sessions came before the answers of a step.
func (r *recorder) sessionsBefore(of *replica.Replica, e *replica.Effects) {
	s := &r.sessions
	if len(s.changed) > 0 {
		held := spec.Event{Kind: spec.Held}
		for _, name := range s.changed {
			h, _ := of.Holder(name)
			h.Name = name
			held.Holds = append(held.Holds, holdOf(h))
		}
		s.changed = s.changed[:0]
		r.add(held)
	}
	if _, open := of.SessionTerm(); open {
		for _, q := range s.waiting {
			refused := slices.ContainsFunc(e.Answers, func(a replica.Answer) bool { return a.Token == q.token && a.Err != nil })
			r.add(spec.Event{Kind: spec.Session, Token: q.token, Session: s.requestOf(q, refused)})
		}
		s.waiting = s.waiting[:0]
	}
	for _, m := range e.Sessions {
		t := spec.Event{Kind: messageKinds[m.Kind], Conn: uint64(m.Conn)}
		switch m.Kind {
		case session.MessageGranted, session.MessageReleased:
			t.Hold = &spec.Hold{Name: m.Name, Token: tokenOf(m.Token)}
		case session.MessageSeal, session.MessageFenced:
			t.Stamps = &spec.Stamps{Group: m.Group, Low: spec.Timestamp(m.Low), High: spec.Timestamp(m.Through)}
		}
		if t.Kind != "" {
			r.add(t)
		}
	}
	if len(s.waiting) > 0 { // it does not lead
		s.waiting = slices.DeleteFunc(s.waiting, func(q sessionRequest) bool {
			return slices.ContainsFunc(e.Answers, func(a replica.Answer) bool { return a.Token == q.token })
		})
	}
}

var messageKinds = map[session.MessageKind]spec.Kind{
	session.MessageSeal: spec.AskSeal, session.MessageFenced: spec.TellFenced, session.MessageExpired: spec.TellExpired, session.MessageGranted: spec.TellHeld,
	session.MessageReleased: spec.TellFree,
}

// sessionsAfter says what came after them.
func (r *recorder) sessionsAfter(of *replica.Replica) {
	s := &r.sessions
	term, open := of.SessionTerm()
	if !open {
		return
	}
	for _, conn := range s.gone {
		r.add(spec.Event{Kind: spec.Gone, Conn: uint64(conn)})
	}
	if term != s.term {
		s.term = term
		for i := range s.frontiers {
			s.frontiers[i].High = spec.Timestamp{}
		}
	}
	for i := range s.frontiers {
		f := &s.frontiers[i]
		if now, _ := of.Frontier(f.Group); spec.Timestamp(now) != f.High {
			f.High = spec.Timestamp(now)
			told := *f
			r.add(spec.Event{Kind: spec.Frontier, Stamps: &told})
		}
	}
}

// requestOf returns a request that has taken effect.
func (s *sessionRecorder) requestOf(q sessionRequest, refused bool) *spec.SessionRequest {
	out := &spec.SessionRequest{
		Conn: uint64(q.Conn), Close: q.Close, End: hashOf(uint64(q.End)), Group: q.Group, Refused: refused,
		Lows: stampsOf(q.Lows), Doubts: stampsOf(q.Doubts), Sealed: stampsOf(q.Sealed),
	}
	for _, g := range append(slices.Clone(q.Join), q.Group) {
		s.names(g)
	}
	if b := q.Bind; b != nil {
		out.Bind = &spec.Bind{Session: hashOf(uint64(b.ID)), Epoch: uint64(b.Epoch), TTL: int64(b.TTL), Linger: int64(b.Linger)}
		for _, p := range b.Reports {
			s.names(p.Group)
			out.Bind.Reports = append(out.Bind.Reports, spec.Stamps{Group: p.Group, Low: spec.Timestamp(p.Low), High: spec.Timestamp(p.High)})
		}
	}
	if l := q.Lock; l != nil {
		out.Lock = &spec.Lock{Op: lockOps[l.Op], Name: l.Name, Token: tokenOf(l.Token), Ticket: spec.Timestamp(l.Ticket), Fresh: !q.ticket && l.Ticket != isotone.Timestamp{}}
	}
	return out
}

var lockOps = map[session.LockOp]spec.LockOp{
	session.LockAcquire: spec.LockAcquire, session.LockTry: spec.LockAcquire, session.LockCancel: spec.LockCancel, session.LockRelease: spec.LockRelease, session.LockBreak: spec.LockBreak,
}

// names notes a group, whose frontier is told from now on.
func (s *sessionRecorder) names(group string) {
	if group != "" && !slices.ContainsFunc(s.frontiers, func(f spec.Stamps) bool { return f.Group == group }) {
		s.frontiers = append(s.frontiers, spec.Stamps{Group: group})
	}
}

// stampsOf returns stamps of groups, each as an interval of one.
func stampsOf(list []session.GroupStamp) (out []spec.Stamps) {
	for _, x := range list {
		out = append(out, spec.Stamps{Group: x.Group, Low: spec.Timestamp(x.Stamp), High: spec.Timestamp(x.Stamp)})
	}
	return out
}

func tokenOf(t isotone.Timestamp64) spec.Timestamp { return spec.Timestamp(t.Timestamp()) }

// replyOf returns the answer to a request, nil if that does not say whether the session is alive.
func replyOf(q *session.Request) *spec.Reply {
	p := &q.Reply
	switch p.Outcome {
	case session.Locked, session.NotHeld:
		return nil
	}
	out := &spec.Reply{Alive: p.Outcome == session.Alive, Session: hashOf(uint64(p.Session)), Frontiers: stampsOf(p.Frontiers), Bound: spec.Timestamp(p.Bound)}
	for _, h := range p.Holds {
		out.Holds = append(out.Holds, spec.Hold{Name: h.Name, Token: tokenOf(h.Token)})
	}
	return out
}

func holdOf(h oracle.Hold) spec.Hold {
	return spec.Hold{Name: h.Name, Session: hashOf(h.Session), Token: tokenOf(h.Token), TTL: int64(h.TTL)}
}

// restoredAt returns the floor of a restored cluster in unix nanoseconds, 0 of others: 11 s before the fence of the workers of its members (see [oracle.Restored]).
func restoredAt(f oracle.Fence) uint64 {
	return max(f.Members, 11_000)*1e6 - 11e9
}
