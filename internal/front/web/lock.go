package web

import (
	"net/http"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/session"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/httpapi"
)

const (
	// keepShare is the part of its TTL after which a request that waits keeps its session alive, and keepEvery that time at most: a leader that is deposed is noticed by it.
	keepShare = 4
	keepEvery = time.Second
)

// lockedError refuses a lock.
type lockedError struct{ refusal httpapi.LockRefusal }

func (*lockedError) Error() string { return session.ErrLocked.Error() }

// serveLock answers requests for /locks/NAME.
func (h *handler) serveLock(w http.ResponseWriter, r *http.Request) string {
	return h.answerSession(w, r, &sessionEndpoint{
		methods: map[string]sessionHandler{http.MethodGet: (*handler).getLock, http.MethodPut: (*handler).putLock, http.MethodDelete: (*handler).deleteLock},
		parse: func(c *sessionCall) (err error) {
			if c.name, err = httpapi.NameIn(c.URL, httpapi.LocksPath, "lock"); err == nil && c.Method != http.MethodGet {
				err = c.needsSession()
			}
			return err
		},
		stream: (*handler).streamLock,
	})
}

// serveLocks answers requests for /locks.
func (h *handler) serveLocks(w http.ResponseWriter, r *http.Request) string {
	return h.answerSession(w, r, &sessionEndpoint{
		methods: map[string]sessionHandler{http.MethodGet: (*handler).listLocks},
		parse:   func(*sessionCall) error { return nil },
	})
}

func (c *sessionCall) needsSession() error {
	if c.Session == 0 {
		return isotone.Errorf(isotone.CodeInvalidArgument, "session: name the one for which this is, as ?session=ID")
	}
	return nil
}

// putLock acquires a lock, and waits for it if it is to.
func (h *handler) putLock(c *sessionCall) (any, error) {
	v, err := h.sessions.find(c.Session)
	if err != nil {
		return nil, err
	}
	q := session.LockRequest{Op: session.LockTry, Name: c.name, Value: c.Value, Ticket: c.Ticket}
	if c.Wait > 0 {
		q.Op = session.LockAcquire
	}
	end, alive := h.awaitLock(c, v, q)
	switch {
	case end.Err != nil:
		return nil, end.Err
	case end.Token == 0:
		return nil, h.refuseLock(c, end.Ticket)
	}
	a := httpapi.HeldLocks([]session.Hold{{Name: c.name, Token: end.Token}})[0]
	a.ValidFor = session.ValidFor(v.bind.TTL, alive).Milliseconds()
	return a, nil
}

// awaitLock waits until a request for a lock has come to an end. The session is kept alive meanwhile; alive is when it was last known to be, from when the request began.
func (h *handler) awaitLock(c *sessionCall, v *virtual, q session.LockRequest) (end session.LockEnd, alive time.Duration) {
	w, changed, err := v.acquire(q)
	if err != nil {
		return session.LockEnd{Err: err}, 0
	}
	patience := c.Wait
	if patience == 0 {
		patience = h.limits.RequestTimeout // the lock is free, or it is refused at once
	}
	over := time.NewTimer(patience)
	defer over.Stop()
	keep := time.NewTicker(min(v.bind.TTL/keepShare, keepEvery))
	defer keep.Stop()
	kept := make(chan time.Duration, 1)
	asks, isOver := false, c.Wait == 0
	for {
		select {
		case <-changed:
			if end, ended := v.look(w, isOver && c.Wait > 0); ended {
				return end, alive
			}
		case at := <-kept:
			alive, asks = max(alive, at), false
		case <-keep.C:
			if !asks {
				asks = v.keep(time.Since(c.began), kept)
			}
		case <-over.C:
			if end, ended := v.look(w, true); ended {
				return end, alive
			}
			if isOver {
				v.leave(w)
				return session.LockEnd{Err: errNotSaid}, 0
			}
			isOver = true // its time, but not what it waits for: to be told of its place
			over.Reset(h.limits.RequestTimeout)
		case <-c.Context().Done():
			v.leave(w)
			return session.LockEnd{Err: errClientGone}, 0
		case <-h.stopping:
			v.leave(w)
			return session.LockEnd{Err: errStopping}, 0
		}
	}
}

