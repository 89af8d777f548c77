package sim

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/isotone/isotone"
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
	stores stores
	quota  quotaState
	http   httpState
	// exclusive is set if LINGER is not below TTL: so no two sessions believe in one lock.
	exclusive bool
	redis     redisState
	// innocents is set if every other user has no fault of its own. Its session must not end.
	innocents bool
	// frontiers is what the leader of each term has told last.
	frontiers map[sessionTerm]isotone.Timestamp
	// since the last fault
	bound   map[*sessionUser]bool
	granted map[string]bool
	freed   map[string]bool
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
	client      *session.Client
	ttl, linger time.Duration
	rate        float64
	// innocent has no fault of its own: it is neither paused nor dies, its connections work as long as the nodes do, and what is sent over them takes at most an eighth of its TTL. So an
	// answer comes before it takes the leader for silent.
	innocent bool
	resumes  time.Duration
	dead     bool
	// leaving is set if it closes its session, after which its process begins anew. layouts are the stores of groups as it knows them.
	leaving bool
	layouts map[string]layout
	quota   userQuota
	// asked are the processes that were to bind its session, and former those that were to bind an earlier one. closedBy is who led when such a session ended.
	asked, former map[uint64]bool
	closedBy      leading
	conn          *sessionConn
	target        *node
	// window is how many requests it has under way at most.
	window int
	// wants are locks that it wants or has, writes its groups.
	wants  map[string]bool
	writes []*userGroup
}

// sessionConn is a connection of a user to a process.
type sessionConn struct {
	id      session.Conn
	user    *sessionUser
	node    *node
	process uint64
	// under is how many requests are under way.
	under int
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
	*session.Call
	// done, if not nil, takes the answer: the request comes from the process itself.
	done func(error)
}

func (k *sessionCall) request() *session.Request {
	if k == nil {
		return nil
	}
	return &k.Request
}

func newSessionState(seed uint64) sessionState {
	s := sessionState{rng: rand.New(rand.NewPCG(seed, 0x5e551)), conns: map[session.Conn]*sessionConn{}, frontiers: map[sessionTerm]isotone.Timestamp{}}
	s.used = s.rng.IntN(sessionRuns) == 0
	s.names = []string{"shop/nightly", "x"}[:1+s.rng.IntN(2)]
	s.groups = []string{"orders", "g"}[:1+s.rng.IntN(2)]
	s.exclusive = s.rng.IntN(4) > 0
	s.stores, s.innocents = newStores(seed, s.groups), s.rng.IntN(5) < 2
	s.quota = newQuotaState(seed)
	if s.redis.used = s.used && s.rng.IntN(2) == 0; s.redis.used {
		s.redis.names = []string{"redis", s.names[0]}[:1+s.rng.IntN(2)]
	}
	s.http = newHTTPState(seed)
	s.forget()
	return s
}

// forget begins to count anew who was served since the last fault.
func (s *sessionState) forget() {
	s.redis.taken = map[string]bool{}
	s.bound, s.granted, s.freed, s.reached = map[*sessionUser]bool{}, map[string]bool{}, map[string]bool{}, map[string]isotone.Timestamp{}
	s.http.forget()
}

// runSessions starts the users.
func (w *world) runSessions() {
	if !w.sessions.used {
		return
	}
	for range 2 + w.sessions.rng.IntN(4) {
		w.joinSession()
	}
	if w.sessions.rng.IntN(2) == 0 {
		w.breakLocks()
	}
	w.runRedis()
	w.runHTTPUsers()
	w.runStores()
	w.changeQuota()
}

// joinSession starts a user.
func (w *world) joinSession() {
	s := &w.sessions
	u := &sessionUser{number: len(s.users), rate: 1 + clockDriftMax*(2*s.rng.Float64()-1), asked: map[uint64]bool{}, former: map[uint64]bool{}}
	if s.rng.IntN(2) == 0 {
		u.rate = 1 - clockDriftMax
	}
	u.ttl = (time.Duration(10+s.rng.IntN(30))*w.cfg.tick + session.TTLMin).Truncate(time.Millisecond)
	u.linger = u.ttl
	if !s.exclusive {
		u.linger = time.Duration(s.rng.IntN(4)) * w.cfg.tick
	}
	u.window = 1 + s.rng.IntN(3)
	u.innocent = s.innocents && s.exclusive && u.number%2 == 0 // with a short LINGER, a leader that is silent for long may cost a session
	s.users = append(s.users, u)
	w.startProcess(u)
	w.renewSession(u)
	w.runSession(u)
}

