// Package authority makes certificates for the nodes and clients of a cluster: an authority of
// one's own in a directory, what it signs, and its revocation list.
//
// It owns the files in that directory and their names. It knows no connection and no running
// node; internal/auth/credential reads what it writes. Only cmd/isotone calls it.
package authority

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/isotone/isotone/internal/auth/certname"
)

// The files of a directory.
const (
	BundleFile = "ca.pem"     // the certificates of the authorities, the newest first
	KeyFile    = "ca-key.pem" // the key of the newest; older ones have a number: ca-key-2.pem
	CRLFile    = "crl.pem"    // a revocation list for each authority that has revoked something
)

const (
	// backdated is how long before its making a certificate becomes valid: clocks differ.
	backdated = time.Hour
	// crlValidity is the time to the next update of a revocation list. Nodes use older lists,
	// too: it is for other readers.
	crlValidity = 10 * 365 * 24 * time.Hour
	// fileSizeMax bounds the files that are read, as internal/auth/credential does.
	fileSizeMax = 1 << 20
)

// Dir is a directory with authorities and what they have signed. One process at a time may
// change it. The zero value of all fields but Path is usable.
type Dir struct {
	Path string
	// Overwrite replaces files; otherwise a file that exists is an error, and nothing is
	// written.
	Overwrite bool
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Made is what a method has written.
type Made struct {
	// Cert and Key are paths; Key is empty if none was made.
	Cert string `json:"cert"`
	Key  string `json:"key,omitempty"`
	// Serial is the serial number in hexadecimal digits.
	Serial string `json:"serial,omitempty"`
	// Names are those in the certificate.
	Names []string  `json:"names,omitempty"`
	Until time.Time `json:"valid_until"`
}

// ExistsError reports a file that would have been replaced.
type ExistsError struct{ Path string }

func (e *ExistsError) Error() string { return e.Path + " exists" }

// Authority makes an authority that is valid for that long. With add it joins those in the
// directory and signs from now on; their certificates stay in the bundle.
func (d *Dir) Authority(name string, validity time.Duration, add bool) (Made, error) {
	bundle, keyPath := d.file(BundleFile), d.file(KeyFile)
	var old []*x509.Certificate
	var err error
	if add {
		if old, err = d.bundle(); err != nil {
			return Made{}, err
		}
	} else if err := d.free(bundle, keyPath); err != nil {
		return Made{}, err
	}
	if err := os.MkdirAll(d.Path, 0o700); err != nil {
		return Made{}, err
	}
	serial, err := newSerial()
	if err != nil {
		return Made{}, err
	}
	// Each authority has a name of its own: a revocation list names its issuer.
	name = fmt.Sprintf("%s %x", name, serial.Bytes()[:4])
	now := d.now()
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{Organization: []string{"Isotone"}, CommonName: name},
		NotBefore: now.Add(-backdated), NotAfter: now.Add(validity),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}
	der, key, err := sign(t, nil, nil)
	if err != nil {
		return Made{}, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return Made{}, err
	}
	if add {
		if err := os.Rename(keyPath, d.nextKeyFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Made{}, err
		}
	}
	if err := errors.Join(writeKey(keyPath, key), writeCerts(bundle, append([]*x509.Certificate{cert}, old...)...)); err != nil {
		return Made{}, err
	}
	return Made{Cert: bundle, Key: keyPath, Serial: fmt.Sprintf("%x", serial), Names: []string{name}, Until: t.NotAfter}, nil
}

// Retire leaves only the newest authority in the bundle. Their keys stay.
func (d *Dir) Retire() (Made, error) {
	cert, _, err := d.newest()
	if err != nil {
		return Made{}, err
	}
	if err := writeCerts(d.file(BundleFile), cert); err != nil {
		return Made{}, err
	}
	return Made{Cert: d.file(BundleFile), Serial: fmt.Sprintf("%x", cert.SerialNumber), Names: []string{cert.Subject.CommonName}, Until: cert.NotAfter}, nil
}

// Subject is whom a certificate is for.
type Subject struct {
	file, common string
	uri          *url.URL
	hosts        []string
	usages       []x509.ExtKeyUsage
}

