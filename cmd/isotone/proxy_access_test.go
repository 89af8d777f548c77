package main

import (
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/quic-go/quic-go/http3"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
)

// TestProxyAccess_LendsItsRightsToNobodyUnlessAsked: with credentials, by a secret or a certificate,
// it starts only if it is told who may use them. Its port is taken, so that it fails at any rate.
func TestProxyAccess_LendsItsRightsToNobodyUnlessAsked(t *testing.T) {
	a := rig.NewSigner(t)
	cert, key := a.Issue("proxy")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	secret := rig.SecretFile(t, rig.Secret)
	list := rig.NewUserList(t, `{"users": {"a": {"roles": ["`+rig.Secret+`"]}, "b": {"roles": ["x"]}}}`)
	for _, c := range []struct {
		args string
		want []string
	}{
		{"--user web --password-file " + secret, []string{"for everybody who reaches it", "--acl-file", "--anonymous timestamps,ids"}},
		{"--cert " + cert + " --key " + key, []string{"for everybody who reaches it", "--acl-file"}},
		{"--anonymous everything", []string{"--anonymous", "is no role", "timestamps"}},
		{"--acl-file " + list.File, []string{"--acl-file", `user "a"`, `user "b"`}},
		{"--acl-file /does/not/exist", []string{"--acl-file", "/does/not/exist"}},
		{"--require-tls", []string{"--require-tls needs --tls-cert"}},
	} {
		code, out, err := command(append([]string{"proxy", "--listen", taken.Addr().String(), "--node", "https://127.0.0.1:1"}, strings.Fields(c.args)...)...)
		if code != exitUsage || out != "" || strings.Count(strings.TrimSpace(err), "\n") > 1 {
			t.Errorf("%s: exit code %d, %s%s", c.args, code, out, err)
		}
		for _, want := range c.want {
			if !strings.Contains(err, want) {
				t.Errorf("%s: %q is missing in: %s", c.args, want, err)
			}
		}
	}
}

// TestProxyAccess_AsksForUsers of its own list in each protocol, and never those of the nodes.
func TestProxyAccess_AsksForUsers(t *testing.T) {
	t.Parallel()
	a := rig.NewSigner(t)
	node := runGuardedMember(t, a) // its users are ops and web
	cert, key := a.Issue("proxy")
	list := rig.NewUserList(t, `{"users": {"shop": {"roles": ["timestamps"], "secrets": ["HASH"]}, "both": {"roles": ["timestamps", "ids"], "secrets": ["HASH"]}}}`)
	addr, _ := runProxy(t, "--node", "https://"+node, "--ca", a.File, "--user", "web", "--password-file", rig.SecretFile(t, rig.Secret),
		"--acl-file", list.File, "--tls-cert", cert, "--tls-key", key)
	await.Until(t, "the proxy has a cluster and a worker", func() bool {
		c := rig.DialHTTP(t, addr, nil)
		defer c.Close()
		one, _, _ := c.Ask("/timestamp", rig.Bearer("both", rig.Secret))
		other, _, _ := c.Ask("/api/snowflake", rig.Bearer("both", rig.Secret))
		return one == 200 && other == 200
	})
	cases := []rig.Question{
		rig.Ask("/timestamp", "", 401), rig.Ask("/timestamp", rig.Bearer("shop", rig.Secret), 200), rig.Ask("/timestamp", rig.Bearer("shop", "wrong-wrong"), 401),
		rig.Ask("/api/snowflake", rig.Bearer("shop", rig.Secret), 403), rig.Ask("/api/snowflake", rig.Basic("both", rig.Secret), 200), rig.Ask("/api/snowflake", "", 401),
		rig.Ask("/timestamp", rig.Bearer("web", rig.Secret), 401), rig.Ask("/members", "", 401), rig.Ask("/members", rig.Bearer("shop", rig.Secret), 200), rig.Ask("/up", "", 200),
	}
	c := rig.DialHTTP(t, addr, nil)
	for _, q := range cases {
		status, header, body := c.Ask(q.Path, q.Authorization)
		q.Check(t, status, header, body)
	}
	trust := &tls.Config{InsecureSkipVerify: true}
	h2 := &http.Transport{TLSClientConfig: trust.Clone(), ForceAttemptHTTP2: true}
	defer h2.CloseIdleConnections()
	h3 := &http3.Transport{TLSClientConfig: trust.Clone()}
	defer h3.Close()
	for major, via := range map[int]http.RoundTripper{2: h2, 3: h3} {
		for _, q := range cases {
			q.AskBy(t, via, major, "https://"+addr)
		}
	}
	redis := rig.DialRedis(t, addr, nil)
	for _, step := range []struct{ command, want string }{
		{"TS", "-NOAUTH"}, {"AUTH web " + rig.Secret, "-WRONGPASS"}, {"AUTH shop " + rig.Secret, "+OK"}, {"TS", "$16"}, {"SNOWFLAKE", "-NOPERM"},
		{"AUTH both " + rig.Secret, "+OK"}, {"SNOWFLAKE", ":"},
	} {
		redis.Does(step.command, step.want)
	}
	list.Write(`{"users": {"shop": {"roles": ["ids"], "secrets": ["HASH"]}}}`)
	await.Until(t, "the list is followed", func() bool {
		one, _, _ := c.Ask("/timestamp", rig.Bearer("shop", rig.Secret))
		other, _, _ := c.Ask("/timestamp", rig.Bearer("both", rig.Secret))
		return one == 403 && other == 401
	})
}

// TestProxyAccess_AnonymousClientsHaveWhatIsNamed, and without TLS nothing if it is required.
func TestProxyAccess_AnonymousClientsHaveWhatIsNamed(t *testing.T) {
	a := rig.NewSigner(t)
	node := runGuardedMember(t, a)
	cert, key := a.Issue("node")
	mine := []string{"--node", "https://" + node, "--ca", a.File, "--user", "web", "--password-file", rig.SecretFile(t, rig.Secret)}
	addr, _ := runProxy(t, append(mine, "--anonymous", "timestamps")...)
	await.Until(t, "a timestamp", func() bool { status, _ := rig.Fetch(t, "http://"+addr+"/timestamp"); return status == 200 })
	if status, body := rig.Fetch(t, "http://"+addr+"/api/snowflake"); status != 401 {
		t.Errorf("an ID: %d %s", status, body)
	}
	addr, _ = runProxy(t, append(mine, "--anonymous", "all", "--require-tls", "--tls-cert", cert, "--tls-key", key)...)
	c := rig.DialHTTP(t, addr, nil)
	if status, _, body := c.Ask("/timestamp", ""); status != 403 {
		t.Errorf("in plaintext: %d %s", status, body)
	}
	over := rig.DialHTTP(t, addr, a.Client("anybody"))
	if status, _, _ := over.Ask("/up", ""); status != 200 {
		t.Errorf("over TLS: %d", status)
	}
}
