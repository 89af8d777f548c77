package sim

import (
	"math/rand/v2"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/session"
)

// Limits of accounts. All users without an excuse share one, whose limits an operator changes; each innocent has one of its own, whose limits it never exceeds. The checks:
// a leader begins no session, and grants no lock, beyond a limit; and an innocent is never refused.

// quotaRuns is one in how many runs with sessions has limits.
const quotaRuns = 2

// quotaState is the part of the world that has to do with limits.
type quotaState struct {
	rng  *rand.Rand
	used bool
	now  session.Quota // of the shared account
}

// userQuota is the leader that has begun a user's session, and the largest limits with which the session was to be bound.
type userQuota struct {
	begunBy         leading
	sessions, locks int
}

// leading is a node that leads, in a term.
type leading struct {
	node          *node
	process, term uint64
}

func newQuotaState(seed uint64) quotaState {
	s := quotaState{rng: rand.New(rand.NewPCG(seed, 0x40a7a))}
	s.used = s.rng.IntN(quotaRuns) == 0
	return s
}

// quota returns the limits of a user's account.
func (w *world) quota(u *sessionUser) session.Quota {
	s := &w.sessions.quota
	switch {
	case !s.used:
		return session.Quota{}
	case u.innocent:
		return session.Quota{Account: u.String(), Sessions: 1, Locks: len(w.sessions.names)}
	}
	return s.now
}

// httpQuota returns the limits of the account that all users over HTTP share.
func (w *world) httpQuota() session.Quota {
	if !w.sessions.quota.used {
		return session.Quota{}
	}
	return session.Quota{Account: "http", Sessions: len(w.sessions.http.users), Locks: max(1, w.sessions.quota.now.Locks)}
}

// changeQuota sets limits at random, and at the end such that everybody comes to its turn.
func (w *world) changeQuota() {
	s := &w.sessions.quota
	if !s.used {
		return
	}
	users := 0
	for _, u := range w.sessions.users {
		if !u.dead && !u.innocent {
			users++
		}
	}
	s.now = session.Quota{Account: "shared", Sessions: users, Locks: 1 + s.rng.IntN(2)}
	if !w.quiet {
		s.now.Sessions = 1 + s.rng.IntN(users+1)
	}
	w.trace("limits: %d sessions, %d locks", s.now.Sessions, s.now.Locks)
	w.after(time.Duration(s.rng.Int64N(int64(40*w.cfg.tick))), w.changeQuota)
}

// limit gives a request to bind the limits of its user.
func (w *world) limit(u *sessionUser, b *session.Bind) {
	b.Quota = w.quota(u)
	u.asked[u.conn.process] = true
	u.quota.sessions, u.quota.locks = max(u.quota.sessions, b.Quota.Sessions), max(u.quota.locks, b.Quota.Locks)
}

// noteBind notes that a leader has bound a session.
func (w *world) noteBind(k *sessionCall) {
	u, n := k.conn.user, k.conn.node
	if k.Bind.ID != u.id || k.Reply.Outcome != session.Alive {
		return
	}
	at := leading{n, n.session, n.replica.Brief().Term}
	if u.quota.begunBy == (leading{}) {
		u.quota.begunBy = at
	}
	if u.innocent || !w.sessions.quota.used {
		return
	}
	begun, limit := 0, 0
	for _, o := range w.sessions.users {
		lives := !o.dead && !o.leaving && o.client.IsBound() && w.clock(o) < o.client.Valid()
		if !o.innocent && o.quota.begunBy == at && (lives || o == u) { // u has not heard of it
			begun++
			limit = max(limit, o.quota.sessions)
		}
	}
	if begun > limit {
		w.fail("quota: %d sessions of an account live that node %d has begun in term %d, and %d are allowed", begun, n.id, at.term, limit)
	}
}

// checkLockQuota checks how many locks a session holds.
func (w *world) checkLockQuota(u *sessionUser) {
	if !w.sessions.quota.used {
		return
	}
	held := 0
	for _, name := range w.sessions.names {
		if token, believes := u.client.Token(name, w.clock(u)); token != 0 && believes {
			held++
		}
	}
	if held > u.quota.locks {
		w.fail("quota: %v holds %d locks, of which %d are allowed", u, held, u.quota.locks)
	}
}

// noteClosed notes that a leader has answered that a session has ended.
func (w *world) noteClosed(k *sessionCall) {
	if n := k.conn.node; k.Reply.Outcome == session.Expired {
		k.conn.user.closedBy = leading{n, n.session, n.replica.Brief().Term}
	}
}

// checkRefusal checks that an innocent is not refused. A new leader may refuse it a session if it was to bind a former one: that request may take effect late, when nobody knows any more that the session has ended.
func (w *world) checkRefusal(k *sessionCall, err *isotone.Error) {
	if err.Code != isotone.CodeQuotaExceeded {
		return
	}
	w.stats.OverQuota++
	u, n := k.conn.user, k.conn.node
	isLate := k.Bind != nil && u.former[n.session] && u.closedBy != leading{n, n.session, n.replica.Brief().Term}
	if u.innocent && !isLate {
		w.fail("quota: %v is refused, whose account is below its limits: %v", u, err)
	}
}
