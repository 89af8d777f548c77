package credential

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A proof is a message signed with the key of a certificate for peers, for servers whose TLS does not request that certificate.
// Its text consists of parts with dots between them: proofVersion, the unix time in seconds, the signature, and the chain of
// certificates in DER, that of the signer first. Signature and certificates are in base64url without padding (RFC 4648 §5).
const (
	proofVersion = "1"
	// ProofSizeMax bounds the text of a proof, in bytes.
	ProofSizeMax = 12 << 10
	// proofChainMax bounds its certificates.
	proofChainMax = 6
	// proofTimeMax bounds the difference between the clocks of both sides. Whoever has read a proof can use it again
	// for up to twice that time.
	proofTimeMax = 10 * time.Minute
)

var errProof = errors.New("it is not a proof of this version")

// Prove returns the text of a proof of message, signed now with the key of this node's certificate.
func (p *Peers) Prove(message string) (string, error) {
	m := p.files.current.Load()
	signer, ok := m.cert.PrivateKey.(crypto.Signer)
	if !ok {
		return "", errors.New("the private key cannot sign")
	}
	at := strconv.FormatInt(p.files.cfg.Now().Unix(), 10)
	signed, options := []byte(signedText(at, message)), crypto.SignerOpts(crypto.Hash(0))
	if _, isEd25519 := signer.Public().(ed25519.PublicKey); !isEd25519 { // Ed25519 hashes by itself
		digest := sha256.Sum256(signed)
		signed, options = digest[:], crypto.SHA256
	}
	if _, ok := signer.Public().(*rsa.PublicKey); ok {
		options = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA256}
	}
	signature, err := signer.Sign(rand.Reader, signed, options)
	if err != nil {
		return "", err
	}
	parts := []string{proofVersion, at, base64.RawURLEncoding.EncodeToString(signature)}
	for _, der := range m.cert.Certificate {
		parts = append(parts, base64.RawURLEncoding.EncodeToString(der))
	}
	text := strings.Join(parts, ".")
	if len(m.cert.Certificate) > proofChainMax || len(text) > ProofSizeMax {
		return "", fmt.Errorf("%s has %d certificates, which take %d bytes in a proof: want at most %d, of %d bytes together",
			p.files.pair.cert.setting, len(m.cert.Certificate), len(text), proofChainMax, ProofSizeMax)
	}
	return text, nil
}

// signedText returns the text that is signed. No other protocol in which the key signs, TLS included, signs texts with this first line.
func signedText(at, message string) string { return "isotone proof of a peer\n" + at + "\n" + message }

// Proven returns the certificate of the peer that has signed message, as proof says. The error is a
// [*CertificateError] if its certificate is refused.
func (p *Peers) Proven(proof, message string) (*x509.Certificate, error) {
	if len(proof) > ProofSizeMax {
		return nil, errProof
	}
	parts := strings.Split(proof, ".")
	if len(parts) < 4 || len(parts) > 3+proofChainMax || parts[0] != proofVersion {
		return nil, errProof
	}
	seconds, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return nil, errProof
	}
	var blobs [][]byte
	for _, text := range parts[2:] {
		b, err := base64.RawURLEncoding.Strict().DecodeString(text)
		if err != nil {
			return nil, errProof
		}
		blobs = append(blobs, b)
	}
	certs, err := parseAll(blobs[1:])
	if err != nil {
		return nil, errProof
	}
	issuer := certs[0].Issuer.String()
	algorithm, ok := proofAlgorithm(certs[0])
	if !ok {
		return nil, errors.New("keys of this kind are not supported")
	}
	if certs = anchored(certs, p.files.current.Load().authorities); certs == nil {
		return nil, &CertificateError{ReasonUntrusted, fmt.Sprintf("the certificate, issued by %.200q, is not trusted: no authority has signed it, or its chain is not in order", issuer)}
	}
	id, err := p.Identify(certs, x509.ExtKeyUsageClientAuth)
	if err != nil {
		return nil, err
	}
	if certs[0].CheckSignature(algorithm, []byte(signedText(parts[1], message)), blobs[0]) != nil {
		return nil, errors.New("the signature is not that of the certificate, or of another request")
	}
	// Not by the difference: that of times far apart overflows.
	now := p.files.cfg.Now()
	if at := time.Unix(seconds, 0); at.Before(now.Add(-proofTimeMax)) || at.After(now.Add(proofTimeMax)) {
		return nil, errors.New("it was signed at " + at.UTC().Format(time.RFC3339) + ", and here it is " + now.UTC().Format(time.RFC3339) + ": set the clocks")
	}
	return id.Leaf(), nil
}

// anchored returns a chain up to the first certificate that is an authority's or signed by one. It returns nil if there is no such
// certificate, or if one before it is not signed by the next. It verifies with keys of authorities, and with keys that
// those have signed: a stranger's own key can be so large that one signature takes a tenth of a second.
func anchored(chain, authorities []*x509.Certificate) []*x509.Certificate {
	last := slices.IndexFunc(chain, func(c *x509.Certificate) bool {
		return slices.ContainsFunc(authorities, func(a *x509.Certificate) bool {
			return c.Equal(a) || bytes.Equal(c.RawIssuer, a.RawSubject) && c.CheckSignatureFrom(a) == nil
		})
	})
	if last < 0 {
		return nil
	}
	for i := last - 1; i >= 0; i-- {
		if chain[i].CheckSignatureFrom(chain[i+1]) != nil {
			return nil
		}
	}
	return chain[:last+1]
}

// proofAlgorithm returns how the key of a certificate signs proofs.
func proofAlgorithm(cert *x509.Certificate) (x509.SignatureAlgorithm, bool) {
	switch cert.PublicKey.(type) {
	case *ecdsa.PublicKey:
		return x509.ECDSAWithSHA256, true
	case *rsa.PublicKey:
		return x509.SHA256WithRSAPSS, true
	case ed25519.PublicKey:
		return x509.PureEd25519, true
	}
	return 0, false
}
