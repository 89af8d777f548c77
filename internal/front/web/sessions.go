package web

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/core/session"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/httpapi"
)

// sessionsWaitingMax bounds the requests that wait for locks and frontiers, with the streams of them. Each has a goroutine, and asks the core once a second or less.
const sessionsWaitingMax = 2048

var errSessionsWaiting = isotone.Errorf(isotone.CodeOverloaded, "too many requests wait for locks and frontiers")

// sessionCall is a request about sessions, locks or frontiers.
type sessionCall struct {
	*http.Request
	httpapi.SessionQuery
	// began is at or after the time at which the client sent it.
	began time.Time
	// name is that of the lock or the group, op what is posted.
	name, op string
}

// sessionHandler answers with what is encoded as JSON.
type sessionHandler func(*handler, *sessionCall) (answer any, err error)

// serveSession answers requests for /sessions/ID.
func (h *handler) serveSession(w http.ResponseWriter, r *http.Request) string {
	return h.answerSession(w, r, &sessionEndpoint{
		methods: map[string]sessionHandler{http.MethodPut: (*handler).putSession, http.MethodDelete: (*handler).deleteSession, http.MethodGet: nil},
		parse: func(c *sessionCall) (err error) {
			c.Session, err = httpapi.ParseSessionID(strings.TrimPrefix(c.URL.Path, httpapi.SessionsPath))
			return err
		},
		stream: (*handler).streamSession,
	})
}

// sessionEndpoint is what one row of the paths has.
type sessionEndpoint struct {
	methods map[string]sessionHandler
	// parse reads the path.
	parse func(*sessionCall) error
	// stream answers a GET for server-sent events, or without a handler; nil: nothing does.
	stream func(*handler, *sessionCall, *eventStream) error
}

// answerSession answers a request about sessions with the handler of its method.
func (h *handler) answerSession(w http.ResponseWriter, r *http.Request, e *sessionEndpoint) string {
	c := &sessionCall{Request: r, began: time.Now()}
	handle, known := e.methods[r.Method]
	if !known {
		allow := slices.Sorted(maps.Keys(e.methods))
		w.Header().Set("Allow", strings.Join(allow, ", "))
		return answerFault(w, http.StatusMethodNotAllowed, isotone.CodeInvalidArgument, "method not allowed here; use "+strings.Join(allow, " or "))
	}
	var err error
	switch c.SessionQuery, err = httpapi.ParseSessionQuery(r.URL.RawQuery); {
	case h.sessions == nil:
		err = errNoSessions
	case hasBody(r):
		err = isotone.Errorf(isotone.CodeInvalidArgument, "a %s request here has no body; its parameters are in the query", r.Method)
	case err == nil:
		err = e.parse(c)
	}
	if err != nil {
		return fail(w, r, err)
	}
	s := sessionOf(r.Context())
	if err = c.requireNames(s); err == nil {
		err = s.Take(1, c.stamps())
	}
	if err != nil {
		return refuse(w, r, s, err)
	}
	if r.Method == http.MethodGet && e.stream != nil && (handle == nil || acceptsEvents(r)) {
		return h.serveEvents(w, c, e.stream)
	}
	if c.Wait > 0 {
		leave, err := h.beginWait()
		if err != nil {
			return fail(w, r, err)
		}
		defer leave()
		_ = http.NewResponseController(w).SetWriteDeadline(c.began.Add(c.Wait + h.limits.RequestTimeout + h.limits.WriteTimeout))
	}
	answer, err := handle(h, c)
	if err != nil {
		return h.failSession(w, c, err)
	}
	return tellWritten(writeJSONBody(w, http.StatusOK, httpapi.JSONBody(answer)))
}

// requireNames returns why a user may not use the lock or the groups of a request, or nil.
func (c *sessionCall) requireNames(s *access.Session) error {
	switch {
	case c.name != "":
		return s.RequireName(c.name)
	case c.URL.Path == httpapi.LockListPath:
		return s.RequireNamesBelow(c.Prefix)
	case len(c.Groups) > 0:
		if err := s.Require(access.Frontier); err != nil {
			return err
		}
	}
	return s.RequireName(c.Groups...)
}

// beginWait counts a request that waits.
func (h *handler) beginWait() (leave func(), err error) {
	if h.sessionsWaiting.Add(1) > sessionsWaitingMax {
		h.sessionsWaiting.Add(-1)
		return nil, errSessionsWaiting
	}
	return func() { h.sessionsWaiting.Add(-1) }, nil
}

func writeJSONBody(w http.ResponseWriter, status int, body []byte) error {
	header := w.Header()
	header["Content-Type"], header["Content-Length"] = contentTypeJSON, []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	_, err := w.Write(body)
	return err
}

// failSession answers with an error. Where there is no session, as another node leads, it names that.
func (h *handler) failSession(w http.ResponseWriter, c *sessionCall, err error) string {
	var locked *lockedError
	if errors.As(err, &locked) {
		_ = writeJSONBody(w, http.StatusConflict, httpapi.RefusalBody(session.ErrLocked.Message, locked.refusal))
		return string(isotone.CodeLocked)
	}
	return fail(w, c.Request, h.leaderOr(err))
}

