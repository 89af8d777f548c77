package proxy

import (
	"bytes"
	"errors"
	"time"

	"github.com/isotone/isotone/internal/front/requestid"
	"github.com/isotone/isotone/internal/front/stats"
	"github.com/isotone/isotone/internal/host/loop"
	"github.com/isotone/isotone/internal/proxy/balance"
)

var (
	errStopped = errors.New("the proxy is shutting down")
	errLeft    = errors.New("the client has disconnected")
)

const (
	// cachedHeadMax bounds the head that a connection caches.
	cachedHeadMax = 1 << 10
	// requestKeepMax is the largest buffer for a request that an idle connection keeps.
	requestKeepMax = 2 << 10
	// tlsHandshakeByte is the first byte of every TLS connection.
	tlsHandshakeByte = 0x16
)

// clientConn is one client's connection on the fast path.
type clientConn struct {
	path     *fastPath
	conn     *loop.Conn
	addr     string // IP address
	leave    func() // the connection does not count any more
	place    int    // index in path.clients
	activeAt int    // index in path.active; -1: no request is in progress
	queued   int    // position in a pool's queue, from 1; 0: not queued

	// Most clients repeat the same head. cachedHead is the latest one without a transaction:
	// a request that begins with these bytes has the same meaning, cachedInfo.
	cachedHead []byte
	cachedInfo requestInfo
	cachedOut  []byte // the head for the backend

	// The request in progress.
	requestInfo
	request    []byte // for the backend
	fieldsAt   int    // where the fields of the transaction are in request
	fieldsEnd  int
	idAt       int
	idEnd      int
	server     *backendConn
	backend    int
	tried      balance.Request
	tries      int // that failed
	began      time.Duration
	deadline   time.Duration
	closeAfter bool // close the connection after the answer
	answered   bool // the head of the answer was written
	status     int
	err        *httpError
	cause      error // of the latest try that failed
	trace      requestid.Trace
	span       requestSpan

	cost stats.Section // of earlier turns; only with a meter
	turn uint64        // the turn of the meter in which it has a share
}

// requestInfo is what the fast path needs of the head of a request.
type requestInfo struct {
	size       int
	length     int64
	toHead     bool // the method is HEAD
	idempotent bool
	persistent bool
	keyed      bool
	key        uint64
}

// transactionFields returns the fields of the transaction as lines.
func (cc *clientConn) transactionFields() []byte { return cc.request[cc.fieldsAt:cc.fieldsEnd] }
func (cc *clientConn) id() []byte                { return cc.request[cc.idAt:cc.idEnd] }

// Data consumes the next request.
func (cc *clientConn) Data(c *loop.Conn, b []byte) (int, error) {
	p := cc.path
	if p.stopped {
		return len(b), errStopped
	}
	if len(cc.cachedHead) > 0 && bytes.HasPrefix(b, cc.cachedHead) {
		cc.requestInfo = cc.cachedInfo
		if len(b)-cc.size < int(cc.length) {
			return 0, nil
		}
		cc.request = append(cc.request[:0], cc.cachedOut...)
		return cc.start(b, nil), nil
	}
	if b[0] == tlsHandshakeByte {
		return cc.detach(b), nil
	}
	switch isHTTP2(b) {
	case whole:
		return cc.detach(b), nil
	case partial:
		return 0, nil
	}
	r := &p.request
	v, err := parseRequest(b, r)
	switch {
	case err != nil:
		cc.refuse(err)
		return len(b), nil
	case v == partial:
		return 0, nil
	}
	if err := r.refusal(b); err != nil {
		cc.refuse(err)
		return len(b), nil
	}
	if r.Minor == 0 || r.chunked || r.expect || r.length > fastPathBodyMax {
		return cc.detach(b), nil
	}
	if len(b)-r.size < int(r.length) {
		return 0, nil
	}
	cc.rewrite(b, r)
	return cc.start(b, r), nil
}

