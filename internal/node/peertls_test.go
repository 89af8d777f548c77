package node

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/authority"
	"github.com/isotone/isotone/internal/auth/certname"
	"github.com/isotone/isotone/internal/auth/credential"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/peer"
)

// Each rule of TLS between nodes has a test here that fails without it; docs/correctness.md lists
// them.

// newAuthority makes an authority with an empty revocation list.
func newAuthority(t *testing.T) authority.Dir {
	t.Helper()
	d := authority.Dir{Path: t.TempDir(), Overwrite: true}
	if _, err := d.Authority("Test", time.Hour, false); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.Path, authority.CRLFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return d
}

// side is one side of a connection: a node, with the certificate of a subject.
type side struct {
	*peerSecurity
	pair tls.Certificate
	cert string // file
}

// newSide gives a node a certificate that by has signed, and has it trust only trusts.
func newSide(t *testing.T, by, trusts authority.Dir, s authority.Subject) *side {
	t.Helper()
	made, err := by.Sign(s, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	n := &side{cert: made.Cert}
	if n.pair, err = tls.LoadX509KeyPair(made.Cert, made.Key); err != nil {
		t.Fatal(err)
	}
	files, err := credential.OpenPeers(credential.PeerConfig{
		CertFile: made.Cert, KeyFile: made.Key, CAFile: filepath.Join(trusts.Path, authority.BundleFile), CRLFile: filepath.Join(trusts.Path, authority.CRLFile),
	})
	if by.Path != trusts.Path {
		if err == nil {
			t.Error("a node starts with a certificate that it would refuse")
		}
		return n
	}
	if err != nil {
		t.Fatal(err)
	}
	n.peerSecurity = (&PeerTLS{Files: files, Names: certname.Rules{}}).security(slog.New(slog.DiscardHandler)).(*peerSecurity)
	return n
}

// pipe is a TCP connection within this machine.
func pipe(t *testing.T) (dialer, acceptor net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if dialer, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if acceptor, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{dialer, acceptor} {
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		t.Cleanup(func() { _ = c.Close() })
	}
	return dialer, acceptor
}

// dialed has n dial the node id at a server with that configuration.
func (n *side) dialed(t *testing.T, id uint64, server *tls.Config) error {
	t.Helper()
	near, far := pipe(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = tls.Server(far, server).Handshake()
		_ = far.Close()
	}()
	c, err := n.Client(near, id)
	_ = near.Close()
	<-ended
	if err == nil && c == nil {
		t.Error("neither a connection nor an error")
	}
	return err
}

// shows has n dial the node 2, to, and returns the certificate that n presents.
func (n *side) shows(t *testing.T, to *side) (cert *x509.Certificate) {
	t.Helper()
	server := to.config()
	server.ClientAuth = tls.RequireAnyClientCert // so there is one
	server.VerifyConnection = func(s tls.ConnectionState) error {
		cert = s.PeerCertificates[0]
		return nil
	}
	if err := n.dialed(t, 2, server); err != nil {
		t.Fatal(err)
	}
	if cert == nil {
		t.Fatal("the dialing side shows no certificate")
	}
	return cert
}

// accepted has n accept a client with that configuration, which says that it is the node id.
func (n *side) accepted(t *testing.T, id uint64, client *tls.Config) (c peer.Secured, err error) {
	t.Helper()
	near, far := pipe(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = tls.Client(far, client).Handshake()
	}()
	if c, err = n.Server(near, nil); err != nil {
		_ = near.Close()
	}
	<-ended
	if err != nil {
		return nil, err
	}
	if refusal := c.Check(id); refusal != nil {
		return c, errors.New(refusal.Message)
	}
	return c, nil
}

// config is what a peer with that certificate has, which accepts anybody.
func (n *side) config() *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{n.pair}, NextProtos: []string{credential.PeerProtocol}, InsecureSkipVerify: true, ClientAuth: tls.RequestClientCert,
	}
}

func told(err error, words string) bool {
	return err != nil && (words == "" || strings.Contains(err.Error(), words))
}

