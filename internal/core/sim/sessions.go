package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/frontier"
	"github.com/isotone/isotone/internal/core/session"
)

// Sessions: users who bind, keep their sessions alive, hold locks and write into stores with a fence; see locker.go and writer.go. A user
// has a steady clock with a wrong rate, is paused at times, and dies. Its connections break, are stuck, and are noticed late on either side. They have a source
// of randomness of their own.

// sessionRuns is one in how many runs has sessions.
const sessionRuns = 3

// sessionState is the part of the world that has to do with sessions.
type sessionState struct {
	rng    *rand.Rand
	used   bool
	names  []string // of locks
	groups []string
	users  []*sessionUser
	conns  map[session.Conn]*sessionConn
	last   session.Conn
	store  store
	// exclusive is set if LINGER is not below TTL: so no two sessions believe in one lock.
	exclusive bool
	// frontiers is what the leader of each term has told last.
	frontiers map[sessionTerm]isotone.Timestamp
	// since the last fault
	bound   map[*sessionUser]bool
	granted map[string]bool
	reached map[string]isotone.Timestamp
}

// sessionTerm is a group in a term.
type sessionTerm struct {
	group         string
	node          *node
	process, term uint64
}

// sessionUser is a process of a client.
type sessionUser struct {
	number      int
	id          session.ID
	epoch       uint32
	ttl, linger time.Duration
	rate        float64
	resumes     time.Duration
	dead        bool
	conn        *sessionConn
	target      *node
	// valid is until when it may believe in its locks, sent when it asked last, by its clock.
	valid, sent time.Duration
	locks       []*userLock
	writes      []*userGroup
	// sealed are seals that it has carried out and not told of.
	sealed []session.GroupStamp
}

// sessionConn is a connection of a user to a process.
type sessionConn struct {
	id      session.Conn
	user    *sessionUser
	node    *node
	process uint64
	// bound is set once a BIND over it was answered, binding while one is on its way.
	bound, binding bool
	// broken: nothing arrives any more, in either direction.
	broken bool
	// upAt and downAt are when the latest message arrives. stuck is until when nothing arrives.
	upAt, downAt, stuck time.Duration
	// inbox is what has come and waits for a user that is paused.
	inbox []func()
}

// sessionCall is a request on its way.
type sessionCall struct {
	conn *sessionConn
	q    *session.Request
	sent time.Duration // by the user's clock
}

func (k *sessionCall) request() *session.Request {
	if k == nil {
		return nil
	}
	return k.q
}

func newSessionState(seed uint64) sessionState {
	s := sessionState{rng: rand.New(rand.NewPCG(seed, 0x5e551)), conns: map[session.Conn]*sessionConn{}, frontiers: map[sessionTerm]isotone.Timestamp{}}
	s.used = s.rng.IntN(sessionRuns) == 0
	s.names = []string{"shop/nightly", "x"}[:1+s.rng.IntN(2)]
	s.groups = []string{"orders", "g"}[:1+s.rng.IntN(2)]
	s.exclusive = s.rng.IntN(4) > 0
	s.store = newStore()
	s.forget()
	return s
}

// forget begins to count anew who was served since the last fault.
func (s *sessionState) forget() {
	s.bound, s.granted, s.reached = map[*sessionUser]bool{}, map[string]bool{}, map[string]isotone.Timestamp{}
}

// runSessions starts the users.
func (w *world) runSessions() {
	if !w.sessions.used {
		return
	}
	for range 2 + w.sessions.rng.IntN(4) {
		w.joinSession()
	}
}

// joinSession starts a user.
func (w *world) joinSession() {
	s := &w.sessions
	u := &sessionUser{number: len(s.users), rate: 1 + clockDriftMax*(2*s.rng.Float64()-1)}
	if s.rng.IntN(2) == 0 {
		u.rate = 1 - clockDriftMax
	}
	u.ttl = (time.Duration(10+s.rng.IntN(30))*w.cfg.tick + session.TTLMin).Truncate(time.Millisecond)
	u.linger = u.ttl
	if !s.exclusive {
		u.linger = time.Duration(s.rng.IntN(4)) * w.cfg.tick
	}
	s.users = append(s.users, u)
	w.renewSession(u)
	w.runSession(u)
}

