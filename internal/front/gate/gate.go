// Package gate tells the protocols of the one client port apart, in the event loop, by
// the first bytes of each connection, and gives the connection to the front that speaks
// it: in the loop, or, with those bytes in front again, on the standard servers.
//
// It owns that choice and the limit on connections. It parses nothing and answers
// nothing. All of it runs on the goroutine of one [loop.Loop], but for
// [Gate.Connections].
//
//	0x16                                     TLS: what Config.TLS makes of it, or the
//	                                         standard servers
//	"GET /"                                  the fast lane of HTTP/1.1
//	"*" and a digit                          the Redis protocol
//	a line that begins with one of Commands  the Redis protocol, inline; unless the line
//	                                         has " HTTP/" in it
//	anything else                            the standard servers, as HTTP/2 or other
//	                                         HTTP/1, or for a 400
//
// It decides as soon as one line of the table is certain. Within TLS the same table
// holds, see [Gate.Inside], but that there is no second TLS.
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

// lineBytesMax bounds the first line of an inline command, which is a few words; what is
// longer is for net/http to refuse.
const lineBytesMax = 1 << 10

// connectionsMaxDefault is that of internal/front/web.
const connectionsMaxDefault = 20000

// Config is what a [Gate] is made of. Loop, HTTP1, Rest and Refuse are required.
type Config struct {
	// Loop is where the connections are.
	Loop *loop.Loop
	// HTTP1 and RESP open a front in the loop for a connection, and return nil when it
	// is to be closed. Without RESP nobody speaks the Redis protocol here.
	HTTP1, RESP func(*loop.Conn) loop.Handler
	// TLS opens a connection that begins a TLS handshake, in the same way. Without it
	// such a connection is for Rest.
	TLS func(*loop.Conn) loop.Handler
	// Commands are the words, in capitals, that an inline command of RESP begins with.
	Commands []string
	// Rest takes a connection for the standard servers. At least one byte can be read
	// from it at once. It must not block.
	Rest func(net.Conn)
	// Refuse takes a connection beyond ConnectionsMax, of which nothing has been read,
	// to tell its client so. It must not block.
	Refuse func(net.Conn)
	// ConnectionsMax bounds the open connections, those of the loop and those
	// elsewhere. Default 20000.
	ConnectionsMax int
	// Elsewhere returns how many connections the standard servers have; nil means none.
	// It is called on the loop's goroutine.
	Elsewhere func() int
}

// Gate is the entrance of one loop. Make it with [New]. All methods but Connections
// belong to the loop's goroutine.
type Gate struct {
	cfg     Config
	waiting []*guest // connections that are not told apart yet, in no order
	stopped bool
	counted int          // what open says
	open    atomic.Int64 // the loop's connections, for others
}

// New returns a gate for connections of cfg.Loop. It panics where something required is
// missing.
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

// Open returns the handler for a new connection, or nil, which closes it, after Stop. It
// is what [loop.Loop.Listen] is given. The listener's Limits.UnreadMax must be more than
// 1 KiB; its default is.
func (g *Gate) Open(c *loop.Conn) loop.Handler {
	defer g.count()
	if g.stopped {
		return nil
	}
	if g.cfg.Loop.Conns()+g.cfg.Elsewhere() > g.cfg.ConnectionsMax {
		if nc, err := c.Detach(nil); err == nil {
			g.cfg.Refuse(nc)
		}
		return nil
	}
	return g.admit(c, false)
}

// Inside returns the handler for c, which was opened by Config.TLS and has shaken hands,
// or nil after Stop: what is within TLS is told apart, too.
func (g *Gate) Inside(c *loop.Conn) loop.Handler {
	if g.stopped {
		return nil
	}
	return g.admit(c, true)
}

func (g *Gate) admit(c *loop.Conn, inside bool) *guest {
	w := &guest{gate: g, conn: c, place: len(g.waiting), inside: inside}
	g.waiting = append(g.waiting, w)
	return w
}

