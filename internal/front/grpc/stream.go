package grpc

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
)

const (
	// turnMax bounds the requests of a turn, and turnsMax the turns of a stream that wait: 1,024 requests. After that the
	// stream is not read.
	turnMax  = 256
	turnsMax = 4
)

var (
	errLeaving = isotone.Errorf(isotone.CodeNoLeader, "this node is stopping: repeat what was not answered at another one")
	errRevoked = isotone.Errorf(isotone.CodeForbidden, "the right to timestamps was taken away")
)

// stream is Timestamps.Stream: one goroutine reads turns, another answers them in order.
//
//	requests ──► turn ──► Backend ──► turns (at most turnsMax) ──► answers
func (c *call) stream() error {
	reading, stop := context.WithCancelCause(c.ctx)
	defer stop(nil)
	defer c.session.Watch(access.Timestamps, func() { stop(errRevoked) })()
	defer c.interrupt(reading)()
	if err := c.send(nil); err != nil { // the client learns that it may begin
		return err
	}
	turns, answered := make(chan *turn, turnsMax-2), make(chan struct{}) // one is answered next, and one on its way there
	answering, session := *c, *c.session // which belongs to one goroutine
	answering.session = &session
	go func() {
		defer close(answered)
		answering.answerTurns(turns, stop)
	}()
	err := c.readTurns(reading, turns)
	close(turns)
	<-answered
	return err
}

// interrupt has reads fail once ctx ends, until the caller calls what it returns.
func (c *call) interrupt(ctx context.Context) (release func()) {
	_ = c.control.SetReadDeadline(time.Time{})
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = c.control.SetReadDeadline(time.Unix(1, 0))
	})
	return func() {
		if !stop() {
			<-interrupted
		}
	}
}

// readTurns submits what the client sends, and returns why the stream ends.
func (c *call) readTurns(reading context.Context, turns chan<- *turn) error {
	for {
		t, err := c.readTurn()
		if len(t.items) > 0 {
			c.submit(t)
			turns <- t // answerTurns takes it, whatever happens
		}
		switch ended := context.Cause(reading); {
		case ended != nil:
			return endOf(ended)
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case c.isLeaving():
			return errLeaving
		}
	}
}

// endOf returns the error for a stream that was ended from within.
func endOf(cause error) error {
	var e *isotone.Error
	if errors.As(cause, &e) {
		return e
	}
	return isotone.Errorf(isotone.CodeDeadlineExceeded, "the stream has ended: %v", cause)
}

// isLeaving reports whether clients are to go on elsewhere. A leader that drains answers until another node leads.
func (c *call) isLeaving() bool {
	s := c.server.cfg.Backend.Status()
	return s.Draining && s.Leader != s.NodeID
}

// readTurn waits for a request, and adds those that have come with it. After an error it still has those that came before.
func (c *call) readTurn() (*turn, error) {
	t := newTurn()
	for len(t.items) < turnMax && (len(t.items) == 0 || c.in.isReady()) {
		message, err := c.in.next()
		if err != nil {
			return t, err
		}
		if len(t.items) == 0 {
			t.began = time.Now()
		}
		id, r, err := parseStreamed(message)
		if err != nil {
			return t, err
		}
		a, err := r.ask()
		if err == nil {
			err = c.session.Charge(1, a.Count)
		}
		if err != nil {
			t.refuse(id, err)
		} else {
			t.add(id, c.prepare(a))
		}
	}
	return t, nil
}

// answerTurns answers turns until there are no more, and has the reader stop if that fails or the server stops.
func (c *call) answerTurns(turns <-chan *turn, stop context.CancelCauseFunc) {
	stopping := c.server.cfg.Stopping
	var b []byte
	for {
		select {
		case t, ok := <-turns:
			if !ok {
				return
			}
			c.await(t)
			b = c.appendTurn(b[:0], t)
			if err := c.send(b); err != nil {
				stop(err)
			}
		case <-stopping:
			stop(errLeaving)
			stopping = nil
		}
	}
}

// appendTurn appends the answers of a turn.
func (c *call) appendTurn(b []byte, t *turn) []byte {
	var message [rangeMessageMax]byte
	for i := range t.items {
		one, at := &t.items[i], len(b)
		issued, err := t.result(one)
		b = BeginFrame(b)
		if err == nil {
			c.session.Used(1, issued.Count)
			b = appendStreamed(b, one.id, resultGot, AppendRange(message[:0], issued, t.batches[one.batch].U64))
		} else {
			s := StatusOf(err)
			b = appendStreamed(b, one.id, resultError, s.details)
		}
		b = EndFrame(b, at)
		c.observe(err, t.began)
	}
	return b
}