// renewSession gives a user another session. What it held, and might still write, belongs to the former one.
func (w *world) renewSession(u *sessionUser) {
	s := &w.sessions
	u.id, u.epoch, u.valid, u.locks, u.writes, u.sealed = session.ID(s.rng.Uint64()|1), 0, 0, nil, nil, nil
	for _, name := range s.names {
		u.locks = append(u.locks, &userLock{name: name})
	}
	for _, group := range s.groups {
		if s.rng.IntN(4) > 0 {
			u.writes = append(u.writes, &userGroup{name: group})
		}
	}
}

// clock is the steady clock of a user.
func (w *world) clock(u *sessionUser) time.Duration {
	return time.Duration(float64(w.now)*u.rate) + time.Second
}

// runSession has a user do something now and then.
func (w *world) runSession(u *sessionUser) {
	rng := w.sessions.rng
	w.after(time.Duration(1+rng.Int64N(int64(3*w.cfg.tick))), func() {
		if u.dead || w.closing {
			return
		}
		if w.now >= u.resumes {
			w.actSession(u)
		}
		w.runSession(u)
	})
}

func (w *world) actSession(u *sessionUser) {
	rng := w.sessions.rng
	c := u.conn
	switch {
	case c == nil:
		w.bindSession(u)
	case !w.quiet && rng.IntN(150) == 0:
		w.trace("user %d dies", u.number)
		u.dead = true
		w.breakConn(c)
		w.joinSession()
	case !w.quiet && rng.IntN(60) == 0:
		u.resumes = w.now + time.Duration(rng.Int64N(int64(60*w.cfg.tick)))
		w.trace("user %d is paused for %v", u.number, u.resumes-w.now)
	case !w.quiet && rng.IntN(60) == 0:
		w.trace("the connection of user %d breaks", u.number)
		w.breakConn(c)
	case !w.quiet && rng.IntN(60) == 0:
		c.stuck = w.now + time.Duration(rng.Int64N(int64(40*w.cfg.tick)))
	case c.binding && w.clock(u)-u.sent > u.ttl: // no answer
		w.breakConn(c)
	case !c.bound:
	case w.clock(u)-u.sent > u.ttl*3: // nothing comes back
		w.breakConn(c)
	case rng.IntN(3) == 0 || len(u.sealed) > 0:
		w.say(u, &session.Request{}, nil, false)
	case rng.IntN(2) == 0:
		w.useLock(u, u.locks[rng.IntN(len(u.locks))])
	case len(u.writes) > 0:
		w.useGroup(u, u.writes[rng.IntN(len(u.writes))])
	}
}

// bindSession connects a user to the node that it takes for the leader.
func (w *world) bindSession(u *sessionUser) {
	s := &w.sessions
	if u.target == nil || s.rng.IntN(20) == 0 {
		u.target = w.nodes[s.rng.IntN(len(w.nodes))]
		if l := w.leader(); l != nil && s.rng.IntN(2) == 0 {
			u.target = l
		}
	}
	n := u.target
	if !n.up() {
		u.target = nil
		return
	}
	s.last++
	u.conn = &sessionConn{id: s.last, user: u, node: n, process: n.session, binding: true}
	s.conns[s.last] = u.conn
	u.epoch++
	b := &session.Bind{ID: u.id, Epoch: u.epoch, TTL: u.ttl, Linger: u.linger}
	for _, g := range u.writes {
		b.Reports = append(b.Reports, g.report())
	}
	w.say(u, &session.Request{Bind: b}, nil, false)
}

