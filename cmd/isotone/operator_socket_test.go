package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/operator"
)

// socketOf returns the endpoint of a node's Unix socket.
func (p *process) socketOf() string {
	return operator.UnixScheme + filepath.Join(p.s.DataDir, operator.SocketName)
}

// TestOperator_TheSocketNeedsNoCredentials, whatever the list of users says, and is where commands look first.
func TestOperator_TheSocketNeedsNoCredentials(t *testing.T) {
	list := rig.NewUserList(t, `{"users": {}}`)
	all := startProcessesWith(t, 1, func(s *config.Settings) { s.ACLFile = list.File })
	path := filepath.Join(all[0].s.DataDir, operator.SocketName)
	if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if code, _, err := command("member", "list", "--endpoint", all[0].s.AdvertiseAddr); code == 0 || !strings.Contains(err, "unauthorized") || !strings.Contains(err, operator.SocketName) {
		t.Errorf("over TCP: exit code %d, %s", code, err)
	}
	if code, out, err := command("member", "list", "--json", "--endpoint", all[0].socketOf()); code != 0 || !json.Valid([]byte(out)) {
		t.Errorf("exit code %d, %s%s", code, out, err)
	}
	t.Setenv("DATA_DIR", all[0].s.DataDir)
	for _, args := range []string{"member list", "leader show", "worker list", "upgrade show", "floor raise --yes 1980-01-01T00:00:00Z"} {
		code, out, err := command(strings.Fields(args)...)
		if refused := strings.Contains(err, "unauthorized"); refused || code != 0 && !strings.HasPrefix(args, "floor") {
			t.Errorf("%s: exit code %d, %s%s", args, code, out, err)
		}
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	for _, target := range []string{"/metrics", "/debug/pprof/cmdline", "/admin/backup", "/state", "/timestamp", "/readyz"} {
		answer, err := client.Get("http://isotone" + target)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != 200 {
			t.Errorf("%s: %d %.200s", target, answer.StatusCode, body)
		}
	}
	if err := all[0].stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the socket is left")
	}
}

// TestOperator_AnyMemberPassesRequestsOn to the leader, which knows who asked.
func TestOperator_AnyMemberPassesRequestsOn(t *testing.T) {
	t.Parallel()
	list := rig.NewUserList(t, `{"users": {"ops": {"roles": ["admin"], "secrets": ["HASH"]}, "app": {"roles": ["timestamps"], "secrets": ["HASH"]}}}`)
	certs := filepath.Join(t.TempDir(), "certs")
	wantRun(t, 0, "", "", "cert", "ca", "--dir", certs)
	all := startProcessesWith(t, 3, func(s *config.Settings) {
		s.ACLFile = list.File
		useCertificate(t, s, certs)
	})
	var leader *process
	var others processes
	await.Until(t, "a node leads", func() bool {
		leader, others = nil, nil
		for _, p := range all {
			if p.m.Node.Status().Role == "leader" && leader == nil {
				leader = p
			} else {
				others = append(others, p)
			}
		}
		return leader != nil
	})
	at := func(p *process, args ...string) (int, string, string) {
		return command(append(args, "--yes", "--endpoint", p.socketOf())...)
	}
	for _, p := range append(others[:len(others):len(others)], leader) {
		code, out, err := at(p, "member", "list")
		if code != 0 || strings.Count(out, "voter") != 2 {
			t.Errorf("node %d: exit code %d, %s%s", p.s.NodeID, code, out, err)
		}
		file := filepath.Join(t.TempDir(), "backup")
		if code, out, err := at(p, "backup", file); code != 0 {
			t.Errorf("backup at node %d: exit code %d, %s%s", p.s.NodeID, code, out, err)
		}
		if code, out, err := at(p, "floor", "raise", "2020-01-01T00:00:00Z"); code == 0 || strings.Contains(err, "not_leader") {
			t.Errorf("what the leader refuses, at node %d: exit code %d, %s%s", p.s.NodeID, code, out, err)
		}
	}
	if code, out, err := at(others[0], "worker", "revoke", "1000"); code == 0 || !strings.Contains(err, "nobody holds worker 1000") {
		t.Errorf("exit code %d, %s%s", code, out, err)
	}
	if code, out, err := at(others[0], "floor", "raise", time.Now().Format(time.RFC3339Nano)); code != 0 {
		t.Errorf("exit code %d, %s%s", code, out, err)
	}
	// The leadership may have moved since.
	await.Until(t, "the log of one that led says who asked", func() bool {
		return slices.ContainsFunc(all, func(p *process) bool {
			return strings.Contains(p.log.String(), `"action":"POST /admin/floor"`) && strings.Contains(p.log.String(), `operator.sock, by node `)
		})
	})
	// Nothing is passed on for a user with roles of clients only.
	secret := rig.SecretFile(t, rig.Secret)
	if code, out, err := command("member", "list", "--endpoint", others[0].s.AdvertiseAddr, "--user", "app", "--password-file", secret); code == 0 || !strings.Contains(err, "forbidden") {
		t.Errorf("exit code %d, %s%s", code, out, err)
	}
	if code, out, err := command("member", "list", "--endpoint", others[0].s.AdvertiseAddr, "--user", "ops", "--password-file", secret); code != 0 {
		t.Errorf("exit code %d, %s%s", code, out, err)
	}
	if code, out, err := at(others[0], "leader", "transfer"); code != 0 {
		t.Errorf("exit code %d, %s%s", code, out, err)
	}
}

