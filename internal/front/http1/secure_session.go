package http1

import (
	"crypto/tls"
	"net"
	"slices"
)

// recordMax is the most that one record can say, and so the room that reading needs.
const recordMax = 16 << 10

// session is TLS after the handshake, in the loop: a [loop.Layer]. The records are those
// of the [tls.Conn]; what it adds is knowing where they end, so that nothing is asked for
// which is not there.
type session struct {
	tls     *tls.Conn
	socket  *socket
	records records
}

// Open decrypts what has come.
func (s *session) Open(plain, raw []byte) ([]byte, error) {
	s.socket.raw = raw
	for whole := s.records.count(raw); whole > 0 || len(s.socket.raw) > 0; whole-- {
		plain = slices.Grow(plain, recordMax)
		room := plain[len(plain) : len(plain)+recordMax]
		n, err := s.tls.Read(room)
		plain = plain[:len(plain)+n]
		switch {
		case err == errNothing:
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

// Seal encrypts.
func (s *session) Seal(plain []byte) error {
	_, err := s.tls.Write(plain)
	return err
}

// End says close_notify.
func (s *session) End() { _ = s.tls.CloseWrite() }

// Detach returns a [*Secured].
func (s *session) Detach(beneath net.Conn, unread []byte) net.Conn {
	s.socket.stage, s.socket.net, s.socket.send, s.socket.raw = leaving, beneath, nil, nil
	return &Secured{Conn: s.tls, socket: s.socket, unread: unread}
}

// Secured is a connection under TLS that has left the loop. It reads first what the loop
// had decrypted already.
type Secured struct {
	*tls.Conn
	socket *socket
	unread []byte // belongs to the one who reads
}

// Read returns what the loop had read, then what follows.
func (s *Secured) Read(p []byte) (int, error) {
	if len(s.unread) > 0 && len(p) > 0 {
		n := copy(p, s.unread)
		if s.unread = s.unread[n:]; len(s.unread) == 0 {
			s.unread = nil
		}
		return n, nil
	}
	return s.Conn.Read(p)
}

// Beneath puts what wrap returns in the place of the connection that carries the
// records, and returns the connection to be served: the [*tls.Conn] itself if nothing was
// read ahead of it, so that servers who look for one find it. It is called before any
// other method, once.
func (s *Secured) Beneath(wrap func(net.Conn) net.Conn) net.Conn {
	s.socket.net = wrap(s.socket.net)
	if len(s.unread) == 0 {
		return s.Conn
	}
	return s
}