// report is what may still be written.
func (g *userGroup) report() frontier.Report {
	g.taking = false
	if len(g.open) == 0 {
		return frontier.Report{Group: g.name, Low: isotone.Timestamp{Index: 1}}
	}
	return frontier.Report{Group: g.name, Low: slices.MinFunc(g.open, isotone.Timestamp.Compare), High: g.high}
}

// say sends a request over the connection of a user, with what it has decided and doubts.
func (w *world) say(u *sessionUser, q *session.Request, counts []uint64, u64 bool) {
	c := u.conn
	q.Conn = c.id
	for _, g := range u.writes {
		if q.Bind == nil {
			q.Lows = append(q.Lows, session.GroupStamp{Group: g.name, Stamp: g.low()})
		}
		for _, d := range g.doubts {
			q.Doubts = append(q.Doubts, session.GroupStamp{Group: g.name, Stamp: d})
		}
	}
	q.Sealed, u.sealed = u.sealed, nil
	u.sent = w.clock(u)
	if q.Bind != nil {
		w.trace("user %d binds session %x, epoch %d, with node %d: %v", u.number, u.id, u.epoch, c.node.id, q.Bind.Reports)
	}
	k := &call{session: &sessionCall{c, q, u.sent}, counts: counts, ranges: make([]isotone.Range, len(counts)), u64: u64}
	c.upAt = max(c.upAt, w.now+w.sessionTransit(c))
	w.after(c.upAt-w.now, func() {
		if n := c.node; !c.broken && n.up() && n.session == c.process {
			w.arrive(n, k)
		}
	})
}

func (w *world) sessionTransit(c *sessionConn) time.Duration {
	rng := w.sessions.rng
	d := 20*time.Microsecond + time.Duration(rng.Int64N(int64(time.Millisecond)))
	if rng.IntN(50) == 0 {
		d += time.Duration(rng.Int64N(int64(10 * w.cfg.tick)))
	}
	return max(d, c.stuck-w.now)
}

// deliver has something arrive at a user, in the order of the connection.
func (w *world) deliver(c *sessionConn, do func()) {
	c.downAt = max(c.downAt, w.now+w.sessionTransit(c))
	w.after(c.downAt-w.now, func() {
		if c.broken {
			return
		}
		c.inbox = append(c.inbox, do)
		w.readInbox(c)
	})
}

// readInbox has a user read what has come, once it is not paused.
func (w *world) readInbox(c *sessionConn) {
	u := c.user
	if len(c.inbox) > 0 && w.now < u.resumes {
		w.after(u.resumes-w.now, func() { w.readInbox(c) })
		return
	}
	for len(c.inbox) > 0 && u.conn == c && !u.dead {
		do := c.inbox[0]
		c.inbox = c.inbox[1:]
		do()
	}
}

// breakConn ends a connection. The process may notice that late.
func (w *world) breakConn(c *sessionConn) {
	if c.user.conn == c {
		c.user.conn = nil
	}
	if c.broken {
		return
	}
	c.broken = true
	rng := w.sessions.rng
	late := time.Duration(rng.Int64N(int64(w.cfg.tick)))
	if rng.IntN(3) == 0 {
		late *= 40
	}
	w.after(max(late, c.upAt-w.now), func() {
		delete(w.sessions.conns, c.id)
		if c.node.up() && c.node.session == c.process {
			c.node.in.sessionsGone = append(c.node.in.sessionsGone, c.id)
			w.wake(c.node)
		}
	})
}

// breakSessions ends the connections of a process that has died. Users notice that sooner or later.
func (w *world) breakSessions(n *node) {
	for _, u := range w.sessions.users {
		if c := u.conn; c != nil && c.node == n {
			w.after(time.Duration(w.sessions.rng.Int64N(int64(4*w.cfg.tick))), func() { w.breakConn(c) })
		}
	}
}

// answerSession sends an answer back.
func (w *world) answerSession(k *call, err *isotone.Error) {
	w.deliver(k.session.conn, func() { w.finishSession(k, err) })
	if err == nil {
		for _, r := range k.ranges {
			w.note('b', r.First.Time, r.First.Index, r.Count)
		}
	}
}

