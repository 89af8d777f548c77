package credential

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"time"
)

// fileBytesMax bounds a file. A bundle of all public authorities has a quarter of that size.
const fileBytesMax = 1 << 20

// file is a PEM file and the name of its setting.
type file struct {
	setting string
	path    string
}

// fault is an error about f. It begins with the name of the setting.
func (f *file) fault(format string, args ...any) error {
	return fmt.Errorf("%s: %w", f.setting, fmt.Errorf(format, args...))
}

func (f *file) isMissing() (bool, error) {
	_, err := os.Stat(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, f.fault("%w", err)
	}
	return false, nil
}

// read returns all of f.
func (f *file) read() ([]byte, error) {
	info, err := os.Stat(f.path)
	if err != nil {
		return nil, f.fault("%w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > fileBytesMax {
		return nil, f.fault("%s is not a regular file, or has more than %d bytes", f.path, fileBytesMax)
	}
	b, err := os.ReadFile(f.path)
	if err != nil {
		return nil, f.fault("%w", err)
	}
	return b, nil
}

// isExposed reports whether others than the owner may read f.
func (f *file) isExposed() bool {
	info, err := os.Stat(f.path)
	return err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0
}

// pair is a certificate and its key.
type pair struct {
	cert, key file
	own       bool // self-signed, created if both files are missing
}

// orAgain adds to the advice that a self-signed pair can be created again.
func (p *pair) orAgain(advice string) string {
	if !p.own {
		return advice
	}
	return advice + ", or remove both files to have a new self-signed pair created"
}

// load reads and checks the pair.
func (p *pair) load(now time.Time) (tls.Certificate, error) {
	certPEM, err := p.cert.read()
	if err != nil {
		return tls.Certificate{}, err
	}
	keyPEM, err := p.key.read()
	if err != nil {
		return tls.Certificate{}, err
	}
	made, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return tls.Certificate{}, p.cert.fault("%s with the key in %s: %w: %s", p.cert.path, p.key.path, err, p.orAgain("put the matching pair there"))
	}
	if made.Leaf, err = x509.ParseCertificate(made.Certificate[0]); err != nil {
		return tls.Certificate{}, p.cert.fault("%s: %w", p.cert.path, err)
	}
	switch leaf := made.Leaf; {
	case now.After(leaf.NotAfter):
		return tls.Certificate{}, p.cert.fault("%s expired at %s: %s",
			p.cert.path, leaf.NotAfter.UTC().Format(time.RFC3339), p.orAgain("renew it"))
	case now.Before(leaf.NotBefore):
		return tls.Certificate{}, p.cert.fault("%s is not valid before %s, and this machine's clock says %s: check the clock, or renew the certificate",
			p.cert.path, leaf.NotBefore.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return made, nil
}

// loadPool reads the authorities in f, at least one of which must be valid.
func (f *file) loadPool(now time.Time) (*x509.CertPool, []*x509.Certificate, error) {
	rest, err := f.read()
	if err != nil {
		return nil, nil, err
	}
	pool, all := x509.NewCertPool(), []*x509.Certificate(nil)
	valid := 0
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, nil, f.fault("%s has a %q; want certificates only", f.path, block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, nil, f.fault("%s: %w", f.path, err)
		}
		if !now.After(cert.NotAfter) {
			valid++
		}
		all = append(all, cert)
		pool.AddCert(cert)
	}
	switch {
	case len(all) == 0:
		return nil, nil, f.fault("%s has no certificate in PEM", f.path)
	case valid == 0:
		return nil, nil, f.fault("%s has only expired certificates", f.path)
	}
	return pool, all, nil
}
