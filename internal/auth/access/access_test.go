package access_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	here      = netip.MustParseAddr("127.0.0.1")
	elsewhere = netip.MustParseAddr("192.0.2.7")
)

// secret and its hash, made once: hashing is slow.
const secret = "correct horse battery staple"

var hashed = access.HashSecret(secret)

// users writes a list of users to a file.
func users(t testing.TB, name, text string) string {
	t.Helper()
	if name == "" {
		name = filepath.Join(t.TempDir(), "acl.json")
	}
	if err := os.WriteFile(name, []byte(strings.ReplaceAll(text, "HASH", hashed)), 0o600); err != nil {
		t.Fatal(err)
	}
	// Nothing of the file but what it says tells versions apart.
	if err := os.Chtimes(name, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	return name
}

// chains are those of a certificate that nobody has signed.
func chains(cert *x509.Certificate) [][]*x509.Certificate { return [][]*x509.Certificate{{cert}} }

func open(t testing.TB, cfg access.Config) *access.Control {
	t.Helper()
	cfg.Setting = "ACL_FILE"
	c, err := access.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func session(t testing.TB, c *access.Control, addr netip.Addr) *access.Session {
	t.Helper()
	s, err := c.Open(addr, nil, access.ClientPool)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.BeginHandshake()
	s.HandshakeDone()
	return &s
}

func prove(t testing.TB, s *access.Session, name, secret string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return s.Prove(ctx, access.Credentials{Name: name, Secret: secret})
}

// TestAnonymous_Rights without credentials, by address and settings.
func TestAnonymous_Rights(t *testing.T) {
	file := users(t, "", `{}`)
	only := access.Timestamps | access.Metrics
	for _, tc := range []struct {
		name            string
		cfg             access.Config
		here, elsewhere access.Roles
	}{
		{"nothing is set", access.Config{}, access.Local, access.Products},
		{"all listeners are on loopback", access.Config{Alone: true}, access.Alone, access.Products},
		{"ANONYMOUS, all listeners are on loopback", access.Config{Anonymous: &only, Alone: true}, only, only},
		{"a list, all listeners are on loopback", access.Config{File: file, Alone: true}, 0, 0},
		{"ANONYMOUS", access.Config{Anonymous: &only}, only, only},
		{"a list", access.Config{File: file}, 0, 0},
		{"both", access.Config{File: file, Anonymous: &only}, only, only},
	} {
		c := open(t, tc.cfg)
		for addr, want := range map[netip.Addr]access.Roles{
			here: tc.here, netip.IPv6Loopback(): tc.here, netip.MustParseAddr("::ffff:127.0.0.1"): tc.here,
			elsewhere: tc.elsewhere, {}: tc.elsewhere,
		} {
			s := session(t, c, addr)
			for role := access.Timestamps; role <= access.Frontier; role <<= 1 {
				err := s.Require(role)
				if want&role != 0 && err != nil || want&role == 0 && !errors.Is(err, isotone.ErrUnauthorized) {
					t.Errorf("%s: %v needs %v: %v", tc.name, addr, role, err)
				}
			}
			if s.MayAnything() != (want != 0) {
				t.Errorf("%s: %v: MayAnything is %v", tc.name, addr, s.MayAnything())
			}
		}
	}
	forwarded := open(t, access.Config{Alone: true}).Request(here, nil, false)
	forwarded.Elsewhere()
	if forwarded.May(access.Admin) || forwarded.May(access.Metrics) || !forwarded.May(access.Products) {
		t.Error("a client behind a proxy on this machine has the rights of this machine")
	}
	if (access.Local|access.Products)&(access.Admin|access.Floors) != 0 {
		t.Error("an address alone gives an operator's rights")
	}
}

// TestOperator_HasAllRoles, whatever the list says, and keeps them when it changes.
func TestOperator_HasAllRoles(t *testing.T) {
	file := users(t, "", `{}`)
	c := open(t, access.Config{File: file})
	s := c.Operator("the socket")
	if !s.May(access.All) || s.Name() != "the socket" {
		t.Errorf("%q lacks roles", s.Name())
	}
	users(t, file, `{"users": {"alice": {"roles": ["ids"], "secrets": ["HASH"]}}}`)
	c.Check()
	if !s.May(access.All) || s.Take(1<<40, 1<<40) != nil {
		t.Error("a new list takes an operator's roles")
	}
}

// TestSession_TakesNoSecretInPlaintext from another machine: neither at first nor when it is known.
func TestSession_TakesNoSecretInPlaintext(t *testing.T) {
	var log bytes.Buffer
	c := open(t, access.Config{File: users(t, "", `{"users": {"alice": {"roles": ["ids"], "secrets": ["HASH"]}}}`), Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err := prove(t, session(t, c, elsewhere), "alice", secret); err != nil {
		t.Fatal(err)
	}
	s := c.Request(elsewhere, nil, false)
	if err := prove(t, s, "alice", secret); !errors.Is(err, isotone.ErrUnauthorized) || !strings.Contains(err.Error(), "TLS") || s.May(access.IDs) {
		t.Errorf("in plaintext: %v", err)
	}
	if strings.Contains(log.String(), secret) || !strings.Contains(log.String(), "reason=plaintext") {
		t.Errorf("the log: %s", log.String())
	}
	for _, s := range []*access.Session{c.Request(elsewhere, nil, true), c.Request(here, nil, false)} {
		if err := prove(t, s, "alice", secret); err != nil {
			t.Errorf("%v: %v", s.Addr(), err)
		}
	}
}

// TestSession_SpeaksForAUser once the secret was right, and no more once the user is gone.
func TestSession_SpeaksForAUser(t *testing.T) {
	file := users(t, "", `{"users": {"alice": {"roles": ["timestamps", "admin"], "secrets": ["HASH"]}, "bare": {"roles": ["all"]}}}`)
	var log bytes.Buffer
	c := open(t, access.Config{File: file, Log: slog.New(slog.NewTextHandler(&log, nil))})
	s := session(t, c, elsewhere)
	for _, wrong := range [][2]string{{"alice", secret + "x"}, {"alice", ""}, {"bob", secret}, {"bare", secret}, {"bare", ""}, {"", secret}, {"al~ice", secret}, {"alice", strings.Repeat("x", 300)}} {
		if err := prove(t, s, wrong[0], wrong[1]); !errors.Is(err, isotone.ErrUnauthorized) || s.Name() != "" {
			t.Errorf("%q: %v, speaks for %q", wrong, err, s.Name())
		}
	}
	for range 2 { // the second time it is known
		if err := prove(t, s, "alice", secret); err != nil {
			t.Fatal(err)
		}
		if err := s.Require(access.Timestamps | access.Admin); err != nil {
			t.Error(err)
		}
		if err := s.Require(access.IDs); !errors.Is(err, isotone.ErrForbidden) || !strings.Contains(err.Error(), "alice lacks the role ids") {
			t.Errorf("%v", err)
		}
		s.Reset()
		if s.May(access.Timestamps) {
			t.Error("after Reset it still speaks for alice")
		}
	}
	if err := prove(t, s, "alice", secret); err != nil {
		t.Fatal(err)
	}
	was := s.Version()
	users(t, file, `{"users": {"alice": {"roles": ["ids"], "secrets": ["HASH"]}}}`)
	c.Check()
	if !s.May(access.IDs) || s.May(access.Admin) || s.Version() == was {
		t.Error("the session did not follow the list")
	}
	users(t, file, `{"users": {"alice": {"roles": ["i`)
	c.Check()
	c.Check()
	if !s.May(access.IDs) {
		t.Error("a broken list changed something")
	}
	was = s.Version()
	users(t, file, `{"users": {"alice": {"roles": ["ids"], "secrets": ["HASH"]}}}`)
	c.Check()
	if _, _, refused := c.InForce(); refused || s.Version() != was || strings.Contains(log.String(), "changes=[]") {
		t.Error("the list in force is there again, and is taken for a new one")
	}
	users(t, file, `{"users": {"carol": {"roles": []}}}`)
	c.Check()
	if s.May(access.IDs) || s.Name() != "" {
		t.Error("the session speaks for a user who is gone")
	}
	for _, want := range []string{"audit: denied", "lacks", "removed alice", "added carol", "roles of alice: ids", "the one before stays in force"} {
		if want != "lacks" && strings.Count(log.String(), want) == 0 {
			t.Errorf("the log lacks %q", want)
		}
	}
	if strings.Count(log.String(), "stays in force") != 1 || strings.Contains(log.String(), secret) || strings.Contains(log.String(), "argon2id") {
		t.Errorf("%s", log.String())
	}
}

// TestSession_ItsSecretIsTakenFromTheList while the user stays.
func TestSession_ItsSecretIsTakenFromTheList(t *testing.T) {
	other := access.HashSecret("another")
	list := func(secrets string) string {
		return `{"users": {"alice": {"roles": ["ids"], "secrets": [` + secrets + `]}}}`
	}
	file := users(t, "", list(`"HASH"`))
	c := open(t, access.Config{File: file})
	s := session(t, c, elsewhere)
	if err := prove(t, s, "alice", secret); err != nil {
		t.Fatal(err)
	}
	users(t, file, list(`"`+other+`", "HASH"`))
	if c.Check(); !s.May(access.IDs) {
		t.Error("a second secret ends what the first one began")
	}
	users(t, file, list(`"`+other+`"`))
	if c.Check(); s.May(access.IDs) || s.Name() != "" {
		t.Error("the session goes on without its secret")
	}
	if err := prove(t, s, "alice", "another"); err != nil || !s.May(access.IDs) {
		t.Errorf("with the other secret: %v", err)
	}
	users(t, file, list(`"HASH"`)) // as long as before
	if c.Check(); s.May(access.IDs) {
		t.Error("a list of the same size and time is not noticed")
	}
}

// TestWatch_TellsOfEachLoss once, and not after stop.
func TestWatch_TellsOfEachLoss(t *testing.T) {
	const both = `{"users": {"alice": {"roles": ["live", "ids"], "secrets": ["HASH"]}, "bob": {"roles": ["live"], "secrets": ["HASH"]}}}`
	file := users(t, "", both)
	var isRevoked atomic.Bool
	c := open(t, access.Config{File: file, Ended: func([][]*x509.Certificate) bool { return isRevoked.Load() }})
	alice, bob := session(t, c, elsewhere), session(t, c, elsewhere)
	for s, name := range map[*access.Session]string{alice: "alice", bob: "bob"} {
		if err := prove(t, s, name, secret); err != nil {
			t.Fatal(err)
		}
	}
	certified := c.Request(elsewhere, chains(&x509.Certificate{Subject: pkix.Name{CommonName: "bob"}, NotAfter: time.Now().Add(time.Hour)}), false)
	lost := map[string]int{}
	watch := func(name string, s *access.Session, roles access.Roles) func() {
		return s.Watch(roles, func() { lost[name]++ })
	}
	defer watch("alice", alice, access.Live)()
	defer watch("alice's ids", alice, access.IDs)()
	defer watch("bob", bob, access.Live)()
	defer watch("bob's certificate", certified, access.Live)()
	watch("stopped", alice, access.IDs)()
	check := func(want string) {
		t.Helper()
		c.Check()
		if got := fmt.Sprint(lost); got != want {
			t.Errorf("lost %s, want %s", got, want)
		}
	}
	check("map[]")
	users(t, file, strings.Replace(both, `"live", "ids"`, `"live"`, 1))
	check("map[alice's ids:1]")
	isRevoked.Store(true)
	c.Renew()
	check("map[alice's ids:1 bob's certificate:1]")
	users(t, file, `{"users": {"alice": {"roles": ["live", "ids"], "secrets": ["HASH"]}}}`)
	check("map[alice's ids:1 bob:1 bob's certificate:1]")
	users(t, file, `{}`)
	check("map[alice:1 alice's ids:1 bob:1 bob's certificate:1]")
	watch("late", alice, access.Live)
	check("map[alice:1 alice's ids:1 bob:1 bob's certificate:1 late:1]")
}

// TestWatch_TellsOfANameThatIsLost, while the roles stay.
func TestWatch_TellsOfANameThatIsLost(t *testing.T) {
	list := func(names string) string {
		return `{"users": {"alice": {"roles": ["locks"], "names": [` + names + `], "secrets": ["HASH"]}}}`
	}
	file := users(t, "", list(`"shop/", "jobs"`))
	c := open(t, access.Config{File: file})
	alice := session(t, c, elsewhere)
	if err := prove(t, alice, "alice", secret); err != nil {
		t.Fatal(err)
	}
	lost := 0
	defer alice.Watch(access.Locks, func() { lost++ }, "shop/a")()
	for _, step := range []struct {
		names string
		want  int
	}{{`"shop/"`, 0}, {`"shop/b"`, 1}, {`"jobs"`, 1}} {
		users(t, file, list(step.names))
		if c.Check(); lost != step.want {
			t.Errorf("names %s: lost %d times, want %d", step.names, lost, step.want)
		}
	}
	alice.Watch(access.Locks, func() { lost++ }, "shop/a")
	if lost != 2 {
		t.Error("a name that is lost already is not told of")
	}
}

// TestCertificate_HasNoRightsAfterItsEnd on a connection that is older.
func TestCertificate_HasNoRightsAfterItsEnd(t *testing.T) {
	for _, file := range []string{"", users(t, "", `{"users": {"alice": {"roles": ["ids"], "secrets": ["HASH"]}}}`)} {
		c := open(t, access.Config{File: file})
		for end, want := range map[time.Duration]bool{time.Hour: true, -time.Second: false} {
			s := c.Request(elsewhere, chains(&x509.Certificate{Subject: pkix.Name{CommonName: "alice"}, NotAfter: time.Now().Add(end)}), false)
			if s.May(access.IDs) != want {
				t.Errorf("with list %q, a certificate that ends in %v: %v", file, end, !want)
			}
		}
	}
}

// TestVerify_GuessesAreLimited for each address; others and known credentials go on.
func TestVerify_GuessesAreLimited(t *testing.T) {
	t.Parallel()
	now := new(atomic.Int64)
	c := open(t, access.Config{File: users(t, "", aliceIsQuick), Now: func() time.Duration { return time.Duration(now.Load()) }})
	bad, good := session(t, c, elsewhere), session(t, c, here)
	for i := range 20 {
		if err := prove(t, bad, "alice", fmt.Sprint("guess", i)); !errors.Is(err, isotone.ErrUnauthorized) {
			t.Fatal(err)
		}
	}
	if err := prove(t, bad, "alice", secret); err == nil || !strings.Contains(err.Error(), "too many wrong") {
		t.Errorf("%v", err)
	}
	if err := prove(t, good, "alice", secret); err != nil {
		t.Error(err)
	}
	if err := prove(t, bad, "alice", secret); err != nil {
		t.Errorf("known credentials: %v", err)
	}
	now.Add(int64(2 * time.Hour)) // forgotten, and so are the guesses
	if err := prove(t, bad, "alice", "guess"); err == nil || strings.Contains(err.Error(), "too many") {
		t.Errorf("%v", err)
	}
}

// TestVerify_ARepeatedWrongSecretIsNoGuess: it keeps nobody else of its address out, and is tried
// anew with a new list.
func TestVerify_ARepeatedWrongSecretIsNoGuess(t *testing.T) {
	file := users(t, "", `{"users": {"alice": {"roles": ["all"], "secrets": ["HASH"]}}}`)
	c := open(t, access.Config{File: file})
	s := session(t, c, elsewhere)
	for range 50 {
		if err := prove(t, s, "bob", secret); !errors.Is(err, isotone.ErrUnauthorized) || strings.Contains(err.Error(), "too many") {
			t.Fatal(err)
		}
	}
	if err := prove(t, s, "alice", secret); err != nil {
		t.Errorf("the right credentials: %v", err)
	}
	users(t, file, `{"users": {"bob": {"roles": ["all"], "secrets": ["HASH"]}}}`)
	c.Check()
	if err := prove(t, s, "bob", secret); err != nil {
		t.Errorf("after bob was added: %v", err)
	}
	if err := prove(t, s, "alice", secret); err == nil {
		t.Error("alice is gone, and her credentials still known")
	}
}

func TestOpen_NamesEverythingThatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		`{"users": {"a b": {"roles": ["admin"]}, "x": {"roles": ["root"]}, "y": {"roles": [], "secrets": ["plain"]}}}`: `user "a b"|"root" is no role|user "y": secret 1: want a hash`,
		`{"users": {"x": {"roles": ["all"], "limits": {"workers": -1}}}}`:                                              "not negative",
		`{"users": {"x": {"roles": ["all"], "limits": {"requests": 1000000001}}}}`:                                     "at most",
		`{"users": {"x": {"roles": ["all"], "secrets": ["HASH","HASH","HASH","HASH","HASH"]}}}`:                        "5 secrets",
		`{"users": {"x": {"roles": ["all"]}, "y": {}, "x": {"roles": []}}}`:                                            `user "x" is listed twice`,
		`{"users": {"xy": {"roles": ["all"]}, "\u0078y": {"roles": []}}}`:                                              `user "xy" is listed twice`,
		`{"users": {"x": {"roles": ["all"], "Roles": []}}}`:                                                            `the key "Roles" comes twice`,
		`{"users": {}, "users": {}}`: `"users" comes twice`, `{"addressLimits": {"workers": 1, "workers": 2}}`: `"workers" comes twice`, `null`: "want a JSON object",
		`{"user": {}}`: "unknown field", `{} {}`: "something follows", `[]`: "want", `{"users": {"x": {"roles": "topsecret"}}}`: "want", ``: "not a whole",
		`{"users": {"x": {"roles": [], "secrets": ["$argon2id$v=19$m=999999999,t=2,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA"]}}}`: "at most m=",
		`{"users": {"x": {"roles": [], "secrets": ["$argon2id$v=19$m=64,t=0,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA"]}}}`:        "at most m=",
		`{"users": {"x": {"roles": [], "secrets": ["$argon2id$v=19$m= 64,t=1,p=1 . x$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA"]}}}`:   "want a hash",
		`{"users": {"x": {"roles": [], "secrets": ["$argon2id$v=19$m=64,t=1,p=1$c2Fsd\nHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA"]}}}`:      "want a hash",
		`{"users": {"x": {"roles": [], "secrets": ["$argon2id$v=19$m=064,t=1,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA"]}}}`:       "want a hash",
		`{"users": {"x": {"roles": [], "secrets": ["$argon2id$v=19$m=64,t=1,p=1,x$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA"]}}}`:      "want a hash",
	} {
		_, err := access.Open(access.Config{File: users(t, "", text), Setting: "ACL_FILE"})
		for _, part := range strings.Split(want, "|") {
			if err == nil || !strings.HasPrefix(err.Error(), "ACL_FILE: ") || !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "topsecret") {
				t.Errorf("%s: %v, want %q", text, err, part)
			}
		}
	}
	if _, err := access.Open(access.Config{File: "/nowhere/acl", Setting: "ACL_FILE"}); err == nil {
		t.Error("a missing file was accepted")
	}
}

func TestParseAuthorization(t *testing.T) {
	basic := func(s string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(s)) }
	for value, want := range map[string]access.Credentials{
		"Bearer alice~s": {Name: "alice", Secret: "s"}, "bearer  a.b~x~y": {Name: "a.b", Secret: "x~y"}, basic("alice:s:t"): {Name: "alice", Secret: "s:t"},
		"Bearer alice": {}, "Bearer ~x": {}, "Bearer alice~": {}, "Digest alice~s": {}, "": {}, "Basic !": {}, basic("alice"): {}, "Bearer a b~c": {},
		"Bearer alice~" + strings.Repeat("x", access.SecretMax+1): {},
	} {
		got, ok := access.ParseAuthorization(value)
		if ok != (want.Name != "") || ok && got != want {
			t.Errorf("%.40q: %+v %v", value, got, ok)
		}
	}
}

