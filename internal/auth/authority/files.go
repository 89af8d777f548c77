package authority

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

func readKey(file string) (crypto.Signer, error) {
	blocks, err := readPEM(file, "PRIVATE KEY")
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(blocks[0].Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s has a key that cannot sign", file)
	}
	return signer, nil
}

func readCerts(file string) (certs []*x509.Certificate, err error) {
	blocks, err := readPEM(file, "CERTIFICATE")
	if err != nil {
		return nil, err
	}
	for _, b := range blocks {
		cert, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		certs = append(certs, cert)
	}
	return certs, nil
}

// readPEM returns the blocks of a file, at least one, all of one type.
func readPEM(file, kind string) (blocks []*pem.Block, err error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > fileSizeMax {
		return nil, fmt.Errorf("%s is not a regular file, or has more than %d bytes", file, fileSizeMax)
	}
	rest, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			break
		}
		if b.Type != kind {
			return nil, fmt.Errorf("%s has a %q in PEM; want %q", file, b.Type, kind)
		}
		blocks = append(blocks, b)
	}
	if blocks == nil {
		return nil, fmt.Errorf("%s has no %q in PEM", file, kind)
	}
	return blocks, nil
}

func writeKey(file string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(file, 0o600, &pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func writeCerts(file string, certs ...*x509.Certificate) error {
	var blocks []*pem.Block
	for _, c := range certs {
		blocks = append(blocks, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
	}
	return writePEM(file, 0o644, blocks...)
}

// writePEM replaces a file atomically.
func writePEM(file string, mode fs.FileMode, blocks ...*pem.Block) (err error) {
	var b strings.Builder
	for _, block := range blocks {
		if err := pem.Encode(&b, block); err != nil {
			return err
		}
	}
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
	if _, err = temp.WriteString(b.String()); err != nil {
		return err
	}
	if err = temp.Chmod(mode); err != nil {
		return err
	}
	if err = errors.Join(temp.Sync(), temp.Close()); err != nil {
		return err
	}
	return os.Rename(temp.Name(), file)
}
