package web

import (
	"context"
	"net/http"
	"strings"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front/httpapi"
)

// notObserved is the code of streams, which last as long as their clients like.
const notObserved = ""

const statePath = "/state"

func isLive(path string) bool { return path == statePath || strings.HasPrefix(path, "/live/") }

// isStream reports whether a path below /live/ is that of a stream. A document may be named
// stream, too.
func isStream(path string) bool {
	_, below, _ := strings.Cut(strings.TrimPrefix(path, "/live/"), "/")
	return below == "stream"
}

// serveLive answers by Config.Live, and returns the code for Observe.
func (h *handler) serveLive(w http.ResponseWriter, r *http.Request) string {
	if hasBody(r) {
		return fail(w, r, isotone.Errorf(isotone.CodeInvalidArgument, "a %s request here has no body", r.Method))
	}
	s := sessionOf(r.Context())
	if err := s.Take(1, 0); err != nil {
		return refuse(w, r, s, err)
	}
	if isStream(r.URL.Path) {
		done, err := s.TakeStream()
		if err != nil {
			return refuse(w, r, s, err)
		}
		defer done()
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer s.Watch(access.Live, cancel)()
		r = r.WithContext(ctx)
	}
	if r.URL.Path == statePath {
		state, below := *r, *r.URL
		below.Path, state.URL = "/live"+statePath, &below
		r = &state
	}
	code := h.delegate(h.live, w, r)
	if isStream(r.URL.Path) && code == httpapi.CodeOK {
		return notObserved
	}
	return code
}

func (h *handler) servePage(w http.ResponseWriter, r *http.Request) string {
	return h.delegate(h.page, w, r)
}

// delegate calls another handler and returns the code for Observe.
func (h *handler) delegate(to http.Handler, w http.ResponseWriter, r *http.Request) string {
	s := &statusWriter{ResponseWriter: w, status: http.StatusOK}
	to.ServeHTTP(s, r)
	switch {
	case s.status < http.StatusBadRequest:
		return httpapi.CodeOK
	case s.status == http.StatusNotFound:
		return string(isotone.CodeNotFound)
	case s.status < http.StatusInternalServerError:
		return string(isotone.CodeInvalidArgument)
	case s.status == http.StatusServiceUnavailable:
		return string(isotone.CodeOverloaded)
	default:
		return string(isotone.CodeInternal)
	}
}

// statusWriter records the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (s *statusWriter) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.NewResponseController reach what is below.
func (s *statusWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }
