package address_test

import (
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/auth/address"
)

func TestAddress_FormsAndMeanings(t *testing.T) {
	for _, c := range []struct {
		addr               string
		valid, unspecified bool
	}{
		{"a:1", true, false},
		{"node-1.example.com:65535", true, false},
		{"10.0.0.1:60001", true, false},
		{"[::1]:60001", true, false},
		{"[fe80::1%eth0]:60001", true, false},
		{"0.0.0.0:5", true, true},
		{"[::]:5", true, true},
		{"[::ffff:0.0.0.0]:5", true, true},
		{":5", false, true},
		{"", false, false},
		{"a", false, false},
		{"a:", false, false},
		{"a:0", false, false},
		{"a:-1", false, false},
		{"a:65536", false, false},
		{"a:http", false, false},
		{"::1:60001", false, false},
		{"http://a:1", false, false},
		{"a b:1", false, false},
		{"a,b:1", false, false},
		{"a\x7f:1", false, false},
		{"bücher.example:1", false, false},
		{"[fe80::1%a b]:1", false, false},
		{strings.Repeat("a", 254) + ":1", true, false},
		{strings.Repeat("a", 254) + ":10", false, false},
	} {
		if got := address.Valid(c.addr, 1); got != c.valid {
			t.Errorf("%q: valid %v", c.addr, got)
		}
		if got := address.Unspecified(c.addr); got != c.unspecified {
			t.Errorf("%q: unspecified %v", c.addr, got)
		}
	}
	if !address.Valid("a:0", 0) {
		t.Error("port 0 is refused where it is allowed")
	}
}
