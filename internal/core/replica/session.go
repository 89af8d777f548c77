package replica

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/frontier"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/session"
)

// Sessions of clients, their locks and their frontiers (docs/decisions/0041-sessions-and-the-frontier.md). A request takes effect when it arrives, and is answered
// after a round, as requests for timestamps are. So an answer shows that the session was alive when the request came (R3).

// SessionRequest is a request over the connection of a session. It is part of a [Request] of the default order in quorum mode, with one count or none. Any such
// request keeps the session alive. It takes effect even if its answer is an error of code overloaded or deadline_exceeded.
type SessionRequest struct {
	Conn session.Conn
	// Bind, if not nil, begins the session, or goes on with it over this connection.
	Bind *SessionBind
	// Close ends the session.
	Close bool
	// Lows are the stamps below which all of the session in a group are decided, Doubts those of writes without an answer, and Sealed what all stores of a group
	// refuse.
	Lows, Doubts, Sealed []GroupStamp
	// Lock, if not nil, is about a lock.
	Lock *LockRequest
	// Group, if not "", is the group for whose writes the timestamps are. With Ahead the session may also make stamps itself, up to Reply.Bound.
	Group string
	Ahead bool
	// Reply is set when the request is answered without an error.
	Reply SessionReply

	received bool
}

// SessionBind begins a session, or goes on with it. All but Reports is as in [session.Bind].
type SessionBind struct {
	ID          session.ID
	Epoch       uint32
	TTL, Linger time.Duration
	Reports     []frontier.Report
}

// GroupStamp is a stamp in a group.
type GroupStamp struct {
	Group string
	Stamp isotone.Timestamp
}

// SessionReply answers a [SessionRequest].
type SessionReply struct {
	Outcome SessionOutcome
	// Session is the session of the connection.
	Session session.ID
	// Holds, of a Bind, is what the session holds, and Frontiers are those of its groups. Of a Lock, Holds has the lock if the session holds it.
	Holds     []oracle.Hold
	Frontiers []GroupStamp
	// Bound is the largest stamp that the session may make itself in the group, with indexes from oracle.IndexMax on: the oracle issues smaller ones.
	Bound isotone.Timestamp
}

// SessionOutcome is how a [SessionRequest] ended.
type SessionOutcome uint8

const (
	// SessionAlive: the session is alive, and was bound and alive when the request came.
	SessionAlive SessionOutcome = iota + 1
	// SessionUnbound: the connection is not, or not any more, that of a session. The request had no effect.
	SessionUnbound
	// SessionExpired: the session has ended. Its ID must not be used again.
	SessionExpired
	// SessionLocked: somebody else holds the lock, or waits for it; only [LockTry] is answered so.
	SessionLocked
)

// SessionMessage is a message to a client that is no answer to a request. It is to be sent after the Answers of the same step, and in order. A client ignores what comes before the answer to
// its Bind: that answer shows as much, and a leader that is deposed cannot give it.
type SessionMessage struct {
	Conn session.Conn
	Kind SessionMessageKind
	// Group and Through are those of a seal. Of what is fenced, Low and Through are the first and the last stamp.
	Group        string
	Low, Through isotone.Timestamp
	// Name is that of a lock, Token its token, Ticket the place of whoever waits.
	Name   string
	Token  isotone.Timestamp64
	Ticket isotone.Timestamp
}

// SessionMessageKind is the kind of a [SessionMessage].
type SessionMessageKind uint8

const (
	// MessageSeal asks to have all stores of Group refuse what is at or below Through.
	MessageSeal SessionMessageKind = iota + 1
	// MessageFenced tells that the session may not write from Low to Through any more (R16).
	MessageFenced
	// MessageExpired tells that the session has ended.
	MessageExpired
	// MessageSuperseded tells that another connection has bound the session.
	MessageSuperseded
	// MessageQueued tells that the session waits for the lock Name, with Ticket.
	MessageQueued
	// MessageGranted tells that the session holds the lock Name, with Token.
	MessageGranted
	// MessageReleased tells that the session does not hold the lock Name with Token, or does not wait for it.
	MessageReleased
)

// errSessionRequest refuses stamps that nobody would register.
var errSessionRequest = isotone.Errorf(isotone.CodeInvalidArgument, "a session asks for one range of timestamps, of the default order")

// stampAhead is how far ahead of oracle time a session may make stamps itself (R10).
const stampAhead = 40 * time.Millisecond

// frontierHoldMax is how long a session may leave its lowest stamp undecided (R16).
const frontierHoldMax = time.Minute

// sessions are the sessions of clients in a leader's term.
type sessions struct {
	*facts
	leading *leading
	// table and frontier are nil until the allocator is open (R2).
	table    *session.Table
	frontier *frontier.Table
	locks    locks
	// late are stamps that a deliberate bug registers with the next tick.
	late []func()
}

