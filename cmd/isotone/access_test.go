package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/httpapi"
	accesslist "github.com/isotone/isotone/internal/host/access"
	"github.com/isotone/isotone/internal/host/config"
)

const testSecret = "hush-hush"

// secretFile writes the file of --password-file, or of FORWARD_CREDENTIAL_FILE.
func secretFile(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(name, []byte(content+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// runSecureMember runs a node that demands TLS clients to have a certificate of a.
func runSecureMember(t *testing.T, a *signer) (addr string) {
	t.Helper()
	cert, key := a.issue("node")
	_, url, admin := runMember(t, func(s *config.Settings) { s.TLSCert, s.TLSKey, s.TLSClientCA = cert, key, a.file })
	within(t, "the node is ready", func() bool {
		status, _ := fetch(t, admin+"/readyz")
		return status == 200
	})
	return strings.TrimPrefix(url, "http://")
}

// TestAccess_EveryCommandReachesANodeThatDemandsACertificate, and none of them without one.
func TestAccess_EveryCommandReachesANodeThatDemandsACertificate(t *testing.T) {
	t.Parallel()
	a := newSigner(t)
	addr := runSecureMember(t, a)
	cert, key := a.issue("operator")
	mine := []string{"--ca", a.file, "--cert", cert, "--key", key}
	load := func(target, protocol string) []string {
		return []string{"bench", "--target", target, "--protocol", protocol, "--requests", "20", "--connections", "2", "--violations", filepath.Join(t.TempDir(), "v")}
	}
	for _, args := range [][]string{
		{"member", "list", "--endpoint", addr},
		{"member", "list", "--endpoint", "https://" + addr},
		{"leader", "show", "--endpoint", addr},
		{"upgrade", "show", "--endpoint", addr},
		{"backup", "--force", "--endpoint", addr, filepath.Join(t.TempDir(), "backup")},
		{"status", addr},
		{"status", "https://" + addr},
		load(addr, "http1"), load("https://"+addr, "resp"), load(addr, "h2"), load(addr, "h3"),
	} {
		within(t, strings.Join(args, " "), func() bool { // /state is a moment behind the node
			code, out, err := command(append(args, mine...)...)
			if code != 0 {
				t.Logf("%q: exit code %d, %s%s", args, code, out, err)
			}
			return code == 0
		})
		for i, endpoint := range args {
			if strings.HasSuffix(endpoint, addr) {
				args[i] = "https://" + addr
			}
		}
		// With TLS 1.3 the refusal comes after the client's own handshake, and may find it writing.
		code, out, err := command(append(args, "--ca", a.file)...)
		told := slices.ContainsFunc([]string{"certificate", "reset"}, func(words string) bool {
			return strings.Contains(out+err, words)
		})
		if code == 0 || !told {
			t.Errorf("%q without a certificate: exit code %d, %s%s", args, code, out, err)
		}
		if args[0] == "bench" && !strings.Contains(err, "name one with --cert FILE and --key FILE") {
			t.Errorf("%q does not say what is missing: %s", args, err)
		}
	}
}

// TestAccess_BenchSaysThatItsCertificateIsNotAccepted, over each protocol.
func TestAccess_BenchSaysThatItsCertificateIsNotAccepted(t *testing.T) {
	a, other := newSigner(t), newSigner(t)
	addr := runSecureMember(t, a)
	cert, key := other.issue("stranger")
	for _, protocol := range []string{"http1", "resp", "h2", "h3"} {
		code, _, err := command("bench", "--target", "https://"+addr, "--protocol", protocol, "--requests", "20", "--ca", a.file, "--cert", cert, "--key", key)
		if code == 0 || !strings.Contains(err, "does not accept the certificate of --cert") {
			t.Errorf("%s: exit code %d, %s", protocol, code, err)
		}
	}
}

func TestAccess_AProxyReachesANodeThatDemandsACertificate(t *testing.T) {
	a := newSigner(t)
	addr := runSecureMember(t, a)
	cert, key := a.issue("proxy")
	proxy, _ := runProxy(t, "--node", "https://"+addr, "--ca", a.file, "--cert", cert, "--key", key, "--anonymous", "timestamps,ids")
	within(t, "a timestamp and an ID", func() bool {
		one, body := fetch(t, "http://"+proxy+"/timestamp")
		other, _ := fetch(t, "http://"+proxy+"/api/snowflake")
		return one == 200 && len(body) == 16 && other == 200
	})
}

// guard is a node that wants credentials, and answers as it is told.
type guard struct {
	*httptest.Server
	leader atomic.Pointer[string] // to name; nil: it leads itself
	told   atomic.Pointer[string] // the user of the latest request, if the secret was right
}

// startGuard starts a node with TLS, or without.
func startGuard(t *testing.T, a *signer, name string) *guard {
	t.Helper()
	g := &guard{}
	g.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, secret, _ := r.BasicAuth()
		g.told.Store(&user)
		leader := g.leader.Load()
		switch {
		case user != name || secret != testSecret:
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write(httpapi.Body(isotone.CodeUnauthorized, "no such user, or another secret"))
		case leader != nil:
			fault(isotone.CodeNotLeader, "another node leads", *leader)(w)
		default:
			members(front.MemberRecord{NodeID: 1, Role: "voter", Addr: "a:1"})(w)
		}
	}))
	g.EnableHTTP2 = false
	if a == nil {
		g.Start()
	} else {
		g.TLS = a.server()
		g.TLS.ClientAuth = 0
		g.StartTLS()
	}
	t.Cleanup(g.Close)
	return g
}

