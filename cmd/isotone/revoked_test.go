package main

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/check/testnode"
	"github.com/isotone/isotone/internal/host/config"
)

// clientWith returns the configuration of a client with a certificate that isotone cert has made.
func clientWith(t *testing.T, dir, name string) *tls.Config {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "client-"+name+".pem"), filepath.Join(dir, "client-"+name+"-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, ServerName: "localhost", ClientSessionCache: tls.NewLRUClientSessionCache(4)}
}

// TestClients_ARevokedCertificateHasNoRights, neither on new connections nor on those that are open.
func TestClients_ARevokedCertificateHasNoRights(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert := func(args ...string) {
		t.Helper()
		if code, _, text := command(append(append([]string{"cert"}, args...), "--dir", dir)...); code != 0 {
			t.Fatalf("cert %s: %s", args, text)
		}
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	cert("ca")
	cert("node", "1", "localhost")
	for _, name := range []string{"good", "bad", "worse"} {
		cert("client", name)
	}
	cert("revoke", in("client-worse.pem"))
	n := testnode.Guarded(t, "", func(s *config.Settings) {
		s.TLSCert, s.TLSKey, s.TLSClientCA, s.TLSClientCRL = in("node1.pem"), in("node1-key.pem"), in("ca.pem"), in("crl.pem")
	})
	good, bad := clientWith(t, dir, "good"), clientWith(t, dir, "bad")
	enters := func(cfg *tls.Config) bool {
		t.Helper()
		c := rig.Dial(t, n.Client, cfg)
		_, _ = io.WriteString(c, "PING\r\n")
		_, err := c.Read(make([]byte, 1))
		return err == nil // any answer, also that something is denied
	}
	if enters(clientWith(t, dir, "worse")) || !enters(good) || !enters(bad) {
		t.Fatal("one of three certificates is revoked: it alone should not be accepted")
	}
	trusted, open := rig.DialHTTP(t, n.Client, good), rig.DialHTTP(t, n.Client, bad)
	redis := rig.DialRedis(t, n.Client, bad)
	transport := &http.Transport{TLSClientConfig: bad, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	overHTTP2 := func() int {
		resp, err := (&http.Client{Transport: transport, Timeout: rig.Wait}).Get("https://" + n.Client + "/timestamp")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.ProtoMajor != 2 {
			t.Fatalf("%s, %v", resp.Proto, err)
		}
		return resp.StatusCode
	}
	for _, path := range []string{"/timestamp", "/admin/members"} {
		for _, c := range []*rig.HTTPConn{trusted, open} {
			if status, _, body := c.Ask(path, ""); status != 200 {
				t.Fatalf("%s: %d %s", path, status, body)
			}
		}
	}
	redis.Does("TS", "$16")
	if status := overHTTP2(); status != 200 {
		t.Fatalf("HTTP/2: %d", status)
	}

	cert("revoke", in("client-bad.pem"))
	await.Until(t, "the list is read", func() bool {
		status, _, _ := open.Ask("/timestamp", "")
		return status == 401
	})
	if status, _, body := open.Ask("/admin/members", ""); status != 401 || strings.Contains(body, "voter") {
		t.Errorf("/admin/members: %d %s", status, body)
	}
	redis.Does("TS", "-NOAUTH")
	if status := overHTTP2(); status != 401 {
		t.Errorf("HTTP/2: %d", status)
	}
	if status, _, _ := trusted.Ask("/admin/members", ""); status != 200 {
		t.Errorf("another client: %d", status)
	}
	if enters(bad) || enters(clientWith(t, dir, "bad")) || !enters(good) {
		t.Error("new connections, with a session ticket and without: the revoked certificate alone should be refused")
	}

	// An authority that is not trusted any more takes its clients along.
	other := t.TempDir()
	wantRun(t, 0, "", "", "cert", "ca", "--dir", other)
	if err := os.WriteFile(in("crl.pem"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(other, "ca.pem"), in("ca.pem")); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the authority is read", func() bool {
		status, _, _ := trusted.Ask("/timestamp", "")
		return status == 401
	})
	if status, _, body := trusted.Ask("/admin/members", ""); status != 401 || enters(good) {
		t.Errorf("/admin/members: %d %s", status, body)
	}
}
