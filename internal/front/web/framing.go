package web

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/isotone/isotone"
)

// This file looks at the bytes of HTTP/1 that net/http reads, for two purposes.
//
// [heads] refuses what a proxy in front might read in another way: lines that end with a lone LF or
// contain a lone CR, and folded lines (RFC 9112 §2.2, §5.2). net/http accepts them.
//
// [watch] decides whether a connection survives a request of HTTP/1.0. A client asks for that with "Connection: keep-alive". But net/http removes Transfer-Encoding
// from a request of HTTP/1.0 before a handler sees it, and such a request may end elsewhere than
// net/http believes: the connection has to be closed (RFC 9112 §6.1). So the connections of
// HTTP/1 watch for that name themselves.

// watch looks for the name of the field Transfer-Encoding in a stream. The zero value is ready.
type watch struct {
	matched int         // of framingField, at the end of what was scanned; belongs to the reader
	seen    atomic.Bool // it was there, anywhere
	heads   heads
}

// framingField in lower case. Its first letter occurs nowhere else in it, so a mismatch can only
// begin a new match with that letter.
const framingField = "transfer-encoding"

// scan reads on. The pieces in which a stream comes make no difference.
func (w *watch) scan(b []byte) {
	w.heads.scan(b)
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
func (c *tlsConn) framing() *watch { return &c.watch }

// tlsConn is HTTP/1 under TLS whose handshake was done elsewhere.
type tlsConn struct {
	net.Conn
	watch watch
}

// Read watches what it reads.
func (c *tlsConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.watch.scan(p[:n])
	return n, err
}

// ConnectionState is how net/http learns of TLS.
func (c *tlsConn) ConnectionState() tls.ConnectionState {
	if secured, ok := c.Conn.(interface{ ConnectionState() tls.ConnectionState }); ok {
		return secured.ConnectionState()
	}
	return tls.ConnectionState{}
}

// CloseWrite is as for conn.
func (c *tlsConn) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(c net.Conn) error {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}

// heads checks the form of each head in a stream of requests, up to the first one with a body, whose
// request is the last one of its connection. The zero value is ready. scan belongs to the reader.
type heads struct {
	previous byte
	line     []byte // the line so far, in lower case, no longer than lineMax
	fields   bool   // the request line has ended
	loose    bool   // this head is not in the strict form
	body     bool   // a body follows this head
	ended    bool   // a body has begun

	mu      sync.Mutex
	waiting []bool // for each head that no handler has asked for: whether it was loose
}

// lineMax is longer than the part of a line that matters, a name and a length.
const lineMax = 40

func (h *heads) scan(b []byte) {
	for _, c := range b {
		if h.ended {
			return
		}
		h.look(c)
	}
}

func (h *heads) look(c byte) {
	switch {
	case c == '\n':
		h.loose = h.loose || h.previous != '\r'
		h.endLine()
	case h.previous == '\r':
		h.loose = true
	case c == '\r':
	case len(h.line) < lineMax:
		h.loose = h.loose || len(h.line) == 0 && h.fields && (c == ' ' || c == '\t')
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		h.line = append(h.line, c)
	}
	h.previous = c
}

func (h *heads) endLine() {
	line := h.line
	h.line = line[:0]
	switch {
	case len(line) > 0 && !h.fields:
		h.fields = true
	case len(line) > 0:
		length, sized := bytes.CutPrefix(line, []byte("content-length:"))
		h.body = h.body || bytes.HasPrefix(line, []byte(framingField+":")) || sized && string(bytes.Trim(length, " \t0")) != ""
	case h.fields: // the blank line
		h.mu.Lock()
		h.waiting = append(h.waiting, h.loose)
		h.mu.Unlock()
		h.ended, h.fields, h.loose, h.body = h.body, false, false, false
	}
}

// isNextLoose reports whether the head of the next request was not in the strict form. A handler calls it
// once for each request, in order.
func (h *heads) isNextLoose() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.waiting) == 0 {
		return h.ended // after a body
	}
	loose := h.waiting[0]
	h.waiting = append(h.waiting[:0], h.waiting[1:]...)
	return loose
}

// errLoose refuses a head that could be read in two ways.
var errLoose = isotone.Errorf(isotone.CodeInvalidArgument, "a line of the request does not end with CR LF, or is folded")

// isLoose reports whether the head of r is refused. The framing of HTTP/2 and HTTP/3 is unambiguous.
func isLoose(r *http.Request) bool {
	w, ok := r.Context().Value(watchKey{}).(*watch)
	return ok && r.ProtoMajor == 1 && w.heads.isNextLoose()
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
