package credential

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
	"slices"
	"time"
)

// certificateYears is the validity of a self-signed certificate: long, because nobody renews
// one and an expired one stops the node.
const certificateYears = 10

// create makes a self-signed ECDSA P-256 pair if both files are missing, and fails if one is.
// The pair is for localhost, 127.0.0.1, ::1 and hosts, and each file has permissions 0600.
func (p *pair) create(hosts []string, now time.Time) error {
	certMissing, err := p.cert.isMissing()
	if err != nil {
		return err
	}
	keyMissing, err := p.key.isMissing()
	switch {
	case err != nil:
		return err
	case certMissing && keyMissing:
		if err := createPair(p.cert.path, p.key.path, hosts, now); err != nil {
			return p.cert.fault("create a self-signed pair: %w", err)
		}
	case certMissing:
		if finishPair(p.cert.path, p.key.path) {
			return nil
		}
		return halfPair(&p.cert, &p.key)
	case keyMissing:
		return halfPair(&p.key, &p.cert)
	}
	return nil
}

func halfPair(missing, present *file) error {
	return missing.fault("%s is missing, but %s exists: restore the missing file, or remove the other one as well to have a new self-signed pair created",
		missing.path, present.path)
}

// newSuffix marks a certificate whose key may not be written yet.
const newSuffix = ".new"

// finishPair completes a pair whose creation was interrupted between writing the key and
// renaming the certificate. It reports whether there was one.
func finishPair(certFile, keyFile string) bool {
	if _, err := tls.LoadX509KeyPair(certFile+newSuffix, keyFile); err != nil {
		return false
	}
	return os.Rename(certFile+newSuffix, certFile) == nil
}

// createPair writes the certificate under a temporary name, then the key, and renames the
// certificate: wherever it is interrupted, finishPair or another createPair completes it.
func createPair(certFile, keyFile string, hosts []string, now time.Time) error {
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
	if err := writePEM(certFile+newSuffix, "CERTIFICATE", der); err != nil {
		return err
	}
	if err := writePEM(keyFile, "PRIVATE KEY", keyDER); err != nil {
		return err
	}
	return os.Rename(certFile+newSuffix, certFile)
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

// writePEM writes a file atomically.
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