// Node is the subject of a node's certificate, for both directions. hosts are DNS names and IP
// addresses at which others reach it; there may be none. trustDomain must be valid.
func Node(trustDomain string, id uint64, hosts []string) Subject {
	name := "node" + strconv.FormatUint(id, 10)
	return Subject{
		file: name, common: name, uri: certname.Node(trustDomain, id), hosts: hosts,
		usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

// Client is the subject of a client's certificate. Its common name is the name of the client.
// Both arguments must be valid.
func Client(trustDomain, name string) Subject {
	return Subject{file: "client-" + name, common: name, uri: certname.Client(trustDomain, name), usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
}

// Sign makes a key and a certificate that the newest authority has signed. It is valid for that
// long, and not longer than the authority.
func (d *Dir) Sign(s Subject, validity time.Duration) (Made, error) {
	issuer, issuerKey, err := d.newest()
	if err != nil {
		return Made{}, err
	}
	certPath, keyPath := d.file(s.file+".pem"), d.file(s.file+"-key.pem")
	if err := d.free(certPath, keyPath); err != nil {
		return Made{}, err
	}
	serial, err := newSerial()
	if err != nil {
		return Made{}, err
	}
	now := d.now()
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{Organization: []string{"Isotone"}, CommonName: s.common},
		NotBefore: now.Add(-backdated), NotAfter: now.Add(validity), KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: s.usages,
		BasicConstraintsValid: true, URIs: []*url.URL{s.uri},
	}
	if t.NotAfter.After(issuer.NotAfter) {
		t.NotAfter = issuer.NotAfter
	}
	for _, host := range s.hosts {
		if ip := net.ParseIP(host); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, host)
		}
	}
	der, key, err := sign(t, issuer, issuerKey)
	if err != nil {
		return Made{}, err
	}
	if err := errors.Join(writeKey(keyPath, key), writePEM(certPath, 0o644, &pem.Block{Type: "CERTIFICATE", Bytes: der})); err != nil {
		return Made{}, err
	}
	return Made{Cert: certPath, Key: keyPath, Serial: fmt.Sprintf("%x", serial), Names: append([]string{s.uri.String()}, s.hosts...), Until: t.NotAfter}, nil
}

func (d *Dir) file(name string) string { return filepath.Join(d.Path, name) }

func (d *Dir) now() time.Time {
	if d.Now != nil {
		return d.Now()
	}
	return time.Now()
}

// free fails if one of the files exists and must not be replaced.
func (d *Dir) free(files ...string) error {
	for _, f := range files {
		if _, err := os.Lstat(f); !errors.Is(err, fs.ErrNotExist) && !d.Overwrite {
			if err == nil {
				err = &ExistsError{f}
			}
			return err
		}
	}
	return nil
}

// nextKeyFile returns the first name for the key of an older authority that is free.
func (d *Dir) nextKeyFile() string {
	for n := 1; ; n++ {
		file := d.file(fmt.Sprintf("ca-key-%d.pem", n))
		if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
			return file
		}
	}
}

// newest returns the authority that signs: the one whose key is in KeyFile.
func (d *Dir) newest() (*x509.Certificate, crypto.Signer, error) {
	bundle, err := d.bundle()
	if err != nil {
		return nil, nil, err
	}
	key, err := readKey(d.file(KeyFile))
	if err != nil {
		return nil, nil, err
	}
	for _, cert := range bundle {
		if fits(cert, key) {
			return cert, key, nil
		}
	}
	return nil, nil, fmt.Errorf("%s is the key of no authority in %s", d.file(KeyFile), d.file(BundleFile))
}

// keyOf returns the key of an authority.
func (d *Dir) keyOf(cert *x509.Certificate) (crypto.Signer, error) {
	files, err := filepath.Glob(d.file("ca-key*.pem"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		key, err := readKey(file)
		if err != nil {
			return nil, err
		}
		if fits(cert, key) {
			return key, nil
		}
	}
	return nil, fmt.Errorf("the key of its authority, %q, is not in %s", cert.Subject.CommonName, d.Path)
}

func fits(cert *x509.Certificate, key crypto.Signer) bool {
	public, ok := cert.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(key.Public())
}

func (d *Dir) bundle() ([]*x509.Certificate, error) {
	certs, err := readCerts(d.file(BundleFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has no authority yet; make one first: %w", d.Path, err)
	}
	return certs, err
}

// sign makes a key and signs t, by itself without an issuer.
func sign(t, issuer *x509.Certificate, issuerKey crypto.Signer) (der []byte, key *ecdsa.PrivateKey, err error) {
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, err
	}
	if issuer == nil {
		issuer, issuerKey = t, key
	}
	der, err = x509.CreateCertificate(rand.Reader, t, issuer, key.Public(), issuerKey)
	return der, key, err
}

// newSerial returns a random serial number of 16 bytes.
func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 126))
	if err != nil {
		return nil, err
	}
	return serial.SetBit(serial, 126, 1), nil
}
