// Package address owns the form of the addresses at which nodes are reached: host:port. It decides by
// text alone; only a resolver knows whether a name exists.
package address

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
)

const (
	// PortMax is the largest port.
	PortMax = 65535
	// SizeMax is the longest address in bytes: the records of members have that much room, and so
	// have the messages between nodes. DNS names have at most 253.
	SizeMax = 256
)

// Valid reports whether addr is host:port with a valid host and a decimal port of at least portMin, in
// at most [SizeMax] bytes of printable ASCII.
func Valid(addr string, portMin int64) bool {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || !ValidHost(host) || len(addr) > SizeMax {
		return false
	}
	n, err := strconv.ParseInt(port, 10, 64)
	return err == nil && portMin <= n && n <= PortMax
}

// ValidHost reports whether host is an IP address or could be a host name. Names are ASCII; those of
// other scripts have a form for DNS, as in xn--bcher-kva.example.
func ValidHost(host string) bool {
	if strings.ContainsFunc(host, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return false
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return host != "" && !strings.ContainsAny(host, ":/[]@=,\"'")
}

// Unspecified reports whether addr is host:port with a host that means every interface of this
// machine, to which nobody can connect from elsewhere.
func Unspecified(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip, _ := netip.ParseAddr(host)
	return err == nil && (host == "" || ip.Unmap().WithZone("").IsUnspecified())
}

// networkBits6 is how many bits of an IPv6 address count in [Network].
const networkBits6 = 64

// Network returns what limits for each address count as one client: an IPv4 address, or an IPv6 network of 64 bits, all of whose
// addresses a client can use.
func Network(addr netip.Addr) netip.Addr {
	addr = addr.Unmap()
	if addr.Is6() && !addr.IsLoopback() {
		if prefix, err := addr.WithZone("").Prefix(networkBits6); err == nil {
			return prefix.Addr()
		}
	}
	return addr
}

// Share returns how many of most connections one client may have: three quarters, so that it takes more than one to lock out all
// others, and at least one.
func Share(most int) int { return max(1, most*3/4) }

// NetworkOf is [Network] of an address with a port, and the zero Addr if it has no IP address.
func NetworkOf(addr net.Addr) netip.Addr {
	at, _ := netip.ParseAddrPort(addr.String())
	return Network(at.Addr())
}
