package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"

	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
)

// hide adds the lines of the private keys in files to the secrets.
func (v *vault) hide(files ...string) {
	v.t.Helper()
	for _, file := range files {
		text, err := os.ReadFile(file)
		block, _ := pem.Decode(text)
		if err != nil || block == nil {
			v.t.Fatalf("%s: %v", file, err)
		}
		for line := range strings.SplitSeq(string(pem.EncodeToMemory(block)), "\n") {
			if len(line) > 20 && !strings.HasPrefix(line, "-") {
				v.secrets = append(v.secrets, line)
			}
		}
	}
}

// guardedByAll is the environment of a node with everything that has secrets: users, TLS for clients,
// and certificates for peers.
type guardedByAll struct {
	env                 []string
	client, admin, peer string // addresses
	ca, list            string // files
	right, wrong        string // files with the secret of the user ops, and another one
	certs               string // of peers
}

func (v *vault) guard() *guardedByAll {
	v.t.Helper()
	g := &guardedByAll{right: v.file("right", planted+"right\n"), wrong: v.file("wrong", planted+"wrong\n"), certs: peerFiles(v.t)}
	hash := access.HashSecret(planted + "right")
	parts := strings.Split(hash, "$")
	v.secrets = append(v.secrets, parts[4], parts[5]) // salt and sum
	g.list = v.file("users.json", fmt.Sprintf(`{"users": {"ops": {"roles": ["all"], "secrets": [%q]}, "shop": {"roles": ["ids"], "secrets": [%q]}}}`, hash, hash))
	cert, key := v.keyFiles("server")
	g.ca = cert
	v.hide(filepath.Join(g.certs, "ca-key.pem"), filepath.Join(g.certs, "node1-key.pem"), filepath.Join(g.certs, "node2-key.pem"))
	addrs := freeAddrs(v.t, 3)
	g.client, g.admin, g.peer = addrs[0], addrs[1], addrs[2]
	g.env = []string{
		"NODE_ID=1", "HTTP_HOST=127.0.0.1", fmt.Sprint("HTTP_PORT=", portOf(v.t, g.client)), "ADMIN_ADDR=" + g.admin, "RAFT_ADDR=" + g.peer, "THRIFT_PORT=0",
		"DEBUG=1", "REQUEST_STATS=1", "DATA_DIR=data", "TLS_CERT=" + cert, "TLS_KEY=" + key, "ACL_FILE=" + g.list,
		"PEER_TLS_CERT=" + filepath.Join(g.certs, "node1.pem"), "PEER_TLS_KEY=" + filepath.Join(g.certs, "node1-key.pem"),
		"PEER_TLS_CA=" + filepath.Join(g.certs, "ca.pem"), "PEER_TLS_CRL=" + filepath.Join(g.certs, "crl.pem"),
	}
	return g
}

// TestSecrets_WithUsersAndPeers has a real node authenticate clients, also wrong ones, and refuse
// peers, and looks at all that it and the commands say of it.
func TestSecrets_WithUsersAndPeers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	v := &vault{t: t}
	g := v.guard()
	var log syncBuffer
	cmd := reexec(t, g.env, "serve")
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await.Done(t, await.Timeout, func() (bool, string) {
		conn, err := net.DialTimeout("tcp", g.client, time.Second)
		if err != nil {
			return false, log.String()
		}
		_ = conn.Close()
		status, _ := v.answer(http.DefaultTransport, "http://"+g.client+"/timestamp", rig.Bearer("ops", planted+"right"))
		return status == 200, fmt.Sprintf("%d: %s", status, log.String())
	})
	http.DefaultClient.CloseIdleConnections()
	v.askAs(g)
	v.authenticate(g)
	v.strangers(g)
	v.commands(g)
	// A list and a certificate that cannot be used, while the node runs.
	for _, file := range []string{g.list, filepath.Join(g.certs, "node1.pem")} {
		if err := os.WriteFile(file, []byte(`{"users": {"ops": "`+planted+`inalist"}} `+planted+"inafile"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"the list of users cannot be used", "TLS files have changed and cannot be used", "audit: denied", "TLS handshake of an incoming peer connection failed"} {
		await.Done(t, await.Timeout, func() (bool, string) {
			return strings.Contains(log.String(), want), "without " + want + ": " + log.String()
		})
	}
	v.askAs(g)
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("the node: %v", err)
	}
	v.look("the log", log.String())
}

