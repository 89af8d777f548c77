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
	lost    func()
}

// Watch calls lost once if the session loses one of the roles, which it has now, until stop is called. Call
// it for what goes on without asking [Session.May]. Lost is called within [CheckEvery] of a change of the
// list or of revoked certificates, and within a minute of the end of the certificate. It must not block.
func (s *Session) Watch(roles Roles, lost func()) (stop func()) {
	if s.control == nil {
		return func() {}
	}
	w := &watch{session: *s, roles: roles, lost: lost}
	w.session.counted, w.session.closed = nil, true // it counts for no limit
	all := &s.control.watched
	all.mu.Lock()
	if all.list == nil {
		all.list = map[*watch]struct{}{}
	}
	all.list[w] = struct{}{}
	all.mu.Unlock()
	if !s.May(roles) { // the list may have changed before it was added
		lost()
	}
	return func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		delete(all.list, w)
	}
}

// check tells those who have lost a role.
func (all *watched) check() {
	all.mu.Lock()
	defer all.mu.Unlock()
	for w := range all.list {
		if !w.session.May(w.roles) {
			delete(all.list, w)
			w.lost()
		}
	}
}
