// Package session keeps the sessions of the leader of one term: who is alive, and over which connection.
//
// A client keeps its session alive by requests. Sessions are in the memory of the leader only; nothing of them is in the log. A session ends when the leader has not heard from it for
// its TTL, or when it has had no connection for its LINGER. A leader that is paused hears nobody, so the time in which it did not run does not count.
// No wall clock is used. That a client gives its session up before the leader ends it rests on the rates of both steady clocks.
//
// The rules have the numbers R1 to R4 of decision 41.
package session

import (
	"container/heap"
	"errors"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
)

const (
	// Max is the largest number of sessions.
	Max = 100_000
	// LabelMax is the largest length of the label of a session, in bytes.
	LabelMax = 64
	// TTLMin and TTLMax bound the TTL of a session, and its LINGER from above.
	TTLMin, TTLMax = 100 * time.Millisecond, time.Minute
	// Reserved is the ID of the session of the leader's node, for locks that have no sessions of their own. Breaking one of them does not end it.
	Reserved ID = 1<<64 - 1

	// rateErrorPercent is by how much the rate of a clock may be off, as in lease mode: that of a client may be slow while that of the leader is fast.
	rateErrorPercent = 10
	// pauseTicks is from how many ticks on between two the leader did not run. As many are added to each wait: what comes between two ticks counts from the
	// first of them.
	pauseTicks = 3
)

// ID identifies a session: 64 random bits that the client draws.
type ID uint64

// Conn identifies a connection of a client to this process; 0: none.
type Conn uint64

// Table has the sessions of one term. It is not safe for concurrent use.
type Table struct {
	tick time.Duration
	// ran is for how long the leader has run in this term, as of its tick at tickedAt.
	ran, tickedAt time.Duration
	sessions      map[ID]*session
	conns         map[Conn]*session
	queue         queue
	counts        map[string]int // sessions, by account
	lost          uint64         // sessions that Tick has ended, and nobody else
}

type session struct {
	id          ID
	conn        Conn
	epoch       uint32
	ttl, linger time.Duration
	label       string
	quota       Quota
	// heard and gone are when it was heard last, and since when it has no connection, in the time that the leader ran.
	heard, gone time.Duration
	// restored is set until it binds, if it is known from a hold only.
	restored bool
	// condemned is set once it has ended, until that is applied. If an operator has broken it, it stays in the queue meanwhile: its client may believe in it.
	condemned bool
	// due is when it is looked at next, at its place in the queue; -1: never again.
	due time.Duration
	at  int
}

// New returns the table of a leader that has opened now, by its steady clock, and ticks every tick.
func New(now, tick time.Duration) *Table {
	return &Table{tick: tick, tickedAt: now, sessions: map[ID]*session{}, conns: map[Conn]*session{}, counts: map[string]int{}}
}

// Restore begins the session of a hold that an earlier leader has granted, with a full TTL: nobody knows when it was heard last. It is called before the
// leader binds, ends or tells anything (R2).
func (t *Table) Restore(id ID, ttl time.Duration) {
	if t.sessions[id] != nil {
		return
	}
	s := &session{id: id, ttl: ttl, linger: ttl, heard: t.ran, gone: t.ran, restored: true, at: -1}
	if mutant.On(mutant.TimersNotRestarted) {
		s.heard = t.ran - ttl + ttl/8
	}
	t.sessions[id] = s
	t.look(s)
}

// Bind gives a session a connection, and begins the session if there is none. It returns the former connection, 0 for none, which is of no more use. Its errors are [ErrExpired],
// [ErrSuperseded], and those of codes invalid_argument and overloaded; after an error nothing has changed.
func (t *Table) Bind(conn Conn, b Bind) (former Conn, err error) {
	s := t.sessions[b.ID]
	if err := t.checkBind(conn, b, s); err != nil {
		return 0, err
	}
	if s == nil {
		s = &session{id: b.ID, at: -1}
		t.sessions[b.ID] = s
	}
	if on := t.conns[conn]; on != nil && on != s {
		t.Gone(conn) // it is being ended
	}
	if s.conn != conn {
		former = s.conn
		delete(t.conns, former)
	}
	s.conn, s.epoch, s.ttl, s.linger, s.label, s.restored, s.heard = conn, max(s.epoch, b.Epoch), b.TTL, b.Linger, b.Label, false, t.ran
	t.conns[conn] = s
	t.setQuota(s, b.Quota)
	t.look(s)
	return former, nil
}

