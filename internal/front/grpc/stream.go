package grpc

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front"
)

const (
	// turnMax bounds the requests of a turn, and turnsMax the turns of a stream that are under way: 1,024 requests. After that the
	// stream is not read.
	turnMax  = 512
	turnsMax = 2 // a leader has two rounds under way

	// answerSize is the usual length of an answer, and outKept bounds the buffer for answers that a stream keeps: it may be silent for long.
	answerSize = 36
	outKept    = keptMax * answerSize
)

var (
	errLeaving = isotone.Errorf(isotone.CodeNoLeader, "this node is stopping: repeat what was not answered at another one")
	errRevoked = isotone.Errorf(isotone.CodeForbidden, "the right to timestamps was taken away")
	errNoLoop  = &refusal{codeUnimplemented, isotone.Errorf(isotone.CodeInvalidArgument, "this method needs HTTP/2: use Timestamps.Get")}
)

// stream answers a call of Timestamps.Stream in the event loop. What has come while turnsMax turns are under way is the next turn.
//
//	requests ──► turn ──► Backend ──► answers, in the order of the requests
type stream struct {
	server  *Server
	backend front.Backend
	session *access.Session
	to      Sender

	turns  [turnsMax]turn
	oldest int // of those under way
	flying int // turns that are under way
	end    error
	out    []byte
	gone   bool
	closed chan struct{}
}

// stream is Timestamps.Stream. Its goroutine waits for what ends a stream, and the loop does the rest.
func (c *call) stream() error {
	loop := handOverOf(c.w)
	if loop == nil {
		return errNoLoop
	}
	ctx, stop := context.WithCancelCause(c.ctx)
	defer stop(nil)
	defer c.session.Watch(access.Timestamps, func() { stop(errRevoked) })()
	if err := c.send(nil); err != nil { // the client learns that it may begin
		return err
	}
	s := &stream{server: c.server, session: c.session, closed: make(chan struct{})}
	c.in.release()
	post := loop.HandOver(func(b front.Backend, to Sender) Duplex {
		s.backend, s.to = b, to
		return s
	})
	if post == nil {
		return context.Cause(c.ctx)
	}
	why := errLeaving
	select {
	case <-s.closed:
		return nil
	case <-ctx.Done():
		why = endOf(context.Cause(ctx))
	case <-c.server.cfg.Stopping:
	}
	post(func() { s.stop(why) })
	<-s.closed
	return nil
}

// handOverOf returns the [HandOver] that w is or wraps, or nil.
func handOverOf(w http.ResponseWriter) HandOver {
	for {
		switch of := w.(type) {
		case HandOver:
			return of
		case interface{ Unwrap() http.ResponseWriter }:
			w = of.Unwrap()
		default:
			return nil
		}
	}
}

// endOf returns the error for a stream that was ended from within.
func endOf(cause error) *isotone.Error {
	var e *isotone.Error
	if errors.As(cause, &e) {
		return e
	}
	return isotone.Errorf(isotone.CodeDeadlineExceeded, "the stream has ended: %v", cause)
}

// Take implements [Duplex]. It takes one turn: if that is answered at once, the client's windows may have no room for another.
func (s *stream) Take(b []byte, last bool) (used int, end error) {
	if s.end == nil && s.flying < turnsMax {
		used = s.takeTurn(b, last)
	}
	if s.flying > 0 {
		return used, nil
	}
	return used, s.end
}

// takeTurn submits the requests that b begins with, and returns how many bytes they have.
func (s *stream) takeTurn(b []byte, last bool) (used int) {
	t := &s.turns[(s.oldest+s.flying)%turnsMax]
	t.began = time.Now()
	for len(t.items) < turnMax && s.end == nil {
		message, rest, err := ParseFrame(b[used:])
		if message == nil && err == nil {
			s.finish(endOfBody(rest, last), t.began)
			break
		}
		if err == nil {
			err = s.add(t, message)
		}
		if err == nil {
			used = len(b) - len(rest)
		}
		s.finish(err, t.began)
	}
	if len(t.items) > 0 {
		s.submit(t)
	}
	return used
}

// finish ends the stream after the turns under way: with io.EOF, or for a request that is wrong. Nil: it goes on.
func (s *stream) finish(end error, began time.Time) {
	if s.end = end; end != nil && end != io.EOF {
		s.server.observe(end, began)
	}
}

// endOfBody returns why nothing follows, nil if something may.
func endOfBody(rest []byte, last bool) error {
	switch {
	case !last:
		return nil
	case len(rest) > 0:
		return isotone.Errorf(isotone.CodeInvalidArgument, "the request ends within a message")
	}
	return io.EOF
}

// add adds a request to a turn. An error ends the stream.
func (s *stream) add(t *turn, message []byte) error {
	id, r, err := parseStreamed(message)
	if err != nil {
		return err
	}
	a, err := r.ask()
	var p prepared
	if err == nil {
		p, err = s.server.prepare(s.session, a)
	}
	if err != nil {
		t.refuse(id, err)
		return nil
	}
	t.add(id, p)
	return nil
}

// submit hands a turn over.
func (s *stream) submit(t *turn) {
	s.flying++
	t.submit(s.backend, s.answered)
}

// answered sends the turns that are answered, in their order. What a client has asked for counts also if it has left.
func (s *stream) answered() {
	s.out = s.out[:0]
	for s.flying > 0 && s.turns[s.oldest].isDone() {
		t := &s.turns[s.oldest]
		s.appendTurn(t)
		t.reset()
		s.oldest, s.flying = (s.oldest+1)%turnsMax, s.flying-1
	}
	if s.gone || len(s.out) == 0 {
		return
	}
	s.to.Send(s.out)
	if cap(s.out) > outKept {
		s.out = nil
	}
	if s.isLeaving() {
		s.Stop()
	}
	s.to.Resume()
}

// appendTurn appends the answers of a turn.
func (s *stream) appendTurn(t *turn) {
	t.moved(s.session)
	s.out = slices.Grow(s.out, len(t.items)*answerSize)
	var message [rangeMessageMax]byte
	for i := range t.items {
		one, at := &t.items[i], len(s.out)
		issued, err := t.result(one)
		s.out = BeginFrame(s.out)
		if err == nil {
			s.session.Used(1, issued.Count)
			s.out = appendStreamed(s.out, one.id, resultGot, AppendRange(message[:0], issued, t.batches[one.batch].U64))
		} else {
			s.out = appendStreamed(s.out, one.id, resultError, StatusOf(err).details)
		}
		s.out = EndFrame(s.out, at)
		s.server.observe(err, t.began)
	}
}

// isLeaving reports whether clients are to go on elsewhere. A leader that drains answers until another node leads.
func (s *stream) isLeaving() bool {
	now := s.backend.Status()
	return now.Draining && now.Leader != now.NodeID
}

// stop ends the stream after the turns under way.
func (s *stream) stop(why error) {
	if s.end == nil {
		s.end = why
	}
	if !s.gone {
		s.to.Resume()
	}
}

// Stop implements [Duplex].
func (s *stream) Stop() {
	if s.end == nil {
		s.end = errLeaving
	}
}

// IsBusy implements [Duplex].
func (s *stream) IsBusy() bool { return s.flying > 0 }

// Closed implements [Duplex].
func (s *stream) Closed() {
	s.gone = true
	close(s.closed)
}
