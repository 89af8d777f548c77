package client

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/search"
)

// bufferSize bounds a line of an answer. It holds about four hundred IDs.
const bufferSize = 8 << 10

// A conn is a connection with at most one request under way. A node answers the requests
// of one connection in order, so a second request would only wait there, where no call can
// join it any more.
//
// The request belongs to the goroutine that swaps it out of pending: the reader with its
// answer or, when the connection fails, the first goroutine that notices.
type conn struct {
	pool    *pool
	addr    string
	netConn net.Conn
	read    *bufio.Reader

	pending atomic.Pointer[batch]
	since   atomic.Int64 // when pending was sent, by Client.now
	ended   bool         // guarded by pool.mu
	// writes carries requests to the write goroutine; nil for a TCP connection, with TLS or
	// without, whose empty send buffer takes a request without blocking.
	writes chan []byte
	over   chan struct{} // closed when the reader has ended

	answered atomic.Bool // at least once
	own      batch       // reused by direct calls
	// plain: the node has refused a floor, because its version knows none. It belongs to the
	// goroutine that has taken the connection, or reads the answer.
	plain    bool
	untraced bool // the same for a trace context
	// told are the timelines of which it has answered a request. It belongs to the same goroutines.
	told   map[*order]bool
	pauses int // in a row; of the reader
	// leaving: the router has closed it, since the node is silent. Of the router.
	leaving bool
}

func newConn(p *pool, addr string, netConn net.Conn, read *bufio.Reader) *conn {
	cn := &conn{pool: p, addr: addr, netConn: netConn, read: read, over: make(chan struct{})}
	cn.own.order = &p.order
	below := netConn
	if inside, isTLS := netConn.(*tls.Conn); isTLS {
		below = inside.NetConn()
	}
	if _, isTCP := below.(*net.TCPConn); !isTCP {
		cn.writes = make(chan []byte, 1)
	}
	return cn
}

// send sends a request. The caller must have taken the connection with pool.take.
func (cn *conn) send(b *batch) {
	line := cn.line(b)
	cn.since.Store(int64(cn.pool.client.now()))
	cn.pending.Store(b)
	select {
	case <-cn.over:
		// The reader may have checked pending before it was set. If the reader ends
		// after this point, it sees the request.
		cn.requeue(errOver)
		return
	default:
	}
	if cn.writes != nil {
		cn.writes <- line
		return
	}
	if _, err := cn.netConn.Write(line); err != nil {
		_ = cn.netConn.Close() // the reader notices
	}
}

// line notes the floor of the order and returns the request to send, with the floor if search.Carried
// says so.
func (cn *conn) line(b *batch) []byte {
	b.floor, b.carries, b.traces = b.order.floor.now(), false, false
	line := cn.lineAbove(b)
	if b.order.timeline != nil && !b.isOracle {
		line = appendOption(line, "TIMELINE", b.order.timeline.name)
	}
	if b.trace != "" && !cn.untraced {
		b.traces = true
		line = appendOption(line, "TRACEPARENT", b.trace)
	}
	return line
}

// lineAbove returns the request without its timeline and trace context.
func (cn *conn) lineAbove(b *batch) []byte {
	if cn.plain || b.kind == kindID || b.isOracle {
		return b.line
	}
	answered := cn.answered.Load()
	if b.order.timeline != nil {
		answered = cn.told[b.order]
	}
	floor := search.Carried(b.floor, b.above, answered)
	if floor == (isotone.Timestamp{}) {
		return b.line
	}
	b.carries = true
	return appendAbove(make([]byte, 0, aboveSize), b.kind, b.count(), floor)
}

// write is the goroutine of a connection with a writes channel.
func (cn *conn) write() {
	for {
		select {
		case <-cn.over:
			return
		case line := <-cn.writes:
			if _, err := cn.netConn.Write(line); err != nil {
				_ = cn.netConn.Close()
				return
			}
		}
	}
}

