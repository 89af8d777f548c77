// Package zero serves timestamps in the form of Dgraph Zero's HTTP endpoint for operators and loaders:
// GET /assign?what=timestamps&num=N. Dgraph's own servers ask Zero over gRPC, which this is not.
//
// Source: dgraph/cmd/zero/http.go in github.com/dgraph-io/dgraph.
package zero

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/isotone/isotone"
)

// Source issues timestamps, as [client.Client] of github.com/isotone/isotone/client does.
type Source interface {
	Timestamps64(ctx context.Context, count uint64) (isotone.Range64, error)
}

// assigned is the answer. Zero writes numbers of 64 bits as strings.
type assigned struct {
	Start isotone.Timestamp64 `json:"startId"`
	End   isotone.Timestamp64 `json:"endId"`
}

type failure struct {
	Message    string            `json:"message"`
	Extensions map[string]string `json:"extensions"`
}

// Handler returns what serves the path /assign: num consecutive timestamps, 1 to
// isotone.Range64CountMax. Errors are JSON as Zero has them; unlike Zero's, they have a status other
// than 200. It is safe for concurrent use. The request's context bounds the wait for the cluster.
func Handler(s Source) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method != http.MethodGet {
			refuse(w, http.StatusMethodNotAllowed, "ErrorInvalidMethod", "Invalid method: want GET")
			return
		}
		query := r.URL.Query()
		if what := query.Get("what"); what != "timestamps" {
			refuse(w, http.StatusBadRequest, "ErrorInvalidRequest", "what="+strconv.Quote(what)+": want timestamps; Isotone does not assign uids")
			return
		}
		num, err := strconv.ParseUint(query.Get("num"), 0, 64)
		if err != nil || num < 1 || num > isotone.Range64CountMax {
			refuse(w, http.StatusBadRequest, "ErrorInvalidRequest", "num: want a number from 1 to "+strconv.Itoa(isotone.Range64CountMax))
			return
		}
		got, err := s.Timestamps64(r.Context(), num)
		if err != nil {
			refuse(w, http.StatusServiceUnavailable, "Error", err.Error())
			return
		}
		_ = json.NewEncoder(w).Encode(assigned{got.First, got.Last()})
	})
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string][]failure{"errors": {{message, map[string]string{"code": code}}}})
}
