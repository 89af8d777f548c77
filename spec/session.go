package spec

// SessionRequest is the part of a request that is about the session of the connection Conn.
type SessionRequest struct {
	Conn uint64 `json:"conn,omitempty"`
	Bind *Bind  `json:"bind,omitempty"`
	// Close ends the session of the connection, End another one.
	Close bool   `json:"close,omitempty"`
	End   uint64 `json:"end,omitempty"`
	// Lows: what is below Low is decided. Doubts: the writes stamped Low have no answer. Sealed: the stores refuse what is at or below High.
	Lows   []Stamps `json:"lows,omitempty"`
	Doubts []Stamps `json:"doubts,omitempty"`
	Sealed []Stamps `json:"sealed,omitempty"`
	Lock   *Lock    `json:"lock,omitempty"`
	// Group is that for whose writes timestamps are asked for.
	Group string `json:"group,omitempty"`
	// Refused: it is answered with an error at once. It may have had an effect nevertheless.
	Refused bool `json:"refused,omitempty"`
}

// Bind gives a session a connection. TTL and Linger are in nanoseconds, Reports what the session may still write.
type Bind struct {
	Session uint64   `json:"s"`
	Epoch   uint64   `json:"epoch"`
	TTL     int64    `json:"ttl"`
	Linger  int64    `json:"linger,omitempty"`
	Reports []Stamps `json:"reports,omitempty"`
}

// Reply is the answer to a SessionRequest: that the session is alive, and has Holds, or that it is not. High of Frontiers are those of groups, Bound is the largest stamp that the session may
// make itself.
type Reply struct {
	Alive     bool      `json:"alive,omitempty"`
	Session   uint64    `json:"s,omitempty"`
	Holds     []Hold    `json:"holds,omitempty"`
	Frontiers []Stamps  `json:"frontiers,omitempty"`
	Bound     Timestamp `json:"bound,omitzero"`
}

// sessions are those of a leader's term. What a request gives up or decides counts when it comes, all else once the answer shows that it had an effect. So the leader may know of more stamps that
// may still be written than these, but not of fewer.
type sessions struct {
	// ran is for how long the leader has run, as of its tick at tickedAt.
	openedAt, tickedAt, ran int64
	all                     map[uint64]*session
	conns                   map[uint64]*binding
	ended                   []*session // those for which over is not known yet
	waiters                 map[string]map[uint64]*waiter
	released                map[Timestamp]uint64 // the step in which the release of a token was asked for, for ever if that is not sure
	groups                  map[string]*group
	earlier, last           Timestamp // the largest stamps of earlier terms, and that anybody may have
}

type session struct {
	conn, epoch uint64 // epoch is that of the next connection at least
	ttl, linger int64
	binds       *request // the latest one
	// heard is when the latest request came whose answer says that it is alive, gone when its connection ended; in the time that the leader ran.
	heard, gone int64
	// closed and broken: its end was asked for, by an operator if it is broken. ends is the step in which it was condemned, over a timestamp that was issued later.
	closed, broken bool
	ends           uint64
	over           Timestamp
}

// binding is a connection of a session, until the step in which it has ended.
type binding struct{ session, ended uint64 }

// A leader that has not ticked for more than pauseTicks did not run.
const pauseTicks = 3

// outlast returns for how long, by the leader's clock, d may last by that of a client.
func outlast(d int64) int64 { return d * (100 + rateErrorPercent) / (100 - rateErrorPercent) }

// openSessions begins the sessions of a term, with those of all holds.
func (n *node) openSessions(l *leading) {
	t := &sessions{
		openedAt: n.at, tickedAt: n.at, all: map[uint64]*session{}, conns: map[uint64]*binding{}, waiters: map[string]map[uint64]*waiter{}, released: map[Timestamp]uint64{},
		groups: map[string]*group{}, earlier: below(l.floor), last: below(l.floor),
	}
	for _, h := range n.holds {
		t.all[h.Session] = &session{ttl: h.TTL, linger: h.TTL}
	}
	l.sessions = t
}

