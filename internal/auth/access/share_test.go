package access_test

import (
	"net/netip"
	"testing"

	"github.com/isotone/isotone/internal/auth/access"
)

// TestShare_OfAPool: one address or user has three quarters of it, unless the list says otherwise, and half for streams.
func TestShare_OfAPool(t *testing.T) {
	c := open(t, access.Config{File: users(t, "", `{"users": {"alice": {"roles": ["live"], "secrets": ["HASH"]}, "bob": {"roles": ["live"], "secrets": ["HASH"], "limits": {"connections": 90, "streams": 70}}}}`)})
	c.Share(access.ClientPool, 100)
	c.Share(access.ThriftPool, 4)
	fill := func(addr func(int) netip.Addr, p access.Pool, name string) (n int) {
		var all []access.Session
		defer func() {
			for i := range all {
				all[i].Close()
			}
		}()
		for ; n < 100; n++ {
			s, err := c.Open(addr(n), nil, p)
			if err != nil {
				return n
			}
			all = append(all, s)
			s.BeginHandshake()
			s.HandshakeDone()
			if last := &all[len(all)-1]; name != "" {
				last.BeginHandshake()
				last.HandshakeDone()
				if err := prove(t, last, name, secret); err != nil {
					return n
				}
			}
		}
		return n
	}
	one := func(int) netip.Addr { return elsewhere }
	many := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}) }
	for _, tc := range []struct {
		what string
		got  int
		want int
	}{
		{"an address", fill(one, access.ClientPool, ""), 75}, {"an address, again", fill(one, access.ClientPool, ""), 75},
		{"an address, Thrift", fill(one, access.ThriftPool, ""), 3}, {"many", fill(many, access.ClientPool, ""), 100},
		{"a user", fill(many, access.ClientPool, "alice"), 75}, {"a user with limits", fill(many, access.ClientPool, "bob"), 90},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %d connections, want %d", tc.what, tc.got, tc.want)
		}
	}
	for name, want := range map[string]int{"": 50, "alice": 50, "bob": 70} {
		s := session(t, c, elsewhere)
		if name != "" {
			if err := prove(t, s, name, secret); err != nil {
				t.Fatal(err)
			}
		}
		n := 0
		for ; n < 100; n++ {
			if _, err := s.TakeStream(); err != nil {
				break
			}
		}
		if n != want {
			t.Errorf("%q: %d streams, want %d", name, n, want)
		}
	}
	few := session(t, c, netip.AddrFrom4([4]byte{192, 0, 2, 77}))
	for i := range 4 {
		if _, err := few.TakeStreamOf(6); (err == nil) != (i < 3) {
			t.Errorf("stream %d of at most 6 of all: %v", i, err)
		}
	}
}
