package credential_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/auth/credential"
)

var later = today.AddDate(1, 0, 0)

// careless configures clients that accept any server, at the test's time.
func careless() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, ServerName: "x", Time: func() time.Time { return today }}
}

// serverOf returns the reloader's configuration at the test's time.
func serverOf(r *credential.Reloader) *tls.Config {
	c := r.TLS("h2", "http/1.1")
	c.Time = func() time.Time { return today }
	return c
}

// twice runs Check twice, so that a change is loaded.
func twice(r *credential.Reloader) {
	r.Check()
	r.Check()
}

func TestOpen_NamesTheSettingThatIsAtFault(t *testing.T) {
	withCA := func(c *credential.Config) { c.ClientCAFile = filepath.Join(filepath.Dir(c.CertFile), "clients.pem") }
	for _, tt := range []struct {
		name  string
		spoil func(d *fixture) func(*credential.Config)
		words []string
	}{
		{"no certificate", func(d *fixture) func(*credential.Config) { _ = os.Remove(d.cert); return nil }, []string{"TLS_CERT: ", "cert.pem"}},
		{"no key", func(d *fixture) func(*credential.Config) { _ = os.Remove(d.key); return nil }, []string{"TLS_KEY: ", "key.pem"}},
		{"a directory", func(d *fixture) func(*credential.Config) {
			_ = os.Remove(d.key)
			_ = os.Mkdir(d.key, 0o700)
			return nil
		}, []string{"TLS_KEY: ", "key.pem is not a regular file"}},
		{"a file without an end", func(d *fixture) func(*credential.Config) {
			_ = os.Truncate(d.key, 2<<20)
			return nil
		}, []string{"TLS_KEY: ", "more than"}},
		{"not PEM", func(d *fixture) func(*credential.Config) { write(d.T, d.cert, []byte("?")); return nil }, []string{"TLS_CERT: ", "cert.pem"}},
		{"another's key", func(d *fixture) func(*credential.Config) {
			_, keyPEM, _ := nobody.sign(d.T, "y", later)
			write(d.T, d.key, keyPEM)
			return nil
		}, []string{"TLS_CERT: ", "does not match", "put the matching pair there"}},
		{"expired", func(d *fixture) func(*credential.Config) { d.now = later.AddDate(0, 0, 1); return nil },
			[]string{"TLS_CERT: ", "expired at 2027-03-01", "renew it"}},
		{"not valid yet", func(d *fixture) func(*credential.Config) { d.now = today.AddDate(-2, 0, 0); return nil },
			[]string{"TLS_CERT: ", "not valid before", "clock"}},
		{"no authorities", func(d *fixture) func(*credential.Config) { return withCA }, []string{"TLS_CLIENT_CA: ", "clients.pem"}},
		{"empty authorities", func(d *fixture) func(*credential.Config) { write(d.T, d.clients, nil); return withCA },
			[]string{"TLS_CLIENT_CA: ", "no certificate"}},
		{"a key among authorities", func(d *fixture) func(*credential.Config) {
			_, keyPEM, _ := nobody.sign(d.T, "ca", later)
			write(d.T, d.clients, keyPEM)
			return withCA
		}, []string{"TLS_CLIENT_CA: ", "PRIVATE KEY"}},
		{"old authorities", func(d *fixture) func(*credential.Config) {
			certPEM, _, _ := nobody.sign(d.T, "ca", today.AddDate(0, 0, -1))
			write(d.T, d.clients, certPEM)
			return withCA
		}, []string{"TLS_CLIENT_CA: ", "expired"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newFixture(t)
			d.issue("x", later)
			change := tt.spoil(d)
			cfg := d.config()
			if change != nil {
				change(&cfg)
			}
			_, err := credential.Open(cfg)
			if err == nil {
				t.Fatal("no error")
			}
			for _, word := range tt.words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q does not say %q", err, word)
				}
			}
			if strings.Contains(err.Error(), "self-signed") {
				t.Errorf("%q offers a self-signed pair in the place of one that was named", err)
			}
		})
	}
}