// rewrite makes the head for the backend from r, whose bytes are the front of b.
func (cc *clientConn) rewrite(b []byte, r *request) {
	p := cc.path
	method := r.Method(b)
	cc.requestInfo = requestInfo{size: r.size, length: r.length, toHead: string(method) == "HEAD", idempotent: isIdempotent(method), persistent: r.persistent()}
	cc.key, cc.keyed = p.cfg.StickyKey.ofFastPath(b, r)
	continued := false
	if r.parent >= 0 {
		_, continued = requestid.ParseTraceparent(r.fields[r.parent].Value(b))
	}
	cc.request = r.appendRequest(cc.request[:0], b, cc.addr, continued, p.cfg.TrustForwarded)
	cc.cachedHead = cc.cachedHead[:0]
	if r.id < 0 && r.parent < 0 && r.size <= cachedHeadMax {
		cc.cachedHead = append(cc.cachedHead, b[:r.size]...)
		cc.cachedOut = append(cc.cachedOut[:0], cc.request...)
		cc.cachedInfo = cc.requestInfo
	}
}

// start forwards the request at the front of b and returns its size. r is nil if the client
// sent no request ID.
func (cc *clientConn) start(b []byte, r *request) int {
	p := cc.path
	cc.identify(b, r)
	cc.request = append(cc.request, "\r\n"...)
	size := cc.size + int(cc.length)
	cc.request = append(cc.request, b[cc.size:size]...)
	cc.closeAfter, cc.answered, cc.status, cc.err, cc.cause, cc.tries = !cc.persistent, false, 0, nil, nil, 0
	cc.began, cc.deadline = p.loop.Now(), p.time()+p.cfg.Limits.AnswerTimeout
	cc.conn.Pause()
	p.activate(cc)
	p.meter.touch(cc)
	cc.tried = balance.Request{Key: cc.key, Keyed: cc.keyed}
	if cc.backend = p.balancer.begin(p.time(), &cc.tried); cc.backend == balance.None {
		cc.fail(errNoBackend)
		return size
	}
	p.dispatch(cc)
	return size
}

// identify appends the fields of the transaction to the request for the backend.
func (cc *clientConn) identify(b []byte, r *request) {
	m := cc.path.maker
	cc.fieldsAt = len(cc.request)
	cc.request = append(cc.request, requestid.FieldID+": "...)
	cc.idAt = len(cc.request)
	if r != nil && r.id >= 0 && requestid.ValidID(r.fields[r.id].Value(b)) {
		cc.request = append(cc.request, r.fields[r.id].Value(b)...)
	} else {
		cc.request = m.AppendID(cc.request)
	}
	cc.idEnd = len(cc.request)
	parent, continued := requestid.Trace{}, false
	if r != nil && r.parent >= 0 {
		parent, continued = requestid.ParseTraceparent(r.fields[r.parent].Value(b))
	}
	if continued {
		cc.trace = m.Child(parent)
	} else {
		cc.trace = m.New()
	}
	if cc.span = (requestSpan{}); cc.path.cfg.Trace != nil {
		cc.span = cc.path.cfg.beginSpan(parent, &cc.trace)
	}
	cc.request = append(cc.request, "\r\n"+requestid.FieldTraceparent+": "...)
	cc.request = cc.trace.Append(cc.request)
	cc.request = append(cc.request, "\r\n"...)
	cc.fieldsEnd = len(cc.request)
}

// requestLine returns method and target for a log line, empty for a request that was refused.
func (cc *clientConn) requestLine() (method, target string) {
	line, _, _ := bytes.Cut(cc.request[:cc.fieldsAt], []byte("\r\n"))
	m, rest, _ := bytes.Cut(line, []byte(" "))
	t, _, _ := bytes.Cut(rest, []byte(" "))
	return string(m), string(t)
}

// detach detaches the connection for the standard path.
func (cc *clientConn) detach(b []byte) int {
	p := cc.path
	nc, err := cc.conn.Detach(b)
	if err != nil {
		return len(b) // the loop has closed it and called Closed
	}
	p.remove(cc)
	p.detached(nc, cc.leave)
	return len(b)
}

