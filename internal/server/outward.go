package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"

	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/auth/credential"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/operator"
	"github.com/isotone/isotone/internal/reply"
)

// outward returns how a node reaches the client ports of others, for FORWARD and JOIN.
func outward(s *config.Settings) (*operator.Access, error) {
	roots, err := credential.ReadCA("FORWARD_CA", s.ForwardCA)
	if err != nil {
		return nil, err
	}
	cert, key, _ := s.TLSFiles()
	a := &operator.Access{Secure: s.ForwardCA != "", TLS: &tls.Config{
		RootCAs: roots, MinVersion: tls.VersionTLS12,
		// The node's own, as long as the other one knows who has signed it. It is read for each
		// connection, since it is renewed while the node runs.
		GetClientCertificate: func(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(cert, key)
			if err != nil || asked.SupportsCertificate(&pair) != nil {
				return new(tls.Certificate), nil
			}
			return &pair, nil
		},
	}}
	if s.ForwardCredentialFile == "" {
		return a, nil
	}
	a.Credentials = func() (c client.Credentials, err error) {
		if c.Name, c.Secret, err = credential.ReadNamedSecret("FORWARD_CREDENTIAL_FILE", s.ForwardCredentialFile); err != nil {
			return client.Credentials{}, err
		}
		return c, c.Validate()
	}
	_, err = a.Credentials()
	return a, err
}

// handshake begins TLS on a connection to addr, if outward asks for it, and authenticates. The
// caller closes c after an error, and aborts it when ctx is done.
func handshake(ctx context.Context, a *operator.Access, c net.Conn, addr string) (net.Conn, error) {
	if a.Secure {
		cfg := a.TLS.Clone()
		cfg.ServerName, _, _ = net.SplitHostPort(addr)
		inside := tls.Client(c, cfg)
		if err := inside.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		c = inside
	}
	if a.Credentials == nil {
		return c, nil
	}
	if host, _, _ := net.SplitHostPort(addr); !a.Secure && !operator.IsLoopback(host) {
		return nil, fmt.Errorf("the secret in FORWARD_CREDENTIAL_FILE would cross the network in plaintext to %s: set FORWARD_CA", addr)
	}
	known, err := a.Credentials()
	if err != nil {
		return nil, err
	}
	return c, commandOK(c, "AUTH", known.Name, known.Secret)
}

// commandReplyMax bounds the answer to a command, in bytes.
const commandReplyMax = 1 << 10

// commandOK sends a command of the Redis protocol, which has to be answered with OK. The error has
// nothing of its arguments in it.
func commandOK(c net.Conn, args ...string) error {
	text := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, arg := range args {
		text = fmt.Appendf(text, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := c.Write(text); err != nil {
		return err
	}
	var line []byte // byte by byte: what follows is not for this function
	for !bytes.HasSuffix(line, []byte("\r\n")) {
		var b [1]byte
		if _, err := io.ReadFull(c, b[:]); err != nil {
			return err
		}
		if line = append(line, b[0]); len(line) > commandReplyMax {
			return fmt.Errorf("more than %d bytes to %s", commandReplyMax, args[0])
		}
	}
	switch {
	case string(line) == "+OK\r\n":
		return nil
	case line[0] != '-':
		return fmt.Errorf("%s is not answered with OK", args[0])
	}
	refusal, err := reply.Error(line[1 : len(line)-2]).Decode()
	if err != nil {
		return err
	}
	return refusal
}