// requeue queues the request under way again, if there is one.
func (cn *conn) requeue(err error) {
	if b := cn.pending.Swap(nil); b != nil {
		b.order.requeue(b)
		cn.pool.client.retried(cn.addr, err)
		b.order.resend()
	}
}

var (
	errOver       = errors.New("the connection has ended")
	errUnexpected = errors.New("an answer without a request")
	errExtra      = errors.New("more than one answer")
)

// run reads answers until the connection ends, then queues the request under way again.
func (cn *conn) run() {
	p := cn.pool
	p.put(cn)
	p.dispatch()
	err := cn.serve()
	_ = cn.netConn.Close()
	close(cn.over)
	p.drop(cn)
	if p.node != nil {
		p.client.timelines.left(p)
	}
	cn.requeue(err)
	p.client.post(func(r *router) { r.connEnded(cn, err) })
	p.dispatch()
}

func (cn *conn) serve() error {
	for {
		// Wait for data first: only then is the request known that it answers.
		if _, err := cn.read.Peek(1); err != nil {
			return err
		}
		b := cn.pending.Load()
		if b == nil {
			return errUnexpected
		}
		err := readAnswer(cn.read, b)
		refusal, refused := err.(*isotone.Error)
		if err != nil && !refused {
			return err
		}
		if cn.read.Buffered() > 0 {
			// It would be taken for the answer to the next request.
			return errExtra
		}
		if cn.pending.Swap(nil) != b {
			panic("client: an answer belongs to two requests")
		}
		if !refused {
			if err := cn.pool.client.inOrder(cn.addr, b); err != nil {
				b.finish(err)
				return err
			}
			refusal = b.undercut(cn.addr)
		}
		if cn.forgotten(refusal) {
			// A new connection authenticates with what the credentials are now.
			b.order.requeue(b)
			cn.pool.client.retried(cn.addr, refusal)
			b.order.resend()
			return refusal
		}
		if !cn.settle(b, refusal) {
			return cn.waitClosed()
		}
	}
}

// forgotten reports whether the node has forgotten who the client is: it has accepted its credentials on this
// connection, or answered a request.
func (cn *conn) forgotten(refusal *isotone.Error) bool {
	return refusal != nil && refusal.Code == isotone.CodeUnauthorized && (cn.answered.Load() || cn.pool.client.opt.Credentials != nil)
}

// settle handles an answer; refusal is nil for a success. It reports whether the connection
// remains usable.
func (cn *conn) settle(b *batch, refusal *isotone.Error) bool {
	p := cn.pool
	switch {
	case refusal == nil:
		cn.succeeded(b)
	case cn.older(b, refusal):
		b.order.requeue(b)
		p.put(cn)
	case refusal.Code == isotone.CodeQuotaExceeded && b.order.timeline != nil:
		cn.lineOverQuota(b, refusal)
	case refusal.Code == isotone.CodeQuotaExceeded:
		if !cn.overQuota(b, refusal) {
			return false
		}
	case !transient(refusal.Code):
		cn.pauses = 0
		if refusal.Code == isotone.CodeNotFound && b.order.timeline != nil {
			p.client.timelines.missed(b.order)
		}
		p.put(cn)
		b.finish(refusal)
	case b.order.timeline != nil:
		cn.turnedAway(b, refusal)
	case !cn.refused(b, refusal):
		return false
	}
	p.dispatch()
	return true
}

func (cn *conn) succeeded(b *batch) {
	p, c := cn.pool, cn.pool.client
	took := c.now() - time.Duration(cn.since.Load())
	cn.pauses = 0
	cn.answered.Store(true)
	if b.order.quota.Load() != nil {
		b.order.quota.Store(nil)
	}
	p.measured(took)
	several := b.calls() > 1
	if b.order.timeline != nil {
		cn.toldOf(b)
	}
	p.put(cn)
	c.notifyAnswered(cn, b, took)
	b.finish(nil)
	if p.suspected.Load() && p.suspected.CompareAndSwap(true, false) {
		c.post(func(r *router) { r.recovered(cn) })
	}
	if several {
		b.order.gather()
	}
}

