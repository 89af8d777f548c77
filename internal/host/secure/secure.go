// Package secure terminates TLS on the connections of a [loop.Loop].
//
// It owns the handshakes, each in a goroutine of its own, and the record layer of
// connections in the loop, as a [loop.Layer]. It knows no protocol above TLS but the
// names that ALPN negotiates. What a connection carries is for the handler that
// [Config.Open] returns.
package secure

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone/internal/host/loop"
)

// ErrStopped ends connections after [Terminator.Stop].
var ErrStopped = errors.New("the server is shutting down")

// ErrHandshakes ends connections whose client has too many handshakes, see [Config].
var ErrHandshakes = errors.New("too many TLS handshakes from this client")

// Config configures a [Terminator]. All fields but Limits are required.
type Config struct {
	// Loop owns the connections.
	Loop *loop.Loop
	// TLS names the protocols of this port in NextProtos. It is not cloned, so that the
	// loops that share it accept each other's session tickets, and must not be changed.
	TLS *tls.Config
	// Begin, if not nil, is called before anything is computed for a handshake. If it returns
	// false the connection is closed. Done is called after a handshake that has succeeded.
	Begin func(*loop.Conn) bool
	Done  func(*loop.Conn)
	// Verified, if not nil, is called with the client's certificate, once that is verified, before
	// Open.
	Verified func(c *loop.Conn, chains [][]*x509.Certificate)
	// Open returns the handler for a connection that has completed its handshake, or nil
	// to close it, given the protocol that was negotiated (RFC 7301), or "". The handler reads and writes plaintext.
	Open func(c *loop.Conn, negotiated string) loop.Handler
	// Limits bounds the handshakes; the zero value means the defaults.
	Limits Limits
}

// Limits bounds what handshakes can take (I7). A field that is 0 or less has its
// default.
type Limits struct {
	// HandshakeTimeout bounds a handshake from its first byte to its last. Default 10 s,
	// as long as a request may take to arrive.
	HandshakeTimeout time.Duration
	// HandshakesMax bounds the handshakes that compute at the same time, separately for
	// those that start and those that continue; others wait. A handshake that waits for
	// its client does not count. Default 4 for each loop: each computes for a fraction of
	// a millisecond, and the loop needs a core as well.
	HandshakesMax int
}

func (l Limits) withDefaults() Limits {
	if l.HandshakeTimeout <= 0 {
		l.HandshakeTimeout = 10 * time.Second
	}
	if l.HandshakesMax <= 0 {
		l.HandshakesMax = 4
	}
	return l
}

// Terminator is TLS on the connections of one loop. A handshake is a fraction of a
// millisecond of arithmetic, so each has a goroutine; after it the loop reads and writes
// the connection like any other, through a [loop.Layer]. Make it with [New]. All methods
// but Wait and Conns belong to the loop's goroutine.
type Terminator struct {
	cfg        Config
	handshakes []*handshake // those under way, in no order
	underWay   atomic.Int64 // how many there are, for other goroutines
	// starting and continuing have a token for each handshake that computes. There are
	// two, so that handshakes under way do not queue behind new ones: of a thousand
	// clients that connect at once, the first would finish with the last.
	starting, continuing chan struct{}
	running              sync.WaitGroup
	stopped              bool
}

// New returns a terminator without connections. It panics if a required field is missing.
func New(cfg Config) *Terminator {
	if cfg.Loop == nil || cfg.TLS == nil || cfg.Open == nil {
		panic("secure: Config.Loop, TLS or Open is missing")
	}
	cfg.Limits = cfg.Limits.withDefaults()
	n := cfg.Limits.HandshakesMax
	return &Terminator{cfg: cfg, starting: make(chan struct{}, n), continuing: make(chan struct{}, n)}
}

// Accept returns the handler for c, whose first bytes begin a handshake, or nil after
// Stop, or after it has closed c.
func (t *Terminator) Accept(c *loop.Conn) loop.Handler {
	if t.stopped {
		return nil
	}
	if t.cfg.Begin != nil && !t.cfg.Begin(c) {
		c.Close(ErrHandshakes)
		return nil
	}
	h := &handshake{terminator: t, conn: c, index: len(t.handshakes)}
	h.socket.init(h.waiting)
	h.tls = tls.Server(&h.socket, t.cfg.TLS)
	t.handshakes = append(t.handshakes, h)
	t.underWay.Store(int64(len(t.handshakes)))
	return h
}

// Stop closes the connections whose handshake is under way. Accept refuses from now on.
func (t *Terminator) Stop() {
	t.stopped = true
	for _, h := range t.handshakes {
		h.conn.Close(ErrStopped)
	}
}

// Conns returns the number of handshakes under way. Any goroutine may call it.
func (t *Terminator) Conns() int { return int(t.underWay.Load()) }

// Wait waits for the goroutines of all handshakes. The caller has closed the loop.
func (t *Terminator) Wait() { t.running.Wait() }

func (t *Terminator) remove(h *handshake) {
	last := len(t.handshakes) - 1
	t.handshakes[h.index] = t.handshakes[last]
	t.handshakes[h.index].index = h.index
	t.handshakes[last] = nil
	t.handshakes = t.handshakes[:last]
	t.underWay.Store(int64(last))
}
