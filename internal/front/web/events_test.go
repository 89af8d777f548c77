package web_test

import (
	"bufio"
	"net/http"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/front"
)

// TestLocks_AreFollowedOverEachProtocol: a stream has each change, and ends with the reason why there are no more.
func TestLocks_AreFollowedOverEachProtocol(t *testing.T) {
	s, k := startSessions(t)
	eachProtocol(t, s, func(t *testing.T, c *client) {
		sees := func(after isotone.Timestamp64, err error, holders ...front.Holder) {
			t.Helper()
			w := await.Receive(t, "a watch", k.watched)
			if w.Lock != "shop/x" || w.After != after {
				t.Errorf("it is watched for %+v", w)
			}
			w.Err, w.Holders = err, holders
			w.Done(w)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.scheme+"://"+c.addr+"/locks/shop/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "text/event-stream")
		opened := make(chan *http.Response, 1)
		go func() {
			a, err := c.Do(r)
			if err != nil {
				t.Error(err)
			}
			opened <- a
		}()
		sees(0, nil)
		a := await.Receive(t, "the header", opened)
		if a == nil || a.StatusCode != 200 || a.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("%+v", a)
		}
		defer a.Body.Close()
		lines := bufio.NewScanner(a.Body)
		wants := func(want ...string) {
			t.Helper()
			for _, line := range append(want, "") {
				if lines.Scan(); lines.Text() != line {
					t.Fatalf("%q, %v, want %q", lines.Text(), lines.Err(), line)
				}
			}
		}
		wants("event: free", `data: {"name":"shop/x"}`)
		sees(0, nil, front.Holder{Name: "shop/x", Token: tokenX, Value: "me", Session: 1, Label: "worker"})
		wants("event: held", `data: {"name":"shop/x","token":"`+tokenX.Timestamp().String()+`","token64":"470780841959217570","value":"me","session":"0000000000000001","label":"worker"}`)
		sees(tokenX, isotone.ErrNoLeader)
		wants("event: error", `data: {"error":{"code":"no_leader","message":"`+isotone.ErrNoLeader.Message+`"}}`)
		if lines.Scan() {
			t.Errorf("there is more: %q", lines.Text())
		}
	})
}
