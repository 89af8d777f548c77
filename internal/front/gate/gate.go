// Package gate detects the protocol of each connection on the client port by its first
// bytes, and gives the connection to the front for it: in the loop, or, with those bytes
// unread again, on the standard servers.
//
// It owns that choice and the limit on connections. It parses nothing and answers
// nothing. All of it runs on the goroutine of one [loop.Loop], except for
// [Gate.Connections], [Gate.Undecided] and [Gate.Refused].
//
//	0x16                                     TLS: Config.TLS, or the standard servers
//	"GET /"                                  the fast path of HTTP/1.1
//	"PRI * HTTP/2.0"                         HTTP/2
//	"*" and a digit                          the Redis protocol
//	a line that begins with one of Commands  the Redis protocol, inline; unless the line
//	                                         has " HTTP/" in it
//	anything else                            the standard servers, as other HTTP/1, or for
//	                                         a 400
//
// It decides as soon as one line of the table is certain. The same table holds inside
// TLS, see [Gate.Inside], except that there is no second TLS.
package gate

import (
	"bytes"
	"errors"
	"net"
	"strings"
	"sync/atomic"

	"github.com/isotone/isotone/internal/host/loop"
)

// ErrStopped ends connections after [Gate.Stop].
var ErrStopped = errors.New("the server is shutting down")

// lineBytesMax bounds the first line of an inline command, which is a few words; net/http
// refuses what is longer.
const lineBytesMax = 1 << 10

// connectionsMaxDefault is also that of internal/front/web.Limits.
const connectionsMaxDefault = 20000

// Config configures a [Gate]. Loop, HTTP1, Rest and Refuse are required.
type Config struct {
	// Loop owns the connections.
	Loop *loop.Loop
	// HTTP1, HTTP2 and RESP return the handler for a connection, or nil to close it. Without
	// RESP the Redis protocol is not served, and without HTTP2 Rest gets such connections.
	HTTP1, HTTP2, RESP func(*loop.Conn) loop.Handler
	// TLS does the same for a connection that begins a TLS handshake. Without it such a
	// connection goes to Rest.
	TLS func(*loop.Conn) loop.Handler
	// Commands are the names of the commands of RESP, in capitals.
	Commands []string
	// Rest takes a connection for the standard servers. At least one byte of it can be
	// read without waiting. It must not block.
	Rest func(net.Conn)
	// Refuse takes a connection beyond ConnectionsMax, of which nothing has been read,
	// and tells the client. It must not block.
	Refuse func(net.Conn)
	// ConnectionsMax bounds the open connections, those of the loop and Elsewhere
	// together. Default 20000.
	ConnectionsMax int
	// Admit, if not nil, is called for each new connection. If it returns false the client is
	// refused as one beyond ConnectionsMax.
	Admit func(*loop.Conn) bool
	// TLSRequired refuses connections without TLS, with an answer in their protocol that says so.
	TLSRequired bool
	// Elsewhere returns the number of connections of this port outside of the loop; nil
	// means none. The gate calls it on the loop's goroutine.
	Elsewhere func() int
}

// Gate is the gate of one loop. Make it with [New]. All methods but Connections, Undecided and
// Refused belong to the loop's goroutine.
type Gate struct {
	cfg       Config
	undecided []*conn // connections with no protocol yet, in no order
	stopped   bool
	counted   int          // the value of open
	open      atomic.Int64 // the loop's connections, for other goroutines
	silent    atomic.Int64 // the length of undecided, for other goroutines
	refused   atomic.Uint64
}

// New returns a gate for connections of cfg.Loop. It panics if a required field is missing.
func New(cfg Config) *Gate {
	if cfg.Loop == nil || cfg.HTTP1 == nil || cfg.Rest == nil || cfg.Refuse == nil {
		panic("gate: Config.Loop, HTTP1, Rest or Refuse is nil")
	}
	if cfg.ConnectionsMax <= 0 {
		cfg.ConnectionsMax = connectionsMaxDefault
	}
	if cfg.Elsewhere == nil {
		cfg.Elsewhere = func() int { return 0 }
	}
	if cfg.RESP == nil {
		cfg.Commands = nil
	}
	return &Gate{cfg: cfg}
}

