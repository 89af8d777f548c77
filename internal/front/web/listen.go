package web

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"
)

// tlsHandshakeByte begins every TLS connection: the record type "handshake"
// (RFC 8446 §5.1). No HTTP request begins with it.
const tlsHandshakeByte = 0x16

// refusalsMax bounds the connections that are being refused with an answer. Those
// beyond it are just closed.
const refusalsMax = 64

// refusalTime bounds a refusal; refusalBytesMax bounds what is read after it, so
// that closing does not reset the connection before the client has the answer.
const (
	refusalTime     = time.Second
	refusalBytesMax = 16 << 10
)

// refusal is the answer to a connection beyond Limits.ConnectionsMax.
const refusal = "HTTP/1.1 503 Service Unavailable\r\n" +
	"Content-Type: application/json\r\n" +
	"Content-Length: 69\r\n" +
	"Cache-Control: no-store\r\n" +
	"Retry-After: 1\r\n" +
	"Connection: close\r\n" +
	"\r\n" +
	`{"error":{"code":"overloaded","message":"too many connections here"}}`

// later is the answer to a connection from an address that was refused too often, see
// access.Control.Refusing, which also says how long that lasts at most.
const later = "HTTP/1.1 429 Too Many Requests\r\n" +
	"Content-Type: application/json\r\n" +
	"Content-Length: 96\r\n" +
	"Cache-Control: no-store\r\n" +
	"Retry-After: 8\r\n" +
	"Connection: close\r\n" +
	"\r\n" +
	`{"error":{"code":"quota_exceeded","message":"too many requests from this address were refused"}}`

// enter counts one more connection, and reports whether the limit allows it.
func (s *Server) enter() bool {
	if s.connections.Add(1)+int64(s.elsewhere()) <= int64(s.limits.ConnectionsMax) {
		return true
	}
	s.connections.Add(-1)
	return false
}

// Connections returns the number of connections of this server, TCP and QUIC together.
func (s *Server) Connections() int { return int(s.connections.Load()) }

// Handler returns the handler of all requests, for a port of its own beside this server's.
func (s *Server) Handler() http.Handler { return s.http.Handler }

// OverQUIC returns the number of QUIC connections, which Connections has too, and how many were
// refused because there were too many.
func (s *Server) OverQUIC() (open int, refused uint64) {
	return int(s.overQUIC.Load()), s.refusedQUIC.Load()
}

// ConnectionsMax returns the bound on the connections of the client port, see [Limits].
func (s *Server) ConnectionsMax() int { return s.limits.ConnectionsMax }

// Refuse answers the client of c, of which nothing has been read, that there are too many
// connections, and closes c. TLS clients get no answer. It does not block.
func (s *Server) Refuse(c net.Conn) {
	select {
	case s.refusals <- struct{}{}:
		s.goFresh(&conn{Conn: c}, s.refuse)
	default:
		_ = c.Close()
	}
}

// secured is a connection for [Server.Take] that has completed its handshake elsewhere, with a
// configuration that offers what Config.TLS does.
type secured interface {
	net.Conn
	// WrapNetConn replaces the connection that carries the records by what wrap returns,
	// and returns the connection to serve.
	WrapNetConn(wrap func(net.Conn) net.Conn) net.Conn
}

// Take serves c. Its first byte must be available, so that Take does not block, unless c is
// under TLS with its handshake done; other connections that begin a handshake are closed. If c has output that was not written yet, Write must
// write that first, even when called with nothing. Take may be called before Serve; after
// Shutdown it closes c.
func (s *Server) Take(c net.Conn) {
	if s.handler.access.Refusing(clientOf(c)) != nil {
		s.dismiss(c)
		return
	}
	s.connections.Add(1)
	if secured, ok := c.(secured); ok {
		var below *conn
		served := secured.WrapNetConn(func(beneath net.Conn) net.Conn {
			below = &conn{Conn: beneath, open: &s.connections, records: true}
			return below
		})
		// Not at the first Read, as below: net/http also reads during a request, when the
		// write deadline is already that of its answer.
		s.goFresh(below, func(c *conn) {
			if s.settle(c) != nil {
				_ = c.Close()
				return
			}
			s.ready.Put(&tlsConn{Conn: served})
		})
		return
	}
	taken := &conn{Conn: c, open: &s.connections}
	if _, err := io.ReadFull(c, taken.first[:]); err != nil {
		_ = taken.Close()
		return
	}
	if taken.first[0] == tlsHandshakeByte {
		_ = taken.Close()
		return
	}
	taken.unread, taken.settle = true, s.settle
	s.ready.Put(taken)
}

