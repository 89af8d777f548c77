package server_test

import (
	"context"
	"crypto/tls"
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
	"golang.org/x/net/http2"

	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/check/testnode"
	"github.com/isotone/isotone/internal/host/config"
)

func TestClients_ThriftKnowsNoSecretsButCertificates(t *testing.T) {
	a := rig.NewSigner(t)
	cert, key := a.Issue("node")
	n := testnode.Guarded(t, rig.Users, func(s *config.Settings) { s.TLSCert, s.TLSKey, s.TLSClientCA = cert, key, a.File })
	for name, want := range map[string]byte{"": 3, "ids": 2, "ops": 2, "web": 3, "stranger": 3} {
		var cfg *tls.Config
		if name != "" {
			cfg = a.Client(name)
		}
		if kind, err := rig.ThriftCall(t, rig.Dial(t, n.Thrift, cfg)); err != nil || kind != want {
			t.Errorf("%q: message type %d, %v, want %d", name, kind, err, want)
		}
	}
}

func TestClients_ACertificateNamesAUser(t *testing.T) {
	a := rig.NewSigner(t)
	cert, key := a.Issue("node")
	n := testnode.Guarded(t, rig.Users, func(s *config.Settings) { s.TLSCert, s.TLSKey, s.TLSClientCA = cert, key, a.File })
	for name, want := range map[string][3]int{"web": {200, 403, 403}, "ids": {403, 200, 403}, "ops": {200, 200, 200}, "stranger": {401, 401, 401}} {
		cfg := a.Client(name)
		h2 := &http.Transport{TLSClientConfig: cfg.Clone(), ForceAttemptHTTP2: true}
		h3 := &http3.Transport{TLSClientConfig: cfg.Clone()}
		c := rig.DialHTTP(t, n.Client, cfg)
		for i, path := range []string{"/timestamp", "/api/snowflake", "/metrics"} {
			status, _, body := c.Ask(path, "")
			over := rig.Question{Path: path, Status: want[i]}
			over.AskBy(t, h3, 3, "https://"+n.Client)
			answer, err := (&http.Client{Transport: h2}).Get("https://" + n.Client + path)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			if status != want[i] || answer.StatusCode != want[i] || answer.ProtoMajor != 2 {
				t.Errorf("%s, %s: %d, and %d with %s, want %d; %.200s", name, path, status, answer.StatusCode, answer.Proto, want[i], body)
			}
		}
		h2.CloseIdleConnections()
		over := rig.Ask("/timestamp", rig.Bearer("ops", rig.Secret), 200)
		over.AskBy(t, h3, 3, "https://"+n.Client)
		over = rig.Ask("/timestamp", rig.Bearer("ops", "wrong-wrong"), 401)
		over.AskBy(t, h3, 3, "https://"+n.Client)
		_ = h3.Close()
		if status, _, _ := c.Ask("/timestamp", rig.Bearer("ops", rig.Secret)); status != 200 {
			t.Errorf("%s with the secret of ops: %d", name, status)
		}
		if status, _, _ := c.Ask("/timestamp", ""); status != want[0] {
			t.Errorf("%s, without it again: %d", name, status)
		}
	}
	c := rig.DialRedis(t, n.Client, a.Client("web"))
	c.Does("TS", "$16")
	c.Does("SNOWFLAKE", "-NOPERM")
	c.Does("AUTH ids "+rig.Secret, "+OK")
	c.Does("SNOWFLAKE", ":")
	c.Does("RESET", "+RESET")
	c.Does("TS", "$16")
	c.Does("SNOWFLAKE", "-NOPERM")
}

