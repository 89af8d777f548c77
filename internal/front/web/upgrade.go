package web

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front/httpapi"
)

// upgradePath is the path of the feature level.
const upgradePath = "/upgrade"

// upgrade answers GET with the levels, and raises the level by POST. A POST must have
// Content-Type application/json although it has no body: browsers do not send that across
// sites without asking.
func (h *handler) upgrade(w http.ResponseWriter, r *http.Request) string {
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodPost:
		w.Header().Set("Allow", "GET, POST")
		return answerFault(w, http.StatusMethodNotAllowed, isotone.CodeInvalidArgument, "method not allowed here; use GET or POST")
	case hasBody(r):
		return fail(w, r, isotone.Errorf(isotone.CodeInvalidArgument, "a %s request here has no body", r.Method))
	}
	if r.Method == http.MethodPost {
		if !isJSON(r) {
			return fail(w, r, errNotJSON)
		}
		if err := h.operator.RaiseLevel(r.Context()); err != nil {
			return fail(w, r, err)
		}
	}
	levels, err := h.operator.Levels()
	if err != nil {
		return fail(w, r, err)
	}
	body, err := json.Marshal(levels)
	if err != nil {
		return fail(w, r, err)
	}
	header := w.Header()
	header["Content-Type"], header["Content-Length"] = contentTypeJSON, []string{strconv.Itoa(len(body))}
	_, _ = w.Write(body)
	return httpapi.CodeOK
}
