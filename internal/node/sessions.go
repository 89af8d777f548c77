package node

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/redislock"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/session"
	"github.com/isotone/isotone/internal/front"
)

// Sessions of clients, as the fronts in each loop see them; see front.Sessions. From another loop than the core's, everything is posted there and back, so it keeps its order.

const (
	// sessionConnsMax bounds the connections that have, or are to have, a session.
	sessionConnsMax = session.Max
	// watchesMax bounds the watches that wait, and holdersMax the locks of one answer.
	watchesMax, holdersMax = 4096, 1000
	// blockersMax bounds what one answer says of what keeps a frontier from going on.
	blockersMax = 100
	// watchInterval is the shortest time between two looks at a watch that waits.
	watchInterval = time.Millisecond
)

var (
	errSessionConns = isotone.Errorf(isotone.CodeOverloaded, "this node has %d connections for sessions, which is the most", sessionConnsMax)
	errWatches      = isotone.Errorf(isotone.CodeOverloaded, "too many requests wait for a frontier or for a lock")
)

// sessions are the connections for sessions, and the watches. They belong to the core loop's goroutine.
type sessions struct {
	tells map[session.Conn]func(session.Message)
	// accounts are those for which the sessions of connections count.
	accounts map[session.Conn]*access.Account
	watches  []watch
	// seen is how many of the watches were looked at before, looked when that was. skipped is set if the latest step may have changed something for them.
	seen    int
	looked  time.Duration
	skipped bool
}

// watch is a watch that waits until, by the loop's clock.
type watch struct {
	*front.SessionWatch
	until time.Duration
}

// openSession notes a connection. Beyond the bound its requests are refused.
func (c *core) openSession(conn session.Conn, tell func(session.Message)) {
	if len(c.sessions.tells) < sessionConnsMax {
		c.sessions.tells[conn] = tell
	}
}

// closeSession notes that a connection has ended. What it has asked before is in the same input, or in an earlier one.
func (c *core) closeSession(conn session.Conn) {
	if c.sessions.tells[conn] != nil {
		delete(c.sessions.tells, conn)
		delete(c.sessions.accounts, conn)
		c.next.SessionsGone = append(c.next.SessionsGone, conn)
	}
}

// askSession adds a request to the input of the next turn. It is a batch, as everything that the replica answers.
func (c *core) askSession(r *front.SessionRequest) {
	if c.sessions.tells[r.Conn] == nil && (r.Lock == nil || r.Lock.Op != session.LockBreak) {
		c.later(func() { r.Err = errSessionConns; r.Done(r) })
		return
	}
	if (r.End == redislock.SessionID || r.Bind != nil && r.Bind.ID == redislock.SessionID) && r.Conn != c.keeperConn {
		c.later(func() { r.Err = errReservedSession; r.Done(r) })
		return
	}
	if r.Lock != nil && (r.Lock.Op == session.LockAcquire || r.Lock.Op == session.LockTry) && redislock.IsReserved(r.Lock.Name) && r.Conn != c.keeperConn {
		c.later(func() { r.Err = errReservedName; r.Done(r) })
		return
	}
	if c.breaksRedisLock(r) {
		return
	}
	if r.Bind != nil && r.Account != nil {
		limits := r.Account.Limits()
		r.Bind.Quota = session.Quota{Account: r.Account.Name(), Sessions: int(limits.Sessions), Locks: int(limits.Locks)}
		c.sessions.accounts[r.Conn] = r.Account
	}
	b := &front.Batch{Local: true, Done: func(b *front.Batch) { c.answerSession(r, b) }}
	if r.Count > 0 {
		b.Counts, b.Ranges = []uint64{r.Count}, make([]isotone.Range, 1)
	}
	r.Reply = session.Reply{}
	c.next.Requests = append(c.next.Requests, replica.Request{
		Token: c.pending.put(b), Mode: isotone.ReadQuorum, U64: r.U64, Session: &r.Request, Counts: b.Counts, Ranges: b.Ranges,
	})
}

// later runs f in the next turn, or now if there is none.
func (c *core) later(f func()) {
	if !c.node.post(f) {
		f()
	}
}

