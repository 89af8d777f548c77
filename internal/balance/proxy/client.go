package proxy

import (
	"bytes"
	"errors"
	"time"

	"github.com/isotone/isotone/internal/balance"
	"github.com/isotone/isotone/internal/front/stats"
	"github.com/isotone/isotone/internal/front/transaction"
	"github.com/isotone/isotone/internal/host/loop"
)

var (
	errStopped = errors.New("the proxy is shutting down")
	errLeft    = errors.New("the client has left")
)

const (
	// lastBytesMax bounds the head that a connection remembers.
	lastBytesMax = 1 << 10
	// requestKeepMax is the largest buffer for a request that an idle connection keeps.
	requestKeepMax = 2 << 10
	// tlsHandshakeByte begins every TLS connection.
	tlsHandshakeByte = 0x16
)

// client is the lane on one client's connection.
type client struct {
	lane     *lane
	conn     *loop.Conn
	addr     string // IP address
	place    int    // in lane.clients
	activeAt int    // in lane.active; -1: no request is in work
	queued   int    // its place in a pool's queue, from 1; 0: it does not wait

	// A client sends the same head again and again. seen is one without a transaction of
	// its own, and known what it means: what begins with the same bytes means the same, for
	// the head ends within them.
	seen     []byte
	known    shape
	seenHead []byte // its head as the backend gets it

	// The request in work.
	shape
	request  []byte // as the backend gets it
	ownAt    int    // where in request the fields of the transaction are
	ownEnd   int
	idAt     int
	idEnd    int
	link     *link
	backend  int
	tried    balance.Request
	tries    int // that have failed
	began    time.Duration
	deadline time.Duration
	last     bool // the connection ends with the answer
	answered bool // the head of the answer is written
	status   int
	fault    *fault
	cause    error // of the latest try that has failed
	trace    transaction.Trace

	cost stats.Section // of earlier turns; only with a meter
	turn uint64        // of the meter, if it has a share in that one
}

// shape is what is known of a request from its head.
type shape struct {
	size       int
	length     int64
	head       bool // the method is HEAD
	idempotent bool
	lasts      bool
	keyed      bool
	key        uint64
}

// own returns the fields of the transaction, as lines.
func (h *client) own() []byte { return h.request[h.ownAt:h.ownEnd] }
func (h *client) id() []byte  { return h.request[h.idAt:h.idEnd] }

// Data takes the next request.
func (h *client) Data(c *loop.Conn, b []byte) (int, error) {
	l := h.lane
	if l.stopped {
		return len(b), errStopped
	}
	if len(h.seen) > 0 && bytes.HasPrefix(b, h.seen) {
		h.shape = h.known
		if len(b)-h.size < int(h.length) {
			return 0, nil
		}
		h.request = append(h.request[:0], h.seenHead...)
		return h.start(b, nil), nil
	}
	if b[0] == tlsHandshakeByte {
		return h.leave(b), nil
	}
	switch isHTTP2(b) {
	case whole:
		return h.leave(b), nil
	case partial:
		return 0, nil
	}
	r := &l.request
	v, err := parseRequest(b, r)
	switch {
	case err != nil:
		h.refuse(err)
		return len(b), nil
	case v == partial:
		return 0, nil
	}
	if err := r.refusal(b); err != nil {
		h.refuse(err)
		return len(b), nil
	}
	if r.Minor == 0 || r.chunked || r.expect || r.length > laneBodyMax {
		return h.leave(b), nil
	}
	if len(b)-r.size < int(r.length) {
		return 0, nil
	}
	h.take(b, r)
	return h.start(b, r), nil
}

// take makes what the backend gets of the head r.
func (h *client) take(b []byte, r *request) {
	l := h.lane
	method := r.Method(b)
	h.shape = shape{size: r.size, length: r.length, head: string(method) == "HEAD", idempotent: isIdempotent(method), lasts: r.lasts()}
	h.key, h.keyed = l.cfg.StickyKey.ofLane(b, r)
	continued := false
	if r.parent >= 0 {
		_, continued = transaction.ParseTraceparent(r.fields[r.parent].Value(b))
	}
	h.request = r.appendRequest(h.request[:0], b, h.addr, continued, l.cfg.TrustForwarded)
	h.seen = h.seen[:0]
	if r.id < 0 && r.parent < 0 && r.size <= lastBytesMax {
		h.seen = append(h.seen, b[:r.size]...)
		h.seenHead = append(h.seenHead[:0], h.request...)
		h.known = h.shape
	}
}

// start sends the request at the front of b on its way and returns its size. r is nil
// if it has no transaction of its own.
func (h *client) start(b []byte, r *request) int {
	l := h.lane
	h.identify(b, r)
	h.request = append(h.request, "\r\n"...)
	size := h.size + int(h.length)
	h.request = append(h.request, b[h.size:size]...)
	h.last, h.answered, h.status, h.fault, h.cause, h.tries = !h.lasts, false, 0, nil, nil, 0
	h.began, h.deadline = l.loop.Now(), l.time()+l.cfg.Limits.AnswerTimeout
	h.conn.Pause()
	l.activate(h)
	l.meter.touch(h)
	h.tried = balance.Request{Key: h.key, Keyed: h.keyed}
	if h.backend = l.director.begin(l.time(), &h.tried); h.backend == balance.None {
		h.fail(faultNoBackend)
		return size
	}
	l.dispatch(h)
	return size
}

