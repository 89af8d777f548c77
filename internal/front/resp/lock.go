package resp

import (
	"strconv"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/session"
	"github.com/isotone/isotone/internal/front"
)

// This file has LOCK.

// lockUsage is the error for an invalid LOCK command.
const lockUsage = "want LOCK ACQUIRE name [WAIT ms] [VALUE value] [TICKET ticket], LOCK CANCEL name, LOCK RELEASE name token, LOCK GET name, " +
	"LOCK WATCH name [token] [WAIT ms], LOCK LIST [prefix], or LOCK BREAK name token"

// watchWaitMax bounds how long a watch waits, and is how long it waits if it says nothing.
const watchWaitMax = 30 * time.Second

// lockWait is what a command about a lock waits for.
type lockWait struct {
	*session.LockRequest
	// patient: it waits for its grant, for at most this time. Otherwise it is enough to be in the queue.
	patient  bool
	patience time.Duration
	// token and ticket are what the session has been told of the lock, released that it does not hold Token. err is why nothing more will be told.
	token    isotone.Timestamp64
	ticket   isotone.Timestamp
	released bool
	err      error
	// answered is set once the request was answered. Then the timer runs, which has set over when it ends.
	answered, over bool
	timer          *time.Timer
}

// runLock is LOCK.
func (c *conn) runLock(args [][]byte, r *reply) error {
	switch subcommand(args) {
	case "GET", "WATCH", "LIST":
		c.runLockWatch(args, r)
		return nil
	case "TOKEN":
		if c.front.hasRedisLocks() {
			c.runLockToken(args, r)
			return nil
		}
	}
	l, err := parseLock(args)
	if err == nil && l.Op != session.LockBreak { // operators may break all
		err = c.session.RequireName(l.Name)
	}
	q := &front.SessionRequest{}
	answer := (*reply).ok
	if err == nil {
		q.Lock = l.LockRequest
		if l.Op == session.LockAcquire || l.Op == session.LockTry {
			answer = l.place
		}
	}
	w := c.ask(q, answer, err, r)
	switch {
	case w == nil:
	case l.Op == session.LockBreak:
		w.answer = func(r *reply) { r.integer(q.Reply.FreeAfter.Milliseconds()) }
		w.did = "LOCK BREAK " + strconv.Quote(l.Name)
	case l.Op != session.LockCancel:
		w.lock = l
	}
	return nil
}

func badLock() error { return isotone.Errorf(isotone.CodeInvalidArgument, "%s", lockUsage) }

// parseLock reads a command that needs a session.
func parseLock(args [][]byte) (*lockWait, error) {
	if len(args) < 3 || len(args[2]) == 0 {
		return nil, badLock()
	}
	l := &lockWait{LockRequest: &session.LockRequest{Name: string(args[2])}}
	sub, rest := subcommand(args), args[3:]
	switch {
	case sub == "ACQUIRE":
		return l, l.parseAcquire(rest)
	case sub == "CANCEL" && len(rest) == 0:
		l.Op = session.LockCancel
		return l, nil
	case sub == "RELEASE" && len(rest) == 1:
		var err error
		l.Op, l.patience = session.LockRelease, watchWaitMax
		l.Token, err = parseToken(rest[0])
		return l, err
	case sub == lockBreak && len(rest) == 1:
		var err error
		l.Op = session.LockBreak
		l.Token, err = parseToken(rest[0])
		return l, err
	}
	return nil, badLock()
}

// lockBreak is a subcommand for operators.
const lockBreak = "BREAK"

// parseAcquire reads [WAIT ms] [VALUE value] [TICKET ticket], in any order.
func (l *lockWait) parseAcquire(args [][]byte) (err error) {
	l.Op, l.patient, l.patience = session.LockTry, true, watchWaitMax
	value, ticket := false, false
	for ; len(args) >= 2; args = args[2:] {
		switch {
		case is(args[0], "WAIT") && l.Op == session.LockTry:
			l.Op = session.LockAcquire
			var ms time.Duration
			if ms, err = parseMillis(args[1]); ms > 0 {
				l.patience = ms
			}
			l.patient = ms > 0
		case is(args[0], "VALUE") && !value:
			value, l.Value = true, string(args[1])
		case is(args[0], "TICKET") && !ticket:
			ticket = true
			l.Ticket, err = parsePast(args[1])
		default:
			return badLock()
		}
		if err != nil {
			return err
		}
	}
	if len(args) > 0 {
		return badLock()
	}
	return nil
}

func parseToken(arg []byte) (isotone.Timestamp64, error) {
	n, err := strconv.ParseUint(string(arg), 10, 64)
	if err != nil {
		return 0, isotone.Errorf(isotone.CodeInvalidArgument, "token %.40q: want the decimal number that came with the lock", arg)
	}
	return isotone.Timestamp64(n), nil
}