// Without certificates the leader does not know whether it is a member that passes on what an operator asks.
func TestOperator_IsSentToTheLeaderByMembersInPlaintext(t *testing.T) {
	t.Parallel()
	list := rig.NewUserList(t, `{"users": {"ops": {"roles": ["admin"], "secrets": ["HASH"]}}}`)
	all := startProcessesWith(t, 3, func(s *config.Settings) { s.ACLFile = list.File })
	secret := rig.SecretFile(t, rig.Secret)
	sent := 0
	for _, p := range all {
		code, out, err := command("member", "list", "--endpoint", p.socketOf())
		if code != 0 {
			sent++
			if !strings.Contains(err, "unauthorized") || !strings.Contains(err, "operator.sock in its DATA_DIR: members pass on requests of operators only with PEER_TLS_CERT") {
				t.Errorf("node %d: exit code %d, %s%s", p.s.NodeID, code, out, err)
			}
		}
		if code, out, err := command("member", "list", "--endpoint", p.s.AdvertiseAddr, "--user", "ops", "--password-file", secret); code != 0 {
			t.Errorf("node %d: exit code %d, %s%s", p.s.NodeID, code, out, err)
		}
	}
	if sent == 0 || sent == len(all) {
		t.Errorf("%d of %d nodes send an operator to another", sent, len(all))
	}
}

