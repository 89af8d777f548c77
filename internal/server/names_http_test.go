package server_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/check/testnode"
)

// TestNames_OverHTTP: a user has the locks and groups of its list, and what its roles give, whatever the request.
func TestNames_OverHTTP(t *testing.T) {
	t.Parallel()
	n := testnode.Guarded(t, `{"users": {
		"shop": {"roles": ["locks", "frontier"], "names": ["shop/"], "secrets": ["HASH"]}, "locks": {"roles": ["locks"], "secrets": ["HASH"]}
	}}`, nil)
	const id, stamp = "00000000000000ff", "00000000000000010000000000000000"
	for _, step := range []struct {
		user, method, target string
		status               int
	}{
		{"", "PUT", "/sessions/" + id + "?ttl=60s", 401},
		{"shop", "PUT", "/sessions/" + id + "?ttl=60s&group=orders", 403}, {"locks", "PUT", "/sessions/" + id + "?ttl=60s&group=shop/orders", 403},
		{"shop", "PUT", "/sessions/" + id + "?ttl=60s&group=shop/orders", 200},
		{"shop", "PUT", "/locks/jobs?session=" + id, 403}, {"shop", "PUT", "/locks/shop?session=" + id, 403}, {"shop", "GET", "/locks/jobs", 403}, {"shop", "GET", "/locks", 403}, {"shop", "GET", "/locks?prefix=s", 403},
		{"shop", "DELETE", "/locks/jobs?token=470780841959217570&session=" + id, 403},
		{"shop", "PUT", "/locks/shop/a?session=" + id, 200}, {"shop", "GET", "/locks/shop%2Fa", 200}, {"shop", "GET", "/locks?prefix=shop/", 200}, {"locks", "GET", "/locks", 200},
		{"shop", "GET", "/frontier/orders", 403}, {"shop", "POST", "/frontier/orders/take?session=" + id, 403}, {"shop", "POST", "/frontier/orders/low?session=" + id + "&stamp=" + stamp, 403},
		{"shop", "GET", "/frontier/shop/orders", 200}, {"shop", "POST", "/frontier/shop/orders/take?session=" + id, 200}, {"locks", "GET", "/frontier/shop/orders", 403},
		{"locks", "GET", "/frontier/shop/orders?session=" + id, 403}, {"", "GET", "/locks", 401}, {"shop", "DELETE", "/sessions/" + id, 200},
	} {
		status, body := 0, ""
		await.Until(t, "the node answers", func() bool {
			r, err := http.NewRequestWithContext(t.Context(), step.method, "http://"+n.Client+step.target, nil)
			if err != nil {
				t.Fatal(err)
			}
			if step.user != "" {
				r.Header.Set("Authorization", rig.Bearer(step.user, rig.Secret))
			}
			a, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Body.Close()
			text, _ := io.ReadAll(a.Body)
			status, body = a.StatusCode, strings.TrimSpace(string(text))
			return status != http.StatusServiceUnavailable
		})
		if status != step.status {
			t.Errorf("%s: %s %s: %d %s, want %d", step.user, step.method, step.target, status, body, step.status)
		}
	}
}
