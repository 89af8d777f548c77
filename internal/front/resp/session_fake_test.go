package resp

import (
	"fmt"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/session"
	"github.com/isotone/isotone/internal/front"
)

// fakeSessions is asked, and answers when it is told to.
type fakeSessions struct {
	t       *testing.T
	tell    func(session.Message)
	open    int // connections
	asked   []*front.SessionRequest
	watched []*front.SessionWatch
}

func (s *fakeSessions) OpenSession(tell func(session.Message)) session.Conn {
	s.tell = tell
	s.open++
	return 77
}

func (s *fakeSessions) CloseSession(c session.Conn) {
	if s.open--; c != 77 {
		s.t.Errorf("connection %d was never opened", c)
	}
	s.tell = nil
}

func (s *fakeSessions) AskSession(r *front.SessionRequest) {
	if breaks := r.Lock != nil && r.Lock.Op == session.LockBreak; r.Conn != 77 && !breaks {
		s.t.Errorf("a request over connection %d", r.Conn)
	}
	s.asked = append(s.asked, r)
}

func (s *fakeSessions) WatchSessions(w *front.SessionWatch) { s.watched = append(s.watched, w) }

// answers answers the only request.
func (s *fakeSessions) answers(err error, holds ...session.Hold) {
	s.t.Helper()
	if len(s.asked) != 1 {
		s.t.Fatalf("%d requests wait", len(s.asked))
	}
	r := s.asked[0]
	s.asked = nil
	r.Err, r.Reply = err, session.Reply{Outcome: session.Alive, Holds: holds}
	r.Done(r)
}

// sees answers the only watch.
func (s *fakeSessions) sees(set func(*front.SessionWatch)) {
	s.t.Helper()
	if len(s.watched) != 1 {
		s.t.Fatalf("%d watches wait", len(s.watched))
	}
	w := s.watched[0]
	s.watched = nil
	set(w)
	w.Done(w)
}

// stoppable are timers that run when they are told to, unless they were stopped.
type stoppable struct{ timers []stoppableTimer }

type stoppableTimer struct {
	timer *time.Timer
	wait  time.Duration
	f     func()
}

func (x *stoppable) after(d time.Duration, f func()) *time.Timer {
	t := time.AfterFunc(time.Hour, func() { panic("a timer of a test") })
	x.timers = append(x.timers, stoppableTimer{t, d, f})
	return t
}

// waits stops all timers, and returns for how long those were to wait that ran.
func (x *stoppable) waits() (list []time.Duration) {
	for _, t := range x.timers {
		if t.timer.Stop() {
			list = append(list, t.wait)
		}
	}
	return list
}

// fire ends all timers that run.
func (x *stoppable) fire() {
	for _, t := range x.timers {
		if t.timer.Stop() {
			t.f()
		}
	}
}

// sessionTape is a connection to a front with sessions.
type sessionTape struct {
	*tape
	*fakeSessions
	timers   *stoppable
	oracle   *oracle
	observed []string
}

const (
	bindSay = "SESSION BIND 00000000000000ff 3 TTL 4000\r\n"
	stampA  = "0000000000000001000000000000000a"
	stampB  = "0000000000000001000000000000000b"
)

var at = isotone.Timestamp{Time: 1, Index: 10}

func newSessionTape(t *testing.T) *sessionTape {
	s := &sessionTape{fakeSessions: &fakeSessions{t: t}, timers: &stoppable{}, oracle: newOracle()}
	f := New(Config{
		Backend: s.oracle, Sessions: s.fakeSessions, Post: func(f func()) { f() },
		Observe: func(_, code string, n int, wall time.Duration) {
			s.observed = append(s.observed, fmt.Sprint(code, n, wall))
		},
	})
	f.after = s.timers.after
	s.tape = newTape(t, f)
	return s
}

// bound is a connection with a session, of RESP3 or RESP2.
func boundTape(t *testing.T, v3 bool) *sessionTape {
	s := newSessionTape(t)
	if v3 {
		s.feed([]byte("HELLO 3\r\n"))
	}
	s.feed([]byte(bindSay))
	s.fakeSessions.answers(nil)
	s.hears()
	s.observed = nil
	return s
}

func (s *sessionTape) says(command string) { s.feed([]byte(command + "\r\n")) }

// hears returns what was written since.
func (s *sessionTape) hears() string {
	s.flush()
	s.turn()
	got := string(s.got)
	s.got = nil
	return got
}

func (s *sessionTape) wants(what, want string) {
	s.fakeSessions.t.Helper()
	if got := s.hears(); got != want {
		s.fakeSessions.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func granted(token uint64) session.Message {
	return session.Message{Kind: session.MessageGranted, Name: "x", Token: isotone.Timestamp64(token)}
}

var queued = session.Message{Kind: session.MessageQueued, Name: "x", Ticket: at}

const (
	queuedPush  = ">4\r\n$7\r\nsession\r\n$6\r\nqueued\r\n$1\r\nx\r\n$32\r\n" + stampA + "\r\n"
	grantedPush = ">4\r\n$7\r\nsession\r\n$7\r\ngranted\r\n$1\r\nx\r\n$2\r\n42\r\n"
	held2       = "*2\r\n$2\r\n42\r\n$-1\r\n"
	held3       = "*2\r\n$2\r\n42\r\n_\r\n"
	queued2     = "*2\r\n$-1\r\n$32\r\n" + stampA + "\r\n"
)
