package redislock

import (
	"errors"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/session"
)

// change is a change of one hold.
type change struct {
	session.LockRequest
	began time.Duration
	// failed is set if it was refused, but may have an effect.
	failed bool
	then   func(token isotone.Timestamp64, err error)
}

// release releases the hold of a lock, however long that takes.
func (k *Keeper) release(l *lock, then func()) {
	l.busy = true
	k.change(session.LockRequest{Op: session.LockRelease, Name: l.name, Token: l.token}, func(isotone.Timestamp64, error) {
		l.busy = false
		then()
	})
}

// change asks for a change of a hold. What is refused for want of room or time may have an effect still, so it ends only when the session is told what came of it.
func (k *Keeper) change(q session.LockRequest, then func(isotone.Timestamp64, error)) {
	c := &change{LockRequest: q, began: k.now, then: then}
	k.changes[q.Name] = c
	k.ask(session.Request{Lock: &q}, func(err error) {
		var e *isotone.Error
		switch {
		case err == nil:
		case errors.As(err, &e) && (e.Code == isotone.CodeLocked || e.Code == isotone.CodeInvalidArgument):
			k.settle(c, 0, err)
		default:
			c.failed = true
		}
	})
}

// settle ends a change, unless it has ended.
func (k *Keeper) settle(c *change, token isotone.Timestamp64, err error) {
	if k.changes[c.Name] == c {
		delete(k.changes, c.Name)
		c.then(token, err)
	}
}
