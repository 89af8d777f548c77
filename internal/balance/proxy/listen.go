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
	// refusalsMax bounds the connections that are being told that there are too many.
	// Those beyond it are closed without a word.
	refusalsMax = 64
	// refusalTime bounds the telling; refusalBytesMax is what is read then, so that closing
	// does not reset the connection under the answer.
	refusalTime     = time.Second
	refusalBytesMax = 16 << 10
	// unsentMax bounds what the system holds for a client that does not read (Linux doubles
	// the number for its own books); systems allow several MiB.
	unsentMax = 256 << 10
)

// admit counts nc and gives it to the lane, or refuses it.
func (s *Server) admit(nc net.Conn) {
	if s.connections.Add(1) > int64(s.cfg.Limits.ConnectionsMax) {
		s.connections.Add(-1)
		s.refuse(nc)
		return
	}
	if b, ok := nc.(interface{ SetWriteBuffer(int) error }); ok {
		_ = b.SetWriteBuffer(unsentMax)
	}
	if !s.useLane {
		s.workers.Go(func() { s.sniff(nc) })
		return
	}
	taken := func() {
		if s.lane.stopped || !s.lane.accept(nc) {
			_ = nc.Close()
			s.connections.Add(-1)
		}
	}
	if !s.post(taken) {
		_ = nc.Close()
		s.connections.Add(-1)
	}
}

// refuse tells the client of nc that there are too many connections, once it has asked:
// clients with a pool take an answer before the request for a broken connection.
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
		if _, err := nc.Write(faultOverloaded.append(nil, nil, true, false, time.Now())); err != nil {
			return
		}
		if w, ok := nc.(interface{ CloseWrite() error }); ok && w.CloseWrite() == nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(nc, refusalBytesMax))
		}
	})
}

// sniff reads the first byte of a connection that the lane has nothing for.
func (s *Server) sniff(nc net.Conn) {
	defer context.AfterFunc(s.open, func() { _ = nc.Close() })()
	_ = nc.SetReadDeadline(time.Now().Add(s.cfg.Limits.HeadTimeout))
	first := make([]byte, 1)
	if _, err := io.ReadFull(nc, first); err != nil {
		_ = nc.Close()
		s.connections.Add(-1)
		return
	}
	_ = nc.SetReadDeadline(time.Time{})
	s.take(&prefixed{Conn: nc, unread: first})
}

// prefixed is a connection of which something was read that is to be read again.
type prefixed struct {
	net.Conn
	unread []byte
}

func (c *prefixed) Read(p []byte) (int, error) {
	if len(c.unread) > 0 {
		n := copy(p, c.unread)
		c.unread = c.unread[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// NetConn returns the connection beneath.
func (c *prefixed) NetConn() net.Conn { return c.Conn }

// CloseWrite ends the output.
func (c *prefixed) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}

// take has net/http serve a connection, whose first byte can be read at once, through a
// screen. It does not block.
func (s *Server) take(nc net.Conn) {
	gone := func() { s.connections.Add(-1) }
	var first [1]byte
	if _, err := io.ReadFull(nc, first[:]); err != nil {
		_ = nc.Close()
		gone()
		return
	}
	c := &prefixed{Conn: nc, unread: first[:]}
	if first[0] == tlsHandshakeByte {
		if s.tls == nil {
			_ = nc.Close()
			gone()
			return
		}
		s.workers.Go(func() { s.handshake(c) })
		return
	}
	s.ready.Put(&screen{Conn: c, gone: gone, begin: func() error {
		// The lane may have left an answer that its client waits for.
		_ = c.SetWriteDeadline(time.Now().Add(s.cfg.Limits.WriteTimeout))
		_, err := c.Write(nil)
		_ = c.SetWriteDeadline(time.Time{})
		return err
	}})
}

// handshake begins TLS. HTTP/2 is net/http's; HTTP/1 within TLS is screened as in the
// clear.
func (s *Server) handshake(nc net.Conn) {
	ctx, cancel := context.WithTimeout(s.open, s.cfg.Limits.HeadTimeout)
	defer cancel()
	counted := &screen{Conn: nc, gone: func() { s.connections.Add(-1) }, state: screenThrough}
	c := tls.Server(counted, s.tls)
	if err := c.HandshakeContext(ctx); err != nil {
		_ = counted.Close()
		return
	}
	if c.ConnectionState().NegotiatedProtocol == "h2" {
		s.ready.Put(c)
		return
	}
	s.ready.Put(&screen{Conn: c, secure: true})
}
