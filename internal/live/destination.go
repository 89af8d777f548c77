package live

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"

	"github.com/isotone/isotone"
)

// RefusedError is a connection that a source may not make: the answer of a server, or of DNS, must
// not lead this node to the services that only it can reach. It counts as
// [isotone.CodeForbidden].
type RefusedError struct {
	// Reason says what is refused and what is allowed. It has no user, password, path or query.
	Reason string
}

// Error returns the reason.
func (e *RefusedError) Error() string { return e.Reason }

// Unwrap returns [isotone.ErrForbidden].
func (e *RefusedError) Unwrap() error { return isotone.ErrForbidden }

// onlyRefused returns the refusal that err wraps, without the text of the dialer and the client
// around it, or else err.
func onlyRefused(err error) error {
	var refused *RefusedError
	if errors.As(err, &refused) {
		return refused
	}
	return err
}

// linkLocal are the addresses that mean another thing on each machine: those of a link, and those at
// which clouds give a machine its credentials.
var linkLocal = []netip.Prefix{
	netip.MustParsePrefix("169.254.0.0/16"), // link-local; metadata of most clouds
	netip.MustParsePrefix("fe80::/10"),
	netip.MustParsePrefix("fd00:ec2::/32"),      // Amazon
	netip.MustParsePrefix("fd20:ce::254/128"),   // Google
	netip.MustParsePrefix("fd00:42::42/128"),    // Scaleway
	netip.MustParsePrefix("100.100.100.200/32"), // Alibaba
	netip.MustParsePrefix("168.63.129.16/32"),   // Azure
	netip.MustParsePrefix("192.0.0.192/32"),     // Oracle
}

// embedding are the prefixes of IPv6 addresses with an address of IPv4 in them, to which the packets
// go in the end, and the place of its first byte.
var embedding = []struct {
	prefix netip.Prefix
	at     int
}{
	{netip.MustParsePrefix("::/96"), 12},           // IPv4-compatible, RFC 4291
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12}, // IPv4-translated, RFC 2765
	{netip.MustParsePrefix("64:ff9b::/96"), 12},    // NAT64, RFC 6052
	{netip.MustParsePrefix("64:ff9b:1::/48"), 12},  // NAT64 of one site, RFC 8215
	{netip.MustParsePrefix("2002::/16"), 2},        // 6to4, RFC 3056
}

// metadataNames are the names of services at addresses in linkLocal.
var metadataNames = []string{"metadata.google.internal", "metadata.goog", "metadata", "instance-data", "instance-data.ec2.internal"}

// plainAddr returns the address to which packets to addr go: without a zone, and the address of IPv4 that
// addr may stand for.
func plainAddr(addr netip.Addr) netip.Addr {
	addr = addr.WithZone("").Unmap()
	for _, e := range embedding {
		if e.prefix.Contains(addr) && addr != netip.IPv6Loopback() && !addr.IsUnspecified() {
			b := addr.As16()
			return netip.AddrFrom4([4]byte(b[e.at:]))
		}
	}
	return addr
}