func newSessions(r *Replica) sessions {
	return sessions{facts: &r.facts, leading: &r.leading, locks: newLocks(r)}
}

// isOpen reports whether requests take effect.
func (s *sessions) isOpen() bool {
	if s.table == nil && mutant.On(mutant.BindBeforeOpen) {
		s.open()
	}
	return s.table != nil
}

// open begins the sessions of a term, once its allocator is open and so all entries of earlier terms are applied (R2).
func (s *sessions) open() {
	if s.table != nil {
		return
	}
	s.table = session.New(s.mono, s.cfg.TickInterval)
	s.frontier = frontier.New(s.leading.alloc.Upcoming(), s.table.Ran(), frontierHoldMax)
	for h := range s.state.Holds.All() {
		s.table.Restore(session.ID(h.Session), h.TTL)
	}
	q := s.leading.queue
	q.waiting = s.receiveAll(q.waiting)
}

// receiveAll has the requests take effect that came before the allocator was open, and returns all that wait for a round.
func (s *sessions) receiveAll(list []pending) []pending {
	rest := list[:0]
	for i := range list {
		p := list[i]
		if p.Session != nil && !p.Session.received {
			if err, done := s.receive(p.Session); done {
				s.leading.queue.load.leave(&p.Request)
				s.answer(p.Token, err)
				continue
			}
		}
		rest = append(rest, p)
	}
	clear(list[len(rest):])
	return rest
}

// receive has a request take effect. It reports done if the request waits for no round: it is answered with err, or with its Reply.
func (s *sessions) receive(q *SessionRequest) (err *isotone.Error, done bool) {
	q.received = true
	s.advance()
	if q.Bind != nil {
		if err, done = s.bind(q); done {
			return err, true
		}
	}
	id, ok := s.table.Heard(q.Conn)
	if q.Reply.Session = id; !ok {
		return nil, false // it is told why by a leader that is not deposed
	}
	of := frontier.Session(id)
	for _, d := range q.Doubts {
		s.frontier.Doubt(of, d.Group, d.Stamp)
	}
	for _, l := range q.Lows {
		s.frontier.Low(of, l.Group, l.Stamp)
	}
	for _, x := range q.Sealed {
		s.frontier.Sealed(x.Group, x.Stamp)
	}
	if q.Close {
		s.table.Close(q.Conn)
		s.end(id)
		q.Reply.Outcome = SessionExpired
		return nil, true
	}
	if q.Lock != nil {
		if err := s.locks.request(id, q); err != nil || q.Reply.Outcome == SessionLocked {
			return err, true
		}
	}
	if mutant.On(mutant.KeepWithoutRound) && q.Group == "" && q.Bind == nil {
		q.Reply.Outcome = SessionAlive
		return nil, true
	}
	return nil, false
}

// bind gives a session the connection of a request.
func (s *sessions) bind(q *SessionRequest) (refused *isotone.Error, done bool) {
	b := q.Bind
	if err := s.frontier.Check(frontier.Session(b.ID), b.Reports); err != nil {
		return err, true
	}
	former, err := s.table.Bind(session.Bind{ID: b.ID, Conn: q.Conn, Epoch: b.Epoch, TTL: b.TTL, Linger: b.Linger})
	if err == nil {
		if former != 0 {
			s.tell(SessionMessage{Conn: former, Kind: MessageSuperseded})
			s.locks.stopWaiting(b.ID)
		}
		err = s.frontier.Bind(frontier.Session(b.ID), b.Reports)
	}
	switch {
	case err == nil:
		return nil, false
	case errors.Is(err, session.ErrExpired), errors.Is(err, session.ErrSuperseded):
		return nil, false
	case !errors.As(err, &refused):
		panic("replica: a session was refused without a code")
	}
	return refused, true
}

// standing returns why a request does not speak for a session that lives.
func (s *sessions) standing(q *SessionRequest) SessionOutcome {
	if s.table.IsCondemned(q.Conn) || q.Bind != nil && s.table.IsEnding(q.Bind.ID) {
		return SessionExpired
	}
	return SessionUnbound
}

// admits reports whether the session of a request is alive still when its round is confirmed. Otherwise the request is answered.
func (s *sessions) admits(p *pending) bool {
	q, err := p.Session, (*isotone.Error)(nil)
	switch {
	case !s.table.Speaks(q.Conn, q.Reply.Session):
		q.Reply.Outcome = s.standing(q)
	case q.Group != "" && !s.frontier.Has(frontier.Session(q.Reply.Session), q.Group):
		err = isotone.Errorf(isotone.CodeInvalidArgument, "the session has not bound with the group %q", q.Group)
	default:
		return true
	}
	s.leading.queue.load.leave(&p.Request)
	s.answer(p.Token, err)
	return false
}

