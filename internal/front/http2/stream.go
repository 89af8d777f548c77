package http2

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/isotone/isotone/internal/front/grpc"
	"github.com/isotone/isotone/internal/front/http1"
)

// stream is a request with an exchange, or an answer that waits for a window.
type stream struct {
	id      uint32
	window  int64       // what may be sent on it
	x       *exchange   // nil: an answer from the loop
	call    *call       // nil: it is none
	message []byte      // of the call, with its prefix, as far as it has come; of a duplex, what it has not taken
	duplex  grpc.Duplex // nil: it is none
	lasts   bool        // duplex may be silent for as long as its client likes
	feeding bool        // duplex is taking
	resumed bool        // duplex is to take in the next Wait
	credit  int64       // what duplex has taken, and was not given back on the stream yet
	out     []byte      // of the answer from the loop
	trails  bool        // trailers follow it
	waits   bool        // it counts among those that wait in the loop, too

	// Of the request's body:
	received int64 // what may still be received on it
	length   int64 // announced; -1: unknown
	got      int64
	ended    bool // it has no more
	answered bool // before it ended

	timer *time.Timer // ends an answer that waits for too long
}

// end ends what works on the stream.
func (s *stream) end() {
	if s.x != nil {
		s.x.abandon()
	}
	if s.duplex != nil {
		s.duplex.Closed()
	}
	if s.timer != nil {
		s.timer.Stop()
	}
}

// add adds a stream.
func (c *conn) add(s *stream) {
	if c.streams == nil {
		c.streams = map[uint32]*stream{}
	}
	s.window += c.firstSend
	c.streams[s.id] = s
}

// remove forgets a stream. What its handler has not read does not count any more.
func (c *conn) remove(s *stream) {
	s.end()
	if s.duplex != nil {
		c.duplexes--
	}
	delete(c.streams, s.id)
	if len(c.streams) == 0 {
		c.streams = nil // an idle connection does not keep it
	}
	c.waitNoMore(s)
	if s.x != nil {
		c.giveBack(s.x.unread())
	} else if s.call != nil || s.duplex != nil {
		c.giveBack(int64(len(s.message)))
	}
}

// wait notes that s waits for an answer of the loop, so that it does not count twice.
func (c *conn) wait(s *stream) {
	s.waits = true
	c.waiting++
}

func (c *conn) waitNoMore(s *stream) {
	if s.waits {
		s.waits = false
		c.waiting--
	}
}

// errRefusing ends connections from addresses that Config.Refusing names.
var errRefusing = errors.New("http2: too many requests of this client were refused")

// serve begins an exchange for the request that was decoded.
func (c *conn) serve(id uint32, ends bool) {
	if !c.mayServe(id) {
		return
	}
	r := &c.front.request
	s := &stream{id: id, received: bodyMax, length: r.length, ended: ends}
	x, err := newExchange(c, s, r)
	if err != nil {
		c.resetStream(id, codeProtocol)
		return
	}
	s.x = x
	c.add(s)
	x.start()
}

// mayServe reports whether the connection may have exchanges. If not, it ends.
func (c *conn) mayServe(id uint32) bool {
	if refusing := c.front.cfg.Refusing; refusing != nil && !c.exchanged && refusing(c.conn.Remote().Addr()) != nil {
		newest := c.last
		if id == newest {
			c.last-- // nothing is done for this one
		}
		c.finish(codeCalm, errRefusing)
		c.last = newest // its body may be on the way
		return false
	}
	c.exchanged = true
	return true
}

// resetStream ends a stream that is not known, or no longer.
func (c *conn) resetStream(id uint32, why code) {
	c.conn.SetBuffered(appendReset(c.conn.Buffered(), id, why))
}

// cancel ends a stream.
func (c *conn) cancel(s *stream, why code) {
	c.resetStream(s.id, why)
	c.remove(s)
}

// Deliver sends an answer, spelled as in HTTP/1.1.
func (c *conn) Deliver(id uint32, answer []byte) {
	if c.over {
		return
	}
	head, body := http1.Cut(answer)
	flags := byte(flagEndHeaders)
	if len(body) == 0 {
		flags |= flagEndStream
	}
	block := c.encoder.block(c.front.heads.of(head), &c.front.encoded)
	c.conn.SetBuffered(c.appendHeaders(c.conn.Buffered(), flags, id, block))
	c.earn()
	s := c.streams[id]
	if s != nil {
		c.waitNoMore(s)
	}
	switch {
	case len(body) == 0:
	case s == nil && len(body) <= c.room():
		c.conn.SetBuffered(c.appendData(c.conn.Buffered(), id, body, true))
	default:
		c.sendLater(id, s, body)
		return
	}
	if s != nil {
		c.remove(s)
	}
	c.keep()
}