func (t *Table) checkBind(conn Conn, b Bind, s *session) error {
	on := t.conns[conn]
	switch {
	case b.ID == 0 || conn == 0:
		return isotone.Errorf(isotone.CodeInvalidArgument, "the ID of a session is not 0")
	case b.TTL < TTLMin || b.TTL > TTLMax || b.TTL%time.Millisecond != 0:
		return isotone.Errorf(isotone.CodeInvalidArgument, "the TTL of a session is %v to %v, in whole milliseconds, not %v", TTLMin, TTLMax, b.TTL)
	case len(b.Label) > LabelMax:
		return isotone.Errorf(isotone.CodeInvalidArgument, "the label of a session has at most %d bytes, not %d", LabelMax, len(b.Label))
	case b.Linger < 0 || b.Linger > TTLMax:
		return isotone.Errorf(isotone.CodeInvalidArgument, "the LINGER of a session is at most %v, not %v", TTLMax, b.Linger)
	case on != nil && on != s && !on.condemned:
		return isotone.Errorf(isotone.CodeInvalidArgument, "this connection has bound another session")
	case s == nil && len(t.sessions) >= Max:
		return isotone.ErrOverloaded
	case s == nil && b.Quota.Sessions > 0 && t.counts[b.Quota.Account] >= b.Quota.Sessions+mutant.Pick(mutant.SessionsOverQuota, 1, 0):
		return b.Quota.overSessions()
	case s == nil:
		return nil
	case s.condemned && !mutant.On(mutant.ExpireNotCondemned):
		return ErrExpired
	case b.TTL != s.ttl && !mutant.On(mutant.TTLMayGrow) || b.Linger != s.linger && !s.restored:
		return isotone.Errorf(isotone.CodeInvalidArgument, "the session has a TTL of %v and a LINGER of %v, which are fixed for its life", s.ttl, s.linger)
	case s.conn != conn && !s.restored && b.Epoch <= s.epoch && !mutant.On(mutant.StaleConnection):
		return ErrSuperseded
	}
	return nil
}

var (
	// ErrExpired answers for a session that has ended. Its ID is not used again.
	ErrExpired = errors.New("the session has ended; begin another one, with another ID")
	// ErrSuperseded answers on a connection when a later one has bound the session.
	ErrSuperseded = errors.New("a later connection has bound the session")
)

// Heard notes that a request has come on a connection, and returns the session that it speaks for. What comes on a connection that is not that of a session that lives counts for nothing (R1).
func (t *Table) Heard(conn Conn) (ID, bool) {
	s := t.conns[conn]
	if s == nil || s.condemned && !mutant.On(mutant.ExpireNotCondemned) {
		return 0, false
	}
	s.heard = t.ran
	return s.id, true
}

// Speaks reports whether a connection is that of a session that lives. A request that waited for a round is answered only then.
func (t *Table) Speaks(conn Conn, id ID) bool {
	s := t.conns[conn]
	return s != nil && s.id == id && !s.condemned
}

// Gone notes that a connection has ended, and returns the session that has none now.
func (t *Table) Gone(conn Conn) (ID, bool) {
	s := t.conns[conn]
	if s == nil {
		return 0, false
	}
	delete(t.conns, conn)
	s.conn, s.gone = 0, t.ran
	if s.at >= 0 {
		t.look(s)
	}
	return s.id, true
}

// IsCondemned reports whether a connection is that of a session that is being ended.
func (t *Table) IsCondemned(conn Conn) bool {
	s := t.conns[conn]
	return s != nil && s.condemned
}

// IsEnding reports whether a session is being ended.
func (t *Table) IsEnding(id ID) bool {
	s := t.sessions[id]
	return s != nil && s.condemned
}

// ConnOf returns the connection of a session, 0 for none.
func (t *Table) ConnOf(id ID) Conn {
	if s := t.sessions[id]; s != nil {
		return s.conn
	}
	return 0
}

// TTL returns the TTL of a session, 0 if there is none.
func (t *Table) TTL(id ID) time.Duration {
	if s := t.sessions[id]; s != nil {
		return s.ttl
	}
	return 0
}

// Quota returns the quota of a session, which bounds nothing if there is none.
func (t *Table) Quota(id ID) Quota {
	if s := t.sessions[id]; s != nil {
		return s.quota
	}
	return Quota{}
}

// Label returns what the client calls the session, "" if there is none.
func (t *Table) Label(id ID) string {
	if s := t.sessions[id]; s != nil {
		return s.label
	}
	return ""
}

