package http1

import (
	"bytes"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/host/loop"
)

// lastBytesMax bounds the request that a connection remembers.
const lastBytesMax = 256

// handler is the lane on one connection. It is all that an idle one holds.
type handler struct {
	lane  *Lane
	conn  *loop.Conn
	place int   // in lane.conns
	work  *work // what is out; nil: nothing

	// A client sends the same request again and again. last is one, and known what it
	// asks: what begins with the same bytes asks the same, for it ends within them.
	last  []byte
	known request
}

// Data answers the hot requests that b begins with, all that fit in one batch, or hands
// the connection over.
func (h *handler) Data(c *loop.Conn, b []byte) (int, error) {
	l := h.lane
	if l.stopped {
		c.Close(ErrStopped)
		return len(b), nil
	}
	used := 0
	for {
		n, next := h.collect(b[used:])
		used += n
		switch {
		case l.group.empty() && next == hot:
			n, next := h.answerAtOnce(b[used:])
			used += n
			if next == cold {
				h.handOver(b[used:])
				return used, nil
			}
			if used == len(b) || c.Choked() {
				return used, nil
			}
		case l.group.empty():
			if next == cold || h.conn.EOF() {
				// Of what is cut short by the end net/http knows what to say.
				h.handOver(b[used:])
			}
			return used, nil
		case !h.submit():
			c.Pause()
			return used, nil
		case used == len(b) || c.Choked():
			return used, nil
		}
	}
}

// collect gathers the hot requests at the front of b in the lane's group. It returns how
// many bytes they have, and what follows them: also hot if the group must not have it, as
// it has requests for timestamps only.
func (h *handler) collect(b []byte) (used int, next verdict) {
	g := &h.lane.group
	g.reset()
	for used < len(b) {
		rest := b[used:]
		r, v := h.read(rest)
		if v != hot || r.target != targetTimestamps || !g.add(h.lane, r, rest) {
			return used, v
		}
		used += r.size
	}
	return used, partial
}

// read looks at the front of b, and returns the request if that is hot. It is valid until
// the next call.
func (h *handler) read(b []byte) (*request, verdict) {
	if len(h.last) > 0 && bytes.HasPrefix(b, h.last) {
		return &h.known, hot
	}
	r := &h.lane.group.parsed
	v := parse(b, r)
	if v == hot {
		h.remember(b, r)
	}
	return r, v
}

func (h *handler) remember(b []byte, r *request) {
	if r.size <= lastBytesMax {
		h.last, h.known = append(h.last[:0], b[:r.size]...), *r
	}
}

// submit hands the group to the backend, and reports whether it is answered already.
func (h *handler) submit() bool {
	l := h.lane
	w := l.spare.take(l, l.group.len())
	w.fill(&l.group)
	w.owner, w.began = h, h.conn.Now()
	h.work = w
	l.cfg.Backend.Submit(&w.batch)
	return h.work == nil
}

// answer writes the answers of w, which has been out for h.
func (h *handler) answer(w *work) {
	l, c := h.lane, h.conn
	h.work = nil
	a := l.answersFor(c)
	a.refresh(c.Now(), l.cluster())
	out, code := a.append(c.Buffered(), w, l.stopped)
	c.SetBuffered(out)
	l.observe(c, code, len(w.asks), c.Now()-w.began)
	if l.stopped {
		c.Close(ErrStopped)
		return
	}
	c.Resume()
}

// handOver gives the connection away, with b in front.
func (h *handler) handOver(b []byte) {
	nc, err := h.conn.Detach(b)
	if err != nil {
		return // the loop has closed it, and told us
	}
	h.lane.remove(h)
	h.lane.cfg.HandOver(nc)
}

// Closed notes that nobody waits for the batch that is out.
func (h *handler) Closed(*loop.Conn, error) {
	if h.work != nil {
		h.work.owner = nil
		h.lane.observe(h.conn, string(isotone.CodeDeadlineExceeded), len(h.work.asks), h.conn.Now()-h.work.began)
		h.work = nil
	}
	h.lane.remove(h)
}