func TestClients_PortsForOperatorsAndMonitoring(t *testing.T) {
	n := testnode.Guarded(t, rig.Users, nil)
	admin := rig.DialHTTP(t, n.Admin, nil)
	for _, q := range []rig.Question{
		rig.Ask("/metrics", "", 401), rig.Ask("/metrics", rig.Bearer("web", rig.Secret), 403), rig.Ask("/metrics", rig.Bearer("ops", rig.Secret), 200),
		rig.Ask("/admin/members", "", 401), rig.Ask("/admin/members", rig.Basic("ops", rig.Secret), 200), rig.Ask("/debug/pprof/cmdline", "", 401),
		rig.Ask("/debug/pprof/cmdline", rig.Bearer("ids", rig.Secret), 403), rig.Ask("/debug/pprof/cmdline", rig.Bearer("ops", rig.Secret), 200), rig.Ask("/livez", "", 200),
		rig.Ask("/metrics", rig.Bearer("ops", "wrong-wrong"), 401),
	} {
		status, header, body := admin.Ask(q.Path, q.Authorization)
		q.Check(t, status, header, body)
	}
	metrics := rig.DialHTTP(t, n.Metrics, nil)
	for path, want := range map[string]int{"/metrics": 200, "/readyz": 200, "/up": 200, "/admin/members": 404, "/timestamp": 404, "/debug/pprof/": 404} {
		if status, _, body := metrics.Ask(path, ""); status != want {
			t.Errorf("%s on the port for monitoring: %d %.80s", path, status, body)
		}
	}
}

// TestClients_FollowTheList on connections that are open.
func TestClients_FollowTheList(t *testing.T) {
	t.Parallel()
	n := testnode.Guarded(t, rig.Users, nil)
	web, redis, ops := rig.DialHTTP(t, n.Client, nil), rig.DialRedis(t, n.Client, nil), rig.DialHTTP(t, n.Client, nil)
	expect := func(what string, status int, reply string) {
		t.Helper()
		await.Until(t, what, func() bool {
			got, _, _ := web.Ask("/timestamp", rig.Bearer("web", rig.Secret))
			redis.Send("TS")
			return got == status && strings.HasPrefix(redis.Receive(), reply)
		})
		if got, _, body := ops.Ask("/timestamp", rig.Bearer("ops", rig.Secret)); got != 200 {
			t.Errorf("%s: another user gets %d %s", what, got, body)
		}
	}
	ops.Ask("/timestamp", rig.Bearer("ops", rig.Secret))
	redis.Does("AUTH web "+rig.Secret, "+OK")
	expect("both have their rights", 200, "$16")
	ids := `"web": {"roles": ["ids"], "secrets": ["HASH"]}`
	n.Users.Write(`{"users": {` + ids + `, "ops": {"roles": ["all"], "secrets": ["HASH"]}}}`)
	expect("the role is gone", 403, "-NOPERM")
	other := access.HashSecret("another secret")
	n.Users.Write(`{"users": {"web": {"roles": ["all"], "secrets": ["` + other + `"]}, "ops": {"roles": ["all"], "secrets": ["HASH"]}}}`)
	expect("a secret that is gone ends what began with it", 401, "-NOAUTH")
	n.Users.Write(`{"users": {"ops": {"roles": ["all"], "secrets": ["HASH"]}}}`)
	expect("the user is gone", 401, "-NOAUTH")
	n.Users.Write(rig.Users)
	expect("the user is back, and so are the sessions", 200, "$16")
}

