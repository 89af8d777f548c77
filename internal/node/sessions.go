package node

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/session"
	"github.com/isotone/isotone/internal/front"
)

// What fronts ask of sessions; see front.Sessions.

const (
	// watchesMax bounds the watches that wait.
	watchesMax = 4096
	// watchPause is between two looks at what is watched.
	watchPause = time.Millisecond
	// holdersMax bounds the locks of one answer.
	holdersMax = 1000
)

var errWatches = isotone.Errorf(isotone.CodeOverloaded, "too many requests wait for a lock or a frontier to change")

// sessions are the connections of clients that have sessions, and what is watched. They belong to the core loop's goroutine.
type sessions struct {
	tells   map[session.Conn]func(session.Message)
	watches []sessionWatch
	looked  time.Duration // at the watches, by the steady clock
	skipped bool          // something may have changed since
}

// sessionWatch is a watch that waits until due.
type sessionWatch struct {
	*front.SessionWatch
	due time.Duration
}

// submitSession adds a request to this turn's step.
func (c *core) submitSession(r *front.SessionRequest) {
	b := &front.Batch{Mode: isotone.ReadQuorum, Local: true, U64: r.U64}
	b.Done = func(b *front.Batch) {
		switch {
		case b.Err != nil:
			r.Err = b.Err
		case r.Count > 0:
			r.Range = b.Ranges[0]
		}
		if r.Err == nil {
			r.Err = outcomeError(&r.Request)
		}
		r.Done(r)
	}
	if r.Count > 0 {
		b.Counts, b.Ranges = []uint64{r.Count}, make([]isotone.Range, 1)
	}
	r.Err = nil
	c.next.Requests = append(c.next.Requests, replica.Request{
		Token: c.pending.put(b), Mode: b.Mode, U64: b.U64, Counts: b.Counts, Ranges: b.Ranges, Session: &r.Request,
	})
}

// outcomeError returns why a request was not carried out, or nil.
func outcomeError(q *session.Request) error {
	switch q.Reply.Outcome {
	case session.Expired:
		if q.Close {
			return nil
		}
		return isotone.Errorf(isotone.CodeSessionExpired, "the session has ended; begin another one, with another ID")
	case session.Unbound:
		return isotone.Errorf(isotone.CodeNotBound, "this connection has no session, or another one has bound it since; bind it again, with a larger epoch")
	case session.Locked:
		return isotone.Errorf(isotone.CodeLocked, "somebody else holds the lock %q, or waits for it", q.Lock.Name)
	}
	return nil
}

// closeSession notes that a connection has ended, after all that came over it.
func (c *core) closeSession(conn session.Conn) {
	delete(c.sessions.tells, conn)
	c.next.SessionsGone = append(c.next.SessionsGone, conn)
}

// tellSessions passes messages on.
func (c *core) tellSessions(list []session.Message) {
	for _, m := range list {
		if tell := c.sessions.tells[m.Conn]; tell != nil {
			tell(m)
		}
	}
}

// watchSessions adds a watch, which is looked at in this turn.
func (c *core) watchSessions(w *front.SessionWatch) {
	if len(c.sessions.watches) >= watchesMax {
		w.Err = errWatches
		w.Done(w)
		return
	}
	c.sessions.watches = append(c.sessions.watches, sessionWatch{w, c.mono + w.Wait})
	c.sessions.looked = 0
}

// lookAtWatches answers the watches for which something has changed.
func (c *core) lookAtWatches() {
	s := &c.sessions
	if s.skipped = len(s.watches) > 0 && c.mono-s.looked < watchPause && s.looked > 0; s.skipped || len(s.watches) == 0 {
		return
	}
	s.looked = c.mono
	waiting := s.watches
	s.watches = nil
	rest := waiting[:0]
	for _, w := range waiting {
		if c.watch(w) {
			w.Done(w.SessionWatch)
		} else {
			rest = append(rest, w)
		}
	}
	clear(waiting[len(rest):])
	s.watches = append(rest, s.watches...)
}

