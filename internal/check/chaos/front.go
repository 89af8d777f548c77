//go:build linux

package chaos

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// front listens in place of one node and passes each connection to the proxy of the node that
// dials. All members reach a node at the one address that is on record, so the address cannot tell
// them apart. The kernel can: it knows the process that owns the other end.
type front struct {
	port    int
	dialers map[string]*Proxy // by the RAFT_ADDR of the node that dials
	wait    sync.WaitGroup
}

// addFront starts the front of n, with a proxy for each node that dials it, and returns its
// address. The end of the test ends it.
func (c *Cluster) addFront(n *Node) string {
	c.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	f := &front{port: listener.Addr().(*net.TCPAddr).Port, dialers: map[string]*Proxy{}}
	for _, from := range c.Nodes {
		if from.ID > n.ID {
			p := &Proxy{From: from.ID, To: n.ID, target: n.RaftAddr, pipes: map[*pipe]struct{}{}}
			c.Proxies, f.dialers[from.RaftAddr] = append(c.Proxies, p), p
		}
	}
	f.wait.Go(func() { f.accept(listener) })
	c.t.Cleanup(func() {
		_ = listener.Close()
		f.wait.Wait()
		for _, p := range f.dialers {
			p.close()
		}
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

// pass hands a connection to the proxy of its dialer, or resets it: it may be closed already, or
// that of a node that only asks whether anybody listens.
func (f *front) pass(conn *net.TCPConn) {
	p := f.dialers[f.dialer(conn.RemoteAddr().(*net.TCPAddr).Port)]
	if p == nil {
		reset(conn)
		return
	}
	p.mu.Lock()
	closed := p.closed
	if !closed {
		p.wait.Go(func() { p.forward(conn) })
	}
	p.mu.Unlock()
	if closed {
		reset(conn)
	}
}

// dialer returns the RAFT_ADDR of the process that has connected from a port, "" if there is none.
func (f *front) dialer(port int) string {
	socket := f.socket(port)
	if socket == "" {
		return ""
	}
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range environs {
		environ, _ := os.ReadFile(file) // an error means that the process has ended, or is another's
		for _, setting := range bytes.Split(environ, []byte{0}) {
			addr, ok := strings.CutPrefix(string(setting), "RAFT_ADDR=")
			if ok && f.dialers[addr] != nil && owns(filepath.Dir(file), socket) {
				return addr
			}
		}
	}
	return ""
}

// socket returns the kernel's name of the socket that is connected from a port to this front, as
// in socket:[12345].
func (f *front) socket(port int) string {
	table, _ := os.ReadFile("/proc/net/tcp")
	from, to := fmt.Sprintf("0100007F:%04X", port), fmt.Sprintf("0100007F:%04X", f.port)
	for line := range strings.Lines(string(table)) {
		if fields := strings.Fields(line); len(fields) > 9 && fields[1] == from && fields[2] == to {
			return "socket:[" + fields[9] + "]"
		}
	}
	return ""
}

// owns reports whether a process, a directory below /proc, has the socket open.
func owns(process, socket string) bool {
	descriptors, _ := filepath.Glob(process + "/fd/*")
	for _, d := range descriptors {
		if name, err := os.Readlink(d); err == nil && name == socket {
			return true
		}
	}
	return false
}