func TestClients_QuotasOfRates(t *testing.T) {
	n := testnode.Guarded(t, `{"users": {
		"slow": {"roles": ["timestamps", "ids"], "secrets": ["HASH"], "limits": {"timestamps": 10}},
		"rare": {"roles": ["timestamps", "ids"], "secrets": ["HASH"], "limits": {"requests": 1}},
		"fast": {"roles": ["timestamps", "ids"], "secrets": ["HASH"]}
	}}`, nil)
	c := rig.DialHTTP(t, n.Client, nil)
	if status, _, body := c.Ask("/timestamp?n=10000", rig.Bearer("slow", rig.Secret)); status != 200 {
		t.Fatalf("%d %.200s", status, body)
	}
	// That was what the user may have in 1000 seconds.
	for range 3 { // on the fast path, and elsewhere
		for _, path := range []string{"/timestamp", "/api/snowflake", "/interval?n=1"} {
			status, header, body := c.Ask(path, rig.Bearer("slow", rig.Secret))
			after, _ := strconv.Atoi(header.Get("Retry-After"))
			if status != 429 || after < 100 || after > 1000 || !strings.Contains(body, `"code":"quota_exceeded"`) {
				t.Errorf("%s: %d, Retry-After %d, %s", path, status, after, body)
			}
		}
	}
	redis := rig.DialRedis(t, n.Client, nil)
	redis.Does("AUTH slow "+rig.Secret, "+OK")
	redis.Does("TS", "-TRYAGAIN quota_exceeded")
	redis.Does("SNOWFLAKE", "-TRYAGAIN quota_exceeded")
	redis.Does("INTERVAL STAMP", "-TRYAGAIN quota_exceeded")
	redis.Does("AUTH fast "+rig.Secret, "+OK")
	redis.Does("TS", "$16")
	c = rig.DialHTTP(t, n.Client, nil)
	statuses := map[int]int{}
	for range 100 {
		c.Send("/api/snowflake", rig.Bearer("rare", rig.Secret))
	}
	for range 100 {
		status, _, _ := c.Receive()
		statuses[status]++
	}
	if statuses[200] == 0 || statuses[429] == 0 || statuses[200]+statuses[429] != 100 {
		t.Errorf("%v", statuses)
	}
}

// TestClients_EveryFrontCountsByUser what it serves, with limits and without, also in pipelines.
func TestClients_EveryFrontCountsByUser(t *testing.T) {
	n := testnode.Guarded(t, `{"users": {"free": {"roles": ["timestamps", "ids"], "secrets": ["HASH"]},
		"bound": {"roles": ["timestamps", "ids"], "secrets": ["HASH"], "limits": {"requests": 1000, "timestamps": 100000}}}}`, nil)
	for _, user := range []string{"free", "bound"} {
		web, redis := rig.DialHTTP(t, n.Client, nil), rig.DialRedis(t, n.Client, nil)
		await.Until(t, "IDs are made", func() bool {
			status, _ := rig.Fetch(t, "http://"+n.Admin+"/ready/ids")
			return status == 200
		})
		for range 3 {
			web.Send("/api/snowflake?n=2", rig.Bearer(user, rig.Secret))
		}
		for range 3 {
			if status, _, body := web.Receive(); status != 200 {
				t.Fatalf("%s: %d %s", user, status, body)
			}
		}
		web.Ask("/timestamp?n=3", rig.Bearer(user, rig.Secret))
		redis.Does("AUTH "+user+" "+rig.Secret, "+OK")
		redis.Does("TS 4", "$16")
		redis.Does("SNOWFLAKE 5", "*5")
		redis.Send("TS", "TS")
		for range 2 {
			redis.Receive()
		}
		_, metrics := rig.Fetch(t, "http://"+n.Metrics+"/metrics")
		for _, want := range []string{`isotone_user_requests_total{user="` + user + `"} 8`, `isotone_user_timestamps_total{user="` + user + `"} 20`} {
			if !strings.Contains(metrics, "\n"+want+"\n") {
				t.Errorf("%s is missing in %s", want, metrics)
			}
		}
	}
}

