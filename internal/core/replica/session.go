package replica

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/frontier"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/session"
)

// Sessions of clients, their locks and their frontiers (docs/decisions/0041-sessions-and-the-frontier.md). A request takes effect when it arrives, and is answered
// after a round, as requests for timestamps are. So an answer shows that the session was alive when the request came (R3).

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
		if p.Session != nil {
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
func (s *sessions) receive(q *session.Request) (err *isotone.Error, done bool) {
	s.advance()
	if q.Bind != nil {
		if err, done = s.bind(q); done {
			return err, true
		}
	}
	if q.Lock != nil && q.Lock.Op == session.LockBreak {
		return nil, !s.breaks(q.Lock, &q.Reply)
	}
	if q.End != 0 {
		s.close(q, q.End)
		return nil, true
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
		if s.frontier.Has(of, x.Group) {
			s.frontier.Sealed(x.Group, x.Stamp)
		}
	}
	if q.Close {
		s.close(q, id)
		return nil, true
	}
	if err := s.frontier.Join(of, q.Join); err != nil {
		return err, true
	}
	if q.Lock != nil {
		if err := s.locks.request(id, q); err != nil || q.Reply.Outcome == session.Locked {
			return err, true
		}
	}
	if mutant.On(mutant.KeepWithoutRound) && q.Group == "" && q.Bind == nil {
		q.Reply.Outcome = session.Alive
		return nil, true
	}
	return nil, false
}

// close ends a session at its own request, if it lives.
func (s *sessions) close(q *session.Request, id session.ID) {
	if s.table.Close(id) {
		s.counters.SessionsClosed++
		s.end(id)
	}
	q.Reply.Outcome = session.Expired
}

// bind gives a session the connection of a request.
func (s *sessions) bind(q *session.Request) (refused *isotone.Error, done bool) {
	b := q.Bind
	if err := s.frontier.Check(frontier.Session(b.ID), b.Reports); err != nil {
		return err, true
	}
	former, err := s.table.Bind(q.Conn, *b)
	if err == nil {
		if former != 0 {
			s.tell(session.Message{Conn: former, Kind: session.MessageSuperseded})
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

// breaks condemns the session that holds a lock, and reports whether there is one.
func (s *sessions) breaks(q *session.LockRequest, reply *session.Reply) bool {
	h, held := s.state.Holds.Get(q.Name)
	id := session.ID(h.Session)
	if !held || h.Token != q.Token || id == session.Reserved && !mutant.On(mutant.RedisSessionBroken) {
		reply.Outcome = session.NotHeld
		return false
	}
	if !s.table.IsEnding(id) {
		s.counters.SessionsBroken++
	}
	if reply.FreeAfter = s.table.Break(id); mutant.On(mutant.BreakAtOnce) {
		s.end(id)
	}
	s.condemned(id)
	return true
}

// standing returns why a request does not speak for a session that lives.
func (s *sessions) standing(q *session.Request) session.Outcome {
	if s.table.IsCondemned(q.Conn) || q.Bind != nil && s.table.IsEnding(q.Bind.ID) {
		return session.Expired
	}
	return session.Unbound
}

// admits reports whether the session of a request is alive still when its round is confirmed. Otherwise the request is answered.
func (s *sessions) admits(p *pending) bool {
	q, err := p.Session, (*isotone.Error)(nil)
	switch {
	case q.Lock != nil && q.Lock.Op == session.LockBreak:
		return true
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
func (s *sessions) reply(q *session.Request) {
	q.Reply.Outcome = session.Alive
	if q.Lock != nil && q.Lock.Op != session.LockBreak {
		if h, held := s.state.Holds.Get(q.Lock.Name); held && h.Session == uint64(q.Reply.Session) && s.locks.shows(h) {
			q.Reply.Holds = append(q.Reply.Holds, session.Hold{Name: h.Name, Token: h.Token})
		}
	}
	if q.Bind == nil && !q.Show {
		return
	}
	for _, h := range s.state.Holds.Of(uint64(q.Reply.Session)) {
		if s.locks.shows(h) {
			q.Reply.Holds = append(q.Reply.Holds, session.Hold{Name: h.Name, Token: h.Token})
		}
	}
	groups := slices.Clone(q.Join)
	if q.Bind != nil {
		for _, r := range q.Bind.Reports {
			groups = append(groups, r.Group)
		}
	}
	for _, g := range groups {
		q.Reply.Frontiers = append(q.Reply.Frontiers, session.GroupStamp{Group: g, Stamp: s.frontier.Frontier(g)})
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
	lost := s.table.Lost()
	for _, id := range s.table.Tick(s.mono) {
		s.end(id)
	}
	s.counters.SessionsLost += s.table.Lost() - lost
	s.advance()
	for _, f := range s.frontier.Overdue() {
		s.tell(session.Message{Conn: s.table.ConnOf(session.ID(f.Session)), Kind: session.MessageFenced, Group: f.Group, Low: f.Low, Through: f.High})
	}
	for _, x := range s.frontier.Seals() {
		s.counters.SealsAsked++
		s.tell(session.Message{Conn: s.table.ConnOf(session.ID(x.Session)), Kind: session.MessageSeal, Group: x.Group, Through: x.Through})
	}
}

// end ends a session that is condemned, and that cannot believe in its locks any more.
func (s *sessions) end(id session.ID) {
	s.condemned(id)
	if !s.locks.end(id) {
		s.table.Ended(id)
	}
}

// condemned does what rests on no clock when a session is condemned.
func (s *sessions) condemned(id session.ID) {
	s.tell(session.Message{Conn: s.table.ConnOf(id), Kind: session.MessageExpired})
	s.frontier.End(frontier.Session(id))
	if !mutant.On(mutant.WaiterOutlivesSession) {
		s.locks.stopWaiting(id)
	}
}

// tell adds a message, unless there is no connection.
func (s *sessions) tell(m session.Message) {
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

// Blocker is a part of what keeps the frontier of a group from going on; see [frontier.Blocker].
type Blocker struct {
	frontier.Blocker
	// Label is what the client calls the session.
	Label string
}

// Blockers returns at most limit of what keeps the frontier of a group from going on, the lowest first; ok is false unless this process leads.
func (r *Replica) Blockers(group string, limit int) (list []Blocker, ok bool) {
	s := &r.leading.sessions
	if s.table == nil {
		return nil, false
	}
	s.advance()
	for _, b := range s.frontier.Blockers(group, limit) {
		list = append(list, Blocker{b, s.table.Label(session.ID(b.Session))})
	}
	return list, true
}

// Label returns what the client of a session calls it, as far as this process knows.
func (r *Replica) Label(id uint64) string {
	if t := r.leading.sessions.table; t != nil {
		return t.Label(session.ID(id))
	}
	return ""
}

// SessionStats are the numbers of sessions and locks, and the groups with their frontiers, of a leader.
type SessionStats struct {
	Sessions, Held, Waiting int
	Groups                  []GroupStats
}

// GroupStats is how far the frontier of a group is behind oracle time: at most for how long this process leads, as what earlier leaders told is not known.
type GroupStats struct {
	Name string
	Lag  time.Duration
}

// SessionStats returns the state of sessions; ok is false unless this process leads.
func (r *Replica) SessionStats() (stats SessionStats, ok bool) {
	s := &r.leading.sessions
	if s.table == nil {
		return stats, false
	}
	s.advance()
	stats = SessionStats{Sessions: s.table.Len(), Held: r.state.Holds.Len(), Waiting: s.locks.count}
	for _, name := range s.frontier.Groups() {
		lag := s.leading.alloc.Upcoming().Time - s.frontier.Frontier(name).Time
		stats.Groups = append(stats.Groups, GroupStats{name, time.Duration(min(lag, uint64(s.table.Ran())))})
	}
	return stats, true
}

// SessionTerm returns the term of this process, and whether it leads and has sessions.
func (r *Replica) SessionTerm() (term uint64, leads bool) {
	return r.term, r.leading.sessions.table != nil
}

// Upcoming returns a lower bound of the timestamps of the default order that this process may still issue in its term, zero if it serves none.
func (r *Replica) Upcoming() isotone.Timestamp { return r.leading.alloc.Upcoming() }
