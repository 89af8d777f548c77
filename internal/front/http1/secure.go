package http1

import (
	"crypto/tls"
	"net"
	"sync"
	"time"

	"github.com/isotone/isotone/internal/host/loop"
)

// SecureConfig is what a [Secure] is made of. Loop, TLS, Open and HandOver are required.
type SecureConfig struct {
	// Loop is where the connections are.
	Loop *loop.Loop
	// TLS names in NextProtos what this port speaks: "h2" and "http/1.1". It is used as
	// it is, so that the loops that share it accept each other's session tickets, and must
	// not be changed.
	TLS *tls.Config
	// Open returns the handler for a connection that has shaken hands, or nil to have it
	// closed. What the handler reads and writes is what was encrypted.
	Open func(*loop.Conn) loop.Handler
	// HandOver takes a connection that has agreed on HTTP/2, as a [*Secured]. It must
	// not block, and owns the connection.
	HandOver func(net.Conn)
	// Limits bounds what shakes hands; the zero value means the defaults.
	Limits SecureLimits
}

// SecureLimits bounds what handshakes can take (I7). A field that is 0 or less has its
// default.
type SecureLimits struct {
	// HandshakeTimeout bounds a handshake from its first byte to its last. Default 10 s,
	// as long as a request may take to arrive.
	HandshakeTimeout time.Duration
	// HandshakesMax bounds the handshakes that compute at once, those that begin and those
	// that go on each by itself; others wait for them. One that waits for its client does
	// not count. How many there are is bounded by the connections of the port. Default 4,
	// for each loop: they compute for a fraction of a millisecond, and the loop wants to
	// run beside them.
	HandshakesMax int
}

func (l SecureLimits) withDefaults() SecureLimits {
	if l.HandshakeTimeout <= 0 {
		l.HandshakeTimeout = 10 * time.Second
	}
	if l.HandshakesMax <= 0 {
		l.HandshakesMax = 4
	}
	return l
}

// Secure is TLS on the connections of one loop. Each shakes hands in a goroutine of its
// own, for that is a fraction of a millisecond of arithmetic; then the loop reads and
// writes it as any other, with the encryption as a [loop.Layer]. Make it with
// [NewSecure]. All methods but Wait belong to the loop's goroutine.
type Secure struct {
	cfg     SecureConfig
	opening []*opening // those that shake hands, in no order
	// begin and goOn have a token for each handshake that computes. Those that go on do
	// not stand in line behind all that begin: of a thousand clients that come at once the
	// first would be served when the last has come.
	begin, goOn chan struct{}
	running     sync.WaitGroup
	stopped     bool
}

// NewSecure returns a Secure without connections. It panics where something required is
// missing.
func NewSecure(cfg SecureConfig) *Secure {
	if cfg.Loop == nil || cfg.TLS == nil || cfg.Open == nil || cfg.HandOver == nil {
		panic("http1: SecureConfig.Loop, TLS, Open or HandOver is nil")
	}
	cfg.Limits = cfg.Limits.withDefaults()
	most := cfg.Limits.HandshakesMax
	return &Secure{cfg: cfg, begin: make(chan struct{}, most), goOn: make(chan struct{}, most)}
}

// protocolHTTP2 is the name of HTTP/2 in ALPN (RFC 9113 §3.2).
const protocolHTTP2 = "h2"

// Accept returns the handler for c, whose first bytes begin a handshake, or nil after
// Stop.
func (s *Secure) Accept(c *loop.Conn) loop.Handler {
	if s.stopped {
		return nil
	}
	o := &opening{secure: s, conn: c, place: len(s.opening)}
	o.socket.init(o.ask)
	o.tls = tls.Server(&o.socket, s.cfg.TLS)
	s.opening = append(s.opening, o)
	return o
}

// Stop closes the connections that shake hands. Accept refuses from now on.
func (s *Secure) Stop() {
	s.stopped = true
	for _, o := range s.opening {
		o.conn.Close(ErrStopped)
	}
}

