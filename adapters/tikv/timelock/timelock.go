// Package timelock serves timestamps in the form of AtlasDB's timestamp service, which TimeLock has
// for each namespace: POST …/timestamp/fresh-timestamp and …/timestamp/fresh-timestamps?number=N.
// TimeLock's locks, and its newer protocol below /tl, are not served.
//
// Source: TimestampService.java and TimestampRange.java in github.com/palantir/atlasdb.
package timelock

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

// bounds is the answer to fresh-timestamps. Both are included. They are numbers of 64 bits, since Java
// has such.
type bounds struct {
	Lower uint64 `json:"lowerBound"`
	Upper uint64 `json:"upperBound"`
}

// Handler returns what serves the paths /timestamp/… and /{namespace}/timestamp/…. All namespaces
// share one order, so the timestamps of each increase. As the interface permits, the answer to a
// number above isotone.Range64CountMax has fewer timestamps than that. It is safe for concurrent use.
// The request's context bounds the wait for the cluster.
func Handler(s Source) http.Handler {
	one := func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, s, 1, func(got isotone.Range64) any { return uint64(got.First) })
	}
	many := func(w http.ResponseWriter, r *http.Request) {
		number, err := strconv.ParseUint(r.URL.Query().Get("number"), 10, 64)
		if err != nil || number < 1 || number > math.MaxInt32 {
			refuse(w, http.StatusBadRequest, isotone.Errorf(isotone.CodeInvalidArgument, "number: want 1 to %d", math.MaxInt32))
			return
		}
		answer(w, r, s, min(number, isotone.Range64CountMax), func(got isotone.Range64) any {
			return bounds{uint64(got.First), uint64(got.Last())}
		})
	}
	mux := http.NewServeMux()
	for _, prefix := range []string{"POST /timestamp/", "POST /{namespace}/timestamp/"} {
		mux.HandleFunc(prefix+"fresh-timestamp", one)
		mux.HandleFunc(prefix+"fresh-timestamps", many)
	}
	return mux
}

func answer(w http.ResponseWriter, r *http.Request, s Source, count uint64, form func(isotone.Range64) any) {
	got, err := s.Timestamps64(r.Context(), count)
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(form(got))
}

// refuse answers with the fields that AtlasDB's HTTP clients look for in an error.
func refuse(w http.ResponseWriter, status int, err error) {
	code := isotone.CodeInternal
	var told *isotone.Error
	if errors.As(err, &told) {
		code = told.Code
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"errorName": string(code), "message": err.Error()})
}
