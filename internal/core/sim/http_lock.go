package sim

import (
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/session"
)

// Locks of sessions over HTTP, as a front asks for them. The checks (R7): a lock of which nobody was told does not stay held, one of which the user was told is released only if the user asks for
// that, and no user is told of one that is being released.

// askLock asks what the book wants to know.
func (v *virtual) askLock(a *session.LockAsk) {
	if a.Op == session.LockRelease {
		if v.held[a.Name] == a.Token {
			delete(v.held, a.Name)
		}
		f := v.fate(a.Token)
		if f.releasing = true; f.told && !f.unwanted {
			v.w.fail("R7: session %x releases the lock %q with the token %v, of which its user was told", v.bind.ID, a.Name, a.Token)
		}
	}
	v.asks++
	v.send(session.Request{Lock: &a.LockRequest}, func(r *session.Reply, err error) {
		v.asks--
		if err != nil && a.Op == session.LockRelease {
			v.fate(a.Token).releasing = false
		}
		v.book.Answered(a, r.Holds, err)
		v.check()
	})
}

// tell notes that the user is told of a grant.
func (v *virtual) tell(token isotone.Timestamp64) {
	f := v.fate(token)
	if f.told = true; f.releasing {
		v.w.fail("R7: the user of session %x is told of the token %v, which is being released", v.bind.ID, token)
	}
}

func (v *virtual) fate(token isotone.Timestamp64) *grantFate {
	if v.grants[token] == nil {
		v.grants[token] = &grantFate{}
	}
	return v.grants[token]
}

// check checks that a lock of which the user was not told is released, or that somebody waits for it.
func (v *virtual) check() {
	if v.over != nil || v.asks > 0 {
		return
	}
	for _, name := range v.w.sessions.names {
		if token := v.held[name]; token != 0 && v.waits[name] == 0 && !v.fate(token).told {
			v.w.fail("R7: session %x holds the lock %q with the token %v, of which nobody was told", v.bind.ID, name, token)
		}
	}
}

// acquire waits for a lock, and keeps the session alive meanwhile. It returns what is to be called once the user is known to wait no longer.
func (v *virtual) acquire(q session.LockRequest, wait, patience time.Duration, answer func(httpAnswer)) (leave func()) {
	began, alive := v.mono(), time.Duration(0)
	var wt *session.LockWait
	isOver, ended := false, false
	end := func() {
		ended = true
		v.waits[q.Name]--
	}
	leave = func() {
		if !ended {
			end()
			v.book.Leave(wt)
			v.check()
		}
	}
	look := func() {
		if ended {
			return
		}
		e, done := v.book.Look(wt, isOver && wait > 0)
		if !done {
			return
		}
		end()
		switch {
		case e.Err != nil:
			answer(v.w.answerHTTP(v.node, e.Err))
		case e.Token == 0:
			answer(httpAnswer{err: isotone.ErrLocked, ticket: e.Ticket})
		default:
			v.tell(e.Token)
			answer(httpAnswer{token: e.Token, valid: session.ValidFor(v.bind.TTL, alive)})
		}
		v.check()
	}
	v.waits[q.Name]++
	wt = v.book.Acquire(q, func() { v.later(v.w.httpTurn(), look) })
	var keep func()
	keep = func() {
		v.later(min(v.bind.TTL/4, time.Second), func() {
			if ended {
				return
			}
			at := v.mono() - began
			v.send(session.Request{}, func(_ *session.Reply, err error) {
				if err == nil {
					alive = max(alive, at)
				}
			})
			keep()
		})
	}
	keep()
	v.later(wait, func() {
		isOver = true
		look()
		v.later(patience, leave)
	})
	return leave
}

// mono is the steady clock of the machine.
func (v *virtual) mono() time.Duration {
	_, mono := v.node.clock.read(v.w.now)
	return mono
}

// releaseHTTP releases a lock.
func (w *world) releaseHTTP(n *node, id session.ID, name string, token isotone.Timestamp64, answer func(httpAnswer)) {
	v, err := w.findVirtual(n, id)
	if err != nil {
		answer(w.answerHTTP(n, err))
		return
	}
	v.fate(token).unwanted = true
	if !v.book.Release(name, token, func(err error) { answer(w.answerHTTP(n, err)) }) {
		answer(httpAnswer{err: isotone.ErrNotHeld})
	}
}
