package access

import (
	"net/netip"
	"testing"
	"time"
)

// TestTrim_ForgetsAddressesWhoseLeasesHaveEnded although their clients did not give them back.
func TestTrim_ForgetsAddressesWhoseLeasesHaveEnded(t *testing.T) {
	a := newAddresses()
	lease := func(addr string, until time.Time) {
		u := a.record(netip.MustParseAddr(addr))
		if !u.leases.take(10, 1, -1, time.Now().UnixMilli()) {
			t.Fatal("no lease")
		}
		u.leases.settle(1, 5, 1, until.UnixMilli())
	}
	lease("192.0.2.1", time.Now().Add(time.Hour))
	lease("192.0.2.2", time.Now().Add(-time.Millisecond))
	a.trim(0)
	a.trim(addressKeep + 1)
	if _, kept := a.by[netip.MustParseAddr("192.0.2.1")]; !kept || len(a.by) != 1 {
		t.Errorf("%d addresses are left; that with a lease is kept: %v", len(a.by), kept)
	}
}
