package access

import "sync"

// watched are the sessions of what lasts, such as a stream. It is safe for concurrent use.
type watched struct {
	mu   sync.Mutex
	list map[*watch]struct{}
}

// watch has a session of its own, which only check uses.
type watch struct {
	session Session
	roles   Roles
	names   []string
	lost    func()
}

// Watch calls lost once if the session loses one of the roles, or the right to one of the names of locks or
// groups of writers, which it has now, until stop is called. Call
// it for what goes on without asking [Session.May]. Lost is called within [CheckEvery] of a change of the
// list or of revoked certificates, and within a minute of the end of the certificate. It must not block.
func (s *Session) Watch(roles Roles, lost func(), names ...string) (stop func()) {
	if s.control == nil {
		return func() {}
	}
	w := &watch{session: *s, roles: roles, names: names, lost: lost}
	w.session.counted, w.session.closed = nil, true // it counts for no limit
	all := &s.control.watched
	all.mu.Lock()
	if all.list == nil {
		all.list = map[*watch]struct{}{}
	}
	all.list[w] = struct{}{}
	all.mu.Unlock()
	if !w.holds(s) { // the list may have changed before it was added
		lost()
	}
	return func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		delete(all.list, w)
	}
}

// holds reports whether a session has what is watched.
func (w *watch) holds(s *Session) bool { return s.May(w.roles) && s.user.names.allowsAll(w.names) }

// check tells those who have lost a role or a name.
func (all *watched) check() {
	all.mu.Lock()
	defer all.mu.Unlock()
	for w := range all.list {
		if !w.holds(&w.session) {
			delete(all.list, w)
			w.lost()
		}
	}
}