// sessions returns those of the node, which leads or has led when the step began. They are required.
func (s *Spec) sessions(n *node) *sessions {
	for _, l := range []*leading{n.leading, n.leadingBefore} {
		if l != nil && l.sessions != nil {
			return l.sessions
		}
	}
	s.require("opening", false, "it has no sessions, as it does not issue timestamps of its term")
	return nil
}

// stepSessions checks an event of a leader about sessions.
func (s *Spec) stepSessions(n *node, e Event) {
	t := s.sessions(n)
	switch {
	case t == nil:
	case e.Kind == Session:
		s.sessionRequest(n, t, e)
	case e.Kind == Gone:
		t.gone(n, e.Conn)
	case e.Kind == Frontier:
		s.frontier(t, *e.Stamps)
	default:
		s.tell(n, t, e)
	}
}

func (t *sessions) tick(n *node) {
	if gap := n.at - t.tickedAt; gap <= pauseTicks*n.tick {
		t.ran += gap
	}
	t.tickedAt = n.at
}

// now returns for how long the leader has run, at most.
func (t *sessions) now(n *node) int64 { return t.ran + min(n.at-t.tickedAt, pauseTicks*n.tick) }

// mayEnd reports whether no client believes in a session any more.
func (t *sessions) mayEnd(n *node, x *session) bool {
	now := t.now(n)
	return x == nil || x.closed || now-x.heard >= outlast(x.ttl) || x.conn == 0 && now-x.gone >= outlast(x.linger)
}

// sessionRequest notes what a request says.
func (s *Spec) sessionRequest(n *node, t *sessions, e Event) {
	q, r := n.requests[e.Token], e.Session
	if q == nil {
		return
	}
	q.session, q.heard = r, t.now(n)
	if r.Bind != nil {
		t.bind(n, q)
	}
	if q.refused != "" {
		return
	}
	if x := t.all[r.End]; x != nil {
		x.closed = true
	}
	if r.Lock != nil && r.Lock.Op == LockBreak {
		if h := n.holds[r.Lock.Name]; h.Token == r.Lock.Token && t.all[h.Session] != nil {
			q.breaks, t.all[h.Session].broken = h.Session, true
		}
	}
	if b := t.conns[r.Conn]; b != nil && b.ended == 0 {
		t.all[b.session].closed = t.all[b.session].closed || r.Close
		q.doubts = t.decide(b.session, r)
		if r.Lock != nil {
			t.lock(n, b.session, q)
		}
	}
}

// bind notes a request to bind, unless it has to be refused.
func (t *sessions) bind(n *node, q *request) {
	r, b := q.session, q.session.Bind
	x := t.all[b.Session]
	if x == nil || x.ends != 0 && !n.isHolder(b.Session) {
		x = &session{}
		t.all[b.Session] = x
	}
	switch {
	case x.ends != 0:
		q.refused = "end"
	case t.mayEnd(n, x): // another one with its ID may begin
	case b.TTL != x.ttl:
		q.refused = "ttl"
	case x.conn != r.Conn && b.Epoch < x.epoch:
		q.refused = "connection"
	}
	if q.refused != "" {
		return
	}
	if x.conn != r.Conn {
		if old := t.conns[x.conn]; old != nil && !r.Refused {
			old.ended = n.steps
		}
		if x.conn != 0 {
			x.conn, x.gone = 0, t.now(n)
		}
		t.leave(b.Session)
	}
	x.binds, x.linger = q, min(x.linger, b.Linger) // a hold does not say the LINGER
	if on := t.conns[r.Conn]; on == nil || on.ended != 0 || on.session != b.Session && !r.Refused {
		t.conns[r.Conn] = &binding{session: b.Session}
	}
	t.report(b)
}

