// Package credential owns the certificates of a server: it reads and checks the PEM files,
// makes a self-signed pair if there is none, and reloads the files when they change. Servers
// share the [tls.Config] of a [Reloader].
//
// Errors begin with the name of the setting at fault.
package credential

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Config configures a [Reloader]. CertFile and KeyFile are required.
type Config struct {
	// CertFile and KeyFile are a certificate, optionally with its chain, and its private
	// key, both PEM.
	CertFile, KeyFile string
	// CertSetting and KeySetting are the names of their settings, for errors.
	CertSetting, KeySetting string
	// SelfSigned creates a pair if both files are missing: for localhost, 127.0.0.1, ::1 and
	// Hosts (names or IP addresses, no ports). The directories must exist. A pair that is
	// incomplete or cannot be used is never replaced, because clients may have pinned it.
	SelfSigned bool
	Hosts      []string
	// ClientCAFile, if not empty, is a PEM file of authorities: every client must present
	// a certificate that one of them signed. ClientCASetting is the name of its setting.
	ClientCAFile, ClientCASetting string
	// ClientCRLFile, if not empty, has revocation lists of these authorities, as in [PeerConfig].
	ClientCRLFile, ClientCRLSetting string
	// Log receives warnings and reloads; nil discards them.
	Log *slog.Logger
	// Now is the wall clock; nil means time.Now.
	Now func() time.Time
	// Observe, if not nil, is called by Open and by every Check with the remaining validity of
	// the certificate, which is negative after its end.
	Observe func(left time.Duration)
}

// CheckEvery is the interval at which [Reloader.Run] checks the files.
const CheckEvery = time.Second

// warnLeft are the remaining validities at which a warning is logged.
var warnLeft = []time.Duration{0, 24 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour}

// Reloader holds a certificate and reloads it when its files change. Make it with [Open].
// All methods are safe for concurrent use.
type Reloader struct {
	cfg     Config
	pair    pair
	clients *file // nil: clients need no certificate
	revoked *file // nil: no revocation list
	// changed, if not nil, is called when new files are in use.
	changed func()
	// fit, if not nil, decides whether new files fit together.
	fit func(*material) error

	current atomic.Pointer[material]

	checking sync.Mutex
	seen     []fs.FileInfo // of the files as last loaded
	changing []fs.FileInfo // changed and not loaded yet; nil: unchanged
	refused  bool          // the latest load failed, and was logged
	warned   int           // how many of warnLeft were logged
}

// material is the content of the files at one time.
type material struct {
	cert    tls.Certificate
	clients *x509.CertPool
	// authorities are those in clients.
	authorities []*x509.Certificate
	revoked     []*revocations
}

// Open reads the files. It fails if a file is missing or unreadable, the key does not match,
// or the certificate is expired or not valid yet. It warns of a private key that others may
// read.
func Open(cfg Config) (*Reloader, error) {
	r := newReloader(cfg)
	if cfg.SelfSigned {
		if err := r.pair.create(cfg.Hosts, r.cfg.Now()); err != nil {
			return nil, err
		}
	}
	if err := r.open(); err != nil {
		return nil, err
	}
	return r, nil
}

func newReloader(cfg Config) *Reloader {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	r := &Reloader{cfg: cfg, pair: pair{
		cert: file{cfg.CertSetting, cfg.CertFile}, key: file{cfg.KeySetting, cfg.KeyFile}, own: cfg.SelfSigned,
	}}
	if cfg.ClientCAFile != "" {
		r.clients = &file{cfg.ClientCASetting, cfg.ClientCAFile}
	}
	if cfg.ClientCRLFile != "" {
		r.revoked = &file{cfg.ClientCRLSetting, cfg.ClientCRLFile}
	}
	return r
}

// open reads the files for the first time.
func (r *Reloader) open() error {
	r.seen = r.stat()
	m, err := r.load()
	if err != nil {
		return err
	}
	r.use(m)
	r.watchExpiry()
	return nil
}

func (r *Reloader) load() (*material, error) {
	var m material
	var err error
	if m.cert, err = r.pair.load(r.cfg.Now()); err != nil {
		return nil, err
	}
	if r.clients != nil {
		if m.clients, m.authorities, err = r.clients.loadPool(r.cfg.Now()); err != nil {
			return nil, err
		}
		if r.revoked != nil {
			if m.revoked, err = r.revoked.loadRevocations(m.authorities); err != nil {
				return nil, err
			}
		}
	}
	if r.fit != nil {
		if err := r.fit(&m); err != nil {
			return nil, err
		}
	}
	return &m, nil
}

// use makes m current for new handshakes.
func (r *Reloader) use(m *material) {
	r.current.Store(m)
	r.warned = 0
	if r.pair.key.isExposed() {
		r.cfg.Log.Warn("the private key is readable by others than its owner; set its permissions to 0600",
			"setting", r.pair.key.setting, "file", r.pair.key.path)
	}
}

// OnChange has f called when other files than before are in use. Call it before [Reloader.Run].
func (r *Reloader) OnChange(f func()) { r.changed = f }