func (g *guard) addr() string { return g.Listener.Addr().String() }

func (g *guard) heard() string {
	if user := g.told.Load(); user != nil {
		return *user
	}
	return "nothing"
}

// TestAccess_TheLeaderIsAskedByTheSchemeOfTheNodeThatNamesIt: within TLS a secret stays within TLS.
func TestAccess_TheLeaderIsAskedByTheSchemeOfTheNodeThatNamesIt(t *testing.T) {
	t.Parallel()
	a := newSigner(t)
	first, leader, plain := startGuard(t, a, "ops"), startGuard(t, a, "ops"), startGuard(t, nil, "ops")
	args := []string{"member", "list", "--endpoint", "https://" + first.addr(), "--ca", a.file, "--user", "ops", "--password-file", secretFile(t, testSecret), "--timeout", "3s"}
	addr := leader.addr()
	first.leader.Store(&addr)
	if code, out, err := command(args...); code != 0 || leader.heard() != "ops" {
		t.Errorf("exit code %d, %s%s", code, out, err)
	}
	addr = plain.addr()
	first.leader.Store(&addr)
	if code, out, err := command(args...); code != 1 || plain.heard() != "nothing" || strings.Contains(out+err, testSecret) {
		t.Errorf("exit code %d, the other one was told %s; %s%s", code, plain.heard(), out, err)
	}
}

// TestAccess_ASecretLeavesTheMachineOnlyWithinTLS: no server is at any of these names.
func TestAccess_ASecretLeavesTheMachineOnlyWithinTLS(t *testing.T) {
	plain := startGuard(t, nil, "ops")
	file := secretFile(t, testSecret)
	mine := []string{"--user", "ops", "--password-file", file}
	if code, out, err := command(append(mine[:0:0], append([]string{"member", "list", "--endpoint", plain.addr()}, mine...)...)...); code != 0 {
		t.Errorf("on this machine: exit code %d, %s%s", code, out, err)
	}
	elsewhere := "isotone.invalid:1"
	plain.leader.Store(&elsewhere)
	for _, args := range [][]string{
		{"member", "list", "--endpoint", elsewhere},
		{"drain", "--endpoint", elsewhere},
		{"status", elsewhere},
		{"doctor", "--endpoint", elsewhere},
		{"proxy", "--node", elsewhere},
		{"member", "list", "--endpoint", plain.addr()}, // which names the other one
	} {
		code, out, err := command(append(args, mine...)...)
		if code != exitUsage || !strings.Contains(err, "in plaintext") || !strings.Contains(err, "https://"+elsewhere) || strings.Contains(out+err, testSecret) {
			t.Errorf("%q: exit code %d, %s%s", args, code, out, err)
		}
	}
	code, out, err := command(append([]string{"bench", "--target", elsewhere, "--requests", "1"}, mine...)...)
	if code != exitUsage || !strings.Contains(err, "in plaintext") || strings.Contains(out+err, testSecret) {
		t.Errorf("bench: exit code %d, %s%s", code, out, err)
	}
	code, out, err = command(append([]string{"member", "list", "--timeout", "1s", "--endpoint", "http://" + elsewhere}, mine...)...)
	if code != exitUsage || !strings.Contains(err, "in plaintext") {
		t.Errorf("on request: exit code %d, %s%s", code, out, err)
	}
}

