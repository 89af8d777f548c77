package loop

import (
	"net/netip"
	"time"
)

type connState uint8

const (
	stateOpen      connState = iota
	stateClosing             // ends when its output is written
	stateLingering           // its output has ended; input is discarded
	stateGone                // closed or detached
)

// Conn is one connection of a [Loop]. All methods belong to the loop's goroutine.
type Conn struct {
	socket  // how the platform talks
	layered // if there is something between that and the handler
	loop    *Loop
	handler Handler
	limits  *Limits
	place   int // in loop.conns

	in        queue  // read and not used
	out       []byte // to be written; nil, or lent by loop.pool
	usual     int    // length of the latest output
	discarded int    // bytes read and thrown away since Close
	reason    error

	heard time.Duration // when the other side last sent something
	since time.Duration // when the first byte of what is in in came; of a new one, its start; of one that lingers, when it began to
	moved time.Duration // when the other side last took output; for one that is stuck
	began time.Duration // when half was set

	remote netip.AddrPort
	tag    Tag // nil: none

	state   connState
	paused  bool
	resumed bool // from within Data
	held    bool // Data waits until it is no longer choked
	busy    bool // Data is running
	dirty   bool // in loop.dirty
	called  bool // in loop.ready
	eof     bool // the other side sends no more
	stuck   bool // the other side has not taken all output
	spoke   bool // the handler has used something
	kept    bool // IdleTimeout does not apply
	half    bool // the handler has used the beginning of a request
	drains  bool // the handler waits until it is no longer choked
}

const (
	// lingerTime and lingerBytesMax bound how long, and for how much, a closed
	// connection is still read. Closing a socket that has unread data resets it, and the
	// reset may destroy the last answer before the other side has read it. A client that
	// reads its answer and closes needs one round trip.
	lingerTime     = 2 * time.Second
	lingerBytesMax = 1 << 20
)

// Tag is something that belongs to a connection as long as that is open, in the loop and after
// [Conn.Detach].
type Tag interface {
	// Ended is called once, when the connection has ended, on the goroutine that ended it.
	Ended()
}

// SetTag gives the connection a tag. It must be called at most once.
func (c *Conn) SetTag(t Tag) { c.tag = t }

// Tag returns what SetTag was given, or nil.
func (c *Conn) Tag() Tag { return c.tag }

// Remote returns the address of the other side of an accepted connection; the zero AddrPort
// if it has none.
func (c *Conn) Remote() netip.AddrPort { return c.remote }

// Write adds b to the output. It is written in the next Flush, and lost if the
// connection ends before. It never fails: a closed connection tells its handler.
func (c *Conn) Write(b []byte) {
	if c.state >= stateLingering {
		return
	}
	out, usual := c.output()
	if *out == nil {
		*out = c.loop.pool.get(max(usual, len(b)))
	}
	*out = append(*out, b...)
	c.markDirty()
}

// output returns where the handler's output goes, and how much it usually is.
func (c *Conn) output() (out *[]byte, usual int) {
	if c.layer != nil {
		return &c.plain, c.last
	}
	return &c.out, c.usual
}

// Buffered returns the output that is not written yet. Append to it and give the
// result to SetBuffered.
func (c *Conn) Buffered() []byte {
	out, usual := c.output()
	if *out == nil && c.state < stateLingering {
		*out = c.loop.pool.get(usual)
	}
	return *out
}

// Unwritten returns the length of the output that is not written yet.
func (c *Conn) Unwritten() int { return len(c.out) + len(c.plain) }

// SetBuffered replaces the output that is not written yet by b, which is what Buffered
// returned with something appended.
func (c *Conn) SetBuffered(b []byte) {
	if c.state >= stateLingering {
		return
	}
	out, _ := c.output()
	*out = b
	c.markDirty()
}

func (c *Conn) markDirty() {
	if !c.dirty {
		c.dirty = true
		c.loop.dirty = append(c.loop.dirty, c)
	}
}

// Pause keeps Data from being called until Resume, while an answer is outstanding. No timeout
// applies meanwhile, and a connection whose other side has shut down its sending side stays
// open, so that it gets its answers.
func (c *Conn) Pause() { c.paused = true }

// Resume ends Pause. Data is called in the next Wait if anything is unused.
func (c *Conn) Resume() {
	if c.state != stateOpen || !c.paused {
		return
	}
	c.paused = false
	c.heard, c.since = c.loop.now, c.loop.now
	if c.busy {
		c.resumed = true
	} else if c.in.len() > 0 || c.eof {
		c.loop.call(c)
	}
}

// Paused reports whether Data is held back by Pause.
func (c *Conn) Paused() bool { return c.paused }

// EOF reports whether the other side has ended its output: what Data gets is all there
// will be.
func (c *Conn) EOF() bool { return c.eof }

// Choked reports whether so much output waits that Data would not be called now. A
// handler that answers as it goes should stop there: Data is called again when the other
// side has taken enough.
func (c *Conn) Choked() bool { return len(c.out)+len(c.plain) > c.limits.OutputMax }

// KeepOpen says whether IdleTimeout leaves the connection alone, as something on it may go on for long
// without input: the answer to a request that is a stream.
func (c *Conn) KeepOpen(on bool) {
	if c.kept && !on {
		c.heard = c.loop.now
	}
	c.kept = on
}

// SetPartial says whether the handler has used the beginning of a request whose rest has to come within PartialTimeout.
func (c *Conn) SetPartial(on bool) {
	if on && !c.half {
		c.began = c.loop.now
	}
	c.half = on
}

// AwaitDrain has [Drainer.Drained] called in the next Wait in which the connection is not choked.
func (c *Conn) AwaitDrain() {
	if c.drains = true; !c.Choked() {
		c.loop.call(c)
	}
}

// Close ends the connection once its output is written. The handler gets no more data; its
// Closed is called with err. That may take a while, because the other side gets time to read
// the output and to close first. Until then the connection counts in [Loop.Conns].
func (c *Conn) Close(err error) {
	if c.state != stateOpen {
		return
	}
	c.state, c.reason = stateClosing, err
	c.markDirty()
}

// Abort ends the connection at once. The handler gets err in its Closed, which is called
// before Abort returns.
func (c *Conn) Abort(err error) { c.loop.end(c, err) }

// SetHandler replaces the handler. One that finds in Data that another is to go on calls
// this and returns what the other's Data returns.
func (c *Conn) SetHandler(h Handler) { c.handler = h }

// Now is the time of the latest Wait, on a clock of the loop's own: cheap enough to
// measure every request with.
func (c *Conn) Now() time.Duration { return c.loop.now }

// overdue says why c is to be closed, if it is.
func (c *Conn) overdue(now time.Duration) error {
	switch {
	case c.state == stateLingering:
		if now-c.since > lingerTime {
			return c.reason
		}
	case c.stuck:
		if now-c.moved > c.limits.WriteTimeout {
			return ErrWriteTimeout
		}
	case c.paused, c.state != stateOpen:
	case c.half && now-c.began > c.limits.PartialTimeout:
		return ErrPartialTimeout
	case (c.in.len() > 0 || c.partial || !c.spoke) && now-c.since > c.limits.PartialTimeout:
		return ErrPartialTimeout
	case !c.kept && now-c.heard > c.limits.IdleTimeout:
		return ErrIdleTimeout
	}
	return nil
}
