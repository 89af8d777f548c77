package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/dashboard"
	"github.com/isotone/isotone/internal/host/credential"
	hostlisten "github.com/isotone/isotone/internal/host/listen"
)

// accessFlags are the flags of all commands that talk to nodes: how a command recognises nodes,
// and how it proves to them who it is. See docs/security.md.
//
// There is no flag for a secret itself: everybody on the machine can read the command lines of
// its processes, and shells keep them in files.
type accessFlags struct {
	CA           string `name:"ca" placeholder:"FILE" complete:"files" help:"PEM file with the CA certificates that sign those of the nodes; implies https. Default: those of the system."`
	Cert         string `name:"cert" placeholder:"FILE" complete:"files" help:"PEM file with the client certificate to present to nodes, then its chain; implies https."`
	Key          string `name:"key" placeholder:"FILE" complete:"files" help:"PEM file with the private key of --cert."`
	ServerName   string `name:"server-name" placeholder:"NAME" help:"The name that the certificates of all nodes are for; implies https. Default: the host in the address of each."`
	Insecure     bool   `name:"insecure" short:"k" help:"Accept any certificate, such as the self-signed ones that nodes create. Not with --user."`
	User         string `name:"user" env:"ISOTONE_USER" placeholder:"NAME" help:"The name to authenticate with. Its secret comes from --password-file or the variable ISOTONE_PASSWORD."`
	PasswordFile string `name:"password-file" env:"ISOTONE_PASSWORD_FILE" placeholder:"FILE" complete:"files" help:"File with the secret of --user, in one line; only its owner may have the right to read it."`
}

// passwordVariable is the environment variable with the secret, if no file has it.
const passwordVariable = "ISOTONE_PASSWORD"

// noPasswordFlag answers those who look for --password.
const noPasswordFlag = "There is no --password: everybody on this machine can read command lines. Put the secret into a file (--password-file), or into the variable " + passwordVariable + "."

// nodeAccess is how a command reaches nodes. Its methods are safe for concurrent use.
type nodeAccess struct {
	tls *tls.Config // for https
	// secure: an address without a scheme means https.
	secure bool
	// credentials are asked for at each use, so that the secret can change; nil: there are none.
	credentials func() (client.Credentials, error)
	// sockets are the paths of the Unix sockets that were named, by the host that stands for each in a URL.
	sockets map[string]string
}

// unixScheme begins an endpoint that is a Unix socket: unix:PATH.
const unixScheme = "unix:"

// socket returns the URL that stands for a Unix socket.
func (a *nodeAccess) socket(path string) string {
	if a.sockets == nil {
		a.sockets = map[string]string{}
	}
	host := fmt.Sprintf("unix-socket-%d.invalid", len(a.sockets)+1)
	a.sockets[host] = path
	return "http://" + host + ":80"
}

// shown returns an address, without scheme, as the user knows it.
func (a *nodeAccess) shown(addr string) string {
	if host, _, err := net.SplitHostPort(addr); err == nil && a.sockets[host] != "" {
		return unixScheme + a.sockets[host]
	}
	return addr
}

// nameSockets has a report name each node that was asked at a socket by its client address, or else by the socket.
func (a *nodeAccess) nameSockets(views []dashboard.View) {
	for i := range views {
		v := &views[i]
		if addr, ok := strings.CutPrefix(v.Addr, "http://"); ok && a.shown(addr) != addr {
			if v.Addr = a.shown(addr); v.State != nil {
				v.Addr = "http://" + v.State.Node.Addr
			}
		}
	}
}

// dial returns a dialer that knows the sockets.
func (a *nodeAccess) dial(next func(ctx context.Context, network, addr string) (net.Conn, error)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	if next == nil {
		next = new(net.Dialer).DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if host, _, err := net.SplitHostPort(addr); err == nil && a.sockets[host] != "" {
			return hostlisten.DialUnix(ctx, a.sockets[host])
		}
		return next(ctx, network, addr)
	}
}

