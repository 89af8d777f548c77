package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"

	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/host/access"
	"github.com/isotone/isotone/internal/host/config"
)

func TestClients_ThriftKnowsNoSecretsButCertificates(t *testing.T) {
	a := newSigner(t)
	cert, key := a.issue("node")
	n := startGuarded(t, usersOfTests, func(s *config.Settings) { s.TLSCert, s.TLSKey, s.TLSClientCA = cert, key, a.file })
	for name, want := range map[string]byte{"": 3, "ids": 2, "ops": 2, "web": 3, "stranger": 3} {
		var cfg *tls.Config
		if name != "" {
			cfg = a.client(name)
		}
		if kind, err := thriftCall(t, dial(t, n.thrift, cfg)); err != nil || kind != want {
			t.Errorf("%q: message type %d, %v, want %d", name, kind, err, want)
		}
	}
}

// client returns the configuration of a client with a certificate of this authority.
func (a *signer) client(name string) *tls.Config {
	a.t.Helper()
	cert, key := a.issue(name)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		a.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, ServerName: "node"}
}

func TestClients_ACertificateNamesAUser(t *testing.T) {
	a := newSigner(t)
	cert, key := a.issue("node")
	n := startGuarded(t, usersOfTests, func(s *config.Settings) { s.TLSCert, s.TLSKey, s.TLSClientCA = cert, key, a.file })
	for name, want := range map[string][3]int{"web": {200, 403, 403}, "ids": {403, 200, 403}, "ops": {200, 200, 200}, "stranger": {401, 401, 401}} {
		cfg := a.client(name)
		h2 := &http.Transport{TLSClientConfig: cfg.Clone(), ForceAttemptHTTP2: true}
		h3 := &http3.Transport{TLSClientConfig: cfg.Clone()}
		c := dialHTTP(t, n.client, cfg)
		for i, path := range []string{"/timestamp", "/api/snowflake", "/metrics"} {
			status, _, body := c.ask(path, "")
			over := question{path: path, status: want[i]}
			over.askBy(t, h3, 3, "https://"+n.client)
			answer, err := (&http.Client{Transport: h2}).Get("https://" + n.client + path)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			if status != want[i] || answer.StatusCode != want[i] || answer.ProtoMajor != 2 {
				t.Errorf("%s, %s: %d, and %d with %s, want %d; %.200s", name, path, status, answer.StatusCode, answer.Proto, want[i], body)
			}
		}
		h2.CloseIdleConnections()
		over := question{"/timestamp", bearer("ops", testSecret), 200}
		over.askBy(t, h3, 3, "https://"+n.client)
		over = question{"/timestamp", bearer("ops", "wrong-wrong"), 401}
		over.askBy(t, h3, 3, "https://"+n.client)
		_ = h3.Close()
		if status, _, _ := c.ask("/timestamp", bearer("ops", testSecret)); status != 200 {
			t.Errorf("%s with the secret of ops: %d", name, status)
		}
		if status, _, _ := c.ask("/timestamp", ""); status != want[0] {
			t.Errorf("%s, without it again: %d", name, status)
		}
	}
	c := dialRedis(t, n.client, a.client("web"))
	c.does("TS", "$16")
	c.does("SNOWFLAKE", "-NOPERM")
	c.does("AUTH ids "+testSecret, "+OK")
	c.does("SNOWFLAKE", ":")
	c.does("RESET", "+RESET")
	c.does("TS", "$16")
	c.does("SNOWFLAKE", "-NOPERM")
}

func TestClients_PortsForOperatorsAndMonitoring(t *testing.T) {
	n := startGuarded(t, usersOfTests, nil)
	admin := dialHTTP(t, n.admin, nil)
	for _, q := range []question{
		{"/metrics", "", 401}, {"/metrics", bearer("web", testSecret), 403}, {"/metrics", bearer("ops", testSecret), 200},
		{"/admin/members", "", 401}, {"/admin/members", basic("ops", testSecret), 200}, {"/debug/pprof/cmdline", "", 401},
		{"/debug/pprof/cmdline", bearer("ids", testSecret), 403}, {"/debug/pprof/cmdline", bearer("ops", testSecret), 200}, {"/livez", "", 200},
		{"/metrics", bearer("ops", "wrong-wrong"), 401},
	} {
		status, header, body := admin.ask(q.path, q.authorization)
		q.check(t, status, header, body)
	}
	metrics := dialHTTP(t, n.metrics, nil)
	for path, want := range map[string]int{"/metrics": 200, "/readyz": 200, "/up": 200, "/admin/members": 404, "/timestamp": 404, "/debug/pprof/": 404} {
		if status, _, body := metrics.ask(path, ""); status != want {
			t.Errorf("%s on the port for monitoring: %d %.80s", path, status, body)
		}
	}
}

