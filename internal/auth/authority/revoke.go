package authority

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"slices"
)

// Revoke puts certificates on the revocation list of their authority, whose key must be in the
// directory. A certificate that is on it stays as it was. It returns the list's file.
func (d *Dir) Revoke(files ...string) (Made, error) {
	bundle, err := d.bundle()
	if err != nil {
		return Made{}, err
	}
	lists, err := d.lists()
	if err != nil {
		return Made{}, err
	}
	made := Made{Cert: d.file(CRLFile), Until: d.now().Add(crlValidity)}
	var revoked []*x509.Certificate
	for _, file := range files {
		certs, err := readCerts(file)
		if err != nil {
			return Made{}, err
		}
		if slices.ContainsFunc(revoked, certs[0].Equal) {
			continue
		}
		revoked = append(revoked, certs[0])
		if lists, err = d.revoke(lists, bundle, certs[0]); err != nil {
			return Made{}, fmt.Errorf("%s: %w", file, err)
		}
		made.Names = append(made.Names, fmt.Sprintf("%x", certs[0].SerialNumber))
	}
	var blocks []*pem.Block
	for _, list := range lists {
		blocks = append(blocks, &pem.Block{Type: "X509 CRL", Bytes: list.Raw})
	}
	return made, writePEM(d.file(CRLFile), 0o644, blocks...)
}

// revoke returns lists with cert on the one of its issuer.
func (d *Dir) revoke(lists []*x509.RevocationList, bundle []*x509.Certificate, cert *x509.Certificate) ([]*x509.RevocationList, error) {
	n := slices.IndexFunc(bundle, func(a *x509.Certificate) bool { return cert.CheckSignatureFrom(a) == nil })
	if n < 0 {
		return nil, fmt.Errorf("no authority in %s has signed it", d.file(BundleFile))
	}
	issuer := bundle[n]
	key, err := d.keyOf(issuer)
	if err != nil {
		return nil, err
	}
	t := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: d.now(), NextUpdate: d.now().Add(crlValidity)}
	at := slices.IndexFunc(lists, func(l *x509.RevocationList) bool { return bytes.Equal(l.RawIssuer, issuer.RawSubject) })
	if at >= 0 {
		t.RevokedCertificateEntries = lists[at].RevokedCertificateEntries
		t.Number.Add(lists[at].Number, big.NewInt(1))
	}
	if !slices.ContainsFunc(t.RevokedCertificateEntries, func(e x509.RevocationListEntry) bool { return e.SerialNumber.Cmp(cert.SerialNumber) == 0 }) {
		t.RevokedCertificateEntries = append(t.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: cert.SerialNumber, RevocationTime: d.now()})
	}
	der, err := x509.CreateRevocationList(rand.Reader, t, issuer, key)
	if err != nil {
		return nil, err
	}
	list, err := x509.ParseRevocationList(der)
	if err != nil {
		return nil, err
	}
	if at < 0 {
		return append(lists, list), nil
	}
	lists[at] = list
	return lists, nil
}

// lists returns the lists so far. An empty file has none: nodes accept one, which is there before
// anything is revoked.
func (d *Dir) lists() (lists []*x509.RevocationList, err error) {
	if info, err := os.Stat(d.file(CRLFile)); err == nil && info.Mode().IsRegular() && info.Size() == 0 {
		return nil, nil
	}
	blocks, err := readPEM(d.file(CRLFile), "X509 CRL")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, b := range blocks {
		list, parseErr := x509.ParseRevocationList(b.Bytes)
		if parseErr != nil {
			return nil, fmt.Errorf("%s: %w", d.file(CRLFile), parseErr)
		}
		lists = append(lists, list)
	}
	return lists, err
}
