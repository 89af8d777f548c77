package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/auth/credential"
)

// command is the command line. There is no flag for a secret itself: everybody on the machine can
// read the command lines of its processes.
type command struct {
	Listen     string   `name:"listen" short:"l" default:"127.0.0.1:2379" placeholder:"HOST:PORT" help:"Where to serve clients of PD. Default: ${default}."`
	Endpoint   []string `name:"endpoint" short:"e" required:"" placeholder:"HOST:PORT" help:"Nodes of one Isotone cluster, as HOST:PORT or https://HOST:PORT, separated by commas. One that answers is enough."`
	Advertise  string   `name:"advertise" placeholder:"HOST:PORT" help:"The address by which clients reach this gateway. Default: that of --listen, which must then name a host."`
	Member     []string `name:"member" placeholder:"HOST:PORT" help:"Addresses of other gateways of the same cluster, separated by commas: clients use them when this one fails."`
	ListenHTTP string   `name:"listen-http" placeholder:"HOST:PORT" help:"Where to serve the HTTP forms of Dgraph Zero (GET /assign?what=timestamps&num=N) and AtlasDB TimeLock (POST /timestamp/fresh-timestamps?number=N). Default: nowhere."`
	Admin      string   `name:"admin" placeholder:"HOST:PORT" help:"Where to serve operators, over plain HTTP without credentials: /metrics, /livez and /readyz. Default: nowhere."`

	Mode           string        `name:"mode" placeholder:"MODE" help:"quorum or lease. Default: what the nodes have."`
	Cluster        string        `name:"cluster" placeholder:"ID" help:"The ID of the Isotone cluster, 16 hexadecimal digits: no other is used. Default: that of the first node that is reached."`
	Timeout        time.Duration `name:"timeout" default:"2.5s" help:"Maximum wait for the cluster, 100ms to 1m. Clients of PD usually wait for 3s. Default: ${default}."`
	DrainTimeout   time.Duration `name:"drain-timeout" default:"5s" help:"After SIGINT or SIGTERM: maximum time to answer what has arrived. Default: ${default}."`
	MaxConnections int           `name:"max-connections" default:"4096" help:"Maximum number of client connections. Default: ${default}."`

	nodeFlags `group:"How to reach the nodes:"`
	ownFlags  `group:"How clients reach this gateway:"`

	Debug  bool `name:"debug" help:"Log more."`
	Pretty bool `name:"pretty" help:"Log plain text instead of JSON."`
}

// nodeFlags mean what they do for isotone.
type nodeFlags struct {
	CA           string `name:"ca" placeholder:"FILE" help:"PEM file with the CA certificates that sign those of the nodes; implies https. Default: those of the system."`
	Cert         string `name:"cert" placeholder:"FILE" help:"PEM file with the client certificate to present to nodes, then its chain; implies https."`
	Key          string `name:"key" placeholder:"FILE" help:"PEM file with the private key of --cert."`
	ServerName   string `name:"server-name" placeholder:"NAME" help:"The name that the certificates of all nodes are for; implies https. Default: the host in the address of each."`
	User         string `name:"user" env:"ISOTONE_USER" placeholder:"NAME" help:"The name to authenticate with at the nodes. Its secret comes from --password-file or the variable ISOTONE_PASSWORD."`
	PasswordFile string `name:"password-file" env:"ISOTONE_PASSWORD_FILE" placeholder:"FILE" help:"File with the secret of --user, in one line; only its owner may have the right to read it."`
}

// ownFlags are about TLS on the listeners, which all clients then have to speak.
type ownFlags struct {
	TLSCert      string `name:"tls-cert" placeholder:"FILE" help:"PEM file with the certificate of this gateway, then its chain; clients then have to use TLS. Read again when it changes."`
	TLSKey       string `name:"tls-key" placeholder:"FILE" help:"PEM file with its private key."`
	TLSClientCA  string `name:"tls-client-ca" placeholder:"FILE" help:"PEM file with the CA certificates that sign those of clients, which then have to present one."`
	TLSClientCRL string `name:"tls-client-crl" placeholder:"FILE" help:"PEM file with revocation lists of these authorities; clients on them are refused, also on open streams. Read again when it changes."`
	Anonymous    bool   `name:"anonymous" help:"Let clients that present no certificate use the cluster with this gateway's --user or --cert."`
}

// The bounds of --timeout and --max-connections.
const (
	timeoutMin, timeoutMax = 100 * time.Millisecond, time.Minute
	drainMax               = 10 * time.Minute
	connectionsMax         = 1 << 20
)

// check returns an error that lists everything that is wrong with flags on their own.
func (c *command) check() error {
	var faults []error
	add := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.Timeout < timeoutMin || c.Timeout > timeoutMax {
		add("--timeout %v: want %v to %v", c.Timeout, timeoutMin, timeoutMax)
	}
	if c.DrainTimeout < 0 || c.DrainTimeout > drainMax {
		add("--drain-timeout %v: want 0s to %v", c.DrainTimeout, drainMax)
	}
	if c.MaxConnections < 1 || c.MaxConnections > connectionsMax {
		add("--max-connections %d: want 1 to %d", c.MaxConnections, connectionsMax)
	}
	if (c.Cert == "") != (c.Key == "") {
		add("--cert and --key go together")
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		add("--tls-cert and --tls-key go together")
	}
	if c.TLSClientCA != "" && c.TLSCert == "" {
		add("--tls-client-ca needs --tls-cert")
	}
	if c.TLSClientCRL != "" && c.TLSClientCA == "" {
		add("--tls-client-crl needs --tls-client-ca")
	}
	if c.lends() && c.TLSClientCA == "" && !c.Anonymous {
		add("--user, --cert: this gateway would use the cluster with its own credentials for everybody who reaches it; say who may: --tls-client-ca FILE has clients present a certificate, --anonymous is everybody")
	}
	for _, m := range c.Member {
		if host, _, err := net.SplitHostPort(m); err != nil || host == "" {
			add("--member %.100q: want HOST:PORT", m)
		}
	}
	return usage(faults)
}

