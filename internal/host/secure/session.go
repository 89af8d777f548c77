package secure

import (
	"crypto/tls"
	"net"
	"slices"
)

// recordMax is the most plaintext that one record can hold.
const recordMax = 16 << 10

// session is TLS after the handshake, in the loop: a [loop.Layer]. The [tls.Conn] does
// the work. The session tracks where records end, so that it reads only what has arrived.
type session struct {
	tls     *tls.Conn
	socket  *socket
	records records
	began   bool // Open was called: nothing decrypted is left from before
}

// Open decrypts raw.
func (s *session) Open(plain, raw []byte) ([]byte, error) {
	s.socket.raw = raw
	whole := s.records.count(raw)
	if !s.began {
		s.began = true
		whole++ // the handshake may have left a part of a record
	}
	for ; whole > 0 || len(s.socket.raw) > 0; whole-- {
		plain = slices.Grow(plain, recordMax)
		room := plain[len(plain) : len(plain)+recordMax]
		n, err := s.tls.Read(room)
		plain = plain[:len(plain)+n]
		switch {
		case err == errNoData:
			return plain, nil
		case err != nil:
			s.socket.raw = nil
			return plain, err // io.EOF when the client has ended its output
		}
	}
	return plain, nil
}

// Partial reports whether a record has begun.
func (s *session) Partial() bool { return s.records.have > 0 }

// Seal encrypts plain.
func (s *session) Seal(plain []byte) error {
	_, err := s.tls.Write(plain)
	return err
}

// ConnectionState describes the session. The caller must not change it.
func (s *session) ConnectionState() tls.ConnectionState { return s.tls.ConnectionState() }

// End sends close_notify.
func (s *session) End() { _ = s.tls.CloseWrite() }

// Detach returns a [*Conn].
func (s *session) Detach(raw net.Conn, unread []byte) net.Conn {
	s.socket.stage, s.socket.net, s.socket.send, s.socket.raw = stageDetached, raw, nil, nil
	return &Conn{Conn: s.tls, socket: s.socket, unread: unread}
}

// Conn is a TLS connection that has left the loop. It reads first what the loop had
// decrypted already.
type Conn struct {
	*tls.Conn
	socket *socket
	unread []byte // belongs to the reader
}

// Read returns what the loop had decrypted, then what follows.
func (c *Conn) Read(p []byte) (int, error) {
	if len(c.unread) > 0 && len(p) > 0 {
		n := copy(p, c.unread)
		if c.unread = c.unread[n:]; len(c.unread) == 0 {
			c.unread = nil
		}
		return n, nil
	}
	return c.Conn.Read(p)
}

// WrapNetConn replaces the connection that carries the records by what wrap returns. It
// returns the connection to serve: the [*tls.Conn] itself if the loop had decrypted nothing,
// so that servers that look for one find it. The caller calls it once, before any other
// method.
func (c *Conn) WrapNetConn(wrap func(net.Conn) net.Conn) net.Conn {
	c.socket.net = wrap(c.socket.net)
	if len(c.unread) == 0 {
		return c.Conn
	}
	return c
}
