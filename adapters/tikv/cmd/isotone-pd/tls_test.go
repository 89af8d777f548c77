package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"testing"
	"time"

	"github.com/pingcap/kvproto/pkg/pdpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/isotone/isotone/internal/host/authority"
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
