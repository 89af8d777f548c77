package http2

import (
	"encoding/binary"
	"errors"
)

// errResets ends connections of clients that take too many requests back.
var errResets = errors.New("http2: too many requests were taken back")

func (c *conn) settings(f *frame) {
	const size = 6
	switch {
	case f.stream != 0:
		c.fail(codeProtocol, "SETTINGS on a stream")
		return
	case len(f.payload)%size != 0 || f.has(flagAck) && len(f.payload) > 0:
		c.fail(codeFrameSize, "SETTINGS have the wrong size")
		return
	case c.settled && !c.noise():
		return
	case f.has(flagAck):
		return
	}
	c.settled = true
	for b := f.payload; len(b) > 0 && !c.over; b = b[size:] {
		if c.noise() { // each may change the windows of all streams
			c.set(binary.BigEndian.Uint16(b), binary.BigEndian.Uint32(b[2:]))
		}
	}
	if c.over {
		return
	}
	c.conn.SetBuffered(appendFrame(c.conn.Buffered(), frameSettings, flagAck, 0, 0))
	c.pumpAll()
}

// set follows one setting of the client.
func (c *conn) set(id uint16, value uint32) {
	switch id {
	case settingTableSize:
		c.encoder.resize(value, &c.front.encoded)
	case settingPush:
		if value > 1 {
			c.fail(codeProtocol, "ENABLE_PUSH is neither 0 nor 1")
		}
	case settingWindow:
		if value > windowMax {
			c.fail(codeFlow, "INITIAL_WINDOW_SIZE is too large")
			return
		}
		c.resizeWindows(int64(value))
	case settingFrameMax:
		if value < frameMax || value > 1<<24-1 {
			c.fail(codeProtocol, "MAX_FRAME_SIZE is out of range")
			return
		}
		c.frameMax = frameMax // larger ones are of no use
	}
}

// resizeWindows changes the window of all streams (RFC 9113 §6.9.2).
func (c *conn) resizeWindows(first int64) {
	delta := first - c.firstSend
	c.firstSend = first
	for _, s := range c.streams {
		if s.window += delta; s.window > windowMax {
			c.fail(codeFlow, "a window is too large")
			return
		}
	}
}

func (c *conn) windowUpdate(f *frame) {
	if len(f.payload) != 4 {
		c.fail(codeFrameSize, "WINDOW_UPDATE has the wrong size")
		return
	}
	n := int64(binary.BigEndian.Uint32(f.payload) & windowMax)
	switch {
	case !c.noise():
	case f.stream == 0 && n == 0:
		c.fail(codeProtocol, "WINDOW_UPDATE of 0")
	case f.stream == 0:
		if c.window += n; c.window > windowMax {
			c.fail(codeFlow, "the window of the connection is too large")
			return
		}
		c.pumpAll()
	case f.stream > c.last:
		c.fail(codeProtocol, "WINDOW_UPDATE of a stream that was not begun")
	default:
		c.windowOf(f.stream, n)
	}
}

// windowOf enlarges the window of a stream by n.
func (c *conn) windowOf(id uint32, n int64) {
	s := c.streams[id]
	if s == nil && c.hot.IsWaiting(id) {
		s = &stream{id: id, ended: true}
		c.add(s)
		c.wait(s)
	}
	switch {
	case s == nil: // it has ended
	case n == 0:
		c.cancelWaiting(s, codeProtocol)
	case s.window+n > windowMax:
		c.cancelWaiting(s, codeFlow)
	default:
		s.window += n
		c.pump(s)
	}
}

// cancelWaiting is cancel for a stream that may wait for its answer.
func (c *conn) cancelWaiting(s *stream, why code) {
	id := s.id
	c.hot.Forget(id)
	c.resetStream(id, why)
	if c.streams[id] == s { // else it was answered meanwhile
		c.remove(s)
	}
}
