package credential

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// revocations is one revocation list.
type revocations struct {
	list    *x509.RevocationList
	serials map[string]struct{}
}

// loadRevocations reads the lists in f. One whose issuer has the name of an authority must be
// signed by it; those of other issuers stay, as they may be intermediate authorities. An empty
// file has no lists.
func (f *file) loadRevocations(authorities []*x509.Certificate) ([]*revocations, error) {
	text, err := f.read()
	if err != nil {
		return nil, err
	}
	all, err := parseRevocations(text)
	if err != nil {
		return nil, f.fault("%s %w", f.path, err)
	}
	for _, r := range all {
		if !mayBeSigned(r.list, authorities) {
			return nil, f.fault("%s has a list that is not signed by its issuer %q", f.path, r.list.Issuer)
		}
	}
	return all, nil
}

// parseRevocations reads lists in PEM, all of them or none. It verifies no signature. Its errors
// go on from the name of the file.
func parseRevocations(rest []byte) (all []*revocations, err error) {
	begun := countBlocks(rest)
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "X509 CRL" {
			return nil, fmt.Errorf("has a %.40q; want revocation lists only, of the type \"X509 CRL\"", block.Type)
		}
		list, err := x509.ParseRevocationList(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("has a list that cannot be read: %w", err)
		}
		r := &revocations{list: list, serials: map[string]struct{}{}}
		for _, entry := range list.RevokedCertificateEntries {
			r.serials[string(entry.SerialNumber.Bytes())] = struct{}{}
		}
		all = append(all, r)
	}
	if len(bytes.TrimSpace(rest)) > 0 || len(all) != begun {
		return nil, errors.New("has something that is no revocation list in PEM")
	}
	return all, nil
}

// countBlocks returns how many blocks of PEM begin in text. pem.Decode goes on with the next one
// after a block that is damaged, and whom that one revokes would be accepted.
func countBlocks(text []byte) int { return bytes.Count(text, []byte("-----BEGIN ")) }

func mayBeSigned(list *x509.RevocationList, authorities []*x509.Certificate) bool {
	known := false
	for _, a := range authorities {
		if bytes.Equal(a.RawSubject, list.RawIssuer) {
			known = true
			if list.CheckSignatureFrom(a) == nil {
				return true
			}
		}
	}
	return !known
}

// isRevoked reports whether a certificate is on a list of its issuer.
func isRevoked(lists []*revocations, cert, issuer *x509.Certificate) bool {
	for _, r := range lists {
		if _, listed := r.serials[string(cert.SerialNumber.Bytes())]; listed && bytes.Equal(r.list.RawIssuer, issuer.RawSubject) && r.list.CheckSignatureFrom(issuer) == nil {
			return true
		}
	}
	return false
}
