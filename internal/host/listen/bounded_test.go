package listen_test

import (
	"net"
	"net/http"
	"net/netip"
	"testing"

	"github.com/isotone/isotone/internal/host/listen"
)

// from is a connection from an address.
type from struct {
	*pipe
	addr string
}

func (f from) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(f.addr)) }

func TestBounded_KeepsToItsBounds(t *testing.T) {
	s := &script{steps: make(chan any, 16)}
	l := listen.NewBounded(s, 3, 2)
	connect := func(addr string) (c net.Conn, raw from) {
		t.Helper()
		raw = from{newPipe(), addr}
		s.steps <- raw
		s.steps <- net.ErrClosed // if the connection is refused
		c, err := l.Accept()
		if err == nil {
			<-s.steps
		}
		return c, raw
	}
	a1, a1raw := connect("192.0.2.1:1")
	a2, _ := connect("192.0.2.1:2")
	if c, raw := connect("192.0.2.1:3"); c != nil || !raw.isClosed() {
		t.Error("an address has more than its share")
	}
	b1, b1raw := connect("192.0.2.2:1")
	if c, raw := connect("192.0.2.3:1"); c != nil || !raw.isClosed() {
		t.Error("more connections than there may be")
	}

	// Now it is told which ones wait for a request, the latest last.
	l.Follow(b1, http.StateNew)
	l.Follow(a2, http.StateNew)
	l.Follow(a1, http.StateActive)
	l.Follow(b1, http.StateActive)
	l.Follow(b1, http.StateIdle)
	a3, a3raw := connect("192.0.2.1:3") // of its own address a2 makes room
	c1, _ := connect("192.0.2.3:1")     // b1 waits longest
	if a3 == nil || c1 == nil || a1raw.isClosed() || !b1raw.isClosed() || a3raw.isClosed() {
		t.Errorf("%v, %v", a3, c1)
	}
	l.Follow(a3, http.StateActive)
	l.Follow(c1, http.StateActive)
	if c, _ := connect("192.0.2.4:1"); c == nil || !a1raw.isClosed() || a3raw.isClosed() {
		t.Error("all have requests, and the oldest one does not make room") // the new one is not told of
	}
	_ = a3.Close()
	_ = a3.Close() // which is counted once
	if c, _ := connect("192.0.2.5:1"); c == nil {
		t.Error("a place is not free again")
	}
	_ = c1.Close()
	if c, _ := connect("192.0.2.6:1"); c == nil {
		t.Error("a place is not free again")
	}
	if c, raw := connect("192.0.2.7:1"); c != nil || !raw.isClosed() {
		t.Error("what nobody tells of makes room")
	}
	// Those that have lost their place change nothing any more.
	l.Follow(b1, http.StateIdle)
	_ = b1.Close()
	if c, _ := connect("192.0.2.7:1"); c != nil {
		t.Error("a connection that was closed makes room")
	}
}
