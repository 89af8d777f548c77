package web

import (
	"net/http"

	"github.com/isotone/isotone"
)

// DrainPath is the path of the command that makes a node drain.
const DrainPath = "/admin/drain"

// drainHandler answers POST with {"draining":true} after calling begin, which must not block and
// may be called more than once. A request must have Content-Type application/json although it
// has no body: browsers do not send that across sites without asking.
func drainHandler(begin func()) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodPost:
			w.Header().Set("Allow", http.MethodPost)
			answerFault(w, http.StatusMethodNotAllowed, isotone.CodeInvalidArgument, "method not allowed here; use POST")
		case hasBody(r):
			fail(w, r, isotone.Errorf(isotone.CodeInvalidArgument, "a %s request here has no body", r.Method))
		case !isJSON(r):
			fail(w, r, errNotJSON)
		default:
			begin()
			w.Header()["Content-Type"] = contentTypeJSON
			_, _ = w.Write([]byte(`{"draining":true}`))
		}
	})
}
