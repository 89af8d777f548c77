package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pingcap/kvproto/pkg/pdpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/isotone/isotone/internal/auth/authority"
)

// made returns certificates for a gateway and a client, and the authority of both.
func made(t *testing.T) (ca, gateway, client authority.Made) {
	t.Helper()
	dir := &authority.Dir{Path: t.TempDir()}
	ca, err := dir.Authority("test", time.Hour, false)
	if err == nil {
		gateway, err = dir.Sign(authority.Node("test", 1, []string{"127.0.0.1"}), time.Hour)
	}
	if err == nil {
		client, err = dir.Sign(authority.Client("test", "tidb"), time.Hour)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ca, gateway, client
}

func TestServe_HasClientsPresentACertificate(t *testing.T) {
	ca, gateway, client := made(t)
	pd, web, stop := serveFake(t, &fake{}, "--tls-cert", gateway.Cert, "--tls-key", gateway.Key, "--tls-client-ca", ca.Cert)
	defer stop()
	pem, err := os.ReadFile(ca.Cert)
	if err != nil {
		t.Fatal(err)
	}
	anonymous := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	anonymous.RootCAs.AppendCertsFromPEM(pem)
	pair, err := tls.LoadX509KeyPair(client.Cert, client.Key)
	if err != nil {
		t.Fatal(err)
	}
	known := anonymous.Clone()
	known.Certificates = []tls.Certificate{pair}
	ctx, cancel := context.WithTimeout(t.Context(), testWait)
	defer cancel()
	for name, c := range map[string]struct {
		secure *tls.Config
		admit  bool
	}{"with a certificate": {known, true}, "without one": {anonymous, false}} {
		if url, err := leaderOf(ctx, pd, c.secure); (err == nil) != c.admit || c.admit && url != "https://"+pd {
			t.Errorf("%s: gRPC: %q, %v", name, url, err)
		}
		if _, err := fetchWith(ctx, c.secure, "POST", "https://"+web+"/timestamp/fresh-timestamp"); (err == nil) != c.admit {
			t.Errorf("%s: HTTP: %v", name, err)
		}
	}
}

// leaderOf asks a gateway for the URL of the leader.
func leaderOf(ctx context.Context, addr string, secure *tls.Config) (string, error) {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(credentials.NewTLS(secure)))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	got, err := pdpb.NewPDClient(conn).GetMembers(ctx, &pdpb.GetMembersRequest{})
	if err != nil {
		return "", err
	}
	return got.GetLeader().GetClientUrls()[0], nil
}

// TestServe_RevokedClientsGetNothingMore, not even on a stream or a connection of HTTP that is open.
func TestServe_RevokedClientsGetNothingMore(t *testing.T) {
	ca, gateway, client := made(t)
	list := filepath.Join(t.TempDir(), "crl.pem")
	if err := os.WriteFile(list, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pd, web, stop := serveFake(t, &fake{}, "--tls-cert", gateway.Cert, "--tls-key", gateway.Key, "--tls-client-ca", ca.Cert, "--tls-client-crl", list)
	defer stop()
	pem, err := os.ReadFile(ca.Cert)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(client.Cert, client.Key)
	if err != nil {
		t.Fatal(err)
	}
	known := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	known.RootCAs.AppendCertsFromPEM(pem)
	conn, err := grpc.NewClient(pd, grpc.WithTransportCredentials(credentials.NewTLS(known)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testWait)
	defer cancel()
	stream, err := pdpb.NewPDClient(conn).Tso(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ask := func() error {
		if err := stream.Send(&pdpb.TsoRequest{Header: &pdpb.RequestHeader{ClusterId: uint64(testCluster)}, Count: 1}); err != nil {
			return err
		}
		_, err := stream.Recv()
		return err
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: known.Clone()}
	defer transport.CloseIdleConnections()
	fetch := func() (status int, err error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+web+"/nothing", http.NoBody)
		if err != nil {
			return 0, err
		}
		answer, err := transport.RoundTrip(r)
		if err != nil {
			return 0, err
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		return answer.StatusCode, answer.Body.Close()
	}
	if status, err := fetch(); err != nil || status == http.StatusUnauthorized {
		t.Fatalf("HTTP: %d, %v", status, err)
	}
	made, err := (&authority.Dir{Path: filepath.Dir(ca.Cert)}).Revoke(client.Cert)
	if err != nil {
		t.Fatal(err)
	}
	revoked, err := os.ReadFile(made.Cert)
	if err == nil {
		err = os.WriteFile(list, revoked, 0o600)
	}
	for err == nil { // until the list is read
		err = ask()
	}
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("a revoked client's stream: %v", err)
	}
	if status, err := fetch(); err != nil || status != http.StatusUnauthorized {
		t.Errorf("a revoked client's connection of HTTP: %d, %v", status, err)
	}
	if _, err := fetch(); err == nil {
		t.Error("a revoked client connects again by HTTP")
	}
	if _, err := leaderOf(ctx, pd, known); err == nil {
		t.Error("a revoked client connects again")
	}
}
