// Package address owns the form of the addresses at which nodes are reached: host:port. It decides by
// text alone; only a resolver knows whether a name exists.
package address

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// PortMax is the largest port.
const PortMax = 65535

// Valid reports whether addr is host:port with a valid host and a decimal port of at least portMin.
func Valid(addr string, portMin int64) bool {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || !ValidHost(host) {
		return false
	}
	n, err := strconv.ParseInt(port, 10, 64)
	return err == nil && portMin <= n && n <= PortMax
}

// ValidHost reports whether host is an IP address or could be a host name.
func ValidHost(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return host != "" && !strings.ContainsAny(host, ":/[]@=,\"' \t\r\n")
}

// Unspecified reports whether addr is host:port with a host that means every interface of this
// machine, to which nobody can connect from elsewhere.
func Unspecified(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip, _ := netip.ParseAddr(host)
	return err == nil && (host == "" || ip.Unmap().WithZone("").IsUnspecified())
}