// TestClients_FollowTheList on connections that are open.
func TestClients_FollowTheList(t *testing.T) {
	t.Parallel()
	n := startGuarded(t, usersOfTests, nil)
	web, redis, ops := dialHTTP(t, n.client, nil), dialRedis(t, n.client, nil), dialHTTP(t, n.client, nil)
	expect := func(what string, status int, reply string) {
		t.Helper()
		within(t, what, func() bool {
			got, _, _ := web.ask("/timestamp", bearer("web", testSecret))
			redis.send("TS")
			return got == status && strings.HasPrefix(redis.receive(), reply)
		})
		if got, _, body := ops.ask("/timestamp", bearer("ops", testSecret)); got != 200 {
			t.Errorf("%s: another user gets %d %s", what, got, body)
		}
	}
	ops.ask("/timestamp", bearer("ops", testSecret))
	redis.does("AUTH web "+testSecret, "+OK")
	expect("both have their rights", 200, "$16")
	ids := `"web": {"roles": ["ids"], "secrets": ["HASH"]}`
	n.users.write(`{"users": {` + ids + `, "ops": {"roles": ["all"], "secrets": ["HASH"]}}}`)
	expect("the role is gone", 403, "-NOPERM")
	other := access.HashSecret("another secret")
	n.users.write(`{"users": {"web": {"roles": ["all"], "secrets": ["` + other + `"]}, "ops": {"roles": ["all"], "secrets": ["HASH"]}}}`)
	expect("a secret that is gone ends what began with it", 401, "-NOAUTH")
	n.users.write(`{"users": {"ops": {"roles": ["all"], "secrets": ["HASH"]}}}`)
	expect("the user is gone", 401, "-NOAUTH")
	n.users.write(usersOfTests)
	expect("the user is back, and so are the sessions", 200, "$16")
}

func TestClients_QuotasOfRates(t *testing.T) {
	n := startGuarded(t, `{"users": {
		"slow": {"roles": ["timestamps", "ids"], "secrets": ["HASH"], "limits": {"timestamps": 10}},
		"rare": {"roles": ["timestamps", "ids"], "secrets": ["HASH"], "limits": {"requests": 1}},
		"fast": {"roles": ["timestamps", "ids"], "secrets": ["HASH"]}
	}}`, nil)
	c := dialHTTP(t, n.client, nil)
	if status, _, body := c.ask("/timestamp?n=10000", bearer("slow", testSecret)); status != 200 {
		t.Fatalf("%d %.200s", status, body)
	}
	// That was what the user may have in 1000 seconds.
	for range 3 { // on the fast path, and elsewhere
		for _, path := range []string{"/timestamp", "/api/snowflake", "/interval?n=1"} {
			status, header, body := c.ask(path, bearer("slow", testSecret))
			after, _ := strconv.Atoi(header.Get("Retry-After"))
			if status != 429 || after < 100 || after > 1000 || !strings.Contains(body, `"code":"quota_exceeded"`) {
				t.Errorf("%s: %d, Retry-After %d, %s", path, status, after, body)
			}
		}
	}
	redis := dialRedis(t, n.client, nil)
	redis.does("AUTH slow "+testSecret, "+OK")
	redis.does("TS", "-TRYAGAIN quota_exceeded")
	redis.does("SNOWFLAKE", "-TRYAGAIN quota_exceeded")
	redis.does("INTERVAL STAMP", "-TRYAGAIN quota_exceeded")
	redis.does("AUTH fast "+testSecret, "+OK")
	redis.does("TS", "$16")
	c = dialHTTP(t, n.client, nil)
	statuses := map[int]int{}
	for range 100 {
		c.send("/api/snowflake", bearer("rare", testSecret))
	}
	for range 100 {
		status, _, _ := c.receive()
		statuses[status]++
	}
	if statuses[200] == 0 || statuses[429] == 0 || statuses[200]+statuses[429] != 100 {
		t.Errorf("%v", statuses)
	}
}

