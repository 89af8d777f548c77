package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/isotone/isotone"
)

// This file proves to nodes who the client is, and to the client that they are the right ones.

// Credentials are a name and the secret that nodes know it by. They are printed without the
// secret, by package fmt as well as in JSON and logs.
type Credentials struct {
	// Name has 1 to 64 letters, digits, '.', '_' and '-'.
	Name string
	// Secret has 1 to 256 bytes.
	Secret string `json:"-"`
}

// Bounds that nodes have as well; see internal/auth/access.
const (
	userNameMax = 64
	secretMax   = 256
)

// Format implements [fmt.Formatter]: every verb prints the name only.
func (c Credentials) Format(s fmt.State, _ rune) { fmt.Fprintf(s, "%q (secret not shown)", c.Name) }

// Validate returns nil, or an error that matches isotone.ErrInvalidArgument. The error does not
// contain the secret.
func (c Credentials) Validate() error {
	switch {
	case c.Name == "" || len(c.Name) > userNameMax || strings.ContainsFunc(c.Name, notInName):
		return isotone.Errorf(isotone.CodeInvalidArgument, "credentials: name %.80q: want 1 to %d letters, digits, '.', '_' and '-'", c.Name, userNameMax)
	case c.Secret == "" || len(c.Secret) > secretMax:
		return isotone.Errorf(isotone.CodeInvalidArgument, "credentials of %q: want a secret of 1 to %d bytes, got %d", c.Name, secretMax, len(c.Secret))
	}
	return nil
}

func notInName(r rune) bool {
	letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	return !letter && !('0' <= r && r <= '9') && !strings.ContainsRune("._-", r)
}

// StaticCredentials returns a value for [Options.Credentials]: the same credentials for every
// connection.
func StaticCredentials(name, secret string) func(context.Context) (Credentials, error) {
	return func(context.Context) (Credentials, error) { return Credentials{Name: name, Secret: secret}, nil }
}

// secure begins TLS on a new connection to addr, if Options.TLS asks for it.
func (c *Client) secure(ctx context.Context, conn net.Conn, addr string) (net.Conn, error) {
	cfg := c.opt.TLS
	if cfg == nil {
		return conn, nil
	}
	if cfg.ServerName == "" {
		cfg = cfg.Clone()
		cfg.ServerName, _, _ = net.SplitHostPort(addr)
	}
	inside := tls.Client(conn, cfg)
	if err := inside.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, certificateFault(err)
	}
	return inside, nil
}

// authentication returns the command that begins a new connection, or nil without credentials.
func (c *Client) authentication(ctx context.Context, conn net.Conn) ([]byte, error) {
	if c.opt.Credentials == nil {
		return nil, nil
	}
	if c.opt.TLS == nil && leavesMachine(conn) {
		return nil, isotone.Errorf(isotone.CodeUnauthorized, "the secret of Options.Credentials would cross the network to %v in plaintext: set Options.TLS", conn.RemoteAddr())
	}
	got, err := c.opt.Credentials(ctx)
	if err != nil {
		return nil, fmt.Errorf("Options.Credentials: %w", err)
	}
	if err := got.Validate(); err != nil {
		return nil, err
	}
	return appendCommand(nil, "AUTH", got.Name, got.Secret), nil
}

// leavesMachine reports whether a connection leads to another machine.
func leavesMachine(conn net.Conn) bool {
	at, ok := conn.RemoteAddr().(*net.TCPAddr)
	return ok && !at.IP.IsLoopback()
}

// readAuthenticated reads the answer to authentication.
func readAuthenticated(read *bufio.Reader) error {
	v, err := readReply(read)
	if err == nil && string(v.Text) != "OK" {
		// Not even a part of the answer: who sends what was sent to it has the secret in it.
		err = isotone.Errorf(isotone.CodeUnauthorized, "the node does not answer AUTH with OK")
	}
	return err
}

// certificateAlerts are the alerts of TLS by which a node refuses the client's certificate.
// With TLS 1.2 a failed handshake is how it says that there is none.
var certificateAlerts = func() (texts []string) {
	const (
		failed                                                 = 40
		badCertificate, unsupported, revoked, expired, unknown = 42, 43, 44, 45, 46
		unknownAuthority, accessDenied, required               = 48, 49, 116
	)
	for _, alert := range []tls.AlertError{failed, badCertificate, unsupported, revoked, expired, unknown, unknownAuthority, accessDenied, required} {
		texts = append(texts, alert.Error())
	}
	return texts
}()

// certificateFault returns an error that matches isotone.ErrUnauthorized if the node has refused
// the client's certificate, or its absence, and else err. With TLS 1.3 the handshake of the
// client is over by then, so that it is the first read that fails.
func certificateFault(err error) error {
	var remote *net.OpError
	if !errors.As(err, &remote) || remote.Op != "remote error" || !slices.Contains(certificateAlerts, remote.Err.Error()) {
		return err
	}
	return isotone.Errorf(isotone.CodeUnauthorized, "the node wants another client certificate: %v", remote.Err)
}

// A refusedError is the error of a new connection whose node refuses this client, whatever it
// asks: there is no use in trying again at once.
type refusedError struct{ why *isotone.Error }

func (e refusedError) Error() string { return e.why.Error() }
func (e refusedError) Unwrap() error { return e.why }

// refusedClient returns the error of beginning a connection as a refusedError if it is one.
func refusedClient(err error) error {
	var told *isotone.Error
	if !errors.As(err, &told) {
		return err
	}
	switch told.Code {
	case isotone.CodeUnauthorized, isotone.CodeForbidden, isotone.CodeInvalidArgument:
		return refusedError{told}
	}
	return err
}
