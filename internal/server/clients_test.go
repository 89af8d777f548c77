package server_test

import (
	"crypto/tls"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/quic-go/quic-go/http3"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/check/testnode"
)

// questions has clients with every right and every fault.
var questions = []rig.Question{
	rig.Ask("/timestamp", rig.Bearer("web", rig.Secret), 200),
	rig.Ask("/timestamp", rig.Basic("web", rig.Secret), 200),
	rig.Ask("/timestamp", rig.Bearer("ops", rig.Secret), 200),
	rig.Ask("/timestamp?n=3", rig.Bearer("web", rig.Secret), 200),
	rig.Ask("/api/snowflake", rig.Bearer("ids", rig.Secret), 200),
	rig.Ask("/api/snowflake", rig.Bearer("web", rig.Secret), 403),
	rig.Ask("/interval", rig.Bearer("web", rig.Secret), 404), // as INTERVAL_MS is 0
	rig.Ask("/interval?n=3", rig.Bearer("ids", rig.Secret), 403),
	rig.Ask("/interval?wait=00000000000000000000000000000000", "", 401),
	rig.Ask("/timestamp", "", 401),
	rig.Ask("/timestamp", rig.Bearer("ops", rig.Secret), 200),
	rig.Ask("/timestamp", rig.Bearer("ids", rig.Secret), 403),
	rig.Ask("/timestamp", rig.Bearer("web", "wrong-wrong"), 401),
	rig.Ask("/timestamp", rig.Bearer("web", rig.Secret), 200),
	rig.Ask("/api/snowflake", "", 401),
	rig.Ask("/timestamp", "Digest x", 401),
	rig.Ask("/state", rig.Bearer("web", rig.Secret), 200),
	rig.Ask("/state", rig.Bearer("ids", rig.Secret), 403),
	rig.Ask("/timestamp", rig.Basic("ops", rig.Secret), 200),
	rig.Ask("/metrics", rig.Bearer("web", rig.Secret), 403),
	rig.Ask("/metrics", "", 401),
	rig.Ask("/metrics", rig.Bearer("ops", rig.Secret), 200),
	rig.Ask("/admin/members", "", 401),
	rig.Ask("/admin/members", rig.Bearer("ids", rig.Secret), 403),
	rig.Ask("/admin/members", rig.Basic("ops", rig.Secret), 200),
	rig.Ask("/upgrade", "", 401),
	rig.Ask("/up", "", 200),
	rig.Ask("/members", "", 401),
	rig.Ask("/members", rig.Bearer("ids", rig.Secret), 200),
}

// TestClients_EachRequestOfAConnectionHasItsOwnAnswer, also if all are sent at once, and wherever
// the fast path ends.
func TestClients_EachRequestOfAConnectionHasItsOwnAnswer(t *testing.T) {
	t.Parallel()
	n := testnode.Guarded(t, rig.Users, nil)
	insecure := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}
	for i := range questions {
		turned := append(slices.Clone(questions[i:]), questions[:i]...)
		for _, cfg := range []*tls.Config{nil, insecure} {
			if cfg != nil && i%4 != 0 {
				continue
			}
			one, all := rig.DialHTTP(t, n.Client, cfg), rig.DialHTTP(t, n.Client, cfg)
			for _, q := range turned {
				status, header, body := one.Ask(q.Path, q.Authorization)
				q.Check(t, status, header, body)
				all.Send(q.Path, q.Authorization)
			}
			for _, q := range turned {
				status, header, body := all.Receive()
				q.Check(t, status, header, body)
			}
		}
	}
}

// TestClients_OnTheFastPathRequestsAlternate between users in one pipeline, and stay there.
func TestClients_OnTheFastPathRequestsAlternate(t *testing.T) {
	t.Parallel()
	n := testnode.Guarded(t, rig.Users, nil)
	c := rig.DialHTTP(t, n.Client, nil)
	for range 20 {
		c.Send("/timestamp", rig.Bearer("web", rig.Secret))
		c.Send("/timestamp", rig.Bearer("ops", rig.Secret))
		c.Send("/api/snowflake", rig.Basic("ids", rig.Secret))
		c.Send("/timestamp", rig.Basic("default", rig.Secret))
	}
	last := isotone.Timestamp{}
	for i := range 80 {
		status, _, body := c.Receive()
		if status != 200 {
			t.Fatalf("request %d: %d %s", i, status, body)
		}
		if i%4 == 2 {
			continue
		}
		var ts isotone.Timestamp
		if err := ts.UnmarshalBinary([]byte(body)); err != nil || ts.Compare(last) <= 0 {
			t.Fatalf("request %d: %v after %v, %v", i, ts, last, err)
		}
		last = ts
	}
	if conns := metric(t, n, `isotone_client_connections{protocol="http1"}`); conns < 1 {
		t.Errorf("%v connections on the fast path", conns)
	}
}

