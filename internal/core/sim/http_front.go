package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/frontier"
	"github.com/isotone/isotone/internal/core/session"
)

// The HTTP front of a process, which speaks for users who have no connections. It keeps a virtual one for each session, as internal/front/web does, with a
// session.Book: see http_lock.go.

// virtual is the connection of a session at a process.
type virtual struct {
	w       *world
	node    *node
	process uint64
	id      session.Conn
	bind    session.Bind
	book    *session.Book
	// over is why nothing more is asked; nil: it is not over.
	over  error
	seals map[string]isotone.Timestamp
	// held are the grants of which the leader has told, until it is asked for a release; grants is what became of each.
	held   map[string]isotone.Timestamp64
	grants map[isotone.Timestamp64]*grantFate
	// waits is how many requests wait for a lock, asks how many of the book are not answered.
	waits map[string]int
	asks  int
	// askAt is when the latest request reaches the core.
	askAt time.Duration
}

// grantFate is what became of a grant: the user was told of it, or has asked for its release; and it is being released.
type grantFate struct{ told, unwanted, releasing bool }

// virtualKey is a session at a process.
type virtualKey struct {
	node    *node
	process uint64
	session session.ID
}

// httpAnswer is what a front answers to a user.
type httpAnswer struct {
	err *isotone.Error
	// token is that of a lock, and ticket the place of a user who has waited in vain. Of PUT /sessions, holds is what the session holds.
	token  isotone.Timestamp64
	ticket isotone.Timestamp
	holds  []session.Hold
	seals  []session.GroupStamp
	// valid is for how long the user may believe in that.
	valid time.Duration
}

func (a httpAnswer) String() string {
	if a.err != nil {
		return string(a.err.Code)
	}
	return fmt.Sprintf("token %v, holds %v, for %v", a.token, a.holds, a.valid)
}

func (v *virtual) sealsAsked() (list []session.GroupStamp) {
	for _, group := range slices.Sorted(maps.Keys(v.seals)) {
		list = append(list, session.GroupStamp{Group: group, Stamp: v.seals[group]})
	}
	return list
}

// findVirtual returns the connection of a session at a node, or why there is none.
func (w *world) findVirtual(n *node, id session.ID) (*virtual, error) {
	v := w.sessions.http.virtuals[virtualKey{n, n.session, id}]
	if v == nil {
		return nil, isotone.ErrNotBound
	}
	return v, v.over
}

// putHTTP begins a session or keeps it alive.
func (w *world) putHTTP(n *node, b session.Bind, groups []string, again bool, answer func(httpAnswer)) {
	v, err := w.findVirtual(n, b.ID)
	if errors.Is(err, isotone.ErrSessionExpired) {
		answer(httpAnswer{err: isotone.ErrSessionExpired})
		return
	}
	q := session.Request{Show: true, Join: groups}
	if err != nil {
		v = w.openVirtual(n, b)
		q = session.Request{Bind: &b}
		for _, group := range groups {
			b.Reports = append(b.Reports, frontier.Report{Group: group, Low: isotone.Timestamp{Index: 1}})
		}
	}
	v.send(q, func(r *session.Reply, err error) {
		switch {
		case err == nil:
			holds := v.book.Shown(r.Holds)
			for _, h := range holds {
				v.tell(h.Token)
			}
			answer(httpAnswer{holds: holds, seals: v.sealsAsked(), valid: b.TTL})
		case errors.Is(err, isotone.ErrNotBound) && !again:
			w.after(0, func() { w.putHTTP(n, b, groups, true, answer) })
		default:
			answer(w.answerHTTP(n, err))
		}
	})
}

// answerHTTP answers with an error, or that there is none. Where there is no session, as another node leads, it names that.
func (w *world) answerHTTP(n *node, err error) httpAnswer {
	var e *isotone.Error
	if !errors.As(err, &e) || !n.up() || !errors.Is(err, isotone.ErrNotBound) {
		return httpAnswer{err: e}
	}
	if l := w.node(n.replica.Brief().Leader); l != nil && l != n {
		e = isotone.Errorf(isotone.CodeNotLeader, "node %d leads", l.id)
		e.Leader = w.clientAddr(l)
	}
	return httpAnswer{err: e}
}

