package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestRun_CommandLines has those that need no database.
func TestRun_CommandLines(t *testing.T) {
	for _, c := range []struct {
		args, in string
		code     int
		out, err string
	}{
		{"--help", "", 0, "isotone-live loads live documents", ""},
		{"get it", "", 2, "", "want no arguments, or get"},
		{"get", "mongodb://app:hidden@db/shop", 1, "", "isotone-live: want a collection and an _id"},
		{"get", "postgres://app:hidden@127.0.0.1:1/shop?sslmode=nonsense#SELECT 1", 1, "", "isotone-live: invalid_argument"},
		{"get", "postgres://app:hidden@127.0.0.1:1/shop?sslmode=disable#SELECT 1", 1, "", "isotone-live: internal: dial tcp 127.0.0.1:1"},
		{"get", strings.Repeat("x", urlBytesMax+1), 1, "", "at most 64 KiB"},
		{"", `{"version":1,"url":"mysql://app:hidden@db/shop#a/b"}` + "\n", 0, `{"code":"invalid_argument","message":"want a URL of mongodb`, ""},
		{"", "x\n", 1, "", "a request is not JSON"},
	} {
		var out, errs bytes.Buffer
		code := run(strings.Fields(c.args), strings.NewReader(c.in), &out, &errs)
		if code != c.code || !strings.HasPrefix(out.String(), c.out) || !strings.Contains(errs.String(), c.err) || strings.Contains(errs.String(), "hidden") {
			t.Errorf("%q %.60q: %d, %q, %q", c.args, c.in, code, out.String(), errs.String())
		}
	}
}
