// Package loop is an event loop for sockets: one goroutine waits for all of them,
// reads those that are ready, lets a [Handler] for each connection work on what came,
// and writes the output of the handlers. It knows no protocol.
//
// The caller, a [Host] in this program, owns the rhythm. Its goroutine calls, over and over,
//
//	l.Wait(d)  // until something is ready, or for d; handlers run in here
//	...        // what the handlers have collected is worked on, all of it at once
//	l.Flush()  // output of all connections, one write for each
//
// so that the work between the two is done once for everything that arrived together.
// Everything but [Loop.Wake] and [Loop.Post] belongs to that goroutine: handlers need no
// locks.
//
// A turn reads from each connection once, at most 64 KiB, so that none starves the
// others; what is left is there in the next. Between turns a connection that has nothing
// to say holds no buffer: they belong to the loop, which lends them.
//
// A [Layer] on a connection translates between its socket and its handler.
//
// On Linux the sockets are watched with epoll, level-triggered. Elsewhere, and with the
// build tag portable, a goroutine reads, and one writes, for each connection, and both
// hand over to the loop.
package loop

import (
	"errors"
	"log/slog"
	"net"
	"time"
)

// Handler is the protocol on one connection. Its methods run within [Loop.Wait],
// [Loop.Flush] and [Loop.Close]. They must not block and not call any of these three but
// Close.
type Handler interface {
	// Data handles b: everything that was read from c and is still unused. It returns how
	// many bytes it used; the rest comes again, in front of what follows, when more has
	// arrived or [Conn.Resume] was called. b is valid during the call only. An error closes
	// c after the output so far is written.
	//
	// A handler that returns without using all of b, and neither is paused nor choked,
	// waits for more. When no more can come, because the other side has shut down its
	// sending side, the connection is closed after the output so far.
	//
	// Data may call [Conn.Detach]; what it returns then does not count.
	Data(c *Conn, b []byte) (used int, err error)
	// Closed is called once when c has ended, unless it was detached: err is io.EOF if the
	// other side closed it. c and its output must not be used any more. Work that was begun
	// for c may still have to be awaited.
	Closed(c *Conn, err error)
}

// HalfCloser is a [Handler] that is told at once when the other side shuts down its sending
// side while the connection is paused: such a client seldom waits for its answer. Other
// handlers find out after they have answered.
type HalfCloser interface {
	// HalfClosed may end c, by [Conn.Abort] for instance.
	HalfClosed(c *Conn)
}

// Drainer is a [Handler] that writes without being asked, and waits while the connection is choked: see
// [Conn.AwaitDrain].
type Drainer interface {
	// Drained is called when the connection is no longer choked.
	Drained(c *Conn)
}

// IdleHandler is a [Handler] that ends its connection by itself for [ErrIdleTimeout], with a last message.
type IdleHandler interface {
	// Idle calls [Conn.Close], with err.
	Idle(c *Conn, err error)
}

// Limits bounds what the connections of one listener, or one connection that was
// attached, can hold (I7). A zero field has its default.
type Limits struct {
	// UnreadMax bounds the bytes that were read and not used, on one connection, and so
	// what Data is given at once. At the bound a paused connection is not read any more;
	// one that is not paused, whose handler thus waits for something longer, is closed
	// with [ErrTooLong]. Default 64 KiB, which is also the most that one read takes.
	UnreadMax int
	// OutputMax: with more output than this unwritten, a connection's handler gets no
	// data until the other side has read. It is no bound for what a handler writes at
	// once; that is the handler's to keep. Default 256 KiB.
	OutputMax int
	// UnsentMax bounds what the system takes of an accepted connection's output ahead of
	// the other side (Linux doubles the number for its own books). Default 256 KiB;
	// systems allow several MiB for each connection.
	UnsentMax int
	// PartialTimeout bounds the wait for the rest of a request: from the first byte that the
	// handler did not use, or from the start of a connection that has sent nothing yet.
	// Default 10 s.
	PartialTimeout time.Duration
	// IdleTimeout bounds the wait for the next byte of a connection that has nothing
	// outstanding. Default 2 min.
	IdleTimeout time.Duration
	// WriteTimeout bounds how long output may wait while the other side takes nothing.
	// Default 30 s.
	WriteTimeout time.Duration
}

const (
	unreadMaxDefault      = 64 << 10
	outputMaxDefault      = 256 << 10
	unsentMaxDefault      = 256 << 10
	partialTimeoutDefault = 10 * time.Second
	idleTimeoutDefault    = 2 * time.Minute
	writeTimeoutDefault   = 30 * time.Second
)