// place appends the token of a lock that is held, or else the ticket of its place in the queue.
func (l *lockWait) place(r *reply) {
	r.array(2)
	if l.token != 0 {
		r.bulk(l.token.String())
		r.null()
		return
	}
	r.null()
	r.bulk(l.ticket.String())
}

// hear notes a message, which may come before the answer to the request.
func (l *lockWait) hear(m session.Message) {
	switch {
	case m.Kind == session.MessageExpired:
		l.err = isotone.ErrSessionExpired
	case m.Kind == session.MessageSuperseded:
		l.err = errSuperseded
	case m.Name != l.Name:
	case m.Kind == session.MessageQueued:
		l.ticket = m.Ticket
	case m.Kind == session.MessageGranted:
		l.token = m.Token
	case m.Kind == session.MessageReleased && m.Token == l.Token:
		l.released = true
	}
}

// lockAnswered is called when the leader has answered a request, so that the session is alive.
func (c *conn) lockAnswered(w *sessionWait) {
	l := w.lock
	for _, h := range w.request.Reply.Holds {
		if h.Name == l.Name && l.Op != session.LockRelease {
			l.token = h.Token
		}
	}
	wait := min(l.patience, c.sessions.ttl/waitShare) - (c.wire.Now() - c.asked)
	l.answered = true
	l.timer = c.front.after(max(0, wait), func() {
		c.front.cfg.Post(func() {
			l.over = true
			if c.awaiting() == w {
				c.lookAtLock(w)
			}
		})
	})
	c.lookAtLock(w)
}

// lookAtLock answers a command about a lock if enough is known. Before its request is answered nothing counts.
func (c *conn) lookAtLock(w *sessionWait) {
	l := w.lock
	queued := l.ticket != (isotone.Timestamp{}) && l.Op != session.LockRelease
	switch {
	case !l.answered:
	case l.token != 0, l.released && l.Op == session.LockRelease:
		c.endSessionWait(nil)
	case l.err != nil:
		c.endSessionWait(l.err)
	case queued && (l.over || !l.patient):
		c.endSessionWait(nil)
	case l.over:
		c.endSessionWait(errNoMessage)
	case c.front.stopped:
		c.endSessionWait(errStopping)
	}
}

// runLockWatch is LOCK GET, WATCH and LIST, which need no session.
func (c *conn) runLockWatch(args [][]byte, r *reply) {
	q, err := parseLockWatch(args)
	switch {
	case err != nil:
	case q.Lock != "":
		err = c.session.RequireName(q.Lock)
	default:
		err = c.session.RequireNamesBelow(q.Prefix)
	}
	answer := func(r *reply) {
		if len(q.Holders) == 0 {
			r.null()
			return
		}
		r.holder(&q.Holders[0], false)
	}
	if subcommand(args) == "LIST" {
		answer = func(r *reply) {
			r.array(len(q.Holders))
			for i := range q.Holders {
				r.holder(&q.Holders[i], true)
			}
		}
	}
	c.watch(q, answer, err, r)
}

func parseLockWatch(args [][]byte) (q *front.SessionWatch, err error) {
	q = &front.SessionWatch{}
	sub, rest := subcommand(args), args[2:]
	if sub == "LIST" {
		if len(rest) > 1 {
			return nil, badLock()
		}
		if len(rest) == 1 {
			q.Prefix = string(rest[0])
		}
		return q, nil
	}
	if len(rest) == 0 || len(rest[0]) == 0 || sub == "GET" && len(rest) > 1 {
		return nil, badLock()
	}
	if q.Lock, rest = string(rest[0]), rest[1:]; sub == "GET" {
		return q, nil
	}
	q.Wait = watchWaitMax
	if len(rest) == 1 || len(rest) == 3 {
		if q.After, err = parseToken(rest[0]); err != nil {
			return nil, err
		}
		rest = rest[1:]
	}
	if len(rest) == 0 {
		return q, nil
	}
	if len(rest) != 2 || !is(rest[0], "WAIT") {
		return nil, badLock()
	}
	q.Wait, err = parseMillis(rest[1])
	q.Wait = min(q.Wait, watchWaitMax)
	return q, err
}

// holder appends who holds a lock.
func (r *reply) holder(h *front.Holder, named bool) {
	if r.dict(4 + int(bit(named))); named {
		r.bulk("name")
		r.bulk(h.Name)
	}
	r.bulk("token")
	r.bulk(h.Token.String())
	r.bulk("value")
	r.bulk(h.Value)
	r.bulk("session")
	r.bulk(front.SessionHash(h.Session))
	r.bulk("label")
	r.bulk(h.Label)
}