var (
	errClientGone = isotone.Errorf(isotone.CodeDeadlineExceeded, "the client does not wait any longer")
	errNotSaid    = isotone.Errorf(isotone.CodeDeadlineExceeded, "the leader has not said in time what came of it; send the request again")
)

// refuseLock tells who holds a lock.
func (h *handler) refuseLock(c *sessionCall, ticket isotone.Timestamp) error {
	e := &lockedError{}
	if ticket != (isotone.Timestamp{}) {
		e.refusal.Ticket = ticket.String()
	}
	seen, err := h.watch(c.Context(), front.SessionWatch{Lock: c.name}, 0, func(*front.SessionWatch) bool { return true })
	if err == nil && len(seen.Holders) > 0 {
		holder := httpapi.HolderOf(&seen.Holders[0])
		e.refusal.Holder = &holder
	}
	return e
}

// deleteLock releases a lock.
func (h *handler) deleteLock(c *sessionCall) (any, error) {
	if c.Token == 0 {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "token: name the one that came with the lock, as &token=HEX")
	}
	v, err := h.sessions.find(c.Session)
	if err != nil {
		return nil, err
	}
	released, err := v.release(c.name, c.Token)
	if err != nil {
		return nil, err
	}
	if err := h.awaitSession(c.Context(), released); err != nil {
		return nil, err
	}
	return httpapi.LockReleased{Name: c.name}, nil
}

// getLock tells who holds a lock, once that is not c.After if it waits.
func (h *handler) getLock(c *sessionCall) (any, error) {
	seen, err := h.watch(c.Context(), front.SessionWatch{Lock: c.name, After: c.After}, c.Wait, func(w *front.SessionWatch) bool { return tokenOf(w) != c.After })
	switch {
	case err != nil:
		return nil, err
	case len(seen.Holders) == 0:
		return nil, isotone.Errorf(isotone.CodeNotFound, "nobody holds the lock %.100q", c.name)
	}
	return httpapi.HolderOf(&seen.Holders[0]), nil
}

// tokenOf returns the token of the holder of a lock, 0 for nobody.
func tokenOf(w *front.SessionWatch) isotone.Timestamp64 {
	if len(w.Holders) == 0 {
		return 0
	}
	return w.Holders[0].Token
}

// listLocks lists the locks that are held.
func (h *handler) listLocks(c *sessionCall) (any, error) {
	seen, err := h.watch(c.Context(), front.SessionWatch{Prefix: c.Prefix}, 0, func(*front.SessionWatch) bool { return true })
	if err != nil {
		return nil, err
	}
	list := httpapi.LockList{Locks: make([]httpapi.LockHolder, 0, len(seen.Holders))}
	for i := range seen.Holders {
		list.Locks = append(list.Locks, httpapi.HolderOf(&seen.Holders[i]))
	}
	return list, nil
}

// streamLock tells who holds a lock, each time that it changes.
func (h *handler) streamLock(c *sessionCall, s *eventStream) error {
	w, wait := front.SessionWatch{Lock: c.name}, time.Duration(0)
	for {
		seen, err := h.watch(s.ctx, w, wait, func(seen *front.SessionWatch) bool { return tokenOf(seen) != w.After })
		if err != nil {
			return err
		}
		switch token := tokenOf(seen); {
		case wait > 0 && token == w.After:
			err = s.comment()
		case token == 0:
			err = s.send("free", httpapi.LockFree{Name: c.name})
		default:
			err = s.send("held", httpapi.HolderOf(&seen.Holders[0]))
		}
		if err != nil {
			return err
		}
		w.After, wait = tokenOf(seen), eventsPause
	}
}
