//go:build !linux || portable

package loop

import (
	"io"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// readAhead is what a reader takes before the loop has asked, and the most that one
	// read gives. It is small: every connection has it.
	readAhead = 4 << 10
	// writeAhead is the most that a writer is given at once. It is to this poller what
	// its socket buffer is to a system call.
	writeAhead = 32 << 10
	// writeKeep is the largest buffer that a writer with nothing to do keeps.
	writeKeep = 1 << 10
	// acceptsMax is how many new connections may wait for the loop.
	acceptsMax = 256
	// dropGrace is how long a closed connection may take to write what the loop has
	// handed over.
	dropGrace = time.Second
)

// past is a deadline that ends what is under way.
var past = time.Unix(1, 0)

// poller has a goroutine that reads and one that writes for each connection, and one
// that accepts for each listener. It works with everything that package net has.
type poller struct {
	bell     chan struct{} // holds one token when there is news
	timer    *time.Timer
	accepted chan accepted
	workers  sync.WaitGroup // of all connections

	mu     sync.Mutex
	posted []*Conn // that have news
	spare  []*Conn // for use as posted
}

type accepted struct {
	s  *listener
	nc net.Conn
}

// socket is what the loop and the goroutines of one connection share.
type socket struct {
	nc                net.Conn
	watching, writing bool // what the loop wants to know about
	posted            atomic.Bool

	mu       sync.Mutex
	changed  sync.Cond
	got      []byte // by the reader, which waits until the loop has taken it
	gotErr   error  // why the reader has ended
	given    []byte // to the writer
	givenErr error  // why it does not write any more
	room     []byte // the memory of given
	ending   bool   // the writer is to end the output when it is done
	dropped  bool   // the writer is to close the connection when it is done
	released bool   // reader and writer are to end at once, and to close nothing
	workers  sync.WaitGroup
}

type listening struct {
	ln    net.Listener
	stop  chan struct{}
	ended chan struct{}
}

func (p *poller) open() error {
	p.bell = make(chan struct{}, 1)
	p.timer = time.NewTimer(time.Hour)
	p.accepted = make(chan accepted, acceptsMax)
	return nil
}

func (p *poller) listen(s *listener, ln net.Listener) error {
	s.ln, s.stop, s.ended = ln, make(chan struct{}), make(chan struct{})
	go p.accept(s)
	return nil
}

// accept is the goroutine of a listener.
func (p *poller) accept(s *listener) {
	defer close(s.ended)
	for {
		nc, err := s.ln.Accept()
		select {
		case <-s.stop:
			if err == nil {
				_ = nc.Close()
			}
			return
		default:
		}
		if err != nil {
			s.loop.cannotAccept(s, err)
			select {
			case <-s.stop:
				return
			case <-time.After(acceptPause):
				continue
			}
		}
		select {
		case p.accepted <- accepted{s, nc}:
			p.wake()
		case <-s.stop:
			_ = nc.Close()
			return
		}
	}
}

// addrOf returns the other side's address of TCP; the zero AddrPort for others.
func addrOf(nc net.Conn) netip.AddrPort {
	if a, ok := nc.RemoteAddr().(*net.TCPAddr); ok {
		at := a.AddrPort()
		return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	}
	return netip.AddrPort{}
}

func (p *poller) unlisten(s *listener) {
	close(s.stop)
	_ = s.ln.Close()
	<-s.ended
}

func (p *poller) attach(c *Conn, nc net.Conn) error {
	c.nc, c.watching = nc, true
	c.changed.L = &c.socket.mu
	_ = nc.SetDeadline(time.Time{})
	for _, work := range []func(*Conn){p.reader, p.writer} {
		p.workers.Add(1)
		c.workers.Add(1)
		go func() {
			defer p.workers.Done()
			defer c.workers.Done()
			work(c)
		}()
	}
	return nil
}

// reader is the goroutine that reads for c.
func (p *poller) reader(c *Conn) {
	buf := make([]byte, readAhead)
	for {
		n, err := c.nc.Read(buf)
		c.socket.mu.Lock()
		c.got = buf[:n]
		if !c.released {
			c.gotErr = err
		}
		p.post(c)
		for len(c.got) > 0 && !c.dropped && !c.released {
			c.changed.Wait()
		}
		end := err != nil || c.dropped || c.released
		c.socket.mu.Unlock()
		if end {
			return
		}
	}
}

// writer is the goroutine that writes for c, and closes it.
func (p *poller) writer(c *Conn) {
	c.socket.mu.Lock()
	defer c.socket.mu.Unlock()
	for {
		for len(c.given) == 0 && !c.ending && !c.dropped && !c.released {
			c.changed.Wait()
		}
		switch {
		case c.released:
			return
		case len(c.given) > 0:
			b := c.given
			c.socket.mu.Unlock()
			n, err := c.nc.Write(b)
			c.socket.mu.Lock()
			if c.released {
				c.given = b[n:]
				return
			}
			c.given, c.givenErr = nil, err
			if cap(c.room) > writeKeep {
				c.room = nil
			}
			p.post(c)
		case c.ending:
			c.ending = false
			_ = c.nc.(writeCloser).CloseWrite()
		default:
			_ = c.nc.Close()
			return
		}
	}
}

