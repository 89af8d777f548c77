package server_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/front/grpc"
	"github.com/isotone/isotone/internal/front/resp"
	"github.com/isotone/isotone/internal/front/web"
)

// ofOrders says of each path and command what it has to do with orders. One that is not here fails a test: whoever adds one decides,
// and adds the ways to ask it to TestOrders_NobodyGetsAnother if it issues timestamps.
var ofOrders = map[string][]string{
	"issues timestamps": {"/timestamp", "/oracle", grpc.PathTimestampsGet, grpc.PathTimestampsStream, "TS", "TS64", "TSIN", "TS64IN", "ORACLE"},
	"the cluster clock": {"/interval", grpc.PathIntervalGet, grpc.PathIntervalStamp, grpc.PathIntervalWait, "INTERVAL"},
	"sessions":          {"/sessions/", "/locks", "/locks/", "/frontier/", grpc.PathSessionsConnect, grpc.PathLocksGet, grpc.PathLocksWatch, grpc.PathFrontiersGet, grpc.PathFrontiersWatch, "SESSION", "LOCK", "FRONTIER", "SET", "GET", "DEL", "EXISTS", "PTTL", "TTL", "PEXPIRE", "EXPIRE", "EVAL", "EVALSHA", "SCRIPT"},
	"changes timelines": {"/admin/timelines"},
	"no order": {
		"/api/snowflake", grpc.PathIDsGet, grpc.PathHealthCheck, grpc.PathHealthWatch, grpc.PathReflection, grpc.PathReflectionAlpha, "/state", "/metrics", "/members", "/membership",
		"/admin/join", "/", "/up", "/ready", "/ready/timestamps", "/ready/ids", "/livez", "/readyz", "/live/",
		"SNOWFLAKE", "WORKER", "WORKER LIST", "WORKER REVOKE", "PING", "ECHO", "HELLO", "AUTH", "SELECT", "CLIENT", "READONLY", "READWRITE", "ASKING", "QUIT", "RESET", "MULTI", "EXEC", "DISCARD",
		"WATCH", "UNWATCH", "COMMAND", "CONFIG", "INFO", "CLUSTER",
	},
	"operators": {"LOCK BREAK", "/upgrade", "/admin/drain", "/admin/", "/debug/"},
}

func TestOrders_EveryOperationHasARule(t *testing.T) {
	kinds := map[string]string{}
	for kind, names := range ofOrders {
		for _, name := range names {
			kinds[name] = kind
		}
	}
	check := func(name string, needs, or access.Roles, clock bool) {
		kind := kinds[name]
		delete(kinds, name)
		if (kind == "the cluster clock") != clock || (kind == "sessions") != (needs&(access.Locks|access.Frontier) != 0) || (kind == "changes timelines") != (or == access.Timelines) || kind == "" ||
			(kind == "issues timestamps" || clock) != (needs&access.Timestamps != 0) || (kind == "operators") != (needs == access.Admin && or == 0 && !strings.HasPrefix(name, "WORKER")) {
			t.Errorf("%s is %q here, and needs %v, or %v; of the clock: %v", name, kind, needs, or, clock)
		}
	}
	for _, r := range web.Rights() {
		check(r.Path, r.Needs, r.Or, r.Clock)
	}
	for _, r := range resp.Rights() {
		check(r.Command, r.Needs, r.Or, r.Clock)
	}
	if len(kinds) > 0 {
		t.Errorf("there are no such operations: %v", kinds)
	}
}

// TestOrders_TheClockIsOfTheDefaultOrder, so only users who may have that may read it.
func TestOrders_TheClockIsOfTheDefaultOrder(t *testing.T) {
	t.Parallel()
	n := newOrderNode(t)
	// While a busy machine has not confirmed the leader for long, nobody can read the clock.
	gets := func(user, what, want, unknown string, ask func() string) {
		t.Helper()
		got := ""
		await.Until(t, user+" asks "+what, func() bool { got = ask(); return got != unknown })
		if got != want {
			t.Errorf("user %s: %s: %s, want %s", user, what, got, want)
		}
	}
	for user := range orderUsers {
		status, grpcStatus, answers := "403", "7", []string{"-NOPERM"}
		if user == "free" {
			status, grpcStatus, answers = "200", "0", []string{"$48", "$16", "+OK"}
		}
		tr := &http.Transport{TLSClientConfig: n.signer.Client(user), ForceAttemptHTTP2: true}
		for _, query := range []string{"", "?n=2", "?wait=" + lowFloor, "?nonce=5"} {
			gets(user, "/interval"+query, status, "503", func() string {
				got, _, _ := rig.DialHTTP(t, n.Client, nil).Ask("/interval"+query, rig.Bearer(user, rig.Secret))
				return strconv.Itoa(got)
			})
			gets(user, "HTTP/2: /interval"+query, status, "503", func() string {
				r, _ := http.NewRequestWithContext(rig.Soon(t), http.MethodGet, "https://"+n.Client+"/interval"+query, nil)
				a, err := tr.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				_ = a.Body.Close()
				return strconv.Itoa(a.StatusCode)
			})
		}
		tr.CloseIdleConnections()
		for path, message := range map[string][]byte{grpc.PathIntervalGet: nil, grpc.PathIntervalStamp: nil, grpc.PathIntervalWait: append([]byte{0x0a, 16}, make([]byte, 16)...)} {
			gets(user, path, grpcStatus, "14", func() string { return n.call(n.Client, path, user, "", message).status })
		}
		c := rig.DialRedis(t, n.Client, nil)
		c.Does("AUTH "+user+" "+rig.Secret, "+OK")
		for i, command := range []string{"INTERVAL", "INTERVAL STAMP", "INTERVAL WAIT " + lowFloor} {
			want := answers[min(i, len(answers)-1)]
			gets(user, command, want, "-CLUSTERDOWN", func() string {
				c.Send(command)
				word, _, _ := strings.Cut(c.Receive(), " ")
				return word
			})
		}
		// So are sessions, with their locks and frontiers.
		answers = []string{"-NOPERM", "-NOPERM", "-NOPERM"}
		if user == "free" {
			answers = []string{"*0", "$32", "-NOTBOUND"}
		}
		for i, command := range []string{"LOCK LIST", "FRONTIER GET g", "SESSION KEEP"} {
			gets(user, command, answers[i], "-CLUSTERDOWN", func() string {
				c.Send(command)
				word, _, _ := strings.Cut(c.Receive(), " ")
				return word
			})
		}
		c.Does("SNOWFLAKE", ":") // the rights of all else are as they were
	}
}
