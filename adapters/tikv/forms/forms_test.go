package forms_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/adapters/tikv/forms"
)

type source struct{ err error }

func (s source) Timestamps64(_ context.Context, count uint64) (isotone.Range64, error) {
	return isotone.Range64{First: 1 << 60, Count: count}, s.err
}

func TestHandler_AnswersAsZeroAndTimeLockDo(t *testing.T) {
	noLeader := isotone.Errorf(isotone.CodeNoLeader, "no leader is known")
	for _, c := range []struct {
		method, path string
		err          error
		status       int
		want         string
	}{
		{"GET", "/assign?what=timestamps&num=3", nil, 200, `{"startId":"1152921504606846976","endId":"1152921504606846978"}`},
		{"GET", "/assign?what=timestamps&num=0x10", nil, 200, `"endId":"1152921504606846991"`},
		{"GET", "/assign?what=timestamps&num=0", nil, 400, `{"errors":[{"message":"num: want a number from 1 to 262144","extensions":{"code":"ErrorInvalidRequest"}}]}`},
		{"GET", "/assign?what=timestamps&num=262145", nil, 400, "num: want"},
		{"GET", "/assign?what=timestamps", nil, 400, "num: want"},
		{"GET", "/assign?what=uids&num=1", nil, 400, "Isotone does not assign uids"},
		{"POST", "/assign?what=timestamps&num=1", nil, 405, "ErrorInvalidMethod"},
		{"GET", "/assign?what=timestamps&num=1", noLeader, 503, "no_leader: no leader is known"},
		{"POST", "/timestamp/fresh-timestamp", nil, 200, "1152921504606846976\n"},
		{"POST", "/orders/timestamp/fresh-timestamp", nil, 200, "1152921504606846976\n"},
		{"POST", "/orders/timestamp/fresh-timestamps?number=5", nil, 200, `{"lowerBound":1152921504606846976,"upperBound":1152921504606846980}`},
		{"POST", "/timestamp/fresh-timestamps?number=1000000", nil, 200, `"upperBound":1152921504607109119}`},
		{"POST", "/timestamp/fresh-timestamps?number=0", nil, 400, "number: want 1 to 2147483647"},
		{"POST", "/timestamp/fresh-timestamps", nil, 400, "number: want"},
		{"GET", "/timestamp/fresh-timestamp", nil, 405, "Method Not Allowed"},
		{"POST", "/tl/ts", nil, 404, "not found"},
		{"POST", "/timestamp/fresh-timestamp", noLeader, 503, `{"errorName":"no_leader","message":"no_leader: no leader is known"}`},
		{"POST", "/timestamp/fresh-timestamps?number=5", noLeader, 503, `{"errorName":"no_leader"`},
	} {
		w := httptest.NewRecorder()
		forms.Handler(source{c.err}).ServeHTTP(w, httptest.NewRequest(c.method, c.path, http.NoBody))
		if got := w.Body.String(); w.Code != c.status || !strings.Contains(got, c.want) {
			t.Errorf("%s %s: %d %s, want %d %s", c.method, c.path, w.Code, got, c.status, c.want)
		}
	}
}
