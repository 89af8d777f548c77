package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/check/testnode"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/inspect/doctor"
)

// peerFiles makes an authority, the certificate of node 1, and a list that revokes that of node 2.
func peerFiles(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, args := range [][]string{{"ca"}, {"node", "1", "127.0.0.1"}, {"node", "2", "127.0.0.1"}, {"revoke", filepath.Join(dir, "node2.pem")}} {
		if code, _, err := command(append(append([]string{"cert"}, args...), "--dir", dir)...); code != 0 {
			t.Fatal(err)
		}
	}
	return dir
}

// usePeerFiles sets the files of node 1.
func usePeerFiles(s *config.Settings, dir string) {
	s.PeerTLSCert, s.PeerTLSKey = filepath.Join(dir, "node1.pem"), filepath.Join(dir, "node1-key.pem")
	s.PeerTLSCA, s.PeerTLSCRL = filepath.Join(dir, "ca.pem"), filepath.Join(dir, "crl.pem")
}

// diagnose runs isotone doctor, and returns its findings by check and subject.
func diagnose(t *testing.T, env map[string]string, args ...string) (findings map[string]doctor.Finding, out string) {
	t.Helper()
	for name, value := range env {
		t.Setenv(name, value)
	}
	_, out, err := command(append([]string{"doctor", "--json"}, args...)...)
	var r doctor.Report
	if json.Unmarshal([]byte(out), &r) != nil {
		t.Fatalf("%s%s", out, err)
	}
	findings = map[string]doctor.Finding{}
	for _, f := range r.Findings {
		findings[f.Check+" "+f.Subject] = f
	}
	return findings, out
}

// TestDoctor_ComparesUsersAndPeers of a node that runs with those of the settings here.
func TestDoctor_ComparesUsersAndPeers(t *testing.T) {
	dir := peerFiles(t)
	n := testnode.Guarded(t, rig.Users, func(s *config.Settings) { usePeerFiles(s, dir) })
	secret := rig.SecretFile(t, rig.Secret)
	code, out, stderr := command("user", "check", "--json", n.Users.File)
	var list struct{ SHA256 string }
	if err := json.Unmarshal([]byte(out), &list); code != 0 || err != nil || len(list.SHA256) != 64 {
		t.Fatalf("%s%s", out, stderr)
	}
	operator := []string{"--endpoint", n.Client, "--user", "ops", "--password-file", secret}
	for _, c := range []struct{ user, says string }{{"ops", "valid until"}, {"web", "does not tell who may reach it"}} {
		_, out := diagnose(t, nil, "--endpoint", n.Client, "--user", c.user, "--password-file", secret)
		if !strings.Contains(out, c.says) || strings.Contains(out, "argon2") || strings.Contains(out, rig.Secret) {
			t.Errorf("as %s, without %q: %s", c.user, c.says, out)
		}
	}
	settings := map[string]string{
		"NODE_ID": "1", "DATA_DIR": t.TempDir(), "HTTP_HOST": "127.0.0.1", "HTTP_PORT": strconv.Itoa(portOf(t, n.Client)), "THRIFT_PORT": "0", "ACL_FILE": n.Users.File,
		"PEER_TLS_CERT": filepath.Join(dir, "node1.pem"), "PEER_TLS_KEY": filepath.Join(dir, "node1-key.pem"), "PEER_TLS_CA": filepath.Join(dir, "ca.pem"), "PEER_TLS_CRL": filepath.Join(dir, "crl.pem"),
	}
	findings, out := diagnose(t, settings, operator...)
	for key, found := range map[string]string{
		"users ": "one list: 4 users, SHA-256 " + list.SHA256, "users ACL_FILE": list.SHA256, "certificate PEER_TLS_CERT": "valid until",
		"certificate node 1, peers": "for spiffe://isotone/isotone/node/1", "revocation node 1": "1 certificate of", "revocation PEER_TLS_CRL": "1 certificate of",
	} {
		if f := findings[key]; f.Status != doctor.OK || !strings.Contains(f.Found, found) {
			t.Errorf("%s: %+v, want %q\n%s", key, f, found, out)
		}
	}
	// Here the files of another node, and another list.
	other := rig.NewUserList(t, `{"users": {"a": {"roles": ["ids"]}}}`)
	settings["ACL_FILE"], settings["PEER_TLS_CERT"], settings["PEER_TLS_KEY"] = other.File, filepath.Join(dir, "node2.pem"), filepath.Join(dir, "node2-key.pem")
	findings, out = diagnose(t, settings, operator...)
	for key, found := range map[string]string{"users ": "different lists of users", "certificate PEER_TLS_CERT": "not the name of node 1"} {
		if f := findings[key]; f.Status != doctor.Problem || !strings.Contains(f.Found, found) {
			t.Errorf("%s: %+v, want %q\n%s", key, f, found, out)
		}
	}
	other.Write(`{"users": {"a": {"roles": ["none", "` + rig.Secret + `"], "secrets": ["` + rig.Secret + `"]}, "b": {"roles": ["x"]}}}`)
	findings, out = diagnose(t, settings, operator...)
	if f := findings["users ACL_FILE"]; f.Status != doctor.Problem || !strings.Contains(f.Found, "Argon2id") || strings.Contains(f.Found, "\n") {
		t.Errorf("%s", out)
	}
}