func (l Limits) withDefaults() Limits {
	set := func(v *int, def int) {
		if *v <= 0 {
			*v = def
		}
	}
	setTime := func(v *time.Duration, def time.Duration) {
		if *v <= 0 {
			*v = def
		}
	}
	set(&l.UnreadMax, unreadMaxDefault)
	set(&l.OutputMax, outputMaxDefault)
	set(&l.UnsentMax, unsentMaxDefault)
	setTime(&l.PartialTimeout, partialTimeoutDefault)
	setTime(&l.IdleTimeout, idleTimeoutDefault)
	setTime(&l.WriteTimeout, writeTimeoutDefault)
	return l
}

// Why a connection was closed, beside what the socket said.
var (
	// ErrClosed: the loop was closed.
	ErrClosed = errors.New("loop closed")
	// ErrTooLong: more unused bytes than Limits.UnreadMax.
	ErrTooLong = errors.New("too many bytes without an end")
	// ErrPartialTimeout, ErrIdleTimeout, ErrWriteTimeout: see [Limits].
	ErrPartialTimeout = errors.New("the rest of a request did not come in time")
	ErrIdleTimeout    = errors.New("idle for too long")
	ErrWriteTimeout   = errors.New("the other side does not read")
)

// errAgain says that a connection can be neither read nor written now.
var errAgain = errors.New("not now")

const (
	// readSize is the most that is read from a connection in one turn, so that one that
	// never stops sending does not keep the others waiting.
	readSize = 64 << 10
	// sweepEvery is how often timeouts are checked. They are meant for clients that are gone
	// or hostile, and need not be exact. A turn checks sweepBatch connections at most: checking
	// ten thousand at once would delay requests by a millisecond.
	sweepEvery = time.Second
	sweepBatch = 512
	// acceptPause keeps a listener that cannot accept (no file descriptors) from spinning.
	acceptPause = 50 * time.Millisecond
	// warnEvery is the least time between two warnings about one listener: a shortage lasts, and may
	// end and begin again with each connection.
	warnEvery = time.Minute
)

// Loop is an event loop. Make it with [New].
type Loop struct {
	poll  poller
	pool  pool
	log   *slog.Logger
	buf   []byte  // input of the connection that is being read
	plain []byte  // the same, opened by its layer
	conns []*Conn // all open ones, in no order
	dirty []*Conn // with output since the last Flush
	ready []*Conn // whose handler is to be called again
	spare []*Conn // for use as ready

	posted posts

	listeners []*listener
	clock     func() time.Duration // since New
	now       time.Duration        // on clock, as of the latest Wait
	swept     time.Duration        // when the latest sweep began
	unswept   int                  // how many of conns it has still to look at
	inside    bool                 // Wait or Flush is running
	closed    bool
}

// New returns a loop without connections. log takes what goes wrong with accepting;
// nil discards it. The caller must Close it.
func New(log *slog.Logger) (*Loop, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	began := time.Now()
	l := &Loop{log: log, buf: make([]byte, readSize), clock: func() time.Duration { return time.Since(began) }}
	if err := l.poll.open(); err != nil {
		return nil, err
	}
	return l, nil
}

// KeepProcessor lets Wait sleep without giving its processor, in the sense of GOMAXPROCS,
// to other goroutines. The program must have one for each such loop beside those that it
// wants to use, or others starve while the loop sleeps. What it saves is that Go's
// scheduler takes the processor away in every sleep of more than 20 µs, and polls for that
// all the time: a quarter of a follower's CPU time under load, half of an idle node's. It is
// called before the first Wait, and has an effect on Linux only.
func (l *Loop) KeepProcessor() { l.poll.keepProcessor() }

// Listen accepts connections from ln, which the loop owns from now on, unless Listen
// fails. open is called for each, and returns its handler, or nil to have it closed
// after what open has written to it, unless it has detached it.
func (l *Loop) Listen(ln net.Listener, limits Limits, open func(*Conn) Handler) error {
	if l.closed {
		return ErrClosed
	}
	s := &listener{loop: l, open: open, limits: limits.withDefaults()}
	if err := l.poll.listen(s, ln); err != nil {
		return err
	}
	l.listeners = append(l.listeners, s)
	return nil
}

// Attach takes over an open connection, unless it fails, with bytes of it that have been
// read already. Data is called with them in the next Wait.
func (l *Loop) Attach(nc net.Conn, unread []byte, limits Limits, h Handler) (*Conn, error) {
	if l.closed {
		return nil, ErrClosed
	}
	limits = limits.withDefaults()
	c := &Conn{loop: l, handler: h, limits: &limits}
	if err := l.poll.attach(c, nc); err != nil {
		return nil, err
	}
	l.add(c)
	if len(unread) > 0 {
		c.in.add(&l.pool, unread)
		l.call(c)
	}
	return c, nil
}

