package loop

import (
	"io"
	"net"
)

// Layer stands between the socket of one connection and its handler, and translates both
// ways: encryption is one. Its methods belong to the loop's goroutine, and must not block.
// What they want to send they give to [Conn.Send], during the call.
type Layer interface {
	// Open decodes raw, the next bytes from the socket, and appends the result to plain. It
	// keeps a copy of what is incomplete. io.EOF means that the other side has ended its
	// output. Any other error closes the connection after the output so far is written.
	Open(plain, raw []byte) ([]byte, error)
	// Partial reports whether Open keeps something incomplete.
	Partial() bool
	// Seal sends plain, which is valid during the call only.
	Seal(plain []byte) error
	// End tells the other side that nothing follows. It is called at most once, and never
	// after an error.
	End()
	// Detach takes the layer out of the loop. It returns a connection that speaks over
	// socket as the layer did, and reads unread first.
	Detach(socket net.Conn, unread []byte) net.Conn
}

// layered is what a connection with a [Layer] has beside the others.
type layered struct {
	layer   Layer
	plain   []byte // to be sealed; nil, or lent by loop.pool
	last    int    // length of the latest plain
	partial bool   // the layer keeps the beginning of something
	ended   bool   // the layer has ended its output, or cannot any more
}

// SetLayer puts y between the socket and the handler: [Conn.Write] and Data are above it,
// [Conn.Send] below. It opens raw first, the bytes that the handler was given and did not
// use, then those that it was not given yet. It must not be called within Data, and at most
// once. For its timeouts the connection counts as new.
func (c *Conn) SetLayer(y Layer, raw []byte) {
	switch {
	case c.busy || c.layer != nil:
		panic("loop: SetLayer within Data, or twice")
	case c.state != stateOpen:
		return
	}
	l := c.loop
	raw = append(append([]byte(nil), raw...), c.in.bytes()...)
	c.in.free(&l.pool)
	c.layer = y
	c.spoke, c.since, c.heard = false, l.now, l.now
	plain, err := l.open(c, raw)
	if len(plain) > 0 {
		c.in.add(&l.pool, plain)
	}
	if err != nil {
		c.Close(err)
		return
	}
	l.call(c)
}

// Layer returns what SetLayer was given, or nil.
func (c *Conn) Layer() Layer { return c.layer }

// Send adds b to the output beneath the layer, if there is one: it is what
// a [Layer] sends with. It is written in the next Flush.
func (c *Conn) Send(b []byte) {
	if c.state >= stateLingering {
		return
	}
	if c.out == nil {
		c.out = c.loop.pool.get(max(c.usual, len(b)))
	}
	c.out = append(c.out, b...)
}

// open gives raw to the layer of c. What it returns is valid until it is called again. An
// end of input it only notes.
func (l *Loop) open(c *Conn, raw []byte) ([]byte, error) {
	plain, err := c.layer.Open(l.plain[:0], raw)
	l.plain = plain[:0]
	was := c.partial
	if c.partial = c.layer.Partial(); c.partial && !was && c.in.len() == 0 {
		c.since = l.now
	}
	if len(c.out) > 0 {
		c.markDirty()
	}
	if err == io.EOF {
		c.eof = true
		l.poll.watch(c, false)
		return plain, nil
	}
	c.ended = c.ended || err != nil
	return plain, err
}

// seal puts what was written for c through its layer, into its output.
func (l *Loop) seal(c *Conn) error {
	if plain := c.plain; plain != nil {
		err := c.layer.Seal(plain)
		c.plain, c.last = nil, min(len(plain), lentMax)
		l.pool.put(plain)
		if err != nil {
			c.ended = true
			return err
		}
	}
	if c.state == stateClosing && !c.ended {
		c.ended = true
		c.layer.End()
	}
	return nil
}
