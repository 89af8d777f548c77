package sim

import (
	"fmt"
	"slices"
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
		w.writeUnderLock(u, u.ttl, name, token)
	case draw < 9:
		delete(u.wants, name)
		u.client.Release(name)
	}
}

// writeUnderLock sends a write to the store, where it arrives at any time.
func (w *world) writeUnderLock(u believer, ttl time.Duration, name string, token isotone.Timestamp64) {
	rng := w.sessions.rng
	delay := time.Duration(rng.Int64N(int64(w.cfg.tick)))
	if rng.IntN(4) == 0 {
		delay = time.Duration(rng.Int64N(int64(3 * ttl)))
	}
	w.after(delay, func() {
		w.stats.LockedWrites++
		if w.sessions.stores.writeLocked(name, token) {
			return
		}
		w.stats.LockedFenced++
		if has, believes := u.believes(w, name); w.sessions.exclusive && believes && has == token {
			w.fail("R6: %v holds the lock %q with the token %v, and its store refuses that", u, name, token)
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
func (w *world) granted(u believer, name string, token isotone.Timestamp64) {
	w.sessions.granted[name] = true
	w.stats.LocksGranted++
	w.trace("%v holds %q with the token %v", u, name, token)
}

// believer is a user who may believe in a lock.
type believer interface {
	fmt.Stringer
	// believes returns the token under which the user acts now, and whether there is one.
	believes(w *world, name string) (token isotone.Timestamp64, believes bool)
}

func (u *sessionUser) String() string { return fmt.Sprintf("user %d", u.number) }

func (u *sessionUser) believes(w *world, name string) (isotone.Timestamp64, bool) {
	token, believes := u.client.Token(name, w.clock(u))
	return token, believes && !u.dead
}

// believers returns all users. A lock of a session with a short LINGER may have another holder before its user stops believing.
func (w *world) believers() (list []believer) {
	for _, u := range w.sessions.users {
		list = append(list, u)
	}
	for _, u := range w.sessions.http.users {
		list = append(list, u)
	}
	if !w.sessions.exclusive {
		list = nil
	}
	for _, u := range w.sessions.redis.users {
		list = append(list, u)
	}
	return list
}

// checkBelief checks that nobody else believes in a lock in which a user believes.
func (w *world) checkBelief(u believer) {
	believers := w.believers()
	if !slices.Contains(believers, u) {
		return
	}
	for _, name := range slices.Concat(w.sessions.redis.names, w.sessions.names) {
		token, believes := u.believes(w, name)
		if !believes {
			continue
		}
		for _, o := range believers {
			if other, also := o.believes(w, name); also && o != u {
				w.fail("R4: %v and %v hold the lock %q, with the tokens %v and %v", o, u, name, other, token)
			}
		}
	}
}
