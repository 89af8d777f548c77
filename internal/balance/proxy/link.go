package proxy

import (
	"errors"
	"io"
	"time"

	"github.com/isotone/isotone/internal/host/loop"
)

var (
	// errEnough ends a connection to a backend that is of no more use.
	errEnough = errors.New("not needed any more")
	// errPause ends one in the middle of an answer.
	errPause = errors.New("the answer has paused for too long")
)

// link is a connection to a backend.
type link struct {
	lane      *lane
	conn      *loop.Conn
	backend   int
	client    *client // whose request is out; nil: none
	used      bool    // it has had an answer before
	stalled   bool    // in lane.stalled
	begun     bool    // something of the answer has come
	idleSince time.Duration
	sent      time.Duration // the loop's time of the turn in which the request was
	heard     time.Duration // when something of the answer last came

	framing framing // of the body that follows
	left    int64   // of a body with a length
	chunks  chunks
	lasts   bool
}

// send writes h's request.
func (k *link) send(h *client) {
	k.client, h.link = h, k
	k.begun, k.sent = false, k.lane.loop.Now()
	k.lane.meter.touch(h)
	k.conn.Write(h.request)
}

// Data forwards an answer.
func (k *link) Data(c *loop.Conn, b []byte) (int, error) {
	if h := k.client; h != nil && !k.begun && k.sent == k.lane.loop.Now() {
		// The request is on its way when this turn ends, so nobody has asked for that.
		k.client, h.link = nil, nil
		k.lane.director.end(k.lane.time(), k.backend, abandoned)
		c.Abort(faultAnswer)
		h.again(false, false, faultAnswer)
		return len(b), nil
	}
	used := 0
	k.heard = k.lane.time()
	if k.client != nil {
		k.lane.meter.touch(k.client)
	}
	for used < len(b) && k.client != nil {
		n, err := k.forward(k.client, b[used:])
		if err != nil {
			c.Abort(err)
			return len(b), nil
		}
		if used += n; n == 0 {
			return used, nil
		}
	}
	h := k.client
	switch {
	case used < len(b): // nobody has asked for that
		c.Abort(faultAnswer)
	case h == nil && (!k.lasts || c.EOF()):
		c.Abort(errEnough)
	case h == nil:
		k.release()
	case h.conn.Choked() && !k.stalled:
		k.stalled = true
		c.Pause()
		k.lane.stalled = append(k.lane.stalled, k)
	}
	return used, nil
}

// forward takes the head of an answer, or what there is of its body, from the front of b.
func (k *link) forward(h *client, b []byte) (int, error) {
	k.begun = true
	if !h.answered {
		return k.head(h, b)
	}
	return k.body(h, b)
}

// head takes the head of an answer from the front of b.
func (k *link) head(h *client, b []byte) (int, error) {
	a := &k.lane.answer
	v, err := parseAnswer(b, a)
	switch {
	case err != nil, v == whole && a.Status == 101:
		return 0, faultAnswer
	case v == partial:
		return 0, nil
	case a.Status < 200:
		return a.size, nil // not asked for, and not waited for
	}
	k.framing, k.left, k.lasts, k.chunks = a.framing(h.head), a.length, a.lasts(), chunks{trailers: true}
	h.last = h.last || k.lane.stopped
	h.status, h.answered = a.Status, true
	out := a.appendAnswer(h.conn.Buffered(), b, h.own(), k.framing, h.last)
	h.conn.SetBuffered(append(out, "\r\n"...))
	if k.framing == framingNone {
		k.done(h)
	}
	return a.size, nil
}

// body takes what b has of the body.
func (k *link) body(h *client, b []byte) (n int, err error) {
	done := false
	switch k.framing {
	case framingLength:
		n = int(min(k.left, int64(len(b))))
		k.left -= int64(n)
		done = k.left == 0
	case framingChunked:
		var fault *fault
		if n, fault = k.chunks.scan(b); fault != nil {
			return n, faultAnswer
		}
		done = k.chunks.done()
	default:
		n = len(b)
		h.conn.SetBuffered(appendChunk(h.conn.Buffered(), b))
		return n, nil
	}
	h.conn.Write(b[:n])
	if done {
		k.done(h)
	}
	return n, nil
}

// done ends an exchange: the answer is whole.
func (k *link) done(h *client) {
	k.client, h.link = nil, nil
	k.used = true
	k.lane.director.end(k.lane.time(), k.backend, outcomeOf(h.status))
	h.end()
}

// release makes k available.
func (k *link) release() {
	p := &k.lane.pools[k.backend]
	if h := p.waiting.take(); h != nil {
		k.send(h)
		return
	}
	k.idleSince = k.lane.time()
	p.idle = append(p.idle, k)
}

// Closed is told that the connection is gone.
func (k *link) Closed(_ *loop.Conn, err error) {
	l := k.lane
	p := &l.pools[k.backend]
	p.open--
	for i := range p.idle {
		if p.idle[i] == k {
			copy(p.idle[i:], p.idle[i+1:])
			p.idle[len(p.idle)-1] = nil
			p.idle = p.idle[:len(p.idle)-1]
			break
		}
	}
	defer l.connect(k.backend)
	h := k.client
	if h == nil {
		return
	}
	k.client, h.link = nil, nil
	switch {
	case h.answered && k.framing == framingClose && err == io.EOF:
		l.director.end(l.time(), k.backend, outcomeOf(h.status))
		h.conn.SetBuffered(append(h.conn.Buffered(), lastChunk...))
		h.end()
	case h.answered:
		l.director.end(l.time(), k.backend, failed)
		h.cut()
	case k.used && !k.begun:
		// It was closed while it was idle, as far as anybody can tell.
		l.director.end(l.time(), k.backend, abandoned)
		h.again(false, true, err)
	case err == error(faultAnswer):
		l.director.end(l.time(), k.backend, failed)
		h.fail(faultAnswer)
	default:
		l.director.end(l.time(), k.backend, failed)
		h.again(true, true, err)
	}
}