// isLinkLocal reports whether packets to addr go to one of linkLocal.
func isLinkLocal(addr netip.Addr) bool {
	addr = plainAddr(addr)
	return slices.ContainsFunc(linkLocal, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// isOwn reports whether packets to addr stay on this machine. If the addresses of its interfaces are not
// known, any address may be one of them.
func isOwn(addr netip.Addr) bool {
	addr = plainAddr(addr)
	if addr.IsLoopback() || addr.IsUnspecified() {
		return true
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	return slices.ContainsFunc(own, func(a net.Addr) bool {
		network, ok := a.(*net.IPNet)
		if !ok {
			return false
		}
		ip, ok := netip.AddrFromSlice(network.IP)
		return ok && ip.Unmap() == addr
	})
}

// destination is what one source may connect to: the host that LIVE names. Addresses of this machine and
// link-local ones must stand there themselves, or as one of the names that mean nothing else.
type destination struct {
	host string
	// literal is host as an address; invalid if it is a name.
	literal  netip.Addr
	resolver *net.Resolver         // nil: that of the system
	own      func(netip.Addr) bool // isOwn
	// proxy is that of the environment, or nil. The source is asked through it.
	proxy *destination
}

func newDestination(host string) *destination {
	d := &destination{host: plainHost(host), own: isOwn}
	d.literal, _ = netip.ParseAddr(d.host)
	return d
}

// names reports whether the host of LIVE means addr and not only resolves to it.
func (d *destination) names(addr netip.Addr) bool {
	switch {
	case d.literal.IsValid():
		// To the unspecified address, the system connects to the loopback address.
		return plainAddr(d.literal) == plainAddr(addr) || d.literal.Unmap().IsUnspecified() && plainAddr(addr).IsLoopback()
	case d.host == "localhost" || strings.HasSuffix(d.host, ".localhost"): // RFC 6761
		return plainAddr(addr).IsLoopback()
	}
	return slices.Contains(metadataNames, d.host) && isLinkLocal(addr)
}

// Dialer connects to the hosts of one source, for the drivers of databases. It is safe for concurrent
// use.
type Dialer struct {
	to []*destination
}

// NewDialer returns a dialer for a source whose URL has those hosts.
func NewDialer(hosts ...string) *Dialer {
	d := new(Dialer)
	for _, host := range hosts {
		d.to = append(d.to, newDestination(host))
	}
	return d
}

// Named reports whether the URL has that host.
func (d *Dialer) Named(host string) bool {
	host = plainHost(host)
	return slices.ContainsFunc(d.to, func(to *destination) bool { return to.host == host })
}

// DialContext connects to host:port. An address that only this machine reaches, see docs/live.md, is
// a [RefusedError] unless the URL has it.
func (d *Dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, _ := net.SplitHostPort(addr)
	to := newDestination("")
	if i := slices.IndexFunc(d.to, func(to *destination) bool { return to.host == plainHost(host) }); i >= 0 {
		to = d.to[i]
	}
	conn, err := to.dial(ctx, network, addr)
	if err != nil {
		return nil, onlyRefused(err)
	}
	return conn, nil
}

// plainHost returns the one spelling of a host.
func plainHost(host string) string { return strings.TrimSuffix(strings.ToLower(host), ".") }

// dial connects, but to no address of this machine or link that LIVE does not name. It looks at the
// address of the socket: a name may resolve to another one each time it is asked for.
func (d *destination) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	dialer := net.Dialer{Resolver: d.resolver}
	if network != "unix" {
		host, _, _ := net.SplitHostPort(addr)
		to := d
		switch plain := plainHost(host); {
		case d.proxy != nil && plain == d.proxy.host:
			to = d.proxy
		case plain != d.host:
			to = &destination{own: d.own} // a server that the source named
		}
		dialer.Control = func(_, address string, _ syscall.RawConn) error { return to.check(host, address) }
	}
	return dialer.DialContext(ctx, network, addr)
}

// dialTLS is dial, and TLS for the host of the configuration.
func (d *destination) dialTLS(ctx context.Context, addr string, cfg *tls.Config) (net.Conn, error) {
	raw, err := d.dial(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return conn, nil
}

// check returns a [RefusedError] if the address of a socket may not be dialed for that host.
func (d *destination) check(host, address string) error {
	to, err := netip.ParseAddrPort(address)
	switch {
	case err != nil:
		return &RefusedError{fmt.Sprintf("%.100q leads to no address", host)}
	case d.names(to.Addr()):
		return nil
	case isLinkLocal(to.Addr()):
		return &RefusedError{fmt.Sprintf("%.100q leads to %s, a link-local address or one of cloud metadata; if that is meant, put the address itself into LIVE", host, address)}
	case d.own(to.Addr()):
		return &RefusedError{fmt.Sprintf("%.100q leads to %s, an address of this machine; if that is meant, put the address itself or localhost into LIVE", host, address)}
	}
	return nil
}

// checkRedirect returns a [RefusedError] unless a redirect leads to the same scheme, host and port.
func (d *destination) checkRedirect(from, to *url.URL) error {
	if to.Scheme == from.Scheme && plainHost(to.Hostname()) == d.host && portOf(to) == portOf(from) {
		return nil
	}
	return &RefusedError{fmt.Sprintf("a redirect to %.120q; only redirects within %q are followed; put the address that is meant into LIVE",
		to.Scheme+"://"+to.Host, from.Scheme+"://"+from.Host)}
}

// portOf returns the port of a URL with a scheme of HTTP.
func portOf(u *url.URL) string {
	switch port := u.Port(); {
	case port != "":
		return port
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}