// answerSession answers a request with its batch.
func (c *core) answerSession(r *front.SessionRequest, b *front.Batch) {
	if a := c.sessions.accounts[r.Conn]; a != nil && errors.Is(b.Err, isotone.ErrQuotaExceeded) {
		what := "locks"
		if r.Bind != nil {
			what = "sessions"
		}
		a.OverQuota(what)
	}
	if r.Err = b.Err; r.Err == nil {
		r.Err = r.Request.Refusal()
	}
	if r.Err == nil && r.Count > 0 {
		r.Range = b.Ranges[0]
	}
	r.Done(r)
}

// tellSessions passes on the messages of a step, after its answers.
func (c *core) tellSessions(list []session.Message) {
	for _, m := range list {
		if tell := c.sessions.tells[m.Conn]; tell != nil {
			tell(m)
		}
	}
}

// watchSessions adds a watch. The next turn looks at it.
func (c *core) watchSessions(w *front.SessionWatch) {
	s := &c.sessions
	if len(s.watches) >= watchesMax {
		c.later(func() { w.Err = errWatches; w.Done(w) })
		return
	}
	s.watches = append(s.watches, watch{w, c.loop.Now() + w.Wait})
}

// lookAtWatches answers the watches for which there is an answer. It looks at new ones at once, and at the others now and then.
func (c *core) lookAtWatches() {
	s, now := &c.sessions, c.loop.Now()
	if len(s.watches) == 0 {
		return
	}
	from := 0
	if s.skipped = s.seen > 0 && now-s.looked < watchInterval; s.skipped {
		from = s.seen
	} else {
		s.looked = now
	}
	all := s.watches
	kept := all[:from]
	for _, w := range all[from:] {
		if !c.answersWatch(w.SessionWatch, now >= w.until) {
			kept = append(kept, w)
		}
	}
	s.seen = len(kept)
	s.watches = append(kept, s.watches[len(all):]...) // those that an answer has brought
	clear(all[min(len(s.watches), len(all)):])
}

// answersWatch answers a watch, unless it is to wait and its time is not over.
func (c *core) answersWatch(w *front.SessionWatch, over bool) bool {
	f, leads := c.replica.Frontier(w.Group)
	w.Err = nil
	switch {
	case !leads:
		w.Err = c.redirect()
	case w.Blockers:
		w.Frontier, w.Blocked = f, c.blockers(w.Group)
	case w.Group != "":
		if w.Frontier = f; f.Before(w.At) && !over {
			return false
		}
	case w.Lock != "":
		h, _ := c.replica.Holder(w.Lock)
		if h.Token == w.After && !over {
			return false
		}
		w.Holders = nil
		if h.Token != 0 {
			w.Holders = []front.Holder{c.holder(h)}
		}
	default:
		w.Holders = nil
		for _, h := range c.replica.Holders(w.Prefix, holdersMax, isShown) {
			w.Holders = append(w.Holders, c.holder(h))
		}
	}
	w.Done(w)
	return true
}

// redirect returns the error that names the leader, as of the latest step.
func (c *core) redirect() error {
	b := c.replica.Brief()
	for _, m := range c.replica.Members() {
		if m.ID == b.Leader && m.ID != c.node.cfg.NodeID && m.ClientAddr != "" {
			err := isotone.Errorf(isotone.CodeNotLeader, "node %d leads; ask %s", oracle.NodeOf(m.ID), m.ClientAddr)
			err.Leader = m.ClientAddr
			return err
		}
	}
	return isotone.ErrNoLeader
}

// holder describes a hold.
func (c *core) holder(h oracle.Hold) front.Holder {
	value, _ := redislock.ValueOf(h)
	return front.Holder{Name: h.Name, Token: h.Token, Value: value, Session: c.hashSession(h.Session), Label: c.replica.Label(h.Session)}
}

// isShown reports whether others are to see a hold.
func isShown(h oracle.Hold) bool {
	_, shown := redislock.ValueOf(h)
	return shown
}

// hashSession returns what others are told of a session. Its ID is a secret: whoever has it can bind it.
func (c *core) hashSession(id uint64) uint64 {
	text := binary.BigEndian.AppendUint64(nil, id)
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(text, c.replica.Brief().ClusterID))
	return binary.BigEndian.Uint64(sum[:])
}

