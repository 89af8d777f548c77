package proxy

import (
	"errors"
	"io"
	"slices"
	"time"

	"github.com/isotone/isotone/internal/host/loop"
)

var (
	// errEnough closes a connection that is of no more use.
	errEnough = errors.New("no longer needed")
	// errPause closes a connection to a backend whose answer exceeds StreamTimeout.
	errPause = errors.New("the answer has paused for too long")
)

// backendConn is a connection to a backend, on the fast path.
type backendConn struct {
	path           *fastPath
	conn           *loop.Conn
	backend        int
	client         *clientConn // whose request is sent; nil: none
	answeredBefore bool        // for an earlier request
	stalled        bool        // in path.stalled
	answerBegun    bool        // part of the answer was read
	idleSince      time.Duration
	sent           time.Duration // the loop's time of the turn that sent the request
	lastRead       time.Duration // when part of the answer was last read

	framing    framing // of the body that follows
	remaining  int64   // of a body with a length
	chunks     chunks
	persistent bool
}

// send writes cc's request.
func (bc *backendConn) send(cc *clientConn) {
	bc.client, cc.server = cc, bc
	bc.answerBegun, bc.sent = false, bc.path.loop.Now()
	bc.path.meter.touch(cc)
	bc.conn.Write(cc.request)
}

// Data forwards an answer.
func (bc *backendConn) Data(c *loop.Conn, b []byte) (int, error) {
	if cc := bc.client; cc != nil && !bc.answerBegun && bc.sent == bc.path.loop.Now() {
		// The request is only sent when this turn ends, so this does not answer it.
		bc.finish(abandoned)
		c.Abort(errInvalidAnswer)
		cc.retry(false, false, errInvalidAnswer)
		return len(b), nil
	}
	used := 0
	bc.lastRead = bc.path.time()
	if bc.client != nil {
		bc.path.meter.touch(bc.client)
	}
	for used < len(b) && bc.client != nil {
		n, err := bc.forward(bc.client, b[used:])
		if err != nil {
			c.Abort(err)
			return len(b), nil
		}
		if used += n; n == 0 {
			return used, nil
		}
	}
	cc := bc.client
	switch {
	case used < len(b): // no request is open
		c.Abort(errInvalidAnswer)
	case cc == nil && (!bc.persistent || c.EOF()):
		c.Abort(errEnough)
	case cc == nil:
		bc.release()
	case cc.conn.Choked() && !bc.stalled:
		bc.stalled = true
		c.Pause()
		bc.path.stalled = append(bc.path.stalled, bc)
	}
	return used, nil
}

// forward consumes the head of an answer, or part of its body, from the front of b.
func (bc *backendConn) forward(cc *clientConn, b []byte) (int, error) {
	bc.answerBegun = true
	if !cc.answered {
		return bc.head(cc, b)
	}
	return bc.body(cc, b)
}

// head consumes the head of an answer from the front of b.
func (bc *backendConn) head(cc *clientConn, b []byte) (int, error) {
	a := &bc.path.answer
	v, err := parseAnswer(b, a)
	switch {
	case err != nil, v == whole && a.Status == 101:
		return 0, errInvalidAnswer
	case v == partial:
		return 0, nil
	case a.Status < 200:
		return a.size, nil // no interim answer is requested, and none is forwarded
	}
	bc.framing, bc.remaining, bc.persistent, bc.chunks = a.framing(cc.toHead), a.length, a.persistent(), chunks{trailers: true}
	cc.closeAfter = cc.closeAfter || bc.path.stopped
	cc.status, cc.answered = a.Status, true
	out := a.appendAnswer(cc.conn.Buffered(), b, cc.transactionFields(), bc.framing, cc.closeAfter)
	cc.conn.SetBuffered(append(out, "\r\n"...))
	if bc.framing == framingNone {
		bc.done(cc)
	}
	return a.size, nil
}

// body consumes what b has of the body.
func (bc *backendConn) body(cc *clientConn, b []byte) (n int, err error) {
	done := false
	switch bc.framing {
	case framingLength:
		n = int(min(bc.remaining, int64(len(b))))
		bc.remaining -= int64(n)
		done = bc.remaining == 0
	case framingChunked:
		var malformed *httpError
		if n, malformed = bc.chunks.scan(b); malformed != nil {
			return n, errInvalidAnswer
		}
		done = bc.chunks.done()
	default:
		n = len(b)
		cc.conn.SetBuffered(appendChunk(cc.conn.Buffered(), b))
		return n, nil
	}
	cc.conn.Write(b[:n])
	if done {
		bc.done(cc)
	}
	return n, nil
}

// finish separates the request from bc and reports its outcome.
func (bc *backendConn) finish(how outcome) {
	bc.client.server, bc.client = nil, nil
	bc.path.balancer.end(bc.path.time(), bc.backend, how)
}

// done ends an exchange: the answer is complete.
func (bc *backendConn) done(cc *clientConn) {
	bc.answeredBefore = true
	bc.finish(outcomeOf(cc.status))
	cc.end()
}

// release makes bc available for the next request.
func (bc *backendConn) release() {
	pool := &bc.path.pools[bc.backend]
	if cc := pool.waiting.take(); cc != nil {
		bc.send(cc)
		return
	}
	bc.idleSince = bc.path.time()
	pool.idle = append(pool.idle, bc)
}

// Closed implements loop.Handler.
func (bc *backendConn) Closed(_ *loop.Conn, err error) {
	p := bc.path
	pool := &p.pools[bc.backend]
	pool.open--
	if i := slices.Index(pool.idle, bc); i >= 0 {
		pool.idle = slices.Delete(pool.idle, i, i+1)
	}
	defer p.connect(bc.backend)
	cc := bc.client
	if cc == nil {
		return
	}
	switch {
	case cc.answered && bc.framing == framingClose && err == io.EOF:
		bc.finish(outcomeOf(cc.status))
		cc.conn.SetBuffered(append(cc.conn.Buffered(), lastChunk...))
		cc.end()
	case cc.answered:
		bc.finish(failed)
		cc.abort()
	case bc.answeredBefore && !bc.answerBegun:
		// Most likely the backend closed it while it was idle.
		bc.finish(abandoned)
		cc.retry(false, true, err)
	case err == error(errInvalidAnswer):
		bc.finish(failed)
		cc.fail(errInvalidAnswer)
	default:
		bc.finish(failed)
		cc.retry(true, true, err)
	}
}