type writeCloser interface{ CloseWrite() error }

// post says that there is news of c.
func (p *poller) post(c *Conn) {
	if !c.posted.Swap(true) {
		p.mu.Lock()
		p.posted = append(p.posted, c)
		p.mu.Unlock()
		p.wake()
	}
}

func (p *poller) release(c *Conn) (nc net.Conn, unread, unsent []byte, err error) {
	c.socket.mu.Lock()
	c.released = true
	c.changed.Broadcast()
	c.socket.mu.Unlock()
	_ = c.nc.SetDeadline(past)
	c.workers.Wait()
	_ = c.nc.SetDeadline(time.Time{})
	return c.nc, c.got, c.given, nil
}

func (p *poller) drop(c *Conn) {
	_ = c.nc.SetWriteDeadline(time.Now().Add(dropGrace))
	c.socket.mu.Lock()
	c.dropped = true
	c.changed.Broadcast()
	c.socket.mu.Unlock()
}

// shut ends the output of c, and reports whether it is worth waiting for the other side
// to end its own.
func (p *poller) shut(c *Conn) bool {
	if _, ok := c.nc.(writeCloser); !ok {
		return false
	}
	c.socket.mu.Lock()
	c.ending = true
	c.changed.Broadcast()
	c.socket.mu.Unlock()
	return true
}

func (p *poller) watch(c *Conn, on bool) {
	if on && !c.watching {
		p.post(c) // what has come meanwhile is news again
	}
	c.watching = on
}

func (p *poller) watchWrite(c *Conn, on bool) {
	if on && !c.writing {
		p.post(c)
	}
	c.writing = on
}

func (p *poller) read(c *Conn, b []byte) (int, error) {
	c.socket.mu.Lock()
	defer c.socket.mu.Unlock()
	switch {
	case len(c.got) > 0:
		n := copy(b, c.got)
		if c.got = c.got[n:]; len(c.got) == 0 {
			c.changed.Broadcast()
		}
		return n, nil
	case c.gotErr != nil:
		return 0, c.gotErr
	}
	return 0, errAgain
}

func (p *poller) write(c *Conn, b []byte) (int, error) {
	c.socket.mu.Lock()
	defer c.socket.mu.Unlock()
	switch {
	case c.givenErr != nil:
		return 0, c.givenErr
	case len(c.given) > 0:
		return 0, errAgain
	}
	c.room = append(c.room[:0], b[:min(len(b), writeAhead)]...)
	c.given = c.room
	c.changed.Broadcast()
	return len(c.given), nil
}

func (p *poller) wake() {
	select {
	case p.bell <- struct{}{}:
	default:
	}
}

func (p *poller) wait(l *Loop, d time.Duration) error {
	p.sleep(d)
	l.now = l.clock()
	p.take(l)
	p.mu.Lock()
	news := p.posted
	p.posted, p.spare = p.spare, nil
	p.mu.Unlock()
	for _, c := range news {
		c.posted.Store(false)
		p.handle(l, c)
	}
	clear(news)
	p.spare = news[:0]
	return nil
}

// sleep waits for news.
func (p *poller) sleep(d time.Duration) {
	if d == 0 {
		select {
		case <-p.bell:
		default:
			runtime.Gosched() // there may be news soon, if they are let
		}
		return
	}
	p.timer.Reset(d)
	select {
	case <-p.bell:
	case <-p.timer.C:
	}
	p.timer.Stop()
}

// take takes new connections.
func (p *poller) take(l *Loop) {
	for range acceptsMax {
		select {
		case a := <-p.accepted:
			if a.s.stopped {
				_ = a.nc.Close()
				continue
			}
			c := &Conn{remote: addrOf(a.nc)}
			if b, ok := a.nc.(interface{ SetWriteBuffer(int) error }); ok {
				_ = b.SetWriteBuffer(a.s.limits.UnsentMax)
			}
			_ = p.attach(c, a.nc)
			l.accepted(a.s, c)
		default:
			return
		}
	}
	p.wake() // there may be more
}

// handle does what the news of c ask for.
func (p *poller) handle(l *Loop, c *Conn) {
	if c.state == stateGone {
		return
	}
	readable, writable, err := c.news()
	if c.writing && writable {
		l.write(c)
	}
	switch {
	case err != nil:
		l.end(c, err)
	case c.watching && readable && c.state != stateGone:
		l.readable(c)
		if readable, _, _ := c.news(); c.state != stateGone && c.watching && readable {
			p.post(c) // the rest is for the next turn
		}
	}
}

// news returns whether c can be read or written, and why it cannot any more.
func (s *socket) news() (readable, writable bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err = s.givenErr; err == nil && s.gotErr != io.EOF && len(s.got) == 0 {
		err = s.gotErr
	}
	return len(s.got) > 0 || s.gotErr != nil, len(s.given) == 0, err
}

func (p *poller) close() error {
	for {
		select {
		case a := <-p.accepted:
			_ = a.nc.Close()
			continue
		default:
		}
		break
	}
	p.timer.Stop()
	p.workers.Wait()
	return nil
}

// keepProcessor does nothing: the loop sleeps in a channel.
func (p *poller) keepProcessor() {}

func (p *poller) waitForWake(time.Duration) bool { return false }