// answer returns the status and all of an answer, after it has looked at it.
func (v *vault) answer(via http.RoundTripper, url, authorization string) (status int, text string) {
	v.t.Helper()
	r, err := http.NewRequestWithContext(v.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		v.t.Fatal(err)
	}
	r.Header.Set("Authorization", authorization)
	answer, err := via.RoundTrip(r)
	if err != nil {
		v.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	text = fmt.Sprint(answer.Header) + string(body)
	v.look(url, text)
	return answer.StatusCode, text
}

// askAs asks for everything over each version of HTTP, as a user, with wrong secrets, and with what
// is none.
func (v *vault) askAs(g *guardedByAll) {
	v.t.Helper()
	trust := &tls.Config{InsecureSkipVerify: true}
	h1 := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}}
	h2 := &http.Transport{TLSClientConfig: trust.Clone(), ForceAttemptHTTP2: true}
	h3 := &http3.Transport{TLSClientConfig: trust.Clone()}
	defer h1.CloseIdleConnections()
	defer h2.CloseIdleConnections()
	defer h3.Close()
	paths := []string{
		"/", "/state", "/live/state", "/members", "/metrics", "/ready", "/readyz?verbose", "/upgrade", "/admin/members", "/admin/security", "/admin/join?node=5",
		"/admin/nothing", "/live/nothing", "/timestamp", "/timestamp?n=x", "/api/snowflake",
	}
	profiles := []string{"/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2", "/debug/pprof/heap?debug=1"}
	for _, c := range []struct {
		authorization string
		state         int
	}{
		{rig.Bearer("ops", planted+"right"), 200}, {rig.Basic("ops", planted+"right"), 200}, {rig.Bearer("shop", planted+"right"), 403},
		{rig.Bearer("ops", planted+"wrong"), 401}, {rig.Basic("ops", planted+"wrong"), 401}, {rig.Bearer("nobody", planted+"right"), 401},
		{"Bearer " + planted + "token", 401}, {"Basic " + planted + "token", 401}, {"Digest " + planted + "token", 401}, {rig.Bearer("ops", strings.Repeat(planted+"long", 100)), 401},
	} {
		for _, via := range []http.RoundTripper{h1, h2, h3} {
			asked := paths
			if via != h1 && c.state != 200 {
				asked = paths[:4] // refused requests over HTTP/2 and HTTP/3 are bounded for an address
			}
			for _, path := range asked {
				if status, text := v.answer(via, "https://"+g.client+path, c.authorization); path == "/state" && status != c.state {
					v.t.Errorf("%.20s: %d, want %d: %s", c.authorization, status, c.state, text)
				}
			}
		}
		for _, path := range append(paths, profiles...) {
			v.answer(h1, "http://"+g.admin+path, c.authorization)
		}
	}
}

// authenticate does so in the protocol of Redis.
func (v *vault) authenticate(g *guardedByAll) {
	v.t.Helper()
	conn := rig.Dial(v.t, g.client, nil)
	_, _ = io.WriteString(conn, strings.Join([]string{
		"AUTH ops " + planted + "wrong", "AUTH " + planted + "wrong", "AUTH ops " + planted + "right", "TS", "INFO", "CLIENT LIST", "CLIENT INFO", "HELLO 3", "COMMAND DOCS AUTH",
		"HELLO 3 AUTH ops " + planted + "wrong", "HELLO 3 AUTH shop " + planted + "right", "TS", "AUTH ops " + planted + "right " + planted + "more", "CONFIG GET requirepass", "ACL LIST",
		"MULTI", "AUTH ops " + planted + "right", "EXEC", "QUIT",
	}, "\r\n")+"\r\n")
	answers, _ := io.ReadAll(conn)
	v.look("the answers to AUTH", string(answers))
	for _, want := range []string{"+OK", "-WRONGPASS", "-NOPERM"} {
		if !strings.Contains(string(answers), want) {
			v.t.Errorf("without %s: %q", want, answers)
		}
	}
}

