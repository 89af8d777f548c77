package proxy

import (
	"bytes"
	"net"
	"time"

	"github.com/isotone/isotone/internal/front/stats"
	"github.com/isotone/isotone/internal/front/transaction"
	"github.com/isotone/isotone/internal/host/loop"
)

// sweepEvery is how often the lane looks for requests and connections that are overdue.
const sweepEvery = 100 * time.Millisecond

// lane is the fast path of one loop. All of it belongs to the loop's goroutine.
type lane struct {
	cfg      *Config
	loop     *loop.Loop
	director *director
	maker    *transaction.Maker
	report   func(*record)

	// dial connects to a backend beside the loop, and has dialled called in it.
	dial func(backend int)
	// meter says what requests cost; nil: nobody asks.
	meter *meter
	// gone is told of each connection that has ended here.
	gone func()
	// handOver takes a connection that the lane has nothing for.
	handOver func(net.Conn)

	pools   []pool    // by backend
	clients []*client // all open ones, in no order
	active  []*client // those with a request in work, in no order
	stalled []*link   // that are not read, because their client does not read
	stopped bool

	request request // what is being read; only one at a time is
	answer  answer

	turnAt time.Duration // the loop's time that now belongs to
	now    time.Duration // the director's
	swept  time.Duration
}

// pool is the connections to one backend.
type pool struct {
	idle    []*link // the latest used is last
	open    int
	dialing int
	waiting queue
}

// queue is the clients that wait for a connection, first come first served. Those that
// have given up stay in as nil, until it is their turn.
type queue struct {
	list []*client
	from int
	live int
}

func (q *queue) put(h *client) {
	if q.from > 0 && len(q.list) == cap(q.list) {
		n := copy(q.list, q.list[q.from:])
		for i, moved := range q.list[:n] {
			if moved != nil {
				moved.queued = i + 1
			}
		}
		clear(q.list[n:])
		q.list, q.from = q.list[:n], 0
	}
	q.list = append(q.list, h)
	q.live++
	h.queued = len(q.list)
}

// drop takes out one that has given up.
func (q *queue) drop(h *client) {
	q.list[h.queued-1] = nil
	h.queued = 0
	q.live--
}

// take returns the first, or nil.
func (q *queue) take() *client {
	for q.from < len(q.list) {
		h := q.list[q.from]
		q.list[q.from] = nil
		q.from++
		if h != nil {
			h.queued = 0
			q.live--
			return h
		}
	}
	q.list, q.from = q.list[:0], 0
	return nil
}

func newLane(cfg *Config, l *loop.Loop, d *director) *lane {
	return &lane{
		cfg: cfg, loop: l, director: d, maker: transaction.NewMaker(), pools: make([]pool, len(d.targets)),
		turnAt: -1,
	}
}

// time is the director's time of this turn.
func (l *lane) time() time.Duration {
	if now := l.loop.Now(); now != l.turnAt {
		l.turnAt, l.now = now, l.director.now()
	}
	return l.now
}

// limits are those of the connections to clients.
func (l *lane) limits() loop.Limits {
	return loop.Limits{
		UnreadMax: headBytesMax + laneBodyMax + 4<<10, PartialTimeout: l.cfg.Limits.HeadTimeout,
		IdleTimeout: l.cfg.Limits.IdleTimeout, WriteTimeout: l.cfg.Limits.WriteTimeout,
	}
}

// accept takes a client's connection over.
func (l *lane) accept(nc net.Conn) bool {
	addr := ""
	if host, _, err := net.SplitHostPort(nc.RemoteAddr().String()); err == nil {
		addr = host
	}
	h := &client{lane: l, addr: addr, place: len(l.clients), activeAt: -1}
	c, err := l.loop.Adopt(nc, nil, l.limits(), h)
	if err != nil {
		l.cfg.Log.Warn("a connection cannot be taken", "err", err)
		_ = nc.Close()
		return false
	}
	h.conn = c
	l.clients = append(l.clients, h)
	return true
}

func (l *lane) remove(h *client) {
	last := len(l.clients) - 1
	l.clients[h.place] = l.clients[last]
	l.clients[h.place].place = h.place
	l.clients[last] = nil
	l.clients = l.clients[:last]
}

func (l *lane) activate(h *client) {
	if h.activeAt < 0 {
		h.activeAt = len(l.active)
		l.active = append(l.active, h)
	}
}

func (l *lane) deactivate(h *client) {
	if h.activeAt < 0 {
		return
	}
	last := len(l.active) - 1
	l.active[h.activeAt] = l.active[last]
	l.active[h.activeAt].activeAt = h.activeAt
	l.active[last] = nil
	l.active = l.active[:last]
	h.activeAt = -1
}