// metric returns a metric of the node.
func metric(t *testing.T, n *testnode.Node, name string) float64 {
	t.Helper()
	_, body := rig.Fetch(t, "http://"+n.Metrics+"/metrics")
	_, rest, found := strings.Cut(body, "\n"+name+" ")
	line, _, _ := strings.Cut(rest, "\n")
	v, err := strconv.ParseFloat(line, 64)
	if !found || err != nil {
		t.Fatalf("the metric %s: %q, %v", name, line, err)
	}
	return v
}

func TestClients_HTTP2AsksEachRequest(t *testing.T) {
	n := testnode.Guarded(t, rig.Users, nil)
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	for _, q := range questions {
		q.AskBy(t, tr, 2, "https://"+n.Client)
	}
}

// TestClients_HTTP3AsksEachRequest, as the other versions do: each role, right and wrong credentials.
func TestClients_HTTP3AsksEachRequest(t *testing.T) {
	t.Parallel()
	n := testnode.Guarded(t, rig.Users, nil)
	tr := &http3.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer tr.Close()
	for _, q := range questions {
		q.AskBy(t, tr, 3, "https://"+n.Client)
	}
}

func TestClients_RESPAuthenticatesConnections(t *testing.T) {
	t.Parallel()
	n := testnode.Guarded(t, rig.Users, nil)
	c := rig.DialRedis(t, n.Client, nil)
	for _, step := range []struct{ command, want string }{
		{"TS", "-NOAUTH"}, {"PING", "-NOAUTH"}, {"HELLO 3", "-NOAUTH"}, {"SNOWFLAKE", "-NOAUTH"}, {"WORKER LEASE 1 1 1000", "-NOAUTH"}, {"INTERVAL", "-NOAUTH"},
		{"AUTH web wrong-wrong", "-WRONGPASS"}, {"TS", "-NOAUTH"},
		{"AUTH web " + rig.Secret, "+OK"}, {"TS", "$16"}, {"TS 3", "$16"}, {"PING", "+PONG"}, {"SNOWFLAKE", "-NOPERM"}, {"INTERVAL", "-ERR this node reads no cluster clock"},
		{"AUTH web wrong-wrong", "-WRONGPASS"}, {"TS", "$16"}, // as in Redis, the user stays
		{"AUTH ids " + rig.Secret, "+OK"}, {"TS", "-NOPERM"}, {"INTERVAL STAMP", "-NOPERM"}, {"SNOWFLAKE", ":"},
		{"RESET", "+RESET"}, {"SNOWFLAKE", "-NOAUTH"}, {"PING", "-NOAUTH"},
		{"AUTH " + rig.Secret, "+OK"}, {"TS", "$16"}, // the user default
		{"HELLO 3 AUTH ops wrong-wrong", "-WRONGPASS"}, {"HELLO 3 AUTH ops " + rig.Secret + " SETNAME x", "%"}, {"SNOWFLAKE", ":"}, {"CLIENT GETNAME", "$1"},
		{"MULTI", "+OK"}, {"TS", "+QUEUED"}, {"SNOWFLAKE", "+QUEUED"}, {"EXEC", "*2"},
		{"RESET", "+RESET"}, {"MULTI", "-NOAUTH"},
	} {
		c.Does(step.command, step.want)
	}
}

// TestClients_RESPWaitsForAUTH: what was sent with it is answered by the rights that it gives.
func TestClients_RESPWaitsForAUTH(t *testing.T) {
	n := testnode.Guarded(t, rig.Users, nil)
	for _, auth := range []string{"AUTH web " + rig.Secret, "AUTH " + rig.Secret, "HELLO 3 AUTH ops " + rig.Secret} {
		for range 2 { // the second time the credentials are known
			c := rig.DialRedis(t, n.Client, nil)
			c.Send("TS", auth, "TS", "TS", "RESET", "TS", auth, "TS")
			for i, want := range []string{"-NOAUTH", "", "$16", "$16", "+RESET", "-NOAUTH", "", "$16"} {
				if got := c.Receive(); !strings.HasPrefix(got, want) || want == "" && got[0] == '-' {
					t.Errorf("%s: answer %d is %q, want %q", auth[:9], i, got, want)
				}
			}
		}
	}
}