// TestOperator_NoRightByPlace: from loopback alone nothing is an operator's, and on a node that only loopback reaches it
// is not for what a proxy or a page in a browser sends.
func TestOperator_NoRightByPlace(t *testing.T) {
	t.Parallel()
	reachable := newProcess(t, 1)
	reachable.s.HTTPHost = "" // all addresses
	reachable.start()
	reachable.ready()
	alone := newProcess(t, 1)
	alone.start()
	alone.ready()
	ask := func(p *process, path string, fields ...string) int {
		r, err := http.NewRequest("GET", "http://"+p.s.AdvertiseAddr+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range fields {
			name, value, _ := strings.Cut(f, ": ")
			if r.Header.Set(name, value); name == "Host" {
				r.Host = value
			}
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return answer.StatusCode
	}
	const admin = "/admin/members"
	for _, field := range []string{
		"", "Host: evil.example", "Host: 127.0.0.1.evil.example", "Host: localhost.evil.example:8080", "Origin: http://localhost:8080", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: none",
		"X-Forwarded-For: 192.0.2.1", "X-Forwarded-Host: x", "X-Forwarded-Port: 1", "X-Real-IP: 192.0.2.1", "Forwarded: for=192.0.2.1", "Via: 1.1 x",
	} {
		var fields []string
		if field != "" {
			fields = []string{field}
		}
		if got := ask(reachable, admin, fields...); got != 401 {
			t.Errorf("%q: %d from a node that others reach", field, got)
		}
		if got := ask(alone, admin, fields...); got != map[bool]int{true: 200, false: 401}[field == ""] {
			t.Errorf("%q: %d from a node that only loopback reaches", field, got)
		}
		if got := ask(reachable, "/metrics", fields...); got != map[bool]int{true: 200, false: 401}[field == ""] {
			t.Errorf("%q: %d for /metrics", field, got)
		}
		if got := ask(alone, "/timestamp", fields...); got != 200 {
			t.Errorf("%q: %d for a timestamp", field, got)
		}
	}
	for _, host := range []string{"localhost", "LOCALHOST:1", "localhost.", "127.0.0.1", "127.0.0.2:80", "[::1]", "[::1]:80", "[::ffff:127.0.0.1]:9"} {
		if got := ask(alone, admin, "Host: "+host); got != 200 {
			t.Errorf("Host %s: %d", host, got)
		}
	}
	for path, want := range map[string]string{admin: "HTTP/1.0 401", "/timestamp": "HTTP/1."} { // as nginx asks by default
		c := rig.Dial(t, alone.s.AdvertiseAddr, nil)
		fmt.Fprintf(c, "GET %s HTTP/1.0\r\nHost: %s\r\n\r\n", path, alone.s.AdvertiseAddr)
		if got, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(got), want) {
			t.Errorf("HTTP/1.0, %s: %.60q, %v", path, got, err)
		}
	}
	// The Redis protocol has no pages and no hosts.
	for p, want := range map[*process]string{alone: "*", reachable: "-"} {
		redis := rig.DialRedis(t, p.s.AdvertiseAddr, nil)
		redis.Does("WORKER LIST", want)
	}
}

// TestFloor_OfAClientShowsWhoMovedTime in the log and to operators; who lacks the right is refused by every front.
func TestFloor_OfAClientShowsWhoMovedTime(t *testing.T) {
	t.Parallel()
	list := rig.NewUserList(t, `{"users": {"mover": {"roles": ["timestamps", "floors"], "secrets": ["HASH"]}, "app": {"roles": ["timestamps"], "secrets": ["HASH"]}}}`)
	p := startProcessesWith(t, 1, func(s *config.Settings) { s.ACLFile = list.File })[0]
	ahead := func() string {
		return isotone.Timestamp{Time: uint64(time.Now().Add(5 * time.Second).UnixNano())}.String()
	}
	web, redis := rig.DialHTTP(t, p.s.AdvertiseAddr, nil), rig.DialRedis(t, p.s.AdvertiseAddr, nil)
	for _, query := range []string{"?floor=", "?n=65536&floor="} { // on the fast path, and not
		if status, _, body := web.Ask("/timestamp"+query+ahead(), rig.Bearer("app", rig.Secret)); status != 412 || !strings.Contains(body, "the role floors") {
			t.Errorf("%s without the right: %d %.200s", query, status, body)
		}
	}
	redis.Does("AUTH app "+rig.Secret, "+OK")
	redis.Does("TS 1 QUORUM FLOOR "+ahead(), "-REGRESSED")
	for _, query := range []string{"?floor=", "?n=65536&floor="} {
		if status, _, body := web.Ask("/timestamp"+query+ahead(), rig.Bearer("mover", rig.Secret)); status != 200 {
			t.Errorf("%s with the right: %d %.200s", query, status, body)
		}
	}
	redis.Does("AUTH mover "+rig.Secret, "+OK")
	redis.Does("TS 1 QUORUM FLOOR "+ahead(), "$16")
	await.Until(t, "the log says who", func() bool {
		return strings.Contains(p.log.String(), "audit: a client has moved time") && strings.Contains(p.log.String(), `"user":"mover"`)
	})
	await.Done(t, await.Timeout, func() (bool, string) { // /state is a moment behind the node
		code, out, err := command("doctor", "--endpoint", p.socketOf())
		told := strings.Contains(out, "user mover have moved time") && strings.Contains(out, "the floor of a request of user mover, from 127.0.0.1, has moved time ")
		return told, fmt.Sprintf("doctor: exit code %d, %s%s", code, out, err)
	})
}

// TestFloor_OfAnOperatorShowsWhoMovedTime, in the log, to doctor, and without a name in the state document, which others may read.
func TestFloor_OfAnOperatorShowsWhoMovedTime(t *testing.T) {
	t.Parallel()
	list := rig.NewUserList(t, `{"users": {"raiser": {"roles": ["admin"], "secrets": ["HASH"]}, "page": {"roles": ["live"], "secrets": ["HASH"]}}}`)
	p := startProcessesWith(t, 1, func(s *config.Settings) { s.ACLFile = list.File })[0]
	to := time.Now().Add(time.Hour).UTC().Truncate(time.Second).Format(time.RFC3339)
	if code, out, err := command("floor", "raise", to, "--yes", "--endpoint", p.s.AdvertiseAddr, "--user", "raiser", "--password-file", rig.SecretFile(t, rig.Secret)); code != 0 {
		t.Fatalf("exit code %d, %s%s", code, out, err)
	}
	log := p.log.String()
	at := strings.Index(log, `audit: an operator has moved time`)
	if line, _, _ := strings.Cut(log[max(at, 0):], "\n"); at < 0 || !strings.Contains(line, `"user":"raiser"`) || !strings.Contains(line, to) || !strings.Contains(line, `"ahead":"59m`) {
		t.Errorf("the log: %s", line)
	}
	await.Until(t, "the state document says so", func() bool {
		status, _, body := rig.DialHTTP(t, p.s.AdvertiseAddr, nil).Ask("/state", rig.Bearer("page", rig.Secret))
		return status == 200 && strings.Contains(body, `"lastMove":{"at":"`) && strings.Contains(body, `"operator":true`) && !strings.Contains(body, "raiser")
	})
	if code, out, err := command("doctor", "--endpoint", p.socketOf()); !strings.Contains(out, "a floor that operator raiser has raised, from 127.0.0.1, has moved time 59m") {
		t.Errorf("doctor: exit code %d, %s%s", code, out, err)
	}
}

// TestDrain_NamesItsNode: without --endpoint it is the one at the socket, and an empty one, as from a variable that is not set, is none.
func TestDrain_NamesItsNode(t *testing.T) {
	p := startProcessesWith(t, 1, func(*config.Settings) {})[0]
	t.Setenv("DATA_DIR", p.s.DataDir)
	if code, out, err := command("drain", "--yes", "--endpoint", ""); code != exitUsage {
		t.Errorf("an empty endpoint: exit code %d, %s%s", code, out, err)
	}
	if p.m.Node.Status().Draining {
		t.Fatal("it drains")
	}
	if code, out, err := command("drain", "--yes"); code != 0 || !strings.Contains(out, "node 1 at unix:") {
		t.Errorf("exit code %d, %s%s", code, out, err)
	}
	await.Until(t, "it ends", func() bool {
		select {
		case <-p.done:
			return true
		default:
			return false
		}
	})
}
