//go:build linux

package chaos

import (
	"bufio"
	"bytes"
	"errors"
	"net"
	"sync"
	"testing"
	"time"
)

// front listens in place of one node and passes each connection to the proxy of the node that
// dials. All members reach a node at the one address that is on record, so the address cannot tell
// them apart. The first bytes of a dialer can: they name its address for clients.
type front struct {
	dialers map[string]*Proxy // by the HTTP address of the node that dials
	wait    sync.WaitGroup
}

// addFront starts the front of n, with a proxy for each node that dials it, and returns its
// address. The end of the test ends it.
func (c *Cluster) addFront(n *Node) string {
	c.t.Helper()
	f := &front{dialers: map[string]*Proxy{}}
	for _, from := range c.Nodes {
		if from.ID > n.ID {
			p := &Proxy{From: from.ID, To: n.ID, target: n.RaftAddr, pipes: map[*pipe]struct{}{}}
			c.Proxies, f.dialers[from.HTTPAddr] = append(c.Proxies, p), p
		}
	}
	return f.listen(c.t)
}

// listen starts the front, and returns its address.
func (f *front) listen(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.wait.Go(func() { f.accept(listener) })
	t.Cleanup(func() {
		_ = listener.Close()
		for _, p := range f.dialers {
			p.close()
		}
		f.wait.Wait()
	})
	return listener.Addr().String()
}

func (f *front) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(pollInterval)
			continue
		}
		f.wait.Go(func() { f.pass(conn.(*net.TCPConn)) })
	}
}

// helloTimeout bounds the wait for the first bytes of a dialer, which may be frozen.
const helloTimeout = 10 * time.Second

// pass hands a connection to the proxy of its dialer, or resets it: it may be closed already, or
// that of a node that only asks whether anybody listens.
func (f *front) pass(conn *net.TCPConn) {
	read := bufio.NewReader(conn)
	_ = conn.SetReadDeadline(time.Now().Add(helloTimeout))
	p := f.dialer(read)
	if p == nil {
		reset(conn)
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	p.forward(conn, read)
}

// dialer returns the proxy of who has dialed, nil for nobody. What it reads stays to be read.
func (f *front) dialer(read *bufio.Reader) *Proxy {
	for {
		if _, err := read.Peek(read.Buffered() + 1); err != nil {
			return nil // it has ended, or the buffer is full
		}
		hello, _ := read.Peek(read.Buffered())
		for addr, p := range f.dialers {
			if bytes.Contains(hello, []byte(addr)) {
				return p
			}
		}
	}
}
