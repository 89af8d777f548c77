package web

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
)

// This file decides whether a connection survives a request of HTTP/1.0.
//
// A client asks for that with "Connection: keep-alive". But net/http removes Transfer-Encoding
// from a request of HTTP/1.0 before a handler sees it, and such a request may end elsewhere than
// net/http believes: the connection has to be closed (RFC 9112 §6.1). So the connections of
// HTTP/1 watch for that name themselves.

// watch looks for the name of the field Transfer-Encoding in a stream. The zero value is ready.
type watch struct {
	matched int         // of framingField, at the end of what was scanned; belongs to the reader
	seen    atomic.Bool // it was there, anywhere
}

// framingField in lower case. Its first letter occurs nowhere else in it, so a mismatch can only
// begin a new match with that letter.
const framingField = "transfer-encoding"

// scan reads on. The pieces in which a stream comes make no difference.
func (w *watch) scan(b []byte) {
	at := w.matched
	for _, c := range b {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		switch {
		case c == framingField[at]:
			if at++; at == len(framingField) {
				w.seen.Store(true)
				at = 0
			}
		case c == framingField[0]:
			at = 1
		default:
			at = 0
		}
	}
	w.matched = at
}

// watchKey is the key of the *watch of a connection in the contexts of its requests.
type watchKey struct{}

// withWatch is the ConnContext of the server.
func withWatch(ctx context.Context, c net.Conn) context.Context {
	if watched, ok := c.(interface{ framing() *watch }); ok {
		return context.WithValue(ctx, watchKey{}, watched.framing())
	}
	return ctx // of net/http's TLS
}

func (c *conn) framing() *watch    { return &c.watch }
func (c *session) framing() *watch { return &c.watch }

// session is HTTP/1 under TLS whose handshake was done elsewhere.
type session struct {
	net.Conn
	watch watch
}

// Read watches what it reads.
func (c *session) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.watch.scan(p[:n])
	return n, err
}

// ConnectionState is how net/http learns of TLS.
func (c *session) ConnectionState() tls.ConnectionState {
	if secured, ok := c.Conn.(interface{ ConnectionState() tls.ConnectionState }); ok {
		return secured.ConnectionState()
	}
	return tls.ConnectionState{}
}

// CloseWrite is as for conn.
func (c *session) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(c net.Conn) error {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}

// survives reports whether the connection of a request of HTTP/1.0 is kept.
func survives(r *http.Request) bool {
	w, ok := r.Context().Value(watchKey{}).(*watch)
	if !ok || w.seen.Load() {
		return false
	}
	asked := r.Header["Connection"]
	for _, value := range asked {
		if !strings.EqualFold(value, "keep-alive") {
			return false
		}
	}
	return len(asked) > 0
}
