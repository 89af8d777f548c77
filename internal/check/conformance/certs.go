package conformance

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
	"sync"
	"time"
)

// This file makes the certificates of the scenarios, once for each process.

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

var (
	trusted     = sync.OnceValue(func() *authority { return newAuthority("kit") })
	strange     = sync.OnceValue(func() *authority { return newAuthority("another") })
	nodeCert    = sync.OnceValue(func() tls.Certificate { return trusted().sign("node", net.IPv4(127, 0, 0, 1)) })
	namedCert   = sync.OnceValue(func() tls.Certificate { return trusted().sign("node", nil, "isotone.example") })
	strangeCert = sync.OnceValue(func() tls.Certificate { return strange().sign("node", net.IPv4(127, 0, 0, 1)) })
	clientCert  = sync.OnceValue(func() tls.Certificate { return trusted().sign("client", nil) })
)

func newAuthority(name string) *authority {
	key := newKey()
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	must(err)
	cert, err = x509.ParseCertificate(der)
	must(err)
	return &authority{cert, key}
}

func newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	return key
}

func must(err error) {
	if err != nil {
		panic(err) // there is no reason but a broken program
	}
}

// sign returns a certificate for an address and names.
func (a *authority) sign(common string, ip net.IP, names ...string) tls.Certificate {
	key := newKey()
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: common}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, DNSNames: names,
	}
	if ip != nil {
		cert.IPAddresses = []net.IP{ip}
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, &key.PublicKey, a.key)
	must(err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (a *authority) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
}

// tlsDialMS is how long a client may take to connect with TLS: its process has just begun, and loads what the handshake needs.
const tlsDialMS = 10_000

// trusts has the client use TLS, and trust the authority of the kit.
func trusts(serverName string) options {
	return func(o *Options) {
		o.TLS, o.DialTimeoutMS = &TLS{CA: trusted().pem(), ServerName: serverName}, tlsDialMS
	}
}

// presents has it present a certificate, too.
func presents(o *Options) {
	cert := clientCert()
	o.TLS.Cert = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}))
	der, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	must(err)
	o.TLS.Key = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// demanding has a node want certificates of clients.
func demanding() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(trusted().cert)
	return &tls.Config{Certificates: []tls.Certificate{nodeCert()}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
}

// startTLS starts nodes that speak TLS, or, without a configuration, nodes that take any bytes for what they are.
func (s *stage) startTLS(count int, cfg *tls.Config) {
	for range count {
		n := s.add()
		n.secure, n.raw = cfg, cfg == nil
		n.start()
	}
}

// neverTalks: the client must not send anything to the node, and calls miss their deadlines or are refused.
func (s *stage) neverTalks(change ...options) {
	s.neverMade("C11", change...)
	s.check(len(s.nodes[0].got("")) == 0, "C11", "the client has sent a command")
}
