package resp

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/core/frontier"
	"github.com/isotone/isotone/internal/core/session"
	"github.com/isotone/isotone/internal/front"
)

// This file has SESSION, and what it has in common with LOCK and FRONTIER. Such a command has the connection wait until the leader has answered, and some until the leader has
// sent a message besides. In RESP3 all messages are pushed, also those that a command waits for, between two answers. In RESP2 the others are dropped.

// The commands about sessions.
const sessionCommand, lockCommand, frontierCommand = "SESSION", "LOCK", "FRONTIER"

// sessionUsage is the error for an invalid SESSION command.
const sessionUsage = "want SESSION BIND id epoch TTL ms [LINGER ms] [LABEL label] [GROUP group low high]…, SESSION KEEP [LOW group stamp]… [DOUBT group stamp]… [SEALED group stamp]… " +
	"[TAKE group count [AHEAD] [U64]], or SESSION CLOSE"

const (
	// saidMax bounds what one command says of stamps.
	saidMax = 64
	// pushMax bounds the unsent output of a connection to which a message is pushed. The session of a client that does not read ends anyway, as its requests are not read either.
	pushMax = 4 << 20
	// waitShare is the part of the TTL of its session that a command about a lock waits at most, as the session is not kept alive meanwhile.
	waitShare = 4
)

var (
	errNoSessions  = isotone.Errorf(isotone.CodeNotFound, "sessions are not served here; connect to a member")
	errUnbound     = isotone.Errorf(isotone.CodeNotBound, "this connection has no session; send SESSION BIND first")
	errSuperseded  = isotone.Errorf(isotone.CodeNotBound, "a later connection has bound the session")
	errNoMessage   = isotone.Errorf(isotone.CodeDeadlineExceeded, "the leader has not said in time what came of it; send the command again")
	errDoesNotRead = errors.New("the client does not read the messages to its session")
)

// sessions is what a connection has to do with them.
type sessions struct {
	// bound is the connection's number as that of a session that it has bound, or tried to; 0: none. ttl is 0 before it is bound.
	bound session.Conn
	ttl   time.Duration
	// awaiting is what the backend has, or gets after the command; nil: nothing.
	awaiting *sessionWait
}

// sessionWait is a command about sessions that waits.
type sessionWait struct {
	// request, watch or redis is what the backend was asked; the others are nil.
	request *front.SessionRequest
	watch   *front.SessionWatch
	redis   *front.RedisLockRequest
	// answer appends the answer once that has succeeded.
	answer func(*reply)
	// lock is what is waited for besides; nil: nothing.
	lock *lockWait
	// did is what an operator does, for the log; "": nothing.
	did string
}

// runSession is SESSION.
func (c *conn) runSession(args [][]byte, r *reply) error {
	q := &front.SessionRequest{}
	var err error
	switch sub := subcommand(args); {
	case sub == "BIND":
		q.Bind, err = parseBind(args[2:])
		q.Account = c.session.Account()
	case sub == "KEEP":
		err = parseKeep(q, args[2:])
	case sub == "CLOSE" && len(args) == 2:
		q.Close = true
	default:
		err = badSession()
	}
	if err == nil && (q.Bind != nil && len(q.Bind.Reports) > 0 || q.Group != "" || len(q.Lows)+len(q.Doubts)+len(q.Sealed) > 0) {
		err = c.session.Require(access.Frontier)
	}
	if err == nil {
		err = c.session.RequireName(groupsOf(q)...)
	}
	c.ask(q, func(r *reply) { c.answerSession(q, r) }, err, r)
	return nil
}

// groupsOf returns the groups that a request names.
func groupsOf(q *front.SessionRequest) (list []string) {
	if q.Group != "" {
		list = append(list, q.Group)
	}
	if q.Bind != nil {
		for _, report := range q.Bind.Reports {
			list = append(list, report.Group)
		}
	}
	for _, said := range [][]session.GroupStamp{q.Lows, q.Doubts, q.Sealed} {
		for _, s := range said {
			list = append(list, s.Group)
		}
	}
	return list
}

