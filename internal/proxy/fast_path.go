package proxy

import (
	"bytes"
	"net"
	"slices"
	"time"

	"github.com/isotone/isotone/internal/front/requestid"
	"github.com/isotone/isotone/internal/front/stats"
	"github.com/isotone/isotone/internal/host/loop"
)

// sweepEvery is the interval between checks for expired requests and connections.
const sweepEvery = 100 * time.Millisecond

// fastPath forwards requests in one loop. Only the loop's goroutine uses it.
type fastPath struct {
	cfg      *Config
	loop     *loop.Loop
	balancer *balancer
	maker    *requestid.Maker
	report   func(*record)

	// dial connects to a backend on another goroutine, and has the loop call dialled.
	dial func(backend int)
	// meter measures what requests cost; nil: off.
	meter *meter
	// detached takes a connection that was detached for the standard path.
	detached func(nc net.Conn, leave func())

	pools   []pool         // by backend
	clients []*clientConn  // all that are open, unordered
	active  []*clientConn  // those with a request in progress, unordered
	stalled []*backendConn // not read because their client does not read
	stopped bool

	request request // the one that is being read
	answer  answer

	turnAt time.Duration // the loop's time at which now was read
	now    time.Duration // the balancer's
	swept  time.Duration
}

// pool has the connections to one backend.
type pool struct {
	idle    []*backendConn // the most recently used is last
	open    int
	dialing int
	waiting queue
}

// queue has the clients that wait for a connection, first come first served. Those that gave
// up remain as nil until their turn, or until they are half of it.
type queue struct {
	list []*clientConn
	from int
	live int
}

func (q *queue) put(cc *clientConn) {
	if len(q.list) == cap(q.list) && q.live <= len(q.list)/2 {
		n := 0
		for _, waits := range q.list[q.from:] {
			if waits != nil {
				q.list[n] = waits
				n++
				waits.queued = n
			}
		}
		clear(q.list[n:])
		q.list, q.from = q.list[:n], 0
	}
	q.list = append(q.list, cc)
	q.live++
	cc.queued = len(q.list)
}

// drop removes one that gave up.
func (q *queue) drop(cc *clientConn) {
	q.list[cc.queued-1] = nil
	cc.queued = 0
	q.live--
}

// take removes and returns the first, or returns nil.
func (q *queue) take() *clientConn {
	for q.from < len(q.list) {
		cc := q.list[q.from]
		q.list[q.from] = nil
		q.from++
		if cc != nil {
			cc.queued = 0
			q.live--
			return cc
		}
	}
	q.list, q.from = q.list[:0], 0
	return nil
}

func newFastPath(cfg *Config, l *loop.Loop, b *balancer) *fastPath {
	return &fastPath{
		cfg: cfg, loop: l, balancer: b, maker: requestid.NewMaker(), pools: make([]pool, len(b.targets)),
		turnAt: -1,
	}
}

// time returns the balancer's time of this turn.
func (p *fastPath) time() time.Duration {
	if now := p.loop.Now(); now != p.turnAt {
		p.turnAt, p.now = now, p.balancer.now()
	}
	return p.now
}

// limits returns the limits of client connections.
func (p *fastPath) limits() loop.Limits {
	return loop.Limits{
		UnreadMax: headBytesMax + fastPathBodyMax + 4<<10, PartialTimeout: p.cfg.Limits.HeadTimeout,
		IdleTimeout: p.cfg.Limits.IdleTimeout, WriteTimeout: p.cfg.Limits.WriteTimeout,
	}
}

// accept attaches a client's connection to the loop.
func (p *fastPath) accept(nc net.Conn, leave func()) bool {
	addr := ""
	if host, _, err := net.SplitHostPort(nc.RemoteAddr().String()); err == nil {
		addr = host
	}
	cc := &clientConn{path: p, addr: addr, leave: leave, place: len(p.clients), activeAt: -1}
	c, err := p.loop.Attach(nc, nil, p.limits(), cc)
	if err != nil {
		p.cfg.Log.Warn("a connection cannot be attached", "err", err)
		_ = nc.Close()
		return false
	}
	cc.conn = c
	p.clients = append(p.clients, cc)
	return true
}

func (p *fastPath) remove(cc *clientConn) {
	last := len(p.clients) - 1
	p.clients[cc.place] = p.clients[last]
	p.clients[cc.place].place = cc.place
	p.clients[last] = nil
	p.clients = p.clients[:last]
}

func (p *fastPath) activate(cc *clientConn) {
	if cc.activeAt < 0 {
		cc.activeAt = len(p.active)
		p.active = append(p.active, cc)
	}
}

func (p *fastPath) deactivate(cc *clientConn) {
	if cc.activeAt < 0 {
		return
	}
	last := len(p.active) - 1
	p.active[cc.activeAt] = p.active[last]
	p.active[cc.activeAt].activeAt = cc.activeAt
	p.active[last] = nil
	p.active = p.active[:last]
	cc.activeAt = -1
}

