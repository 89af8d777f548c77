package operator

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/host/listen"
	"github.com/isotone/isotone/internal/inspect/survey"
)

// UsageError is an error of what the user has named: addresses that are malformed, or that must not be
// sent a secret.
type UsageError string

// Error returns e.
func (e UsageError) Error() string { return string(e) }

func usagef(format string, args ...any) error { return UsageError(fmt.Sprintf(format, args...)) }

// Access is how a command reaches nodes. Its methods are safe for concurrent use.
type Access struct {
	TLS *tls.Config // for https
	// Secure: an address without a scheme means https.
	Secure bool
	// Credentials are asked for at each use, so that the secret can change; nil: there are none.
	Credentials func() (client.Credentials, error)
	// sockets are the paths of the Unix sockets that were named, by the host that stands for each in a URL.
	sockets map[string]string
}

// UnixScheme begins an endpoint that is a Unix socket: unix:PATH.
const UnixScheme = "unix:"

// socket returns the URL that stands for a Unix socket.
func (a *Access) socket(path string) string {
	if a.sockets == nil {
		a.sockets = map[string]string{}
	}
	host := fmt.Sprintf("unix-socket-%d.invalid", len(a.sockets)+1)
	a.sockets[host] = path
	return "http://" + host + ":80"
}

// Shown returns an address, without scheme, as the user knows it.
func (a *Access) Shown(addr string) string {
	if host, _, err := net.SplitHostPort(addr); err == nil && a.sockets[host] != "" {
		return UnixScheme + a.sockets[host]
	}
	return addr
}

// ShownIn returns a text with the sockets in it as the user knows them.
func (a *Access) ShownIn(text string) string {
	for host, path := range a.sockets {
		text = strings.ReplaceAll(text, "http://"+host+":80", UnixScheme+path)
	}
	return text
}

// NameSockets has a report name each node that was asked at a socket by its client address, or else by the socket.
func (a *Access) NameSockets(r *survey.Report) {
	for _, texts := range [][]string{r.Problems, r.Strangers} {
		for i := range texts {
			texts[i] = a.ShownIn(texts[i])
		}
	}
	for i := range r.Views {
		v := &r.Views[i]
		if addr, ok := strings.CutPrefix(v.Addr, "http://"); ok && a.Shown(addr) != addr {
			if v.Addr = a.Shown(addr); v.State != nil {
				v.Addr = "http://" + v.State.Node.Addr
			}
		}
	}
}

// dial returns a dialer that knows the sockets.
func (a *Access) dial(next func(ctx context.Context, network, addr string) (net.Conn, error)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	if next == nil {
		next = new(net.Dialer).DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if host, _, err := net.SplitHostPort(addr); err == nil && a.sockets[host] != "" {
			return listen.DialUnix(ctx, a.sockets[host])
		}
		return next(ctx, network, addr)
	}
}

// URLs returns the URLs of nodes that an operator has named, without paths. flag is named in errors.
func (a *Access) URLs(flag string, endpoints []string) (bases []string, err error) {
	for _, endpoint := range endpoints {
		if path, ok := strings.CutPrefix(endpoint, UnixScheme); ok {
			if path == "" || a.Secure {
				return nil, usagef("%s %s: want unix:PATH, the socket %s in the data directory of a node, without --ca, --cert and --server-name", flag, endpoint, SocketName)
			}
			bases = append(bases, a.socket(path))
			continue
		}
		scheme, _, named := strings.Cut(endpoint, "://")
		switch {
		case named && strings.EqualFold(scheme, "http") && a.Secure:
			return nil, usagef("%s %s: want https, as --ca, --cert and --server-name have no effect without TLS", flag, endpoint)
		case !named && a.Secure:
			endpoint = "https://" + endpoint
		}
		base, err := survey.Address(endpoint)
		if err != nil {
			return nil, usagef("%s: %v", flag, err)
		}
		bases = append(bases, base)
	}
	for _, base := range bases {
		if !strings.HasPrefix(base, bases[0][:len("http:")]) {
			return nil, usagef("%s: want all addresses with https, or none", flag)
		}
		u, err := url.Parse(base)
		if err == nil {
			err = a.check(u)
		}
		if err != nil {
			return nil, usagef("%s: %v", flag, err)
		}
	}
	return bases, nil
}