// identify appends the fields of the transaction to the request.
func (h *client) identify(b []byte, r *request) {
	m := h.lane.maker
	h.ownAt = len(h.request)
	h.request = append(h.request, transaction.FieldID+": "...)
	h.idAt = len(h.request)
	if r != nil && r.id >= 0 && transaction.ValidID(r.fields[r.id].Value(b)) {
		h.request = append(h.request, r.fields[r.id].Value(b)...)
	} else {
		h.request = m.AppendID(h.request)
	}
	h.idEnd = len(h.request)
	parent, continued := transaction.Trace{}, false
	if r != nil && r.parent >= 0 {
		parent, continued = transaction.ParseTraceparent(r.fields[r.parent].Value(b))
	}
	if continued {
		h.trace = m.Child(parent)
	} else {
		h.trace = m.New()
	}
	h.request = append(h.request, "\r\n"+transaction.FieldTraceparent+": "...)
	h.request = h.trace.Append(h.request)
	h.request = append(h.request, "\r\n"...)
	h.ownEnd = len(h.request)
}

// named returns method and target, for a log line. There is none of what was refused.
func (h *client) named() (method, target string) {
	line, _, _ := bytes.Cut(h.request[:h.ownAt], []byte("\r\n"))
	m, rest, _ := bytes.Cut(line, []byte(" "))
	t, _, _ := bytes.Cut(rest, []byte(" "))
	return string(m), string(t)
}

// leave hands the connection over.
func (h *client) leave(b []byte) int {
	l := h.lane
	nc, err := h.conn.Detach(b)
	if err != nil {
		return len(b) // the loop has closed it, and told us
	}
	l.remove(h)
	l.handOver(nc)
	return len(b)
}

// refuse answers what is no request, and ends the connection.
func (h *client) refuse(f *fault) {
	h.began, h.backend, h.tries, h.cause, h.head, h.last = h.lane.loop.Now(), balance.None, 0, nil, false, true
	h.request = h.request[:0]
	h.identify(nil, nil)
	h.fail(f)
}

// fail answers with a fault of the proxy's own.
func (h *client) fail(f *fault) {
	h.fault, h.status = f, f.status
	h.last = h.last || h.lane.stopped
	h.conn.SetBuffered(f.append(h.conn.Buffered(), h.own(), h.last, h.head, time.Now()))
	h.end()
}

// end notes that the request is answered.
func (h *client) end() {
	l := h.lane
	l.deactivate(h)
	l.observe(h, h.status)
	if cap(h.request) > requestKeepMax {
		h.request = nil
	}
	if h.last || l.stopped {
		h.conn.Close(errEnough)
		return
	}
	h.conn.Resume()
}

// cut ends a connection in the middle of an answer, so that the client sees that it is
// not whole.
func (h *client) cut() {
	l := h.lane
	l.deactivate(h)
	if h.fault = faultBroken; l.stopped {
		h.fault = faultStopped
	}
	l.observe(h, h.status)
	h.conn.Abort(errEnough)
}

// again tries the request once more after a try has failed: elsewhere, if other. One that
// was sent, and so may have been worked on, is tried again only if that does no harm.
func (h *client) again(other, sent bool, cause error) {
	l := h.lane
	h.tries++
	h.cause = cause
	if other {
		h.tried.Tried.Add(h.backend)
	}
	switch {
	case sent && !h.idempotent:
		h.fail(faultGateway)
		return
	case l.time() > h.deadline:
		h.fail(faultTimeout)
		return
	}
	at := l.director.again(l.time(), &h.tried, h.tries)
	if at == balance.None {
		h.fail(faultGateway)
		return
	}
	h.backend = at
	l.dispatch(h)
}

// overdue gives up a request that is not answered.
func (h *client) overdue() {
	l := h.lane
	if h.queued > 0 {
		l.pools[h.backend].waiting.drop(h)
		l.director.end(l.time(), h.backend, abandoned)
		h.fail(faultBusy)
		return
	}
	k := h.link
	k.client, h.link = nil, nil
	l.director.end(l.time(), k.backend, failed)
	k.conn.Abort(errEnough)
	h.fail(faultTimeout)
}

// Ended gives up the request of a client that has ended its output, as net/http does on the
// general path: it has closed its connection, most probably, and would not get the answer.
func (h *client) Ended(c *loop.Conn) {
	switch {
	case h.activeAt < 0:
	case h.answered:
		c.Abort(errLeft)
	default: // the answers to earlier requests may still be read
		h.cause = errLeft
		h.giveUp()
		c.Close(errLeft)
	}
}

// giveUp ends the request in work, if there is one, for nobody wants the answer.
func (h *client) giveUp() {
	l := h.lane
	if h.queued > 0 {
		l.pools[h.backend].waiting.drop(h)
		l.director.end(l.time(), h.backend, abandoned)
	}
	if k := h.link; k != nil {
		k.client, h.link = nil, nil
		l.director.end(l.time(), k.backend, abandoned)
		k.conn.Abort(errEnough)
	}
	if h.activeAt >= 0 {
		l.deactivate(h)
		l.observe(h, 0)
	}
}

// Closed is told that the client is gone.
func (h *client) Closed(*loop.Conn, error) {
	h.giveUp()
	h.lane.remove(h)
	h.lane.gone()
}
