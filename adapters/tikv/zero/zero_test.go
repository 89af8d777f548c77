package zero_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/adapters/tikv/zero"
)

type source struct{ err error }

func (s source) Timestamps64(_ context.Context, count uint64) (isotone.Range64, error) {
	return isotone.Range64{First: 1 << 60, Count: count}, s.err
}

func TestHandler_AnswersAsZeroDoes(t *testing.T) {
	noLeader := isotone.Errorf(isotone.CodeNoLeader, "no leader is known")
	for _, c := range []struct {
		method, query string
		err           error
		status        int
		want          string
	}{
		{"GET", "what=timestamps&num=3", nil, 200, `{"startId":"1152921504606846976","endId":"1152921504606846978"}`},
		{"GET", "what=timestamps&num=0x10", nil, 200, `"endId":"1152921504606846991"`},
		{"GET", "what=timestamps&num=0", nil, 400, `{"errors":[{"message":"num: want a number from 1 to 262144","extensions":{"code":"ErrorInvalidRequest"}}]}`},
		{"GET", "what=timestamps&num=262145", nil, 400, "num: want"},
		{"GET", "what=timestamps", nil, 400, "num: want"},
		{"GET", "what=uids&num=1", nil, 400, "Isotone does not assign uids"},
		{"POST", "what=timestamps&num=1", nil, 405, "ErrorInvalidMethod"},
		{"GET", "what=timestamps&num=1", noLeader, 503, "no_leader: no leader is known"},
	} {
		w := httptest.NewRecorder()
		zero.Handler(source{c.err}).ServeHTTP(w, httptest.NewRequest(c.method, "/assign?"+c.query, http.NoBody))
		if got := w.Body.String(); w.Code != c.status || !strings.Contains(got, c.want) {
			t.Errorf("%s %s: %d %s, want %d %s", c.method, c.query, w.Code, got, c.status, c.want)
		}
	}
}
