package http2

import (
	"encoding/binary"

	"golang.org/x/net/http2/hpack"
)

// headers begins a request, or the trailers of one.
func (c *conn) headers(f *frame) {
	if f.stream%2 == 0 || !f.unpad() {
		c.fail(codeProtocol, "HEADERS have a wrong stream or padding")
		return
	}
	itself := false
	if f.has(flagPriority) {
		if len(f.payload) < 5 {
			c.fail(codeFrameSize, "HEADERS are too short")
			return
		}
		itself = binary.BigEndian.Uint32(f.payload)&windowMax == f.stream
		f.payload = f.payload[5:]
	}
	c.open = openBlock{stream: f.stream, ends: f.has(flagEndStream), itself: itself, payload: c.open.payload[:0]}
	if f.has(flagEndHeaders) {
		c.endBlock(f.payload)
		return
	}
	c.open.payload = append(c.open.payload, f.payload...)
}

func (c *conn) continuation(f *frame) {
	c.open.frames++
	switch {
	case c.open.stream == 0:
		c.fail(codeProtocol, "CONTINUATION without HEADERS")
	case c.open.frames > continuationsMax, len(c.open.payload)+len(f.payload) > 4*c.front.cfg.Limits.HeaderBytesMax:
		c.fail(codeCalm, "a header block is too long")
	case f.has(flagEndHeaders):
		block := append(c.open.payload, f.payload...)
		c.open.payload = nil // seldom needed: an idle connection does not keep it
		c.endBlock(block)
	default:
		c.open.payload = append(c.open.payload, f.payload...)
	}
}

// endBlock works on a whole header block.
func (c *conn) endBlock(block []byte) {
	o := c.open
	c.open.stream = 0
	if s := c.streams[o.stream]; s != nil && (s.x != nil || s.duplex != nil || s.call != nil && !s.ended) {
		c.trailers(s, block)
		return
	}
	if o.stream <= c.last {
		c.again(o.stream)
		return
	}
	c.last = o.stream
	switch {
	case c.ending != nil:
		_ = c.decode(block) // the table has to follow
	case o.itself:
		if c.decode(block) {
			c.resetStream(o.stream, codeProtocol)
		}
	case o.ends && c.memo.call == nil && c.isRepeated(block):
		c.ask(o.stream, block)
	case !o.ends && c.memo.call != nil && c.isRepeated(block):
		if c.isFull() {
			c.resetStream(o.stream, codeRefused)
			return
		}
		c.beginCall(o.stream, c.memo.call)
	case c.decode(block):
		c.begin(o, block)
	}
}

// again is a request on a stream that had one.
func (c *conn) again(stream uint32) {
	if c.hot.IsWaiting(stream) || c.streams[stream] != nil {
		c.fail(codeClosed, "HEADERS after the end of a request")
		return
	}
	c.fail(codeProtocol, "a stream is begun again")
}

// ask asks for what the latest request asked for.
func (c *conn) ask(stream uint32, block []byte) {
	if c.isFull() {
		c.resetStream(stream, codeRefused)
		return
	}
	if c.hot.Ask(stream, c.memo.text, c.room()) {
		return
	}
	if c.decode(block) {
		c.serve(stream, true)
	}
}

// room is the largest answer that can be sent on a new stream now.
func (c *conn) room() int { return int(max(0, min(c.window, c.firstSend))) }

// isFull reports whether no further stream may begin.
func (c *conn) isFull() bool {
	most := c.front.cfg.Limits.StreamsMax
	return len(c.streams)+c.hot.Waiting()-c.waiting >= most || int(c.running.Load()) >= most
}

// begin begins the request that was decoded from block.
func (c *conn) begin(o openBlock, block []byte) {
	r := &c.front.request
	r.check(o.ends)
	switch {
	case c.isFull():
		c.resetStream(o.stream, codeRefused)
		return
	case r.tooLong:
		c.Deliver(o.stream, []byte(tooLong)) // it may wait for a window
		return
	case r.malformed:
		c.resetStream(o.stream, codeProtocol)
		return
	}
	if o.ends {
		c.front.text = r.appendText(c.front.text[:0])
		if len(c.front.text) > 0 && c.hot.Ask(o.stream, c.front.text, c.room()) {
			c.remember(block)
			return
		}
	}
	if !o.ends {
		if made := c.callOf(r); made != nil {
			c.rememberCall(block, made)
			c.beginCall(o.stream, made)
			return
		}
		if c.beginDuplex(o.stream, r) {
			return
		}
	}
	c.serve(o.stream, o.ends)
}

// remember has a block that is answered in the loop recognized when it comes again.
func (c *conn) remember(block []byte) {
	if len(block) <= memoMax && isStateless(block) {
		c.memo.block = append(c.memo.block[:0], block...)
		c.memo.text, c.memo.call = append(c.memo.text[:0], c.front.text...), nil
	}
}

// rememberCall is remember for a call.
func (c *conn) rememberCall(block []byte, made *call) {
	if len(block) <= memoMax && isStateless(block) {
		c.memo.block, c.memo.call = append(c.memo.block[:0], block...), made
	}
}

// decode reads a block into the front's request. It reports false if the connection has failed.
func (c *conn) decode(block []byte) bool {
	r := &c.front.request
	r.reset(c.front.cfg.Limits.HeaderBytesMax)
	if c.decoder == nil {
		c.decoder = hpack.NewDecoder(tableSize, nil)
		c.decoder.SetMaxStringLength(c.front.cfg.Limits.HeaderBytesMax)
	}
	c.decoder.SetEmitFunc(r.add)
	_, err := c.decoder.Write(block)
	if err == nil {
		err = c.decoder.Close()
	}
	if err == hpack.ErrStringLength {
		c.fail(codeCalm, "a header field is too long")
		return false
	}
	if err != nil {
		c.fail(codeCompression, err.Error())
		return false
	}
	if !isStateless(block) {
		c.memo.block = c.memo.block[:0] // its indexes may have moved
	}
	return true
}

// tableSize is the dynamic table that clients may use: the default of RFC 9113.
const tableSize = 4096

// trailers end the body of a request. They mean nothing here.
func (c *conn) trailers(s *stream, block []byte) {
	ends := c.open.ends
	if !c.decode(block) {
		return
	}
	r := &c.front.request
	switch {
	case s.ended:
		c.cancel(s, codeClosed)
	case !ends || r.malformed || r.method+r.scheme+r.path+r.authority != "":
		c.cancel(s, codeProtocol)
	default:
		c.endBody(s)
	}
}

// tooLong answers requests with too many fields.
const tooLong = "HTTP/1.1 431 Request Header Fields Too Large\r\n" +
	"Content-Type: application/json\r\n" +
	"Cache-Control: no-store\r\n" +
	"\r\n" +
	`{"error":{"code":"invalid_argument","message":"the header fields of the request are too long"}}`
