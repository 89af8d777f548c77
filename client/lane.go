package client

import (
	"bufio"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// laneBufferSize is the longest line of an answer that is read, and some four hundred ids.
const laneBufferSize = 8 << 10

// A lane is one connection with at most one request under way. A node answers the
// requests of one connection one after the other, so a second one on the same would
// only wait there, where nothing can join it.
//
// The request belongs to whoever swaps it out of the lane: the reader with its answer,
// or, when the connection fails, the first who notices.
type lane struct {
	pool *pool
	addr string
	conn net.Conn
	read *bufio.Reader

	pending atomic.Pointer[batch]
	since   atomic.Int64 // when it was sent, on Client.now; only its age is looked at
	ended   bool         // by pool.mu
	// writes carries requests to a goroutine of their own, unless conn is a TCP
	// connection: that takes a request without blocking, since its buffer is empty.
	writes chan []byte
	over   chan struct{} // closed when the reader ends

	answered atomic.Bool // at least once
	own      batch       // of lone calls, again and again
	rests    int         // in a row; the reader's
}

func newLane(p *pool, addr string, conn net.Conn, read *bufio.Reader) *lane {
	l := &lane{pool: p, addr: addr, conn: conn, read: read, over: make(chan struct{})}
	if _, direct := conn.(*net.TCPConn); !direct {
		l.writes = make(chan []byte, 1)
	}
	return l
}

// send sends a request. The lane must be the caller's, by pool.take.
func (l *lane) send(b *batch) {
	b.floor = l.pool.client.floor.now()
	l.since.Store(int64(l.pool.client.now()))
	l.pending.Store(b)
	select {
	case <-l.over:
		// The reader may have looked for a request before this one was there. If it
		// ends from here on, it will find it.
		l.abandon(errOver)
		return
	default:
	}
	if l.writes != nil {
		l.writes <- b.line
		return
	}
	if _, err := l.conn.Write(b.line); err != nil {
		_ = l.conn.Close() // the reader notices
	}
}

// write is the goroutine of a lane that has one.
func (l *lane) write() {
	for {
		select {
		case <-l.over:
			return
		case line := <-l.writes:
			if _, err := l.conn.Write(line); err != nil {
				_ = l.conn.Close()
				return
			}
		}
	}
}

// abandon queues the request under way again, if there is one.
func (l *lane) abandon(err error) {
	if b := l.pending.Swap(nil); b != nil {
		l.pool.again(b)
		l.pool.client.retried(l.addr, err)
		l.pool.dispatch()
	}
}

var (
	errOver    = errors.New("the connection has ended")
	errUnasked = errors.New("an answer to nothing")
	errReplied = errors.New("more than one answer")
)

// run reads answers until the connection ends. The request under way, if any, is then
// queued again.
func (l *lane) run() {
	p := l.pool
	p.put(l)
	p.dispatch()
	err := l.serve()
	_ = l.conn.Close()
	close(l.over)
	p.drop(l)
	l.abandon(err)
	p.client.post(func(k *keeper) { k.laneEnded(l, err) })
	p.dispatch()
}

func (l *lane) serve() error {
	for {
		// Something has to come before it is known to whom it belongs.
		if _, err := l.read.Peek(1); err != nil {
			return err
		}
		b := l.pending.Load()
		if b == nil {
			return errUnasked
		}
		fault, err := readAnswer(l.read, b)
		if err != nil {
			return err
		}
		if l.read.Buffered() > 0 {
			// What follows would be taken for the answer to the next request.
			return errReplied
		}
		if l.pending.Swap(nil) != b {
			panic("client: an answer belongs to two requests")
		}
		if fault == nil {
			if err := l.pool.client.inOrder(l.addr, b); err != nil {
				b.finish(err)
				return err
			}
		}
		if !l.settle(b, fault) {
			return l.idle()
		}
	}
}

// settle deals with an answer, and reports whether the lane can go on.
func (l *lane) settle(b *batch, fault *fault) bool {
	p, c := l.pool, l.pool.client
	took := c.now() - time.Duration(l.since.Load())
	switch {
	case fault == nil:
		l.rests = 0
		l.answered.Store(true)
		p.measured(took)
		several := b.calls() > 1
		p.put(l)
		c.observe(l, b, took)
		b.finish(nil)
		if p.doubted.Load() && p.doubted.CompareAndSwap(true, false) {
			c.post(func(k *keeper) { k.recovered(l) })
		}
		if several {
			p.gather()
		}
	case fault.final():
		l.rests = 0
		p.put(l)
		b.finish(fault.err())
	default:
		moved := fault.leader != "" && fault.leader != l.addr && b.kind != kindID
		if moved {
			p.retire(l.addr)
		}
		p.again(b)
		c.retried(l.addr, fault.err())
		if moved {
			c.post(func(k *keeper) { k.moved(l, fault.leader) })
			return false
		}
		if b.kind != kindID {
			c.post(func(k *keeper) { k.refused(l) })
		}
		p.dispatch() // on another lane
		if !l.rest() {
			return false
		}
		p.put(l)
	}
	p.dispatch()
	return true
}

// rest leaves a node alone that refuses, longer from time to time.
func (l *lane) rest() bool {
	timer := time.NewTimer(backoff(l.rests))
	defer timer.Stop()
	l.rests++
	select {
	case <-timer.C:
		return true
	case <-l.pool.client.ctx.Done():
		return false
	}
}

// idle waits until the connection is closed by the keeper, or by the node.
func (l *lane) idle() error {
	if _, err := l.read.Peek(1); err != nil {
		return err
	}
	return errUnasked
}

// silent returns for how long the lane has been waiting for an answer.
func (l *lane) silent(now time.Duration) time.Duration {
	if l.pending.Load() == nil {
		return 0
	}
	return now - time.Duration(l.since.Load())
}

// lost turns the end of a connection into an error that says what happened.
func lost(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("the connection was closed")
	case errors.Is(err, net.ErrClosed):
		return errors.New("the connection was given up")
	}
	return err
}