// renewSession gives a user another session. What it held, and might still write, belongs to the former one.
func (w *world) renewSession(u *sessionUser) {
	s := &w.sessions
	u.wants, u.writes, u.quota = map[string]bool{}, nil, userQuota{}
	maps.Copy(u.former, u.asked)
	clear(u.asked)
	var groups []string
	for _, group := range s.groups {
		if s.rng.IntN(4) > 0 {
			groups = append(groups, group)
			u.writes = append(u.writes, &userGroup{name: group})
		}
	}
	u.id = session.ID(s.rng.Uint64() | 1)
	u.client = session.NewClient(u.id, u.ttl, u.linger, groups...)
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
	harm := !w.quiet && !u.innocent
	if draw := w.sessions.stores.rng.IntN(400); !u.leaving && (draw == 0 || draw < 10 && w.isBehind(u)) {
		u.leaving = true
		u.client.Close()
		w.sessionEvents(u, session.Message{})
	}
	switch {
	case c == nil:
		w.connectSession(u)
	case harm && rng.IntN(150) == 0:
		w.trace("user %d dies", u.number)
		u.dead = true
		w.breakConn(c)
		w.joinSession()
	case harm && rng.IntN(60) == 0:
		u.resumes = w.now + time.Duration(rng.Int64N(int64(60*w.cfg.tick)))
		w.trace("user %d is paused for %v", u.number, u.resumes-w.now)
	case harm && rng.IntN(60) == 0:
		w.trace("the connection of user %d breaks", u.number)
		w.breakConn(c)
	case harm && rng.IntN(60) == 0:
		c.stuck = w.now + time.Duration(rng.Int64N(int64(40*w.cfg.tick)))
	case u.client.IsSilent(w.clock(u)):
		w.breakConn(c)
	case rng.IntN(2) == 0:
		w.useLock(u, w.sessions.names[rng.IntN(len(w.sessions.names))])
	case len(u.writes) > 0:
		w.useGroup(u, u.writes[rng.IntN(len(u.writes))])
	}
	w.pumpSession(u)
}

// connectSession connects a user to the node that it takes for the leader.
func (w *world) connectSession(u *sessionUser) {
	s := &w.sessions
	if u.target == nil || s.rng.IntN(20) == 0 || u.innocent {
		u.target = w.nodes[s.rng.IntN(len(w.nodes))]
		if l := w.leader(); l != nil && (u.innocent || s.rng.IntN(2) == 0) {
			u.target = l
		}
	}
	n := u.target
	if !n.up() {
		u.target = nil
		return
	}
	s.last++
	u.conn = &sessionConn{id: s.last, user: u, node: n, process: n.session}
	s.conns[s.last] = u.conn
	u.client.Connected()
}

// pumpSession sends what a user has to say.
func (w *world) pumpSession(u *sessionUser) {
	for u.conn != nil && u.conn.under < u.window && !u.dead {
		k := u.client.Next(w.clock(u))
		if k == nil {
			return
		}
		w.say(u.conn, k)
	}
}

// say sends a request over a connection.
func (w *world) say(c *sessionConn, k *session.Call) {
	k.Conn = c.id
	c.under++
	if k.Bind != nil {
		w.limit(c.user, k.Bind)
		w.trace("user %d binds session %x, epoch %d, with node %d: %v", c.user.number, k.Bind.ID, k.Bind.Epoch, c.node.id, k.Bind.Reports)
	}
	var counts []uint64
	if k.Count > 0 {
		counts = []uint64{k.Count}
	}
	sent := &call{session: &sessionCall{conn: c, Call: k}, counts: counts, ranges: make([]isotone.Range, len(counts)), u64: k.U64}
	c.upAt = max(c.upAt, w.now+w.sessionTransit(c))
	w.after(c.upAt-w.now, func() {
		if n := c.node; !c.broken && n.up() && n.session == c.process {
			w.arrive(n, sent)
		}
	})
}

