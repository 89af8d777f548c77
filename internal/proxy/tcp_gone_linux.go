package proxy

import (
	"net"

	"golang.org/x/sys/unix"
)

// isGone reports whether the connection has ended in both directions, by a reset for example.
func isGone(c *net.TCPConn) (gone bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) { // an error means that it is closed here: gone stays false
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		gone = err == nil && info.State == unix.BPF_TCP_CLOSE
	})
	return gone
}
