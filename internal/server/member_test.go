package server_test

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

	"github.com/isotone/isotone/internal/auth/credential"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/check/testnode"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/server"
)

// One node, asked over TLS in the loop before and after its certificate is replaced, on a
// connection that stays and on new ones.
func TestMember_FollowsItsCertificateAndDropsNoConnection(t *testing.T) {
	t.Parallel()
	s := config.Default()
	s.HTTPHost, s.HTTPPort, s.RaftAddr, s.ThriftPort, s.DataDir = "127.0.0.1", 0, "127.0.0.1:0", 0, t.TempDir()
	so, err := server.Listen(&s)
	if err != nil {
		t.Fatal(err)
	}
	s.Peers = map[uint64]string{1: so.Peer.Addr().String()}
	url := "https://" + so.HTTP.Addr().String() + "/timestamp"
	m, err := server.Start(&s, so, server.Options{Version: "test", Loops: 2}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Close(); err != nil {
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
	await.Until(t, "an answer", func() bool { return first.Equal(ask(steady)) })
	for _, name := range []string{"cert.pem", "key.pem"} {
		if err := os.Remove(filepath.Join(s.DataDir, name)); err != nil {
			t.Fatal(err)
		}
	}
	second := trust()
	await.Until(t, "the new certificate", func() bool { return second.Equal(ask(newClient())) })
	if !first.Equal(ask(steady)) {
		t.Error("the connection that was there is not served any more")
	}
}

// The state is there before the first request: scripts that start a node ask for it next.
func TestMember_HasAStateFromTheFirstRequest(t *testing.T) {
	for range 10 {
		stop, _, m := testnode.RunSockets(t, nil)
		if !m.HasState() {
			t.Error("the state has not been loaded")
		}
		stop()
	}
}

// The state says what /ready says, at once, although it is made once a second: a node is ready within milliseconds.
func TestMember_TheStateIsNoOlderThanReady(t *testing.T) {
	for range 5 {
		stop, client, _ := testnode.Run(t, func(s *config.Settings) { s.LiveInterval = time.Hour })
		await.Until(t, "the node is ready", func() bool {
			status, _ := rig.Fetch(t, client+"/ready")
			return status == 200
		})
		for _, path := range []string{"/state", "/live/state"} {
			if status, body := rig.Fetch(t, client+path); status != 200 || !strings.Contains(body, `"ready":true`) || !strings.Contains(body, `"leader":{"nodeID":1,`) {
				t.Errorf("%s: %d %s", path, status, body)
			}
		}
		stop()
	}
}
