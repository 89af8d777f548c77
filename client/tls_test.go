package client_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
)

// authority signs certificates.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	made := a.sign(a.cert)
	a.cert, a.key = made.Leaf, made.PrivateKey.(*ecdsa.PrivateKey)
	return a
}

// sign makes a pair for a template, signed by the authority or, before it has a key, by itself.
func (a *authority) sign(template *x509.Certificate) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	signer := a.key
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// issue makes a certificate for both sides.
func (a *authority) issue(name string) tls.Certificate {
	return a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// startSecureCluster starts nodes that demand TLS and a client certificate.
func startSecureCluster(t testing.TB, count int, a *authority, version uint16) *cluster {
	cfg := &tls.Config{
		Certificates: []tls.Certificate{a.issue("node")}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.pool(),
		MinVersion: version, MaxVersion: version,
	}
	return startClusterOn(t, count, func(addr string) (net.Listener, error) {
		l, err := tcp(addr)
		if err != nil {
			return nil, err
		}
		return tls.NewListener(l, cfg), nil
	})
}

func TestTLS_WithAClientCertificateWhereverTheLeaderGoes(t *testing.T) {
	a := newAuthority(t)
	c := startSecureCluster(t, 3, a, tls.VersionTLS13)
	c.lead(1)
	got := c.dial(client.Options{
		Addrs: c.addrs()[:1], TLS: &tls.Config{RootCAs: a.pool(), Certificates: []tls.Certificate{a.issue("billing")}},
	})
	for turn := range 3 {
		c.lead(turn)
		if _, err := got.Timestamps(within(t, 10*time.Second), 3); err != nil {
			t.Fatal(err)
		}
		if _, err := got.Timestamp(within(t, 10*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := got.Snowflakes(within(t, 10*time.Second), 3); err != nil {
		t.Fatal(err)
	}
}

// TestTLS_TheServerNameIsThatOfTheOptions: nodes may share a certificate for one name.
func TestTLS_TheServerNameIsThatOfTheOptions(t *testing.T) {
	a := newAuthority(t)
	c := startSecureCluster(t, 1, a, tls.VersionTLS13)
	mine := []tls.Certificate{a.issue("billing")}
	c.dial(client.Options{TLS: &tls.Config{RootCAs: a.pool(), Certificates: mine, ServerName: "node"}})
	await.Expired(t, func(ctx context.Context) error {
		_, err := client.NewWith(ctx, client.Options{Addrs: c.addrs(), TLS: &tls.Config{RootCAs: a.pool(), Certificates: mine, ServerName: "other"}})
		return err
	}, func(err error) bool {
		return errors.Is(err, isotone.ErrDeadlineExceeded) && strings.Contains(err.Error(), "not other")
	})
}

// TestTLS_ARefusedCertificateFailsAtOnce: the contexts have no deadline, so nothing else ends
// the wait.
func TestTLS_ARefusedCertificateFailsAtOnce(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		c := startSecureCluster(t, 2, a, version)
		for name, certs := range map[string][]tls.Certificate{"none": nil, "of another authority": {other.issue("billing")}} {
			_, err := client.NewWith(context.Background(), client.Options{Addrs: c.addrs(), TLS: &tls.Config{RootCAs: a.pool(), Certificates: certs}})
			if !errors.Is(err, isotone.ErrUnauthorized) || !strings.Contains(err.Error(), "certificate") {
				t.Errorf("%s, %x: %v", name, version, err)
			}
		}
	}
}

// TestTLS_IsNeverGivenUp: neither a node without TLS nor one that nobody vouches for is used.
func TestTLS_IsNeverGivenUp(t *testing.T) {
	t.Parallel()
	a, other := newAuthority(t), newAuthority(t)
	plain, secure := startCluster(t, 1), startSecureCluster(t, 1, other, tls.VersionTLS13)
	for want, c := range map[string]*cluster{"the connection was closed": plain, "certificate signed by unknown authority": secure} {
		await.Expired(t, func(ctx context.Context) error {
			_, err := client.NewWith(ctx, client.Options{
				Addrs: c.addrs(), TLS: &tls.Config{RootCAs: a.pool()}, Credentials: client.StaticCredentials("billing", "hush"),
			})
			return err
		}, func(err error) bool {
			return errors.Is(err, isotone.ErrDeadlineExceeded) && strings.Contains(err.Error(), want)
		})
		if heard := c.nodes[0].commands(""); len(heard) > 0 {
			t.Errorf("it was sent %q", heard)
		}
	}
}
