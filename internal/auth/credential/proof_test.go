package credential_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/auth/authority"
	"github.com/isotone/isotone/internal/auth/credential"
)

// proof returns p's proof of message.
func proof(t *testing.T, p *credential.Peers, message string) string {
	t.Helper()
	text, err := p.Prove(message)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestProof_IsOfItsMessageAndOfItsTime(t *testing.T) {
	ours, theirs := certificates(t), certificates(t)
	must(t)(ours.Authority("Test", 365*day, false))
	must(t)(theirs.Authority("Test", 365*day, false))
	a, b, stranger := newNode(t, ours, 1), newNode(t, ours, 2), newNode(t, theirs, 2)
	p, q := a.openPeers(false), b.openPeers(false)
	text := proof(t, q, "join 2")
	if cert, err := p.Proven(text, "join 2"); err != nil || cert.Subject.CommonName != "node2" {
		t.Fatalf("%v, %v", cert, err)
	}
	if len(text) > credential.ProofSizeMax/2 {
		t.Errorf("a proof has %d bytes", len(text))
	}
	parts := strings.Split(text, ".")
	changed := func(i int, to string) string {
		all := append([]string(nil), parts...)
		all[i] = to
		return strings.Join(all, ".")
	}
	mine := strings.Split(proof(t, p, "join 2"), ".")
	for name, bad := range map[string]string{
		"nothing": "", "text": "a.b.c.d", "another version": changed(0, "2"), "another time": changed(1, "1"), "no time": changed(1, "x"),
		"no signature": changed(2, ""), "another's signature": changed(2, mine[2]), "another's certificate": changed(3, mine[3]),
		"no certificate": strings.Join(parts[:3], "."), "half a certificate": changed(3, parts[3][:len(parts[3])/2]), "padding": changed(2, parts[2]+"="),
		"many certificates": text + strings.Repeat("."+parts[3], 20), "a long one": text + "." + strings.Repeat("A", credential.ProofSizeMax),
		"another message": proof(t, q, "join 3"), "of an authority of others": proof(t, stranger.openPeers(false), "join 2"),
	} {
		if cert, err := p.Proven(bad, "join 2"); err == nil || cert != nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for _, off := range []time.Duration{-9 * time.Minute, 9 * time.Minute, -11 * time.Minute, 11 * time.Minute} {
		a.now = today.Add(off)
		if _, err := p.Proven(text, "join 2"); (err == nil) != (off.Abs() < 10*time.Minute) || err != nil && !strings.Contains(err.Error(), "set the clocks") {
			t.Errorf("%v later: %v", off, err)
		}
	}
	a.now = today
	must(t)(ours.Revoke(b.cert))
	a.copy(ours.Path+"/"+authority.CRLFile, a.crl)
	var refused *credential.CertificateError
	if _, err := a.openPeers(true).Proven(text, "join 2"); !errors.As(err, &refused) || refused.Reason != credential.ReasonRevoked {
		t.Errorf("a revoked certificate: %v", err)
	}
}

// node returns the template of a certificate of a node, or of an authority.
func node(name string, isCA bool) *x509.Certificate {
	serial++
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotBefore: today.Add(-day), NotAfter: today.Add(day),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: isCA, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

// TestProof_OfEachKindOfKey that certificates of Go can have.
func TestProof_OfEachKindOfKey(t *testing.T) {
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]crypto.Signer{"Ed25519": ed}
	for name, curve := range map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()} {
		if keys[name], err = ecdsa.GenerateKey(curve, rand.Reader); err != nil {
			t.Fatal(err)
		}
	}
	if keys["RSA"], err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		t.Fatal(err)
	}
	for name, key := range keys {
		f := newFixture(t)
		n := &nodeFiles{fixture: f, ca: f.clients}
		certPEM, keyPEM, _ := nobody.certify(t, node(name, true), key)
		write(t, n.cert, certPEM)
		write(t, n.ca, certPEM)
		write(t, n.key, keyPEM)
		p := n.openPeers(false)
		text := proof(t, p, "join 2")
		if _, err := p.Proven(text, "join 2"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := p.Proven(text, "join 3"); err == nil {
			t.Errorf("%s: of another message", name)
		}
	}
}

// TestProof_OfAChain: each certificate is signed by the next, and one by an authority. No other key is used.
func TestProof_OfAChain(t *testing.T) {
	rootPEM, _, root := nobody.sign(t, "root", today.Add(365*day))
	issue := func(by *issuer, name string, isCA bool) (certPEM, keyPEM []byte, made *issuer) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		certPEM, keyPEM, cert := by.certify(t, node(name, isCA), key)
		return certPEM, keyPEM, &issuer{cert, key}
	}
	onePEM, _, one := issue(root, "one", true)
	twoPEM, _, two := issue(one, "two", true)
	leafPEM, keyPEM, _ := issue(two, "leaf", false)
	f := newFixture(t)
	n := &nodeFiles{fixture: f, ca: f.clients}
	write(t, n.ca, rootPEM)
	write(t, n.key, keyPEM)
	peers := func(chain ...[]byte) *credential.Peers {
		write(t, n.cert, bytes.Join(chain, nil))
		return n.openPeers(false)
	}
	verifier := peers(leafPEM, twoPEM, onePEM)
	for name, c := range map[string]struct {
		chain [][]byte
		good  bool
	}{
		"whole": {[][]byte{leafPEM, twoPEM, onePEM}, true}, "with its root": {[][]byte{leafPEM, twoPEM, onePEM, rootPEM}, true},
		"with more behind it": {[][]byte{leafPEM, twoPEM, onePEM, leafPEM}, true}, "in another order": {[][]byte{leafPEM, onePEM, twoPEM}, false},
	} {
		_, err := verifier.Proven(proof(t, peers(c.chain...), "join 2"), "join 2")
		if (err == nil) != c.good || err != nil && !strings.Contains(err.Error(), "not trusted") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// What a verifier that knows only one of them as an authority needs.
	write(t, n.ca, onePEM)
	if _, err := peers(leafPEM, twoPEM).Proven(proof(t, peers(leafPEM, twoPEM, onePEM), "join 2"), "join 2"); err != nil {
		t.Errorf("an intermediate as the authority: %v", err)
	}
	write(t, n.ca, rootPEM)
	long := peers(leafPEM, twoPEM, onePEM, rootPEM, rootPEM, rootPEM, rootPEM)
	if text, err := long.Prove("join 2"); err == nil || !strings.Contains(err.Error(), "PEER_TLS_CERT has 7 certificates") {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

// FuzzProven: whatever a stranger sends is refused, and nothing panics.
func FuzzProven(f *testing.F) {
	dir := authority.Dir{Path: f.TempDir(), Overwrite: true, Now: func() time.Time { return today }}
	if _, err := dir.Authority("Test", 365*day, false); err != nil {
		f.Fatal(err)
	}
	made, err := dir.Sign(authority.Node("x", 2, nil), 30*day)
	if err != nil {
		f.Fatal(err)
	}
	p, err := credential.OpenPeers(credential.PeerConfig{
		CertFile: made.Cert, KeyFile: made.Key, CAFile: dir.Path + "/" + authority.BundleFile, Now: func() time.Time { return today },
	})
	if err != nil {
		f.Fatal(err)
	}
	text, err := p.Prove("join 2")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add("1.1792000000.AA.AA")
	pemText, err := os.ReadFile(made.Cert)
	if err != nil {
		f.Fatal(err)
	}
	block, _ := pem.Decode(pemText)
	f.Add("1." + "1792000000." + "AA." + base64.RawURLEncoding.EncodeToString(block.Bytes))
	f.Fuzz(func(t *testing.T, text string) {
		// The message differs from that of the good proof, so there is none among what is tried.
		if cert, err := p.Proven(text, "join 3"); err == nil || cert != nil {
			t.Errorf("accepted: %q", text)
		}
	})
}
