package proxy

import (
	"net"
	"net/netip"
	"testing"
)

// from is a connection from an address.
type from struct {
	net.Conn
	addr string
}

func (f from) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(f.addr)) }

// It takes more than one address to take all connections.
func TestClients_AnAddressHasItsShare(t *testing.T) {
	c := newClients(8)
	var leave []func()
	enter := func(addr string, want bool) {
		t.Helper()
		f, ok := c.enter(from{addr: addr})
		if ok != want {
			t.Errorf("%s with %d open: %v", addr, c.count(), ok)
		}
		if ok {
			leave = append(leave, f)
		}
	}
	for range 3 {
		enter("[2001:db8::1]:1", true)
		enter("[2001:db8::9]:1", true)
	}
	enter("[2001:db8::1]:1", false)
	enter("[2001:db8:0:1::1]:1", true)
	enter("192.0.2.1:1", true)
	enter("192.0.2.2:1", false) // all are taken
	leave[0]()
	enter("[2001:db8::7]:1", true)
	for _, f := range leave[1:] {
		f()
	}
	if c.count() != 0 || len(c.from) != 0 {
		t.Errorf("%d are left, %v", c.count(), c.from)
	}
}
