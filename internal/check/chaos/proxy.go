//go:build linux

package chaos

import (
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Proxy forwards the connections from one node to another, with a fault for each
// direction.
type Proxy struct {
	// From is the ID of the node that dials, To that of the other.
	From, To uint64
	// Forth forwards what the dialing node sends, Back what it receives.
	Forth, Back Link

	target string

	mu     sync.Mutex
	closed bool
	pipes  map[*pipe]struct{}
}

// pipe is one connection through a proxy: to the node that dialed, and to the other.
type pipe struct {
	dialed, dialing *net.TCPConn
	done            chan struct{} // closed by end
	once            sync.Once
}

// proxyDialTimeout bounds a connection to a node on the same machine, which may be
// frozen.
const proxyDialTimeout = time.Second

// name names the pair of nodes.
func (p *Proxy) name() string { return fmt.Sprintf("link %d-%d", p.From, p.To) }

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Cut()
}

// Cut ends all connections by a reset, in both directions.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pipe := range p.pipes {
		pipe.end()
	}
}

// forward runs one connection to its end. What the dialing node sends comes from read.
func (p *Proxy) forward(dialing *net.TCPConn, read io.Reader) {
	conn, err := net.DialTimeout("tcp", p.target, proxyDialTimeout)
	if err != nil {
		reset(dialing)
		return
	}
	c := &pipe{dialing: dialing, dialed: conn.(*net.TCPConn), done: make(chan struct{})}
	if !p.enter(c) {
		c.end()
		return
	}
	var links sync.WaitGroup
	links.Go(func() { p.Forth.run(c, read, c.dialed) })
	links.Go(func() { p.Back.run(c, c.dialed, c.dialing) })
	links.Wait()
	c.end()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pipes, c)
}

func (p *Proxy) enter(c *pipe) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.pipes[c] = struct{}{}
	}
	return !p.closed
}

// end resets both sides. What was sent before a FIN has been forwarded by then.
func (c *pipe) end() {
	c.once.Do(func() {
		close(c.done)
		reset(c.dialing)
		reset(c.dialed)
	})
}

// reset closes a connection so that the other side gets a reset, not an end.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}
