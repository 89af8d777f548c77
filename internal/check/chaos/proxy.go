//go:build linux

package chaos

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy forwards the connections from one node to another, with a fault for each
// direction.
type Proxy struct {
	// From is the ID of the node that dials, To that of the other.
	From, To uint64
	// Forth forwards what the dialing node sends, Back what it receives.
	Forth, Back Link

	target   string
	listener net.Listener // nil: a front passes the connections on
	wait     sync.WaitGroup

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

// NewProxy listens on a port of its own for connections to target. The end of the
// test ends it.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{target: target, listener: listener, pipes: map[*pipe]struct{}{}}
	p.wait.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Addr is the address to dial instead of the target.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// name names the pair of nodes.
func (p *Proxy) name() string { return fmt.Sprintf("link %d-%d", p.From, p.To) }

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	if p.listener != nil {
		_ = p.listener.Close()
	}
	p.Cut()
	p.wait.Wait()
}

// IsUsed reports whether a connection goes through p.
func (p *Proxy) IsUsed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pipes) > 0
}

// Cut ends all connections by a reset, in both directions.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pipe := range p.pipes {
		pipe.end()
	}
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(pollInterval)
			continue
		}
		p.wait.Go(func() { p.forward(conn.(*net.TCPConn)) })
	}
}

// forward runs one connection to its end.
func (p *Proxy) forward(dialing *net.TCPConn) {
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
	links.Go(func() { p.Forth.run(c, c.dialing, c.dialed) })
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
