package live

import (
	"net/http"
	"time"

	"github.com/isotone/isotone"
)

// comment is what a stream has when there is nothing to say.
var comment = []byte(":\n\n")

var (
	typeEventStream = []string{"text/event-stream"}
	unbuffered      = []string{"no"}
	connectionClose = []string{"close"}
)

// stream answers with server-sent events: the document as it is, unless the reader has
// it already, and then each change. It runs until the reader goes, does not read, or
// the set is closed.
//
// Nothing is queued for a reader. While one write is under way the document may change
// any number of times; after it the reader gets the newest. So it holds one event, and
// that is shared.
func (s *Set) stream(w http.ResponseWriter, r *http.Request, e *entry) {
	control := http.NewResponseController(w)
	if err := control.SetWriteDeadline(time.Time{}); err != nil {
		s.fail(w, r, http.StatusInternalServerError, isotone.CodeInternal, "this connection cannot have a stream")
		return
	}
	if !s.enter() {
		w.Header().Set("Retry-After", s.retryAfter)
		s.fail(w, r, http.StatusServiceUnavailable, isotone.CodeOverloaded, "too many streams are open")
		return
	}
	defer s.streams.Add(-1)
	if observe := s.cfg.Observe.Streams; observe != nil {
		observe(e.name, 1)
		defer observe(e.name, -1)
	}
	header := w.Header()
	header["Cache-Control"] = noStore
	header["Content-Type"] = typeEventStream
	header["X-Accel-Buffering"] = unbuffered // proxies that would wait for more
	if r.ProtoMajor == 1 {
		header["Connection"] = connectionClose // the deadline below would be the next answer's
	}
	s.origins.fields(header, r)
	// The server flushes what is left when this returns; that too must end.
	defer func() { _ = control.SetWriteDeadline(time.Now().Add(s.cfg.WriteTimeout)) }()
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	var began time.Time // of the latest write
	err := s.follow(r, e, func(b []byte) error {
		began = time.Now()
		if err := control.SetWriteDeadline(began.Add(s.cfg.WriteTimeout)); err != nil {
			return err
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		if err := control.Flush(); err != nil {
			return err
		}
		// In HTTP/2 a deadline that passes ends the stream even when nothing is written.
		return control.SetWriteDeadline(time.Time{})
	})
	// By the clock, for each protocol has another error for it.
	if err != nil && time.Since(began) >= s.cfg.WriteTimeout && s.cfg.Observe.Cut != nil {
		s.cfg.Observe.Cut(e.name)
	}
}

// enter counts a stream in, if there may be one more.
func (s *Set) enter() bool {
	if s.streams.Add(1) <= int64(s.cfg.StreamsMax) {
		return true
	}
	s.streams.Add(-1)
	return false
}

// follow hands events and comments to write until that fails or the stream is over.
func (s *Set) follow(r *http.Request, e *entry, write func([]byte) error) error {
	had := r.Header.Get("Last-Event-Id")
	timer := time.NewTimer(s.cfg.KeepAlive)
	defer timer.Stop()
	quiet := true // say something, so that the header is sent
	for {
		select {
		case <-s.closing:
			return nil
		case <-r.Context().Done(): // it may have lost the right to what comes
			return nil
		default:
		}
		c := e.current.Load().content
		switch {
		case c.version > 0 && c.id != had:
			if err := write(c.sse()); err != nil {
				return err
			}
			had = c.id
			timer.Reset(s.cfg.KeepAlive)
		case quiet:
			if err := write(comment); err != nil {
				return err
			}
			timer.Reset(s.cfg.KeepAlive)
		}
		quiet = false
		select {
		case <-c.next:
		case <-timer.C:
			quiet = true
		case <-r.Context().Done():
			return nil
		case <-s.closing:
			return nil
		}
	}
}