func TestOpen_MakesAPairOnlyWhenItMay(t *testing.T) {
	d := newFixture(t)
	r := d.open(func(c *credential.Config) { c.SelfSigned, c.Hosts = true, []string{"node.example"} })
	if err := r.Certificate().VerifyHostname("node.example"); err != nil {
		t.Error(err)
	}
	if said := d.said(); said != "" {
		t.Errorf("it says %s", said)
	}
}

func TestOpen_WarnsOfAKeyThatOthersCanRead(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no such permissions")
	}
	d := newFixture(t)
	d.issue("x", later)
	_ = os.Chmod(d.key, 0o640)
	r := d.open()
	if said := d.said(); !strings.Contains(said, "setting=TLS_KEY") || !strings.Contains(said, "0600") {
		t.Errorf("it says %q", said)
	}
	_ = os.Chmod(d.key, 0o600)
	twice(r)
	if said := d.said(); strings.Contains(said, "0600") {
		t.Errorf("when that is mended it says %q", said)
	}
}

func TestReloader_UsesNewFilesAndDropsNoConnection(t *testing.T) {
	d := newFixture(t)
	d.issue("one", later)
	r := d.open()
	server, client := serverOf(r), careless()
	client.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	first, err := connect(t, server, client)
	if err != nil || first.name() != "one" {
		t.Fatal(err)
	}
	d.issue("two", later)
	r.Check()
	if r.Certificate().Subject.CommonName != "one" {
		t.Error("a change was not given the time to settle")
	}
	r.Check()
	if said := d.said(); strings.Count(said, "reloaded") != 1 {
		t.Errorf("it says %q", said)
	}
	fresh, err := connect(t, server, careless())
	if err != nil || fresh.name() != "two" {
		t.Errorf("a new connection: %v", err)
	}
	first.works(t)
	resumed, err := connect(t, server, client)
	if err != nil || !resumed.client.ConnectionState().DidResume {
		t.Errorf("a ticket from before the change: %v, resumed: %v", err, err == nil && resumed.client.ConnectionState().DidResume)
	}
}

// The files of a pair change one after the other.
func TestReloader_WaitsForTheOtherFile(t *testing.T) {
	d := newFixture(t)
	d.issue("one", later)
	r := d.open()
	certPEM, keyPEM, _ := nobody.sign(t, "two", later)
	write(t, d.cert, certPEM)
	r.Check()
	write(t, d.key, keyPEM)
	r.Check()
	if said := d.said(); said != "" {
		t.Errorf("it says %q", said)
	}
	r.Check()
	if r.Certificate().Subject.CommonName != "two" {
		t.Error("the pair is not used")
	}
}

func TestReloader_KeepsWhatItHasWhenFilesAreBad(t *testing.T) {
	d := newFixture(t)
	d.issue("one", later)
	r := d.open()
	for name, spoil := range map[string]func(){
		"nonsense": func() { write(t, d.cert, []byte("?")) },
		"gone":     func() { _ = os.Remove(d.key) },
		"expired":  func() { d.issue("old", today.AddDate(0, 0, -1)) },
	} {
		spoil()
		for range 5 {
			r.Check()
		}
		if said := d.said(); strings.Count(said, "level=ERROR") != 1 || !strings.Contains(said, "TLS_") {
			t.Errorf("%s: it says %q; want one error", name, said)
		}
		if got := r.Certificate().Subject.CommonName; got != "one" {
			t.Errorf("%s: it uses %q", name, got)
		}
	}
	d.issue("two", later)
	twice(r)
	if got := r.Certificate().Subject.CommonName; got != "two" {
		t.Errorf("mended: it uses %q", got)
	}
}