func (w *world) openVirtual(n *node, b session.Bind) *virtual {
	s := &w.sessions
	s.last++
	v := &virtual{
		w: w, node: n, process: n.session, id: s.last, bind: b, seals: map[string]isotone.Timestamp{},
		held: map[string]isotone.Timestamp64{}, grants: map[isotone.Timestamp64]*grantFate{}, waits: map[string]int{},
	}
	v.book = session.NewBook(v.askLock)
	s.http.virtuals[virtualKey{n, n.session, b.ID}], s.http.conns[v.id] = v, v
	return v
}

func (v *virtual) runs() bool { return v.node.up() && v.node.session == v.process }

// later calls f unless the process ends before. One that is paused does it when it goes on.
func (v *virtual) later(d time.Duration, f func()) {
	v.w.after(d, func() {
		switch {
		case !v.runs():
		case v.node.paused:
			v.later(v.w.cfg.tick, f)
		default:
			f()
		}
	})
}

// send has the leader asked, if the connection is not over.
func (v *virtual) send(q session.Request, then func(*session.Reply, error)) {
	if v.over != nil || !v.runs() {
		return
	}
	q.Conn = v.id
	k := &session.Call{Request: q}
	sent := &call{session: &sessionCall{Call: k, done: func(err error) {
		if !v.runs() {
			return
		}
		then(&k.Reply, err)
		switch {
		case errors.Is(err, isotone.ErrSessionExpired):
			v.finish(err)
		case errors.Is(err, isotone.ErrNotBound), errors.Is(err, isotone.ErrNotLeader), errors.Is(err, isotone.ErrNoLeader), q.Bind != nil && (errors.Is(err, isotone.ErrInvalidArgument) || errors.Is(err, isotone.ErrQuotaExceeded)):
			v.finish(isotone.ErrNotBound)
		}
	}}}
	w := v.w
	v.askAt = max(v.askAt, w.now+w.httpTurn()) // on another goroutine
	w.after(v.askAt-w.now, func() {
		if v.runs() {
			w.arrive(v.node, sent)
		}
	})
}

// finish closes a connection.
func (v *virtual) finish(err error) {
	if v.over == nil {
		v.over = err
		v.book.Close(err)
		v.w.closeVirtual(v.node, v.id)
	}
}

func (w *world) closeVirtual(n *node, conn session.Conn) {
	n.in.sessionsGone = append(n.in.sessionsGone, conn)
	w.wake(n)
}

// tellVirtual gives a front a message of a leader.
func (w *world) tellVirtual(m session.Message) {
	v := w.sessions.http.conns[m.Conn]
	if v == nil || v.over != nil {
		return
	}
	switch m.Kind {
	case session.MessageExpired:
		v.finish(isotone.ErrSessionExpired)
		return
	case session.MessageSuperseded:
		v.finish(isotone.ErrNotBound)
		return
	case session.MessageSeal:
		v.seals[m.Group] = m.Through
	case session.MessageGranted:
		v.held[m.Name] = m.Token
	case session.MessageReleased:
		if v.held[m.Name] == m.Token {
			delete(v.held, m.Name)
		}
	}
	v.book.Told(m)
	v.check()
}

// endHTTP ends a session.
func (w *world) endHTTP(n *node, id session.ID, answer func(httpAnswer)) {
	w.sessions.last++
	k := &session.Call{Request: session.Request{Conn: w.sessions.last, End: id}}
	process := n.session
	w.arrive(n, &call{session: &sessionCall{Call: k, done: func(err error) {
		if n.up() && n.session == process {
			w.closeVirtual(n, k.Conn)
			answer(w.answerHTTP(n, err))
		}
	}}})
}

// sealedHTTP tells that the stores of a group refuse what is at or below a stamp.
func (w *world) sealedHTTP(n *node, id session.ID, seal session.GroupStamp, answer func(httpAnswer)) {
	v, err := w.findVirtual(n, id)
	if err != nil {
		answer(w.answerHTTP(n, err))
		return
	}
	if !seal.Stamp.Before(v.seals[seal.Group]) {
		delete(v.seals, seal.Group)
	}
	v.send(session.Request{Sealed: []session.GroupStamp{seal}}, func(_ *session.Reply, err error) { answer(w.answerHTTP(n, err)) })
}
