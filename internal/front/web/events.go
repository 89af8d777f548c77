package web

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front/httpapi"
)

// eventsPause is after how long a stream of events in which nothing happens says so.
const eventsPause = 15 * time.Second

// eventStream is an answer with server-sent events.
type eventStream struct {
	http.ResponseWriter
	// ctx ends with the client, its right to the stream, or the server.
	ctx     context.Context
	timeout time.Duration // of a write
	begun   bool
	http1   bool
}

// acceptsEvents reports whether a request wants server-sent events.
func acceptsEvents(r *http.Request) bool {
	return strings.Contains(strings.Join(r.Header["Accept"], ","), httpapi.ContentTypeEvents)
}

// IsEventStream reports whether a request about sessions, locks or frontiers is answered with a stream.
func IsEventStream(r *http.Request) bool {
	is := func(prefix string) bool { return strings.HasPrefix(r.URL.Path, prefix) }
	return r.Method == http.MethodGet && (is(httpapi.SessionsPath) || (is(httpapi.LocksPath) || is(httpapi.FrontierPath)) && acceptsEvents(r))
}

// serveEvents answers with a stream, and returns the code for Observe. An error before the first event is answered as any other; a later one is the last event.
func (h *handler) serveEvents(w http.ResponseWriter, c *sessionCall, stream func(*handler, *sessionCall, *eventStream) error) string {
	s := sessionOf(c.Context())
	done, err := s.TakeStream()
	if err != nil {
		return refuse(w, c.Request, s, err)
	}
	defer done()
	leave, err := h.beginWait()
	if err != nil {
		return fail(w, c.Request, err)
	}
	defer leave()
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	var names []string
	if c.name != "" {
		names = []string{c.name}
	}
	defer s.Watch(rightOf(c.URL.Path, s), cancel, names...)()
	go func() {
		select {
		case <-h.stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	e := &eventStream{ResponseWriter: w, ctx: ctx, timeout: h.limits.WriteTimeout, http1: c.ProtoMajor == 1}
	switch err = stream(h, c, e); {
	case !e.begun:
		return h.failSession(w, c, err)
	case ctx.Err() == nil && err != nil:
		f := httpapi.FaultOf(h.leaderOr(err))
		_ = e.write(fmt.Appendf(nil, "event: error\ndata: %s\n\n", httpapi.Body(f.Code, f.Message)))
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(e.timeout)) // of what the server has left to write
	return notObserved
}

// rightOf returns the role by which a client reads a stream.
func rightOf(path string, s *access.Session) access.Roles {
	if strings.HasPrefix(path, httpapi.LocksPath) || !s.May(access.Frontier) {
		return access.Locks
	}
	return access.Frontier
}

// send sends an event. Its error is that of the connection, or that the stream is over.
func (e *eventStream) send(event string, data any) error {
	return e.write(fmt.Appendf(nil, "event: %s\ndata: %s\n\n", event, httpapi.JSONBody(data)))
}

// comment sends what clients ignore, so that both sides notice if the other has gone.
func (e *eventStream) comment() error { return e.write([]byte(":\n\n")) }

func (e *eventStream) write(b []byte) error {
	control := http.NewResponseController(e.ResponseWriter)
	if err := control.SetWriteDeadline(time.Now().Add(e.timeout)); err != nil {
		return err
	}
	if !e.begun {
		e.begun = true
		header := e.Header()
		header.Set("Content-Type", httpapi.ContentTypeEvents)
		header.Set("X-Accel-Buffering", "no") // of proxies that would wait for more
		if e.http1 {
			header["Connection"] = connectionClose // the deadline would be the next answer's
		}
		e.WriteHeader(http.StatusOK)
	}
	if _, err := e.Write(b); err != nil {
		return err
	}
	if err := control.Flush(); err != nil {
		return err
	}
	return control.SetWriteDeadline(time.Time{}) // in HTTP/2 one that passes ends the stream even when nothing is written
}

// pause waits. Its error is that the stream is over.
func (e *eventStream) pause(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-e.ctx.Done():
		return e.ctx.Err()
	}
}

// streamSession tells what the leader asks of the writers of a session, and that it has ended. It does not keep the session alive: its client may have stopped, and the connection may not show that.
func (h *handler) streamSession(c *sessionCall, s *eventStream) error {
	v, err := h.sessions.find(c.Session)
	if err != nil {
		return err
	}
	if err := s.comment(); err != nil {
		return err
	}
	for {
		now, more := v.newsNow()
		for _, seal := range now.Seals {
			if err := s.send("seal", seal); err != nil {
				return err
			}
		}
		for _, fenced := range now.Fenced {
			if err := s.send("fenced", fenced); err != nil {
				return err
			}
		}
		quiet := time.NewTimer(eventsPause)
		select {
		case <-more:
		case <-v.ended:
			return v.isOver()
		case <-s.ctx.Done():
			return s.ctx.Err()
		case <-quiet.C:
			err = s.comment()
		}
		if quiet.Stop(); err != nil {
			return err
		}
	}
}