// Wait waits until a connection is ready, [Loop.Wake] is called, or d has passed; 0 does
// not wait. It may return before. It reads what is ready and calls the handlers.
func (l *Loop) Wait(d time.Duration) error {
	if l.closed {
		return ErrClosed
	}
	l.enter()
	defer l.leave()
	if len(l.ready) > 0 || l.unswept > 0 {
		d = 0
	}
	if err := l.poll.wait(l, min(max(d, 0), sweepEvery)); err != nil {
		return err
	}
	l.runPosts()
	again := l.ready
	l.ready, l.spare = l.spare, nil
	for _, c := range again {
		c.called = false
		l.feed(c)
	}
	clear(again)
	l.spare = again[:0]
	l.sweep()
	if l.closed {
		return ErrClosed
	}
	return nil
}

// Wake ends a Wait that is under way, or the next one. Any goroutine may call it, also
// after Close.
func (l *Loop) Wake() { l.poll.wake() }

// WaitForWake waits until [Loop.Wake] is called or d has passed, and ignores connections in
// the meantime: many small turns become one. d should be at most about a millisecond. It
// returns false at once where the system does not support that.
func (l *Loop) WaitForWake(d time.Duration) bool { return l.poll.waitForWake(d) }

// Flush writes the output of all connections.
func (l *Loop) Flush() {
	l.enter()
	defer l.leave()
	for i := 0; i < len(l.dirty); i++ { // may grow: closing one may write to another
		c := l.dirty[i]
		c.dirty = false
		l.write(c)
	}
	clear(l.dirty)
	l.dirty = l.dirty[:0]
}

func (l *Loop) enter() {
	if l.inside {
		panic("loop: Wait or Flush within Wait or Flush")
	}
	l.inside = true
}

func (l *Loop) leave() { l.inside = false }

// Now is the time of the latest Wait; see [Conn.Now].
func (l *Loop) Now() time.Duration { return l.now }

// Conns returns how many connections are open, or on their way to be closed.
func (l *Loop) Conns() int { return len(l.conns) }

// StopListening closes the listeners. Connections stay.
func (l *Loop) StopListening() {
	for _, s := range l.listeners {
		s.stopped = true
		l.poll.unlisten(s)
	}
	l.listeners = nil
}

// Close closes everything at once: output that was not written by a Flush is lost.
// Handlers are told with [ErrClosed].
func (l *Loop) Close() error {
	if l.closed {
		return nil
	}
	l.closed = true
	l.posted.mu.Lock()
	l.posted.ended = true
	l.posted.mu.Unlock()
	l.StopListening()
	for len(l.conns) > 0 {
		l.end(l.conns[len(l.conns)-1], ErrClosed)
	}
	return l.poll.close()
}

// listener is a listening socket of a loop.
type listener struct {
	listening // how the platform listens
	open      func(*Conn) Handler
	limits    Limits
	loop      *Loop
	stopped   bool
	warnAt    time.Duration // on the loop's clock: no warning before
}

// cannotAccept says so, once every warnEvery. Only the goroutine that accepts from s calls it.
func (l *Loop) cannotAccept(s *listener, err error) {
	if now := l.clock(); now >= s.warnAt {
		s.warnAt = now + warnEvery
		l.log.Warn("connections cannot be accepted; trying again", "err", err)
	}
}

// accepted gives a new connection its handler.
func (l *Loop) accepted(s *listener, c *Conn) {
	c.loop, c.limits = l, &s.limits
	l.add(c)
	c.handler = s.open(c)
	switch {
	case c.handler != nil:
	case len(c.out) > 0:
		c.Close(ErrClosed)
	default:
		l.end(c, ErrClosed)
	}
}

func (l *Loop) add(c *Conn) {
	c.place = len(l.conns)
	c.heard, c.since = l.now, l.now
	l.conns = append(l.conns, c)
}

// sweep closes connections that are overdue, from the last to the first: one that takes
// the place of another that was closed has been looked at.
func (l *Loop) sweep() {
	if l.now-l.swept >= sweepEvery {
		l.swept, l.unswept = l.now, len(l.conns)
		l.pool.trim()
	}
	for range sweepBatch {
		if l.unswept = min(l.unswept, len(l.conns)); l.unswept == 0 {
			return
		}
		l.unswept--
		c := l.conns[l.unswept]
		err := c.overdue(l.now)
		if h, ok := c.handler.(IdleHandler); ok && err == ErrIdleTimeout {
			h.Idle(c, err)
		} else if err != nil {
			l.end(c, err)
		}
	}
}
