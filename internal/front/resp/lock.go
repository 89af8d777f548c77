package resp

import (
	"fmt"
	"strconv"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/session"
	"github.com/isotone/isotone/internal/front"
)

// This file has LOCK.

const lockUsage = "want LOCK ACQUIRE name [WAIT ms] [VALUE value] [TICKET ticket], LOCK CANCEL name, LOCK RELEASE name token, LOCK GET name, LOCK WATCH name [token] [WAIT ms], or LOCK LIST [prefix]"

// runLock is LOCK.
func (c *conn) runLock(args [][]byte, r *reply) error {
	a, err := &asking{reply: replyOK}, error(nil)
	sub := subcommand(args)
	if len(args) < 3 && sub != "LIST" {
		c.ask(a, errUsage(lockUsage), r)
		return nil
	}
	rest := args[min(len(args), 3):]
	name := ""
	if len(args) > 2 {
		name = string(args[2])
	}
	q := &session.LockRequest{Name: name}
	a.request.Lock = q
	switch sub {
	case "ACQUIRE":
		a.reply = replyAcquire
		err = parseAcquire(a, rest)
		if c.sessions != nil {
			a.wait = min(a.wait, c.sessions.ttl/waitFraction)
		}
	case "CANCEL":
		if q.Op = session.LockCancel; len(rest) > 0 {
			err = errUsage(lockUsage)
		}
	case "RELEASE":
		q.Op = session.LockRelease
		err = errUsage(lockUsage)
		if len(rest) == 1 {
			q.Token, err = parseToken(rest[0])
		}
	default:
		a.request.Lock = nil
		a.watch, err = parseLockWatch(sub, name, rest)
		a.reply = replyHolder
		if sub == "LIST" {
			a.reply = replyHolders
		}
	}
	c.ask(a, err, r)
	return nil
}

func parseToken(arg []byte) (isotone.Timestamp64, error) {
	n, err := strconv.ParseUint(string(arg), 10, 64)
	if err != nil {
		return 0, isotone.Errorf(isotone.CodeInvalidArgument, "token %.40q: want a whole number of 64 bits in decimal", arg)
	}
	return isotone.Timestamp64(n), nil
}

// parseAcquire reads [WAIT ms] [VALUE value] [TICKET ticket].
func parseAcquire(a *asking, args [][]byte) (err error) {
	q := a.request.Lock
	a.wait = waitMax // until a lock that is free is granted
	for q.Op = session.LockTry; len(args) > 0 && err == nil; args = args[2:] {
		switch {
		case len(args) < 2:
			return errUsage(lockUsage)
		case is(args[0], "WAIT"):
			q.Op = session.LockAcquire
			a.wait, err = parseMillis(args[1])
		case is(args[0], "VALUE"):
			q.Value = string(args[1])
		case is(args[0], "TICKET"):
			q.Ticket, err = parseStamp(args[1])
		default:
			return errUsage(lockUsage)
		}
	}
	return err
}

// parseLockWatch reads what is behind GET, WATCH or LIST and the name.
func parseLockWatch(sub, name string, args [][]byte) (w *front.SessionWatch, err error) {
	w = &front.SessionWatch{Lock: name}
	switch sub {
	case "GET":
	case "LIST":
		w.Lock, w.Prefix = "", name
	case "WATCH":
		w.Wait = waitMax
		if len(args) > 0 && !is(args[0], "WAIT") {
			if w.After, err = parseToken(args[0]); err != nil {
				return w, err
			}
			args = args[1:]
		}
		if len(args) == 2 && is(args[0], "WAIT") {
			var wait time.Duration
			wait, err = parseMillis(args[1])
			w.Wait, args = min(wait, waitMax), nil
		}
	default:
		return w, errUsage(lockUsage)
	}
	if err == nil && (len(args) > 0 || sub != "LIST" && name == "") {
		err = errUsage(lockUsage)
	}
	return w, err
}

// replyAcquire appends the token of a lock that is held, and otherwise the ticket of who waits.
func replyAcquire(a *asking, r *reply) {
	for _, h := range a.request.Reply.Holds {
		a.granted = h.Token
	}
	r.array(2)
	if a.granted != 0 {
		r.token(a.granted)
		r.null()
		return
	}
	r.null()
	if a.ticket == (isotone.Timestamp{}) {
		r.null()
		return
	}
	r.stamp(a.ticket)
}

// replyHolder appends who holds a lock, or null.
func replyHolder(a *asking, r *reply) {
	if len(a.watch.Holders) == 0 {
		r.null()
		return
	}
	r.holder(&a.watch.Holders[0], false)
}

func replyHolders(a *asking, r *reply) {
	r.array(len(a.watch.Holders))
	for i := range a.watch.Holders {
		r.holder(&a.watch.Holders[i], true)
	}
}

// holder appends names and values.
func (r *reply) holder(h *front.Holder, named bool) {
	if named {
		r.dict(4)
		r.bulk("name")
		r.bulk(h.Name)
	} else {
		r.dict(3)
	}
	r.bulk("token")
	r.token(h.Token)
	r.bulk("value")
	r.bulk(h.Value)
	r.bulk("session")
	r.bulk(fmt.Sprintf("%016x", h.Session))
}
