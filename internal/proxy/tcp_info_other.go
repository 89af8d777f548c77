//go:build !linux

package proxy

import "net"

// isGone reports whether the connection has ended in both directions. Only Linux tells.
func isGone(*net.TCPConn) bool { return false }

// taken returns how many bytes the other side's TCP has acknowledged. Only Linux tells.
func taken(*net.TCPConn) uint64 { return 0 }
