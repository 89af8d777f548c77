package loop

import "io"

// This file is the life of a connection: what a turn does with one that can be read or
// written.
//
//	       Close             output written        end of input, time or bytes
//	open ────────► closing ────────────────► lingering ────────────────► gone
//
// From everywhere an error or a timeout leads to gone at once.

// call has the handler called in the next Wait.
func (l *Loop) call(c *Conn) {
	if !c.called {
		c.called = true
		l.ready = append(l.ready, c)
	}
}

// readable reads from c once and lets its handler work.
func (l *Loop) readable(c *Conn) {
	if c.state != stateOpen {
		l.discard(c)
		return
	}
	room := min(len(l.buf), c.limits.UnreadMax-c.in.len())
	if room <= 0 {
		l.poll.watch(c, false)
		return
	}
	n, err := l.poll.read(c, l.buf[:room])
	switch err {
	case nil:
	case errAgain:
		return
	case io.EOF:
		c.eof = true
		l.poll.watch(c, false)
		if h, ok := c.handler.(HalfCloser); ok && c.paused {
			h.HalfClosed(c)
		}
		l.feed(c)
		return
	default:
		l.end(c, err)
		return
	}
	c.heard = l.now
	b := l.buf[:n]
	if c.layer != nil {
		if b, err = l.open(c, b); err != nil {
			defer c.Close(err) // what came before it counts
		}
		if len(b) == 0 {
			l.feed(c)
			return
		}
		n = len(b)
	}
	if c.in.len() > 0 {
		c.in.add(&l.pool, b)
		l.feed(c)
		return
	}
	c.since = l.now
	if c.paused || c.Choked() {
		c.in.add(&l.pool, b)
	} else if used := l.deliver(c, b); c.state != stateGone && used < n {
		c.in.add(&l.pool, b[used:])
	}
	l.settle(c)
}

// feed lets the handler of c work on what has been kept, and go on writing.
func (l *Loop) feed(c *Conn) {
	if c.drains && c.state == stateOpen && !c.Choked() {
		c.drains = false
		if h, ok := c.handler.(Drainer); ok {
			h.Drained(c)
		}
	}
	if c.state == stateOpen && c.in.len() > 0 && !c.paused && !c.Choked() {
		if used := l.deliver(c, c.in.bytes()); c.state != stateGone {
			c.in.use(&l.pool, used)
		} else {
			c.in.free(&l.pool)
		}
	}
	l.settle(c)
}

// deliver calls the handler with b and returns how much of it is used. While it runs,
// c.in keeps its buffer: b may be in there.
func (l *Loop) deliver(c *Conn, b []byte) int {
	c.busy, c.resumed = true, false
	used, err := c.handler.Data(c, b)
	c.busy = false
	if c.state == stateGone {
		return 0
	}
	if used < 0 || used > len(b) {
		panic("loop: Data has used more than there is")
	}
	if used > 0 {
		c.spoke, c.since = true, l.now
	}
	if err != nil {
		c.Close(err)
	}
	return used
}

// settle decides how c goes on, after its handler has had its chance.
func (l *Loop) settle(c *Conn) {
	if c.state != stateOpen {
		return
	}
	switch {
	case c.paused: // until Resume
	case c.Choked():
		c.held = c.in.len() > 0 || c.eof
	case c.resumed && c.in.len() > 0:
		l.call(c)
	case c.eof:
		c.Close(io.EOF)
		return
	case c.in.len() >= c.limits.UnreadMax:
		c.Close(ErrTooLong)
		return
	}
	c.resumed = false
	if !c.eof && c.in.len() < c.limits.UnreadMax {
		l.poll.watch(c, true)
	}
}

// discard reads what a connection that is being closed still sends, so that closing
// does not reset it under the last answer.
func (l *Loop) discard(c *Conn) {
	if c.state == stateGone {
		return
	}
	n, err := l.poll.read(c, l.buf)
	switch {
	case err == errAgain:
		return
	case err == io.EOF:
		c.eof = true
	case err != nil:
		l.end(c, err)
		return
	}
	if c.discarded += n; !c.eof && c.discarded <= lingerBytesMax {
		return
	}
	if c.state == stateLingering {
		l.end(c, c.reason)
		return
	}
	l.poll.watch(c, false)
}

// write writes what it can of c's output.
func (l *Loop) write(c *Conn) {
	if c.state >= stateLingering {
		return
	}
	if c.layer != nil {
		if err := l.seal(c); err != nil {
			l.end(c, err)
			return
		}
	}
	whole := c.out
	for len(c.out) > 0 {
		n, err := l.poll.write(c, c.out)
		if err == errAgain {
			break
		}
		if err != nil {
			l.end(c, err)
			return
		}
		c.out = c.out[n:]
		c.moved = l.now
	}
	if stuck := len(c.out) > 0; stuck != c.stuck {
		c.stuck = stuck
		c.moved, c.heard, c.since = l.now, l.now, l.now
		l.poll.watchWrite(c, stuck)
	}
	if c.held && !c.Choked() {
		c.held, c.since = false, l.now
		l.call(c)
	}
	if c.drains && !c.Choked() {
		l.call(c)
	}
	if c.stuck {
		return
	}
	if whole != nil {
		c.out, c.usual = nil, min(len(whole), lentMax)
		l.pool.put(whole)
	}
	if c.state == stateClosing {
		l.linger(c)
	}
}

// linger ends the output of c, whose last is written, and waits for the other side to
// do the same.
func (l *Loop) linger(c *Conn) {
	if c.eof || c.discarded > lingerBytesMax || !l.poll.shut(c) {
		l.end(c, c.reason)
		return
	}
	c.state, c.since = stateLingering, l.now
	c.in.free(&l.pool)
	l.poll.watch(c, true)
}

// end closes c and tells its handler, with err or with what Close was called with.
func (l *Loop) end(c *Conn, err error) {
	if c.state == stateGone {
		return
	}
	if c.state != stateOpen {
		err = c.reason
	}
	l.poll.drop(c)
	l.remove(c)
	if c.handler != nil {
		c.handler.Closed(c, err)
	}
	if c.tag != nil {
		c.tag.Ended()
	}
}

// remove takes c out of everything that the loop holds; from dirty and ready it goes
// in time.
func (l *Loop) remove(c *Conn) {
	c.state = stateGone
	last := len(l.conns) - 1
	l.conns[c.place] = l.conns[last]
	l.conns[c.place].place = c.place
	l.conns[last] = nil
	l.conns = l.conns[:last]
	c.place = -1
	if !c.busy {
		c.in.free(&l.pool)
	}
	if c.out != nil {
		l.pool.put(c.out)
		c.out = nil
	}
	if c.plain != nil {
		l.pool.put(c.plain)
		c.plain = nil
	}
}
