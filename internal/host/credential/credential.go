// Package credential owns the certificates of a server: it reads and checks the PEM files,
// makes a self-signed pair where there is none, and follows the files when they change.
//
// Errors begin with the name of the setting that is at fault. It knows nothing of who
// serves what: a [Keeper] gives out a [tls.Config] that servers share.
package credential

import (
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

// Config is what a [Keeper] is made of. CertFile and KeyFile are required.
type Config struct {
	// CertFile and KeyFile are a certificate, with its chain if it has one, and its
	// private key, both PEM.
	CertFile, KeyFile string
	// CertSetting and KeySetting are what errors call the two.
	CertSetting, KeySetting string
	// SelfSigned has a pair made when both files are missing, as [LoadOrCreate] does, for
	// Hosts.
	SelfSigned bool
	Hosts      []string
	// ClientCAFile, if not empty, is a PEM file of authorities: every client must show a
	// certificate that one of them has signed. ClientCASetting is what errors call it.
	ClientCAFile, ClientCASetting string
	// Log takes warnings, and what is read anew. Nil discards all.
	Log *slog.Logger
	// Now is the wall clock; nil means time.Now.
	Now func() time.Time
	// Observe, if not nil, is told how long the certificate is still valid, less than 0
	// when it is not: at the start and with every Check.
	Observe func(left time.Duration)
}

// CheckEvery is how often [Keeper.Run] looks at the files.
const CheckEvery = time.Second

// warnLeft are the times before the end of a certificate that are worth a warning.
var warnLeft = []time.Duration{0, 24 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour}

// Keeper has a certificate and keeps it as its files are. Make it with [Open]. All methods
// are safe for concurrent use.
type Keeper struct {
	cfg     Config
	pair    pair
	clients *file // nil: clients need no certificate

	current atomic.Pointer[material]

	checking sync.Mutex
	seen     []fs.FileInfo // of the files, as they were last tried
	changing []fs.FileInfo // not tried yet; nil: nothing new
	refused  bool          // the latest try has failed, and was logged
	warned   int           // how many of warnLeft have been
}

// material is what was read at one time.
type material struct {
	cert    tls.Certificate
	clients *x509.CertPool
}

// Open reads the files. What cannot be used is an error: a file that is missing or cannot
// be read, a key that does not match, a certificate that has expired or is not valid yet.
// A private key that others may read is worth a warning.
func Open(cfg Config) (*Keeper, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	k := &Keeper{cfg: cfg, pair: pair{
		cert: file{cfg.CertSetting, cfg.CertFile}, key: file{cfg.KeySetting, cfg.KeyFile}, own: cfg.SelfSigned,
	}}
	if cfg.ClientCAFile != "" {
		k.clients = &file{cfg.ClientCASetting, cfg.ClientCAFile}
	}
	if cfg.SelfSigned {
		if err := k.pair.create(cfg.Hosts, cfg.Now()); err != nil {
			return nil, err
		}
	}
	k.seen = k.stat()
	m, err := k.load()
	if err != nil {
		return nil, err
	}
	k.use(m)
	k.watchExpiry()
	return k, nil
}

func (k *Keeper) load() (*material, error) {
	var m material
	var err error
	if m.cert, err = k.pair.load(k.cfg.Now()); err != nil {
		return nil, err
	}
	if k.clients != nil {
		if m.clients, err = k.clients.loadPool(k.cfg.Now()); err != nil {
			return nil, err
		}
	}
	return &m, nil
}

// use has new handshakes use m.
func (k *Keeper) use(m *material) {
	k.current.Store(m)
	k.warned = 0
	if k.pair.key.isExposed() {
		k.cfg.Log.Warn("others than its owner can read the private key; its permissions should be 0600",
			"setting", k.pair.key.setting, "file", k.pair.key.path)
	}
}

// TLS returns a configuration for servers that speak the protocols given, by their names in
// ALPN, the preferred one first. Handshakes use what the keeper has at that time;
// connections that are open are not touched. It must not be changed, and servers that
// share it, without a Clone, accept each other's session tickets.
//
// TLS 1.3, and 1.2 with authenticated encryption and forward secrecy only. The keys of
// session tickets are crypto/tls's own: a new one every day, each good for a week. They
// belong to the configuration, which stays when certificates change, so tickets go on;
// what a ticket says of its client's certificate is checked against the authorities of the
// day.
func (k *Keeper) TLS(protocols ...string) *tls.Config {
	cfg := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		CipherSuites: slices.Clone(suites),
		NextProtos:   slices.Clone(protocols),
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return &k.current.Load().cert, nil
		},
	}
	if k.clients == nil {
		return cfg
	}
	cfg.ClientAuth = tls.RequireAndVerifyClientCert
	cfg.ClientCAs = k.current.Load().clients
	var latest atomic.Pointer[tls.Config]
	latest.Store(cfg)
	base := cfg.Clone()
	cfg.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := k.current.Load().clients
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

