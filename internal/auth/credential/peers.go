package credential

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// PeerProtocol is the name of the peer protocol in TLS (ALPN). Both sides require it, so that a
// connection for another protocol is never taken for one of a peer.
const PeerProtocol = "isotone-peer"

// PeerConfig configures [Peers]. The files are PEM; CRLFile may be empty, the others not.
type PeerConfig struct {
	// CertFile and KeyFile are the certificate of this node, with its chain, and the key.
	CertFile, KeyFile string
	// CAFile has the authorities, one of which must have signed the certificates of peers and
	// of this node.
	CAFile string
	// CRLFile has revocation lists of these authorities. One whose time of the next update has
	// passed counts as well.
	CRLFile string
	// Own, if not nil, decides whether a certificate is this node's; its error says what is wrong.
	Own func(*x509.Certificate) error
	// Log, Now and Observe are those of [Config].
	Log     *slog.Logger
	Now     func() time.Time
	Observe func(left time.Duration)
}

// Peers holds what a node proves to its peers who it is with, and what it checks theirs with. It
// reloads the files when they change. Make it with [OpenPeers]. All methods are safe for
// concurrent use.
type Peers struct{ files *Reloader }

// OpenPeers reads the files. It fails if one is missing or unusable, and if this node's
// certificate would be refused by a node with the same files; and so does each reload, after
// which the old files stay in use. The names of the settings are those of internal/host/config.
func OpenPeers(cfg PeerConfig) (*Peers, error) {
	p := &Peers{files: newReloader(Config{
		CertFile: cfg.CertFile, KeyFile: cfg.KeyFile, CertSetting: "PEER_TLS_CERT", KeySetting: "PEER_TLS_KEY",
		ClientCAFile: cfg.CAFile, ClientCASetting: "PEER_TLS_CA", Log: cfg.Log, Now: cfg.Now, Observe: cfg.Observe,
	})}
	if cfg.CRLFile != "" {
		p.files.revoked = &file{"PEER_TLS_CRL", cfg.CRLFile}
	}
	p.files.fit = func(m *material) error {
		if err := p.fits(m); err != nil {
			return p.files.pair.cert.fault("%s: %w", cfg.CertFile, err)
		}
		if cfg.Own != nil {
			if err := cfg.Own(m.cert.Leaf); err != nil {
				return p.files.pair.cert.fault("%s: %w", cfg.CertFile, err)
			}
		}
		return nil
	}
	if err := p.files.open(); err != nil {
		return nil, err
	}
	return p, nil
}

// fits checks the certificate of this node as a peer would, in both roles. That it is revoked
// is no reason to go on without the list: it is logged.
func (p *Peers) fits(m *material) error {
	certs, err := parseAll(m.cert.Certificate)
	if err != nil {
		return err
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		_, err := verify(m, certs, usage, p.files.cfg.Now())
		var bad *CertificateError
		switch {
		case err == nil:
		case errors.As(err, &bad) && bad.Reason == ReasonRevoked:
			p.files.cfg.Log.Error("the certificate of this node is revoked, and peers will refuse it; give the node a new one", "file", p.files.pair.cert.path)
			return nil
		default:
			return fmt.Errorf("peers that have the authorities of PEER_TLS_CA would refuse it: %w", err)
		}
	}
	return nil
}

func parseAll(der [][]byte) (certs []*x509.Certificate, err error) {
	for _, b := range der {
		c, err := x509.ParseCertificate(b)
		if err != nil {
			return nil, err
		}
		certs = append(certs, c)
	}
	return certs, nil
}

// Certificate returns the certificate of this node in use.
func (p *Peers) Certificate() *x509.Certificate { return p.files.Certificate() }

// Run checks the files every [CheckEvery] until ctx ends.
func (p *Peers) Run(ctx context.Context) { p.files.Run(ctx) }

// Check is [Reloader.Check].
func (p *Peers) Check() { p.files.Check() }

// Server returns a configuration for the accepting side of a connection. It demands a
// certificate and does not verify it: the caller does, with [Peers.Identify], and can say why it
// refuses one.
func (p *Peers) Server() *tls.Config {
	cfg := p.base()
	cfg.ClientAuth = tls.RequireAnyClientCert
	cfg.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &p.files.current.Load().cert, nil }
	return cfg
}

