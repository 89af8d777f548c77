package resp

import (
	"bytes"
	"errors"
	"strconv"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/core/frontier"
	"github.com/isotone/isotone/internal/core/session"
	"github.com/isotone/isotone/internal/front"
)

// This file has SESSION, and what LOCK and FRONTIER have in common with it: a command waits for the core, and what that tells besides is pushed to clients of RESP3.

const (
	sessionCommand, lockCommand, frontierCommand = "SESSION", "LOCK", "FRONTIER"

	sessionUsage = "want SESSION BIND id epoch TTL ms [LINGER ms] [GROUP name low high]..., SESSION KEEP [LOW group stamp]... [DOUBT group stamp]... " +
		"[SEALED group stamp]... [TAKE group count [AHEAD] [U64]], or SESSION CLOSE"

	// saidMax bounds the stamps that one SESSION KEEP tells.
	saidMax = 64
	// waitFraction: LOCK ACQUIRE waits for a TTL / waitFraction at most, as it does not keep the session alive meanwhile.
	waitFraction = 4
	// waitMax bounds the wait of the other commands.
	waitMax = 30 * time.Second
)

var (
	errNoSessions = isotone.Errorf(isotone.CodeNotFound, "sessions are not served here; connect to a member of the cluster")
	errNotBound   = isotone.Errorf(isotone.CodeNotBound, "this connection has no session; send SESSION BIND first")
	// errUnread ends a connection whose client does not read what it is told.
	errUnread = errors.New("the client does not read what it is told of its session")
)

// isOfSessions reports whether a command is about sessions, locks or frontiers.
func isOfSessions(name string) bool {
	return name == sessionCommand || name == lockCommand || name == frontierCommand
}

// sessionConn is what a connection knows of its session.
type sessionConn struct {
	conn session.Conn // 0: there was none yet
	ttl  time.Duration
	// asking is the command that waits, nil for none.
	asking *asking
}

// asking is a command about sessions, locks or frontiers. It has a request, or a watch, which the backend owns until that is done.
type asking struct {
	request front.SessionRequest
	watch   *front.SessionWatch
	// wait is for how long it waits for a grant after it was answered; timer ends that.
	wait     time.Duration
	timer    *time.Timer
	answered bool
	// granted, ticket and released are what was told of its lock.
	granted  isotone.Timestamp64
	ticket   isotone.Timestamp
	released bool
	// reply appends the answer. It is called if there is no error.
	reply func(a *asking, r *reply)
}

// asking returns the command that waits, nil for none.
func (c *conn) asking() *asking {
	if c.sessions == nil {
		return nil
	}
	return c.sessions.asking
}

// ask has the connection wait for a request or a watch, unless err says why it is wrong.
func (c *conn) ask(a *asking, err error, r *reply) {
	if c.sessions == nil {
		c.sessions = &sessionConn{}
	}
	switch {
	case err != nil:
	case c.front.cfg.Sessions == nil:
		err = errNoSessions
	case a.watch == nil && a.request.Bind == nil && c.sessions.conn == 0:
		err = errNotBound
	default:
		err = c.session.Charge(1, a.request.Count)
	}
	if err != nil {
		e := faultOf(err)
		r.b = appendFault(r.b, e)
		c.front.observe(string(e.Code), 1, 0)
		return
	}
	c.sessions.asking = a
}

// askSessions hands over what a command asks for.
func (c *conn) askSessions() {
	a := c.sessions.asking
	c.asked = c.wire.Now()
	c.waiting = true
	if w := a.watch; w != nil {
		w.Done = func(w *front.SessionWatch) { c.sessionsAnswered(a, w.Err) }
		c.front.cfg.Sessions.WatchSessions(w)
		return
	}
	if c.sessions.conn == 0 {
		c.sessions.conn = c.front.cfg.Sessions.OpenSession(c.told)
	}
	a.request.Conn = c.sessions.conn
	a.request.Done = func(q *front.SessionRequest) { c.sessionsAnswered(a, q.Err) }
	c.front.cfg.Sessions.AskSession(&a.request)
}

// sessionsAnswered notes the answer of the core. The command may wait for more.
func (c *conn) sessionsAnswered(a *asking, err error) {
	if c.sessions.asking != a {
		return // it has been given up
	}
	if a.answered = true; err != nil || c.closed {
		c.endAsking(err)
		return
	}
	if q := &a.request; q.Bind != nil {
		c.sessions.ttl = q.Bind.TTL
	} else if q.Close {
		c.leaveSession()
	}
	if !c.isComplete(a) && a.wait > 0 {
		a.timer = c.front.after(a.wait, func() {
			c.front.cfg.Post(func() {
				if c.sessions.asking == a {
					c.endAsking(nil)
				}
			})
		})
		return
	}
	c.endIfComplete()
}

