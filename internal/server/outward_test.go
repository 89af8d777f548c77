package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/host/config"
)

// TestForward_ReachesALeaderThatDemandsACertificateAndASecret: the fake leader stands for a node
// with REQUIRE_TLS.
func TestForward_ReachesALeaderThatDemandsACertificateAndASecret(t *testing.T) {
	a := rig.NewSigner(t)
	cert, key := a.Issue("follower")
	s := config.Default()
	s.TLSCert, s.TLSKey, s.ForwardCA = cert, key, a.File
	s.ForwardCredentialFile = rig.SecretFile(t, "follower:"+rig.Secret)
	out, err := outward(&s)
	if err != nil {
		t.Fatal(err)
	}
	addr, heard := serveOK(t, a, 2)
	c, err := dialer(out)(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if want := "*3\r\n$4\r\nAUTH\r\n$8\r\nfollower\r\n$9\r\n" + rig.Secret + "\r\n*3\r\n$6\r\nCLIENT\r\n$7\r\nFORWARD\r\n$3\r\nOFF\r\n"; <-heard != want {
		t.Errorf("it was told something else than %q", want)
	}
	other, otherKey := rig.NewSigner(t).Issue("follower")
	s.TLSCert, s.TLSKey = other, otherKey // of another authority
	addr, _ = serveOK(t, a, 1)
	if c, err := dialer(out)(t.Context(), "tcp", addr); err == nil || strings.Contains(err.Error(), rig.Secret) {
		t.Errorf("%v, %v", c, err)
	}
	for name, change := range map[string]func(*config.Settings){
		"FORWARD_CA": func(s *config.Settings) { s.ForwardCA = key }, "FORWARD_CREDENTIAL_FILE": func(s *config.Settings) { s.ForwardCredentialFile = a.File },
	} {
		bad := s
		change(&bad)
		if _, err := outward(&bad); err == nil || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// serveOK answers commands with OK on one connection that demands a certificate, and tells what it
// has heard.
func serveOK(t *testing.T, a *rig.Signer, commands int) (addr string, heard <-chan string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	told, ended := make(chan string, 1), make(chan struct{})
	cfg := a.Server()
	go func() {
		defer close(ended)
		c, err := rig.AcceptTLS(ln, cfg)
		if err != nil {
			return
		}
		defer c.Close()
		var all []byte
		for b := make([]byte, 512); commands > 0; {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			all = append(all, b[:n]...)
			fmt.Fprint(c, "+OK\r\n")
			commands--
		}
		told <- string(all)
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		<-ended
	})
	return ln.Addr().String(), told
}

// TestForward_KnowsTheLeaderByItsCertificate: one of another authority, or for another name, gets no
// request and no secret.
func TestForward_KnowsTheLeaderByItsCertificate(t *testing.T) {
	a, other := rig.NewSigner(t), rig.NewSigner(t)
	for _, c := range []struct {
		by    *rig.Signer // of the leader's certificate
		host  string
		known bool
	}{{a, "127.0.0.1", true}, {other, "127.0.0.1", false}, {a, "127.0.0.2", false}} {
		leader, err := net.Listen("tcp", c.host+":0")
		if err != nil {
			t.Skip(err) // not every system has 127.0.0.2
		}
		server := c.by.Server()
		server.ClientAuth = tls.NoClientCert
		told := make(chan int, 1)
		go func() {
			n := 0
			if conn, err := rig.AcceptTLS(leader, server); err == nil {
				_ = conn.SetDeadline(time.Now().Add(rig.Wait))
				n, _ = conn.Read(make([]byte, 100))
				_ = conn.Close()
			}
			told <- n
		}()
		s := config.Default()
		s.ForwardCA, s.DataDir, s.ForwardCredentialFile = a.File, t.TempDir(), rig.SecretFile(t, "web:"+rig.Secret)
		out, err := outward(&s)
		if err != nil {
			t.Fatal(err)
		}
		addr := leader.Addr().String()
		conn := rig.Dial(t, addr, nil)
		_, err = handshake(t.Context(), out, conn, addr)
		_ = conn.Close()
		if n := <-told; (n > 0) != c.known || err == nil || errors.As(err, new(*tls.CertificateVerificationError)) == c.known {
			t.Errorf("known %t: it has heard %d bytes, %v", c.known, n, err)
		}
		_ = leader.Close()
		// The Go client, which carries the requests, has the same configuration.
		if cfg := out.TLS; cfg.InsecureSkipVerify || cfg.RootCAs == nil {
			t.Error("certificates are not verified")
		}
	}
}
