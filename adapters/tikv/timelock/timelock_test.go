package timelock_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/adapters/tikv/timelock"
)

type source struct{ err error }

func (s source) Timestamps64(_ context.Context, count uint64) (isotone.Range64, error) {
	return isotone.Range64{First: 1000, Count: count}, s.err
}

func TestHandler_AnswersAsTimeLockDoes(t *testing.T) {
	noLeader := isotone.Errorf(isotone.CodeNoLeader, "no leader is known")
	for _, c := range []struct {
		method, path string
		err          error
		status       int
		want         string
	}{
		{"POST", "/timestamp/fresh-timestamp", nil, 200, "1000\n"},
		{"POST", "/orders/timestamp/fresh-timestamp", nil, 200, "1000\n"},
		{"POST", "/orders/timestamp/fresh-timestamps?number=5", nil, 200, `{"lowerBound":1000,"upperBound":1004}`},
		{"POST", "/timestamp/fresh-timestamps?number=1000000", nil, 200, `{"lowerBound":1000,"upperBound":263143}`},
		{"POST", "/timestamp/fresh-timestamps?number=0", nil, 400, "number: want 1 to 2147483647"},
		{"POST", "/timestamp/fresh-timestamps", nil, 400, "number: want"},
		{"GET", "/timestamp/fresh-timestamp", nil, 405, "Method Not Allowed"},
		{"POST", "/tl/ts", nil, 404, "not found"},
		{"POST", "/timestamp/fresh-timestamp", noLeader, 503, `{"errorName":"no_leader","message":"no_leader: no leader is known"}`},
	} {
		w := httptest.NewRecorder()
		timelock.Handler(source{c.err}).ServeHTTP(w, httptest.NewRequest(c.method, c.path, http.NoBody))
		if got := w.Body.String(); w.Code != c.status || !strings.Contains(got, c.want) {
			t.Errorf("%s %s: %d %s, want %d %s", c.method, c.path, w.Code, got, c.status, c.want)
		}
	}
}
