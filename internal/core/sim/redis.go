package sim

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/redislock"
	"github.com/isotone/isotone/internal/core/session"
)

// Users of Redis libraries, whose locks a keeper on each node keeps while that leads. The checks: nobody else believes in a lock in which a user believes, be it of a session or of
// a Redis library; and a write under a token in which a user believes is not refused by the store. A user believes from when it sent the request until the time of the lock has passed
// by its own clock.

// redisState is the part of the world that has to do with locks of Redis libraries.
type redisState struct {
	used  bool
	names []string
	users []*redisUser
	// taken are those that were taken since the last fault.
	taken map[string]bool
}

// redisUser is a client of a Redis library that uses one lock.
type redisUser struct {
	number int
	name   string
	rate   float64
	ttl    time.Duration // 0: for ever
	target *node
	// extends is set if it extends the time of its locks, and refreshes none, nor obtains one again: such a request, if it is late, would shorten what was extended since.
	extends bool
	// value is by what it knows the lock as its own, until when it believes that it has it, by its clock.
	value string
	until time.Duration
	token isotone.Timestamp64 // 0: not known
	// values counts its values, calls its requests, of which only the latest may be under way.
	values, calls uint64
	waits         bool
}

// forever is later than any time by the clock of a user.
const forever = time.Duration(math.MaxInt64)

// openKeeper makes the keeper of a process.
func (w *world) openKeeper(n *node) {
	if !w.sessions.redis.used {
		return
	}
	w.sessions.last++
	n.keeper, n.keeperConn = redislock.NewKeeper(keeperLeader{w, n}), w.sessions.last
}

// keeperLeader is a node as its keeper sees it.
type keeperLeader struct {
	*world
	node *node
}

// Ask implements [redislock.Leader].
func (l keeperLeader) Ask(q session.Request, done func(error)) {
	q.Conn = l.node.keeperConn
	l.arrive(l.node, &call{session: &sessionCall{Call: &session.Call{Request: q}, done: done}})
}

// Holder implements [redislock.Leader].
func (l keeperLeader) Holder(name string) (oracle.Hold, bool) { return l.node.replica.Holder(name) }

// Holds implements [redislock.Leader].
func (l keeperLeader) Holds(id session.ID) []oracle.Hold { return l.node.replica.HoldsOf(id) }

// keepRedisLocks gives the keeper what has come, before a step, as a node does.
func (w *world) keepRedisLocks(n *node, arrived []func(), mono time.Duration) {
	for _, ask := range arrived {
		ask()
	}
	if n.keeper == nil {
		return
	}
	if term, leads := n.replica.SessionTerm(); leads {
		n.keeper.Leads(term, mono)
	} else {
		n.keeper.Stop(isotone.ErrNoLeader)
	}
}

// runRedis starts the users, and an operator.
func (w *world) runRedis() {
	r := &w.sessions.redis
	if !r.used {
		return
	}
	rng := w.sessions.rng
	for i := range 2 + rng.IntN(3) {
		u := &redisUser{number: i, name: r.names[rng.IntN(len(r.names))], rate: 1 + clockDriftMax*(2*rng.Float64()-1)}
		if i == 0 {
			u.name, u.rate = r.names[0], 1-clockDriftMax
		}
		if u.extends = rng.IntN(3) == 0; rng.IntN(8) > 0 {
			u.ttl = time.Duration(5+rng.IntN(30)) * w.cfg.tick
		}
		r.users = append(r.users, u)
		w.runRedisUser(u)
	}
	w.breakRedisLocks()
}

func (u *redisUser) clock(w *world) time.Duration { return time.Duration(float64(w.now) * u.rate) }

func (u *redisUser) String() string { return fmt.Sprintf("user %d of a Redis library", u.number) }

func (u *redisUser) believes(w *world, name string) (isotone.Timestamp64, bool) {
	return u.token, u.name == name && u.clock(w) < u.until
}

// hasLock reports whether a user believes in its lock.
func (u *redisUser) hasLock(w *world) bool {
	_, believes := u.believes(w, u.name)
	return believes
}

// runRedisUser has a user do something now and then, unless it waits for an answer.
func (w *world) runRedisUser(u *redisUser) {
	w.after(time.Duration(1+w.sessions.rng.Int64N(int64(4*w.cfg.tick))), func() {
		if w.closing {
			return
		}
		if !u.waits {
			w.useRedisLock(u)
		}
		w.runRedisUser(u)
	})
}

func (w *world) useRedisLock(u *redisUser) {
	rng := w.sessions.rng
	q := &redislock.Request{Name: u.name, Value: u.value, TTL: u.ttl}
	believes := u.hasLock(w)
	switch draw := rng.IntN(10); {
	case !believes && u.value != "" && draw < 2 && !u.extends: // it may have the lock, as an answer may have been lost
		q.Op = redislock.ObtainOrRefresh
	case !believes:
		u.values++
		former := u.value
		u.value, u.token = fmt.Sprintf("%d:%d", u.number, u.values), 0
		if q.Op, q.Value = redislock.Obtain, u.value; former != "" && draw < 5 && !u.extends {
			q.Op, q.Prefix = redislock.ObtainAgain, len(fmt.Sprint(u.number))+1
		}
	case draw < 3 && u.token != 0:
		w.writeUnderRedisLock(u)
		return
	case draw < 4:
		q.Op = redislock.Read
	case draw < 8 && u.ttl > 0 && u.extends && u.until-u.clock(w) < 2*u.ttl: // what it leaves behind has to end some time
		q.Op = redislock.Extend
	case draw < 8 && u.ttl > 0 && !u.extends:
		q.Op = redislock.Refresh
	case draw < 9:
		q.Op = redislock.Delete
		u.value, u.until = "", 0 // a late Delete must not meet a later lock of the same value
	default:
		return
	}
	w.askRedis(u, q)
}

// askRedis sends a request, which may be lost, as may its answer.
func (w *world) askRedis(u *redisUser, q *redislock.Request) {
	rng := w.sessions.rng
	if u.target == nil || rng.IntN(20) == 0 {
		u.target = w.nodes[rng.IntN(len(w.nodes))]
		if l := w.leader(); l != nil && rng.IntN(4) > 0 {
			u.target = l
		}
	}
	n, process := u.target, u.target.session
	u.calls++
	u.waits = true
	this, sent := u.calls, u.clock(w)
	w.trace("%v asks node %d about %q: %d %q for %v", u, n.id, q.Name, q.Op, q.Value, q.TTL)
	lost := func() bool { return !w.quiet && rng.IntN(40) == 0 }
	if !lost() {
		w.after(w.redisTransit(), func() {
			if !n.up() || n.session != process {
				return
			}
			n.in.redis = append(n.in.redis, func() {
				answer := func(err error) {
					if !lost() {
						w.after(w.redisTransit(), func() { w.finishRedis(u, this, q, sent, err) })
					}
				}
				if err := n.keeper.Ask(q, answer); err != nil {
					answer(err)
				}
			})
			w.wake(n)
		})
	}
	w.after(time.Duration(1+rng.IntN(timeoutMax))*w.cfg.tick, func() { w.finishRedis(u, this, q, sent, errConnectionLost) })
}

func (w *world) redisTransit() time.Duration {
	rng := w.sessions.rng
	d := 20*time.Microsecond + time.Duration(rng.Int64N(int64(time.Millisecond)))
	if rng.IntN(30) == 0 {
		d += time.Duration(rng.Int64N(int64(20 * w.cfg.tick)))
	}
	return d
}

// finishRedis handles an answer, unless there was another one.
func (w *world) finishRedis(u *redisUser, this uint64, q *redislock.Request, sent time.Duration, err error) {
	if !u.waits || u.calls != this {
		return
	}
	u.waits = false
	if err != nil {
		if u.target = nil; q.Op == redislock.ObtainAgain {
			u.until = 0 // it does not know the value
		}
		return
	}
	w.stats.RedisAnswers++
	w.trace("%v is answered: %d %q: %v", u, q.Op, q.Value, q.Reply)
	if !q.Done && u.until == forever {
		u.until = 0
	}
	if !q.Done || q.Op == redislock.Delete {
		return
	}
	switch q.Op {
	case redislock.Read:
		u.token = q.Token
		return
	case redislock.Extend:
		if u.hasLock(w) {
			u.until += q.TTL
		}
		u.until = max(u.until, sent+q.TTL)
	case redislock.Refresh:
		u.until = max(u.until, sent+q.TTL)
	default:
		u.token = 0 // it may be another one
		if u.until = sent + q.TTL; q.TTL == 0 {
			u.until = forever
		}
		w.sessions.redis.taken[u.name] = true
		w.stats.RedisLocks++
		w.note('l', uint64(u.number), u.values)
		w.trace("%v has the lock %q, as %q for %v", u, u.name, q.Value, u.ttl)
	}
	w.checkBelief(u)
}

// writeUnderRedisLock sends a write to the store, where it arrives at any time.
func (w *world) writeUnderRedisLock(u *redisUser) {
	token := u.token
	w.after(time.Duration(w.sessions.rng.Int64N(int64(10*w.cfg.tick))), func() {
		w.stats.LockedWrites++
		if w.sessions.stores.writeLocked(u.name, token) {
			return
		}
		w.stats.LockedFenced++
		if u.hasLock(w) && u.token == token {
			w.fail("R6: %v has the lock %q with the token %v, and its store refuses that", u, u.name, token)
		}
	})
}

// breakRedisLocks has an operator break locks now and then, but none that a user holds for ever, or may be about to.
func (w *world) breakRedisLocks() {
	rng := w.sessions.rng
	w.after(time.Duration(rng.Int64N(int64(60*w.cfg.tick))), func() {
		if w.closing {
			return
		}
		w.breakRedisLocks()
		n := w.leader()
		if n == nil {
			return
		}
		name := w.sessions.redis.names[rng.IntN(len(w.sessions.redis.names))]
		h, held := n.replica.Holder(name)
		eternal := slices.ContainsFunc(w.sessions.redis.users, func(u *redisUser) bool { return u.name == name && u.ttl == 0 && (u.until == forever || u.waits) })
		if !held || session.ID(h.Session) != redislock.SessionID || eternal {
			return
		}
		w.trace("an operator breaks %q, of a Redis library, with the token %v", name, h.Token)
		q := &redislock.Request{Op: redislock.Break, Name: name, Of: h.Token}
		process := n.session
		n.in.redis = append(n.in.redis, func() {
			if n.session == process {
				_ = n.keeper.Ask(q, func(error) {}) // it tries again
			}
		})
		w.wake(n)
	})
}

// forgetForever has the users forget what they hold for ever. A restored cluster has no holds, and grants locks after a minute.
func (w *world) forgetForever() {
	for _, u := range w.sessions.redis.users {
		if u.until == forever {
			u.until = 0
		}
	}
}

// silentRedis returns a lock that nobody has taken since the last fault, or "".
func (w *world) silentRedis() string {
	r := &w.sessions.redis
	for _, u := range r.users {
		if w.loss.restored == 0 && u.name == r.names[0] && !r.taken[u.name] && u.until != forever {
			return "no Redis library has taken the lock " + u.name
		}
	}
	return ""
}
