package web

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// tlsHandshakeByte begins every TLS connection: the record type "handshake"
// (RFC 8446 §5.1). No HTTP request and no HTTP/2 preface begins with it.
const tlsHandshakeByte = 0x16

// refusalsMax bounds the connections that are being told that there are too
// many. Those beyond it are closed without a word.
const refusalsMax = 64

// refusalTime bounds the telling; refusalBytesMax is what is read after it, so
// that closing does not reset the connection under the answer.
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

// accept takes connections from l until stop, and returns nil then. Each gets a
// goroutine for its first byte, so a silent one holds up no other.
func (s *Server) accept(l net.Listener, ready *handoff) error {
	const pauseMin, pauseMax = 5 * time.Millisecond, time.Second
	pause := pauseMin
	for {
		c, err := l.Accept()
		if err == nil {
			pause = pauseMin
			s.admit(c, ready)
			continue
		}
		var passing interface{ Temporary() bool }
		switch {
		case s.isStopping():
			return nil
		case !errors.As(err, &passing) || !passing.Temporary():
			return err
		}
		s.log.Warn("cannot accept a connection; trying again", "error", err, "pause", pause)
		select {
		case <-time.After(pause):
		case <-s.stopping:
		}
		pause = min(2*pause, pauseMax)
	}
}

func (s *Server) isStopping() bool {
	select {
	case <-s.stopping:
		return true
	default:
		return false
	}
}

// admit counts c and starts its goroutine, or refuses it.
func (s *Server) admit(c net.Conn, ready *handoff) {
	if s.connections.Add(1) <= int64(s.limits.ConnectionsMax) {
		s.goFresh(&conn{Conn: c, open: &s.connections}, func(c *conn) { s.sniff(c, ready) })
		return
	}
	s.connections.Add(-1)
	select {
	case s.refusals <- struct{}{}:
		s.goFresh(&conn{Conn: c}, s.refuse)
	default:
		_ = c.Close()
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

// refuse tells c that there are too many, but only once c has asked: clients
// with a pool take an answer before the request for a broken connection, and
// report that instead of the 503.
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

// sniff reads the first byte of c and hands c to net/http, as TLS or as it is.
func (s *Server) sniff(c *conn, ready *handoff) {
	if b, ok := c.Conn.(interface{ SetWriteBuffer(int) error }); ok {
		_ = b.SetWriteBuffer(s.limits.UnreadBytesMax)
	}
	_ = c.SetReadDeadline(time.Now().Add(s.limits.ReadHeaderTimeout))
	if _, err := io.ReadFull(c.Conn, c.first[:]); err != nil {
		_ = c.Close()
		return
	}
	c.unread = true
	_ = c.SetReadDeadline(time.Time{})

	var out net.Conn = c
	if c.first[0] == tlsHandshakeByte {
		if s.tls == nil {
			_ = c.Close()
			return
		}
		out = tls.Server(c, s.tls) // net/http looks for a *tls.Conn
	}
	select {
	case ready.conns <- out:
	case <-ready.stopping:
		_ = c.Close()
	}
}

// handoff is the listener of net/http: the connections that have been sniffed.
type handoff struct {
	conns    chan net.Conn
	stopping <-chan struct{}
	addr     net.Addr
}

// Accept waits for the next sniffed connection.
func (h *handoff) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.stopping:
		return nil, http.ErrServerClosed // Serve then returns just this
	}
}

// Close does nothing: stop closes the real listener.
func (h *handoff) Close() error { return nil }

// Addr returns the address of the real listener.
func (h *handoff) Addr() net.Addr { return h.addr }

// conn is an accepted connection whose first byte may have been read already.
// As with any net.Conn, there is one reader at a time.
type conn struct {
	net.Conn
	first  [1]byte
	unread bool          // first is still to be read
	open   *atomic.Int64 // counts this connection; nil if it never counted
	closed atomic.Bool
}

// Read returns the sniffed byte, then what follows.
func (c *conn) Read(p []byte) (int, error) {
	if c.unread && len(p) > 0 {
		c.unread = false
		p[0] = c.first[0]
		return 1, nil
	}
	return c.Conn.Read(p)
}

// CloseWrite lets net/http end its output before it closes, so that a client
// that is still sending can read the answer.
func (c *conn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Close closes the connection and gives its place back, once.
func (c *conn) Close() error {
	err := c.Conn.Close()
	if c.closed.CompareAndSwap(false, true) && c.open != nil {
		c.open.Add(-1)
	}
	return err
}
