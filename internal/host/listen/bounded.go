package listen

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"github.com/isotone/isotone/internal/host/address"
)

// Bounded is a listener that keeps the number of open connections within bounds. Beyond them it closes new connections. If it is told
// what the open ones do, it closes one of those instead: that which has waited longest for a request, or else that whose request is
// the oldest. So whoever keeps connections open locks nobody out.
type Bounded struct {
	net.Listener
	most, share int

	mu   sync.Mutex
	open map[*boundedConn]struct{}
	// told counts what was told of connections.
	told uint64
}

// NewBounded returns a listener with at most most open connections, and share of them from one address; see
// [address.Network].
func NewBounded(ln net.Listener, most, share int) *Bounded {
	return &Bounded{Listener: ln, most: most, share: share, open: map[*boundedConn]struct{}{}}
}

// boundedConn is a connection that counts.
type boundedConn struct {
	net.Conn
	of   *Bounded
	addr netip.Addr
	// waits: it has no request. since orders connections by how long that has been so, or been otherwise; 0: nobody says. Both
	// belong to of.mu.
	waits bool
	since uint64
}

// makesRoomBefore reports whether c is to be closed rather than other, which may be nil.
func (c *boundedConn) makesRoomBefore(other *boundedConn) bool {
	switch {
	case c.since == 0:
		return false
	case other == nil || c.waits != other.waits:
		return other == nil || c.waits
	}
	return c.since < other.since
}

// Close closes the connection, which does not count any more.
func (c *boundedConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// Accept waits for a connection that is within the bounds.
func (l *Bounded) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &boundedConn{Conn: nc, of: l, addr: address.NetworkOf(nc.RemoteAddr())}
		if victim, ok := l.admit(c); !ok {
			_ = nc.Close()
		} else {
			if victim != nil {
				_ = victim.Conn.Close()
			}
			return c, nil
		}
	}
}

// admit counts c if it is within the bounds, also by taking the place of victim.
func (l *Bounded) admit(c *boundedConn) (victim *boundedConn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var first, firstOfAddr *boundedConn
	ofAddr := 0
	for other := range l.open {
		if other.makesRoomBefore(first) {
			first = other
		}
		if other.addr == c.addr {
			if ofAddr++; other.makesRoomBefore(firstOfAddr) {
				firstOfAddr = other
			}
		}
	}
	switch {
	case ofAddr >= l.share:
		victim = firstOfAddr
	case len(l.open) >= l.most:
		victim = first
	default:
		l.open[c] = struct{}{}
		return nil, true
	}
	if victim == nil {
		return nil, false
	}
	delete(l.open, victim)
	l.open[c] = struct{}{}
	return victim, true
}

// Follow tells what connections do; use it as http.Server.ConnState.
func (l *Bounded) Follow(nc net.Conn, state http.ConnState) {
	if secured, ok := nc.(*tls.Conn); ok {
		nc = secured.NetConn()
	}
	c, ok := nc.(*boundedConn)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told++
	c.waits, c.since = state == http.StateNew || state == http.StateIdle, l.told
}
