package web

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/core/frontier"
	"github.com/isotone/isotone/internal/core/session"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/httpapi"
)

// Over HTTP a session has no connection of its own. The node that leads keeps a virtual one for each, from the first PUT /sessions/ID on: until the session has ended, the node has lost the lead, or
// nobody has asked for long. It breaks only with the node, so LINGER does not matter.

const (
	// virtualMax bounds the virtual connections, with those of sessions that have ended lately, while there is room.
	virtualMax = 4096
	// sessionWaitsMax bounds the requests of one session that wait for locks.
	sessionWaitsMax = 64
	// forgetAfter is for how many TTLs nobody has asked when a virtual connection is forgotten. The leader has ended the session by then.
	forgetAfter = 2
)

var (
	errNoSessions = isotone.Errorf(isotone.CodeNotFound, "sessions are not served here; ask a member")
	errNotBound   = isotone.Errorf(isotone.CodeNotBound, "this node has no such session: send PUT /sessions/ID?ttl=… first, and look at what it holds")
	errVirtualMax = isotone.Errorf(isotone.CodeOverloaded, "this node has %d sessions over HTTP, which is the most", virtualMax)
	errWaitsMax   = isotone.Errorf(isotone.CodeOverloaded, "%d requests of the session wait for locks, which is the most", sessionWaitsMax)
	errEnded      = isotone.Errorf(isotone.CodeSessionExpired, "the session has ended, and all that it held is free; begin another one, with another ID")
)

// sessionTable has the virtual connections. It is safe for concurrent use.
type sessionTable struct {
	backend front.Sessions
	mu      sync.Mutex
	byID    map[session.ID]*virtual
}

func newSessionTable(backend front.Sessions) *sessionTable {
	return &sessionTable{backend: backend, byID: map[session.ID]*virtual{}}
}

// virtual is the connection of a session. What the core says comes on the core's goroutine, so mu is never held for long.
type virtual struct {
	backend front.Sessions
	bind    session.Bind
	conn    session.Conn
	forget  *time.Timer

	mu   sync.Mutex
	book *session.Book
	// seals are the latest that the leader asks for in the session's groups. fences has from the first to the last stamp that it has fenced.
	seals  map[string]isotone.Timestamp
	fences map[string]frontier.Report
	// over is why nothing more is asked; nil: it is not over. ended is closed then.
	over  error
	ended chan struct{}
	// news is closed, and replaced, when there is something new in seals or fences.
	news chan struct{}
}

// find returns the connection of a session, or why there is none.
func (t *sessionTable) find(id session.ID) (*virtual, error) {
	t.mu.Lock()
	v := t.byID[id]
	t.mu.Unlock()
	if v == nil {
		return nil, errNotBound
	}
	if err := v.isOver(); err != nil {
		return nil, err
	}
	return v, nil
}

// put asks what a session holds, for the groups in which it writes, over its connection. If there is none it begins one by b. then is called as ask says. A session that has ended lately is
// not begun again.
func (t *sessionTable) put(b session.Bind, groups []string, account *access.Account, then func(v *virtual, r *front.SessionRequest, err error)) (*virtual, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, r := t.byID[b.ID], &front.SessionRequest{Request: session.Request{Show: true, Join: groups}}
	over := error(errNotBound)
	if v != nil {
		over = v.isOver()
	}
	switch {
	case errors.Is(over, isotone.ErrSessionExpired):
		return nil, over
	case over == nil && (b.TTL != v.bind.TTL || b.Linger != v.bind.Linger):
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "the session has ttl=%v and linger=%v, which are fixed for its life", v.bind.TTL, v.bind.Linger)
	case over == nil:
	case v == nil && !t.hasRoom():
		return nil, errVirtualMax
	default:
		if v != nil {
			v.forget.Stop()
		}
		v = t.open(b)
		r = &front.SessionRequest{Request: session.Request{Bind: &b}, Account: account}
		for _, group := range groups {
			r.Bind.Reports = append(r.Bind.Reports, frontier.Report{Group: group, Low: isotone.Timestamp{Index: 1}}) // no stamps
		}
	}
	return v, v.ask(r, func(err error) { then(v, r, err) })
}

// hasRoom reports whether there is room for another connection, for those who have mu. If there is none, those of sessions that have ended make room.
func (t *sessionTable) hasRoom() bool {
	if len(t.byID) >= virtualMax {
		maps.DeleteFunc(t.byID, func(_ session.ID, v *virtual) bool { return v.isOver() != nil })
	}
	return len(t.byID) < virtualMax
}

// open adds a connection, for those who have mu.
func (t *sessionTable) open(b session.Bind) *virtual {
	v := &virtual{
		backend: t.backend, bind: b, seals: map[string]isotone.Timestamp{}, fences: map[string]frontier.Report{},
		ended: make(chan struct{}), news: make(chan struct{}),
	}
	v.book = session.NewBook(v.askLock)
	v.conn = t.backend.OpenSession(v.tell)
	v.forget = time.AfterFunc(v.patience(), func() { t.drop(v) })
	t.byID[b.ID] = v
	return v
}

// drop forgets a connection.
func (t *sessionTable) drop(v *virtual) {
	t.mu.Lock()
	if t.byID[v.bind.ID] == v {
		delete(t.byID, v.bind.ID)
	}
	t.mu.Unlock()
	v.end(errNotBound)
}

