package http1

import (
	"bytes"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/host/loop"
)

// lastBytesMax bounds the request that a connection remembers.
const lastBytesMax = 256

// handler is one connection, and everything that an idle one holds.
type handler struct {
	reader
	guard
	index   int           // in front.conns
	pending *pendingBatch // submitted, not answered; nil: none
	more    bool          // beyond what is pending, something has been read
	closed  bool          // there will be no more answers
}

// reader reads the requests of one connection, and knows whom it speaks for.
type reader struct {
	front *Front
	conn  *loop.Conn

	// A client sends the same request again and again. known is the request in last: input
	// that begins with the same bytes is the same request, since it ends within them.
	last  []byte
	known request

	speaker
}

// Data answers the hot requests that b begins with, all that fit in one batch, or
// detaches the connection.
func (h *handler) Data(c *loop.Conn, b []byte) (int, error) {
	f := h.front
	if f.stopped {
		c.Close(ErrStopped)
		return len(b), nil
	}
	used := 0
	for {
		switch h.admit(b[used:]) {
		case cold:
			h.detach(b[used:])
			return used, nil
		case partial: // the credentials are checked
			c.Pause()
			return used, nil
		}
		n, next := h.collect(b[used:])
		used += n
		h.more = used < len(b)
		switch {
		case f.group.empty() && next == hot:
			n, next := h.answerAtOnce(b[used:])
			used += n
			if next == cold {
				h.detach(b[used:])
				return used, nil
			}
			if used == len(b) || c.Choked() {
				return used, nil
			}
		case f.group.empty():
			if next == cold || h.conn.EOF() {
				// net/http answers requests that are cut short by the end of input.
				h.detach(b[used:])
			}
			return used, nil
		case !h.submit():
			c.Pause()
			return used, nil
		case h.closed:
			return len(b), nil
		case used == len(b) || c.Choked():
			return used, nil
		}
	}
}

// collect gathers the hot requests at the front of b in the front's group. It returns how
// many bytes they have, and the verdict on what follows: hot if it is a request that the
// group cannot take. The group takes requests for timestamps only, and none after one that ends the
// connection.
func (h *handler) collect(b []byte) (used int, next verdict) {
	g := &h.front.group
	g.reset()
	for used < len(b) {
		rest := b[used:]
		r, v := h.read(rest)
		if v != hot || r.target != targetTimestamps || !h.admitted(r, rest) || !g.add(h.front, r, rest) {
			return used, v
		}
		used += r.size
		if g.ends {
			break
		}
	}
	return used, partial
}

// read parses the request at the front of b. The result is valid until the next call.
func (d *reader) read(b []byte) (*request, verdict) {
	if len(d.last) > 0 && bytes.HasPrefix(b, d.last) {
		return &d.known, hot
	}
	r := &d.front.group.parsed
	v := parse(b, r)
	if v == hot {
		d.remember(b, r)
	}
	return r, v
}

func (d *reader) remember(b []byte, r *request) {
	if r.size <= lastBytesMax {
		d.last, d.known = append(d.last[:0], b[:r.size]...), *r
	}
}

// submit hands the group to the backend, and reports whether it has been answered.
func (h *handler) submit() bool {
	h.pending = h.prepare(h)
	h.hand(h.pending)
	return h.pending == nil
}

// prepare returns the group as a batch of o.
func (d *reader) prepare(o owner) *pendingBatch {
	f := d.front
	p := f.spare.take(f, f.group.len())
	p.fill(&f.group)
	p.batch.Raise = p.batch.Floor != (isotone.Timestamp{}) && d.session.May(access.Floors)
	p.owner, p.began, p.sum = o, d.conn.Now(), f.group.sum()
	return p
}

// hand hands p, just prepared, to the backend, or answers it if the quota is used up.
func (d *reader) hand(p *pendingBatch) {
	if err := d.session.Charge(uint64(len(p.asks)), p.sum); err != nil {
		p.batch.Err = err
		p.batch.Done(&p.batch)
		return
	}
	d.front.cfg.Backend.Submit(&p.batch)
}

// answer writes the answers of p, which h submitted.
func (h *handler) answer(p *pendingBatch) {
	f, c := h.front, h.conn
	h.pending = nil
	if p.batch.Moved {
		h.session.Moved(p.batch.Floor)
	}
	if p.batch.Err == nil {
		h.session.Used(uint64(len(p.asks)), p.sum)
	}
	a := f.answersFor(c)
	a.refresh(c.Now(), f.cluster())
	ends := p.ends || f.stopped || !h.more && f.draining()
	out, code := a.append(c.Buffered(), p, ends)
	c.SetBuffered(out)
	f.observe(c, code, len(p.asks), c.Now()-p.began)
	if ends {
		h.close()
		return
	}
	c.Resume()
}

// close ends the connection after its latest answer. What the client has sent beyond that is
// not answered.
func (h *handler) close() {
	h.closed = true
	h.conn.Close(ErrStopped)
}

// detach takes the connection out of the loop, with b in front.
func (h *handler) detach(b []byte) {
	nc, err := h.conn.Detach(b)
	if err != nil {
		return // the loop has closed it, and called Closed
	}
	h.front.remove(h)
	h.front.cfg.Detached(nc)
}

// Closed abandons the submitted batch.
func (h *handler) Closed(*loop.Conn, error) {
	if h.pending != nil {
		h.abandon(h.pending)
		h.pending = nil
	}
	h.front.remove(h)
}

// abandon says that nobody will read the answers of p.
func (d *reader) abandon(p *pendingBatch) {
	f, code := d.front, string(isotone.CodeDeadlineExceeded)
	protocol := f.answersFor(d.conn).protocol
	p.owner = nil
	for i := range p.measured {
		f.meter.finish(protocol, 0, code, &p.measured[i])
	}
	for i := range p.traced {
		f.tracer.finish(protocol, 0, code, &p.traced[i])
	}
	d.observe(p, code, d.conn.Now()-p.began)
}

// observe tells of the requests of p, by protocol.
func (d *reader) observe(p *pendingBatch, code string, wall time.Duration) {
	calls := 0
	for i := range p.asks {
		if p.asks[i].call {
			calls++
		}
	}
	if others := len(p.asks) - calls; others > 0 {
		d.front.observe(d.conn, code, others, wall)
	}
	if calls > 0 {
		d.front.observeAs(protocolCall, code, calls, wall)
	}
}