// sendLater has body sent when the windows are large enough. s is nil unless the client has enlarged that of the stream already.
func (c *conn) sendLater(id uint32, s *stream, body []byte) {
	if s == nil {
		s = &stream{id: id, ended: true}
		c.add(s)
	}
	c.waitForWindow(s, body)
	c.pump(s)
}

// waitForWindow keeps the rest of an answer from the loop.
func (c *conn) waitForWindow(s *stream, rest []byte) {
	s.out = append([]byte(nil), rest...)
	c.expire(s, func() bool { return len(s.out) > 0 })
}

// expire ends a stream after a while if it still waits then.
func (c *conn) expire(s *stream, waits func() bool) {
	f := c.front
	if s.timer != nil {
		s.timer.Stop()
	}
	s.timer = time.AfterFunc(f.cfg.Limits.WriteTimeout, func() {
		f.cfg.Loop.Post(func() {
			if c.streams[s.id] == s && waits() {
				c.cancel(s, codeCancel)
				c.keep()
			}
		})
	})
}

// appendHeaders appends a header block.
func (c *conn) appendHeaders(b []byte, flags byte, id uint32, block []byte) []byte {
	kind := byte(frameHeaders)
	for len(block) > c.frameMax {
		b = append(appendFrame(b, kind, flags&^flagEndHeaders, id, c.frameMax), block[:c.frameMax]...)
		block, kind, flags = block[c.frameMax:], frameContinuation, flags&flagEndHeaders
	}
	return append(appendFrame(b, kind, flags, id, len(block)), block...)
}

// appendData appends data for which the windows of the connection and of the stream are large enough.
func (c *conn) appendData(b []byte, id uint32, data []byte, ends bool) []byte {
	c.window -= int64(len(data))
	for {
		n := min(len(data), c.frameMax)
		flags := byte(0)
		if ends && n == len(data) {
			flags = flagEndStream
		}
		b = append(appendFrame(b, frameData, flags, id, n), data[:n]...)
		for range 1 + n/windowStep {
			c.earn()
		}
		if data = data[n:]; len(data) == 0 {
			return b
		}
	}
}

// pumpAll sends what waits for a window or for the client to read.
func (c *conn) pumpAll() {
	for _, s := range c.streams {
		c.pump(s)
	}
}

// pump sends what waits on s, as far as the windows allow, and removes s after the end of its answer.
func (c *conn) pump(s *stream) {
	if s.x != nil {
		s.x.mu.Lock()
		done := c.pumpExchange(s, s.x)
		s.x.mu.Unlock()
		if done {
			c.complete(s)
		}
		return
	}
	if len(s.out) == 0 {
		if s.resumed {
			c.feed(s)
		}
		return // the answer is still to come
	}
	switch s.out = c.send(s, s.out, !s.trails && s.duplex == nil); {
	case len(s.out) > 0:
	case s.duplex != nil:
		s.out = nil
		c.feed(s)
	case s.trails:
		c.sendTail(s)
	default:
		c.remove(s)
	}
}

// send sends of data what the windows allow, and returns the rest. ends says that the answer ends with data.
func (c *conn) send(s *stream, data []byte, ends bool) (rest []byte) {
	for len(data) > 0 {
		n := int(max(0, min(int64(len(data)), c.window, s.window, int64(c.frameMax))))
		if n == 0 {
			break
		}
		if c.conn.Choked() {
			c.conn.AwaitDrain()
			break
		}
		s.window -= int64(n)
		c.conn.SetBuffered(c.appendData(c.conn.Buffered(), s.id, data[:n], ends && n == len(data)))
		data = data[n:]
	}
	return data
}

// lingerMax is how long a client may send the rest of a request that was answered early.
const lingerMax = time.Second

// complete ends a stream whose answer is sent. RFC 9113 §8.1 lets a reset say that the rest of the request is not needed,
// but clients such as curl 7.88 may take it for a failure. So the reset waits until the window of the request is used up.
func (c *conn) complete(s *stream) {
	if s.x == nil && !s.ended {
		c.resetStream(s.id, codeNone)
	}
	if s.ended || s.x == nil {
		c.remove(s)
		return
	}
	s.answered = true
	c.giveBack(s.x.unread())
	s.x.SetWriteDeadline(time.Now().Add(lingerMax))
}

