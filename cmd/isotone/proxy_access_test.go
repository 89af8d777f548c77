package main

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/quic-go/quic-go/http3"
)

// TestProxyAccess_LendsItsRightsToNobodyUnlessAsked: with credentials, by a secret or a certificate,
// it starts only if it is told who may use them. Its port is taken, so that it fails at any rate.
func TestProxyAccess_LendsItsRightsToNobodyUnlessAsked(t *testing.T) {
	a := newSigner(t)
	cert, key := a.issue("proxy")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	secret := secretFile(t, testSecret)
	list := newUserList(t, `{"users": {"a": {"roles": ["`+testSecret+`"]}, "b": {"roles": ["x"]}}}`)
	for _, c := range []struct {
		args string
		want []string
	}{
		{"--user web --password-file " + secret, []string{"for everybody who reaches it", "--acl-file", "--anonymous timestamps,ids"}},
		{"--cert " + cert + " --key " + key, []string{"for everybody who reaches it", "--acl-file"}},
		{"--anonymous everything", []string{"--anonymous", "is no role", "timestamps"}},
		{"--acl-file " + list.file, []string{"--acl-file", `user "a"`, `user "b"`}},
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
	a := newSigner(t)
	node := runGuardedMember(t, a) // its users are ops and web
	cert, key := a.issue("proxy")
	list := newUserList(t, `{"users": {"shop": {"roles": ["timestamps"], "secrets": ["HASH"]}, "both": {"roles": ["timestamps", "ids"], "secrets": ["HASH"]}}}`)
	addr, _ := runProxy(t, "--node", "https://"+node, "--ca", a.file, "--user", "web", "--password-file", secretFile(t, testSecret),
		"--acl-file", list.file, "--tls-cert", cert, "--tls-key", key)
	within(t, "the proxy has a cluster and a worker", func() bool {
		c := dialHTTP(t, addr, nil)
		defer c.Close()
		one, _, _ := c.ask("/timestamp", bearer("both", testSecret))
		other, _, _ := c.ask("/api/snowflake", bearer("both", testSecret))
		return one == 200 && other == 200
	})
	cases := []question{
		{"/timestamp", "", 401}, {"/timestamp", bearer("shop", testSecret), 200}, {"/timestamp", bearer("shop", "wrong-wrong"), 401},
		{"/api/snowflake", bearer("shop", testSecret), 403}, {"/api/snowflake", basic("both", testSecret), 200}, {"/api/snowflake", "", 401},
		{"/timestamp", bearer("web", testSecret), 401}, {"/members", "", 401}, {"/members", bearer("shop", testSecret), 200}, {"/up", "", 200},
	}
	c := dialHTTP(t, addr, nil)
	for _, q := range cases {
		status, header, body := c.ask(q.path, q.authorization)
		q.check(t, status, header, body)
	}
	trust := &tls.Config{InsecureSkipVerify: true}
	h2 := &http.Transport{TLSClientConfig: trust.Clone(), ForceAttemptHTTP2: true}
	defer h2.CloseIdleConnections()
	h3 := &http3.Transport{TLSClientConfig: trust.Clone()}
	defer h3.Close()
	for major, via := range map[int]http.RoundTripper{2: h2, 3: h3} {
		for _, q := range cases {
			q.askBy(t, via, major, "https://"+addr)
		}
	}
	redis := dialRedis(t, addr, nil)
	for _, step := range []struct{ command, want string }{
		{"TS", "-NOAUTH"}, {"AUTH web " + testSecret, "-WRONGPASS"}, {"AUTH shop " + testSecret, "+OK"}, {"TS", "$16"}, {"SNOWFLAKE", "-NOPERM"},
		{"AUTH both " + testSecret, "+OK"}, {"SNOWFLAKE", ":"},
	} {
		redis.does(step.command, step.want)
	}
	list.write(`{"users": {"shop": {"roles": ["ids"], "secrets": ["HASH"]}}}`)
	within(t, "the list is followed", func() bool {
		one, _, _ := c.ask("/timestamp", bearer("shop", testSecret))
		other, _, _ := c.ask("/timestamp", bearer("both", testSecret))
		return one == 403 && other == 401
	})
}

// askBy sends q over a transport of a version of HTTP, and checks the answer.
func (q *question) askBy(t *testing.T, via http.RoundTripper, major int, base string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+q.path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if q.authorization != "" {
		r.Header.Set("Authorization", q.authorization)
	}
	answer, err := via.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.ProtoMajor != major {
		t.Fatalf("%v, %s", err, answer.Proto)
	}
	q.check(t, answer.StatusCode, answer.Header, string(body))
}

// TestProxyAccess_AnonymousClientsHaveWhatIsNamed, and without TLS nothing if it is required.
func TestProxyAccess_AnonymousClientsHaveWhatIsNamed(t *testing.T) {
	a := newSigner(t)
	node := runGuardedMember(t, a)
	cert, key := a.issue("node")
	mine := []string{"--node", "https://" + node, "--ca", a.file, "--user", "web", "--password-file", secretFile(t, testSecret)}
	addr, _ := runProxy(t, append(mine, "--anonymous", "timestamps")...)
	within(t, "a timestamp", func() bool { status, _ := fetch(t, "http://"+addr+"/timestamp"); return status == 200 })
	if status, body := fetch(t, "http://"+addr+"/api/snowflake"); status != 401 {
		t.Errorf("an ID: %d %s", status, body)
	}
	addr, _ = runProxy(t, append(mine, "--anonymous", "all", "--require-tls", "--tls-cert", cert, "--tls-key", key)...)
	c := dialHTTP(t, addr, nil)
	if status, _, body := c.ask("/timestamp", ""); status != 403 {
		t.Errorf("in plaintext: %d %s", status, body)
	}
	over := dialHTTP(t, addr, a.client("anybody"))
	if status, _, _ := over.ask("/up", ""); status != 200 {
		t.Errorf("over TLS: %d", status)
	}
}
