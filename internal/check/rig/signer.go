package rig

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Signer signs certificates, and writes PEM files of them.
type Signer struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	File string // its own certificate
}

// NewSigner makes an authority.
func NewSigner(t *testing.T) *Signer {
	t.Helper()
	a := &Signer{t: t}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.File, _, a.key = a.write(template, template)
	return a
}

// write makes a pair, signed by the authority or, before it has a key, by itself.
func (a *Signer) write(template, parent *x509.Certificate) (certFile, keyFile string, key *ecdsa.PrivateKey) {
	a.t.Helper()
	must := func(err error) {
		if err != nil {
			a.t.Helper()
			a.t.Fatal(err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	by := a.key
	if by == nil {
		by = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	must(err)
	if a.cert == nil {
		a.cert, err = x509.ParseCertificate(der)
		must(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(err)
	dir := a.t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	must(os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	return certFile, keyFile, key
}

// Issue makes a pair for servers on this machine and for clients.
func (a *Signer) Issue(name string) (certFile, keyFile string) {
	a.t.Helper()
	certFile, keyFile, _ = a.write(&x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{name, "localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert)
	return certFile, keyFile
}

// Server returns the configuration of a server that demands certificates of this authority.
func (a *Signer) Server() *tls.Config {
	a.t.Helper()
	cert, key := a.Issue("server")
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		a.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
}

// AcceptTLS accepts one connection and finishes its handshake.
func AcceptTLS(ln net.Listener, cfg *tls.Config) (net.Conn, error) {
	raw, err := ln.Accept()
	if err != nil {
		return nil, err
	}
	c := tls.Server(raw, cfg)
	if err := c.Handshake(); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return c, nil
}

// Client returns the configuration of a client with a certificate of this authority.
func (a *Signer) Client(name string) *tls.Config {
	a.t.Helper()
	cert, key := a.Issue(name)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		a.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, ServerName: "node"}
}