// watch sets the answer to a watch, and reports whether it is to be given.
func (c *core) watch(w sessionWatch) bool {
	over := c.mono >= w.due
	if !c.replica.Status().Serving {
		w.Err = c.node.redirect()
		return true
	}
	w.Err = nil
	switch {
	case w.Group != "":
		var ok bool
		if w.Frontier, ok = c.replica.Frontier(w.Group); !ok {
			return false // it has just been elected
		}
		return over || !w.Frontier.Before(w.At)
	case w.Lock != "":
		h, _ := c.replica.Holder(w.Lock)
		if w.Holders = nil; h.Token != 0 {
			w.Holders = []front.Holder{c.holder(h)}
		}
		return over || h.Token != w.After
	}
	w.Holders = nil
	for _, h := range c.replica.Holders(w.Prefix, holdersMax) {
		w.Holders = append(w.Holders, c.holder(h))
	}
	return true
}

// holder describes a hold.
func (c *core) holder(h oracle.Hold) front.Holder {
	text := binary.BigEndian.AppendUint64([]byte("session"), c.node.Status().ClusterID)
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(text, h.Session))
	return front.Holder{Name: h.Name, Token: h.Token, Value: h.Value, Session: binary.BigEndian.Uint64(sum[:8])}
}

// closeWatches answers all watches with err.
func (c *core) closeWatches(err error) {
	for _, w := range c.sessions.watches {
		w.Err = err
		w.Done(w.SessionWatch)
	}
	c.sessions.watches = nil
}

// OpenSession implements front.Sessions.
func (b coreBackend) OpenSession(tell func(session.Message)) session.Conn {
	conn := session.Conn(b.node.sessionConns.Add(1))
	b.sessions.tells[conn] = tell
	return conn
}

// CloseSession implements front.Sessions.
func (b coreBackend) CloseSession(conn session.Conn) { b.closeSession(conn) }

// AskSession implements front.Sessions.
func (b coreBackend) AskSession(r *front.SessionRequest) { b.submitSession(r) }

// WatchSessions implements front.Sessions.
func (b coreBackend) WatchSessions(w *front.SessionWatch) {
	if done := w.Done; len(b.sessions.watches) >= watchesMax { // not within the call
		w.Err = errWatches
		b.node.post(func() { done(w) })
		return
	}
	b.watchSessions(w)
}

// OpenSession implements front.Sessions. All that follows of the connection is posted as well, and so in order.
func (b *bundler) OpenSession(tell func(session.Message)) session.Conn {
	conn, core := session.Conn(b.node.sessionConns.Add(1)), b.node.core
	open := true
	b.sessions[conn] = &open
	b.node.post(func() {
		core.sessions.tells[conn] = func(m session.Message) {
			b.host.Post(func() {
				if open {
					tell(m)
				}
			})
		}
	})
	return conn
}

// CloseSession implements front.Sessions.
func (b *bundler) CloseSession(conn session.Conn) {
	if open := b.sessions[conn]; open != nil {
		*open = false
		delete(b.sessions, conn)
	}
	core := b.node.core
	b.node.post(func() { core.closeSession(conn) })
}

// AskSession implements front.Sessions.
func (b *bundler) AskSession(r *front.SessionRequest) {
	done, core := r.Done, b.node.core
	r.Done = func(r *front.SessionRequest) {
		r.Done = done
		b.host.Post(func() { done(r) })
	}
	if !b.node.post(func() { core.submitSession(r) }) {
		r.Err = errStopped
		r.Done(r)
	}
}

// WatchSessions implements front.Sessions.
func (b *bundler) WatchSessions(w *front.SessionWatch) {
	done, core := w.Done, b.node.core
	w.Done = func(w *front.SessionWatch) {
		w.Done = done
		b.host.Post(func() { done(w) })
	}
	if !b.node.post(func() { core.watchSessions(w) }) {
		w.Err = errStopped
		w.Done(w)
	}
}
