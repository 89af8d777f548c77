//go:build linux

package chaos

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// linkChunkSize times linkChunksMax bounds what a link holds back, about what a
	// kernel would; beyond it the sender finds its socket full.
	linkChunkSize = 16 << 10
	linkChunksMax = 64
	// linkPoll is how often a link that holds looks whether it still has to.
	linkPoll = 2 * time.Millisecond
)

// LinkFault is what is wrong with one direction of a connection. The zero value is
// nothing.
type LinkFault struct {
	// Delay is how much later each byte arrives.
	Delay time.Duration
	// Hold lets nothing through; it arrives when that ends, however old it is.
	Hold bool
	// Drop loses everything. A connection that has lost bytes is of no use, so it has
	// to be cut when that ends.
	Drop bool
	// BytesPerSecond limits the rate, if it is not 0.
	BytesPerSecond int
}

// Link is one direction of all connections through a [Proxy]. The zero value carries
// everything at once.
type Link struct {
	mu    sync.Mutex
	fault LinkFault
}

// Set begins a fault, or ends it with the zero LinkFault.
func (l *Link) Set(f LinkFault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = f
}

func (l *Link) get() LinkFault {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fault
}

// chunk is what one read brought: bytes, or the end of the direction or connection.
type chunk struct {
	bytes []byte
	err   error
	due   time.Time
}

// run carries bytes until the sending side ends this direction, or either side the
// connection.
func (l *Link) run(c *pipe, from, to *net.TCPConn) {
	chunks := make(chan chunk, linkChunksMax)
	var reader sync.WaitGroup
	reader.Go(func() { l.read(c, from, chunks) })
	if !l.write(c, to, chunks) {
		c.end()
	}
	reader.Wait()
}

func (l *Link) read(c *pipe, from *net.TCPConn, chunks chan<- chunk) {
	for {
		buf := make([]byte, linkChunkSize)
		n, err := from.Read(buf)
		fault := l.get()
		if err == nil && fault.Drop {
			continue
		}
		select {
		case chunks <- chunk{buf[:n], err, time.Now().Add(fault.Delay)}:
		case <-c.done:
			return
		}
		if err != nil {
			return
		}
	}
}

// write reports whether the direction ended as it should.
func (l *Link) write(c *pipe, to *net.TCPConn, chunks <-chan chunk) bool {
	for {
		select {
		case next := <-chunks:
			if !c.sleep(time.Until(next.due)) || !l.released(c) {
				return false
			}
			if next.err != nil {
				return errors.Is(next.err, io.EOF) && to.CloseWrite() == nil
			}
			if rate := l.get().BytesPerSecond; rate > 0 && !c.sleep(time.Duration(len(next.bytes))*time.Second/time.Duration(rate)) {
				return false
			}
			if _, err := to.Write(next.bytes); err != nil {
				return false
			}
		case <-c.done:
			return false
		}
	}
}

// released waits while the link lets nothing through, not even an end. It reports
// false if the connection ended meanwhile.
func (l *Link) released(c *pipe) bool {
	for fault := l.get(); fault.Hold || fault.Drop; fault = l.get() {
		if !c.sleep(linkPoll) {
			return false
		}
	}
	return true
}

// sleep reports false if the connection ended meanwhile.
func (c *pipe) sleep(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.done:
		return false
	}
}