// Conns returns how many connections shake hands.
func (s *Secure) Conns() int { return len(s.opening) }

// Wait waits for the goroutines of all handshakes. The loop has been closed.
func (s *Secure) Wait() { s.running.Wait() }

func (s *Secure) remove(o *opening) {
	last := len(s.opening) - 1
	s.opening[o.place] = s.opening[last]
	s.opening[o.place].place = o.place
	s.opening[last] = nil
	s.opening = s.opening[:last]
}

// opening is the handler of a connection that shakes hands. Its goroutine runs the
// handshake, over a socket in memory. While that computes the connection is paused; when
// it waits for the client it asks the loop to send what it has to say, and to go on.
type opening struct {
	secure *Secure
	conn   *loop.Conn
	tls    *tls.Conn
	socket socket
	timer  *time.Timer   // nil: not begun
	token  chan struct{} // where the goroutine's is, while it computes
	place  int           // in secure.opening
	over   bool          // nobody waits for the handshake any more
}

// Data passes on what the client says.
func (o *opening) Data(c *loop.Conn, b []byte) (int, error) {
	if o.secure.stopped {
		c.Close(ErrStopped)
		return len(b), nil
	}
	c.Pause()
	o.socket.feed(b)
	if o.timer == nil {
		s := o.secure
		o.timer = time.AfterFunc(s.cfg.Limits.HandshakeTimeout, func() { s.cfg.Loop.Post(o.expire) })
		s.running.Go(o.run)
	}
	return len(b), nil
}

// run is the handshake's goroutine.
func (o *opening) run() {
	s := o.secure
	o.token = s.begin
	o.token <- struct{}{}
	err := o.tls.Handshake()
	<-o.token
	s.cfg.Loop.Post(func() { o.finish(err) })
}

// ask is called by the goroutine before and after it waits for the client.
func (o *opening) ask(waiting bool) {
	s := o.secure
	if !waiting {
		o.token = s.goOn
		o.token <- struct{}{}
		return
	}
	<-o.token
	s.cfg.Loop.Post(o.proceed)
}

// proceed sends what the handshake has to say, and lets the client answer.
func (o *opening) proceed() {
	if !o.over {
		o.conn.Write(o.socket.said())
		o.conn.Resume()
	}
}

// expire ends a handshake that takes too long.
func (o *opening) expire() {
	if !o.over {
		o.conn.Abort(loop.ErrPartialTimeout)
	}
}

// finish leads the connection to who speaks with it from now on.
func (o *opening) finish(err error) {
	if o.over {
		return
	}
	s, c := o.secure, o.conn
	c.Write(o.socket.said())
	if err == nil && s.stopped {
		err = ErrStopped
	}
	if err != nil {
		c.Close(err) // after the alert that says why
		return
	}
	o.leave()
	y := &session{tls: o.tls, socket: &o.socket}
	unread := o.socket.move(c.Send)
	if o.tls.ConnectionState().NegotiatedProtocol == protocolHTTP2 {
		// HTTP/2 is the standard server's from the first byte: nothing may be decrypted here.
		if nc, err := c.Detach(unread); err == nil {
			s.cfg.HandOver(y.Detach(nc, nil))
		}
		return
	}
	h := s.cfg.Open(c)
	if h == nil {
		c.SetHandler(gone{})
		c.Close(ErrStopped)
		return
	}
	c.SetHandler(h)
	c.SetLayer(y, unread)
	c.Resume()
}

// leave takes o out of those that shake hands.
func (o *opening) leave() {
	o.over = true
	if o.timer != nil {
		o.timer.Stop()
	}
	o.secure.remove(o)
}

// Closed ends the goroutine.
func (o *opening) Closed(*loop.Conn, error) {
	if !o.over {
		o.leave()
		o.socket.fail(net.ErrClosed)
	}
}

// gone is the handler of a connection that nobody wants.
type gone struct{}

func (gone) Data(_ *loop.Conn, b []byte) (int, error) { return len(b), nil }
func (gone) Closed(*loop.Conn, error)                 {}