// refused queues the request again. It reports whether the connection remains usable.
func (cn *conn) refused(b *batch, refusal *isotone.Error) bool {
	p, c := cn.pool, cn.pool.client
	moved := refusal.Leader != "" && refusal.Leader != cn.addr && b.kind != kindID
	if moved {
		p.retire(cn.addr)
	}
	b.order.requeue(b)
	c.retried(cn.addr, refusal)
	if moved {
		c.post(func(r *router) { r.moved(cn, refusal.Leader) })
		return false
	}
	if b.kind != kindID {
		c.post(func(r *router) { r.suspect(cn.addr) }) // it cannot serve now
	}
	p.dispatch() // on another connection
	if !cn.pause() {
		return false
	}
	p.put(cn)
	return true
}

// toldOf notes that the connection has answered a request of a timeline.
func (cn *conn) toldOf(b *batch) {
	if cn.told == nil {
		cn.told = map[*order]bool{}
	}
	if !b.isOracle { // which carries no floor
		cn.told[b.order] = true
	}
	cn.pool.client.timelines.answered(b.order, cn.pool)
}

// turnedAway queues a request of a timeline again that the node does not answer. The connection is as good as before: the
// node may own other timelines.
func (cn *conn) turnedAway(b *batch, refusal *isotone.Error) {
	all, o := &cn.pool.client.timelines, b.order
	cn.answered.Store(true)
	o.requeue(b)
	cn.pool.client.retried(cn.addr, refusal)
	var owner *pool
	if refusal.Leader != "" {
		owner = all.moved(o, refusal.Leader)
	} else {
		all.refused(o)
	}
	cn.pool.put(cn)
	if owner != nil {
		owner.dispatch()
	}
}

// lineOverQuota queues a request of a timeline again that exceeds a quota. The timeline waits for as long as the node asks, and others
// of the node do not.
func (cn *conn) lineOverQuota(b *batch, refusal *isotone.Error) {
	cn.answered.Store(true)
	b.order.quota.Store(refusal)
	b.order.requeue(b)
	cn.pool.client.retried(cn.addr, refusal)
	cn.pool.client.timelines.limited(b.order, refusal)
	cn.pool.put(cn)
}

// overQuota queues a request again that exceeds the client's quota, and sends nothing on this
// connection for as long as the node asks. It reports whether the connection remains usable.
func (cn *conn) overQuota(b *batch, refusal *isotone.Error) bool {
	p := cn.pool
	b.order.quota.Store(refusal)
	b.order.requeue(b)
	p.client.retried(cn.addr, refusal)
	if !cn.pauseFor(quotaPause(refusal, cn.pauses)) {
		return false
	}
	p.put(cn)
	b.order.resend()
	return true
}

// pause sends nothing to a refusing node for a while, longer with each refusal in a row. It
// reports false if the client is closed meanwhile.
func (cn *conn) pause() bool { return cn.pauseFor(backoff(cn.pauses)) }

func (cn *conn) pauseFor(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	cn.pauses++
	select {
	case <-timer.C:
		return true
	case <-cn.pool.client.ctx.Done():
		return false
	}
}

// waitClosed waits until the router or the node closes the connection.
func (cn *conn) waitClosed() error {
	if _, err := cn.read.Peek(1); err != nil {
		return err
	}
	return errUnexpected
}

// silent returns how long the connection has been waiting for an answer.
func (cn *conn) silent(now time.Duration) time.Duration {
	if cn.pending.Load() == nil {
		return 0
	}
	return now - time.Duration(cn.since.Load())
}

// readable replaces the errors of a closed connection by readable ones.
func readable(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("the connection was closed")
	case errors.Is(err, net.ErrClosed):
		return errors.New("the connection was aborted")
	}
	return err
}