// strangers connect to the port for peers: in plaintext with secrets, and with the certificate of another
// authority, of a client, and a revoked one.
func (v *vault) strangers(g *guardedByAll) {
	v.t.Helper()
	clear := rig.Dial(v.t, g.peer, nil)
	_, _ = io.WriteString(clear, "GET /"+planted+"path HTTP/1.1\r\nAuthorization: "+rig.Bearer("ops", planted+"right")+"\r\n\r\n")
	answer, _ := io.ReadAll(clear)
	v.look("the port for peers", string(answer))
	foreign := peerFiles(v.t)
	v.hide(filepath.Join(foreign, "node2-key.pem"))
	for _, dir := range []string{foreign, g.certs} { // that of node 2 is revoked
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "node2.pem"), filepath.Join(dir, "node2-key.pem"))
		if err != nil {
			v.t.Fatal(err)
		}
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			conn := rig.Dial(v.t, g.peer, &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true, MaxVersion: version, NextProtos: []string{"isotone-peer"},
				VerifyPeerCertificate: func([][]byte, [][]*x509.Certificate) error { return nil }})
			_, err := io.WriteString(conn, planted+"hello\r\n")
			answer, _ := io.ReadAll(conn)
			v.look("the port for peers, with TLS", string(answer)+fmt.Sprint(err))
		}
	}
}

// commands runs those that talk to nodes with the right secret and a wrong one, and those that read
// the files.
func (v *vault) commands(g *guardedByAll) {
	v.t.Helper()
	reach := []string{"--ca", g.ca, "--user", "ops", "--password-file"}
	at := "https://" + g.client
	bench := func(protocol string) []string {
		return []string{"bench", "--target", at, "--protocol", protocol, "--requests", "20", "--connections", "2"}
	}
	for _, args := range [][]string{
		{"member", "list", "--endpoint", at}, {"leader", "show", "--endpoint", at}, {"upgrade", "show", "--endpoint", at}, {"status", at}, {"status", "--json", at},
		{"backup", "--force", "--endpoint", at, "backup"}, {"doctor", "--endpoint", at}, {"doctor", "--json", "--endpoint", at}, {"member", "add", "2", "x", "--yes", "--timeout", "1s", "--endpoint", at},
		{"floor", "raise", time.Now().UTC().Format(time.RFC3339), "--yes", "--timeout", "1s", "--endpoint", at}, {"leader", "transfer", "7", "--yes", "--timeout", "1s", "--endpoint", at}, bench("http1"), bench("h2"), bench("resp"),
	} {
		if out := v.run(nil, append(append(args, reach...), g.right)...); strings.Contains(out, "unauthorized") || strings.Contains(out, "Usage:") {
			v.t.Errorf("%q: %s", args, out)
		}
		// A busy node may not answer in the time that a command waits, which says nothing of the secret.
		await.Done(v.t, await.Timeout, func() (bool, string) {
			out := v.run(nil, append(append(args, reach...), g.wrong)...)
			isLate := strings.Contains(out, "deadline exceeded") || strings.Contains(out, "no answer within")
			if !isLate && !strings.Contains(strings.ToLower(out), "unauthorized") {
				v.t.Errorf("%q with a wrong secret: %s", args, out)
			}
			return !isLate, fmt.Sprintf("%q with a wrong secret: %s", args, out)
		})
		if v.t.Failed() {
			return
		}
		v.run([]string{"ISOTONE_USER=ops", "ISOTONE_PASSWORD=" + planted + "variable"}, append(args, "--ca", g.ca)...)
	}
	v.run(nil, "drain", "--endpoint", at, "--ca", g.ca, "--user", "ops", "--password-file", g.wrong)
	if out := v.run(g.env, "doctor", "--endpoint", at, "--ca", g.ca, "--user", "ops", "--password-file", g.right); !strings.Contains(out, "one list") {
		v.t.Errorf("doctor beside the node: %s", out)
	}
	junk := v.file("junk", `{"users": {"ops": {"roles": ["all"], "secrets": ["`+planted+"inalist"+`"]}}}`)
	for _, setting := range []string{"ACL_FILE", "PEER_TLS_CERT", "PEER_TLS_KEY", "PEER_TLS_CA", "PEER_TLS_CRL"} {
		v.run(append(append([]string(nil), g.env...), setting+"="+junk), "doctor")
	}
	for _, args := range [][]string{
		{"user", "check", g.list}, {"user", "check", "--json", g.list}, {"user", "check", junk}, {"user", "check", g.right}, {"cert", "node", "3", "--dir", g.certs},
		{"cert", "client", "shop", "--dir", g.certs, "--json"}, {"cert", "ca", "--add", "--dir", g.certs}, {"cert", "revoke", g.right, "--dir", g.certs}, {"proxy", "--node", at, "--acl-file", junk},
		{"proxy", "--node", at, "--ca", g.ca, "--user", "ops", "--password-file", g.right},
	} {
		v.run(nil, args...)
	}
}
