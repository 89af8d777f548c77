package http1

import (
	"strings"

	"github.com/isotone/isotone/internal/auth/access"
)

// credentialsMax bounds the credentials that a connection remembers.
const credentialsMax = 512

// roles are what requests need.
var roles = [...]access.Roles{targetTimestamps: access.Timestamps, targetIDs: access.IDs, targetLive: access.Live, targetInterval: access.Timestamps}

// speaker is whom the requests of a connection come from. Each request says so by itself: one
// without credentials comes from nobody, whatever came before it.
type speaker struct {
	session *access.Session
	// credentials is the value of Authorization for which session speaks; empty: none.
	credentials []byte
	version     access.Version // of the list of users that they were checked with
}

// guard is the check of the credentials at the front.
type guard struct {
	checking bool
	refused  bool // they were checked, and are wrong
}

// admit reads who the request at the front of b comes from, and reports whether the fast path
// may go on: cold if the standard servers are to answer, partial while credentials are checked.
func (h *handler) admit(b []byte) verdict {
	if h.checking {
		return partial
	}
	refused := h.refused
	h.refused = false
	r, v := h.read(b)
	switch {
	case v != hot:
		return hot // there is nothing to admit
	case refused:
		return cold
	case h.speaksFor(r, b):
	case r.credentials == (span{}):
		h.reset()
	default:
		if v := h.check(r.credentials.of(b)); v != hot {
			return v
		}
	}
	if !h.mayAsk(r) {
		return cold // net/http answers 401 or 403
	}
	if r.target != targetTimestamps && !h.session.Spend(1, r.made()) {
		return cold // net/http answers 429
	}
	return hot
}

// made returns how many ids, or timestamps of the cluster clock, are asked for.
func (r *request) made() uint64 {
	if r.target == targetLive {
		return 0
	}
	return r.count
}

// admitted reports whether r, which b begins with, comes from the one whom the session speaks
// for, who may ask for it. Others wait for their turn at the front.
func (s *speaker) admitted(r *request, b []byte) bool {
	return s.speaksFor(r, b) && s.mayAsk(r)
}

// mayAsk reports whether the one whom the session speaks for may ask for r. It sets the order of which a request for timestamps is
// served: the list of users may say that it is another one than r names.
func (s *speaker) mayAsk(r *request) bool {
	ok := true
	switch r.target {
	case targetTimestamps:
		r.order, ok = s.session.Timeline(r.timeline)
	case targetInterval:
		ok = s.session.MayClock()
	}
	return ok && s.session.May(roles[r.target])
}

// reset makes the session speak for nobody.
func (s *speaker) reset() {
	s.session.Reset()
	s.credentials = s.credentials[:0]
}

// speaksFor reports whether the session speaks for the one from whom r comes.
func (s *speaker) speaksFor(r *request, b []byte) bool { return s.isFor(r.credentials.of(b)) }

// isFor reports whether the session speaks for the one with those credentials.
func (s *speaker) isFor(credentials string) bool {
	return credentials == string(s.credentials) && (len(s.credentials) == 0 || s.version == s.session.Version())
}

// check has credentials checked, unless that was done lately.
func (h *handler) check(value string) verdict {
	value = strings.Clone(value) // it is checked while the input is used for other things
	c, ok := access.ParseAuthorization(value)
	if !ok || len(value) > credentialsMax || h.front.cfg.Loop == nil {
		return cold
	}
	version := h.session.Version()
	credentials := append(h.credentials[:0], value...)
	h.credentials = h.credentials[:0]
	h.session.Reset()
	finish := func(err error) {
		if err != nil {
			h.refused = true
			return
		}
		h.credentials, h.version = credentials, version
	}
	now, err := h.session.Authenticate(c, func(err error) {
		h.front.cfg.Loop.Post(func() {
			h.checking = false
			if err == nil && !h.closed {
				err = h.session.Become(c)
			}
			finish(err)
			h.conn.Resume()
		})
	})
	if !now {
		h.checking = true
		return partial
	}
	finish(err)
	if err != nil {
		h.refused = false
		return cold
	}
	return hot
}
