package listen

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"github.com/isotone/isotone/internal/auth/address"
)

// Bounded is a listener with a limit on open connections, in all and for each address. At a limit it closes new connections. If
// [Bounded.Follow] reports what the open ones do, it closes one of them instead: the one that has waited longest for a request or, if
// none waits, the one whose request began first. So a client that keeps connections open locks nobody out.
type Bounded struct {
	net.Listener
	most, share int

	mu   sync.Mutex
	open map[*boundedConn]struct{}
	// changes counts the reported changes of state.
	changes uint64
}

// NewBounded returns a listener with at most most open connections, of which one address has at most share; see [address.Network].
func NewBounded(ln net.Listener, most, share int) *Bounded {
	return &Bounded{Listener: ln, most: most, share: share, open: map[*boundedConn]struct{}{}}
}

// boundedConn is a connection that counts.
type boundedConn struct {
	net.Conn
	of   *Bounded
	addr netip.Addr
	// waits: it waits for a request. since is the number of its latest change of state, 0 if none was reported. Guarded by of.mu.
	waits bool
	since uint64
}

// makesRoomBefore reports whether to close c rather than other, which may be nil.
func (c *boundedConn) makesRoomBefore(other *boundedConn) bool {
	switch {
	case c.since == 0:
		return false
	case other == nil || c.waits != other.waits:
		return other == nil || c.waits
	}
	return c.since < other.since
}

// Close closes the connection, which no longer counts.
func (c *boundedConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// Accept waits for a connection within the limits.
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

// admit counts c if it is within the limits. If it takes the place of another connection, that is victim, and the caller closes it.
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

// Follow reports the state of a connection; use it as http.Server.ConnState.
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
	l.changes++
	c.waits, c.since = state == http.StateNew || state == http.StateIdle, l.changes
}