func TestClients_QuotasOfConnections(t *testing.T) {
	n := startGuarded(t, `{"users": {"one": {"roles": ["timestamps"], "secrets": ["HASH"], "limits": {"connections": 1}}}, "addressLimits": {"connections": 3}}`, nil)
	auth := "AUTH one " + testSecret
	first, second := dialRedis(t, n.client, nil), dialRedis(t, n.client, nil)
	first.does(auth, "+OK")
	second.does(auth, "-TRYAGAIN quota_exceeded")
	second.does("TS", "-NOAUTH")
	first.does("RESET", "+RESET")
	second.does(auth, "+OK")
	first.does(auth, "-TRYAGAIN quota_exceeded")
	_ = second.Close()
	within(t, "the end of a connection counts", func() bool {
		first.send(auth)
		return first.receive() == "+OK"
	})
	open := func() net.Conn {
		c := dial(t, n.client, nil)
		_, _ = io.WriteString(c, "GET /up HTTP/1.1\r\nHost: x\r\n\r\n")
		head := make([]byte, len("HTTP/1.1 200"))
		if _, err := io.ReadFull(c, head); err != nil || string(head) != "HTTP/1.1 200" {
			_ = c.Close()
			return nil
		}
		return c
	}
	var held []net.Conn // beside first
	within(t, "three connections of the address", func() bool {
		if c := open(); c != nil {
			held = append(held, c)
		}
		return len(held) == 2
	})
	for range 3 {
		if open() != nil {
			t.Error("a fourth connection is served")
		}
	}
	_ = held[0].Close()
	within(t, "one has ended", func() bool { return open() != nil })
}

func TestClients_QuotasOfStreamsAndWorkers(t *testing.T) {
	n := startGuarded(t, `{"users": {"one": {"roles": ["live", "workers"], "secrets": ["HASH"], "limits": {"streams": 1, "workers": 1}}}}`, nil)
	first, second := dialHTTP(t, n.client, nil), dialHTTP(t, n.client, nil)
	first.send("/live/state/stream", bearer("one", testSecret))
	if line, err := first.r.ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("%q, %v", line, err)
	}
	if status, header, body := second.ask("/live/state/stream", bearer("one", testSecret)); status != 429 || header.Get("Retry-After") == "" {
		t.Errorf("%d %s", status, body)
	}
	_ = first.Close()
	within(t, "the end of a stream counts", func() bool {
		c := dialHTTP(t, n.client, nil)
		defer c.Close()
		c.send("/live/state/stream", bearer("one", testSecret))
		line, _ := c.r.ReadString('\n')
		return strings.Contains(line, "200")
	})
	redis := dialRedis(t, n.client, nil)
	redis.does("AUTH one "+testSecret, "+OK")
	from := time.Now().UnixMilli()
	lease := func(session int) string { return fmt.Sprintf("WORKER LEASE %016x %d 30000", session, from) }
	redis.does(lease(1), "*")
	redis.does(lease(2), "-TRYAGAIN quota_exceeded")
	redis.does(lease(1), "*") // again, the same one
}

// TestClients_WithoutTLSAreToldThatItIsRequired in their protocol.
func TestClients_WithoutTLSAreToldThatItIsRequired(t *testing.T) {
	n := startGuarded(t, "", func(s *config.Settings) { s.RequireTLS = true })
	for _, request := range []string{"GET /timestamp HTTP/1.1\r\nHost: x\r\n\r\n", "POST /up HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", "GET /up HTTP/1.1\r\nHost: x\r\n\r\n"} {
		c := dialHTTP(t, n.client, nil)
		_, _ = io.WriteString(c, request)
		status, header, body := c.receive()
		if status != 403 || header.Get("Content-Type") != "application/json" || !strings.Contains(body, `"code":"forbidden"`) {
			t.Errorf("%.10s: %d %s", request, status, body)
		} else if _, err := c.r.ReadByte(); err != io.EOF {
			t.Errorf("%.10s: then %v", request, err)
		}
	}
	redis := dialRedis(t, n.client, nil)
	redis.does("TS", "-ERR this port requires TLS")
	if _, err := redis.r.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection stays open: %v", err)
	}
	if kind, err := thriftCall(t, dial(t, n.thrift, nil)); err == nil {
		t.Errorf("Thrift answers with %d", kind)
	}
	insecure := &tls.Config{InsecureSkipVerify: true}
	dialRedis(t, n.client, insecure).does("TS", "$16")
	if status, _, body := dialHTTP(t, n.client, insecure).ask("/timestamp", ""); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	if kind, err := thriftCall(t, dial(t, n.thrift, insecure)); err != nil || kind != 2 {
		t.Errorf("%d, %v", kind, err)
	}
}