func usage(faults []error) error {
	if len(faults) == 0 {
		return nil
	}
	return usageError(strings.ReplaceAll(errors.Join(faults...).Error(), "\n", "; "))
}

// members returns the URLs of this gateway and of the others, given the address that it listens on.
func (c *command) members(listening net.Addr) ([]string, error) {
	own := c.Advertise
	if own == "" {
		own = listening.String()
	}
	host, _, err := net.SplitHostPort(own)
	if err != nil || host == "" {
		return nil, usagef("--advertise %.100q: want HOST:PORT", own)
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		return nil, usagef("--listen %s is every interface of this machine: want --advertise HOST:PORT, the address by which clients reach it", c.Listen)
	}
	scheme := "http://"
	if c.TLSCert != "" {
		scheme = "https://"
	}
	urls := []string{scheme + own}
	for _, m := range c.Member {
		if m != own { // so that all gateways may have the same list
			urls = append(urls, scheme+m)
		}
	}
	return urls, nil
}

// options returns how to reach the nodes.
func (c *command) options() (client.Options, error) {
	var o client.Options
	var faults []error
	secure := c.CA != "" || c.Cert != "" || c.ServerName != ""
	plain := 0
	for _, e := range c.Endpoint {
		scheme, addr, named := strings.Cut(e, "://")
		switch {
		case !named:
			addr = e
		case scheme == "https":
			secure = true
		case scheme == "http":
			plain++
		default:
			faults = append(faults, fmt.Errorf("--endpoint %.100q: want HOST:PORT, http://HOST:PORT or https://HOST:PORT", e))
		}
		o.Addrs = append(o.Addrs, strings.TrimSuffix(addr, "/"))
	}
	if secure && plain > 0 {
		faults = append(faults, errors.New("--endpoint: want all addresses with https, or none; --ca, --cert and --server-name imply it"))
	}
	var err error
	if secure {
		if o.TLS, err = c.tls(); err != nil {
			faults = append(faults, err)
		}
	}
	if o.Credentials, err = c.credentials(secure || allLoopback(o.Addrs)); err != nil {
		faults = append(faults, err)
	}
	if c.Mode != "" {
		if o.Mode, err = isotone.ParseReadMode(c.Mode); err != nil {
			faults = append(faults, fmt.Errorf("--mode %.20q: want quorum or lease", c.Mode))
		}
	}
	if c.Cluster != "" {
		if o.Cluster, err = isotone.ParseClusterID(c.Cluster); err != nil {
			faults = append(faults, fmt.Errorf("--cluster %.40q: want 16 hexadecimal digits, not all 0", c.Cluster))
		}
	}
	if err := o.Validate(); err != nil && len(faults) == 0 {
		faults = append(faults, fmt.Errorf("--endpoint: %w", err))
	}
	return o, usage(faults)
}

func (f *nodeFlags) tls() (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.ServerName}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("--ca: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--ca: %s has no certificate in it", f.CA)
		}
	}
	if f.Cert == "" || f.Key == "" {
		return t, nil
	}
	// The files are read for each connection: a gateway outlives its certificates.
	load := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("--cert, --key: %w", err)
		}
		return &pair, nil
	}
	t.GetClientCertificate = load
	_, err := load(nil)
	return t, err
}

// credentials returns what proves the name of the gateway to nodes; nil without --user. The file is
// read for each connection, so that the secret can change.
func (f *nodeFlags) credentials(confidential bool) (func(context.Context) (client.Credentials, error), error) {
	secret := os.Getenv("ISOTONE_PASSWORD")
	switch {
	case f.User == "" && f.PasswordFile == "" && secret == "":
		return nil, nil
	case f.User == "":
		return nil, errors.New("there is a secret but no name: want --user NAME, or the variable ISOTONE_USER")
	case f.PasswordFile == "" && secret == "":
		return nil, fmt.Errorf("--user %.80q: want its secret in a file (--password-file), or in the variable ISOTONE_PASSWORD", f.User)
	case !confidential:
		return nil, errors.New("--user: the secret would cross the network in plaintext: name nodes as https://HOST:PORT")
	}
	get := func(context.Context) (c client.Credentials, err error) {
		c = client.Credentials{Name: f.User, Secret: secret}
		if f.PasswordFile != "" {
			if c.Secret, err = credential.ReadSecret("--password-file", f.PasswordFile); err != nil {
				return client.Credentials{}, err
			}
		}
		return c, c.Validate()
	}
	_, err := get(context.Background())
	return get, err
}

func allLoopback(addrs []string) bool {
	for _, a := range addrs {
		host, _, _ := net.SplitHostPort(a)
		if host != "localhost" && !net.ParseIP(host).IsLoopback() {
			return false
		}
	}
	return true
}