// blockers describes what keeps a frontier from going on.
func (c *core) blockers(group string) (told []front.Blocker) {
	list, _ := c.replica.Blockers(group, blockersMax)
	for _, b := range list {
		t := front.Blocker{Label: b.Label, Low: b.Low, High: b.High, For: b.For, Connected: b.Connected}
		if b.Session != 0 {
			t.Session = c.hashSession(uint64(b.Session))
		}
		told = append(told, t)
	}
	return told
}

// closeWatches answers all watches with err.
func (c *core) closeWatches(err error) {
	for _, w := range c.sessions.watches {
		w.Err = err
		w.Done(w.SessionWatch)
	}
	c.sessions.watches = nil
}

// OpenSession gives a connection its number.
func (b coreBackend) OpenSession(tell func(session.Message)) session.Conn {
	conn := b.node.newSessionConn()
	b.openSession(conn, tell)
	return conn
}

// CloseSession adds the end of a connection to this turn's step.
func (b coreBackend) CloseSession(conn session.Conn) { b.closeSession(conn) }

// AskSession adds a request to this turn's step.
func (b coreBackend) AskSession(r *front.SessionRequest) { b.askSession(r) }

// WatchSessions adds a watch, at which this turn looks.
func (b coreBackend) WatchSessions(w *front.SessionWatch) { b.watchSessions(w) }

// newSessionConn returns a number that no other connection of this process has.
func (n *Node) newSessionConn() session.Conn { return session.Conn(n.sessionConns.Add(1)) }

// OpenSession gives a connection its number, and has the core know it.
func (b *bundler) OpenSession(tell func(session.Message)) session.Conn {
	conn, core := b.node.newSessionConn(), b.node.core
	b.tells[conn] = tell
	b.node.post(func() {
		core.openSession(conn, func(m session.Message) {
			b.host.Post(func() {
				if tell := b.tells[conn]; tell != nil {
					tell(m)
				}
			})
		})
	})
	return conn
}

// CloseSession has the core know that a connection has ended. What is on its way to it is dropped.
func (b *bundler) CloseSession(conn session.Conn) {
	delete(b.tells, conn)
	core := b.node.core
	b.node.post(func() { core.closeSession(conn) })
}

// AskSession has the core take the request, and answers in this loop.
func (b *bundler) AskSession(r *front.SessionRequest) {
	done, core := r.Done, b.node.core
	r.Done = func(r *front.SessionRequest) { b.host.Post(func() { r.Done = done; done(r) }) }
	if !b.node.post(func() { core.askSession(r) }) {
		r.Err = errStopped
		r.Done(r)
	}
}

// WatchSessions has the core take the watch, and answers in this loop.
func (b *bundler) WatchSessions(w *front.SessionWatch) {
	done, core := w.Done, b.node.core
	w.Done = func(w *front.SessionWatch) { b.host.Post(func() { w.Done = done; done(w) }) }
	if !b.node.post(func() { core.watchSessions(w) }) {
		w.Err = errStopped
		w.Done(w)
	}
}

// Sessions returns the sessions as other goroutines see them: the standard servers. It is safe for concurrent use. Answers and messages come on the core loop's goroutine, which they must not
// hold up.
func (n *Node) Sessions() front.Sessions { return nodeSessions{n} }

type nodeSessions struct{ node *Node }

// OpenSession gives a connection its number, and has the core know it.
func (s nodeSessions) OpenSession(tell func(session.Message)) session.Conn {
	conn := s.node.newSessionConn()
	s.node.post(func() { s.node.core.openSession(conn, tell) })
	return conn
}

// CloseSession has the core know that a connection has ended.
func (s nodeSessions) CloseSession(conn session.Conn) {
	s.node.post(func() { s.node.core.closeSession(conn) })
}

// AskSession has the core take the request.
func (s nodeSessions) AskSession(r *front.SessionRequest) {
	if !s.node.post(func() { s.node.core.askSession(r) }) {
		r.Err = errStopped
		go r.Done(r) // not within the call
	}
}

// WatchSessions has the core take the watch.
func (s nodeSessions) WatchSessions(w *front.SessionWatch) {
	if !s.node.post(func() { s.node.core.watchSessions(w) }) {
		w.Err = errStopped
		go w.Done(w)
	}
}

var (
	_ front.Sessions = nodeSessions{}
	_ front.Sessions = coreBackend{}
	_ front.Sessions = (*bundler)(nil)
)