// Break condemns a session that an operator wants to end. Its client may not have heard of that, and believe in its locks: Tick returns the session once its time is over, as that of a
// client that is silent from now on. It returns how long that takes at most.
func (t *Table) Break(id ID) (left time.Duration) {
	if s := t.sessions[id]; s != nil {
		s.condemned = true
		left = max(0, t.over(s)-t.ran)
	}
	return left
}

// Ran returns for how long the leader has run in this term, as of its latest tick.
func (t *Table) Ran() time.Duration { return t.ran }

// Close condemns a session at its own request, and reports whether there is one that lives.
func (t *Table) Close(id ID) bool {
	s := t.sessions[id]
	if s == nil || s.condemned {
		return false
	}
	t.condemn(s)
	return true
}

// Tick tells the time, once a tick, and returns the sessions that are over (R4). They are condemned: requests for them are answered with [ErrExpired], until Ended.
func (t *Table) Tick(now time.Duration) (over []ID) {
	gap := now - t.tickedAt
	t.tickedAt = now
	if gap <= pauseTicks*t.tick || mutant.On(mutant.ExpireAfterOwnPause) {
		t.ran += gap
	}
	for len(t.queue) > 0 && t.queue[0].due < t.ran {
		s := t.queue[0]
		if t.over(s) < t.ran {
			if !s.condemned {
				t.lost++
			}
			t.condemn(s)
			over = append(over, s.id)
		} else {
			t.look(s)
		}
	}
	return over
}

// Ended forgets a session whose end is applied, or that holds nothing.
func (t *Table) Ended(id ID) {
	if s := t.sessions[id]; s != nil {
		t.condemn(s)
		if t.conns[s.conn] == s {
			delete(t.conns, s.conn)
		}
		delete(t.sessions, id)
	}
}

// setQuota gives a session a quota, and has it count for the account that this names.
func (t *Table) setQuota(s *session, q Quota) {
	if s.quota.Account != "" {
		if t.counts[s.quota.Account]--; t.counts[s.quota.Account] == 0 {
			delete(t.counts, s.quota.Account)
		}
	}
	if s.quota = q; q.Account != "" {
		t.counts[q.Account]++
	}
}

// Lost returns how many sessions have ended because their clients were silent or had no connection.
func (t *Table) Lost() uint64 { return t.lost }

// Len returns the number of sessions.
func (t *Table) Len() int { return len(t.sessions) }

// over returns when a session is over, in the time that the leader ran.
func (t *Table) over(s *session) time.Duration {
	over := s.heard + t.wait(s.ttl, mutant.NoRateMargin)
	if s.conn == 0 && !s.restored {
		over = min(over, s.gone+t.wait(s.linger, mutant.LingerWithoutRate))
	}
	if s.conn == 0 && mutant.On(mutant.EndAtEOF) {
		return s.gone
	}
	return over
}

func (t *Table) wait(d time.Duration, m mutant.Mutant) time.Duration {
	if mutant.On(m) {
		return d
	}
	return Outlast(d) + pauseTicks*t.tick
}

// Outlast returns for how long, by the leader's clock, d may last by the clock of a client.
func Outlast(d time.Duration) time.Duration {
	return d * (100 + rateErrorPercent) / (100 - rateErrorPercent)
}

// Outlasted returns the shortest duration in whole milliseconds that outlasts d; see [Outlast].
func Outlasted(d time.Duration) time.Duration {
	const longest = 100 + rateErrorPercent
	shorter := (d*(100-rateErrorPercent) + longest - 1) / longest
	return (shorter + time.Millisecond - 1).Truncate(time.Millisecond)
}

// look has a session looked at when it may be over.
func (t *Table) look(s *session) {
	s.due = t.over(s)
	if s.at < 0 {
		heap.Push(&t.queue, s)
	} else {
		heap.Fix(&t.queue, s.at)
	}
}

func (t *Table) condemn(s *session) {
	if !mutant.On(mutant.QuotaOfEnded) {
		t.setQuota(s, Quota{})
	}
	s.condemned = true
	if s.at >= 0 {
		heap.Remove(&t.queue, s.at)
	}
}

// queue is a heap of the sessions that live, by when they are looked at next. That is never later than when they may be over.
type queue []*session

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].due < q[j].due || q[i].due == q[j].due && q[i].id < q[j].id
}
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}

// Push implements [heap.Interface].
func (q *queue) Push(x any) {
	s := x.(*session)
	s.at = len(*q)
	*q = append(*q, s)
}

// Pop implements [heap.Interface].
func (q *queue) Pop() any {
	last := len(*q) - 1
	s := (*q)[last]
	(*q)[last], *q = nil, (*q)[:last]
	s.at = -1
	return s
}