// Client returns a configuration for the dialing side, which gives the accepting side nothing to
// read before accept returns nil for its identity.
func (p *Peers) Client(accept func(*Identity) error) *tls.Config {
	cfg := p.base()
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &p.files.current.Load().cert, nil }
	// The name in the address says nothing: accept looks for the name of a node.
	cfg.InsecureSkipVerify = true
	cfg.VerifyConnection = func(s tls.ConnectionState) error {
		if s.NegotiatedProtocol != PeerProtocol {
			return errors.New("the other side does not speak the peer protocol")
		}
		id, err := p.Identify(s.PeerCertificates, x509.ExtKeyUsageServerAuth)
		if err != nil {
			return err
		}
		return accept(id)
	}
	return cfg
}

func (p *Peers) base() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{PeerProtocol},
		// A resumed session would skip the look at the revocation list.
		SessionTicketsDisabled: true,
	}
}

// Why a certificate is refused. The reasons are values of a label.
const (
	ReasonUntrusted = "untrusted" // no authority has signed it, or not for this use
	ReasonExpired   = "expired"   // or not valid yet, or an authority is
	ReasonRevoked   = "revoked"
	ReasonName      = "name" // it is not that of the node
)

// CertificateError is why a certificate is refused.
type CertificateError struct {
	Reason  string
	Message string
}

func (e *CertificateError) Error() string { return e.Message }

// Identity is a certificate that was verified. It is safe for concurrent use, but for Check.
type Identity struct {
	peers *Peers
	certs []*x509.Certificate
	usage x509.ExtKeyUsage
	by    *material
	until time.Time
}

// Identify verifies a chain of certificates, the peer's first. The error is
// a [*CertificateError].
func (p *Peers) Identify(certs []*x509.Certificate, usage x509.ExtKeyUsage) (*Identity, error) {
	i := &Identity{peers: p, certs: certs, usage: usage}
	return i, i.verify()
}

// Leaf returns the certificate of the peer.
func (i *Identity) Leaf() *x509.Certificate { return i.certs[0] }

// Check verifies the certificate again if that may have another result now: because the files
// have changed, or because of the time. The error is a [*CertificateError].
func (i *Identity) Check() error {
	now := i.peers.files.cfg.Now()
	if i.by == i.peers.files.current.Load() && !now.After(i.until) {
		return nil
	}
	return i.verify()
}

func (i *Identity) verify() (err error) {
	i.by = i.peers.files.current.Load()
	i.until, err = verify(i.by, i.certs, i.usage, i.peers.files.cfg.Now())
	return err
}

// verify returns until when the certificate is valid.
func verify(m *material, certs []*x509.Certificate, usage x509.ExtKeyUsage, now time.Time) (until time.Time, err error) {
	if len(certs) == 0 {
		return time.Time{}, &CertificateError{ReasonUntrusted, "there is no certificate"}
	}
	chains, err := chainsOf(m, certs, usage, now)
	if err != nil {
		return time.Time{}, refusedChain(certs[0], err)
	}
	for _, chain := range chains {
		if revokedIn(m.revoked, chain) {
			continue
		}
		for n, c := range chain {
			if n == 0 || c.NotAfter.Before(until) {
				until = c.NotAfter
			}
		}
		return until, nil
	}
	return time.Time{}, errRevoked(certs[0])
}

func errRevoked(cert *x509.Certificate) error {
	return &CertificateError{ReasonRevoked, fmt.Sprintf("the certificate with the serial number %x is revoked", cert.SerialNumber)}
}

// chainsOf returns the chains of a certificate, the first one, to an authority.
func chainsOf(m *material, certs []*x509.Certificate, usage x509.ExtKeyUsage, now time.Time) ([][]*x509.Certificate, error) {
	intermediates := x509.NewCertPool()
	for _, c := range certs[1:] {
		intermediates.AddCert(c)
	}
	return certs[0].Verify(x509.VerifyOptions{Roots: m.clients, Intermediates: intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}})
}

func refusedChain(leaf *x509.Certificate, err error) error {
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		return &CertificateError{ReasonExpired, fmt.Sprintf("the certificate is valid from %s to %s: %v",
			leaf.NotBefore.UTC().Format(time.RFC3339), leaf.NotAfter.UTC().Format(time.RFC3339), err)}
	}
	return &CertificateError{ReasonUntrusted, fmt.Sprintf("the certificate, issued by %q, is not trusted: %v", leaf.Issuer, err)}
}

// revokedIn reports whether a certificate of the chain is on a list of the next one.
func revokedIn(lists []*revocations, chain []*x509.Certificate) bool {
	for n := range len(chain) - 1 {
		if isRevoked(lists, chain[n], chain[n+1]) {
			return true
		}
	}
	return false
}