func (w *world) sessionTransit(c *sessionConn) time.Duration {
	rng := w.sessions.rng
	d := 20*time.Microsecond + time.Duration(rng.Int64N(int64(time.Millisecond)))
	if rng.IntN(50) == 0 {
		d += time.Duration(rng.Int64N(int64(10 * w.cfg.tick)))
	}
	if c.user.innocent {
		d = min(d, c.user.ttl/8)
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
		c.user.client.Disconnected()
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
	if k.session.done != nil {
		if err != nil {
			k.session.done(err)
		} else {
			k.session.done(k.session.Refusal())
		}
		return
	}
	if k.session.conn == nil { // of an operator
		return
	}
	w.deliver(k.session.conn, func() { w.finishSession(k, err) })
	if err != nil {
		w.checkRefusal(k.session, err)
	} else {
		w.noteClosed(k.session)
		if k.session.Bind != nil {
			w.noteBind(k.session)
		}
		for _, r := range k.ranges {
			w.note('b', r.First.Time, r.First.Index, r.Count)
		}
	}
}

// finishSession handles an answer.
func (w *world) finishSession(k *call, err *isotone.Error) {
	c := k.session.conn
	u := c.user
	c.under--
	if k.session.Err = err; err == nil {
		if len(k.ranges) > 0 {
			k.session.Range = k.ranges[0]
		}
		if k.session.Reply.Outcome == session.Alive {
			w.stats.SessionAnswers++
			w.sessions.bound[u] = true
		}
	}
	u.client.Answered(k.session.Call, w.clock(u))
	w.sessionEvents(u, session.Message{})
	if w.sessions.rng.IntN(4) > 0 {
		w.pumpSession(u)
	}
}

// tellSession sends a message of a leader to a user.
func (w *world) tellSession(n *node, m session.Message) {
	if n.keeper != nil && m.Conn == n.keeperConn {
		n.keeper.Told(m)
		return
	}
	c := w.sessions.conns[m.Conn]
	if c == nil {
		w.tellVirtual(m)
		return
	}
	w.deliver(c, func() {
		c.user.client.Told(m)
		w.sessionEvents(c.user, m)
		if w.sessions.rng.IntN(4) > 0 {
			w.pumpSession(c.user)
		}
	})
}

// sessionEvents handles what has happened to a user, after a message or an answer.
func (w *world) sessionEvents(u *sessionUser, m session.Message) {
	for _, e := range u.client.Events() {
		switch e.Kind {
		case session.EventGranted:
			w.granted(u, e.Name, e.Token)
		case session.EventLocked, session.EventRefused:
			delete(u.wants, e.Name)
		case session.EventLost:
			delete(u.wants, e.Name)
			if m.Kind == session.MessageGranted || m.Kind == session.MessageReleased {
				w.fail("R7: user %d did not release the lock %q with the token %v", u.number, e.Name, e.Token)
			}
		case session.EventReleased:
			w.sessions.freed[e.Name] = true
		case session.EventStamps:
			w.useStamps(u, e)
		case session.EventSeal:
			w.seal(u, e.Group, e.Through)
		case session.EventDisconnect:
			w.redirectSession(u, e.Err)
		case session.EventEnded:
			w.endSession(u, e.Err)
		}
	}
	w.checkBelief(u)
	w.checkLockQuota(u)
}

// redirectSession has a user connect again, to the node that an error names.
func (w *world) redirectSession(u *sessionUser, err *isotone.Error) {
	u.target = nil
	for _, n := range w.nodes {
		if err.Leader != "" && w.clientAddr(n) == err.Leader {
			u.target = n
		}
	}
	if u.conn != nil {
		w.breakConn(u.conn)
	}
}

// endSession has a user begin another session.
func (w *world) endSession(u *sessionUser, err *isotone.Error) {
	w.trace("the session of user %d has ended: %v", u.number, err)
	w.stats.SessionsExpired++
	if u.innocent && !w.closing && !u.leaving {
		w.fail("R4: the session of user %d has ended, which did nothing wrong: %v", u.number, err)
	}
	if u.conn != nil {
		w.breakConn(u.conn)
	}
	if u.leaving {
		w.startProcess(u)
	}
	w.renewSession(u)
}

func (w *world) hasWriter(group string) bool {
	return slices.ContainsFunc(w.sessions.users, func(u *sessionUser) bool { return !u.dead && u.group(group) != nil })
}
