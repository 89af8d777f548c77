package sim

import (
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/session"
)

// Users with locks. The checks: no two sessions believe in one lock at a time, if LINGER is not below TTL; and a write under a lock in which its session
// believes is not refused by the store, so no other write under a later token has come before (P1, P2, P4).

// userLock is what a user knows of a lock.
type userLock struct {
	name   string
	wants  bool
	ticket isotone.Timestamp
	token  isotone.Timestamp64 // 0: it does not hold it
	// gave is the token that it released over this connection: what grants it crosses that on its way, and counts for nothing (R7).
	gave isotone.Timestamp64
}

func (w *world) lock(u *sessionUser, name string) *userLock {
	for _, l := range u.locks {
		if l.name == name {
			return l
		}
	}
	panic("sim: a lock of another name")
}

// believes reports whether a user may act under a lock (R5).
func (w *world) believes(u *sessionUser, l *userLock) bool {
	return l.token != 0 && w.clock(u) < u.valid
}

// useLock has a user acquire a lock, write under it, or release it.
func (w *world) useLock(u *sessionUser, l *userLock) {
	rng := w.sessions.rng
	ask := func(op session.LockOp) {
		w.say(u, &session.Request{Lock: &session.LockRequest{Op: op, Name: l.name, Ticket: l.ticket, Token: l.token}}, nil, false)
	}
	switch draw := rng.IntN(10); {
	case l.token == 0 && !l.wants:
		l.wants, l.ticket = true, isotone.Timestamp{}
		ask([]session.LockOp{session.LockAcquire, session.LockAcquire, session.LockTry}[rng.IntN(3)])
	case l.token == 0 && draw == 0:
		l.wants = false
		ask(session.LockCancel)
	case l.token == 0 && draw < 3:
		ask(session.LockAcquire)
	case l.token == 0:
	case draw < 6 && w.believes(u, l):
		w.writeUnderLock(u, l)
	case draw < 9:
		ask(session.LockRelease)
		l.wants, l.token, l.gave = false, 0, l.token
	}
}

// writeUnderLock sends a write to the store, where it arrives at any time.
func (w *world) writeUnderLock(u *sessionUser, l *userLock) {
	token, rng := l.token, w.sessions.rng
	delay := time.Duration(rng.Int64N(int64(w.cfg.tick)))
	if rng.IntN(4) == 0 {
		delay = time.Duration(rng.Int64N(int64(3 * u.ttl)))
	}
	id := u.id
	w.after(delay, func() {
		w.stats.LockedWrites++
		if w.sessions.store.writeLocked(l.name, token) {
			return
		}
		w.stats.LockedFenced++
		if w.sessions.exclusive && !u.dead && u.id == id && l.token == token && w.believes(u, l) {
			w.fail("R6: user %d holds the lock %q with the token %v, and its store refuses that", u.number, l.name, token)
		}
	})
}

// granted has a user hold a lock.
func (w *world) granted(u *sessionUser, name string, token isotone.Timestamp64) {
	l := w.lock(u, name)
	w.sessions.granted[name] = true
	w.stats.LocksGranted++
	if token <= l.gave {
		return
	}
	if !l.wants && l.token == 0 { // it does not want it any more
		l.gave = token
		w.say(u, &session.Request{Lock: &session.LockRequest{Op: session.LockRelease, Name: name, Token: token}}, nil, false)
		return
	}
	if l.token != 0 && l.token != token && w.believes(u, l) {
		w.fail("R6: user %d is granted the lock %q with the token %v, which it holds with %v", u.number, name, token, l.token)
	}
	w.trace("user %d holds %q with the token %v", u.number, name, token)
	l.wants, l.token = true, token
	w.checkBelief(u)
}

// released notes that a user does not hold a lock.
func (w *world) released(u *sessionUser, name string, token isotone.Timestamp64) {
	if l := w.lock(u, name); token != 0 && l.token == token {
		w.fail("R7: user %d did not release the lock %q with the token %v", u.number, name, token)
	}
}

// reconcile has a user compare what it believes to hold with what it is told when it binds (R3).
func (w *world) reconcile(u *sessionUser, holds []session.Hold) {
	has := map[string]isotone.Timestamp64{}
	for _, h := range holds {
		has[h.Name] = h.Token
	}
	for _, l := range u.locks {
		token, held := has[l.name]
		l.gave = 0
		switch {
		case !held || l.token != 0 && l.token != token:
			if l.token != 0 {
				l.wants = false
			}
			l.token = 0
		}
		if held && l.token == 0 {
			w.granted(u, l.name, token)
		} else if !held && l.wants { // its place is forgotten
			w.say(u, &session.Request{Lock: &session.LockRequest{Op: session.LockAcquire, Name: l.name, Ticket: l.ticket}}, nil, false)
		}
	}
}

// checkBelief checks that nobody else believes in a lock in which a user believes.
func (w *world) checkBelief(u *sessionUser) {
	for _, l := range u.locks {
		if !w.sessions.exclusive || !w.believes(u, l) {
			continue
		}
		for _, o := range w.sessions.users {
			if o != u && !o.dead && w.believes(o, w.lock(o, l.name)) {
				w.fail("R4: users %d and %d hold the lock %q, with the tokens %v and %v", o.number, u.number, l.name, w.lock(o, l.name).token, l.token)
			}
		}
	}
}
