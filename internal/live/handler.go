package live

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/isotone/isotone"
)

const (
	pathPrefix   = "/live/"
	streamSuffix = "/stream"
	methods      = "GET, HEAD, OPTIONS"
)

// Header values that never change are shared by all answers: no server writes into a
// value it is given.
var (
	typeJSON = []string{contentType}
	noStore  = []string{"no-store"}
)

// serve answers /live/NAME and /live/NAME/stream.
func (s *Set) serve(w http.ResponseWriter, r *http.Request) {
	name, ok := strings.CutPrefix(r.URL.Path, pathPrefix)
	name, stream := strings.CutSuffix(name, streamSuffix)
	e := s.entries[name]
	if !ok || e == nil {
		s.fail(w, r, http.StatusNotFound, isotone.CodeNotFound, "no such document: "+strconv.Quote(name[:min(len(name), 100)]))
		return
	}
	switch {
	case r.Method == http.MethodOptions:
		s.preflight(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", methods)
		s.fail(w, r, http.StatusMethodNotAllowed, isotone.CodeInvalidArgument, "method not allowed here; use "+methods)
	case stream:
		s.stream(w, r, e)
	default:
		s.get(w, r, e)
	}
}

// get answers with a document. What it says is what [Document.Response] says.
func (s *Set) get(w http.ResponseWriter, r *http.Request, e *entry) {
	d := e.current.Load()
	if d.content.version == 0 {
		s.failEmpty(w, r, e)
		return
	}
	a := d.answer(AcceptsGzip(r.Header["Accept-Encoding"]...))
	header := w.Header()
	for _, field := range a.fields {
		header[field.name] = field.value
	}
	if !s.origins.any {
		s.origins.fields(header, r)
	}
	for _, line := range r.Header["If-None-Match"] {
		if matchesTag(line, a.tag) {
			for _, name := range []string{"Content-Length", "Content-Type", "Content-Encoding"} {
				delete(header, name)
			}
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodGet {
		_, _ = w.Write(a.body)
	}
}

// failEmpty answers that the document has never been loaded. Clients learn the code of the
// failure; what the log says beside it, such as an address, is not theirs.
func (s *Set) failEmpty(w http.ResponseWriter, r *http.Request, e *entry) {
	message := "the document has not been loaded yet"
	if code := e.failure(); code != "" {
		message += ": its source fails with " + string(code) + "; the log of the node says why"
	}
	w.Header().Set("Retry-After", s.retryAfter)
	s.fail(w, r, http.StatusServiceUnavailable, isotone.CodeOverloaded, message)
}

// fail answers with a failure, spelled as everywhere.
func (s *Set) fail(w http.ResponseWriter, r *http.Request, status int, code isotone.Code, message string) {
	type detail struct {
		Code    isotone.Code `json:"code"`
		Message string       `json:"message"`
	}
	body, err := json.Marshal(struct {
		Error detail `json:"error"`
	}{detail{code, message}})
	if err != nil {
		panic("live: a fault of two strings does not encode: " + err.Error())
	}
	header := w.Header()
	header["Cache-Control"] = noStore
	header["Content-Type"] = typeJSON
	header.Set("Content-Length", strconv.Itoa(len(body)))
	s.origins.fields(header, r)
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
}
