package resp

import (
	"strconv"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/core/redislock"
	"github.com/isotone/isotone/internal/front"
)

// This file has the commands of Redis with which libraries lock. A key is a lock; there are no other keys. Scripts are in script.go.

// databasesMax bounds the databases of SELECT. Redis has 16 unless it is told otherwise. Locks of different databases are different ones.
const databasesMax = 256

// redisUsage is the error for what of Redis is not offered.
const redisUsage = "REDIS_LOCKS offers locks only: SET key value [NX] [PX ms|EX s], GET key, DEL key, EXISTS key, PTTL key, TTL key, PEXPIRE key ms, EXPIRE key s, " +
	"and scripts of some libraries, all with one key"

// redisCommands are the commands that there are with REDIS_LOCKS only.
func redisCommands() []*command {
	write, read, eval := []string{"write", "fast"}, []string{"readonly", "fast"}, []string{"write", "noscript"}
	return []*command{
		{"SET", -3, 1, write, "string", "Takes a lock. With NX only if it is free.", access.Locks, (*conn).runSet},
		{"GET", 2, 1, read, "string", "The value of whoever holds a lock.", access.Locks, (*conn).runOnLock},
		{"DEL", -2, 1, write, "generic", "Frees a lock, whoever holds it.", access.Locks, (*conn).runOnLock},
		{"EXISTS", -2, 1, read, "generic", "Whether a lock is held.", access.Locks, (*conn).runOnLock},
		{"PTTL", 2, 1, read, "generic", "For how many milliseconds a lock is still held.", access.Locks, (*conn).runOnLock},
		{"TTL", 2, 1, read, "generic", "For how many seconds a lock is still held.", access.Locks, (*conn).runOnLock},
		{"PEXPIRE", -3, 1, write, "generic", "Ends a lock so many milliseconds from now.", access.Locks, (*conn).runExpire},
		{"EXPIRE", -3, 1, write, "generic", "Ends a lock so many seconds from now.", access.Locks, (*conn).runExpire},
		{"EVAL", -3, 3, eval, "scripting", "Runs a script of a library for locks, if it is known.", access.Locks, (*conn).runEval},
		{"EVALSHA", -3, 3, eval, "scripting", "Runs such a script by its SHA-1.", access.Locks, (*conn).runEval},
		{"SCRIPT", -3, 0, eval, "scripting", "Loads such a script, or tells which are loaded.", access.Locks, (*conn).runScript},
	}
}

func badRedis() error { return isotone.Errorf(isotone.CodeInvalidArgument, "%s", redisUsage) }

// lockName returns the name of the lock that is a key of the connection's database.
func (c *conn) lockName(key []byte) string {
	if c.database == 0 {
		return string(key)
	}
	return "db" + strconv.Itoa(int(c.database)) + "/" + string(key)
}

// askRedisLock has the connection wait for the answer to q, or answers why not.
func (c *conn) askRedisLock(q redislock.Request, answer func(*reply, *redislock.Request), err error, r *reply) {
	if err == nil {
		err = q.Check()
	}
	if err == nil {
		err = c.session.RequireName(q.Name)
	}
	if err != nil {
		r.b = appendFault(r.b, faultOf(err))
		return
	}
	asked := &front.RedisLockRequest{Request: q}
	w := c.await(&sessionWait{redis: asked, answer: func(r *reply) { answer(r, &asked.Request) }})
	asked.Done = func(q *front.RedisLockRequest) { c.sessionAnswered(w, q.Err) }
}

// runSet is SET.
func (c *conn) runSet(args [][]byte, r *reply) error {
	q := redislock.Request{Op: redislock.Set, Name: c.lockName(args[1]), Value: string(args[2])}
	err := parseSet(&q, args[3:])
	c.askRedisLock(q, (*reply).obtained, err, r)
	return nil
}

