package operator_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/isotone/isotone/client"
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

// Whoever listens at a likely port would get the secret.
func TestFind_SendsNoSecretToWhoIsNotNamed(t *testing.T) {
	secret := func() (client.Credentials, error) { return client.Credentials{Name: "ops", Secret: "s"}, nil }
	for _, tt := range []struct {
		access operator.Access
		may    bool
	}{
		{operator.Access{}, true},
		{operator.Access{Credentials: secret}, false},
		{operator.Access{Credentials: secret, Secure: true, TLS: &tls.Config{InsecureSkipVerify: true}}, false},
		{operator.Access{Credentials: secret, Secure: true, TLS: &tls.Config{}}, true},
	} {
		_, find := operator.Find(t.Context(), &tt.access)
		_, node := operator.FindNode(t.Context(), &tt.access, []string{"127.0.0.1:1"})
		if may := tt.access.MayGuess(); (may == nil) != tt.may || !tt.may && (!errors.Is(find, may) || !errors.Is(node, may)) {
			t.Errorf("%+v: %v, %v, %v", tt.access, may, find, node)
		}
	}
}