// suites are those of TLS 1.2 that encrypt and authenticate in one (RFC 9325 §4.2). Those of
// TLS 1.3 cannot be chosen.
var suites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

// Certificate returns the certificate in use.
func (k *Keeper) Certificate() *x509.Certificate { return k.current.Load().cert.Leaf }

// Left returns how long the certificate in use is still valid.
func (k *Keeper) Left() time.Duration { return k.Certificate().NotAfter.Sub(k.cfg.Now()) }

// Run follows the files until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	ticker := time.NewTicker(CheckEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			k.Check()
		}
	}
}

// Check looks at the files. Those that have changed since they were last read, and not
// since the Check before, for they change one after the other, are read anew. What cannot
// be used is logged once, and what there was stays in use.
func (k *Keeper) Check() {
	k.checking.Lock()
	defer k.checking.Unlock()
	switch now := k.stat(); {
	case same(now, k.seen):
		k.changing = nil
		if k.refused { // it may have been the clock, or a disk that was away
			k.reload()
		}
	case !same(now, k.changing):
		k.changing = now
	default:
		k.seen, k.changing, k.refused = now, nil, false
		k.reload()
	}
	k.watchExpiry()
}

func (k *Keeper) reload() {
	m, err := k.load()
	if err != nil {
		if k.refused {
			return // said already
		}
		k.refused = true
		k.cfg.Log.Error("TLS files have changed and cannot be used; the old certificate stays", "err", err, "valid_until", k.Certificate().NotAfter)
		return
	}
	k.refused = false
	k.use(m)
	k.cfg.Log.Info("TLS files read anew", "file", k.pair.cert.path, "valid_until", k.Certificate().NotAfter)
}

// watchExpiry says how long the certificate is valid, and warns when that is short.
func (k *Keeper) watchExpiry() {
	left := k.Left()
	if k.cfg.Observe != nil {
		k.cfg.Observe(left)
	}
	steps := 0
	for _, limit := range warnLeft {
		if left <= limit {
			steps++
		}
	}
	if steps <= k.warned {
		return
	}
	k.warned = steps
	k.cfg.Log.Warn("the TLS certificate ends soon, or has ended", "setting", k.pair.cert.setting, "file", k.pair.cert.path,
		"valid_until", k.Certificate().NotAfter, "days_left", int(left/(24*time.Hour)))
}

// stat returns what the files look like; nil in the place of one that cannot be seen.
func (k *Keeper) stat() []fs.FileInfo {
	files := []*file{&k.pair.cert, &k.pair.key}
	if k.clients != nil {
		files = append(files, k.clients)
	}
	list := make([]fs.FileInfo, len(files))
	for i, f := range files {
		list[i], _ = os.Stat(f.path)
	}
	return list
}

// same reports whether two lists of files look the same.
func same(a, b []fs.FileInfo) bool {
	return slices.EqualFunc(a, b, func(a, b fs.FileInfo) bool {
		if a == nil || b == nil {
			return a == nil && b == nil
		}
		return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size() && a.Mode() == b.Mode()
	})
}