// ClientOptions returns the options of a client of the nodes at URLs, which [Access.URLs] has returned.
func (a *Access) ClientOptions(bases []string) client.Options {
	var o client.Options
	for _, base := range bases {
		scheme, addr, _ := strings.Cut(base, "://")
		o.Addrs = append(o.Addrs, addr)
		if scheme == "https" {
			o.TLS = a.TLS
		}
	}
	if a.Credentials != nil {
		o.Credentials = func(context.Context) (client.Credentials, error) { return a.Credentials() }
	}
	return o
}

// check returns a UsageError if the secret, if there is one, must not be sent to u.
func (a *Access) check(u *url.URL) error {
	if a.Credentials == nil || u.Scheme == "https" || IsLoopback(u.Hostname()) || a.sockets[u.Hostname()] != "" {
		return nil
	}
	return usagef("%s: the secret would cross the network in plaintext: name nodes as https://%s", u.Host, u.Host)
}

// IsLoopback reports whether a host is this machine by its name or its address.
func IsLoopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// HTTPClient returns an HTTP client for nodes. It sets TLSClientConfig of t, which it owns from here
// on. The client follows no redirects: they could lead credentials elsewhere.
func (a *Access) HTTPClient(t *http.Transport) *http.Client {
	t.TLSClientConfig, t.DialContext = a.TLS.Clone(), a.dial(t.DialContext)
	if proxy := t.Proxy; proxy != nil {
		t.Proxy = func(r *http.Request) (*url.URL, error) {
			if a.sockets[r.URL.Hostname()] != "" {
				return nil, nil
			}
			return proxy(r)
		}
	}
	return &http.Client{
		Transport:     &authenticator{access: a, inner: t},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// authenticator adds the credentials to requests.
type authenticator struct {
	access *Access
	inner  *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (t *authenticator) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.authenticated(r)
	return t.access.explain(r, response, err)
}

// authenticated sends a request with the credentials.
func (t *authenticator) authenticated(r *http.Request) (*http.Response, error) {
	if t.access.Credentials == nil {
		return t.inner.RoundTrip(r)
	}
	err := t.access.check(r.URL)
	var c client.Credentials
	if err == nil {
		c, err = t.access.Credentials()
	}
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	r = r.Clone(r.Context())
	r.SetBasicAuth(c.Name, c.Secret)
	return t.inner.RoundTrip(r)
}

// CloseIdleConnections is called by http.Client.CloseIdleConnections.
func (t *authenticator) CloseIdleConnections() { t.inner.CloseIdleConnections() }

// Options sets what package client needs to reach nodes at bases, which are from URLs. pair reads the
// client certificate, and is nil if there is none.
func (a *Access) Options(o *client.Options, bases []string, pair func() (tls.Certificate, error)) {
	for _, base := range bases {
		scheme, addr, _ := strings.Cut(base, "://")
		o.Addrs = append(o.Addrs, addr)
		if scheme == "https" {
			o.TLS = a.TLS.Clone()
		}
	}
	if o.TLS != nil && pair != nil {
		// A process that runs for long outlives its certificate.
		o.TLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := pair()
			return &pair, err
		}
	}
	if a.Credentials != nil {
		o.Credentials = func(context.Context) (client.Credentials, error) { return a.Credentials() }
	}
}

// isAnonymous reports whether the user has named nothing by which nodes would know him.
func (a *Access) isAnonymous() bool { return a.Credentials == nil && !a.Secure }

// SocketName is the name of the Unix socket in the data directory. Whoever can use it, the owner of the directory, has all
// roles, as whoever can write to the directory could take them.
const SocketName = "operator.sock"