// reset is a client that takes a request back.
func (c *conn) reset(f *frame) {
	switch {
	case f.stream == 0 || f.stream > c.last:
		c.fail(codeProtocol, "RST_STREAM of a stream that was not begun")
		return
	case len(f.payload) != 4:
		c.fail(codeFrameSize, "RST_STREAM has the wrong size")
		return
	case !c.noise():
		return
	}
	s := c.streams[f.stream]
	answering := s != nil && s.duplex != nil && s.duplex.IsBusy()
	if (c.hot.Forget(f.stream) || answering) && c.session.Refused() {
		c.finish(codeCalm, errResets)
	}
	if s = c.streams[f.stream]; s != nil {
		c.remove(s)
	}
}

// data is a part of the body of a request.
func (c *conn) data(f *frame) {
	n := int64(len(f.payload))
	if f.stream == 0 || f.stream > c.last || !f.unpad() {
		c.fail(codeProtocol, "DATA have a wrong stream or padding")
		return
	}
	if c.received -= n; c.received < 0 {
		c.fail(codeFlow, "DATA beyond the window of the connection")
		return
	}
	s := c.streams[f.stream]
	if len(f.payload) == 0 && !f.has(flagEndStream) && !c.noise() {
		return
	}
	switch {
	case s == nil || s.ended:
		c.giveBack(n)
		c.late(s, f.stream)
	case s.received < n:
		c.giveBack(n)
		c.cancel(s, codeFlow)
	default:
		s.received -= n
		padding := n - int64(len(f.payload))
		c.giveBack(padding)
		c.giveBackStream(s, padding)
		if c.addBody(s, f.payload) && f.has(flagEndStream) {
			c.endBody(s)
		}
	}
}

// late is DATA after the end of a request.
func (c *conn) late(s *stream, id uint32) {
	switch {
	case s != nil:
		c.cancelWaiting(s, codeClosed)
	case c.ending == nil && c.noise():
		c.hot.Forget(id)
		c.resetStream(id, codeClosed)
	}
}

// addBody gives a part of the body to the exchange, and reports whether the request is well formed so far.
func (c *conn) addBody(s *stream, b []byte) bool {
	if s.got += int64(len(b)); s.length >= 0 && s.got > s.length {
		c.giveBack(int64(len(b)))
		c.cancel(s, codeProtocol)
		return false
	}
	switch {
	case s.call != nil:
		return c.addMessage(s, b)
	case s.duplex != nil:
		s.message = append(s.message, b...)
		c.feed(s)
		return c.streams[s.id] == s
	case !s.answered:
		s.x.body.add(b)
		return true
	}
	c.giveBack(int64(len(b)))
	if s.received > 0 {
		return true
	}
	c.cancel(s, codeNone)
	return false
}

// endBody ends the body of a request.
func (c *conn) endBody(s *stream) {
	if s.length >= 0 && s.got != s.length {
		c.cancel(s, codeProtocol)
		return
	}
	if s.call != nil {
		c.endCall(s)
		return
	}
	s.ended = true
	if s.duplex != nil {
		c.feed(s)
		return
	}
	s.x.body.end(nil)
	if s.answered {
		c.remove(s)
	}
}

// giveBack lets the client send n more bytes on the connection. It is told when that is worth a frame.
func (c *conn) giveBack(n int64) {
	if c.credit += n; c.credit < windowDefault/4 || c.over {
		return
	}
	c.conn.SetBuffered(appendWindow(c.conn.Buffered(), 0, uint32(c.credit)))
	c.received += c.credit
	c.credit = 0
}

// giveBackStream lets the client send n more bytes of a body.
func (c *conn) giveBackStream(s *stream, n int64) {
	if n > 0 && !s.ended {
		c.conn.SetBuffered(appendWindow(c.conn.Buffered(), s.id, uint32(n)))
		s.received += n
	}
}

// priority is ignored.
func (c *conn) priority(f *frame) {
	switch {
	case f.stream == 0:
		c.fail(codeProtocol, "PRIORITY without a stream")
	case len(f.payload) != 5:
		c.streamError(f.stream, codeFrameSize)
	case binary.BigEndian.Uint32(f.payload)&windowMax == f.stream:
		c.streamError(f.stream, codeProtocol)
	default:
		c.noise()
	}
}

// streamError ends a stream for an error of the client (RFC 9113 §5.4.2).
func (c *conn) streamError(id uint32, why code) {
	if !c.noise() {
		return
	}
	if s := c.streams[id]; s != nil {
		c.cancelWaiting(s, why)
		return
	}
	c.hot.Forget(id)
	c.resetStream(id, why)
}
