package main

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/credential"
	"github.com/isotone/isotone/internal/host/telemetry"
)

func TestOpenTLS_NeverMakesAPairThatWasNamed(t *testing.T) {
	dir := t.TempDir()
	s := config.Default()
	s.DataDir = filepath.Join(dir, "data")
	s.TLSCert, s.TLSKey = filepath.Join(dir, "typo-cert.pem"), filepath.Join(dir, "typo-key.pem")
	_, err := openTLS(&s, "localhost:1", telemetry.NewMetrics(""), nil)
	if err == nil || !strings.Contains(err.Error(), "TLS_CERT") || !strings.Contains(err.Error(), "typo-cert.pem") {
		t.Errorf("a certificate that is not there: %v", err)
	}
	if files, _ := os.ReadDir(dir); len(files) != 0 {
		t.Errorf("files were written: %v", files)
	}
	s.TLSCert, s.TLSKey = "", ""
	if _, err := openTLS(&s, "localhost:1", telemetry.NewMetrics(""), nil); err != nil {
		t.Error(err)
	}
	info, err := os.Stat(filepath.Join(s.DataDir, "key.pem"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the generated key: %v, %v", info, err)
	}
}

// One node, asked over TLS in the loop before and after its certificate is replaced, on a
// connection that stays and on new ones.
func TestMember_FollowsItsCertificateAndDropsNoConnection(t *testing.T) {
	t.Parallel()
	s := config.Default()
	s.HTTPHost, s.HTTPPort, s.RaftAddr, s.ThriftPort, s.DataDir = "127.0.0.1", 0, "127.0.0.1:0", 0, t.TempDir()
	so, err := listen(&s)
	if err != nil {
		t.Fatal(err)
	}
	s.Peers = map[uint64]string{1: so.peer.Addr().String()}
	url := "https://" + so.http.Addr().String() + "/timestamp"
	m, err := startMember(&s, so, memberOptions{loops: 2}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.close(); err != nil {
			t.Error(err)
		}
	}()
	roots := x509.NewCertPool()
	newClient := func() *http.Client {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport, Timeout: 10 * time.Second}
	}
	trust := func() *x509.Certificate {
		pair, err := credential.Open(credential.Config{
			CertFile: filepath.Join(s.DataDir, "cert.pem"), KeyFile: filepath.Join(s.DataDir, "key.pem"), SelfSigned: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		roots.AddCert(pair.Certificate())
		return pair.Certificate()
	}
	// ask returns the certificate that answered, or nil.
	ask := func(c *http.Client) *x509.Certificate {
		response, err := c.Get(url)
		if err != nil {
			return nil
		}
		defer response.Body.Close()
		if body, err := io.ReadAll(response.Body); err != nil || response.StatusCode != 200 || len(body) != 16 {
			return nil
		}
		return response.TLS.PeerCertificates[0]
	}
	first, steady := trust(), newClient()
	within(t, "an answer", func() bool { return first.Equal(ask(steady)) })
	for _, name := range []string{"cert.pem", "key.pem"} {
		if err := os.Remove(filepath.Join(s.DataDir, name)); err != nil {
			t.Fatal(err)
		}
	}
	second := trust()
	within(t, "the new certificate", func() bool { return second.Equal(ask(newClient())) })
	if !first.Equal(ask(steady)) {
		t.Error("the connection that was there is not served any more")
	}
}

func within(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}