func (v *virtual) patience() time.Duration { return forgetAfter*v.bind.TTL + time.Second }

func (v *virtual) isOver() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.over
}

// end closes the connection.
func (v *virtual) end(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.finish(err)
}

// finish is end for those who have mu.
func (v *virtual) finish(err error) {
	if v.over != nil {
		return
	}
	v.over = err
	v.book.Close(err)
	v.backend.CloseSession(v.conn)
	close(v.ended)
}

// ask has the leader asked over the connection. then is called with mu held, on the core's goroutine, once it has answered or the error is set; it is not called after an error of ask.
func (v *virtual) ask(q *front.SessionRequest, then func(err error)) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.send(q, then)
}

// send is ask for those who have mu.
func (v *virtual) send(q *front.SessionRequest, then func(err error)) error {
	if v.over != nil {
		return v.over
	}
	v.forget.Reset(v.patience())
	q.Conn = v.conn
	q.Done = func(q *front.SessionRequest) {
		v.mu.Lock()
		defer v.mu.Unlock()
		then(q.Err)
		if end := endOf(q); end != nil {
			v.finish(end)
		}
	}
	v.backend.AskSession(q)
	return nil
}

// endOf returns why a connection is of no more use after an answer, or nil.
func endOf(q *front.SessionRequest) error {
	if q.Err == nil {
		return nil
	}
	switch code := front.ErrorOf(q.Err).Code; {
	case code == isotone.CodeSessionExpired:
		return errEnded
	case code == isotone.CodeNotBound, code == isotone.CodeNotLeader, code == isotone.CodeNoLeader, q.Bind != nil && (code == isotone.CodeInvalidArgument || code == isotone.CodeQuotaExceeded):
		return errNotBound
	}
	return nil // others may have had effect
}

// tell is called with each message to the session.
func (v *virtual) tell(m session.Message) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over != nil {
		return
	}
	switch m.Kind {
	case session.MessageExpired:
		v.finish(errEnded)
	case session.MessageSuperseded:
		v.finish(errNotBound)
	case session.MessageSeal:
		v.seals[m.Group] = m.Through
		v.hasNews()
	case session.MessageFenced:
		low := m.Low
		if f, before := v.fences[m.Group]; before { // what lies between is decided
			low = f.Low
		}
		v.fences[m.Group] = frontier.Report{Group: m.Group, Low: low, High: m.Through}
		v.hasNews()
	default:
		v.book.Told(m)
	}
}

func (v *virtual) hasNews() {
	close(v.news)
	v.news = make(chan struct{})
}

// newsNow returns the news, and what is closed when there are more.
func (v *virtual) newsNow() (n httpapi.SessionNews, more <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, group := range slices.Sorted(maps.Keys(v.seals)) {
		n.Seals = append(n.Seals, httpapi.GroupSeal{Group: group, Through: v.seals[group].String()})
	}
	for _, group := range slices.Sorted(maps.Keys(v.fences)) {
		f := v.fences[group]
		n.Fenced = append(n.Fenced, httpapi.GroupFence{Group: group, Low: f.Low.String(), Through: f.High.String()})
	}
	return n, v.news
}

// newsOf returns the news of a session.
func newsOf(v *virtual) httpapi.SessionNews {
	n, _ := v.newsNow()
	return n
}

// sealed forgets a seal that the client says is done.
func (v *virtual) sealed(group string, through isotone.Timestamp) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s, asked := v.seals[group]; asked && !through.Before(s) {
		delete(v.seals, group)
	}
}

// askLock asks the leader about a lock, for those who have mu.
func (v *virtual) askLock(a *session.LockAsk) {
	r := &front.SessionRequest{Request: session.Request{Lock: &a.LockRequest}}
	_ = v.send(r, func(err error) { v.book.Answered(a, r.Reply.Holds, err) }) // if the connection is over, so is all that waits
}

// acquire begins a request for a lock. changed receives when there is something to look at.
func (v *virtual) acquire(q session.LockRequest) (w *session.LockWait, changed <-chan struct{}, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over != nil {
		return nil, nil, v.over
	}
	if v.book.Waits() >= sessionWaitsMax {
		return nil, nil, errWaitsMax
	}
	wake := make(chan struct{}, 1)
	return v.book.Acquire(q, func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}), wake, nil
}

// release releases a lock. released receives how that ended.
func (v *virtual) release(name string, token isotone.Timestamp64) (released <-chan error, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over != nil {
		return nil, v.over
	}
	done := make(chan error, 1)
	if !v.book.Release(name, token, func(err error) { done <- err }) {
		return nil, isotone.Errorf(isotone.CodeNotHeld, "the session does not hold the lock %.100q with that token", name)
	}
	return done, nil
}

// look is [session.Book.Look].
func (v *virtual) look(w *session.LockWait, isOver bool) (end session.LockEnd, ended bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.book.Look(w, isOver)
}

// leave is [session.Book.Leave].
func (v *virtual) leave(w *session.LockWait) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.book.Leave(w)
}

// keep keeps the session alive, asked at a time that is told once that is confirmed. It reports whether the leader is asked.
func (v *virtual) keep(at time.Duration, kept chan<- time.Duration) bool {
	err := v.ask(&front.SessionRequest{}, func(err error) {
		if err != nil {
			at = 0
		}
		kept <- at
	})
	return err == nil
}