// leaderOr returns an error that names the leader instead of one that says that this node has no such session, if another node leads.
func (h *handler) leaderOr(err error) error {
	s := h.backend.Status()
	switch {
	case !errors.Is(err, isotone.ErrNotBound) || s.Leader == s.NodeID && s.Leader != 0:
		return err
	case s.Leader == 0 || s.LeaderAddr == "":
		return isotone.ErrNoLeader
	}
	e := isotone.Errorf(isotone.CodeNotLeader, "node %d leads; ask %s", s.Leader, s.LeaderAddr)
	e.Leader = s.LeaderAddr
	return e
}

// awaitSession waits for an answer of the core.
func (h *handler) awaitSession(ctx context.Context, answered <-chan error) error {
	timer := time.NewTimer(h.limits.RequestTimeout)
	defer timer.Stop()
	select {
	case err := <-answered:
		return err
	case <-timer.C:
		return isotone.Errorf(isotone.CodeDeadlineExceeded, "no answer within %v; the outcome is unknown, and the request can be repeated", h.limits.RequestTimeout)
	case <-ctx.Done():
		return isotone.Errorf(isotone.CodeDeadlineExceeded, "no answer in time: %v", context.Cause(ctx))
	}
}

// putSession begins a session or keeps it alive, and shows what it holds.
func (h *handler) putSession(c *sessionCall) (any, error) {
	if c.TTL < session.TTLMin || c.TTL > session.TTLMax || c.Linger > session.TTLMax {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "ttl: want %v to %v, with each request the same; linger: at most %v", session.TTLMin, session.TTLMax, session.TTLMax)
	}
	a, err := h.keepSession(c)
	if errors.Is(err, isotone.ErrNotBound) { // it was bound here in an earlier term, or the leader has ended it when it was not heard
		a, err = h.keepSession(c)
	}
	return a, err
}

func (h *handler) keepSession(c *sessionCall) (any, error) {
	b := session.Bind{ID: c.Session, Epoch: c.Epoch, TTL: c.TTL, Linger: c.Linger, Label: c.Label}
	if b.Epoch == 0 {
		b.Epoch = uint32(c.began.Unix())
	}
	var holds []session.Hold
	var frontiers []session.GroupStamp
	answered := make(chan error, 1)
	v, err := h.sessions.put(b, c.Groups, sessionOf(c.Context()).Account(), func(v *virtual, r *front.SessionRequest, err error) {
		if err == nil {
			holds, frontiers = v.book.Shown(r.Reply.Holds), r.Reply.Frontiers
		}
		answered <- err
	})
	if err == nil {
		err = h.awaitSession(c.Context(), answered)
	}
	if err != nil {
		return nil, err
	}
	a := httpapi.SessionAnswer{Session: sessionText(c.Session), ValidFor: c.TTL.Milliseconds(), Holds: httpapi.HeldLocks(holds), SessionNews: newsOf(v)}
	if len(frontiers) > 0 {
		a.Frontiers = map[string]string{}
		for _, f := range frontiers {
			a.Frontiers[f.Group] = f.Stamp.String()
		}
	}
	return a, nil
}

// deleteSession ends a session, also one that another front, or an earlier leader, has bound. That there is none is no error.
func (h *handler) deleteSession(c *sessionCall) (any, error) {
	backend := h.sessions.backend
	conn := backend.OpenSession(func(session.Message) {})
	answered := make(chan error, 1)
	backend.AskSession(&front.SessionRequest{
		Request: session.Request{Conn: conn, End: c.Session},
		Done: func(r *front.SessionRequest) {
			backend.CloseSession(conn)
			answered <- r.Err
		},
	})
	if err := h.awaitSession(c.Context(), answered); err != nil {
		return nil, err
	}
	return httpapi.SessionEnded{Session: sessionText(c.Session)}, nil
}

// say says something over the connection of the session of a request, which keeps that alive.
func (h *handler) say(c *sessionCall, r *front.SessionRequest) (*virtual, error) {
	v, err := h.sessions.find(c.Session)
	if err != nil {
		return nil, err
	}
	answered := make(chan error, 1)
	if err := v.ask(r, func(err error) { answered <- err }); err != nil {
		return nil, err
	}
	return v, h.awaitSession(c.Context(), answered)
}

// watch waits for what w asks the core for, for as long as the client does and c.Wait. done reports whether the answer is what it waits for.
func (h *handler) watch(ctx context.Context, w front.SessionWatch, wait time.Duration, done func(*front.SessionWatch) bool) (*front.SessionWatch, error) {
	for until := time.Now().Add(wait); ; {
		each := w
		each.Wait = min(max(0, time.Until(until)), watchSlice)
		answered := make(chan error, 1)
		each.Done = func(w *front.SessionWatch) { answered <- w.Err }
		h.sessions.backend.WatchSessions(&each)
		if err := h.awaitSession(ctx, answered); err != nil {
			return nil, err
		}
		if done(&each) || !time.Now().Before(until) {
			return &each, nil
		}
		select {
		case <-h.stopping:
			return nil, errStopping
		default:
		}
	}
}

// watchSlice is for how long the core has a watch at most: it cannot be taken back when the client has gone.
const watchSlice = time.Second

func sessionText(id session.ID) string {
	const digits = 16
	text := strconv.FormatUint(uint64(id), digits)
	return strings.Repeat("0", digits-len(text)) + text
}
