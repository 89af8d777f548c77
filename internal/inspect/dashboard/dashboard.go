// Package dashboard owns the web page at / of every node, and its plain-text form for curl. Both show the [survey.State] document,
// which the node encodes once a second.
//
// It does not depend on the node or its protocols: the server of the page passes in a function
// that returns the latest document. It must let the pages of all members read the documents (/state and /live/state/stream),
// since each page reads those of every member.
package dashboard

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/inspect/survey"
)

// Config configures a [Handler].
type Config struct {
	// State returns the latest state document, which is immutable, or nil before there is
	// one. Only the plain text needs it: the page fetches the document itself.
	State func() *survey.State
	// Refuse, if not nil, answers a request for the plain text, which has the state in it, unless its client may read that.
	// The page has no data in it.
	Refuse func(w http.ResponseWriter, r *http.Request) (refused bool)
}

// Handler returns a handler that serves only /: the page to clients that accept text/html,
// the output of [WriteSummary] to others.
func Handler(cfg Config) http.Handler {
	if cfg.State == nil {
		cfg.State = func() *survey.State { return nil }
	}
	return &handler{cfg, assemble()}
}

type handler struct {
	cfg  Config
	page *document
}

// ServeHTTP answers one request.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	switch {
	case r.URL.Path != "/":
		fail(w, http.StatusNotFound, isotone.CodeNotFound, "no such path")
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		header.Set("Allow", "GET, HEAD")
		fail(w, http.StatusMethodNotAllowed, isotone.CodeInvalidArgument, "method not allowed here; use GET, HEAD")
	default:
		header.Set("Vary", "Accept, Accept-Encoding")
		if accepts(r.Header.Values("Accept"), "text/html") {
			h.page.serve(w, r)
			return
		}
		if h.cfg.Refuse == nil || !h.cfg.Refuse(w, r) {
			h.summary(w, r)
		}
	}
}

// summary answers with plain text.
func (h *handler) summary(w http.ResponseWriter, r *http.Request) {
	var text strings.Builder
	_ = survey.WriteSummary(&text, h.cfg.State()) // a Builder never fails
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Type", "text/plain; charset=utf-8")
	header.Set("Content-Length", strconv.Itoa(text.Len()))
	if r.Method != http.MethodHead {
		_, _ = w.Write([]byte(text.String()))
	}
}

// fail answers with an error in the JSON form that the whole service uses.
func fail(w http.ResponseWriter, status int, code isotone.Code, message string) {
	body, _ := json.Marshal(map[string]any{"error": map[string]string{"code": string(code), "message": message}})
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// accepts reports whether the values of a header of preferences (RFC 9110 §12.4) contain
// want, with a weight above zero.
func accepts(values []string, want string) bool {
	for _, value := range values {
		for part := range strings.SplitSeq(value, ",") {
			name, parameters, _ := strings.Cut(part, ";")
			if !strings.EqualFold(strings.TrimSpace(name), want) {
				continue
			}
			weight := 1.0
			for parameter := range strings.SplitSeq(parameters, ";") {
				key, q, _ := strings.Cut(parameter, "=")
				if strings.EqualFold(strings.TrimSpace(key), "q") {
					weight, _ = strconv.ParseFloat(strings.TrimSpace(q), 64)
				}
			}
			return weight > 0
		}
	}
	return false
}