// TestPeerTLS_EachRuleHolds, on both sides.
func TestPeerTLS_EachRuleHolds(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	one, two := newSide(t, ours, ours, authority.Node("x", 1, nil)), newSide(t, ours, ours, authority.Node("x", 2, nil))
	foreign := newSide(t, theirs, ours, authority.Node("x", 2, nil))
	client := &side{}
	made, err := ours.Sign(authority.Client("x", "orders"), time.Hour)
	if err == nil {
		client.pair, err = tls.LoadX509KeyPair(made.Cert, made.Key)
	}
	if err != nil {
		t.Fatal(err)
	}
	change := func(of *side, f func(*tls.Config)) *tls.Config {
		cfg := of.config()
		f(cfg)
		return cfg
	}
	for _, c := range []struct {
		rule             string
		other            *tls.Config
		id               uint64
		accepted, dialed string // what the refusal says; "-": none
	}{
		{"good", two.config(), 2, "-", "-"},
		{"the name is that of the node", two.config(), 3, "name: ", "name: "},
		{"an authority of ours has signed", foreign.config(), 2, "untrusted: ", "untrusted: "},
		{"a client is no node", client.config(), 2, "name: ", "untrusted: "},
		{"there is a certificate", change(two, func(cfg *tls.Config) { cfg.Certificates = nil }), 2, "client didn't provide a certificate", ""},
		{"TLS 1.3", change(two, func(cfg *tls.Config) { cfg.MaxVersion = tls.VersionTLS12 }), 2, "unsupported versions", "protocol version"},
		{"the protocol of peers", change(two, func(cfg *tls.Config) { cfg.NextProtos = nil }), 2, "does not speak the peer protocol", "does not speak the peer protocol"},
		{"not another protocol", change(two, func(cfg *tls.Config) { cfg.NextProtos = []string{"h2"} }), 2, "unsupported application protocols", ""},
	} {
		if _, err := one.accepted(t, c.id, c.other); (c.accepted == "-") != (err == nil) || err != nil && !told(err, c.accepted) {
			t.Errorf("%s: accepted with %v, want %q", c.rule, err, c.accepted)
		}
		if err := one.dialed(t, c.id, c.other); (c.dialed == "-") != (err == nil) || err != nil && !told(err, c.dialed) {
			t.Errorf("%s: dialed with %v, want %q", c.rule, err, c.dialed)
		}
	}
}

// tickets counts those that a server has sent.
type tickets struct {
	tls.ClientSessionCache
	sent atomic.Int32
}

func (c *tickets) Get(string) (*tls.ClientSessionState, bool) { return nil, false }
func (c *tickets) Put(string, *tls.ClientSessionState)        { c.sent.Add(1) }