// dispatch sends h's request to the backend that was chosen, now or when there is a
// connection.
func (l *lane) dispatch(h *client) {
	p := &l.pools[h.backend]
	for last := len(p.idle) - 1; last >= 0; last-- {
		k := p.idle[last]
		p.idle[last] = nil
		p.idle = p.idle[:last]
		if !k.conn.EOF() { // or it is about to be closed
			k.send(h)
			return
		}
	}
	if p.waiting.live >= l.cfg.Limits.WaitingMax {
		l.director.end(l.time(), h.backend, abandoned)
		h.fail(faultBusy)
		return
	}
	p.waiting.put(h)
	l.connect(h.backend)
}

// connect dials for those that wait, as far as allowed.
func (l *lane) connect(backend int) {
	p := &l.pools[backend]
	if p.dialing < p.waiting.live && p.open+p.dialing < l.cfg.Limits.BackendConnectionsMax {
		p.dialing++
		l.dial(backend)
	}
}

// dialled takes over what dialling has brought.
func (l *lane) dialled(backend int, nc net.Conn, err error) {
	p := &l.pools[backend]
	p.dialing--
	if err == nil {
		k := &link{lane: l, backend: backend}
		stream := l.cfg.Limits.StreamTimeout + l.cfg.Limits.AnswerTimeout
		k.conn, err = l.loop.Adopt(nc, nil, loop.Limits{PartialTimeout: stream, IdleTimeout: stream, WriteTimeout: l.cfg.Limits.WriteTimeout}, k)
		if err == nil {
			p.open++
			k.release()
			return
		}
		_ = nc.Close()
	}
	if h := p.waiting.take(); h != nil {
		l.director.end(l.time(), backend, failed)
		h.again(true, false, err)
	}
	l.connect(backend)
}

// turn is called between Wait and Flush.
func (l *lane) turn() {
	l.unstall()
	now := l.time()
	if now-l.swept < sweepEvery {
		return
	}
	l.swept = now
	for i := len(l.active) - 1; i >= 0; i-- {
		if i >= len(l.active) {
			continue
		}
		switch h := l.active[i]; {
		case !h.answered && now > h.deadline:
			h.overdue()
		case h.answered && !h.link.stalled && now-h.link.heard > l.cfg.Limits.StreamTimeout:
			h.link.conn.Abort(errPause) // its Closed cuts the client's
		}
	}
	for i := range l.pools {
		idle := l.pools[i].idle
		n := 0
		for n < len(idle) && now-idle[n].idleSince > idleBackendTime {
			n++
		}
		if n == 0 {
			continue
		}
		for _, k := range append([]*link(nil), idle[:n]...) {
			k.conn.Abort(nil) // its Closed takes it out
		}
	}
}

// measure ends a turn whose cost is measured.
func (l *lane) measure() {
	if m := l.meter; m != nil && m.started {
		m.settle(m.Lap(), l.tell)
	}
}

// unstall reads on from backends whose clients have read.
func (l *lane) unstall() {
	if len(l.stalled) == 0 {
		return
	}
	left := l.stalled[:0]
	for _, k := range l.stalled {
		switch {
		case k.client == nil:
			k.stalled = false
		case k.client.conn.Choked():
			left = append(left, k)
		default:
			k.stalled = false
			k.heard = l.time() // the pause was the client's
			k.conn.Resume()
		}
	}
	clear(l.stalled[len(left):])
	l.stalled = left
}

// stop closes idle connections at once, and the others when they have been answered.
func (l *lane) stop() {
	l.stopped = true
	for _, h := range l.clients {
		if h.activeAt < 0 {
			h.conn.Close(nil)
		}
	}
}

// isHTTP2 reports whether b begins as HTTP/2 does, or may.
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

// observe tells of a request that has ended.
func (l *lane) observe(h *client, status int) {
	r := record{
		status: status, backend: h.backend, section: stats.Section{Wall: l.loop.Now() - h.began},
		tries: h.tries, fault: h.fault, cause: h.cause, sampled: l.cfg.samples(h.id()),
	}
	reported := l.cfg.reports(&r)
	if reported {
		r.id, r.trace, r.client = string(h.id()), h.trace, h.addr
		r.method, r.target = h.named()
	}
	if l.meter != nil {
		l.meter.end(h, &ended{r, reported})
		return
	}
	l.tell(&r, reported)
}

// tell hands a record on.
func (l *lane) tell(r *record, reported bool) {
	l.cfg.observe(r)
	if reported && l.report != nil {
		l.report(r)
	}
}