func TestReloader_ClientsMustBeSignedByAnAuthorityOfTheDay(t *testing.T) {
	d := newFixture(t)
	d.issue("server", later)
	caPEM, _, ca := nobody.sign(t, "ca", later)
	otherPEM, _, other := nobody.sign(t, "other", later)
	write(t, d.clients, caPEM)
	r := d.open(func(c *credential.Config) { c.ClientCAFile = d.clients })
	server := serverOf(r)
	as := func(a *issuer) *tls.Config {
		c := careless()
		if a != nil {
			certPEM, keyPEM, _ := a.sign(t, "client", later)
			pair, err := tls.X509KeyPair(certPEM, keyPEM)
			if err != nil {
				t.Fatal(err)
			}
			c.Certificates = []tls.Certificate{pair}
		}
		c.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		return c
	}
	member, stranger := as(ca), as(other)
	for name, tt := range map[string]struct {
		client *tls.Config
		ok     bool
	}{"none": {as(nil), false}, "ours": {member, true}, "ours, again": {member, true}, "another's": {stranger, false}} {
		if _, err := connect(t, server, tt.client); (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if l, err := connect(t, server, member); err != nil || !l.client.ConnectionState().DidResume {
		t.Errorf("a ticket: %v", err)
	}
	write(t, d.clients, otherPEM)
	twice(r)
	if _, err := connect(t, server, stranger); err != nil {
		t.Errorf("the new authority's: %v", err)
	}
	if _, err := connect(t, server, member); err == nil {
		t.Error("a ticket lets a client in whose authority was removed")
	}
	if _, err := connect(t, server, as(ca)); err == nil {
		t.Error("the old authority's is let in")
	}
}

// What verified a client's certificate may end while its connection is open.
func TestReloader_EndedWhenNoChainHolds(t *testing.T) {
	d := newFixture(t)
	d.issue("server", later)
	authority := func(by *issuer, name string, serial int64) ([]byte, *issuer) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		certPEM, _, cert := by.certify(t, &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotBefore: today, NotAfter: later.AddDate(1, 0, 0),
			KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, BasicConstraintsValid: true, IsCA: true, SubjectKeyId: []byte(name),
		}, key)
		return certPEM, &issuer{cert, key}
	}
	rootPEM, root := authority(nobody, "root", 901)
	renewedPEM, _, _ := nobody.certify(t, &x509.Certificate{
		SerialNumber: big.NewInt(905), Subject: root.cert.Subject, NotBefore: today, NotAfter: later.AddDate(2, 0, 0),
		KeyUsage: root.cert.KeyUsage, BasicConstraintsValid: true, IsCA: true, SubjectKeyId: root.cert.SubjectKeyId,
	}, root.key)
	_, between := authority(root, "between", 902)
	_, _, leaf := between.sign(t, "client", later)
	otherPEM, other := authority(nobody, "other", 903)
	_, cross := authority(other, "between", 904)
	chain := []*x509.Certificate{leaf.cert, between.cert, root.cert}
	crossed := []*x509.Certificate{leaf.cert, cross.cert, other.cert}
	list := d.clients + ".crl"
	write(t, list, nil)
	write(t, d.clients, rootPEM)
	r := d.open(func(c *credential.Config) {
		c.ClientCAFile, c.ClientCRLFile, c.ClientCRLSetting = d.clients, list, "TLS_CLIENT_CRL"
	})
	wantEnded := func(want bool, chains ...[]*x509.Certificate) {
		t.Helper()
		if got := r.Ended(chains); got != want {
			t.Errorf("ended: %v, want %v", got, want)
		}
	}
	revoke := func(by *issuer, serial *big.Int) {
		t.Helper()
		der, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{
			Number: big.NewInt(1), ThisUpdate: today, NextUpdate: later, RevokedCertificateEntries: []x509.RevocationListEntry{{SerialNumber: serial, RevocationTime: today}},
		}, by.cert, by.key)
		if err != nil {
			t.Fatal(err)
		}
		write(t, list, pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der}))
		twice(r)
	}
	wantEnded(false, chain)
	wantEnded(true, crossed)
	wantEnded(false, crossed, chain)
	wantEnded(true)
	wantEnded(true, nil)
	write(t, d.clients, renewedPEM) // the same authority with another certificate
	twice(r)
	wantEnded(false, chain)
	wantEnded(true, crossed)
	write(t, d.clients, rootPEM)
	twice(r)
	revoke(root, between.cert.SerialNumber)
	wantEnded(true, chain)
	write(t, d.clients, append(bytes.Clone(rootPEM), otherPEM...))
	twice(r)
	wantEnded(true, chain)
	wantEnded(false, chain, crossed) // there is another way to trust it
	write(t, list, nil)
	write(t, d.clients, otherPEM)
	twice(r)
	wantEnded(true, chain)
	wantEnded(false, crossed)
	d.now = later.Add(time.Second)
	wantEnded(true, crossed)
}

