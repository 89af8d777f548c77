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
	// linkChunkSize times linkChunksMax bounds the bytes that a link buffers, about as
	// much as a kernel; beyond it the sender blocks.
	linkChunkSize = 16 << 10
	linkChunksMax = 64
	// linkPoll is the interval at which a holding link checks whether the fault has ended.
	linkPoll = 2 * time.Millisecond
)

// LinkFault is a fault of one direction of a connection. The zero value is none.
type LinkFault struct {
	// Delay delays each byte.
	Delay time.Duration
	// Hold holds back everything until the fault ends.
	Hold bool
	// Drop discards everything. A connection that has lost bytes is unusable, so close it
	// when the fault ends.
	Drop bool
	// BytesPerSecond limits the rate; 0 means no limit.
	BytesPerSecond int
}

// Link is one direction of all connections through a [Proxy]. The zero value forwards
// without delay.
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

// chunk is the result of one read: bytes, or the error that ended the direction.
type chunk struct {
	bytes []byte
	err   error
	due   time.Time
}

// run forwards bytes until the sender ends this direction, or either side closes the
// connection.
func (l *Link) run(c *pipe, from io.Reader, to *net.TCPConn) {
	chunks := make(chan chunk, linkChunksMax)
	var reader sync.WaitGroup
	reader.Go(func() { l.read(c, from, chunks) })
	if !l.write(c, to, chunks) {
		c.end()
	}
	reader.Wait()
}

func (l *Link) read(c *pipe, from io.Reader, chunks chan<- chunk) {
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

// write reports whether the direction ended cleanly.
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

// released waits while the link holds or drops, so these delay a FIN as well. It reports
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
