package http2

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2/hpack"

	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front/http1"
	"github.com/isotone/isotone/internal/host/loop"
)

// preface is what a client begins with (RFC 9113 §3.4).
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// conn is one connection.
type conn struct {
	front   *Front
	conn    *loop.Conn
	index   int            // in front.conns
	hot     *http1.Streams // nil: no request is hot
	session *access.Session

	greeted   bool // the preface was read
	settled   bool // the client's first SETTINGS were read
	exchanged bool // there was an exchange
	over      bool // nothing is read any more
	told      bool // the client is to go elsewhere
	ending    error
	stopping  bool          // duplexes are to end
	noisy     time.Duration // until when noise is paid for
	earned    int           // frames that are paid for by what was sent

	decoder *hpack.Decoder
	open    openBlock
	memo    memo
	encoder encoder

	last       uint32 // the newest stream of the client
	window     int64  // what may be sent on the connection
	firstSend  int64  // the first window of streams to send on
	frameMax   int    // the largest payload that the client takes
	credit     int64  // what was received and is not given back yet
	received   int64  // what may still be received on the connection
	streams    map[uint32]*stream
	duplexes   int          // of streams, those with a duplex
	waiting    int          // of streams, those that wait for an answer of hot, which counts them, too
	running    atomic.Int32 // exchanges whose goroutine has not ended
	tls        *tls.ConnectionState
	remoteAddr string
}

// openBlock is the header block that is being read.
type openBlock struct {
	stream  uint32 // 0: none is
	ends    bool   // the request has no body
	itself  bool   // the stream is to depend on itself
	frames  int    // CONTINUATION frames
	payload []byte
}

// memo is the latest request whose block means the same each time: clients repeat it.
type memo struct {
	block []byte
	text  []byte // as in HTTP/1.1
	call  *call  // in place of text
}

// memoMax bounds the block that a connection remembers.
const memoMax = 256

func newConn(f *Front, lc *loop.Conn, index int) *conn {
	c := &conn{
		front: f, conn: lc, index: index, session: access.Of(lc.Tag()),
		window: windowDefault, firstSend: windowDefault, frameMax: frameMax, received: windowDefault,
	}
	if f.hot != nil {
		c.hot = f.hot.OpenStreams(lc, c)
	}
	return c
}

// Data works on the frames that b begins with.
func (c *conn) Data(lc *loop.Conn, b []byte) (used int, err error) {
	if !c.greeted {
		if used = c.greet(b); used == 0 {
			return 0, nil
		}
	}
	if !c.told && c.front.draining() {
		c.leave()
	}
	for !c.over && !lc.Choked() {
		f, size := parseFrame(b[used:])
		if size == 0 {
			break
		}
		if size < 0 {
			c.fail(codeFrameSize, "a frame is too large")
			break
		}
		used += size
		c.take(&f)
	}
	c.boundCalls()
	c.hot.Submit()
	if c.over {
		return len(b), nil
	}
	lc.SetPartial(c.open.stream != 0)
	c.keep()
	return used, nil
}

// greet checks the preface and answers it. It returns how many bytes of b that has: 0 if some are missing.
func (c *conn) greet(b []byte) int {
	n := min(len(b), len(preface))
	if string(b[:n]) != preface[:n] {
		c.fail(codeProtocol, "the preface is wrong")
		return len(b)
	}
	if n < len(preface) {
		return 0
	}
	c.greeted = true
	out := appendFrame(c.conn.Buffered(), frameSettings, 0, 0, 3*6)
	out = appendSetting(out, settingWindow, bodyWindow)
	out = appendSetting(out, settingStreamsMax, uint32(c.front.cfg.Limits.StreamsMax))
	out = appendSetting(out, settingHeaderMax, uint32(c.front.cfg.Limits.HeaderBytesMax))
	c.conn.SetBuffered(out)
	return n
}

// handlers are what the types of frames mean.
var handlers = [...]func(*conn, *frame){
	frameData:         (*conn).data,
	frameHeaders:      (*conn).headers,
	framePriority:     (*conn).priority,
	frameReset:        (*conn).reset,
	frameSettings:     (*conn).settings,
	framePush:         (*conn).push,
	framePing:         (*conn).ping,
	frameGoAway:       (*conn).goAway,
	frameWindow:       (*conn).windowUpdate,
	frameContinuation: (*conn).continuation,
}

