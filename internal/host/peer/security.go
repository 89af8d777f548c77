package peer

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/isotone/isotone/internal/core/wire"
)

// certificateCheckEvery is how often [Secured.Check] is called while a connection is open. It
// verifies something only if files have changed or a certificate has run out.
const certificateCheckEvery = time.Second

// recordHandshake is the first byte of a TLS connection. A frame in the handshake begins with 0,
// as it has less than 16 MiB.
const recordHandshake = 0x16

var (
	// ErrNoTLS: the other side ends a connection at the first byte of TLS, so it may be a node
	// that speaks in plaintext only.
	ErrNoTLS = errors.New("the peer does not answer TLS")
	// ErrClear: a connection with another machine is not protected.
	ErrClear = errors.New("connections with peers on other machines need TLS: set PEER_TLS_CERT, PEER_TLS_KEY and PEER_TLS_CA, or PEER_INSECURE=1 to leave them in plaintext")
)

// Security protects connections by TLS with certificates on both sides. Its methods are called on
// goroutines of the Transport, concurrently, with connections that have a deadline. They do not
// close them.
type Security interface {
	// Client does the handshake of a connection that this side has dialed, and checks that the
	// other side is the peer. The error is a [*wire.Refusal] if it is not, and matches ErrNoTLS if
	// the other side does not speak TLS.
	Client(conn net.Conn, peer uint64) (Secured, error)
	// Server does the handshake of an accepted connection, of which read was read already. The
	// caller calls Check before it does anything for the other side.
	Server(conn net.Conn, read []byte) (Secured, error)
}

// Secured is a protected connection. One goroutine at a time calls Check.
type Secured interface {
	net.Conn
	// Check returns nil if the other side may be the node with the given ID, by what is known
	// now.
	Check(id uint64) *wire.Refusal
}

// secureDialed protects a dialed connection, or checks that it may be in plaintext.
func (t *Transport) secureDialed(s *Stream, peer uint64, security Security) error {
	if security == nil {
		if !t.cfg.Insecure && !isLocal(s.conn) {
			return ErrClear
		}
		return nil
	}
	secured, err := security.Client(s.conn, peer)
	if err != nil {
		var refusal *wire.Refusal
		if errors.As(err, &refusal) {
			return &wire.RefusedError{Peer: peer, By: wire.Self, Refusal: refusal}
		}
		if t.cfg.SecurityFailed != nil && t.ctx.Err() == nil {
			t.cfg.SecurityFailed(err)
		}
		return &securityError{err}
	}
	s.conn, s.secured = secured, secured
	return nil
}

// securityError is why a dialed connection is not protected.
type securityError struct{ err error }

func (e *securityError) Error() string { return e.err.Error() }
func (e *securityError) Unwrap() error { return e.err }

// secureAccepted protects an accepted connection if it begins as TLS does. One in plaintext is
// refused by proven.
func (t *Transport) secureAccepted(s *Stream) error {
	var first [1]byte
	if _, err := io.ReadFull(s.conn, first[:]); err != nil {
		return err
	}
	if beginsHTTP(first[0]) {
		return misdirected(s.conn)
	}
	if first[0] != recordHandshake {
		s.Decoder.Feed(first[:])
		return nil
	}
	if t.cfg.Security == nil {
		return fmt.Errorf("%w: the other side speaks TLS, and this node has no PEER_TLS_CERT", wire.ErrProtocol)
	}
	secured, err := t.cfg.Security.Server(s.conn, first[:])
	if err != nil {
		if t.cfg.SecurityFailed != nil && t.ctx.Err() == nil {
			t.cfg.SecurityFailed(err)
		}
		return err
	}
	s.conn, s.secured = secured, secured
	return nil
}

// proven returns nil if the other side of an accepted connection may be the node with the ID.
func (t *Transport) proven(s *Stream, id uint64) *wire.Refusal {
	switch {
	case s.secured != nil:
		return s.secured.Check(id)
	case t.cfg.Insecure, t.cfg.Security == nil && isLocal(s.conn):
		return nil
	case t.cfg.Security == nil:
		return wire.Refusalf(wire.RefusedClear, "node %d takes no connections of other machines in plaintext: set PEER_TLS_CERT, PEER_TLS_KEY and PEER_TLS_CA, or PEER_INSECURE=1, on all nodes", t.cfg.LogID(t.cfg.NodeID))
	}
	return wire.Refusalf(wire.RefusedClear, "node %d accepts peers by TLS only: set PEER_TLS_CERT, PEER_TLS_KEY and PEER_TLS_CA on node %d", t.cfg.LogID(t.cfg.NodeID), t.cfg.LogID(id))
}

// isLocal reports whether a connection stays within this machine: its address is a loopback
// address, or none of IP.
func isLocal(conn net.Conn) bool {
	tcp, ok := conn.RemoteAddr().(*net.TCPAddr)
	return !ok || tcp.IP.IsLoopback()
}
