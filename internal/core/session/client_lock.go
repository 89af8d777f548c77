package session

import (
	"maps"
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
)

// clientLock is what a client knows of a lock.
type clientLock struct {
	name, value string
	// wants says that it wants to hold the lock, or holds it; try that it does not wait for it.
	wants, try bool
	ticket     isotone.Timestamp
	token      isotone.Timestamp64 // 0: it does not hold it
	// releasing is the token of a release that is not confirmed. gave is the latest token that it released over this connection: what grants it crosses
	// that on its way, and counts for nothing (R7).
	releasing, gave isotone.Timestamp64
}

func (c *Client) lock(name string) *clientLock {
	l := c.locks[name]
	if l == nil {
		l = &clientLock{name: name}
		c.locks[name] = l
	}
	return l
}

// Token returns the token with which the session holds a lock. It may act under it until Valid. It is 0, or ok is false, unless the session holds the lock and believes in it.
func (c *Client) Token(name string, now time.Duration) (token isotone.Timestamp64, ok bool) {
	if l := c.locks[name]; l != nil {
		token = l.token
	}
	return token, token != 0 && (now < c.valid || mutant.On(mutant.ValidityIgnored))
}

// Acquire waits for a lock. EventGranted or EventRefused follows. If try is set, it does not wait for the release of a lock that somebody else has; EventLocked may follow then. A lock that the session wants or holds already
// stays as it is, and one that is closed acquires none.
func (c *Client) Acquire(name, value string, try bool) {
	l := c.lock(name)
	if l.wants || c.closed {
		return
	}
	l.wants, l.try, l.value, l.ticket = true, try, value, isotone.Timestamp{}
	c.ask(l.acquisition())
}

func (l *clientLock) acquisition() LockRequest {
	q := LockRequest{Op: LockAcquire, Name: l.name, Value: l.value, Ticket: l.ticket}
	if l.try {
		q.Op = LockTry
	}
	return q
}

// Release releases a lock, or stops waiting for it. EventReleased follows if the session held it. It does not believe in the lock any more when Release returns.
func (c *Client) Release(name string) {
	l := c.lock(name)
	if !l.wants {
		return
	}
	l.wants = false
	if l.token == 0 {
		asks := len(c.asks)
		c.asks = slices.DeleteFunc(c.asks, func(q LockRequest) bool { return q.Name == name && (q.Op == LockAcquire || q.Op == LockTry) })
		if len(c.asks) == asks { // else it was not asked for
			c.ask(LockRequest{Op: LockCancel, Name: name})
		}
		return
	}
	c.give(l, l.token)
}

// give gives a hold up.
func (c *Client) give(l *clientLock, token isotone.Timestamp64) {
	l.token, l.releasing, l.gave = 0, token, token
	c.ask(LockRequest{Op: LockRelease, Name: l.name, Token: token})
}

// ask has a request about a lock sent. Without a connection, what is to be asked follows from the answer to the next BIND.
func (c *Client) ask(q LockRequest) {
	if c.state == clientBound {
		c.asks = append(c.asks, q)
	}
}

// refusedLock handles a request about a lock that was refused.
func (c *Client) refusedLock(k *Call, again bool) {
	q, l := k.Lock, c.lock(k.Lock.Name)
	var stands bool
	switch q.Op {
	case LockAcquire, LockTry:
		stands = l.wants && l.token == 0
	case LockCancel:
		stands = !l.wants
	case LockRelease:
		stands = l.releasing == q.Token
	}
	switch {
	case !stands:
	case again:
		c.ask(*q)
	case q.Op == LockRelease: // the session holds it still, and a later grant is of that hold
		l.releasing, l.gave = 0, 0
		c.happened(Event{Kind: EventRefused, Name: l.name, Token: q.Token, Err: k.Err})
	default:
		l.wants = false
		c.happened(Event{Kind: EventRefused, Name: l.name, Err: k.Err})
	}
	c.forget(l)
}

// granted notes that the session holds a lock.
func (c *Client) granted(l *clientLock, token isotone.Timestamp64) {
	switch {
	case c.closed && !mutant.On(mutant.BelieveUntilClosed):
	case token <= l.gave && !mutant.On(mutant.GrantAfterRelease), token == l.token:
	case !l.wants:
		c.give(l, token)
	default:
		if l.token != 0 {
			c.happened(Event{Kind: EventLost, Name: l.name, Token: l.token})
		}
		l.token = token
		c.happened(Event{Kind: EventGranted, Name: l.name, Token: token})
	}
}

// released notes that the session does not hold a lock with a token, or, without a token, does not wait for it.
func (c *Client) released(l *clientLock, token isotone.Timestamp64) {
	switch {
	case token == 0:
	case token == l.releasing:
		l.releasing = 0
		c.happened(Event{Kind: EventReleased, Name: l.name, Token: token})
	case token == l.token: // whatever the reason
		c.lose(l)
	}
	c.forget(l)
}

func (c *Client) lose(l *clientLock) {
	c.happened(Event{Kind: EventLost, Name: l.name, Token: l.token})
	l.token, l.wants = 0, false
}

// forget forgets a lock with which the session has nothing to do.
func (c *Client) forget(l *clientLock) {
	if !l.wants && l.releasing == 0 && l.token == 0 && l.gave == 0 {
		delete(c.locks, l.name)
	}
}

// reconcile compares what the session believes to hold with what it holds, as the leader says when it has bound it (R3).
func (c *Client) reconcile(holds []Hold) {
	if c.closed {
		return
	}
	has := map[string]isotone.Timestamp64{}
	for _, h := range holds {
		has[h.Name] = h.Token
		c.lock(h.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(c.locks)) {
		l, token := c.locks[name], has[name]
		l.gave = 0
		if l.token != 0 && l.token != token && !mutant.On(mutant.BindNotReconciled) {
			c.lose(l)
		}
		if l.releasing != 0 && l.releasing != token {
			c.happened(Event{Kind: EventReleased, Name: name, Token: l.releasing})
			l.releasing = 0
		}
		switch {
		case token != 0 && token == l.releasing: // that was lost
			c.give(l, token)
			if l.wants {
				c.ask(l.acquisition())
			}
		case token != 0:
			c.granted(l, token)
		case l.wants && l.token == 0: // its place is forgotten
			c.ask(l.acquisition())
		}
		c.forget(l)
	}
}
