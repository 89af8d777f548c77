package web

import (
	"net/http"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front/httpapi"
)

// oracle answers GET /oracle: an operation of the oracle of reads and writes of a timeline. All of them can be repeated.
func (h *handler) oracle(w http.ResponseWriter, r *http.Request) string {
	q, err := httpapi.ParseOracleQuery(r.URL.RawQuery)
	if err != nil {
		return fail(w, r, err)
	}
	if q.Mode == isotone.ReadDefault {
		q.Mode = h.mode
	}
	s := sessionOf(r.Context())
	if q.Timeline, err = s.RequireTimeline(q.Timeline); err == nil && q.Timeline == "" {
		err = isotone.Errorf(isotone.CodeInvalidArgument, "timeline: name one; the default order has no oracle of reads and writes")
	}
	if err == nil {
		err = s.Charge(1, 1)
	}
	if err != nil {
		return refuse(w, r, s, err)
	}
	answer, err := h.take(r.Context(), &q)
	if err != nil {
		if isReset(r) {
			return refuse(w, r, s, err)
		}
		return fail(w, r, err)
	}
	h.tellCluster(w.Header())
	w.Header()["Content-Type"] = contentTypeJSON
	_, err = w.Write(append(httpapi.AppendOracleAnswer(nil, answer.First.Time), '\n'))
	return tellWritten(err)
}