// TestClients_WithoutAListTheMachineIsTrusted, but not for others whom a proxy on it forwards for.
func TestClients_WithoutAListTheMachineIsTrusted(t *testing.T) {
	n := startGuarded(t, "", nil)
	c := dialHTTP(t, n.client, nil)
	for _, path := range []string{"/timestamp", "/api/snowflake", "/state", "/metrics", "/admin/members", "/upgrade"} {
		if status, _, body := c.ask(path, ""); status != 200 {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	for _, field := range []string{"X-Forwarded-For: 192.0.2.1", "Forwarded: for=192.0.2.1", "Via: 1.1 proxy", "X-Real-IP: 192.0.2.1"} {
		for path, want := range map[string]int{"/timestamp": 200, "/api/snowflake": 200, "/state": 200, "/metrics": 401, "/admin/members": 401} {
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n", path, field)
			if status, _, body := c.receive(); status != want {
				t.Errorf("%s with %s: %d %.200s", path, field, status, body)
			}
		}
	}
	redis := dialRedis(t, n.client, nil)
	redis.does("TS", "$16")
	redis.does(fmt.Sprintf("WORKER LEASE 0000000000000001 %d 30000", time.Now().UnixMilli()), "*")
	redis.does("AUTH web "+testSecret, "-WRONGPASS")
	redis.does("TS", "$16")
	if kind, err := thriftCall(t, dial(t, n.thrift, nil)); err != nil || kind != 2 {
		t.Errorf("%d, %v", kind, err)
	}
	if status, _, _ := c.ask("/timestamp", bearer("web", testSecret)); status != 401 {
		t.Errorf("credentials that nobody has: %d", status)
	}
}

// TestClients_TheLongestSecretIsTheSameEverywhere: nodes accept what clients send, and neither takes more.
func TestClients_TheLongestSecretIsTheSameEverywhere(t *testing.T) {
	secret := strings.Repeat("s", access.SecretMax)
	name := strings.Repeat("n", access.NameMax)
	n := startGuarded(t, fmt.Sprintf(`{"users": {%q: {"roles": ["timestamps"], "secrets": [%q]}}}`, name, access.HashSecret(secret)), nil)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, err := client.NewWith(ctx, client.Options{Addrs: []string{n.client}, Credentials: client.StaticCredentials(name, secret)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Timestamps(ctx, 1); err != nil {
		t.Errorf("by the Go client: %v", err)
	}
	over := dialHTTP(t, n.client, nil)
	for authorization, want := range map[string]int{bearer(name, secret): 200, basic(name, secret): 200, bearer(name, secret+"s"): 401, basic(name, secret+"s"): 401} {
		if status, _, body := over.ask("/timestamp", authorization); status != want {
			t.Errorf("%d bytes: %d %s, want %d", len(authorization), status, body, want)
		}
	}
	for _, bad := range []client.Credentials{{Name: name, Secret: secret + "s"}, {Name: name + "n", Secret: secret}} {
		if err := bad.Validate(); err == nil {
			t.Errorf("the client would send a name of %d and a secret of %d bytes", len(bad.Name), len(bad.Secret))
		}
	}
	if code, _, err := command("user", "hash", "--password-file", secretFile(t, secret)); code != 0 {
		t.Error(err)
	}
	if code, _, err := command("user", "hash", "--password-file", secretFile(t, secret+"s")); code != exitUsage || !strings.Contains(err, "at most 256") {
		t.Errorf("%d: %s", code, err)
	}
}
