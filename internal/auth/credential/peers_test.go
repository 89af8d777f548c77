package credential_test

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/auth/authority"
	"github.com/isotone/isotone/internal/auth/credential"
)

const day = 24 * time.Hour

// nodeFiles is what one node has: files, its log and its clock.
type nodeFiles struct {
	*fixture
	ca, crl string
}

// certificates is an authority of the tests, at its own time.
func certificates(t *testing.T) authority.Dir {
	return authority.Dir{Path: t.TempDir(), Overwrite: true, Now: func() time.Time { return today }}
}

// must returns what was made.
func must(t *testing.T) func(authority.Made, error) authority.Made {
	return func(m authority.Made, err error) authority.Made {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
}

// newNode gives a node the certificate of a subject, and the bundle.
func newNode(t *testing.T, d authority.Dir, id uint64) *nodeFiles {
	t.Helper()
	f := newFixture(t)
	n := &nodeFiles{fixture: f, ca: f.clients, crl: filepath.Join(filepath.Dir(f.cert), "crl.pem")}
	n.give(d, authority.Node("x", id, nil))
	n.bundle(d)
	return n
}

func (n *nodeFiles) give(d authority.Dir, s authority.Subject) authority.Made {
	n.Helper()
	m := must(n.T)(d.Sign(s, 30*day))
	n.copy(m.Cert, n.cert)
	n.copy(m.Key, n.key)
	return m
}

func (n *nodeFiles) bundle(d authority.Dir) {
	n.copy(filepath.Join(d.Path, authority.BundleFile), n.ca)
}

func (n *nodeFiles) copy(from, to string) {
	n.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		n.Fatal(err)
	}
	write(n.T, to, b)
}

func (n *nodeFiles) peerConfig() credential.PeerConfig {
	return credential.PeerConfig{
		CertFile: n.cert, KeyFile: n.key, CAFile: n.ca, Log: slog.New(slog.NewTextHandler(n, nil)), Now: func() time.Time { return n.now },
	}
}

func (n *nodeFiles) openPeers(withList bool) *credential.Peers {
	n.Helper()
	cfg := n.peerConfig()
	if withList {
		cfg.CRLFile = n.crl
	}
	p, err := credential.OpenPeers(cfg)
	if err != nil {
		n.Fatal(err)
	}
	return p
}

// load has changed files read.
func load(p *credential.Peers) {
	p.Check()
	p.Check()
}

// reason returns why the certificate that n has now is refused by p; "" if it is not.
func (n *nodeFiles) reason(p *credential.Peers, usage x509.ExtKeyUsage) string {
	n.Helper()
	pair, err := tls.LoadX509KeyPair(n.cert, n.key)
	if err != nil {
		n.Fatal(err)
	}
	_, err = p.Identify([]*x509.Certificate{pair.Leaf}, usage)
	var bad *credential.CertificateError
	if err != nil && !errors.As(err, &bad) {
		n.Fatal(err)
	}
	if bad == nil {
		return ""
	}
	return bad.Reason
}

func TestPeers_RefuseForAReason(t *testing.T) {
	ours, theirs := certificates(t), certificates(t)
	must(t)(ours.Authority("Test", 365*day, false))
	must(t)(theirs.Authority("Test", 365*day, false))
	a, b := newNode(t, ours, 1), newNode(t, ours, 2)
	p := a.openPeers(false)
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if got := b.reason(p, usage); got != "" {
			t.Errorf("a good certificate: %s", got)
		}
	}
	b.give(ours, authority.Client("x", "orders"))
	if got := b.reason(p, x509.ExtKeyUsageServerAuth); got != credential.ReasonUntrusted {
		t.Errorf("a client that serves: %q", got)
	}
	b.give(theirs, authority.Node("x", 2, nil))
	if got := b.reason(p, x509.ExtKeyUsageClientAuth); got != credential.ReasonUntrusted {
		t.Errorf("another authority: %q", got)
	}
	b.give(ours, authority.Node("x", 2, nil))
	a.now = today.Add(31 * day)
	if got := b.reason(p, x509.ExtKeyUsageClientAuth); got != credential.ReasonExpired {
		t.Errorf("after its end: %q", got)
	}
	a.now = today.Add(-2 * time.Hour)
	if got := b.reason(p, x509.ExtKeyUsageClientAuth); got != credential.ReasonExpired {
		t.Errorf("before its beginning: %q", got)
	}
	if _, err := p.Identify(nil, x509.ExtKeyUsageClientAuth); err == nil {
		t.Error("no certificate is accepted")
	}
}