func TestReloader_SpeaksWhatIsSafe(t *testing.T) {
	d := newFixture(t)
	d.issue("x", later)
	server := serverOf(d.open())
	for _, tt := range []struct {
		name   string
		change func(*tls.Config)
		ok     bool
	}{
		{"TLS 1.3", func(c *tls.Config) { c.MinVersion = tls.VersionTLS13 }, true},
		{"TLS 1.2", func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }, true},
		{"TLS 1.1", func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }, false},
		{"CBC", func(c *tls.Config) {
			c.MaxVersion, c.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA}
		}, false},
		{"h2", func(c *tls.Config) { c.NextProtos = []string{"h2", "http/1.1"} }, true},
	} {
		client := careless()
		tt.change(client)
		l, err := connect(t, server, client)
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
		if err == nil && slices.Contains(client.NextProtos, "h2") && l.client.ConnectionState().NegotiatedProtocol != "h2" {
			t.Errorf("%s: %q was agreed on", tt.name, l.client.ConnectionState().NegotiatedProtocol)
		}
	}
}

func TestReloader_WarnsBeforeTheEnd(t *testing.T) {
	d := newFixture(t)
	d.issue("x", today.AddDate(0, 0, 100))
	var left []time.Duration
	r := d.open(func(c *credential.Config) { c.Observe = func(d time.Duration) { left = append(left, d) } })
	for _, tt := range []struct {
		days  int
		warns string
	}{{0, ""}, {69, ""}, {70, "days_left=30"}, {71, ""}, {93, "days_left=7"}, {94, ""}, {99, "days_left=1"}, {100, "days_left=0"}, {101, ""}} {
		d.now = today.AddDate(0, 0, tt.days)
		r.Check()
		if said := d.said(); (said != "") != (tt.warns != "") || !strings.Contains(said, tt.warns) {
			t.Errorf("after %d days: %q", tt.days, said)
		}
		if got, want := left[len(left)-1], time.Duration(100-tt.days)*24*time.Hour; got != want || r.Left() != want {
			t.Errorf("after %d days: %v are left, want %v", tt.days, got, want)
		}
	}
	d.issue("y", d.now.AddDate(0, 0, 6))
	twice(r)
	if said := d.said(); !strings.Contains(said, "days_left=6") {
		t.Errorf("the next one: %q", said)
	}
}

func TestReloader_RunFollowsUntilItIsEnded(t *testing.T) {
	d := newFixture(t)
	d.issue("one", later)
	r := d.open()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.Run(ctx)
	}()
	d.issue("two", later)
	for deadline := time.Now().Add(time.Minute); r.Certificate().Subject.CommonName != "two"; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the files were not reloaded")
		}
	}
	cancel()
	<-ended
}

// TestCheck_WhatIsRefusedIsTriedAgain: if the authority's clock was ahead, or a disk was
// missing, the files become usable without a change. The failure is logged once.
func TestCheck_WhatIsRefusedIsTriedAgain(t *testing.T) {
	d := newFixture(t)
	d.issue("x", later)
	r := d.open()
	d.issue("y", later.AddDate(1, 0, 0))
	d.now = r.Certificate().NotBefore.Add(-2 * time.Second)
	d.said()
	for range 10 {
		r.Check()
	}
	if got := r.Certificate().Subject.CommonName; got != "x" {
		t.Errorf("before it is valid %q is in use", got)
	}
	if said := d.said(); strings.Count(said, "cannot be used") != 1 {
		t.Errorf("the log has it not just once:\n%s", said)
	}
	d.now = today.Add(time.Hour)
	r.Check()
	if got := r.Certificate().Subject.CommonName; got != "y" {
		t.Errorf("then %q is in use", got)
	}
}