// Rest passes on a connection that Config.TLS has taken out of the loop.
func (g *Gate) Rest(nc net.Conn) {
	g.count()
	g.cfg.Rest(nc)
}

// Stop closes the connections that are not told apart yet. Open refuses from now on.
func (g *Gate) Stop() {
	g.stopped = true
	for _, w := range g.waiting {
		w.conn.Close(ErrStopped)
	}
}

// Connections returns how many connections the loop has. Any goroutine may call it.
func (g *Gate) Connections() int { return int(g.open.Load()) }

// count notes how many connections the loop has. It is called after everything that can
// change that for a guest, and for each that speaks, so it costs a comparison.
func (g *Gate) count() {
	if n := g.cfg.Loop.Conns(); n != g.counted {
		g.counted = n
		g.open.Store(int64(n))
	}
}

// guest is the handler of a connection, with the front's own behind it when that is known.
type guest struct {
	gate  *Gate
	conn  *loop.Conn
	front loop.Handler // nil: not told apart yet
	place int          // in gate.waiting, until then

	inside bool // TLS
}

// Data leads the connection to where it belongs.
func (w *guest) Data(c *loop.Conn, b []byte) (used int, err error) {
	if w.front != nil {
		used, err = w.front.Data(c, b)
	} else {
		used, err = w.lead(c, b)
	}
	w.gate.count() // it may have been detached
	return used, err
}

func (w *guest) lead(c *loop.Conn, b []byte) (int, error) {
	g := w.gate
	where := g.tell(b)
	if where == secure && (w.inside || g.cfg.TLS == nil) {
		where = rest
	}
	if where == undecided {
		if !c.EOF() {
			return 0, nil
		}
		where = rest // nothing more will come, and net/http knows what to say to that
	}
	switch {
	case g.stopped:
		c.Close(ErrStopped)
		return len(b), nil
	case where == http1:
		return w.enter(c, b, g.cfg.HTTP1)
	case where == resp:
		return w.enter(c, b, g.cfg.RESP)
	case where == secure:
		return w.enter(c, b, g.cfg.TLS)
	}
	nc, err := c.Detach(b)
	if err != nil {
		return len(b), nil // the loop has closed it, and told us
	}
	w.leave()
	g.cfg.Rest(nc)
	return len(b), nil
}

func (w *guest) enter(c *loop.Conn, b []byte, open func(*loop.Conn) loop.Handler) (int, error) {
	h := open(c)
	if h == nil {
		c.Close(ErrStopped)
		return len(b), nil
	}
	w.leave()
	w.front = h
	return h.Data(c, b)
}

// Closed tells the front, if there is one.
func (w *guest) Closed(c *loop.Conn, err error) {
	if w.front != nil {
		w.front.Closed(c, err)
	} else {
		w.leave()
	}
	w.gate.count()
}

// leave takes w out of those that wait.
func (w *guest) leave() {
	list := w.gate.waiting
	last := len(list) - 1
	list[w.place] = list[last]
	list[w.place].place = w.place
	list[last] = nil
	w.gate.waiting = list[:last]
}

// destination is where a connection belongs.
type destination uint8

const (
	undecided destination = iota
	http1
	resp
	secure
	rest
)

const get = "GET /"

// handshakeByte begins every TLS connection: the record type "handshake" (RFC 8446 §5.1).
const handshakeByte = 0x16

// tell says where a connection belongs that begins with b. What it has decided stays
// decided, whatever follows.
func (g *Gate) tell(b []byte) destination {
	switch {
	case len(b) == 0:
		return undecided
	case len(b) >= len(get) && string(b[:len(get)]) == get:
		return http1
	case strings.HasPrefix(get, string(b)):
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
	return g.tellLine(b)
}

// tellLine looks for an inline command.
func (g *Gate) tellLine(b []byte) destination {
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

// wordBytesMax is more than any command has.
const wordBytesMax = 64

func isWord(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '.' || c == '-' || c == '_'
}
