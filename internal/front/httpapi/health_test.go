package httpapi

import "testing"

func TestHealth_SpeaksAsKubernetesDoes(t *testing.T) {
	good := []Check{{Name: "timestamps"}, {Name: "ids"}}
	bad := []Check{{Name: "timestamps"}, {Name: "ids", Failed: "no worker\nid"}}
	for _, tc := range []struct {
		checks []Check
		query  string
		body   string
		ok     bool
	}{
		{good, "", "ok", true},
		{good, "verbose", "[+]timestamps ok\n[+]ids ok\nreadyz check passed\n", true},
		{good, "verbose=1&other=%zz", "[+]timestamps ok\n[+]ids ok\nreadyz check passed\n", true},
		{bad, "", "[+]timestamps ok\n[-]ids failed: no worker id\nreadyz check failed\n", false},
		{bad, "verbose", "[+]timestamps ok\n[-]ids failed: no worker id\nreadyz check failed\n", false},
		{bad, "exclude=timestamps", "[+]timestamps excluded: ok\n[-]ids failed: no worker id\nreadyz check failed\n", false},
		{bad, "exclude=none&exclude=ids", "ok", true},
		{bad, "verbose&exclude=ids", "[+]timestamps ok\n[+]ids excluded: ok\nreadyz check passed\n", true},
		{nil, "verbose", "readyz check passed\n", true},
	} {
		if body, ok := Health("readyz", tc.checks, tc.query); body != tc.body || ok != tc.ok {
			t.Errorf("?%s: %q, %v; want %q, %v", tc.query, body, ok, tc.body, tc.ok)
		}
	}
}