// isComplete reports whether a command waits for nothing any more.
func (c *conn) isComplete(a *asking) bool {
	q := a.request.Lock
	switch {
	case !a.answered:
		return false
	case q == nil || q.Op == session.LockCancel:
		return true
	case q.Op == session.LockRelease:
		return a.released
	}
	return a.granted != 0 || len(a.request.Reply.Holds) > 0 || a.wait == 0 && a.ticket != isotone.Timestamp{}
}

func (c *conn) endIfComplete() {
	if a := c.asking(); a != nil && c.isComplete(a) {
		c.endAsking(nil)
	}
}

// told handles a message of the core.
func (c *conn) told(m session.Message) {
	if c.closed {
		return
	}
	if c.resp3 {
		if c.wire.Choked() {
			c.wire.Close(errUnread)
			return
		}
		r := reply{b: c.wire.Buffered(), v3: true}
		r.message(&m)
		c.wire.SetBuffered(r.b)
	}
	a := c.asking()
	if a == nil || a.watch != nil {
		return
	}
	ends := m.Kind == session.MessageExpired || m.Kind == session.MessageSuperseded
	if ends && a.answered {
		c.endAsking(errNotBound) // what it waits for does not come
		return
	}
	if q := a.request.Lock; q != nil && q.Name == m.Name {
		switch m.Kind {
		case session.MessageGranted:
			a.granted = m.Token
		case session.MessageQueued:
			a.ticket = m.Ticket
		case session.MessageReleased:
			a.released = a.released || m.Token == q.Token
		}
	}
	c.endIfComplete()
}

// endAsking answers the command that waits.
func (c *conn) endAsking(err error) {
	a := c.sessions.asking
	c.sessions.asking = nil
	if a.timer != nil {
		a.timer.Stop()
	}
	c.waiting = false
	code := codeOK
	r := reply{b: c.wire.Buffered(), v3: c.resp3}
	switch {
	case c.closed:
		code = string(isotone.CodeDeadlineExceeded)
	case err != nil:
		e := faultOf(err)
		code, r.b = string(e.Code), appendFault(r.b, e)
	default:
		c.session.Used(1, a.request.Count)
		a.reply(a, &r)
	}
	c.front.observe(code, 1, c.wire.Now()-c.asked)
	if c.closed {
		return
	}
	c.wire.SetBuffered(r.b)
	c.goOn()
}

// leaveSession ends the connection of the session.
func (c *conn) leaveSession() {
	if c.sessions != nil && c.sessions.conn != 0 {
		c.front.cfg.Sessions.CloseSession(c.sessions.conn)
		c.sessions.conn = 0
	}
}

// closeSession notes that the connection has ended.
func (c *conn) closeSession() {
	c.leaveSession()
	if a := c.asking(); a != nil && a.answered { // the others are answered still
		c.endAsking(nil)
	}
}

func replyOK(_ *asking, r *reply) { r.ok() }

// runSession is SESSION.
func (c *conn) runSession(args [][]byte, r *reply) error {
	a, err := &asking{reply: replyOK}, error(nil)
	switch subcommand(args) {
	case "BIND":
		if a.request.Bind, err = parseBind(args[2:]); err == nil && len(a.request.Bind.Reports) > 0 {
			err = c.session.Require(access.Frontier)
		}
		a.reply = replyBind
	case "KEEP":
		err = parseKeep(&a.request, args[2:])
		if a.request.Count > 0 {
			a.reply = replyTake
		}
	case "CLOSE":
		if a.request.Close = true; len(args) > 2 {
			err = errUsage(sessionUsage)
		}
	default:
		err = errUsage(sessionUsage)
	}
	c.ask(a, err, r)
	return nil
}

func errUsage(usage string) error { return isotone.Errorf(isotone.CodeInvalidArgument, "%s", usage) }

