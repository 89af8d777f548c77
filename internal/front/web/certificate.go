package web

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// certificateYears is the life of a certificate that we sign ourselves. It is
// long, because nobody renews one and an expired one stops the node.
const certificateYears = 10

// LoadOrCreateCertificate returns the certificate in certFile with the key in
// keyFile, both PEM. When both files are missing it first writes a self-signed
// ECDSA P-256 pair, each file with permissions 0600, for localhost, 127.0.0.1,
// ::1 and hosts (names or IP addresses, no ports). The directories must exist.
//
// A pair that is incomplete, does not match or is not valid at now is an error
// that says what to do: it is never replaced, for clients may have pinned it.
func LoadOrCreateCertificate(certFile, keyFile string, hosts []string, now time.Time) (tls.Certificate, error) {
	certMissing, err := isMissing(certFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("TLS certificate: %w", err)
	}
	keyMissing, err := isMissing(keyFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("TLS key: %w", err)
	}
	switch {
	case certMissing && keyMissing:
		if err := createCertificate(certFile, keyFile, hosts, now); err != nil {
			return tls.Certificate{}, fmt.Errorf("create a self-signed TLS certificate: %w", err)
		}
	case certMissing:
		return tls.Certificate{}, halfPair("certificate", certFile, keyFile)
	case keyMissing:
		return tls.Certificate{}, halfPair("key", keyFile, certFile)
	}
	return loadCertificate(certFile, keyFile, now)
}

// LoadCertificate returns the certificate in certFile with the key in keyFile, both
// PEM. Files that are missing, do not match or are not valid at now are an error.
func LoadCertificate(certFile, keyFile string, now time.Time) (tls.Certificate, error) {
	for _, file := range []string{certFile, keyFile} {
		if _, err := os.Stat(file); err != nil {
			return tls.Certificate{}, fmt.Errorf("TLS certificate: %w", err)
		}
	}
	return loadCertificate(certFile, keyFile, now)
}

func isMissing(file string) (bool, error) {
	_, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return false, err
}

func halfPair(what, missing, present string) error {
	return fmt.Errorf("TLS %s %s is missing, but %s exists: restore the missing file, or remove the other one as well to have a new self-signed pair made",
		what, missing, present)
}

func loadCertificate(certFile, keyFile string, now time.Time) (tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("TLS certificate %s with key %s: %w: put the matching pair there, or remove both files to have a new self-signed pair made",
			certFile, keyFile, err)
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("TLS certificate %s: %w", certFile, err)
	}
	pair.Leaf = leaf
	if now.After(leaf.NotAfter) {
		return tls.Certificate{}, fmt.Errorf("TLS certificate %s expired at %s: renew it, or remove it and %s to have a new self-signed pair made",
			certFile, leaf.NotAfter.UTC().Format(time.RFC3339), keyFile)
	}
	if now.Before(leaf.NotBefore) {
		return tls.Certificate{}, fmt.Errorf("TLS certificate %s is not valid before %s, and this machine's clock says %s: check the clock, or renew the certificate",
			certFile, leaf.NotBefore.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return pair, nil
}

func createCertificate(certFile, keyFile string, hosts []string, now time.Time) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template, err := certificateTemplate(hosts, now)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := writePEM(keyFile, "PRIVATE KEY", keyDER); err != nil {
		return err
	}
	return writePEM(certFile, "CERTIFICATE", der)
}

func certificateTemplate(hosts []string, now time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{Organization: []string{"Isotone self-signed"}, CommonName: "localhost"},
		NotBefore:             now.Add(-time.Hour), // clients' clocks differ
		NotAfter:              now.AddDate(certificateYears, 0, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	all := append([]string{"localhost", "127.0.0.1", "::1"}, hosts...)
	slices.Sort(all)
	for _, host := range slices.Compact(all) {
		switch ip := net.ParseIP(host); {
		case ip != nil:
			t.IPAddresses = append(t.IPAddresses, ip)
		case host != "":
			t.DNSNames = append(t.DNSNames, host)
		}
	}
	return t, nil
}

// writePEM writes file whole or not at all: the bytes are on disk before the
// name is.
func writePEM(file, kind string, der []byte) (err error) {
	temp, err := os.CreateTemp(filepath.Dir(file), ".new-*.pem") // 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = temp.Close()
			_ = os.Remove(temp.Name())
		}
	}()
	if err = pem.Encode(temp, &pem.Block{Type: kind, Bytes: der}); err != nil {
		return err
	}
	if err = temp.Sync(); err != nil {
		return err
	}
	if err = temp.Close(); err != nil {
		return err
	}
	return os.Rename(temp.Name(), file)
}
