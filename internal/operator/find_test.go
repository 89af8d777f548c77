package operator_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/isotone/isotone/internal/operator"
)

func TestFindNode_TakesTheFirstThatIsANode(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	serve := func(body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/members" {
				http.NotFound(w, r)
				return
			}
			_, _ = io.WriteString(w, body)
		}))
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	const nobody = "127.0.0.1:1"
	one, two, page := serve(`{"nodeID":1}`), serve(`{"nodeID":2}`), serve("<html>")
	for _, tc := range []struct {
		addrs []string
		want  string
	}{
		{[]string{one, two}, one},
		{[]string{two, one}, two},
		{[]string{nobody, page, one}, one},
		{[]string{nobody, page}, ""},
	} {
		if got, err := operator.FindNode(t.Context(), &operator.Access{}, tc.addrs); got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%v: %q, %v; want %q", tc.addrs, got, err, tc.want)
		}
	}
	_, err := operator.FindNode(t.Context(), &operator.Access{}, []string{nobody, page})
	if want := fmt.Sprintf("no node answers at %s, %s (another server): name one", nobody, page); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