// take works on a frame.
func (c *conn) take(f *frame) {
	switch {
	case !c.settled && (f.kind != frameSettings || f.has(flagAck)):
		c.fail(codeProtocol, "the first frame is not SETTINGS")
	case c.open.stream != 0 && (f.kind != frameContinuation || f.stream != c.open.stream):
		c.fail(codeProtocol, "a header block is interrupted")
	case int(f.kind) >= len(handlers):
		c.noise()
	default:
		handlers[f.kind](c, f)
	}
}

// noise pays for a frame that asks for nothing, and reports whether the client may go on.
func (c *conn) noise() bool {
	if c.earned > 0 {
		c.earned--
		return true
	}
	now := c.conn.Now()
	if c.noisy = max(c.noisy, now) + noiseEvery; c.noisy-now <= noiseBurst*noiseEvery {
		return true
	}
	c.fail(codeCalm, "too many frames without a request")
	return false
}

// windowStep is how many bytes of an answer earn once: the client of net/http enlarges both windows that often.
const windowStep = 4 << 10

// earn pays for the frames that belong to an answer: windows, and a stream that is reset after it.
func (c *conn) earn() { c.earned = min(c.earned+earnedEach, earnedMax) }

func (c *conn) ping(f *frame) {
	switch {
	case f.stream != 0:
		c.fail(codeProtocol, "PING on a stream")
	case len(f.payload) != 8:
		c.fail(codeFrameSize, "PING has the wrong size")
	case c.noise() && !f.has(flagAck):
		c.conn.SetBuffered(append(appendFrame(c.conn.Buffered(), framePing, flagAck, 0, 8), f.payload...))
	}
}

func (c *conn) push(*frame) { c.fail(codeProtocol, "a client does not push") }

// goAway is a client that begins no streams any more, as it would not anyway without a push.
func (c *conn) goAway(f *frame) {
	switch {
	case f.stream != 0:
		c.fail(codeProtocol, "GOAWAY on a stream")
	case len(f.payload) < 8:
		c.fail(codeFrameSize, "GOAWAY is too short")
	default:
		c.noise()
	}
}

// fail ends the connection for an error of the client (RFC 9113 §5.4.1).
func (c *conn) fail(why code, message string) {
	if c.over {
		return
	}
	c.over = true
	c.conn.SetBuffered(appendGoAway(c.conn.Buffered(), c.last, why))
	c.conn.Close(fmt.Errorf("http2: %s", message))
	c.endStreams()
}

// leave tells the client to go elsewhere. Its requests are still answered.
func (c *conn) leave() {
	if !c.told && c.greeted && !c.over {
		c.told = true
		c.conn.SetBuffered(appendGoAway(c.conn.Buffered(), windowMax, codeNone))
	}
}

// finish closes the connection, for a reason, when the requests so far are answered. Later ones are ignored: the
// client knows that it may repeat them elsewhere.
func (c *conn) finish(why code, reason error) {
	if c.over {
		return
	}
	if c.ending == nil {
		c.told, c.ending = true, reason
		if c.greeted {
			c.conn.SetBuffered(appendGoAway(c.conn.Buffered(), c.last, why))
		}
	}
	if reason != errGoAway { // else calls go on, as requests do
		c.stopping = true
		c.stopDuplexes()
	}
	c.keep()
}

// keep notes whether anything is open, and closes the connection if it is ending and nothing is.
func (c *conn) keep() {
	busy := c.busy()
	c.conn.KeepOpen(busy)
	if !busy && c.ending != nil && !c.over {
		c.over = true
		c.conn.Close(c.ending)
	}
}

// busy reports whether anything is under way. Calls of Config.Duplex that wait for their client are not.
func (c *conn) busy() bool {
	if len(c.streams) > c.duplexes || c.hot.Waiting() > 0 {
		return true
	}
	for _, s := range c.streams {
		if s.lasts || s.duplex.IsBusy() || s.resumed || len(s.out) > 0 {
			return true
		}
	}
	return false
}

// Idle ends the connection with GOAWAY.
func (c *conn) Idle(_ *loop.Conn, err error) { c.finish(codeNone, err) }

// Drained goes on with what waits until the client has read, or was resumed.
func (c *conn) Drained(*loop.Conn) {
	c.pumpAll()
	c.keep()
}

// Closed abandons what is open.
func (c *conn) Closed(*loop.Conn, error) {
	c.over = true
	c.hot.Closed()
	c.endStreams()
	c.front.remove(c)
}

// endStreams ends all exchanges.
func (c *conn) endStreams() {
	for id, s := range c.streams {
		s.end()
		delete(c.streams, id)
	}
}

// isRepeated reports whether block is the latest request again.
func (c *conn) isRepeated(block []byte) bool {
	return len(c.memo.block) > 0 && bytes.Equal(c.memo.block, block)
}