// dispatch sends cc's request to the chosen backend, now or as soon as a connection is free.
func (p *fastPath) dispatch(cc *clientConn) {
	pool := &p.pools[cc.backend]
	for last := len(pool.idle) - 1; last >= 0; last-- {
		bc := pool.idle[last]
		pool.idle[last] = nil
		pool.idle = pool.idle[:last]
		if !bc.conn.EOF() { // otherwise it is about to be closed
			bc.send(cc)
			return
		}
	}
	if pool.waiting.live >= p.cfg.Limits.WaitingMax {
		p.balancer.end(p.time(), cc.backend, abandoned)
		cc.fail(errBusy)
		return
	}
	pool.waiting.put(cc)
	p.connect(cc.backend)
}

// connect dials for waiting clients within the limits.
func (p *fastPath) connect(backend int) {
	pool := &p.pools[backend]
	if pool.dialing < pool.waiting.live && pool.open+pool.dialing < p.cfg.Limits.BackendConnectionsMax {
		pool.dialing++
		p.dial(backend)
	}
}

// dialled takes the result of a dial.
func (p *fastPath) dialled(backend int, nc net.Conn, err error) {
	pool := &p.pools[backend]
	pool.dialing--
	if err == nil {
		bc := &backendConn{path: p, backend: backend}
		stream := p.cfg.Limits.StreamTimeout + p.cfg.Limits.AnswerTimeout
		bc.conn, err = p.loop.Attach(nc, nil, loop.Limits{PartialTimeout: stream, IdleTimeout: stream, WriteTimeout: p.cfg.Limits.WriteTimeout}, bc)
		if err == nil {
			pool.open++
			bc.release()
			return
		}
		_ = nc.Close()
	}
	if cc := pool.waiting.take(); cc != nil {
		p.balancer.end(p.time(), backend, failed)
		cc.retry(true, false, err)
	}
	p.connect(backend)
}

// turn is called between Wait and Flush.
func (p *fastPath) turn() {
	p.resumeStalled()
	now := p.time()
	if now-p.swept < sweepEvery {
		return
	}
	p.swept = now
	for i := len(p.active) - 1; i >= 0; i-- {
		if i >= len(p.active) {
			continue
		}
		switch cc := p.active[i]; {
		case !cc.answered && now > cc.deadline:
			cc.expire()
		case cc.answered && !cc.server.stalled && now-cc.server.lastRead > p.cfg.Limits.StreamTimeout:
			cc.server.conn.Abort(errPause) // its Closed aborts the client's
		}
	}
	for i := range p.pools {
		idle := p.pools[i].idle
		n := 0
		for n < len(idle) && now-idle[n].idleSince > idleBackendTime {
			n++
		}
		for _, bc := range slices.Clone(idle[:n]) {
			bc.conn.Abort(nil) // its Closed removes it
		}
	}
}

// measure ends a turn whose cost is measured.
func (p *fastPath) measure() {
	if m := p.meter; m != nil && m.started {
		m.settle(m.Lap(), p.deliver)
	}
}

// resumeStalled reads on from backends whose clients have read.
func (p *fastPath) resumeStalled() {
	if len(p.stalled) == 0 {
		return
	}
	left := p.stalled[:0]
	for _, bc := range p.stalled {
		switch {
		case bc.client == nil:
			bc.stalled = false
		case bc.client.conn.Choked():
			left = append(left, bc)
		default:
			bc.stalled = false
			bc.lastRead = p.time() // the client caused the pause
			bc.conn.Resume()
		}
	}
	clear(p.stalled[len(left):])
	p.stalled = left
}

// stop closes idle connections at once, and the others after their answers.
func (p *fastPath) stop() {
	p.stopped = true
	for _, cc := range p.clients {
		if cc.activeAt < 0 {
			cc.conn.Close(nil)
		}
	}
}

// isHTTP2 reports whether b begins with the preface of HTTP/2, or may.
func isHTTP2(b []byte) verdict {
	n := min(len(b), len(http2Preface))
	switch {
	case !bytes.Equal(b[:n], []byte(http2Preface[:n])):
		return invalid
	case n < len(http2Preface):
		return partial
	}
	return whole
}

// observe reports a request that has ended.
func (p *fastPath) observe(cc *clientConn, status int) {
	r := record{
		status: status, backend: cc.backend, section: stats.Section{Wall: p.loop.Now() - cc.began},
		tries: cc.tries, err: cc.err, cause: cc.cause, sampled: p.cfg.samples(cc.id()),
	}
	if !cc.span.began.IsZero() {
		method, target := cc.requestLine()
		p.cfg.endSpan(cc.span, &r, "http1", method, target, p.balancer.backendName(r.backend))
	}
	reported := p.cfg.reports(&r)
	if reported {
		r.id, r.trace, r.client = string(cc.id()), cc.trace, cc.addr
		r.method, r.target = cc.requestLine()
	}
	if p.meter != nil {
		p.meter.end(cc, &ended{r, reported})
		return
	}
	p.deliver(&r, reported)
}

// deliver reports a record whose cost is known.
func (p *fastPath) deliver(r *record, reported bool) {
	p.cfg.observe(r)
	if reported && p.report != nil {
		p.report(r)
	}
}
