package sim

import (
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/session"
)

// Users with locks. The checks: no two sessions believe in one lock at a time, if LINGER is not below TTL; and a write under a lock in which its session
// believes is not refused by the store, so no other write under a later token has come before (P1, P2, P4).

// useLock has a user acquire a lock, write under it, or release it.
func (w *world) useLock(u *sessionUser, name string) {
	rng := w.sessions.rng
	token, believes := u.client.Token(name, w.clock(u))
	switch draw := rng.IntN(10); {
	case !u.wants[name]:
		u.wants[name] = true
		u.client.Acquire(name, "", rng.IntN(3) == 0)
	case token == 0 && draw > 0:
	case draw < 6 && believes:
		w.writeUnderLock(u, name, token)
	case draw < 9:
		delete(u.wants, name)
		u.client.Release(name)
	}
}

// writeUnderLock sends a write to the store, where it arrives at any time.
func (w *world) writeUnderLock(u *sessionUser, name string, token isotone.Timestamp64) {
	rng := w.sessions.rng
	delay := time.Duration(rng.Int64N(int64(w.cfg.tick)))
	if rng.IntN(4) == 0 {
		delay = time.Duration(rng.Int64N(int64(3 * u.ttl)))
	}
	client := u.client
	w.after(delay, func() {
		w.stats.LockedWrites++
		if w.sessions.store.writeLocked(name, token) {
			return
		}
		w.stats.LockedFenced++
		if has, believes := client.Token(name, w.clock(u)); w.sessions.exclusive && !u.dead && believes && has == token {
			w.fail("R6: user %d holds the lock %q with the token %v, and its store refuses that", u.number, name, token)
		}
	})
}

// breakLocks has an operator break a lock now and then, unless its holder is innocent.
func (w *world) breakLocks() {
	rng := w.sessions.rng
	w.after(time.Duration(rng.Int64N(int64(100*w.cfg.tick))), func() {
		if w.quiet || w.closing {
			return
		}
		w.breakLocks()
		n, name := w.nodes[rng.IntN(len(w.nodes))], w.sessions.names[rng.IntN(len(w.sessions.names))]
		if !n.up() {
			return
		}
		h, _ := n.replica.Holder(name)
		for _, u := range w.sessions.users {
			if uint64(u.id) == h.Session && u.innocent {
				return
			}
		}
		w.trace("an operator breaks %q with the token %v, by node %d", name, h.Token, n.id)
		k := &session.Call{Request: session.Request{Lock: &session.LockRequest{Op: session.LockBreak, Name: name, Token: h.Token}}}
		w.arrive(n, &call{session: &sessionCall{Call: k}})
	})
}

// granted notes that a user holds a lock.
func (w *world) granted(u *sessionUser, name string, token isotone.Timestamp64) {
	w.sessions.granted[name] = true
	w.stats.LocksGranted++
	w.trace("user %d holds %q with the token %v", u.number, name, token)
}

// checkBelief checks that nobody else believes in a lock in which a user believes.
func (w *world) checkBelief(u *sessionUser) {
	if !w.sessions.exclusive {
		return
	}
	for _, name := range w.sessions.names {
		token, believes := u.client.Token(name, w.clock(u))
		for _, o := range w.sessions.users {
			if other, also := o.client.Token(name, w.clock(o)); believes && also && o != u && !o.dead {
				w.fail("R4: users %d and %d hold the lock %q, with the tokens %v and %v", o.number, u.number, name, other, token)
			}
		}
		for _, o := range w.sessions.redis.users {
			if believes && o.name == name && o.believes(w) {
				w.fail("R4: user %d holds the lock %q with the token %v, and user %d of a Redis library as %q", u.number, name, token, o.number, o.value)
			}
		}
	}
}