func TestPeers_RevokedWhileInUse(t *testing.T) {
	ours := certificates(t)
	must(t)(ours.Authority("Test", 365*day, false))
	a, b, c := newNode(t, ours, 1), newNode(t, ours, 2), newNode(t, ours, 3)
	write(t, a.crl, nil)
	p := a.openPeers(true)
	identify := func(n *nodeFiles) *credential.Identity {
		pair, err := tls.LoadX509KeyPair(n.cert, n.key)
		if err != nil {
			t.Fatal(err)
		}
		i, err := p.Identify([]*x509.Certificate{pair.Leaf}, x509.ExtKeyUsageClientAuth)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	two, three := identify(b), identify(c)
	a.copy(must(t)(ours.Revoke(b.cert)).Cert, a.crl)
	load(p)
	var bad *credential.CertificateError
	if err := two.Check(); !errors.As(err, &bad) || bad.Reason != credential.ReasonRevoked {
		t.Errorf("after its revocation: %v", err)
	}
	if err := three.Check(); err != nil {
		t.Error(err)
	}
	a.now = today.Add(31 * day)
	if err := three.Check(); !errors.As(err, &bad) || bad.Reason != credential.ReasonExpired {
		t.Errorf("after its end: %v", err)
	}
}

// An open connection ends when the certificate of the authority does, if that is before its own.
func TestPeers_AuthorityExpiresWhileInUse(t *testing.T) {
	ours := certificates(t)
	must(t)(ours.Authority("Test", 365*day, false))
	a, b := newNode(t, ours, 1), newNode(t, ours, 2)
	ca, err := tls.X509KeyPair(read(t, a.ca), read(t, filepath.Join(ours.Path, authority.KeyFile)))
	if err != nil {
		t.Fatal(err)
	}
	short := *ca.Leaf
	short.NotAfter = today.Add(10 * day) // those of the nodes: 30 days
	der, err := x509.CreateCertificate(rand.Reader, &short, &short, ca.Leaf.PublicKey, ca.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	write(t, a.ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	p := a.openPeers(false)
	pair, err := tls.LoadX509KeyPair(b.cert, b.key)
	if err != nil {
		t.Fatal(err)
	}
	i, err := p.Identify([]*x509.Certificate{pair.Leaf}, x509.ExtKeyUsageClientAuth)
	if err != nil {
		t.Fatal(err)
	}
	for after, valid := range map[time.Duration]bool{9 * day: true, 11 * day: false} {
		a.now = today.Add(after)
		if err := i.Check(); (err == nil) != valid {
			t.Errorf("after %v: %v", after, err)
		}
	}
}

// A new authority takes over without an end of trust: both in the bundle, then new certificates,
// then the new one alone.
func TestPeers_OneAuthorityFollowsAnother(t *testing.T) {
	ours := certificates(t)
	must(t)(ours.Authority("Test", 365*day, false))
	a, b := newNode(t, ours, 1), newNode(t, ours, 2)
	p, q := a.openPeers(false), b.openPeers(false)
	trusted := func(step string) {
		t.Helper()
		if why := a.reason(q, x509.ExtKeyUsageServerAuth) + b.reason(p, x509.ExtKeyUsageClientAuth); why != "" {
			t.Errorf("%s: %s", step, why)
		}
	}
	must(t)(ours.Authority("Test", 365*day, true))
	for _, step := range []func(){
		func() { a.bundle(ours) }, func() { b.bundle(ours) },
		func() { a.give(ours, authority.Node("x", 1, nil)) }, func() { b.give(ours, authority.Node("x", 2, nil)) },
		func() { must(t)(ours.Retire()); a.bundle(ours) }, func() { b.bundle(ours) },
	} {
		step()
		load(p)
		load(q)
		trusted("a step")
	}
	if said := a.said() + b.said(); strings.Contains(said, "ERROR") {
		t.Error(said)
	}
}

// A step that is left out would cut a node off: it keeps what it has, and says so.
func TestPeers_KeepWhatWorks(t *testing.T) {
	ours := certificates(t)
	must(t)(ours.Authority("Test", 365*day, false))
	a := newNode(t, ours, 1)
	p := a.openPeers(false)
	before := p.Certificate()
	must(t)(ours.Authority("Test", 365*day, true))
	a.give(ours, authority.Node("x", 1, nil)) // and not the bundle
	load(p)
	if p.Certificate() != before {
		t.Error("a certificate that no peer trusts is in use")
	}
	if said := a.said(); strings.Count(said, "would refuse it") != 1 {
		t.Error(said)
	}
	a.bundle(ours)
	load(p)
	if p.Certificate() == before {
		t.Error("the old certificate stays")
	}
}

func TestOpenPeers_NamesTheSettingThatIsAtFault(t *testing.T) {
	ours, theirs := certificates(t), certificates(t)
	must(t)(ours.Authority("Test", 365*day, false))
	must(t)(theirs.Authority("Test", 365*day, false))
	for name, c := range map[string]struct {
		spoil func(n *nodeFiles)
		want  string
	}{
		"no bundle":         {func(n *nodeFiles) { _ = os.Remove(n.ca) }, "PEER_TLS_CA: "},
		"another authority": {func(n *nodeFiles) { n.bundle(theirs) }, "PEER_TLS_CERT: "},
		"a client's":        {func(n *nodeFiles) { n.give(ours, authority.Client("x", "c")) }, "PEER_TLS_CERT: "},
		"another key":       {func(n *nodeFiles) { n.copy(filepath.Join(theirs.Path, authority.KeyFile), n.key) }, "PEER_TLS_CERT: "},
		"no key":            {func(n *nodeFiles) { _ = os.Remove(n.key) }, "PEER_TLS_KEY: "},
		"no list":           {func(n *nodeFiles) { _ = os.Remove(n.crl) }, "PEER_TLS_CRL: "},
		"no list in PEM":    {func(n *nodeFiles) { write(n.T, n.crl, []byte("x")) }, "PEER_TLS_CRL: "},
		"a certificate":     {func(n *nodeFiles) { n.copy(n.cert, n.crl) }, "PEER_TLS_CRL: "},
		"not this node":     {func(*nodeFiles) {}, "PEER_TLS_CERT: "},
	} {
		n := newNode(t, ours, 1)
		write(t, n.crl, nil)
		c.spoil(n)
		cfg := n.peerConfig()
		cfg.CRLFile = n.crl
		if name == "not this node" {
			cfg.Own = func(*x509.Certificate) error { return errors.New("of node 1") }
		}
		if _, err := credential.OpenPeers(cfg); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// A list in the name of an authority that it has not signed revokes nothing, and is not used.
func TestPeers_ListsMustBeSigned(t *testing.T) {
	ours, theirs := certificates(t), certificates(t)
	must(t)(ours.Authority("Test", 365*day, false))
	must(t)(theirs.Authority("Test", 365*day, false))
	a, b := newNode(t, ours, 1), newNode(t, theirs, 2)
	a.copy(must(t)(theirs.Revoke(b.cert)).Cert, a.crl)
	p := a.openPeers(true) // of an authority that is not in the bundle
	a.copy(must(t)(ours.Revoke(a.cert)).Cert, a.crl)
	list, err := os.ReadFile(a.crl)
	if err != nil {
		t.Fatal(err)
	}
	load(p)
	if said := a.said(); !strings.Contains(said, "the certificate of this node is revoked") {
		t.Error(said)
	}
	list[len(list)/2] ^= 1 // in the signature or before it; in any case no list of ours
	write(t, a.crl, list)
	load(p)
	if said := a.said(); !strings.Contains(said, "PEER_TLS_CRL") {
		t.Error(said)
	}
}

// TestPeers_ForgedListsRevokeNobody: one of another authority with the same name, at the start, and one
// that was loaded as that of an unknown issuer.
func TestPeers_ForgedListsRevokeNobody(t *testing.T) {
	ours, theirs := certificates(t), certificates(t)
	must(t)(ours.Authority("Test", 365*day, false))
	must(t)(theirs.Authority("Test", 365*day, false))
	a, b := newNode(t, ours, 1), newNode(t, ours, 2)
	pair, err := tls.LoadX509KeyPair(b.cert, b.key)
	if err != nil {
		t.Fatal(err)
	}
	caPEM, err := os.ReadFile(filepath.Join(theirs.Path, authority.BundleFile))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := tls.X509KeyPair(caPEM, read(t, filepath.Join(theirs.Path, authority.KeyFile)))
	if err != nil {
		t.Fatal(err)
	}
	ourCA, err := tls.X509KeyPair(read(t, a.ca), read(t, filepath.Join(ours.Path, authority.KeyFile)))
	if err != nil {
		t.Fatal(err)
	}
	issuer := *signer.Leaf
	issuer.RawSubject = ourCA.Leaf.RawSubject // by its name, it is ours
	forged, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{
		Number: big.NewInt(1), ThisUpdate: today, NextUpdate: today.Add(day),
		RevokedCertificateEntries: []x509.RevocationListEntry{{SerialNumber: pair.Leaf.SerialNumber, RevocationTime: today}},
	}, &issuer, signer.PrivateKey.(crypto.Signer))
	if err != nil {
		t.Fatal(err)
	}
	write(t, a.crl, pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: forged}))
	cfg := a.peerConfig()
	cfg.CRLFile = a.crl
	if _, err := credential.OpenPeers(cfg); err == nil || !strings.Contains(err.Error(), "PEER_TLS_CRL") || !strings.Contains(err.Error(), "not signed by its issuer") {
		t.Errorf("a list that ours did not sign: %v", err)
	}
	if list, err := x509.ParseRevocationList(forged); err != nil || !bytes.Equal(list.RawIssuer, ourCA.Leaf.RawSubject) {
		t.Fatalf("the list is not forged: %v", err)
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestPeers_SpeakTheirProtocolInTLS13(t *testing.T) {
	ours := certificates(t)
	must(t)(ours.Authority("Test", 365*day, false))
	a, b := newNode(t, ours, 1), newNode(t, ours, 2)
	p, q := a.openPeers(false), b.openPeers(false)
	var seen []*x509.Certificate
	accept := func(i *credential.Identity) error { seen = append(seen, i.Leaf()); return nil }
	l, err := connect(t, p.Server(), q.Client(accept))
	if err != nil || len(seen) != 1 || seen[0].Subject.CommonName != "node1" {
		t.Fatal(err, seen)
	}
	if s := l.client.ConnectionState(); s.Version != tls.VersionTLS13 || s.NegotiatedProtocol != credential.PeerProtocol {
		t.Errorf("%+v", s)
	}
	l.works(t)
	for name, change := range map[string]func(*tls.Config){
		"TLS 1.2":          func(c *tls.Config) { c.MaxVersion, c.MinVersion = tls.VersionTLS12, tls.VersionTLS12 },
		"another protocol": func(c *tls.Config) { c.NextProtos = []string{"h2"} },
		"no certificate":   func(c *tls.Config) { c.GetClientCertificate = nil },
		"not accepted": func(c *tls.Config) {
			c.VerifyConnection = q.Client(func(*credential.Identity) error { return errors.New("no") }).VerifyConnection
		},
	} {
		c := q.Client(accept)
		change(c)
		if _, err := connect(t, p.Server(), c); err == nil {
			t.Errorf("%s: connected", name)
		}
	}
	none := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: p.Server().Certificates, GetCertificate: p.Server().GetCertificate}
	if _, err := connect(t, none, q.Client(accept)); err == nil {
		t.Error("connected with a server that names no protocol")
	}
}

// FuzzRevocationList has lists of all kinds in the file. None ends the process, and what is used
// was signed.
func FuzzRevocationList(f *testing.F) {
	dir, err := os.MkdirTemp("", "isotone-crl-")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = os.RemoveAll(dir) })
	d := authority.Dir{Path: filepath.Join(dir, "ca"), Overwrite: true}
	var files []string
	_, err = d.Authority("Test", 365*day, false)
	for id := uint64(1); id <= 2 && err == nil; id++ {
		var m authority.Made
		m, err = d.Sign(authority.Node("x", id, nil), 30*day)
		files = append(files, m.Cert, m.Key)
	}
	if err != nil {
		f.Fatal(err)
	}
	list, err := d.Revoke(files[2])
	if err != nil {
		f.Fatal(err)
	}
	b, err := os.ReadFile(list.Cert)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{})
	one, err := tls.LoadX509KeyPair(files[0], files[1])
	if err != nil {
		f.Fatal(err)
	}
	path := filepath.Join(dir, fmt.Sprintf("crl-%d.pem", os.Getpid()))
	f.Fuzz(func(t *testing.T, list []byte) {
		if err := os.WriteFile(path, list, 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := credential.OpenPeers(credential.PeerConfig{
			CertFile: files[0], KeyFile: files[1], CAFile: filepath.Join(d.Path, authority.BundleFile), CRLFile: path,
		})
		if err != nil {
			return
		}
		if _, err := p.Identify([]*x509.Certificate{one.Leaf}, x509.ExtKeyUsageClientAuth); err != nil {
			t.Fatal("a list that nobody has signed revokes node 1")
		}
	})
}

// TestPeers_StateIsWhatIsInUse: what nodes are compared by.
func TestPeers_StateIsWhatIsInUse(t *testing.T) {
	ours := certificates(t)
	must(t)(ours.Authority("Test", 20*day, false)) // it ends before the certificates that it signs
	a, b := newNode(t, ours, 1), newNode(t, ours, 2)
	a.copy(must(t)(ours.Revoke(b.cert)).Cert, a.crl)
	p := a.openPeers(true)
	s := p.State()
	if len(s.Authorities) != 1 || s.SignedBy == nil || !s.SignedBy.Equal(s.Authorities[0]) || s.Revoked || len(s.Lists) != 1 || len(s.Lists[0].RevokedCertificateEntries) != 1 {
		t.Errorf("%+v", s)
	}
	if !s.NotAfter.Equal(s.SignedBy.NotAfter) || !s.NotAfter.Before(today.Add(21*day)) {
		t.Errorf("it ends at %v, its authority at %v", s.NotAfter, s.SignedBy.NotAfter)
	}
	a.copy(must(t)(ours.Revoke(a.cert)).Cert, a.crl)
	must(t)(ours.Authority("Test", 365*day, true))
	a.bundle(ours)
	load(p)
	if s = p.State(); !s.Revoked || len(s.Authorities) != 2 || len(s.Lists[0].RevokedCertificateEntries) != 2 {
		t.Errorf("%+v", s)
	}
	a.now = today.Add(31 * day)
	if s = p.State(); s.SignedBy != nil || s.NotAfter.After(a.now) {
		t.Errorf("after its end: %+v", s)
	}
}
