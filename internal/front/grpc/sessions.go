package grpc

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/core/session"
	"github.com/isotone/isotone/internal/front"
)

const (
	// sessionAsksMax bounds the requests of a stream that wait. Beyond it the stream is not read.
	sessionAsksMax = 64
	// sessionOutMax bounds what was not written when more is to be. A message for each of the locks of a cluster has less.
	sessionOutMax = 2 << 20
)

var (
	errNoSessions  = isotone.Errorf(isotone.CodeNotFound, "sessions are not served here; ask a member")
	errDoesNotRead = isotone.Errorf(isotone.CodeOverloaded, "the client does not read what its session is told")
	errLostRole    = isotone.Errorf(isotone.CodeForbidden, "a role for sessions was taken away")
)

// connection is a call of Sessions.Connect: one connection of a session. The goroutine of the call reads requests, another one writes
// what the core gives in its order: answers and messages.
//
//	requests ──► AskSession ──► answers and messages ──► out
type connection struct {
	call *call
	conn session.Conn
	stop context.CancelCauseFunc
	// room has an element for each request that waits.
	room chan struct{}
	wake chan struct{} // there is something in out

	mu  sync.Mutex
	out []byte
	cut bool // the client does not read, and is told nothing more
}

// connect is Sessions.Connect.
func (c *call) connect() error {
	backend := c.server.cfg.Sessions
	if backend == nil {
		return errNoSessions
	}
	ctx, stop := context.WithCancelCause(c.ctx)
	defer stop(nil)
	var roles access.Roles
	for _, role := range []access.Roles{access.Locks, access.Frontier} {
		if c.session.May(role) {
			roles |= role
		}
	}
	defer c.session.Watch(roles, func() { stop(errLostRole) })()
	if err := c.send(nil); err != nil { // the client learns that it may begin
		return err
	}
	defer c.interrupt(ctx)()
	s := &connection{call: c, stop: stop, room: make(chan struct{}, sessionAsksMax), wake: make(chan struct{}, 1)}
	s.conn = backend.OpenSession(s.tell)
	var writing sync.WaitGroup
	writing.Go(func() { s.write(ctx) })
	end := s.read(ctx)
	backend.CloseSession(s.conn)
	stop(end)
	if end == errDoesNotRead {
		_ = c.control.SetWriteDeadline(time.Unix(1, 0))
	}
	writing.Wait()
	if end != io.EOF {
		return end
	}
	return c.send(s.take())
}

// read reads requests until the stream ends: with io.EOF after the last answer.
func (s *connection) read(ctx context.Context) error {
	for {
		message, err := s.call.in.next()
		if ctx.Err() != nil {
			return endOf(context.Cause(ctx))
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		asked, err := parseSessionAsk(message)
		if err == nil {
			err = s.enter(ctx)
		}
		if err != nil {
			return err
		}
		s.ask(&asked)
	}
	for range sessionAsksMax { // nothing waits when all the room is taken
		if err := s.enter(ctx); err != nil {
			return err
		}
	}
	return io.EOF
}

// enter waits for room for a request.
func (s *connection) enter(ctx context.Context) error {
	select {
	case s.room <- struct{}{}:
		return nil
	case <-ctx.Done():
		return endOf(context.Cause(ctx))
	}
}

// ask has the core asked, or answers why not.
func (s *connection) ask(a *sessionAsk) {
	id, began := a.id, time.Now()
	q, err := a.request()
	if err == nil {
		err = requireSession(s.call.session, q)
	}
	if err == nil {
		err = s.call.session.Take(1, q.Count)
	}
	q.Done = func(q *front.SessionRequest) {
		s.answer(id, q)
		s.call.server.observe(q.Err, began)
		<-s.room
	}
	if q.Err = err; err != nil {
		q.Done(q)
		return
	}
	if q.Conn = s.conn; q.Bind != nil {
		q.Account = s.call.session.Account()
	}
	s.call.server.cfg.Sessions.AskSession(q)
}

// requireSession returns why a user may not ask for q, or nil.
func requireSession(user *access.Session, q *front.SessionRequest) error {
	var needs access.Roles
	var names []string
	if q.Lock != nil {
		needs, names = access.Locks, append(names, q.Lock.Name)
	}
	if q.Bind != nil {
		for _, r := range q.Bind.Reports {
			needs, names = needs|access.Frontier, append(names, r.Group)
		}
	}
	if q.Group != "" {
		needs, names = needs|access.Frontier, append(names, q.Group)
	}
	if len(q.Lows)+len(q.Doubts)+len(q.Sealed) > 0 { // these count only for the groups with which it has bound
		needs |= access.Frontier
	}
	if err := user.Require(needs); err != nil {
		return err
	}
	return user.RequireName(names...)
}

// answer adds the answer to a request.
func (s *connection) answer(id uint64, q *front.SessionRequest) {
	s.add(func(b []byte) []byte {
		if q.Err != nil {
			return appendStreamed(b, id, whatError, StatusOf(q.Err).details)
		}
		return appendStreamed(b, id, whatAnswer, appendSessionAnswer(nil, q))
	})
}

// tell adds a message.
func (s *connection) tell(m session.Message) {
	s.add(func(b []byte) []byte { return appendTold(b, m) })
}

// add adds what is to be written. It does not wait.
func (s *connection) add(message func(b []byte) []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.cut:
	case len(s.out) > sessionOutMax:
		s.cut, s.out = true, nil
		s.stop(errDoesNotRead)
	default:
		at := len(s.out)
		s.out = EndFrame(message(BeginFrame(s.out)), at)
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// take returns what is to be written.
func (s *connection) take() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.out
	s.out = nil
	return b
}

// write writes until the stream ends.
func (s *connection) write(ctx context.Context) {
	for {
		select {
		case <-s.wake:
			if err := s.call.send(s.take()); err != nil {
				s.stop(err)
				return
			}
		case <-s.call.server.cfg.Stopping:
			s.stop(errLeaving)
			return
		case <-ctx.Done():
			return
		}
	}
}
