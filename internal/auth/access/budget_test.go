package access_test

import (
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
)

// TestRefused_AnAddressIsHeldToItsBudget, which comes back with time; others have their own.
func TestRefused_AnAddressIsHeldToItsBudget(t *testing.T) {
	now := new(atomic.Int64)
	c := open(t, access.Config{Now: func() time.Duration { return time.Duration(now.Load()) }})
	s := c.Request(elsewhere, nil, false)
	for i := range 256 {
		if err := c.Refusing(elsewhere); err != nil || s.Refused() {
			t.Fatalf("after %d: %v", i, err)
		}
	}
	if err := c.Refusing(elsewhere); !errors.Is(err, isotone.ErrQuotaExceeded) || !s.Refused() {
		t.Fatalf("%v", err)
	}
	if err := c.Refusing(netip.MustParseAddr("::ffff:192.0.2.7")); err == nil {
		t.Error("the same address, written for IPv6, is another one")
	}
	if err := c.Refusing(netip.MustParseAddr("192.0.2.8")); err != nil {
		t.Errorf("another address: %v", err)
	}
	for range 1000 {
		s.Refused()
	}
	now.Add(int64(8 * time.Second))
	if err := c.Refusing(elsewhere); err == nil {
		t.Error("what came beyond the budget is forgotten")
	}
	now.Add(int64(time.Second))
	for i := range 9 {
		if got, want := s.Refused(), i == 8; got != want {
			t.Errorf("a second later, after %d: %v", i, got)
		}
	}
	if err := (*access.Control)(nil).Refusing(elsewhere); err != nil || new(access.Session).Refused() {
		t.Error("without a Control something is refused")
	}
}

// TestHandshakes_ThatSucceedDoNotCount; those under way and failed ones do.
func TestHandshakes_ThatSucceedDoNotCount(t *testing.T) {
	c := open(t, access.Config{Now: func() time.Duration { return 0 }})
	s := session(t, c, elsewhere)
	for range 1000 {
		if !s.BeginHandshake() {
			t.Fatal("refused, although all before have succeeded")
		}
		s.HandshakeDone()
	}
	for i := range 129 {
		if got, want := s.BeginHandshake(), i < 128; got != want {
			t.Fatalf("with %d under way: %v", i, got)
		}
	}
	if !session(t, c, here).BeginHandshake() {
		t.Error("another address is refused")
	}
	s.HandshakeDone()
	if !s.BeginHandshake() {
		t.Error("refused, although one has succeeded")
	}
	if !new(access.Session).BeginHandshake() {
		t.Error("without a Control a handshake is refused")
	}
}