// Ended reports whether a client's certificate, which was verified with these chains, is no longer valid: each chain has a certificate that
// has expired or is on a revocation list, or it ends at an authority that is no longer trusted. An authority is identified by its name and
// its key, so renewing its certificate ends nothing. It is safe for concurrent use.
func (r *Reloader) Ended(chains [][]*x509.Certificate) bool {
	now, m := r.cfg.Now(), r.current.Load()
	expired := func(c *x509.Certificate) bool { return now.After(c.NotAfter) }
	holds := func(chain []*x509.Certificate) bool {
		if len(chain) == 0 {
			return false
		}
		below, top := chain[:len(chain)-1], chain[len(chain)-1]
		isTop := func(c *x509.Certificate) bool {
			return bytes.Equal(c.RawSubject, top.RawSubject) && bytes.Equal(c.RawSubjectPublicKeyInfo, top.RawSubjectPublicKeyInfo) && !expired(c)
		}
		return !slices.ContainsFunc(below, expired) && slices.ContainsFunc(m.authorities, isTop) && !revokedIn(m.revoked, chain)
	}
	return !slices.ContainsFunc(chains, holds)
}

// refuseRevoked is [tls.Config.VerifyConnection]; resumed sessions come here as well.
func (r *Reloader) refuseRevoked(s tls.ConnectionState) error {
	lists := r.current.Load().revoked
	for _, chain := range s.VerifiedChains {
		if !revokedIn(lists, chain) {
			return nil
		}
	}
	return errRevoked(s.PeerCertificates[0])
}

// TLS returns a configuration for servers of the given protocols, by ALPN name, the
// preferred one first. Each handshake uses the certificate that is current then; open
// connections are not affected. Do not change the configuration. Servers that share it,
// without a Clone, accept each other's session tickets.
//
// It allows TLS 1.3, and TLS 1.2 with AEAD ciphers and forward secrecy only. crypto/tls
// rotates the session ticket keys daily and accepts each for a week. Tickets stay valid when
// certificates change; the client certificate in a ticket is checked against the current
// authorities and revocation lists.
func (r *Reloader) TLS(protocols ...string) *tls.Config {
	cfg := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		CipherSuites: slices.Clone(suites),
		NextProtos:   slices.Clone(protocols),
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return &r.current.Load().cert, nil
		},
	}
	if r.clients == nil {
		return cfg
	}
	cfg.ClientAuth = tls.RequireAndVerifyClientCert
	cfg.ClientCAs = r.current.Load().clients
	if r.revoked != nil {
		cfg.VerifyConnection = r.refuseRevoked
	}
	var latest atomic.Pointer[tls.Config]
	latest.Store(cfg)
	base := cfg.Clone()
	cfg.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := r.current.Load().clients
		c := latest.Load()
		if c.ClientCAs != now {
			c = base.Clone()
			c.ClientCAs = now
			latest.Store(c)
		}
		return c, nil
	}
	return cfg
}

// suites are the AEAD cipher suites of TLS 1.2 (RFC 9325 §4.2). Those of TLS 1.3 are not
// configurable.
var suites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

// Certificate returns the certificate in use.
func (r *Reloader) Certificate() *x509.Certificate { return r.current.Load().cert.Leaf }

// Left returns the remaining validity of the certificate in use.
func (r *Reloader) Left() time.Duration { return r.Certificate().NotAfter.Sub(r.cfg.Now()) }

// Run checks the files every [CheckEvery] until ctx ends.
func (r *Reloader) Run(ctx context.Context) {
	ticker := time.NewTicker(CheckEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			r.Check()
		}
	}
}

// Check reloads the files if they have changed since the last load but not since the
// previous Check, since files are replaced one after the other. If they are unusable, it logs
// that once, and the old certificate stays in use.
func (r *Reloader) Check() {
	r.checking.Lock()
	defer r.checking.Unlock()
	switch now := r.stat(); {
	case same(now, r.seen):
		r.changing = nil
		if r.refused { // the clock or the disk may have been at fault
			r.reload()
		}
	case !same(now, r.changing):
		r.changing = now
	default:
		r.seen, r.changing, r.refused = now, nil, false
		r.reload()
	}
	r.watchExpiry()
}

func (r *Reloader) reload() {
	m, err := r.load()
	if err != nil {
		if r.refused {
			return // logged already
		}
		r.refused = true
		r.cfg.Log.Error("TLS files have changed and cannot be used; the old certificate stays", "err", err, "valid_until", r.Certificate().NotAfter)
		return
	}
	r.refused = false
	r.use(m)
	if r.changed != nil {
		r.changed()
	}
	r.cfg.Log.Info("TLS files reloaded", "file", r.pair.cert.path, "valid_until", r.Certificate().NotAfter)
}

// watchExpiry reports the remaining validity, and warns when it is short.
func (r *Reloader) watchExpiry() {
	left := r.Left()
	if r.cfg.Observe != nil {
		r.cfg.Observe(left)
	}
	steps := 0
	for _, limit := range warnLeft {
		if left <= limit {
			steps++
		}
	}
	if steps <= r.warned {
		return
	}
	r.warned = steps
	r.cfg.Log.Warn("the TLS certificate expires soon, or has expired", "setting", r.pair.cert.setting, "file", r.pair.cert.path,
		"valid_until", r.Certificate().NotAfter, "days_left", int(left/(24*time.Hour)))
}

// stat returns the state of the files, with nil for one that stat fails on.
func (r *Reloader) stat() []fs.FileInfo {
	files := []*file{&r.pair.cert, &r.pair.key}
	for _, f := range []*file{r.clients, r.revoked} {
		if f != nil {
			files = append(files, f)
		}
	}
	list := make([]fs.FileInfo, len(files))
	for i, f := range files {
		list[i], _ = os.Stat(f.path)
	}
	return list
}

// same reports whether two states of the files are equal.
func same(a, b []fs.FileInfo) bool {
	return slices.EqualFunc(a, b, func(a, b fs.FileInfo) bool {
		if a == nil || b == nil {
			return a == nil && b == nil
		}
		return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size() && a.Mode() == b.Mode()
	})
}
