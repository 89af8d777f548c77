//go:build linux

package chaos

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// front listens in place of one node and passes each connection to the proxy of the node that
// dials. All members reach a node at the one address that is on record, so the address cannot tell
// them apart. The kernel can: it knows the process that owns the other end. It has to be asked in a way that costs little: nodes
// give up after 2 s, and dial again, on a machine that is busy already.
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
	inode := f.inode(port)
	if inode == 0 {
		return ""
	}
	socket := fmt.Sprintf("socket:[%d]", inode)
	processes, _ := os.ReadDir("/proc")
	for _, p := range processes {
		process := "/proc/" + p.Name()
		environ, _ := os.ReadFile(process + "/environ") // an error means that it is no process, has ended, or is another's
		for setting := range bytes.SplitSeq(environ, []byte{0}) {
			addr, ok := strings.CutPrefix(string(setting), "RAFT_ADDR=")
			if ok && f.dialers[addr] != nil && owns(process, socket) {
				return addr
			}
		}
	}
	return ""
}

// inode returns the kernel's number of the socket that is connected from a port to this front, 0 if there is none. It asks for
// that one socket (sock_diag(7)): /proc/net/tcp has all.
func (f *front) inode(port int) uint32 {
	const (
		byFamily          = 20 // SOCK_DIAG_BY_FAMILY
		request           = syscall.NLMSG_HDRLEN
		id                = request + 8 // of the socket: ports, addresses, interface, cookie
		requestEnd        = id + 48
		inode             = syscall.NLMSG_HDRLEN + 68 // in the answer
		loopback   uint32 = 0x7F000001
	)
	b := make([]byte, requestEnd, 4096)
	binary.NativeEndian.PutUint32(b, requestEnd)
	binary.NativeEndian.PutUint16(b[4:], byFamily)
	binary.NativeEndian.PutUint16(b[6:], syscall.NLM_F_REQUEST)
	b[request], b[request+1] = syscall.AF_INET, syscall.IPPROTO_TCP
	binary.NativeEndian.PutUint32(b[request+4:], ^uint32(0)) // in any state
	binary.BigEndian.PutUint16(b[id:], uint16(port))
	binary.BigEndian.PutUint16(b[id+2:], uint16(f.port))
	binary.BigEndian.PutUint32(b[id+4:], loopback)
	binary.BigEndian.PutUint32(b[id+20:], loopback)
	binary.NativeEndian.PutUint64(b[id+40:], ^uint64(0)) // any cookie

	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, syscall.NETLINK_INET_DIAG)
	if err != nil {
		return 0
	}
	defer syscall.Close(fd)
	if err := syscall.Sendto(fd, b, 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return 0
	}
	n, _, err := syscall.Recvfrom(fd, b[:cap(b)], 0)
	b = b[:max(n, 0)]
	if err != nil || len(b) < inode+4 || binary.NativeEndian.Uint16(b[4:]) != byFamily {
		return 0
	}
	return binary.NativeEndian.Uint32(b[inode:])
}

// owns reports whether a process, a directory below /proc, has the socket open.
func owns(process, socket string) bool {
	descriptors, _ := os.ReadDir(process + "/fd")
	for _, d := range descriptors {
		if name, err := os.Readlink(process + "/fd/" + d.Name()); err == nil && name == socket {
			return true
		}
	}
	return false
}
