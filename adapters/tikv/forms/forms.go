// Package forms serves timestamps over HTTP in the forms of two other systems, from any source.
//
// Dgraph Zero's endpoint for operators and loaders (dgraph/cmd/zero/http.go in
// github.com/dgraph-io/dgraph): GET /assign?what=timestamps&num=N. Dgraph's own servers ask Zero over
// gRPC, which this is not.
//
// AtlasDB's timestamp service (TimestampService.java and TimestampRange.java in
// github.com/palantir/atlasdb), which TimeLock has for each namespace: POST
// …/timestamp/fresh-timestamp and …/timestamp/fresh-timestamps?number=N. All namespaces share one order, so the
// timestamps of each increase. TimeLock's locks, and its newer protocol below /tl, are not served.
package forms

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"

	"github.com/isotone/isotone"
)

// Source issues timestamps, as [client.Client] of github.com/isotone/isotone/client does.
type Source interface {
	Timestamps64(ctx context.Context, count uint64) (isotone.Range64, error)
}

// Handler returns what serves both forms. It is safe for concurrent use. The request's context bounds
// the wait for the cluster.
func Handler(s Source) http.Handler {
	h := handler{s}
	mux := http.NewServeMux()
	mux.HandleFunc("/assign", h.assign)
	for _, prefix := range []string{"POST /timestamp/", "POST /{namespace}/timestamp/"} {
		mux.HandleFunc(prefix+"fresh-timestamp", h.fresh)
		mux.HandleFunc(prefix+"fresh-timestamps", h.freshRange)
	}
	return mux
}

type handler struct{ Source }

// assign answers with num consecutive timestamps, 1 to isotone.Range64CountMax. Zero writes numbers of
// 64 bits as strings. Errors are JSON as Zero has them; unlike Zero's, they have a status other than 200.
func (h handler) assign(w http.ResponseWriter, r *http.Request) {
	refuse := func(status int, code, message string) {
		type failure struct {
			Message    string            `json:"message"`
			Extensions map[string]string `json:"extensions"`
		}
		answer(w, status, map[string][]failure{"errors": {{message, map[string]string{"code": code}}}})
	}
	query := r.URL.Query()
	num, err := strconv.ParseUint(query.Get("num"), 0, 64)
	switch what := query.Get("what"); {
	case r.Method != http.MethodGet:
		refuse(http.StatusMethodNotAllowed, "ErrorInvalidMethod", "Invalid method: want GET")
		return
	case what != "timestamps":
		refuse(http.StatusBadRequest, "ErrorInvalidRequest", "what="+strconv.Quote(what)+": want timestamps; Isotone does not assign uids")
		return
	case err != nil || num < 1 || num > isotone.Range64CountMax:
		refuse(http.StatusBadRequest, "ErrorInvalidRequest", "num: want a number from 1 to "+strconv.Itoa(isotone.Range64CountMax))
		return
	}
	got, err := h.Timestamps64(r.Context(), num)
	if err != nil {
		refuse(http.StatusServiceUnavailable, "Error", err.Error())
		return
	}
	answer(w, http.StatusOK, struct {
		Start isotone.Timestamp64 `json:"startId"`
		End   isotone.Timestamp64 `json:"endId"`
	}{got.First, got.Last()})
}

// fresh answers with one timestamp, a number of 64 bits, since Java has such.
func (h handler) fresh(w http.ResponseWriter, r *http.Request) {
	got, err := h.Timestamps64(r.Context(), 1)
	if err != nil {
		refuseJava(w, http.StatusServiceUnavailable, err)
		return
	}
	answer(w, http.StatusOK, uint64(got.First))
}

// freshRange answers with the bounds of a range, both included. As the interface permits, the answer to
// a number above isotone.Range64CountMax has fewer timestamps than that.
func (h handler) freshRange(w http.ResponseWriter, r *http.Request) {
	number, err := strconv.ParseUint(r.URL.Query().Get("number"), 10, 64)
	if err != nil || number < 1 || number > math.MaxInt32 {
		refuseJava(w, http.StatusBadRequest, isotone.Errorf(isotone.CodeInvalidArgument, "number: want 1 to %d", math.MaxInt32))
		return
	}
	got, err := h.Timestamps64(r.Context(), min(number, isotone.Range64CountMax))
	if err != nil {
		refuseJava(w, http.StatusServiceUnavailable, err)
		return
	}
	answer(w, http.StatusOK, map[string]uint64{"lowerBound": uint64(got.First), "upperBound": uint64(got.Last())})
}

// refuseJava answers with the fields that AtlasDB's HTTP clients look for in an error.
func refuseJava(w http.ResponseWriter, status int, err error) {
	code := isotone.CodeInternal
	var told *isotone.Error
	if errors.As(err, &told) {
		code = told.Code
	}
	answer(w, status, map[string]string{"errorName": string(code), "message": err.Error()})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
