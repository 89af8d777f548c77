package main

import (
	"crypto/tls"

	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/credential"
	"github.com/isotone/isotone/internal/operator"
)

// outward returns how a node reaches the client ports of others, for FORWARD and JOIN.
func outward(s *config.Settings) (*operator.Access, error) {
	roots, err := readCA("FORWARD_CA", s.ForwardCA)
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