func TestAccess_UsageErrorsSayWhatIsWrong(t *testing.T) {
	a := newSigner(t)
	cert, key := a.issue("operator")
	open := secretFile(t, testSecret)
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args string
		want []string
	}{
		{"--cert " + cert, []string{"--cert and --key go together"}},
		{"--key " + key, []string{"--cert and --key go together"}},
		{"--cert " + cert + " --key /does/not/exist", []string{"--cert, --key", "/does/not/exist"}},
		{"--ca /does/not/exist --user ops", []string{"--ca", "/does/not/exist", "--password-file", "ISOTONE_PASSWORD"}},
		{"--ca " + key, []string{"no certificate"}},
		{"--ca " + a.file + " --endpoint http://a:1", []string{"http://a:1", "want https"}},
		{"--endpoint https://a:1,http://a:2", []string{"want all addresses with https"}},
		{"--password-file " + secretFile(t, testSecret), []string{"no name", "--user", "ISOTONE_USER"}},
		{"--user ops --password-file /does/not/exist", []string{"--password-file", "/does/not/exist"}},
		{"--user ops --password-file " + open, []string{"0644", "chmod 600"}},
		{"--user a:b --password-file " + secretFile(t, testSecret), []string{"a:b", "letters"}},
		{"--user ops --insecure --password-file " + secretFile(t, testSecret), []string{"--insecure", "--ca FILE"}},
		{"--user ops --password " + testSecret, []string{"There is no --password", "--password-file"}},
	} {
		code, out, err := command(append([]string{"member", "list"}, strings.Fields(tt.args)...)...)
		if code != exitUsage || strings.Contains(out+err, testSecret) {
			t.Errorf("%s: exit code %d, %s%s", tt.args, code, out, err)
		}
		for _, want := range tt.want {
			if !strings.Contains(err, want) {
				t.Errorf("%s: %q is missing in: %s", tt.args, want, err)
			}
		}
	}
}

func TestAccess_TheEnvironmentHasNameAndSecret(t *testing.T) {
	g := startGuard(t, nil, "ops")
	t.Setenv("ISOTONE_USER", "ops")
	t.Setenv("ISOTONE_PASSWORD", testSecret)
	if code, out, err := command("member", "list", "--endpoint", g.addr()); code != 0 {
		t.Errorf("exit code %d, %s%s", code, out, err)
	}
	t.Setenv("ISOTONE_PASSWORD", "blab")
	code, out, err := command("member", "list", "--endpoint", g.addr())
	if code != exitFailure || !strings.Contains(err, "unauthorized") || !strings.Contains(err, "--password-file") || strings.Contains(out+err, "blab") {
		t.Errorf("exit code %d, %s%s", code, out, err)
	}
	if code, out, err := command("member", "list", "--endpoint", g.addr(), "--password-file", secretFile(t, testSecret)); code != 0 {
		t.Errorf("the file comes first: exit code %d, %s%s", code, out, err)
	}
}