// Open returns the handler for a new connection, or nil, which closes it, after Stop: a
// callback for [loop.Loop.Listen]. The listener's Limits.UnreadMax must be more than 1 KiB;
// its default is.
func (g *Gate) Open(c *loop.Conn) loop.Handler {
	defer g.count()
	if g.stopped {
		return nil
	}
	if g.cfg.Loop.Conns()+g.cfg.Elsewhere() > g.cfg.ConnectionsMax || g.cfg.Admit != nil && !g.cfg.Admit(c) {
		g.refused.Add(1)
		if nc, err := c.Detach(nil); err == nil {
			g.cfg.Refuse(nc)
		}
		return nil
	}
	return g.admit(c, false)
}

// Inside returns the handler for c, which Config.TLS opened and which has completed its
// handshake, or nil after Stop: it detects the protocol inside TLS, unless the handshake has negotiated
// HTTP/2, by the name "h2".
func (g *Gate) Inside(c *loop.Conn, negotiated string) loop.Handler {
	if g.stopped {
		return nil
	}
	if negotiated == "h2" && g.cfg.HTTP2 != nil {
		if h := g.cfg.HTTP2(c); h != nil {
			return &conn{gate: g, conn: c, inside: true, front: h}
		}
		return nil
	}
	return g.admit(c, true)
}

func (g *Gate) admit(lc *loop.Conn, inside bool) *conn {
	c := &conn{gate: g, conn: lc, index: len(g.undecided), inside: inside}
	g.undecided = append(g.undecided, c)
	g.silent.Store(int64(len(g.undecided)))
	return c
}

// Rest passes on a connection that Config.TLS has detached from the loop.
func (g *Gate) Rest(nc net.Conn) {
	g.count()
	g.cfg.Rest(nc)
}

// Stop closes the connections with no protocol yet. Open and Inside return nil from now on.
func (g *Gate) Stop() {
	g.stopped = true
	for _, c := range g.undecided {
		c.conn.Close(ErrStopped)
	}
}

// Connections returns the number of connections in the loop. Any goroutine may call it.
func (g *Gate) Connections() int { return int(g.open.Load()) }

// Undecided returns the number of connections in the loop whose protocol is not known yet.
// Any goroutine may call it.
func (g *Gate) Undecided() int { return int(g.silent.Load()) }

// Refused returns how many connections were refused because there were too many. Any
// goroutine may call it.
func (g *Gate) Refused() uint64 { return g.refused.Load() }

// count publishes the number of connections. It is called after everything that can change
// it, and whenever data arrives, so it is only a comparison.
func (g *Gate) count() {
	if n := g.cfg.Loop.Conns(); n != g.counted {
		g.counted = n
		g.open.Store(int64(n))
	}
}

// conn is the handler of a connection, with the front's handler behind it once the protocol
// is known.
type conn struct {
	gate   *Gate
	conn   *loop.Conn
	front  loop.Handler // nil: no protocol yet
	index  int          // in gate.undecided, until then
	inside bool         // inside TLS
}

// Data passes b to the front, or chooses the front.
func (c *conn) Data(lc *loop.Conn, b []byte) (used int, err error) {
	if c.front != nil {
		used, err = c.front.Data(lc, b)
	} else {
		used, err = c.route(lc, b)
	}
	c.gate.count() // it may have been detached
	return used, err
}

// route gives the connection to the front or the servers for it, once b says which.
func (c *conn) route(lc *loop.Conn, b []byte) (int, error) {
	g := c.gate
	to := g.detect(b)
	if to == secure && (c.inside || g.cfg.TLS == nil) {
		to = rest
	}
	if to == undecided {
		if !lc.EOF() {
			return 0, nil
		}
		to = rest // nothing more will come, and net/http knows what to answer
	}
	switch {
	case g.stopped:
		lc.Close(ErrStopped)
		return len(b), nil
	case g.cfg.TLSRequired && !c.inside && to != secure:
		lc.Write([]byte(plaintextAnswers[to]))
		lc.Close(errPlaintext)
		return len(b), nil
	case to == http1:
		return c.enter(lc, b, g.cfg.HTTP1)
	case to == http2:
		return c.enter(lc, b, g.cfg.HTTP2)
	case to == resp:
		return c.enter(lc, b, g.cfg.RESP)
	case to == secure:
		return c.enter(lc, b, g.cfg.TLS)
	}
	nc, err := lc.Detach(b)
	if err != nil {
		return len(b), nil // the loop has closed it, and called Closed
	}
	c.decided()
	g.cfg.Rest(nc)
	return len(b), nil
}

// errPlaintext ends connections without TLS where it is required.
var errPlaintext = errors.New("this port requires TLS")