// taken registers stamps in the step that issues them (R10).
func (s *sessions) taken(p *pending, r isotone.Range) {
	q := p.Session
	if q == nil || q.Group == "" {
		return
	}
	last := isotone.Timestamp{Time: r.First.Time, Index: r.First.Index + r.Count - 1}
	if p.U64 {
		last = (isotone.Timestamp64From(r.First) + isotone.Timestamp64(r.Count-1)).Timestamp()
	}
	if q.Ahead {
		to := min(max(s.leading.axisNow(), last.Time)+uint64(stampAhead), s.leading.alloc.Ceiling()-1)
		last = isotone.Timestamp{Time: to, Index: math.MaxUint64}
		q.Reply.Bound = last
	}
	take := func() { s.frontier.Take(frontier.Session(q.Reply.Session), q.Group, r.First, last) }
	if mutant.On(mutant.TakeRegistersLate) {
		s.late = append(s.late, take)
		return
	}
	take()
}

// reply completes the answer to a request that was served.
func (s *sessions) reply(q *SessionRequest) {
	q.Reply.Outcome = SessionAlive
	if q.Lock != nil {
		if h, held := s.state.Holds.Get(q.Lock.Name); held && h.Session == uint64(q.Reply.Session) && s.locks.shows(h) {
			q.Reply.Holds = append(q.Reply.Holds, h)
		}
	}
	if q.Bind == nil {
		return
	}
	q.Reply.Holds = slices.DeleteFunc(s.state.Holds.Of(uint64(q.Reply.Session)), func(h oracle.Hold) bool { return !s.locks.shows(h) })
	for _, r := range q.Bind.Reports {
		q.Reply.Frontiers = append(q.Reply.Frontiers, GroupStamp{r.Group, s.frontier.Frontier(r.Group)})
	}
}

// gone notes that the connection of a session has ended.
func (s *sessions) gone(conn session.Conn) {
	if s.table == nil {
		s.forget(conn)
		return
	}
	if id, ok := s.table.Gone(conn); ok {
		s.frontier.Gone(frontier.Session(id))
		s.locks.stopWaiting(id)
	}
}

// forget drops what came over a connection before the allocator was open.
func (s *sessions) forget(conn session.Conn) {
	q := s.leading.queue
	q.waiting = slices.DeleteFunc(q.waiting, func(p pending) bool {
		if p.Session == nil || p.Session.Conn != conn {
			return false
		}
		q.load.leave(&p.Request)
		s.answer(p.Token, isotone.ErrNoLeader)
		return true
	})
}

// tick ends sessions whose time is over, and asks for seals.
func (s *sessions) tick() {
	if s.table == nil {
		return
	}
	for _, take := range s.late {
		take()
	}
	s.late = nil
	for _, id := range s.table.Tick(s.mono) {
		s.end(id)
	}
	s.advance()
	for _, f := range s.frontier.Overdue() {
		s.tell(SessionMessage{Conn: s.table.ConnOf(session.ID(f.Session)), Kind: MessageFenced, Group: f.Group, Low: f.Low, Through: f.High})
	}
	for _, x := range s.frontier.Seals() {
		s.tell(SessionMessage{Conn: s.table.ConnOf(session.ID(x.Session)), Kind: MessageSeal, Group: x.Group, Through: x.Through})
	}
}

// end ends a session that is condemned.
func (s *sessions) end(id session.ID) {
	s.tell(SessionMessage{Conn: s.table.ConnOf(id), Kind: MessageExpired})
	s.frontier.End(frontier.Session(id))
	if !mutant.On(mutant.WaiterOutlivesSession) {
		s.locks.stopWaiting(id)
	}
	if !s.locks.end(id) {
		s.table.Ended(id)
	}
}

// tell adds a message, unless there is no connection.
func (s *sessions) tell(m SessionMessage) {
	if m.Conn != 0 {
		s.effects.Sessions = append(s.effects.Sessions, m)
	}
}

// advance tells the frontier the time, and what is issued next.
func (s *sessions) advance() { s.frontier.Advance(s.table.Ran(), s.leading.alloc.Upcoming()) }

// step is called in each step when all that came has been received.
func (s *sessions) step() {
	if s.table == nil {
		return
	}
	s.locks.step()
}

// Frontier returns the frontier of a group: no write of the group at or below it is accepted any more, whatever happens later (R14). It is zero
// if no session of this term has the group, and ok is false unless this process leads.
func (r *Replica) Frontier(group string) (f isotone.Timestamp, ok bool) {
	s := &r.leading.sessions
	if s.table == nil {
		return isotone.Timestamp{}, false
	}
	s.advance()
	return s.frontier.Frontier(group), true
}

// Upcoming returns a lower bound of the timestamps of the default order that this process may still issue in its term, zero if it serves none.
func (r *Replica) Upcoming() isotone.Timestamp { return r.leading.alloc.Upcoming() }
