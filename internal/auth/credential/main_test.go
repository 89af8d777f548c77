package credential_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/auth/credential"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// issuer signs certificates.
type issuer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

var serial int64

// sign makes a certificate for name, valid around today, in PEM.
func (a *issuer) sign(t *testing.T, name string, until time.Time) (certPEM, keyPEM []byte, made *issuer) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: today.AddDate(-1, 0, 0), NotAfter: until, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true, IsCA: a == nil,
	}
	certPEM, keyPEM, cert := a.certify(t, template, key)
	return certPEM, keyPEM, &issuer{cert, key}
}

// certify signs a certificate for a key, in PEM with that. Without an issuer the key signs its own.
func (a *issuer) certify(t *testing.T, template *x509.Certificate, key crypto.Signer) (certPEM, keyPEM []byte, cert *x509.Certificate) {
	t.Helper()
	parent, signer := template, key
	if a != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), cert
}

// nobody makes self-signed certificates.
var nobody *issuer

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// fixture is a directory with files, and the log of a reloader of them.
type fixture struct {
	*testing.T
	cert, key, clients string

	mu  sync.Mutex
	out bytes.Buffer
	now time.Time
}

func (d *fixture) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.out.Write(p)
}

// said returns what was logged since it was last called.
func (d *fixture) said() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.out.Reset()
	return d.out.String()
}

func newFixture(t *testing.T) *fixture {
	dir := t.TempDir()
	return &fixture{
		T: t, now: today,
		cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem"), clients: filepath.Join(dir, "clients.pem"),
	}
}

// issue writes a pair for name.
func (d *fixture) issue(name string, until time.Time) {
	d.Helper()
	certPEM, keyPEM, _ := nobody.sign(d.T, name, until)
	write(d.T, d.cert, certPEM)
	write(d.T, d.key, keyPEM)
}

func (d *fixture) config() credential.Config {
	return credential.Config{
		CertFile: d.cert, KeyFile: d.key, CertSetting: "TLS_CERT", KeySetting: "TLS_KEY", ClientCASetting: "TLS_CLIENT_CA",
		Log: slog.New(slog.NewTextHandler(d, nil)), Now: func() time.Time { return d.now },
	}
}

func (d *fixture) open(change ...func(*credential.Config)) *credential.Reloader {
	d.Helper()
	cfg := d.config()
	for _, f := range change {
		f(&cfg)
	}
	r, err := credential.Open(cfg)
	if err != nil {
		d.Fatal(err)
	}
	return r
}

// link is a connection between a client and a server of the configuration.
type link struct{ client, server *tls.Conn }

// connect does the handshake, and has the server send a byte, with which tickets arrive.
func connect(t *testing.T, server, client *tls.Config) (link, error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	a, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{a, b} {
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		t.Cleanup(func() { _ = c.Close() })
	}
	l := link{tls.Client(a, client), tls.Server(b, server)}
	served := make(chan error, 1)
	go func() {
		err := l.server.Handshake()
		if err == nil {
			_, err = l.server.Write([]byte("!"))
		}
		if err != nil {
			_ = b.Close()
		}
		served <- err
	}()
	_, err = io.ReadFull(l.client, make([]byte, 1))
	if err != nil {
		_ = a.Close()
	}
	if serverErr := <-served; serverErr != nil {
		err = serverErr
	}
	return l, err
}

// works sends one byte each way.
func (l link) works(t *testing.T) {
	t.Helper()
	for _, ends := range [][2]*tls.Conn{{l.client, l.server}, {l.server, l.client}} {
		sent := make(chan error, 1)
		go func() {
			_, err := ends[0].Write([]byte("x"))
			sent <- err
		}()
		if _, err := io.ReadFull(ends[1], make([]byte, 1)); err != nil {
			t.Error(err)
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
	}
}

// name returns the common name in the server's certificate.
func (l link) name() string {
	return l.client.ConnectionState().PeerCertificates[0].Subject.CommonName
}