func badSession() error { return isotone.Errorf(isotone.CodeInvalidArgument, "%s", sessionUsage) }

// parseBind reads id epoch TTL ms [LINGER ms] [LABEL label] [GROUP group low high]….
func parseBind(args [][]byte) (*session.Bind, error) {
	if len(args) < 4 || !is(args[2], "TTL") {
		return nil, badSession()
	}
	id, err := strconv.ParseUint(string(args[0]), 16, 64)
	if err != nil || len(args[0]) != 16 || id == 0 {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "id %.40q: want 16 hexadecimal digits of a random number, which is not 0", args[0])
	}
	epoch, err := strconv.ParseUint(string(args[1]), 10, 32)
	if err != nil {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "epoch %.40q: want a whole number of 32 bits, larger with each connection of the session", args[1])
	}
	b := &session.Bind{ID: session.ID(id), Epoch: uint32(epoch)}
	if b.TTL, err = parseMillis(args[3]); err != nil {
		return nil, err
	}
	b.Linger = b.TTL
	if args = args[4:]; len(args) >= 2 && is(args[0], "LINGER") {
		if b.Linger, err = parseMillis(args[1]); err != nil {
			return nil, err
		}
		args = args[2:]
	}
	if len(args) >= 2 && is(args[0], "LABEL") {
		b.Label = string(args[1])
		args = args[2:]
	}
	for ; len(args) >= 4 && is(args[0], "GROUP"); args = args[4:] {
		f := frontier.Report{Group: string(args[1])}
		if f.Low, err = parsePast(args[2]); err == nil {
			f.High, err = parsePast(args[3])
		}
		if err != nil {
			return nil, err
		}
		b.Reports = append(b.Reports, f)
	}
	if len(args) > 0 || len(b.Reports) > frontier.SessionGroupsMax {
		return nil, badSession()
	}
	return b, nil
}

func parseMillis(arg []byte) (time.Duration, error) {
	ms, err := strconv.ParseUint(string(arg), 10, 31)
	if err != nil {
		return 0, isotone.Errorf(isotone.CodeInvalidArgument, "%.40q: want a number of milliseconds", arg)
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// parseKeep reads [LOW group stamp]… [DOUBT group stamp]… [SEALED group stamp]… [TAKE group count [AHEAD] [U64]], in any order.
func parseKeep(q *front.SessionRequest, args [][]byte) error {
	for len(args) >= 3 {
		if is(args[0], "TAKE") {
			rest, err := parseTake(q, args[1], args[2:])
			if err != nil {
				return err
			}
			args = rest
			continue
		}
		list := saidOf(q, args[0])
		if list == nil || len(q.Lows)+len(q.Doubts)+len(q.Sealed) == saidMax {
			return badSession()
		}
		stamp, err := parsePast(args[2])
		if err != nil {
			return err
		}
		*list = append(*list, session.GroupStamp{Group: string(args[1]), Stamp: stamp})
		args = args[3:]
	}
	if len(args) > 0 {
		return badSession()
	}
	return nil
}

// saidOf returns the list for what a word says of stamps, or nil.
func saidOf(q *front.SessionRequest, word []byte) *[]session.GroupStamp {
	switch {
	case is(word, "LOW"):
		return &q.Lows
	case is(word, "DOUBT"):
		return &q.Doubts
	case is(word, "SEALED"):
		return &q.Sealed
	}
	return nil
}

// parseTake reads count [AHEAD] [U64], and returns what follows.
func parseTake(q *front.SessionRequest, group []byte, args [][]byte) (rest [][]byte, err error) {
	if q.Group != "" || len(group) == 0 {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "want at most one TAKE, with the name of a group")
	}
	n, ok := front.ParseCount(args[0])
	q.Group, q.Count = string(group), n
	for args = args[1:]; len(args) > 0; args = args[1:] {
		switch {
		case is(args[0], "AHEAD") && !q.Ahead:
			q.Ahead = true
			continue
		case is(args[0], "U64") && !q.U64:
			q.U64 = true
			continue
		}
		break
	}
	if most := (&ask{u64: q.U64}).countMax(); !ok || n > most {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "count: want a whole number from 1 to %d", most)
	}
	return args, nil
}