// TestSecurity_IsForOperators, names the list in force, and no secret.
func TestSecurity_IsForOperators(t *testing.T) {
	t.Parallel()
	dir := peerFiles(t)
	n := testnode.Guarded(t, rig.Users, func(s *config.Settings) { usePeerFiles(s, dir) })
	c := rig.DialHTTP(t, n.Client, nil)
	for _, q := range []rig.Question{rig.Ask("/admin/security", "", 401), rig.Ask("/admin/security", rig.Bearer("web", rig.Secret), 403)} {
		status, header, body := c.Ask(q.Path, q.Authorization)
		q.Check(t, status, header, body)
	}
	state := func() (s front.Security) {
		status, _, body := c.Ask("/admin/security", rig.Bearer("ops", rig.Secret))
		if err := json.Unmarshal([]byte(body), &s); status != 200 || err != nil || strings.Contains(body, "argon2") {
			t.Fatalf("%d, %v: %s", status, err, body)
		}
		return s
	}
	before := state()
	if p := before.Peers; before.NodeID != 1 || before.Users.Users != 4 || before.Users.Refused || p == nil || len(p.Authorities) != 1 || p.SignedBy != p.Authorities[0].SHA256 ||
		len(p.Lists) != 1 || p.Lists[0].Revoked != 1 || p.Revoked || p.NotAfter.Before(time.Now()) {
		t.Errorf("%+v", before)
	}
	n.Users.Write("no list")
	await.Until(t, "the list is refused", func() bool { s := state(); return s.Users.Refused && s.Users.SHA256 == before.Users.SHA256 })
	n.Users.Write(strings.Replace(rig.Users, `"ids"`, `"makers"`, 1))
	await.Until(t, "another list", func() bool { s := state(); return !s.Users.Refused && s.Users.SHA256 != before.Users.SHA256 })
	// A node whose own certificate is revoked says so.
	if code, _, err := command("cert", "revoke", filepath.Join(dir, "node1.pem"), "--dir", dir); code != 0 {
		t.Fatal(err)
	}
	await.Until(t, "the certificate is revoked", func() bool { s := state(); return s.Peers.Revoked && s.Peers.Lists[0].Revoked == 2 })
}

// TestSecrets_GoNowhereUnasked: any program may listen where a node of this machine would.
func TestSecrets_GoNowhereUnasked(t *testing.T) {
	var asked, told atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("Authorization") != "" {
			told.Add(1)
		}
		_, _ = io.WriteString(w, `{"nodeID":1}`)
	}))
	defer other.Close()
	secret := rig.SecretFile(t, rig.Secret)
	for name, value := range map[string]string{
		"HTTP_HOST": "127.0.0.1", "HTTP_PORT": strconv.Itoa(portOf(t, other.Listener.Addr().String())), "DATA_DIR": t.TempDir(), "ISOTONE_USER": "ops", "ISOTONE_PASSWORD_FILE": secret,
	} {
		t.Setenv(name, value)
	}
	for _, args := range []string{"member list", "leader show", "status", "status --watch", "backup " + filepath.Join(t.TempDir(), "b"), "drain --yes", "worker list", "bench"} {
		if code, _, err := command(strings.Fields(args)...); code == 0 || !strings.Contains(err, "a secret is sent in plaintext only to a node that you name") {
			t.Errorf("%s: exit code %d, %s", args, code, err)
		}
	}
	if _, _, err := command("doctor", "--json"); !strings.Contains(err, "asked without credentials") || asked.Load() == 0 {
		t.Errorf("doctor has asked %d times, and says %s", asked.Load(), err)
	}
	if told.Load() > 0 {
		t.Errorf("a program that is no node was sent the secret %d times", told.Load())
	}
}