// parseSet reads [NX] [PX ms|EX s], in any order.
func parseSet(q *redislock.Request, args [][]byte) (err error) {
	for len(args) > 0 && err == nil {
		switch {
		case is(args[0], "NX") && q.Op == redislock.Set:
			q.Op, args = redislock.Obtain, args[1:]
			continue
		case len(args) < 2 || q.TTL != 0:
			return badRedis()
		case is(args[0], "PX"):
			q.TTL, err = parseTTL(args[1], time.Millisecond)
		case is(args[0], "EX"):
			q.TTL, err = parseTTL(args[1], time.Second)
		default:
			return badRedis()
		}
		if args = args[2:]; err == nil && q.TTL <= 0 {
			err = errNoTime
		}
	}
	return err
}

var errNoTime = isotone.Errorf(isotone.CodeInvalidArgument, "a lock is held for at least 1 ms")

// parseTTL reads a whole number of units, which may be negative.
func parseTTL(arg []byte, unit time.Duration) (time.Duration, error) {
	n, err := strconv.ParseInt(string(arg), 10, 64)
	if most := int64(redislock.TTLMax / unit); err != nil || n > most || n < -most {
		return 0, isotone.Errorf(isotone.CodeInvalidArgument, "%.40q: want a whole number of at most %d, as a lock is held for at most %v, or SET it without a time", arg, most, redislock.TTLMax)
	}
	return time.Duration(n) * unit, nil
}

// runOnLock is a command about one lock, whoever holds it.
func (c *conn) runOnLock(args [][]byte, r *reply) error {
	var err error
	if len(args) != 2 {
		err = badRedis()
	}
	q := redislock.Request{Op: redislock.Read, Name: c.lockName(args[1]), Any: true}
	answer := (*reply).leftMS
	switch {
	case is(args[0], "GET"):
		answer = (*reply).valueOf
	case is(args[0], "DEL"):
		q.Op, answer = redislock.Delete, (*reply).done
	case is(args[0], "EXISTS"):
		answer = func(r *reply, q *redislock.Request) { r.integer(int64(bit(q.Held))) }
	case is(args[0], "TTL"):
		answer = (*reply).leftSeconds
	}
	c.askRedisLock(q, answer, err, r)
	return nil
}

// runExpire is PEXPIRE and EXPIRE.
func (c *conn) runExpire(args [][]byte, r *reply) error {
	q, unit := redislock.Request{Op: redislock.Refresh, Name: c.lockName(args[1]), Any: true}, time.Second
	if is(args[0], "PEXPIRE") {
		unit = time.Millisecond
	}
	err := badRedis()
	if len(args) == 3 {
		q.TTL, err = parseTTL(args[2], unit)
	}
	c.askRedisLock(q, (*reply).done, err, r)
	return nil
}

// runLockToken is LOCK TOKEN key value: the token of a lock that has that value.
func (c *conn) runLockToken(args [][]byte, r *reply) {
	if len(args) != 4 {
		r.b = appendFault(r.b, faultOf(isotone.Errorf(isotone.CodeInvalidArgument, "want LOCK TOKEN key value")))
		return
	}
	c.askRedisLock(redislock.Request{Op: redislock.Read, Name: c.lockName(args[2]), Value: string(args[3])}, func(r *reply, q *redislock.Request) {
		if !q.Done {
			r.null()
			return
		}
		r.bulk(q.Token.String())
	}, nil, r)
}

// obtained appends OK, or null if the lock was not taken.
func (r *reply) obtained(q *redislock.Request) {
	if q.Done {
		r.ok()
		return
	}
	r.null()
}

func (r *reply) valueOf(q *redislock.Request) {
	if !q.Held {
		r.null()
		return
	}
	r.bulk(q.Reply.Value)
}

func (r *reply) done(q *redislock.Request) { r.integer(int64(bit(q.Done))) }

func (r *reply) leftMS(q *redislock.Request) { r.left(q, time.Millisecond) }

func (r *reply) leftSeconds(q *redislock.Request) { r.left(q, time.Second) }

// left appends what is left of the time of a lock, rounded up, -1 if it has no end, -2 if nobody holds it.
func (r *reply) left(q *redislock.Request, unit time.Duration) {
	switch {
	case !q.Held:
		r.integer(-2)
	case q.Forever:
		r.integer(-1)
	default:
		r.integer(int64((q.Left + unit - 1) / unit))
	}
}
