package access_test

import (
	"net/netip"
	"testing"

	"github.com/isotone/isotone/internal/auth/access"
)

// TestAccount: users and addresses count each by itself, all programs on this machine together, and operators not at all.
func TestAccount(t *testing.T) {
	c := open(t, access.Config{File: users(t, "", `{"users": {}, "addressLimits": {"sessions": 3, "locks": 4}}`), Anonymous: new(access.All)})
	for addr, want := range map[string]string{
		"192.0.2.8": "address 192.0.2.8", "::ffff:192.0.2.8": "address 192.0.2.8", "127.0.0.9": "address 127.0.0.1", "::1": "address 127.0.0.1", "2001:db8::7": "address 2001:db8::",
	} {
		a := c.Request(netip.MustParseAddr(addr), nil, true).Account()
		if a.Name() != want || a.Limits().Sessions != 3 || a.Limits().Locks != 4 {
			t.Errorf("%s: %s, %s", addr, a.Name(), a.Limits())
		}
	}
	if c.Operator("x").Account() != nil || new(access.Session).Account() != nil {
		t.Error("sessions of an operator, or without a list, are limited")
	}
	c.Request(elsewhere, nil, true).Account().OverQuota("locks")
	if uses := c.Uses(); len(uses) != 1 || uses[0].OverQuota != 1 {
		t.Errorf("%+v, want one refusal", uses)
	}
	if _, err := access.Open(access.Config{File: users(t, "", `{"users": {"a": {"roles": ["locks"], "limits": {"locks": -1}}}}`)}); err == nil {
		t.Error("a negative limit")
	}
}
