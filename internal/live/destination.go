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

// local are the addresses that mean another thing on each machine: those of a link, and those at
// which clouds give a machine its credentials.
var local = []netip.Prefix{
	netip.MustParsePrefix("169.254.0.0/16"), // link-local; metadata of most clouds
	netip.MustParsePrefix("fe80::/10"),
	netip.MustParsePrefix("fd00:ec2::/32"),      // Amazon
	netip.MustParsePrefix("fd20:ce::254/128"),   // Google
	netip.MustParsePrefix("100.100.100.200/32"), // Alibaba
	netip.MustParsePrefix("168.63.129.16/32"),   // Azure
}

// embedding are the prefixes of IPv6 whose last four bytes are an address of IPv4, to which the
// packets go in the end.
var embedding = []netip.Prefix{
	netip.MustParsePrefix("::/96"),
	netip.MustParsePrefix("64:ff9b::/96"), // NAT64
}

// metadataNames are the names of services at local addresses.
var metadataNames = []string{"metadata.google.internal", "metadata.goog", "metadata", "instance-data", "instance-data.ec2.internal"}

// isLocal reports whether packets to addr go to a local address.
func isLocal(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	for _, prefix := range embedding {
		if prefix.Contains(addr) {
			b := addr.As16()
			addr = netip.AddrFrom4([4]byte(b[12:]))
		}
	}
	return slices.ContainsFunc(local, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// destination is what one source may connect to: the host that LIVE names. A local address, see
// isLocal, must stand there itself, or as one of metadataNames.
type destination struct {
	host     string
	named    bool          // LIVE names a local address
	resolver *net.Resolver // nil: that of the system
}

func newDestination(host string) *destination {
	host = plainHost(host)
	addr, err := netip.ParseAddr(host)
	return &destination{host: host, named: err == nil && isLocal(addr) || slices.Contains(metadataNames, host)}
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
	to := &destination{}
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

// dial connects, but to no local address that LIVE does not name. It looks at the address of the
// socket: a name may resolve to another one each time it is asked for.
func (d *destination) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	dialer := net.Dialer{Resolver: d.resolver}
	host, _, err := net.SplitHostPort(addr)
	if network != "unix" && (err != nil || !d.named || plainHost(host) != d.host) {
		dialer.Control = func(_, address string, _ syscall.RawConn) error { return refuseLocal(host, address) }
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

// refuseLocal returns a [RefusedError] if the address of a socket is a local one.
func refuseLocal(host, address string) error {
	to, err := netip.ParseAddrPort(address)
	switch {
	case err != nil:
		return &RefusedError{fmt.Sprintf("%.100q leads to no address", host)}
	case !isLocal(to.Addr()):
		return nil
	}
	return &RefusedError{fmt.Sprintf("%.100q leads to %s, a link-local address or one of cloud metadata; if that is meant, put the address itself into LIVE",
		host, address)}
}

// checkRedirect returns a [RefusedError] unless a redirect leads to the same host and port, or to
// port 443 of the same host from its port 80.
func (d *destination) checkRedirect(from, to *url.URL) error {
	if from.Scheme == "https" && to.Scheme != "https" {
		// The document would be anyone's.
		return &RefusedError{fmt.Sprintf("a redirect from https to %.20q; put the address that is meant into LIVE", to.Scheme)}
	}
	upgrade := portOf(from) == "80" && portOf(to) == "443" && to.Scheme == "https"
	if plainHost(to.Hostname()) == d.host && (portOf(to) == portOf(from) || upgrade) {
		return nil
	}
	return &RefusedError{fmt.Sprintf("a redirect to %.100q; only redirects within %q are followed; put the address that is meant into LIVE",
		to.Host, from.Host)}
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