// finishSession handles an answer.
func (w *world) finishSession(k *call, err *isotone.Error) {
	c, q := k.session.conn, k.session.q
	u := c.user
	if q.Group != "" {
		u.group(q.Group).taking = false
	}
	if err != nil {
		if err.Code != isotone.CodeOverloaded && err.Code != isotone.CodeInvalidArgument || q.Bind != nil {
			u.target = nil
			for _, n := range w.nodes {
				if err.Leader != "" && w.clientAddr(n) == err.Leader {
					u.target = n
				}
			}
			w.breakConn(c)
		}
		return
	}
	switch q.Reply.Outcome {
	case session.Expired:
		w.expireSession(u)
	case session.Unbound:
		w.breakConn(c)
	case session.Alive:
		w.stats.SessionAnswers++
		w.sessions.bound[u] = true
		if q.Bind != nil {
			c.bound, c.binding = true, false
			w.reconcile(u, q.Reply.Holds)
		}
		u.valid = max(u.valid, k.session.sent+u.ttl)
		w.checkBelief(u)
		for _, d := range q.Doubts {
			u.group(d.Group).decide(d.Stamp)
		}
		if q.Group != "" {
			w.takeStamps(u, k)
		}
		if q.Lock != nil && len(q.Reply.Holds) > 0 {
			w.granted(u, q.Lock.Name, q.Reply.Holds[0].Token)
		}
	case session.Locked:
		w.lock(u, q.Lock.Name).wants = false
	default:
		w.fail("a request of a session has the outcome %d", q.Reply.Outcome)
	}
}

// expireSession has a user give its session up, and begin another.
func (w *world) expireSession(u *sessionUser) {
	w.trace("the session of user %d has ended", u.number)
	w.stats.SessionsExpired++
	if u.conn != nil {
		w.breakConn(u.conn)
	}
	w.renewSession(u)
}

// tellSession sends a message of a leader to a user.
func (w *world) tellSession(m session.Message) {
	c := w.sessions.conns[m.Conn]
	if c == nil {
		return
	}
	w.deliver(c, func() {
		u := c.user
		if !c.bound { // the answer to its BIND will show as much
			return
		}
		switch m.Kind {
		case session.MessageSeal:
			w.seal(u, m.Group, m.Through)
		case session.MessageFenced:
			if g := u.group(m.Group); g != nil {
				g.open = slices.DeleteFunc(g.open, func(t isotone.Timestamp) bool { return !t.Before(m.Low) && !m.Through.Before(t) })
			}
		case session.MessageExpired:
			w.expireSession(u)
		case session.MessageSuperseded:
			w.breakConn(c)
		case session.MessageQueued:
			w.lock(u, m.Name).ticket = m.Ticket
		case session.MessageGranted:
			w.granted(u, m.Name, m.Token)
		case session.MessageReleased:
			w.released(u, m.Name, m.Token)
		}
	})
}

// silentSession returns what does not go on of sessions since the last fault, or "".
func (w *world) silentSession() string {
	s := &w.sessions
	l := w.leader()
	if !s.used || l == nil {
		return ""
	}
	for _, u := range s.users {
		if !u.dead && !s.bound[u] {
			return "no answer for the session of a user"
		}
	}
	if w.loss.restored == 0 {
		for _, name := range s.names {
			if !s.granted[name] {
				return "no grant of the lock " + name
			}
		}
	}
	for _, group := range s.groups {
		if !w.hasWriter(group) {
			continue
		}
		if from, ok := s.reached[group]; !ok {
			s.reached[group] = l.replica.Upcoming()
		} else if s.store.told[group].Before(from) {
			return "the frontier stands, of the group " + group
		}
	}
	return ""
}

func (w *world) hasWriter(group string) bool {
	return slices.ContainsFunc(w.sessions.users, func(u *sessionUser) bool { return !u.dead && u.group(group) != nil })
}