// clientOf returns the address of the client of c. A connection that was reset before it left its
// loop has none.
func clientOf(c net.Conn) netip.Addr {
	remote := c.RemoteAddr()
	if remote == nil {
		return netip.Addr{}
	}
	at, _ := netip.ParseAddrPort(remote.String()) // the zero value on error
	return at.Addr()
}

// dismiss tells the client of c, to which the standard servers owe an answer or nothing yet, to
// try again later, and closes c. It does not block.
func (s *Server) dismiss(c net.Conn) {
	select {
	case s.refusals <- struct{}{}:
		s.goFresh(&conn{Conn: c}, s.tellLater)
	default:
		_ = c.Close()
	}
}

// tellLater answers once c has begun a request.
func (s *Server) tellLater(c *conn) {
	defer func() { <-s.refusals }()
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(refusalTime))
	var begin [1]byte
	if n, err := io.ReadFull(c.Conn, begin[:]); n == 0 || err != nil || begin[0] == tlsHandshakeByte {
		return
	}
	if _, err := io.WriteString(c, later); err != nil {
		return
	}
	if c.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(c, refusalBytesMax))
	}
}

// settle does what would block the caller of Take, on a goroutine of the connection: the
// client may be waiting for output that was not written yet.
func (s *Server) settle(c *conn) error {
	s.boundUnread(c.Conn)
	_ = c.SetWriteDeadline(time.Now().Add(s.limits.WriteTimeout))
	_, err := c.Conn.Write(nil)
	_ = c.SetWriteDeadline(time.Time{})
	return err
}

// boundUnread limits the send buffer of c.
func (s *Server) boundUnread(c net.Conn) {
	for {
		if b, ok := c.(interface{ SetWriteBuffer(int) error }); ok {
			_ = b.SetWriteBuffer(s.limits.UnreadBytesMax)
			return
		}
		wrapper, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return
		}
		c = wrapper.NetConn()
	}
}

// goFresh runs work on its own goroutine; until that ends, stop closes c.
func (s *Server) goFresh(c *conn, work func(*conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		_ = c.Close()
		return
	}
	s.fresh[c] = struct{}{}
	s.freshEnd.Go(func() {
		work(c)
		s.mu.Lock()
		delete(s.fresh, c)
		s.mu.Unlock()
	})
}

// refuse answers 503, but only after c has sent something: clients with a pool take an
// answer before the request for a broken connection, and report that instead.
func (s *Server) refuse(c *conn) {
	defer func() { <-s.refusals }()
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(refusalTime))
	if n, err := c.Conn.Read(c.first[:]); n == 0 || err != nil || c.first[0] == tlsHandshakeByte {
		return
	}
	if _, err := io.WriteString(c, refusal); err != nil {
		return
	}
	if c.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(c, refusalBytesMax))
	}
}

// conn is a connection whose first byte may have been read already. As with any net.Conn,
// there is one reader at a time.
type conn struct {
	net.Conn
	first   [1]byte
	unread  bool              // first is still to be read
	settle  func(*conn) error // to be called before the first Read; may be nil
	open    *atomic.Int64     // counts this connection; nil: not counted
	closed  atomic.Bool
	records bool  // what is read are records of TLS
	watch   watch // of HTTP/1 without TLS
}

// Read returns the first byte, then what follows.
func (c *conn) Read(p []byte) (int, error) {
	if c.settle != nil && len(p) > 0 {
		if err := c.settle(c); err != nil {
			return 0, err
		}
		c.settle = nil
	}
	if c.unread && len(p) > 0 {
		c.unread = false
		p[0] = c.first[0]
		if !c.records {
			c.watch.scan(p[:1])
		}
		return 1, nil
	}
	n, err := c.Conn.Read(p)
	if !c.records {
		c.watch.scan(p[:n])
	}
	return n, err
}

// CloseWrite lets net/http end its output before it closes, so that a client
// that is still sending can read the answer.
func (c *conn) CloseWrite() error { return closeWrite(c.Conn) }

// Close closes the connection and uncounts it, once.
func (c *conn) Close() error {
	err := c.Conn.Close()
	if c.closed.CompareAndSwap(false, true) && c.open != nil {
		c.open.Add(-1)
	}
	return err
}