// answerSession answers a SESSION command, or one of FRONTIER that is the same.
func (c *conn) answerSession(q *front.SessionRequest, r *reply) {
	switch {
	case q.Bind != nil:
		c.sessions.ttl = q.Bind.TTL
		r.bindings(&q.Reply)
	case q.Count > 0:
		r.taken(q)
	default:
		if q.Close {
			c.endSession()
		}
		r.ok()
	}
}

// bindings appends what a session holds, and the frontiers of its groups.
func (r *reply) bindings(b *session.Reply) {
	r.dict(2)
	r.bulk("holds")
	r.array(len(b.Holds))
	for _, h := range b.Holds {
		r.array(2)
		r.bulk(h.Name)
		r.bulk(h.Token.String())
	}
	r.bulk("frontiers")
	r.array(len(b.Frontiers))
	for _, f := range b.Frontiers {
		r.array(2)
		r.bulk(f.Group)
		r.bulk(f.Stamp.String())
	}
}

// taken appends the first and the last stamp of a range, and up to which the session may make stamps itself, if it asked for that.
func (r *reply) taken(q *front.SessionRequest) {
	stamps := []isotone.Timestamp{q.Range.First, {Time: q.Range.First.Time, Index: q.Range.First.Index + q.Range.Count - 1}}
	if q.U64 {
		stamps[1] = (isotone.Timestamp64From(q.Range.First) + isotone.Timestamp64(q.Range.Count-1)).Timestamp()
	}
	if q.Ahead {
		stamps = append(stamps, q.Reply.Bound)
	}
	r.array(len(stamps))
	for _, s := range stamps {
		r.bulk(s.String())
	}
}

// ask has the connection wait for the answer to a request, or answers why not.
func (c *conn) ask(q *front.SessionRequest, answer func(*reply), err error, r *reply) *sessionWait {
	backend := c.front.cfg.Sessions
	breaks := q.Lock != nil && q.Lock.Op == session.LockBreak // which needs no session
	switch {
	case backend == nil:
		err = errNoSessions
	case err == nil && q.Bind == nil && !breaks && !c.hasSession():
		err = errUnbound
	}
	if err != nil {
		r.b = appendFault(r.b, faultOf(err))
		return nil
	}
	w := c.await(&sessionWait{request: q, answer: answer})
	if !breaks && !c.hasSession() {
		c.sessions.bound = backend.OpenSession(c.told)
	}
	q.Conn = c.sessions.bound
	q.Done = func(q *front.SessionRequest) { c.sessionAnswered(w, q.Err) }
	return w
}

// watch has the connection wait for the answer to a watch, or answers why not.
func (c *conn) watch(q *front.SessionWatch, answer func(*reply), err error, r *reply) {
	if c.front.cfg.Sessions == nil {
		err = errNoSessions
	}
	if err != nil {
		r.b = appendFault(r.b, faultOf(err))
		return
	}
	w := c.await(&sessionWait{watch: q, answer: answer})
	q.Done = func(q *front.SessionWatch) { c.sessionAnswered(w, q.Err) }
}

// hasSession reports whether there is a connection for a session.
func (c *conn) hasSession() bool { return c.sessions != nil && c.sessions.bound != 0 }

// await has w asked after the command.
func (c *conn) await(w *sessionWait) *sessionWait {
	if c.sessions == nil {
		c.sessions = &sessions{}
	}
	c.sessions.awaiting = w
	return w
}

// awaiting returns what is waited for, or will be after the command, nil for nothing.
func (c *conn) awaiting() *sessionWait {
	if c.sessions == nil {
		return nil
	}
	return c.sessions.awaiting
}