// refuse answers an invalid request and closes the connection.
func (cc *clientConn) refuse(e *httpError) {
	cc.began, cc.backend, cc.tries, cc.cause, cc.toHead, cc.closeAfter = cc.path.loop.Now(), balance.None, 0, nil, false, true
	cc.request = cc.request[:0]
	cc.identify(nil, nil)
	cc.fail(e)
}

// fail answers with an error of the proxy itself.
func (cc *clientConn) fail(e *httpError) {
	cc.err, cc.status = e, e.status
	cc.closeAfter = cc.closeAfter || cc.path.stopped
	cc.conn.SetBuffered(e.append(cc.conn.Buffered(), cc.transactionFields(), cc.closeAfter, cc.toHead, time.Now()))
	cc.end()
}

// end completes a request that is answered.
func (cc *clientConn) end() {
	p := cc.path
	p.deactivate(cc)
	p.observe(cc, cc.status)
	if cap(cc.request) > requestKeepMax {
		cc.request = nil
	}
	if cc.closeAfter || p.stopped {
		cc.conn.Close(errEnough)
		return
	}
	cc.conn.Resume()
}

// abort resets the connection in the middle of an answer, so that the client can tell that the
// answer is incomplete.
func (cc *clientConn) abort() {
	p := cc.path
	p.deactivate(cc)
	if cc.err = errBroken; p.stopped {
		cc.err = errCutOff
	}
	p.observe(cc, cc.status)
	cc.conn.Abort(errEnough)
}

// retry sends the request again after a failed try: to another backend, if other. A request
// that was sent may have been processed, and is retried only if it is idempotent.
func (cc *clientConn) retry(other, sent bool, cause error) {
	p := cc.path
	cc.tries++
	cc.cause = cause
	if other {
		cc.tried.Tried.Add(cc.backend)
	}
	switch {
	case sent && !cc.idempotent:
		cc.fail(errGateway)
		return
	case p.time() > cc.deadline:
		cc.fail(errTimeout)
		return
	}
	at := p.balancer.retry(p.time(), &cc.tried, cc.tries)
	if at == balance.None {
		cc.fail(errGateway)
		return
	}
	cc.backend = at
	p.dispatch(cc)
}

// expire gives up a request that was not answered before its deadline.
func (cc *clientConn) expire() {
	if cc.withdraw(failed) {
		cc.fail(errBusy)
	} else {
		cc.fail(errTimeout)
	}
}

// withdraw takes the request from its queue, which it reports, or from its backend, for which how
// is the outcome.
func (cc *clientConn) withdraw(how outcome) (queued bool) {
	p := cc.path
	if cc.queued > 0 {
		p.pools[cc.backend].waiting.drop(cc)
		p.balancer.end(p.time(), cc.backend, abandoned)
		return true
	}
	if bc := cc.server; bc != nil {
		bc.finish(how)
		bc.conn.Abort(errEnough)
	}
	return false
}

// HalfClosed abandons the request of a client that has ended its output, as net/http does on the
// standard path: most probably it has closed its connection and would not get the answer.
func (cc *clientConn) HalfClosed(c *loop.Conn) {
	switch {
	case cc.activeAt < 0:
	case cc.answered:
		c.Abort(errLeft)
	default: // the answers to earlier requests may still be read
		cc.cause = errLeft
		cc.abandon()
		c.Close(errLeft)
	}
}

// abandon ends the request in progress, if any, without an answer.
func (cc *clientConn) abandon() {
	cc.withdraw(abandoned)
	if cc.activeAt >= 0 {
		cc.path.deactivate(cc)
		cc.path.observe(cc, 0)
	}
}

// Closed implements loop.Handler.
func (cc *clientConn) Closed(*loop.Conn, error) {
	cc.abandon()
	cc.path.remove(cc)
	cc.leave()
}