func TestClients_QuotasOfConnections(t *testing.T) {
	n := testnode.Guarded(t, `{"users": {"one": {"roles": ["timestamps"], "secrets": ["HASH"], "limits": {"connections": 1}}}, "addressLimits": {"connections": 3}}`, nil)
	auth := "AUTH one " + rig.Secret
	first, second := rig.DialRedis(t, n.Client, nil), rig.DialRedis(t, n.Client, nil)
	first.Does(auth, "+OK")
	second.Does(auth, "-TRYAGAIN quota_exceeded")
	second.Does("TS", "-NOAUTH")
	first.Does("RESET", "+RESET")
	second.Does(auth, "+OK")
	first.Does(auth, "-TRYAGAIN quota_exceeded")
	_ = second.Close()
	await.Until(t, "the end of a connection counts", func() bool {
		first.Send(auth)
		return first.Receive() == "+OK"
	})
	open := func() net.Conn {
		c := rig.Dial(t, n.Client, nil)
		_, _ = io.WriteString(c, "GET /up HTTP/1.1\r\nHost: x\r\n\r\n")
		head := make([]byte, len("HTTP/1.1 200"))
		if _, err := io.ReadFull(c, head); err != nil || string(head) != "HTTP/1.1 200" {
			_ = c.Close()
			return nil
		}
		return c
	}
	var held []net.Conn // beside first
	await.Until(t, "three connections of the address", func() bool {
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
	await.Until(t, "one has ended", func() bool { return open() != nil })
}

func TestClients_QuotasOfStreamsAndWorkers(t *testing.T) {
	n := testnode.Guarded(t, `{"users": {"one": {"roles": ["live", "workers"], "secrets": ["HASH"], "limits": {"streams": 1, "workers": 1}}}}`, nil)
	first, second := rig.DialHTTP(t, n.Client, nil), rig.DialHTTP(t, n.Client, nil)
	first.Send("/live/state/stream", rig.Bearer("one", rig.Secret))
	if line, err := first.R.ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("%q, %v", line, err)
	}
	if status, header, body := second.Ask("/live/state/stream", rig.Bearer("one", rig.Secret)); status != 429 || header.Get("Retry-After") == "" {
		t.Errorf("%d %s", status, body)
	}
	_ = first.Close()
	await.Until(t, "the end of a stream counts", func() bool {
		c := rig.DialHTTP(t, n.Client, nil)
		defer c.Close()
		c.Send("/live/state/stream", rig.Bearer("one", rig.Secret))
		line, _ := c.R.ReadString('\n')
		return strings.Contains(line, "200")
	})
	redis := rig.DialRedis(t, n.Client, nil)
	redis.Does("AUTH one "+rig.Secret, "+OK")
	from := time.Now().UnixMilli()
	lease := func(session int) string { return fmt.Sprintf("WORKER LEASE %016x %d 30000", session, from) }
	redis.Does(lease(1), "*")
	redis.Does(lease(2), "-TRYAGAIN quota_exceeded")
	redis.Does(lease(1), "*") // again, the same one
}

// TestClients_WithoutTLSAreToldThatItIsRequired in their protocol.
func TestClients_WithoutTLSAreToldThatItIsRequired(t *testing.T) {
	n := testnode.Guarded(t, "", func(s *config.Settings) { s.RequireTLS = true })
	for _, request := range []string{"GET /timestamp HTTP/1.1\r\nHost: x\r\n\r\n", "POST /up HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", "GET /up HTTP/1.1\r\nHost: x\r\n\r\n"} {
		c := rig.DialHTTP(t, n.Client, nil)
		_, _ = io.WriteString(c, request)
		status, header, body := c.Receive()
		if status != 403 || header.Get("Content-Type") != "application/json" || !strings.Contains(body, `"code":"forbidden"`) {
			t.Errorf("%.10s: %d %s", request, status, body)
		} else if _, err := c.R.ReadByte(); err != io.EOF {
			t.Errorf("%.10s: then %v", request, err)
		}
	}
	multiplexed := rig.Dial(t, n.Client, nil)
	_, _ = io.WriteString(multiplexed, http2.ClientPreface)
	framer := http2.NewFramer(io.Discard, multiplexed)
	if f, err := framer.ReadFrame(); err != nil || f.Header().Type != http2.FrameSettings {
		t.Errorf("HTTP/2: %v, %v", f, err)
	}
	f, err := framer.ReadFrame()
	if g, ok := f.(*http2.GoAwayFrame); err != nil || !ok || g.ErrCode != http2.ErrCodeInadequateSecurity || !strings.Contains(string(g.DebugData()), "requires TLS") {
		t.Errorf("HTTP/2: %v, %v", f, err)
	}
	redis := rig.DialRedis(t, n.Client, nil)
	redis.Does("TS", "-ERR this port requires TLS")
	if _, err := redis.R.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection stays open: %v", err)
	}
	if kind, err := rig.ThriftCall(t, rig.Dial(t, n.Thrift, nil)); err == nil {
		t.Errorf("Thrift answers with %d", kind)
	}
	insecure := &tls.Config{InsecureSkipVerify: true}
	rig.DialRedis(t, n.Client, insecure).Does("TS", "$16")
	if status, _, body := rig.DialHTTP(t, n.Client, insecure).Ask("/timestamp", ""); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	if kind, err := rig.ThriftCall(t, rig.Dial(t, n.Thrift, insecure)); err != nil || kind != 2 {
		t.Errorf("%d, %v", kind, err)
	}
}

