package thriftrpc

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/isotone/isotone/internal/auth/access"
)

// inBytesMin is the first size of a connection's input buffer: some twenty calls.
const inBytesMin = 1 << 10

// lingerTime and lingerBytesMax bound what is read after the last answer to a malformed
// message, so that closing does not reset the connection before the client has the answer.
const (
	lingerTime     = time.Second
	lingerBytesMax = 64 << 10
)

// A deadline is renewed only after 1/renewalPart of its time, since setting one costs as
// much as a call.
const renewalPart = 16

var (
	errNoTLS       = errors.New("TLS is not configured")
	errTLSRequired = errors.New("TLS is required")
	errHandshakes  = errors.New("too many TLS handshakes of this address")
	errStopping    = errors.New("the server is shutting down")
)

// conn is one connection, with the goroutine that serves it.
type conn struct {
	server  *Server
	raw     net.Conn
	stream  net.Conn // raw, or TLS on it
	session session

	in       []byte
	from, to int  // in[from:to] has been read and not been answered
	filled   bool // the last read filled the buffer
	out      []byte

	partial bool          // a message has begun
	waiting time.Duration // the limit that readBy was computed from
	readBy  time.Time
	writeBy time.Time
}

func newConn(s *Server, raw net.Conn) *conn {
	return &conn{server: s, raw: raw, stream: raw, session: newSession(&s.cfg, &s.labels), in: make([]byte, min(inBytesMin, s.inBytesMax))}
}

// serve answers calls until the connection ends, and returns why it does.
func (c *conn) serve() error {
	if err := c.open(); err != nil {
		return err
	}
	defer c.session.access.Close()
	if err := c.fill(false); err != nil {
		return err
	}
	switch {
	case c.in[0] == tlsHandshakeByte:
		if !c.session.access.BeginHandshake() {
			return errHandshakes
		}
		if err := c.startTLS(); err != nil {
			return err
		}
		if state := c.stream.(*tls.Conn).ConnectionState(); len(state.VerifiedChains) > 0 {
			c.session.access.SetCertificate(state.VerifiedChains)
		}
	case c.server.cfg.TLSRequired:
		return errTLSRequired
	}
	for {
		used, out, err := c.session.work(c.in[c.from:c.to], c.out[:0])
		c.from += used
		c.out = out
		if len(out) > 0 {
			if err := c.write(out); err != nil {
				return err
			}
		}
		switch {
		case err == nil:
			continue
		case err != errShort:
			c.linger()
			return err
		}
		if err := c.fill(used > 0); err != nil {
			return err
		}
	}
}

// open begins the session of the client.
func (c *conn) open() error {
	var addr netip.Addr
	if a, ok := c.raw.RemoteAddr().(*net.TCPAddr); ok {
		addr = a.AddrPort().Addr()
	}
	s, err := c.server.cfg.Access.Open(addr, nil, access.ThriftPool)
	c.session.access = &s
	return err
}

// fill reads more input. progress says that calls have been answered since the last call.
func (c *conn) fill(progress bool) error {
	limits := &c.server.cfg.Limits
	switch {
	case c.from == c.to:
		c.partial = false
		c.await(limits.IdleTimeout)
	case progress || !c.partial:
		c.partial = true
		c.await(limits.ReadTimeout)
	}
	// Check stopping after setting the deadline: Shutdown does both in the opposite order.
	if c.server.isStopping() {
		return errStopping
	}
	c.makeRoom()
	n, err := c.stream.Read(c.in[c.to:])
	c.to += n
	c.filled = c.to == len(c.in)
	if n > 0 {
		return nil // the next read returns the error again
	}
	return err
}

// await bounds the following reads.
func (c *conn) await(limit time.Duration) {
	if by := time.Now().Add(limit); limit != c.waiting || by.Sub(c.readBy) > limit/renewalPart {
		c.waiting, c.readBy = limit, by
		_ = c.raw.SetReadDeadline(by)
	}
}

// makeRoom moves the unanswered input to the front of in, which grows if it was full.
func (c *conn) makeRoom() {
	rest := c.in[c.from:c.to]
	if c.filled && len(c.in) < c.server.inBytesMax {
		c.in = make([]byte, min(2*len(c.in), c.server.inBytesMax))
	}
	// Never full: a longer message has been refused.
	c.from, c.to = 0, copy(c.in, rest)
}

func (c *conn) write(b []byte) error {
	limit := c.server.cfg.Limits.WriteTimeout
	if by := time.Now().Add(limit); by.Sub(c.writeBy) > limit/renewalPart {
		c.writeBy = by
		_ = c.raw.SetWriteDeadline(by)
	}
	_, err := c.stream.Write(b)
	return err
}

// startTLS does the TLS handshake.
func (c *conn) startTLS() error {
	if c.server.tls == nil {
		return errNoTLS
	}
	limit := c.server.cfg.Limits.ReadTimeout
	c.await(limit)
	_ = c.raw.SetWriteDeadline(time.Now().Add(limit))
	if c.server.isStopping() {
		return errStopping
	}
	secured := tls.Server(&prefixed{Conn: c.raw, unread: bytes.Clone(c.in[c.from:c.to])}, c.server.tls)
	c.from, c.to = 0, 0
	if err := secured.Handshake(); err != nil {
		return err
	}
	c.session.access.HandshakeDone()
	c.stream, c.writeBy = secured, time.Time{}
	return c.fill(false)
}

// linger ends the output, and gives the client time to read it.
func (c *conn) linger() {
	half, ok := c.stream.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.raw.SetReadDeadline(time.Now().Add(lingerTime))
	if !c.server.isStopping() {
		_, _ = io.CopyN(io.Discard, c.raw, lingerBytesMax)
	}
}

// prefixed is a connection whose first bytes have been read.
type prefixed struct {
	net.Conn
	unread []byte
}

// Read returns those bytes, then what follows.
func (p *prefixed) Read(b []byte) (int, error) {
	if len(p.unread) > 0 {
		n := copy(b, p.unread)
		p.unread = p.unread[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}