func TestCertificate_NamesAUser(t *testing.T) {
	uri := func(text string) []*url.URL {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return []*url.URL{u}
	}
	cert := func(cn string, uris []*url.URL) *x509.Certificate {
		return &x509.Certificate{Subject: pkix.Name{CommonName: cn}, URIs: uris, NotAfter: time.Now().Add(time.Hour)}
	}
	for want, certs := range map[string][]*x509.Certificate{
		"alice": {cert("alice", nil), cert("other", uri("spiffe://x.example/isotone/client/alice")), cert("alice", uri("https://x/isotone/client/bob"))},
		"": {nil, cert("alice", uri("spiffe://x/isotone/node/1")), cert("", nil), cert("a b", nil), cert("", uri("spiffe://x/isotone/client/a/b")),
			cert("", uri("spiffe://x/isotone/client/%61lice")), cert("", uri("spiffe://u@x/isotone/client/alice")), cert("", uri("spiffe://x/isotone/client/alice?q"))},
	} {
		for _, c := range certs {
			if got := access.CertificateName(c); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
	}
	listed := open(t, access.Config{File: users(t, "", `{"users": {"alice": {"roles": ["ids"]}}}`)})
	if s := listed.Request(elsewhere, chains(cert("alice", nil)), false); !s.May(access.IDs) || s.May(access.Admin) || s.Name() != "alice" {
		t.Error("alice has not her rights")
	}
	if s := listed.Request(elsewhere, chains(cert("bob", nil)), false); s.MayAnything() {
		t.Error("a certificate without a user has rights")
	}
	if s := open(t, access.Config{}).Request(elsewhere, chains(cert("bob", nil)), false); !s.May(access.All) {
		t.Error("without a list a certificate has not all rights")
	}
}

// TestRenew_KeepsWhatIsKnown of credentials: with many users, to hash all of them again would refuse some.
func TestRenew_KeepsWhatIsKnown(t *testing.T) {
	c := open(t, access.Config{File: users(t, "", `{"users": {"alice": {"roles": ["ids"], "secrets": ["HASH"]}}}`)})
	s := session(t, c, elsewhere)
	right := access.Credentials{Name: "alice", Secret: secret}
	if err := s.Prove(t.Context(), right); err != nil {
		t.Fatal(err)
	}
	was := s.Version()
	c.Renew()
	if s.Version() == was {
		t.Error("rights are not looked up again")
	}
	if !c.Known(right) {
		t.Error("the credentials are to be checked again")
	}
	if err := s.Become(right); err != nil {
		t.Errorf("checked before, used after: %v", err)
	}
}
