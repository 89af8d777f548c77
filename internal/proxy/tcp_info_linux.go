package proxy

import (
	"net"

	"golang.org/x/sys/unix"
)

// isGone reports whether the connection has ended in both directions, by a reset for example.
func isGone(c *net.TCPConn) bool {
	info := tcpInfo(c)
	return info != nil && info.State == unix.BPF_TCP_CLOSE
}

// taken returns how many bytes the other side's TCP has acknowledged, or 0 if the system does not tell.
func taken(c *net.TCPConn) uint64 {
	info := tcpInfo(c)
	if info == nil {
		return 0
	}
	return info.Bytes_acked
}

// tcpInfo returns nil if c is closed here.
func tcpInfo(c *net.TCPConn) (info *unix.TCPInfo) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	_ = raw.Control(func(fd uintptr) { info, _ = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	return info
}