// parseBind reads id epoch TTL ms [LINGER ms] [GROUP name low high]...
func parseBind(args [][]byte) (*session.Bind, error) {
	if len(args) < 4 || !is(args[2], "TTL") {
		return nil, errUsage(sessionUsage)
	}
	id, err := strconv.ParseUint(string(args[0]), 16, 64)
	if err != nil || len(args[0]) != 16 || id == 0 {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "session %.40q: want 16 hexadecimal digits, not all 0", args[0])
	}
	epoch, err := strconv.ParseUint(string(args[1]), 10, 32)
	if err != nil {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "epoch %.40q: want a whole number of 32 bits, larger than that of the connection before", args[1])
	}
	b := &session.Bind{ID: session.ID(id), Epoch: uint32(epoch)}
	if b.TTL, err = parseMillis(args[3]); err != nil {
		return nil, err
	}
	b.Linger = b.TTL
	for args = args[4:]; len(args) > 0; {
		switch {
		case len(args) > 1 && is(args[0], "LINGER"):
			if b.Linger, err = parseMillis(args[1]); err != nil {
				return nil, err
			}
			args = args[2:]
		case len(args) > 3 && is(args[0], "GROUP"):
			report := frontier.Report{Group: string(args[1])}
			var errHigh error
			report.Low, err = parseStamp(args[2])
			report.High, errHigh = parseStamp(args[3])
			if err = errors.Join(err, errHigh); err != nil {
				return nil, isotone.Errorf(isotone.CodeInvalidArgument, "%s", err)
			}
			b.Reports = append(b.Reports, report)
			args = args[4:]
		default:
			return nil, errUsage(sessionUsage)
		}
	}
	return b, nil
}

// parseMillis reads a number of milliseconds, up to a day.
func parseMillis(arg []byte) (time.Duration, error) {
	n, err := strconv.ParseUint(string(arg), 10, 64)
	if err != nil || n > 86_400_000 {
		return 0, isotone.Errorf(isotone.CodeInvalidArgument, "%.40q: want a number of milliseconds", arg)
	}
	return time.Duration(n) * time.Millisecond, nil
}

// parseStamp reads 32 hexadecimal digits.
func parseStamp(arg []byte) (isotone.Timestamp, error) {
	t, err := isotone.ParseTimestamp(string(arg))
	if err != nil {
		return t, isotone.Errorf(isotone.CodeInvalidArgument, "stamp %.40q: want 32 hexadecimal digits", arg)
	}
	return t, nil
}

// parseKeep reads [LOW group stamp]... [DOUBT group stamp]... [SEALED group stamp]... [TAKE group count [AHEAD] [U64]].
func parseKeep(q *front.SessionRequest, args [][]byte) error {
	for said := 0; len(args) > 0; said++ {
		if is(args[0], "TAKE") {
			return parseTake(q, args[1:], true)
		}
		var list *[]session.GroupStamp
		switch word := bytes.ToUpper(args[0][:min(len(args[0]), nameMax)]); string(word) {
		case "LOW":
			list = &q.Lows
		case "DOUBT":
			list = &q.Doubts
		case "SEALED":
			list = &q.Sealed
		}
		if list == nil || len(args) < 3 {
			return errUsage(sessionUsage)
		}
		if said == saidMax {
			return isotone.Errorf(isotone.CodeInvalidArgument, "one SESSION KEEP has at most %d stamps; send several", saidMax)
		}
		stamp, err := parseStamp(args[2])
		if err != nil {
			return err
		}
		*list = append(*list, session.GroupStamp{Group: string(args[1]), Stamp: stamp})
		args = args[3:]
	}
	return nil
}

// replyBind appends what a session holds, and where the frontiers of its groups are.
func replyBind(a *asking, r *reply) {
	r.dict(2)
	r.bulk("holds")
	r.array(len(a.request.Reply.Holds))
	for _, h := range a.request.Reply.Holds {
		r.array(2)
		r.bulk(h.Name)
		r.token(h.Token)
	}
	r.bulk("frontiers")
	r.array(len(a.request.Reply.Frontiers))
	for _, f := range a.request.Reply.Frontiers {
		r.array(2)
		r.bulk(f.Group)
		r.stamp(f.Stamp)
	}
}

// token appends a token in decimal, stamp a stamp as 32 hexadecimal digits.
func (r *reply) token(t isotone.Timestamp64) {
	r.bulkBytes(strconv.AppendUint(nil, uint64(t), 10))
}

func (r *reply) stamp(t isotone.Timestamp) { r.bulk(t.String()) }

// message appends a message of a session as a push.
func (r *reply) message(m *session.Message) {
	push := func(kind string, n int) {
		r.head('>', int64(2+n))
		r.bulk("session")
		r.bulk(kind)
	}
	switch m.Kind {
	case session.MessageSeal:
		push("seal", 2)
		r.bulk(m.Group)
		r.stamp(m.Through)
	case session.MessageFenced:
		push("fenced", 3)
		r.bulk(m.Group)
		r.stamp(m.Low)
		r.stamp(m.Through)
	case session.MessageExpired:
		push("expired", 0)
	case session.MessageSuperseded:
		push("superseded", 0)
	case session.MessageQueued:
		push("queued", 2)
		r.bulk(m.Name)
		r.stamp(m.Ticket)
	case session.MessageGranted:
		push("granted", 2)
		r.bulk(m.Name)
		r.token(m.Token)
	case session.MessageReleased:
		push("released", 2)
		r.bulk(m.Name)
		r.token(m.Token)
	}
}
