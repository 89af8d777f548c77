package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"
)

const (
	// refusalsMax bounds the connections that are being refused with an answer. Those beyond it
	// are closed without one.
	refusalsMax = 64
	// refusalTime bounds a refusal. refusalBytesMax is read after it, so that closing does not
	// reset the connection before the answer is read.
	refusalTime     = time.Second
	refusalBytesMax = 16 << 10
	// unsentMax bounds the system's send buffer for a client that does not read. Linux doubles
	// it; the default is several MiB.
	unsentMax = 256 << 10
)

// admit counts nc and gives it to the fast path, or refuses it.
func (s *Server) admit(nc net.Conn) {
	leave, ok := s.clients.enter(nc)
	if !ok {
		s.refuse(nc)
		return
	}
	if b, ok := nc.(interface{ SetWriteBuffer(int) error }); ok {
		_ = b.SetWriteBuffer(unsentMax)
	}
	if !s.useFastPath {
		s.workers.Go(func() { s.sniff(nc, leave) })
		return
	}
	accept := func() {
		if s.fast.stopped || !s.fast.accept(nc, leave) {
			_ = nc.Close()
			leave()
		}
	}
	if !s.post(accept) {
		_ = nc.Close()
		leave()
	}
}

// refuse answers 503 to the first request on nc. It waits for the request because clients with
// a pool treat an earlier answer as a broken connection.
func (s *Server) refuse(nc net.Conn) {
	select {
	case s.refusals <- struct{}{}:
	default:
		_ = nc.Close()
		return
	}
	s.workers.Go(func() {
		defer func() { <-s.refusals }()
		defer nc.Close()
		defer context.AfterFunc(s.open, func() { _ = nc.Close() })()
		_ = nc.SetDeadline(time.Now().Add(refusalTime))
		var first [1]byte
		if _, err := io.ReadFull(nc, first[:]); err != nil || first[0] == tlsHandshakeByte {
			return
		}
		if _, err := nc.Write(errOverloaded.append(nil, nil, true, false, time.Now())); err != nil {
			return
		}
		if w, ok := nc.(interface{ CloseWrite() error }); ok && w.CloseWrite() == nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(nc, refusalBytesMax))
		}
	})
}

// sniff waits for the first byte of a connection while the fast path is off.
func (s *Server) sniff(nc net.Conn, leave func()) {
	defer context.AfterFunc(s.open, func() { _ = nc.Close() })()
	_ = nc.SetReadDeadline(time.Now().Add(s.cfg.Limits.HeadTimeout))
	s.serveStandard(nc, leave)
}

// prefixedConn is a connection with bytes that were read already and are to be read again.
type prefixedConn struct {
	net.Conn
	unread []byte
}

func (c *prefixedConn) Read(p []byte) (int, error) {
	if len(c.unread) > 0 {
		n := copy(p, c.unread)
		c.unread = c.unread[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// NetConn returns the underlying connection.
func (c *prefixedConn) NetConn() net.Conn { return c.Conn }

// CloseWrite closes the sending side.
func (c *prefixedConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}

// serveStandard gives a connection to net/http through a validatingConn. It only waits for the
// first byte.
func (s *Server) serveStandard(nc net.Conn, onClose func()) {
	var first [1]byte
	if _, err := io.ReadFull(nc, first[:]); err != nil {
		_ = nc.Close()
		onClose()
		return
	}
	_ = nc.SetReadDeadline(time.Time{})
	c := &prefixedConn{Conn: nc, unread: first[:]}
	if first[0] == tlsHandshakeByte {
		if s.tls == nil {
			_ = nc.Close()
			onClose()
			return
		}
		s.workers.Go(func() { s.handshake(c, onClose) })
		return
	}
	s.ready.Put(&validatingConn{Conn: c, onClose: onClose, beforeRead: func() error {
		// The fast path may have left an answer unwritten that its client waits for.
		_ = c.SetWriteDeadline(time.Now().Add(s.cfg.Limits.WriteTimeout))
		_, err := c.Write(nil)
		_ = c.SetWriteDeadline(time.Time{})
		return err
	}})
}

// handshake begins TLS. HTTP/2 is left to net/http; HTTP/1 within TLS is validated as in the
// clear.
func (s *Server) handshake(nc net.Conn, onClose func()) {
	ctx, cancel := context.WithTimeout(s.open, s.cfg.Limits.HeadTimeout)
	defer cancel()
	counted := &validatingConn{Conn: nc, onClose: onClose, state: validatingOff}
	c := tls.Server(counted, s.tls)
	if err := c.HandshakeContext(ctx); err != nil {
		_ = counted.Close()
		return
	}
	if c.ConnectionState().NegotiatedProtocol == "h2" {
		s.ready.Put(c)
		return
	}
	s.ready.Put(&validatingConn{Conn: c, secure: true})
}