// TestClients_WithoutAListTheMachineIsTrusted, but not for others whom a proxy on it forwards for.
func TestClients_WithoutAListTheMachineIsTrusted(t *testing.T) {
	n := testnode.Guarded(t, "", nil)
	c := rig.DialHTTP(t, n.Client, nil)
	for _, path := range []string{"/timestamp", "/api/snowflake", "/state", "/metrics", "/admin/members", "/upgrade"} {
		if status, _, body := c.Ask(path, ""); status != 200 {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	for _, field := range []string{"X-Forwarded-For: 192.0.2.1", "Forwarded: for=192.0.2.1", "Via: 1.1 proxy", "X-Real-IP: 192.0.2.1"} {
		for path, want := range map[string]int{"/timestamp": 200, "/api/snowflake": 200, "/state": 200, "/metrics": 401, "/admin/members": 401} {
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n", path, field)
			if status, _, body := c.Receive(); status != want {
				t.Errorf("%s with %s: %d %.200s", path, field, status, body)
			}
		}
	}
	redis := rig.DialRedis(t, n.Client, nil)
	redis.Does("TS", "$16")
	redis.Does(fmt.Sprintf("WORKER LEASE 0000000000000001 %d 30000", time.Now().UnixMilli()), "*")
	redis.Does("AUTH web "+rig.Secret, "-WRONGPASS")
	redis.Does("TS", "$16")
	if kind, err := rig.ThriftCall(t, rig.Dial(t, n.Thrift, nil)); err != nil || kind != 2 {
		t.Errorf("%d, %v", kind, err)
	}
	if status, _, _ := c.Ask("/timestamp", rig.Bearer("web", rig.Secret)); status != 401 {
		t.Errorf("credentials that nobody has: %d", status)
	}
}

// TestClients_TheLongestSecretIsTheSameEverywhere: nodes accept what clients send, and neither takes more.
func TestClients_TheLongestSecretIsTheSameEverywhere(t *testing.T) {
	secret := strings.Repeat("s", access.SecretMax)
	name := strings.Repeat("n", access.NameMax)
	n := testnode.Guarded(t, fmt.Sprintf(`{"users": {%q: {"roles": ["timestamps"], "secrets": [%q]}}}`, name, access.HashSecret(secret)), nil)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, err := client.NewWith(ctx, client.Options{Addrs: []string{n.Client}, Credentials: client.StaticCredentials(name, secret)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Timestamps(ctx, 1); err != nil {
		t.Errorf("by the Go client: %v", err)
	}
	over := rig.DialHTTP(t, n.Client, nil)
	for authorization, want := range map[string]int{rig.Bearer(name, secret): 200, rig.Basic(name, secret): 200, rig.Bearer(name, secret+"s"): 401, rig.Basic(name, secret+"s"): 401} {
		if status, _, body := over.Ask("/timestamp", authorization); status != want {
			t.Errorf("%d bytes: %d %s, want %d", len(authorization), status, body, want)
		}
	}
	for _, bad := range []client.Credentials{{Name: name, Secret: secret + "s"}, {Name: name + "n", Secret: secret}} {
		if err := bad.Validate(); err == nil {
			t.Errorf("the client would send a name of %d and a secret of %d bytes", len(bad.Name), len(bad.Secret))
		}
	}
}
