package http2

import (
	"io"
	"strings"

	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/grpc"
)

// duplexHead begins the answer to a call of [Config.Duplex].
var duplexHead = []field{
	{Name: ":status", Value: "200"}, {Name: "content-type", Value: grpc.ContentType}, {Name: "grpc-accept-encoding", Value: "identity"},
}

// messageKept bounds the buffer that a duplex keeps while it waits for its client: a call may wait for long.
const messageKept = 1 << 10

// sender implements [grpc.Sender].
type sender struct {
	conn   *conn
	stream *stream
}

func (a *sender) Send(frames []byte) {
	if len(a.stream.out) > 0 {
		a.stream.out = append(a.stream.out, frames...)
		return
	}
	if rest := a.conn.send(a.stream, frames, false); len(rest) > 0 {
		a.conn.waitForWindow(a.stream, rest)
	}
}

// Resume leaves to Drained what Take may submit.
func (a *sender) Resume() {
	c, s := a.conn, a.stream
	switch {
	case s.feeding:
	case len(s.message) > 0:
		s.resumed = true
		c.conn.AwaitDrain()
	default:
		c.feed(s)
		c.keep()
	}
}

// beginDuplex begins a call that Config.Duplex answers, and reports whether r is one.
func (c *conn) beginDuplex(id uint32, r *request) bool {
	open := c.front.cfg.Duplex
	if open == nil || r.method != "POST" || !r.isGRPC() {
		return false
	}
	s := &stream{id: id, received: bodyMax, length: r.length}
	if s.duplex = open(r.path, c.session, &sender{c, s}); s.duplex == nil {
		return false
	}
	c.duplexes++
	c.add(s)
	c.conn.SetBuffered(c.appendHeaders(c.conn.Buffered(), flagEndHeaders, id, c.encoder.encode(duplexHead, &c.front.encoded)))
	c.earn()
	return true
}

// HandOver implements [grpc.HandOver].
func (w *writer) HandOver(open func(front.Backend, grpc.Sender) grpc.Duplex) (post func(f func()) bool) {
	x, opened := w.exchange, make(chan bool, 1)
	f := x.conn.front
	if f.cfg.Backend == nil || !f.cfg.Loop.Post(func() { opened <- x.conn.handOver(x, open) }) {
		return nil
	}
	select {
	case ok := <-opened:
		if ok {
			return f.cfg.Loop.Post
		}
	case <-x.request.Context().Done(): // the stream has ended before; the loop may have, too
	}
	return nil
}

// handOver has a duplex answer the rest of an exchange. It reports false if the stream has ended.
func (c *conn) handOver(x *exchange, open func(front.Backend, grpc.Sender) grpc.Duplex) bool {
	s := x.stream
	x.mu.Lock()
	gone, failed := x.gone, false
	if !gone {
		failed = c.pumpExchange(s, x)
		x.leave()
	}
	x.mu.Unlock()
	if failed {
		c.remove(s)
	}
	if gone || failed {
		return false
	}
	s.x, s.lasts, s.message = nil, true, x.body.rest()
	s.duplex = open(c.front.cfg.Backend, &sender{c, s})
	c.duplexes++
	if c.stopping {
		s.duplex.Stop()
	}
	c.feed(s)
	c.keep()
	return true
}

func (r *request) isGRPC() bool {
	typed := 0
	for _, f := range r.fields {
		if f.Name == "content-type" {
			if !grpc.IsContentType(f.Value) {
				return false
			}
			typed++
		}
	}
	return typed == 1
}

// feed has the duplex of s take what has come, unless it is doing so.
func (c *conn) feed(s *stream) {
	if s.feeding {
		return
	}
	s.feeding, s.resumed = true, false
	for len(s.out) == 0 && c.streams[s.id] == s {
		used, end := s.duplex.Take(s.message, s.ended)
		if c.streams[s.id] != s {
			break
		}
		if s.message = s.message[:copy(s.message, s.message[used:])]; len(s.message) == 0 && cap(s.message) > messageKept {
			s.message = nil
		}
		c.giveBackDuplex(s, int64(used))
		if end != nil {
			c.endDuplex(s, end)
		}
		if used == 0 || end != nil {
			break
		}
	}
	s.feeding = false
}

// giveBackDuplex lets the client send n more bytes. It is told when that is worth a frame.
func (c *conn) giveBackDuplex(s *stream, n int64) {
	c.giveBack(n)
	if s.credit += n; s.credit >= bodyWindow/4 {
		c.giveBackStream(s, s.credit)
		s.credit = 0
	}
}

// endDuplex sends the status of a call, the last of it.
func (c *conn) endDuplex(s *stream, end error) {
	if end == io.EOF {
		end = nil
	}
	block := c.encoder.encode(appendStatus(nil, end), &c.front.encoded)
	c.conn.SetBuffered(c.appendHeaders(c.conn.Buffered(), flagEndHeaders|flagEndStream, s.id, block))
	c.earn()
	c.complete(s)
}

// stopDuplexes ends the calls that nothing is under way for, and the others after that.
func (c *conn) stopDuplexes() {
	for _, s := range c.streams {
		if s.duplex != nil {
			s.duplex.Stop()
			c.feed(s)
		}
	}
}

// appendStatus appends the fields of the status of a call.
func appendStatus(fields []field, err error) []field {
	status := grpc.StatusOf(err)
	status.Fields(func(name, value string) { fields = append(fields, field{Name: strings.ToLower(name), Value: value}) })
	return fields
}