// TestAccess_NoRedirectIsFollowed: a Location could lead a secret anywhere.
func TestAccess_NoRedirectIsFollowed(t *testing.T) {
	elsewhere := serveScript(t, members(front.MemberRecord{NodeID: 1}))
	s := serveScript(t, func(w http.ResponseWriter) {
		w.Header().Set("Location", "http://"+elsewhere.addr()+"/members")
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	code, _, err := command("member", "list", "--endpoint", s.addr(), "--user", "ops", "--password-file", secretFile(t, testSecret), "--timeout", "1s")
	if code == 0 || len(elsewhere.requests()) != 0 {
		t.Errorf("exit code %d, %s, %q", code, err, elsewhere.requests())
	}
}

// TestAccess_EveryCommandThatNamesNodesHasTheFlags keeps a new command from forgetting them.
func TestAccess_EveryCommandThatNamesNodesHasTheFlags(t *testing.T) {
	flags := []string{"--ca", "--cert", "--key", "--server-name", "--user", "--password-file", "--insecure"}
	for _, name := range []string{
		"member list", "member add", "member promote", "member remove", "member replace", "member update", "leader show", "leader transfer", "leader resign",
		"floor raise", "worker list", "worker revoke", "upgrade show", "upgrade finalize", "backup", "drain", "doctor", "status", "bench", "proxy",
	} {
		_, out, _ := command(append(strings.Fields(name), "--help")...)
		fields := strings.FieldsFunc(out, func(r rune) bool { return strings.ContainsRune(" \n,=", r) })
		for _, flag := range flags {
			if !slices.Contains(fields, flag) {
				t.Errorf("isotone %s has no %s", name, flag)
			}
		}
	}
}

// TestForward_ReachesALeaderThatDemandsACertificateAndASecret: the fake leader stands for a node
// with REQUIRE_TLS.
func TestForward_ReachesALeaderThatDemandsACertificateAndASecret(t *testing.T) {
	a := newSigner(t)
	cert, key := a.issue("follower")
	s := config.Default()
	s.TLSCert, s.TLSKey, s.ForwardCA = cert, key, a.file
	s.ForwardCredentialFile = secretFile(t, "follower:"+testSecret)
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
	if want := "*3\r\n$4\r\nAUTH\r\n$8\r\nfollower\r\n$9\r\n" + testSecret + "\r\n*3\r\n$6\r\nCLIENT\r\n$7\r\nFORWARD\r\n$3\r\nOFF\r\n"; <-heard != want {
		t.Errorf("it was told something else than %q", want)
	}
	other, otherKey := newSigner(t).issue("follower")
	s.TLSCert, s.TLSKey = other, otherKey // of another authority
	addr, _ = serveOK(t, a, 1)
	if c, err := dialer(out)(t.Context(), "tcp", addr); err == nil || strings.Contains(err.Error(), testSecret) {
		t.Errorf("%v, %v", c, err)
	}
	for name, change := range map[string]func(*config.Settings){
		"FORWARD_CA": func(s *config.Settings) { s.ForwardCA = key }, "FORWARD_CREDENTIAL_FILE": func(s *config.Settings) { s.ForwardCredentialFile = a.file },
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
func serveOK(t *testing.T, a *signer, commands int) (addr string, heard <-chan string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	told, ended := make(chan string, 1), make(chan struct{})
	cfg := a.server()
	go func() {
		defer close(ended)
		c, err := tlsAccept(ln, cfg)
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

// runGuardedMember runs a node that serves nobody without TLS or a user's secret.
func runGuardedMember(t *testing.T, a *signer) (addr string) {
	t.Helper()
	hash := accesslist.HashSecret(testSecret)
	list := secretFile(t, fmt.Sprintf(`{"users": {"ops": {"roles": ["all"], "secrets": [%q]}, "web": {"roles": ["timestamps", "ids", "workers"], "secrets": [%q]}}}`, hash, hash))
	cert, key := a.issue("node")
	_, url, _ := runMember(t, func(s *config.Settings) {
		s.TLSCert, s.TLSKey, s.ACLFile, s.RequireTLS = cert, key, list, true
	})
	return strings.TrimPrefix(url, "http://")
}

// TestAccess_EveryCommandReachesANodeThatDemandsASecret, and says so if the secret is not right,
// or the user may not do it.
func TestAccess_EveryCommandReachesANodeThatDemandsASecret(t *testing.T) {
	t.Parallel()
	a := newSigner(t)
	addr := runGuardedMember(t, a)
	right, wrong := secretFile(t, testSecret), secretFile(t, "blab-blab")
	load := func(protocol string) []string {
		return []string{"bench", "--target", "https://" + addr, "--protocol", protocol, "--requests", "20", "--connections", "2", "--violations", filepath.Join(t.TempDir(), "v")}
	}
	for _, args := range [][]string{
		{"member", "list", "--endpoint", addr},
		{"leader", "show", "--endpoint", addr},
		{"upgrade", "show", "--endpoint", addr},
		{"backup", "--force", "--endpoint", addr, filepath.Join(t.TempDir(), "backup")},
		{"status", addr},
		load("http1"), load("resp"), load("h2"),
	} {
		within(t, strings.Join(args, " "), func() bool {
			code, out, err := command(append(args, "--ca", a.file, "--user", "ops", "--password-file", right)...)
			if code != 0 {
				t.Logf("%q: exit code %d, %s%s", args, code, out, err)
			}
			return code == 0
		})
		for _, more := range [][]string{{"--user", "ops", "--password-file", wrong}, nil} {
			code, out, err := command(append(append(args, "--ca", a.file), more...)...)
			if code == 0 || !strings.Contains(strings.ToLower(out+err), "unauthorized") || strings.Contains(out+err, "blab") {
				t.Errorf("%q %q: exit code %d, %s%s", args, more, code, out, err)
			}
		}
	}
	code, out, err := command("member", "list", "--endpoint", addr, "--ca", a.file, "--user", "web", "--password-file", right)
	if code != exitFailure || !strings.Contains(err, "forbidden") {
		t.Errorf("exit code %d, %s%s", code, out, err)
	}
}

func TestAccess_AProxyReachesANodeThatDemandsASecret(t *testing.T) {
	a := newSigner(t)
	addr := runGuardedMember(t, a)
	proxy, _ := runProxy(t, "--node", "https://"+addr, "--ca", a.file, "--user", "web", "--password-file", secretFile(t, testSecret), "--anonymous", "all")
	within(t, "a timestamp and an ID", func() bool {
		one, body := fetch(t, "http://"+proxy+"/timestamp")
		other, _ := fetch(t, "http://"+proxy+"/api/snowflake")
		return one == 200 && len(body) == 16 && other == 200
	})
	refused, admin := runProxy(t, "--node", "https://"+addr, "--ca", a.file, "--user", "web", "--password-file", secretFile(t, "blab-blab"), "--anonymous", "all")
	within(t, "the reason", func() bool {
		status, body := fetch(t, "http://"+admin+"/ready")
		return status == 503 && strings.Contains(body, "unauthorized")
	})
	if status, body := fetch(t, "http://"+refused+"/timestamp"); status != 503 || strings.Contains(body, "blab") {
		t.Errorf("%d, %s", status, body)
	}
}

// TestForward_ReachesALeaderThatDemandsTLSAndASecret uses the node itself as the leader.
func TestForward_ReachesALeaderThatDemandsTLSAndASecret(t *testing.T) {
	a := newSigner(t)
	addr := runGuardedMember(t, a)
	s := config.Default()
	s.ForwardCA, s.DataDir = a.file, t.TempDir()
	s.ForwardCredentialFile = secretFile(t, "web:"+testSecret)
	out, err := outward(&s)
	if err != nil {
		t.Fatal(err)
	}
	f, err := startForwarding(addr, out, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	within(t, "a timestamp", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := f.client.Timestamps(ctx, 3)
		return err == nil
	})
}

// TestForward_KnowsTheLeaderByItsCertificate: one of another authority, or for another name, gets no
// request and no secret.
func TestForward_KnowsTheLeaderByItsCertificate(t *testing.T) {
	a, other := newSigner(t), newSigner(t)
	for _, c := range []struct {
		by    *signer // of the leader's certificate
		host  string
		known bool
	}{{a, "127.0.0.1", true}, {other, "127.0.0.1", false}, {a, "127.0.0.2", false}} {
		leader, err := net.Listen("tcp", c.host+":0")
		if err != nil {
			t.Skip(err) // not every system has 127.0.0.2
		}
		server := c.by.server()
		server.ClientAuth = tls.NoClientCert
		told := make(chan int, 1)
		go func() {
			n := 0
			if conn, err := tlsAccept(leader, server); err == nil {
				_ = conn.SetDeadline(time.Now().Add(testWait))
				n, _ = conn.Read(make([]byte, 100))
				_ = conn.Close()
			}
			told <- n
		}()
		s := config.Default()
		s.ForwardCA, s.DataDir, s.ForwardCredentialFile = a.file, t.TempDir(), secretFile(t, "web:"+testSecret)
		out, err := outward(&s)
		if err != nil {
			t.Fatal(err)
		}
		addr := leader.Addr().String()
		conn := dial(t, addr, nil)
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