// askSessions asks the backend what a command waits for.
func (c *conn) askSessions() {
	w := c.awaiting()
	c.asked, c.waiting = c.wire.Now(), true
	if err := c.session.Charge(1, w.stamps()); err != nil {
		c.endSessionWait(err)
		return
	}
	switch {
	case w.watch != nil:
		c.front.cfg.Sessions.WatchSessions(w.watch)
	case w.redis != nil:
		c.front.cfg.RedisLocks.AskRedisLock(w.redis)
	default:
		c.front.cfg.Sessions.AskSession(w.request)
	}
}

// mayBeLong reports whether more is waited for than an answer of the leader.
func (w *sessionWait) mayBeLong() bool {
	return w.watch != nil || w.redis != nil || w.lock != nil && w.lock.answered
}

// stamps returns how many are asked for.
func (w *sessionWait) stamps() uint64 {
	if w.request == nil {
		return 0
	}
	return w.request.Count
}

// sessionAnswered is called when the backend has answered.
func (c *conn) sessionAnswered(w *sessionWait, err error) {
	switch {
	case c.awaiting() != w: // it was answered, or the connection has ended
	case err == nil && w.lock != nil:
		c.lockAnswered(w)
	default:
		c.endSessionWait(err)
	}
}

// endSessionWait answers the command that waits.
func (c *conn) endSessionWait(err error) {
	w := c.awaiting()
	c.forgetSessionWait()
	c.waiting = false
	r := reply{b: c.wire.Buffered(), v3: c.resp3}
	code := codeOK
	if err == nil {
		c.session.Used(1, w.stamps())
		w.answer(&r)
	} else {
		e := faultOf(err)
		code = string(e.Code)
		if r.b = appendFault(r.b, e); e.Code == isotone.CodeNotLeader {
			r.b = appendRedirect(c.wire.Buffered(), "MOVED", c.slot, e.Leader)
		}
	}
	if w.did != "" {
		c.session.Did(w.did, code)
	}
	c.wire.SetBuffered(r.b)
	c.front.observe(code, 1, c.wire.Now()-c.asked)
	c.goOn()
}

// forgetSessionWait ends a wait without an answer. The backend may still have the request.
func (c *conn) forgetSessionWait() {
	if l := c.sessions.awaiting.lock; l != nil && l.timer != nil {
		l.timer.Stop()
	}
	c.sessions.awaiting = nil
}

// endSession ends the connection of the session, if there is one.
func (c *conn) endSession() {
	if c.hasSession() {
		c.front.cfg.Sessions.CloseSession(c.sessions.bound)
		c.sessions = nil
	}
}

// told is called with a message to the session.
func (c *conn) told(m session.Message) {
	if c.resp3 {
		out := c.wire
		if c.transaction != nil && c.transaction.running {
			out = c.transaction.held.wire // in front of the answer to EXEC
		}
		r := reply{b: out.Buffered(), v3: true}
		r.push(m)
		out.SetBuffered(r.b)
		if len(r.b) > pushMax {
			out.Close(errDoesNotRead)
			return
		}
	}
	if w := c.awaiting(); w != nil && w.lock != nil {
		w.lock.hear(m)
		c.lookAtLock(w)
	}
}

// push appends a message.
func (r *reply) push(m session.Message) {
	items := messageItems(m)
	r.head('>', int64(1+len(items)))
	r.bulk("session")
	for _, item := range items {
		r.bulk(item)
	}
}

func messageItems(m session.Message) []string {
	switch m.Kind {
	case session.MessageSeal:
		return []string{"seal", m.Group, m.Through.String()}
	case session.MessageFenced:
		return []string{"fenced", m.Group, m.Low.String(), m.Through.String()}
	case session.MessageExpired:
		return []string{"expired"}
	case session.MessageSuperseded:
		return []string{"superseded"}
	case session.MessageQueued:
		return []string{"queued", m.Name, m.Ticket.String()}
	case session.MessageGranted:
		return []string{"granted", m.Name, m.Token.String()}
	case session.MessageReleased:
		return []string{"released", m.Name, m.Token.String()}
	}
	panic(fmt.Sprintf("resp: a message of kind %d", m.Kind))
}