// open checks the flags and reads their files. The error names all that is wrong.
func (f *accessFlags) open() (*nodeAccess, error) {
	a := &nodeAccess{secure: f.CA != "" || f.Cert != "" || f.ServerName != ""}
	var found flagErrors
	roots, err := readCA("--ca", f.CA)
	if err != nil {
		found.add(err)
	}
	a.tls = &tls.Config{RootCAs: roots, InsecureSkipVerify: f.Insecure, ServerName: f.ServerName, MinVersion: tls.VersionTLS12}
	switch {
	case (f.Cert == "") != (f.Key == ""):
		found.add(errors.New("--cert and --key go together"))
	case f.Cert != "":
		pair, err := f.pair()
		if err != nil {
			found.add(err)
		}
		a.tls.Certificates = []tls.Certificate{pair}
	}
	f.authenticate(a, &found)
	if err := errors.Join(found...); err != nil {
		return nil, usageError(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return a, nil
}

func (f *accessFlags) pair() (tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return pair, fmt.Errorf("--cert, --key: %w", err)
	}
	return pair, nil
}

// authenticate sets the credentials.
func (f *accessFlags) authenticate(a *nodeAccess, found *flagErrors) {
	secret, inVariable := os.LookupEnv(passwordVariable)
	inVariable = inVariable && secret != ""
	switch {
	case f.User == "" && f.PasswordFile == "" && !inVariable:
		return
	case f.User == "":
		found.add(errors.New("there is a secret but no name: want --user NAME, or the variable ISOTONE_USER"))
		return
	case f.PasswordFile == "" && !inVariable:
		found.add(fmt.Errorf("--user %.80q: want its secret in a file (--password-file), or in the variable %s", f.User, passwordVariable))
		return
	case f.Insecure:
		found.add(errors.New("--insecure sends nobody's secret: any server could be the one that asks for it; name the CA or the self-signed certificate of the nodes with --ca FILE"))
		return
	}
	a.credentials = func() (c client.Credentials, err error) {
		c = client.Credentials{Name: f.User, Secret: secret}
		if f.PasswordFile != "" {
			if c.Secret, err = credential.ReadSecret("--password-file", f.PasswordFile); err != nil {
				return client.Credentials{}, err
			}
		}
		return c, c.Validate()
	}
	if _, err := a.credentials(); err != nil {
		found.add(err)
	}
}

// readCA reads the certificates in the file of a setting. Without a file it returns nil: those of
// the system.
func readCA(setting, file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", setting, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: %s has no certificate in it", setting, file)
	}
	return pool, nil
}

// endpointList is a flag with addresses, separated by commas or given several times. An empty address is
// an error: most likely it comes from a variable that is not set.
type endpointList []string

// Decode is called by the parser for each flag.
func (l *endpointList) Decode(ctx *kong.DecodeContext) error {
	var text string
	if err := ctx.Scan.PopValueInto("address", &text); err != nil {
		return err
	}
	for _, addr := range strings.Split(text, ",") {
		if addr == "" {
			return errors.New("an address is empty")
		}
		*l = append(*l, addr)
	}
	return nil
}

// urls returns the URLs of nodes that an operator has named, without paths. flag is named in errors.
func (a *nodeAccess) urls(flag string, endpoints []string) (bases []string, err error) {
	for _, endpoint := range endpoints {
		if path, ok := strings.CutPrefix(endpoint, unixScheme); ok {
			if path == "" || a.secure {
				return nil, usagef("%s %s: want unix:PATH, the socket %s in the data directory of a node, without --ca, --cert and --server-name", flag, endpoint, operatorSocket)
			}
			bases = append(bases, a.socket(path))
			continue
		}
		scheme, _, named := strings.Cut(endpoint, "://")
		switch {
		case named && strings.EqualFold(scheme, "http") && a.secure:
			return nil, usagef("%s %s: want https, as --ca, --cert and --server-name have no effect without TLS", flag, endpoint)
		case !named && a.secure:
			endpoint = "https://" + endpoint
		}
		base, err := dashboard.Address(endpoint)
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

// check returns a usageError if the secret, if there is one, must not be sent to u.
func (a *nodeAccess) check(u *url.URL) error {
	if a.credentials == nil || u.Scheme == "https" || isLoopback(u.Hostname()) || a.sockets[u.Hostname()] != "" {
		return nil
	}
	return usagef("%s: the secret would cross the network in plaintext: name nodes as https://%s", u.Host, u.Host)
}

func isLoopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// client returns an HTTP client for nodes. It sets TLSClientConfig of t, which it owns from here
// on. The client follows no redirects: they could lead credentials elsewhere.
func (a *nodeAccess) client(t *http.Transport) *http.Client {
	t.TLSClientConfig, t.DialContext = a.tls.Clone(), a.dial(t.DialContext)
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
	access *nodeAccess
	inner  *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (t *authenticator) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.access.credentials == nil {
		return t.inner.RoundTrip(r)
	}
	err := t.access.check(r.URL)
	var c client.Credentials
	if err == nil {
		c, err = t.access.credentials()
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

// options sets what package client needs to reach nodes at bases, which are from urls.
func (a *nodeAccess) options(o *client.Options, bases []string, f *accessFlags) {
	for _, base := range bases {
		scheme, addr, _ := strings.Cut(base, "://")
		o.Addrs = append(o.Addrs, addr)
		if scheme == "https" {
			o.TLS = a.tls.Clone()
		}
	}
	if o.TLS != nil && f.Cert != "" {
		// A process that runs for long outlives its certificate.
		o.TLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := f.pair()
			return &pair, err
		}
	}
	if a.credentials != nil {
		o.Credentials = func(context.Context) (client.Credentials, error) { return a.credentials() }
	}
}