// answerSession checks the answer to a request about a session.
func (s *Spec) answerSession(n *node, l *leading, q *request, e Event) {
	t, r := l.sessions, q.session
	s.require("opening", r != nil, "the request has not taken effect")
	if r == nil {
		return
	}
	ends := (r.Close || r.End != 0) && !e.Reply.Alive
	s.require("round", ends || s.mayAnswer(n, l, q), "no quorum has confirmed a round that began since the request came")
	switch {
	case ends:
		t.condemn(n, r.End)
	case e.Reply.Alive && q.breaks != 0:
		t.condemn(n, q.breaks)
	case e.Reply.Alive && (r.Lock == nil || r.Lock.Op != LockBreak):
		s.alive(n, t, q, e)
	}
}

// alive checks an answer by which a session is alive.
func (s *Spec) alive(n *node, t *sessions, q *request, e Event) {
	r, b := q.session, t.conns[q.session.Conn]
	s.require(q.refused, q.refused == "", "the session must not be bound")
	ok := b != nil && b.session == e.Reply.Session && (b.ended == 0 || b.ended == n.steps)
	s.require("connection", ok, "the session %x is told to be alive over the connection %d, which is not its own", e.Reply.Session, r.Conn)
	if !ok {
		return
	}
	x := t.all[b.session]
	x.heard = max(x.heard, q.heard)
	if r.Bind != nil && x.binds == q {
		x.conn, x.epoch, x.ttl, x.linger = r.Conn, r.Bind.Epoch+1, r.Bind.TTL, r.Bind.Linger
		for _, g := range t.groups {
			if y := g.entries[b.session]; y != nil {
				y.counts = true
			}
		}
	}
	for _, h := range e.Reply.Holds {
		s.tellHold(n, t, b.session, h)
	}
	for _, d := range q.doubts {
		t.group(d.Group).dig(Stamps{Low: d.Low, High: d.Low})
	}
	if r.Group != "" && len(e.Ranges) > 0 {
		s.take(n, t, b.session, r.Conn, r.Group, e)
	}
	for _, f := range e.Reply.Frontiers {
		s.frontier(t, f)
	}
}

// condemn notes that a session is being ended.
func (t *sessions) condemn(n *node, id uint64) {
	x := t.all[id]
	if x == nil || x.ends != 0 {
		return
	}
	x.ends = n.steps
	t.ended = append(t.ended, x)
	if b := t.conns[x.conn]; b != nil {
		b.ended = n.steps
	}
	t.leave(id)
	for _, g := range t.groups {
		g.abandon(id)
	}
}

// issued notes a timestamp that is issued in this step.
func (t *sessions) issued(n *node, at Timestamp) {
	for len(t.ended) > 0 && t.ended[0].ends < n.steps {
		t.ended[0].over = at
		t.ended = t.ended[1:]
	}
}

// gone notes that a connection has ended.
func (t *sessions) gone(n *node, conn uint64) {
	if b := t.conns[conn]; b != nil {
		if x := t.all[b.session]; x.conn == conn {
			x.conn, x.gone = 0, t.now(n)
		}
		t.leave(b.session)
	}
	delete(t.conns, conn)
}

// tell checks what the client of a connection is told.
func (s *Spec) tell(n *node, t *sessions, e Event) {
	b := t.conns[e.Conn]
	s.require("connection", b != nil && (b.ended == 0 || b.ended == n.steps || e.Kind == TellExpired), "the connection %d is not that of a session", e.Conn)
	if b == nil {
		return
	}
	switch x := t.all[b.session]; e.Kind {
	case TellExpired:
		s.require("end", x.broken || t.mayEnd(n, x), "the session %x has not been silent for long, and did not ask to end", b.session)
		if b.ended == 0 {
			b.ended = n.steps
		}
		t.condemn(n, b.session)
	case TellHeld:
		s.tellHold(n, t, b.session, *e.Hold)
	case TellFree:
		h := n.holds[e.Hold.Name]
		s.require("release", h.Session != b.session || h.Token != e.Hold.Token, "the lock %q is held under the token %v", h.Name, h.Token)
	case AskSeal:
		s.seal(n, t, *e.Stamps)
	case TellFenced:
		s.fenced(n, t, b.session, *e.Stamps)
	}
}
