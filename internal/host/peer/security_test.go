package peer

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/core/wire"
)

// fakeSecurity marks a protected connection with the first byte of TLS and the name of its
// dialer. It answers with its own.
type fakeSecurity struct {
	id uint64
	// refuse is consulted by Check, with the ID that the other side has shown.
	refuse func(shown, claimed uint64) *wire.Refusal
	checks atomic.Int64
}

type fakeSecured struct {
	net.Conn
	security *fakeSecurity
	shown    uint64
}

func (f *fakeSecurity) Client(conn net.Conn, peer uint64) (Secured, error) {
	var answer [1]byte
	if _, err := conn.Write([]byte{recordHandshake, byte(f.id)}); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoTLS, err)
	}
	c := &fakeSecured{conn, f, uint64(answer[0])}
	if r := c.Check(peer); r != nil {
		return nil, r
	}
	return c, nil
}

func (f *fakeSecurity) Server(conn net.Conn, read []byte) (Secured, error) {
	var shown [1]byte
	if len(read) != 1 || read[0] != recordHandshake {
		return nil, fmt.Errorf("begins with %x", read)
	}
	if _, err := io.ReadFull(conn, shown[:]); err != nil {
		return nil, err
	}
	if _, err := conn.Write([]byte{byte(f.id)}); err != nil {
		return nil, err
	}
	return &fakeSecured{conn, f, uint64(shown[0])}, nil
}

func (c *fakeSecured) Check(id uint64) *wire.Refusal {
	c.security.checks.Add(1)
	if c.security.refuse != nil {
		return c.security.refuse(c.shown, id)
	}
	if c.shown != id {
		return wire.Refusalf(wire.RefusedCertificate, "node %d shows %d", id, c.shown)
	}
	return nil
}

// secured has a harness use f.
func secured(f *fakeSecurity, insecure bool) func(*Config) {
	return func(c *Config) {
		attach := c.Attach
		c.Security, c.Insecure = f, insecure
		c.Attach = func(conn net.Conn, s *Stream) (func(error), error) {
			if p, ok := conn.(*fakeSecured); ok {
				conn = p.Conn
			}
			return attach(conn, s)
		}
	}
}

func TestSecurity_PeersConnectAndAreNamed(t *testing.T) {
	a, b := newHarness(t, 1, secured(&fakeSecurity{id: 1}, false)), newHarness(t, 2, secured(&fakeSecurity{id: 2}, false))
	join(t, a, b)
	for _, h := range []*harness{a, b} {
		if p := h.Peers()[0]; !p.Connected || !p.Secured {
			t.Errorf("%+v", p)
		}
	}
}

// Whoever has proven nothing is not described to Admit, and learns nothing of this node.
func TestSecurity_AnotherNameIsRefusedBeforeAdmit(t *testing.T) {
	admitted := false
	a := newHarness(t, 1, func(c *Config) {
		secured(&fakeSecurity{id: 1}, false)(c)
		c.Admit = func(wire.Hello) *wire.Refusal { admitted = true; return nil }
		c.Hello = func() wire.Hello { admitted = true; return wire.Hello{} }
	})
	a.SetPeers(map[uint64][]string{2: nil, 3: nil})
	r := dialRaw(t, a.addr)
	r.write(append([]byte{recordHandshake, 3}, hello(t, wire.FrameHello, wire.Hello{NodeID: 2, Session: 5})...))
	var one [1]byte
	if _, err := io.ReadFull(r.conn, one[:]); err != nil || one[0] != 1 {
		t.Fatal(one, err)
	}
	f := r.expect(wire.FrameRefusal)
	if got, err := wire.ParseRefusal(f.Payload); err != nil || got.Code != wire.RefusedCertificate || got.Message != "node 2 shows 3" {
		t.Error(got, err)
	}
	if e := await.Receive(t, "a refusal", a.refused); e.peer != 2 || e.by != wire.Self || e.refusal.Code != wire.RefusedCertificate {
		t.Errorf("%+v", e)
	}
	if admitted {
		t.Error("the hello was admitted, or answered")
	}
}

func TestSecurity_DialerRefusesTheWrongAcceptor(t *testing.T) {
	a, b := newHarness(t, 1, secured(&fakeSecurity{id: 9}, false)), newHarness(t, 2, secured(&fakeSecurity{id: 2}, false))
	a.SetPeers(map[uint64][]string{2: {b.addr}})
	b.SetPeers(map[uint64][]string{1: {a.addr}})
	if e := await.Receive(t, "a refusal", b.refused); e.peer != 1 || e.by != wire.Self || e.refusal.Code != wire.RefusedCertificate {
		t.Errorf("%+v", e)
	}
}

func TestSecurity_ClearPeerIsRefusedByName(t *testing.T) {
	a, b := newHarness(t, 1, secured(&fakeSecurity{id: 1}, false)), newHarness(t, 2, nil)
	a.SetPeers(map[uint64][]string{2: {b.addr}})
	b.SetPeers(map[uint64][]string{1: {a.addr}})
	e := await.Receive(t, "a refusal", b.refused)
	if e.by != wire.Remote || e.refusal.Code != wire.RefusedClear || !strings.Contains(e.refusal.Message, "PEER_TLS_CERT") {
		t.Errorf("%+v", e)
	}
	if e := await.Receive(t, "a refusal", a.refused); e.peer != 2 || e.by != wire.Self || e.refusal.Code != wire.RefusedClear {
		t.Errorf("%+v", e)
	}
}

