package node

import (
	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/redislock"
	"github.com/isotone/isotone/internal/core/session"
	"github.com/isotone/isotone/internal/front"
)

// Locks of clients of Redis libraries, as the fronts in each loop see them; see front.RedisLocks. Every node keeps those that there are while it leads, also one that is not to
// serve any.

var (
	errReservedSession = isotone.Errorf(isotone.CodeInvalidArgument, "session %016x is reserved for the locks of Redis libraries; use a random ID", uint64(redislock.SessionID))
	errReservedName    = isotone.Errorf(isotone.CodeInvalidArgument, "names of locks that begin with %q are reserved for the locks of Redis libraries; choose another name", redislock.ReservedPrefix)
)

// keeperLeader is the core as the keeper of these locks sees it.
type keeperLeader struct{ *core }

// openKeeper makes the keeper.
func (c *core) openKeeper() {
	c.keeper, c.keeperConn = redislock.NewKeeper(keeperLeader{c}), c.node.newSessionConn()
	c.openSession(c.keeperConn, c.keeper.Told)
}

// Ask implements [redislock.Leader].
func (l keeperLeader) Ask(q session.Request, done func(error)) {
	q.Conn = l.keeperConn
	l.askSession(&front.SessionRequest{Request: q, Done: func(r *front.SessionRequest) { done(r.Err) }})
}

// Holder implements [redislock.Leader].
func (l keeperLeader) Holder(name string) (oracle.Hold, bool) { return l.replica.Holder(name) }

// Holds implements [redislock.Leader].
func (l keeperLeader) Holds(id session.ID) []oracle.Hold { return l.replica.HoldsOf(id) }

// keepRedisLocks tells the keeper who leads, and the time. It is called before a step, so no request counts as having come earlier than it did.
func (c *core) keepRedisLocks() {
	if term, leads := c.replica.SessionTerm(); leads {
		c.keeper.Leads(term, c.mono)
	} else {
		c.keeper.Stop(c.redirect())
	}
}

// askRedisLock hands a request to the keeper.
func (c *core) askRedisLock(r *front.RedisLockRequest) {
	err := c.keeper.Ask(&r.Request, func(err error) { r.Err = err; r.Done(r) })
	if err == error(isotone.ErrNoLeader) {
		err = c.redirect()
	}
	if err != nil {
		c.later(func() { r.Err = err; r.Done(r) })
	}
}

// breaksRedisLock has the keeper break a lock, if it is one of its own, as all of them are of one session.
func (c *core) breaksRedisLock(r *front.SessionRequest) bool {
	if r.Lock == nil || r.Lock.Op != session.LockBreak {
		return false
	}
	if h, _ := c.replica.Holder(r.Lock.Name); session.ID(h.Session) != redislock.SessionID {
		return false
	}
	q := &front.RedisLockRequest{Request: redislock.Request{Op: redislock.Break, Name: r.Lock.Name, Of: r.Lock.Token}}
	q.Done = func(q *front.RedisLockRequest) {
		if r.Err = q.Err; r.Err == nil && !q.Reply.Done {
			r.Err = session.ErrNotHeld
		}
		r.Reply.FreeAfter = q.Reply.Left
		r.Done(r)
	}
	c.askRedisLock(q)
	return true
}

// AskRedisLock hands a request to the keeper.
func (b coreBackend) AskRedisLock(r *front.RedisLockRequest) { b.askRedisLock(r) }

// AskRedisLock has the core take the request, and answers in this loop.
func (b *bundler) AskRedisLock(r *front.RedisLockRequest) {
	done, core := r.Done, b.node.core
	r.Done = func(r *front.RedisLockRequest) { b.host.Post(func() { r.Done = done; done(r) }) }
	if !b.node.post(func() { core.askRedisLock(r) }) {
		r.Err = errStopped
		r.Done(r)
	}
}

var (
	_ front.RedisLocks = coreBackend{}
	_ front.RedisLocks = (*bundler)(nil)
)
