package credential

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
)

// revocations is one revocation list.
type revocations struct {
	list    *x509.RevocationList
	serials map[string]struct{}
}

// loadRevocations reads the lists in f. One whose issuer has the name of an authority must be
// signed by it; those of other issuers stay, as they may be intermediate authorities. An empty
// file has no lists.
func (f *file) loadRevocations(authorities []*x509.Certificate) (all []*revocations, err error) {
	rest, err := f.read()
	if err != nil {
		return nil, err
	}
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "X509 CRL" {
			return nil, f.fault("%s has a %q; want revocation lists only, of the type \"X509 CRL\"", f.path, block.Type)
		}
		list, err := x509.ParseRevocationList(block.Bytes)
		if err != nil {
			return nil, f.fault("%s: %w", f.path, err)
		}
		if !mayBeSigned(list, authorities) {
			return nil, f.fault("%s has a list that is not signed by its issuer %q", f.path, list.Issuer)
		}
		r := &revocations{list: list, serials: map[string]struct{}{}}
		for _, entry := range list.RevokedCertificateEntries {
			r.serials[string(entry.SerialNumber.Bytes())] = struct{}{}
		}
		all = append(all, r)
	}
	if len(bytes.TrimSpace(rest)) > 0 {
		return nil, f.fault("%s has something that is no revocation list in PEM", f.path)
	}
	return all, nil
}

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