// A node without certificates does not take the first byte of TLS for a frame, and the dialer
// does not go on in plaintext.
func TestSecurity_NoDowngradeUnlessAsked(t *testing.T) {
	failed := make(chan error, 64)
	a := newHarness(t, 1, nil)
	b := newHarness(t, 2, func(c *Config) {
		secured(&fakeSecurity{id: 2}, false)(c)
		c.SecurityFailed = func(err error) { put(failed, err) }
	})
	a.SetPeers(map[uint64][]string{2: {b.addr}})
	b.SetPeers(map[uint64][]string{1: {a.addr}})
	for range 3 {
		if err := await.Receive(t, "a failure", failed); !strings.Contains(err.Error(), ErrNoTLS.Error()) {
			t.Error(err)
		}
	}
	if a.Peers()[0].Connected || b.Peers()[0].Connected {
		t.Error("connected in plaintext")
	}
}

func TestSecurity_InsecureMeetsBothKinds(t *testing.T) {
	// Node 1 and 3 are in plaintext, 2 changes: 2 dials 1, and 3 dials 2. 4 has changed.
	a, c := newHarness(t, 1, nil), newHarness(t, 3, nil)
	b, d := newHarness(t, 2, secured(&fakeSecurity{id: 2}, true)), newHarness(t, 4, secured(&fakeSecurity{id: 4}, true))
	join(t, a, b, c, d)
	for _, p := range b.Peers() {
		if !p.Connected || p.Secured != (p.ID == 4) {
			t.Errorf("%+v", p)
		}
	}
}

// A certificate that is refused is no reason to go on in plaintext.
func TestSecurity_InsecureStillRefusesABadCertificate(t *testing.T) {
	a, b := newHarness(t, 1, secured(&fakeSecurity{id: 9}, true)), newHarness(t, 2, secured(&fakeSecurity{id: 2}, true))
	a.SetPeers(map[uint64][]string{2: {b.addr}})
	b.SetPeers(map[uint64][]string{1: {a.addr}})
	for range 2 {
		if e := await.Receive(t, "a refusal", b.refused); e.refusal.Code != wire.RefusedCertificate {
			t.Errorf("%+v", e)
		}
	}
	if b.Peers()[0].Connected {
		t.Error("connected")
	}
}

func TestSecurity_OpenConnectionEndsWhenTheCertificateDoes(t *testing.T) {
	t.Parallel()
	var revoked atomic.Bool
	f := &fakeSecurity{id: 1, refuse: func(_, id uint64) *wire.Refusal {
		if revoked.Load() {
			return wire.Refusalf(wire.RefusedCertificate, "revoked")
		}
		return nil
	}}
	a, b := newHarness(t, 1, secured(f, false)), newHarness(t, 2, secured(&fakeSecurity{id: 2}, false))
	join(t, a, b)
	revoked.Store(true)
	if e := await.Receive(t, "the end", a.disconnected); e.peer != 2 || !strings.Contains(e.err.Error(), "revoked") {
		t.Errorf("%+v", e)
	}
	if e := await.Receive(t, "a refusal", b.refused); e.by != wire.Remote || e.refusal.Code != wire.RefusedCertificate {
		t.Errorf("%+v", e)
	}
}

// farConn is a connection with another machine, as far as its addresses tell.
type farConn struct{ net.Conn }

func (farConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1} }

type farListener struct{ net.Listener }

func (l farListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return farConn{c}, nil
}

func TestSecurity_OtherMachinesNeedTLSOrLeave(t *testing.T) {
	far := func(c *Config) { c.Listener = farListener{c.Listener} }
	a, b := newHarness(t, 1, far), newHarness(t, 2, nil)
	a.SetPeers(map[uint64][]string{2: {b.addr}})
	b.SetPeers(map[uint64][]string{1: {a.addr}})
	if e := await.Receive(t, "a refusal", b.refused); e.by != wire.Remote || e.refusal.Code != wire.RefusedClear || !strings.Contains(e.refusal.Message, "PEER_INSECURE") {
		t.Errorf("%+v", e)
	}
	if s := (&Stream{conn: farConn{}}); b.secureDialed(s, 1, nil) != ErrClear {
		t.Error("dialed in plaintext")
	}
	if s := (&Stream{conn: farConn{}}); a.proven(s, 2) == nil {
		t.Error("accepted in plaintext")
	}
	c := newHarness(t, 3, func(c *Config) { c.Insecure = true })
	if s := (&Stream{conn: farConn{}}); c.proven(s, 2) != nil || c.secureDialed(s, 2, nil) != nil {
		t.Error("refused although insecure")
	}
}

// A stranger that says nothing, or only the first byte of TLS, holds its place for as long as a
// handshake may take, and not longer.
func TestSecurity_SlowHandshakesEnd(t *testing.T) {
	t.Parallel()
	a := newHarness(t, 1, secured(&fakeSecurity{id: 1}, false))
	var slow []*raw
	for _, first := range []string{"", "\x16", "\x00"} {
		r := dialRaw(t, a.addr)
		r.write([]byte(first))
		slow = append(slow, r)
	}
	for i, r := range slow {
		if _, err := io.ReadAll(r.conn); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("stranger %d is still connected", i)
		}
	}
	// All places are taken, and one more is closed at once.
	for range inboundMax {
		dialRaw(t, a.addr)
	}
	for deadline := time.Now().Add(patience); len(a.inbound) < inboundMax && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	r := dialRaw(t, a.addr)
	_, _ = io.ReadAll(r.conn)
	if n := len(a.inbound); n > inboundMax {
		t.Errorf("%d handshakes under way", n)
	}
	a.SetPeers(map[uint64][]string{2: nil})
	for deadline := time.Now().Add(patience); len(a.inbound) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("strangers keep their places")
		}
	}
}