// TestPeerTLS_NoSessionIsResumed: that would skip the look at the certificate.
func TestPeerTLS_NoSessionIsResumed(t *testing.T) {
	ours := newAuthority(t)
	one, two := newSide(t, ours, ours, authority.Node("x", 1, nil)), newSide(t, ours, ours, authority.Node("x", 2, nil))
	var got tickets
	cfg := two.config()
	cfg.ServerName, cfg.ClientSessionCache = "one", &got
	near, far := pipe(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = tls.Client(far, cfg).Read(make([]byte, 1)) // a ticket would come before it
	}()
	c, err := one.Server(near, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	<-ended
	if n := got.sent.Load(); n != 0 {
		t.Errorf("%d tickets", n)
	}
}

// TestPeerTLS_NewFilesCount for open connections and for new ones: a certificate that is revoked, and
// an authority that has left.
func TestPeerTLS_NewFilesCount(t *testing.T) {
	ours := newAuthority(t)
	one, two := newSide(t, ours, ours, authority.Node("x", 1, nil)), newSide(t, ours, ours, authority.Node("x", 2, nil))
	open, err := one.accepted(t, 2, two.config())
	if err != nil {
		t.Fatal(err)
	}
	reload := func() {
		one.Files.Check()
		one.Files.Check()
	}
	// A certificate of its own.
	before := one.Files.Certificate()
	if !one.shows(t, two).Equal(before) {
		t.Error("another certificate is shown to a node that was dialed")
	}
	if _, err := ours.Sign(authority.Node("x", 1, nil), 2*time.Hour); err != nil {
		t.Fatal(err)
	}
	reload()
	near, far := pipe(t)
	shown := make(chan *tls.Conn, 1)
	go func() {
		c := tls.Client(far, two.config())
		_ = c.Handshake()
		shown <- c
	}()
	if _, err := one.Server(near, nil); err != nil {
		t.Fatal(err)
	}
	if state := (<-shown).ConnectionState(); len(state.PeerCertificates) == 0 || state.PeerCertificates[0].Equal(before) || !state.PeerCertificates[0].Equal(one.Files.Certificate()) {
		t.Error("the old certificate is shown")
	}
	if !one.shows(t, two).Equal(one.Files.Certificate()) {
		t.Error("the old certificate is shown to a node that was dialed")
	}
	if refusal := open.Check(2); refusal != nil {
		t.Error(refusal)
	}
	// A revoked one.
	if _, err := ours.Revoke(two.cert); err != nil {
		t.Fatal(err)
	}
	if refusal := open.Check(2); refusal != nil {
		t.Errorf("before the list is read: %v", refusal)
	}
	reload()
	if refusal := open.Check(2); refusal == nil || !strings.HasPrefix(refusal.Message, "revoked: ") {
		t.Errorf("an open connection: %v", refusal)
	}
	if _, err := one.accepted(t, 2, two.config()); !told(err, "revoked: ") {
		t.Errorf("accepted: %v", err)
	}
	if err := one.dialed(t, 2, two.config()); !told(err, "revoked: ") {
		t.Errorf("dialed: %v", err)
	}
	// Another authority in place of the old one.
	three := newSide(t, ours, ours, authority.Node("x", 3, nil))
	if open, err = one.accepted(t, 3, three.config()); err != nil {
		t.Fatal(err)
	}
	for _, step := range []func() error{
		func() error { _, err := ours.Authority("Next", time.Hour, true); return err },
		func() error { _, err := ours.Sign(authority.Node("x", 1, nil), time.Hour); return err },
		func() error { _, err := ours.Retire(); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
		reload()
	}
	if refusal := open.Check(3); refusal == nil || !strings.HasPrefix(refusal.Message, "untrusted: ") {
		t.Errorf("an open connection after its authority has left: %v", refusal)
	}
	if _, err := one.accepted(t, 3, three.config()); !told(err, "untrusted: ") {
		t.Errorf("accepted: %v", err)
	}
}

// TestPeerTLS_MayJoinWithAProofOnly, unless peers in plaintext are accepted as well.
func TestPeerTLS_MayJoinWithAProofOnly(t *testing.T) {
	ours := newAuthority(t)
	member, joiner := newSide(t, ours, ours, authority.Node("x", 1, nil)), newSide(t, ours, ours, authority.Node("x", 2, nil))
	text, err := joiner.Files.Prove(front.JoinMessage(2, 7))
	if err != nil {
		t.Fatal(err)
	}
	p := member.PeerTLS
	for name, c := range map[string]struct {
		node, incarnation uint64
		proof             string
		optional, good    bool
	}{
		"its own": {2, 7, text, false, true}, "of another question": {2, 8, text, false, false}, "for another node": {3, 7, text, false, false}, "none": {2, 7, "", false, false},
		"none, and it is optional": {2, 7, "", true, true}, "a bad one all the same": {2, 8, text, true, false},
	} {
		p.Optional = c.optional
		if err := p.mayJoin(c.node, c.incarnation, c.proof); (err == nil) != c.good || err != nil && !errors.Is(err, isotone.ErrForbidden) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (*PeerTLS)(nil).mayJoin(2, 7, ""); err != nil {
		t.Errorf("where peers are in plaintext: %v", err)
	}
	p.proving.Store(provingMax)
	if err := p.mayJoin(2, 7, text); !errors.Is(err, isotone.ErrOverloaded) {
		t.Errorf("with many that wait: %v", err)
	}
}
