package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/isotone/isotone"
	accesslist "github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/check/testnode"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/httpapi"
	"github.com/isotone/isotone/internal/host/config"
)

// runSecureMember runs a node that demands TLS clients to have a certificate of a.
func runSecureMember(t *testing.T, a *rig.Signer) (addr string) {
	t.Helper()
	cert, key := a.Issue("node")
	_, url, admin := testnode.Run(t, func(s *config.Settings) { s.TLSCert, s.TLSKey, s.TLSClientCA = cert, key, a.File })
	await.Until(t, "the node is ready", func() bool {
		status, _ := rig.Fetch(t, admin+"/readyz")
		return status == 200
	})
	return strings.TrimPrefix(url, "http://")
}

// TestAccess_EveryCommandReachesANodeThatDemandsACertificate, and none of them without one.
func TestAccess_EveryCommandReachesANodeThatDemandsACertificate(t *testing.T) {
	t.Parallel()
	a := rig.NewSigner(t)
	addr := runSecureMember(t, a)
	cert, key := a.Issue("operator")
	mine := []string{"--ca", a.File, "--cert", cert, "--key", key}
	load := func(target, protocol string) []string {
		return []string{"bench", "--target", target, "--protocol", protocol, "--requests", "20", "--connections", "2", "--timeout", "1m", "--violations", filepath.Join(t.TempDir(), "v")}
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
		await.Until(t, strings.Join(args, " "), func() bool { // /state is a moment behind the node
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
		code, out, err := command(append(args, "--ca", a.File)...)
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
	a, other := rig.NewSigner(t), rig.NewSigner(t)
	addr := runSecureMember(t, a)
	cert, key := other.Issue("stranger")
	for _, protocol := range []string{"http1", "resp", "h2", "h3"} {
		code, _, err := command("bench", "--target", "https://"+addr, "--protocol", protocol, "--requests", "20", "--ca", a.File, "--cert", cert, "--key", key)
		if code == 0 || !strings.Contains(err, "does not accept the certificate of --cert") {
			t.Errorf("%s: exit code %d, %s", protocol, code, err)
		}
	}
}

func TestAccess_AProxyReachesANodeThatDemandsACertificate(t *testing.T) {
	a := rig.NewSigner(t)
	addr := runSecureMember(t, a)
	cert, key := a.Issue("proxy")
	proxy, _ := runProxy(t, "--node", "https://"+addr, "--ca", a.File, "--cert", cert, "--key", key, "--anonymous", "timestamps,ids")
	await.Until(t, "a timestamp and an ID", func() bool {
		one, body := rig.Fetch(t, "http://"+proxy+"/timestamp")
		other, _ := rig.Fetch(t, "http://"+proxy+"/api/snowflake")
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
func startGuard(t *testing.T, a *rig.Signer, name string) *guard {
	t.Helper()
	g := &guard{}
	g.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, secret, _ := r.BasicAuth()
		g.told.Store(&user)
		leader := g.leader.Load()
		switch {
		case user != name || secret != rig.Secret:
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
		g.TLS = a.Server()
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
	a := rig.NewSigner(t)
	first, leader, plain := startGuard(t, a, "ops"), startGuard(t, a, "ops"), startGuard(t, nil, "ops")
	args := []string{"member", "list", "--endpoint", "https://" + first.addr(), "--ca", a.File, "--user", "ops", "--password-file", rig.SecretFile(t, rig.Secret)}
	addr := leader.addr()
	first.leader.Store(&addr)
	if code, out, err := command(args...); code != 0 || leader.heard() != "ops" {
		t.Errorf("exit code %d, %s%s", code, out, err)
	}
	addr = plain.addr()
	first.leader.Store(&addr)
	if code, out, err := command(append(args, "--timeout", "3s")...); code != 1 || plain.heard() != "nothing" || strings.Contains(out+err, rig.Secret) {
		t.Errorf("exit code %d, the other one was told %s; %s%s", code, plain.heard(), out, err)
	}
}

// TestAccess_ASecretLeavesTheMachineOnlyWithinTLS: no server is at any of these names.
func TestAccess_ASecretLeavesTheMachineOnlyWithinTLS(t *testing.T) {
	plain := startGuard(t, nil, "ops")
	file := rig.SecretFile(t, rig.Secret)
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
		if code != exitUsage || !strings.Contains(err, "in plaintext") || !strings.Contains(err, "https://"+elsewhere) || strings.Contains(out+err, rig.Secret) {
			t.Errorf("%q: exit code %d, %s%s", args, code, out, err)
		}
	}
	code, out, err := command(append([]string{"bench", "--target", elsewhere, "--requests", "1"}, mine...)...)
	if code != exitUsage || !strings.Contains(err, "in plaintext") || strings.Contains(out+err, rig.Secret) {
		t.Errorf("bench: exit code %d, %s%s", code, out, err)
	}
	code, out, err = command(append([]string{"member", "list", "--timeout", "30s", "--endpoint", "http://" + elsewhere}, mine...)...)
	if code != exitUsage || !strings.Contains(err, "in plaintext") {
		t.Errorf("on request: exit code %d, %s%s", code, out, err)
	}
}

func TestAccess_UsageErrorsSayWhatIsWrong(t *testing.T) {
	a := rig.NewSigner(t)
	cert, key := a.Issue("operator")
	open := rig.SecretFile(t, rig.Secret)
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
		{"--ca " + a.File + " --endpoint http://a:1", []string{"http://a:1", "want https"}},
		{"--endpoint https://a:1,http://a:2", []string{"want all addresses with https"}},
		{"--password-file " + rig.SecretFile(t, rig.Secret), []string{"no name", "--user", "ISOTONE_USER"}},
		{"--user ops --password-file /does/not/exist", []string{"--password-file", "/does/not/exist"}},
		{"--user ops --password-file " + open, []string{"0644", "chmod 600"}},
		{"--user a:b --password-file " + rig.SecretFile(t, rig.Secret), []string{"a:b", "letters"}},
		{"--user ops --insecure --password-file " + rig.SecretFile(t, rig.Secret), []string{"--insecure", "--ca FILE"}},
		{"--user ops --password " + rig.Secret, []string{"There is no --password", "--password-file"}},
	} {
		code, out, err := command(append([]string{"member", "list"}, strings.Fields(tt.args)...)...)
		if code != exitUsage || strings.Contains(out+err, rig.Secret) {
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
	t.Setenv("ISOTONE_PASSWORD", rig.Secret)
	if code, out, err := command("member", "list", "--endpoint", g.addr()); code != 0 {
		t.Errorf("exit code %d, %s%s", code, out, err)
	}
	t.Setenv("ISOTONE_PASSWORD", "blab")
	code, out, err := command("member", "list", "--endpoint", g.addr())
	if code != exitFailure || !strings.Contains(err, "unauthorized") || !strings.Contains(err, "--password-file") || strings.Contains(out+err, "blab") {
		t.Errorf("exit code %d, %s%s", code, out, err)
	}
	if code, out, err := command("member", "list", "--endpoint", g.addr(), "--password-file", rig.SecretFile(t, rig.Secret)); code != 0 {
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
	code, _, err := command("member", "list", "--endpoint", s.addr(), "--user", "ops", "--password-file", rig.SecretFile(t, rig.Secret), "--timeout", "1s")
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

// runGuardedMember runs a node that serves nobody without TLS or a user's secret.
func runGuardedMember(t *testing.T, a *rig.Signer) (addr string) {
	t.Helper()
	hash := accesslist.HashSecret(rig.Secret)
	list := rig.SecretFile(t, fmt.Sprintf(`{"users": {"ops": {"roles": ["all"], "secrets": [%q]}, "web": {"roles": ["timestamps", "ids", "workers"], "secrets": [%q]}}}`, hash, hash))
	cert, key := a.Issue("node")
	_, url, _ := testnode.Run(t, func(s *config.Settings) {
		s.TLSCert, s.TLSKey, s.ACLFile, s.RequireTLS = cert, key, list, true
	})
	return strings.TrimPrefix(url, "http://")
}

// TestAccess_EveryCommandReachesANodeThatDemandsASecret, and says so if the secret is not right,
// or the user may not do it.
func TestAccess_EveryCommandReachesANodeThatDemandsASecret(t *testing.T) {
	t.Parallel()
	a := rig.NewSigner(t)
	addr := runGuardedMember(t, a)
	right, wrong := rig.SecretFile(t, rig.Secret), rig.SecretFile(t, "blab-blab")
	load := func(protocol string) []string {
		return []string{"bench", "--target", "https://" + addr, "--protocol", protocol, "--requests", "20", "--connections", "2", "--timeout", "1m", "--violations", filepath.Join(t.TempDir(), "v")}
	}
	for _, args := range [][]string{
		{"member", "list", "--endpoint", addr},
		{"leader", "show", "--endpoint", addr},
		{"upgrade", "show", "--endpoint", addr},
		{"backup", "--force", "--endpoint", addr, filepath.Join(t.TempDir(), "backup")},
		{"status", addr},
		load("http1"), load("resp"), load("h2"),
	} {
		await.Until(t, strings.Join(args, " "), func() bool {
			code, out, err := command(append(args, "--ca", a.File, "--user", "ops", "--password-file", right)...)
			if code != 0 {
				t.Logf("%q: exit code %d, %s%s", args, code, out, err)
			}
			return code == 0
		})
		for _, more := range [][]string{{"--user", "ops", "--password-file", wrong}, nil} {
			code, out, err := command(append(append(args, "--ca", a.File), more...)...)
			if code == 0 || !strings.Contains(strings.ToLower(out+err), "unauthorized") || strings.Contains(out+err, "blab") {
				t.Errorf("%q %q: exit code %d, %s%s", args, more, code, out, err)
			}
		}
	}
	code, out, err := command("member", "list", "--endpoint", addr, "--ca", a.File, "--user", "web", "--password-file", right)
	if code != exitFailure || !strings.Contains(err, "forbidden") {
		t.Errorf("exit code %d, %s%s", code, out, err)
	}
}

func TestAccess_AProxyReachesANodeThatDemandsASecret(t *testing.T) {
	a := rig.NewSigner(t)
	addr := runGuardedMember(t, a)
	proxy, _ := runProxy(t, "--node", "https://"+addr, "--ca", a.File, "--user", "web", "--password-file", rig.SecretFile(t, rig.Secret), "--anonymous", "all")
	await.Until(t, "a timestamp and an ID", func() bool {
		one, body := rig.Fetch(t, "http://"+proxy+"/timestamp")
		other, _ := rig.Fetch(t, "http://"+proxy+"/api/snowflake")
		return one == 200 && len(body) == 16 && other == 200
	})
	refused, admin := runProxy(t, "--node", "https://"+addr, "--ca", a.File, "--user", "web", "--password-file", rig.SecretFile(t, "blab-blab"), "--anonymous", "all")
	await.Until(t, "the reason", func() bool {
		status, body := rig.Fetch(t, "http://"+admin+"/ready")
		return status == 503 && strings.Contains(body, "unauthorized")
	})
	if status, body := rig.Fetch(t, "http://"+refused+"/timestamp"); status != 503 || strings.Contains(body, "blab") {
		t.Errorf("%d, %s", status, body)
	}
}