// plaintextAnswers tell clients without TLS that it is required. Those that begin with something
// else than an HTTP/1 request or a command of Redis get the first, too: most of them can show it.
var plaintextAnswers = map[destination]string{http1: plaintextHTTP, rest: plaintextHTTP, http2: plaintextGoAway, resp: "-ERR this port requires TLS\r\n"}

const (
	plaintextBody = `{"error":{"code":"forbidden","message":"this port requires TLS: use https"}}`
	plaintextHTTP = "HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nCache-Control: no-store\r\n" +
		"Content-Length: 76\r\nConnection: close\r\n\r\n" + plaintextBody
	// plaintextGoAway is empty SETTINGS, and GOAWAY with INADEQUATE_SECURITY and the reason (RFC 9113 §6.8, §7).
	plaintextGoAway = "\x00\x00\x00\x04\x00\x00\x00\x00\x00" +
		"\x00\x00\x29\x07\x00\x00\x00\x00\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x0c" + "this port requires TLS: use https"
)

func (c *conn) enter(lc *loop.Conn, b []byte, open func(*loop.Conn) loop.Handler) (int, error) {
	h := open(lc)
	if h == nil {
		lc.Close(ErrStopped)
		return len(b), nil
	}
	c.decided()
	c.front = h
	return h.Data(lc, b)
}

// Closed tells the front, if there is one.
func (c *conn) Closed(lc *loop.Conn, err error) {
	if c.front != nil {
		c.front.Closed(lc, err)
	} else {
		c.decided()
	}
	c.gate.count()
}

// Drained tells the front, if it wants to know.
func (c *conn) Drained(lc *loop.Conn) {
	if h, ok := c.front.(loop.Drainer); ok {
		h.Drained(lc)
	}
}

// Idle lets the front end the connection, if it wants to.
func (c *conn) Idle(lc *loop.Conn, err error) {
	if h, ok := c.front.(loop.IdleHandler); ok {
		h.Idle(lc, err)
		return
	}
	lc.Abort(err)
}

// decided removes c from the undecided connections.
func (c *conn) decided() {
	list := c.gate.undecided
	last := len(list) - 1
	list[c.index] = list[last]
	list[c.index].index = c.index
	list[last] = nil
	c.gate.undecided = list[:last]
	c.gate.silent.Store(int64(last))
}

// destination is where a connection is routed to.
type destination uint8

const (
	undecided destination = iota
	http1
	http2
	resp
	secure
	rest
)

const get = "GET /"

// preface begins a connection of HTTP/2 (RFC 9113 §3.4), and no request of HTTP/1.
const preface = "PRI * HTTP/2.0\r\n"

// handshakeByte begins every TLS connection: the record type "handshake" (RFC 8446 §5.1).
const handshakeByte = 0x16

// detect returns the destination of a connection that begins with b. Once it is decided,
// further bytes do not change it.
func (g *Gate) detect(b []byte) destination {
	switch {
	case len(b) == 0:
		return undecided
	case len(b) >= len(get) && string(b[:len(get)]) == get:
		return http1
	case strings.HasPrefix(get, string(b)):
		return undecided
	case b[0] == preface[0] && g.cfg.HTTP2 != nil && bytes.HasPrefix(b, []byte(preface)):
		return http2
	case b[0] == preface[0] && g.cfg.HTTP2 != nil && strings.HasPrefix(preface, string(b)):
		return undecided
	case b[0] == handshakeByte:
		return secure
	case b[0] == '*' && g.cfg.RESP != nil:
		switch {
		case len(b) == 1:
			return undecided
		case '0' <= b[1] && b[1] <= '9':
			return resp
		}
		return rest
	}
	return g.detectCommand(b)
}

// detectCommand detects an inline command.
func (g *Gate) detectCommand(b []byte) destination {
	n := 0
	for n < len(b) && isWord(b[n]) {
		n++
	}
	word := bytes.ToUpper(b[:min(n, wordBytesMax)])
	if n == len(b) {
		for _, command := range g.cfg.Commands {
			if strings.HasPrefix(command, string(word)) {
				return undecided
			}
		}
		return rest
	}
	for _, command := range g.cfg.Commands {
		if command != string(word) {
			continue
		}
		end := bytes.IndexByte(b, '\n')
		switch {
		case end < 0 && len(b) < lineBytesMax:
			return undecided
		case end < 0 || end >= lineBytesMax || bytes.Contains(b[:end], []byte(" HTTP/")):
			return rest
		}
		return resp
	}
	return rest
}

// wordBytesMax is longer than the name of any command.
const wordBytesMax = 64

func isWord(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '.' || c == '-' || c == '_'
}
