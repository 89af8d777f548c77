package credential

import (
	"crypto/x509"
	"time"
)

// PeerState is what [Peers] uses at one time. It has no keys. Do not change what it points to.
type PeerState struct {
	Certificate *x509.Certificate
	// SignedBy is the authority at the end of the chain of the certificate, which is valid from
	// NotBefore to NotAfter; nil if the time is outside of that.
	SignedBy            *x509.Certificate
	NotBefore, NotAfter time.Time
	// Revoked is set if each chain has a certificate that is on a list.
	Revoked     bool
	Authorities []*x509.Certificate
	Lists       []*x509.RevocationList
}

// State returns what is in use.
func (p *Peers) State() PeerState {
	m := p.files.current.Load()
	leaf := m.cert.Leaf
	s := PeerState{Certificate: leaf, NotBefore: leaf.NotBefore, NotAfter: leaf.NotAfter, Authorities: m.authorities}
	for _, r := range m.revoked {
		s.Lists = append(s.Lists, r.list)
	}
	certs, err := parseAll(m.cert.Certificate)
	if err != nil { // it was parsed before
		return s
	}
	chains, _ := chainsOf(m, certs, x509.ExtKeyUsageServerAuth, p.files.cfg.Now()) // none: no authority has signed it
	for n, chain := range chains {
		s.Revoked = revokedIn(m.revoked, chain)
		if s.Revoked && n < len(chains)-1 {
			continue
		}
		s.SignedBy = chain[len(chain)-1]
		for _, c := range chain {
			if c.NotAfter.Before(s.NotAfter) {
				s.NotAfter = c.NotAfter
			}
			if c.NotBefore.After(s.NotBefore) {
				s.NotBefore = c.NotBefore
			}
		}
		break
	}
	return s
}
