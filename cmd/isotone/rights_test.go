package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quic-go/quic-go/http3"

	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/front/resp"
	"github.com/isotone/isotone/internal/front/web"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/operator"
)

// securityPage has the table of rights between two marks. "go generate ./cmd/isotone" writes it.
const (
	securityPage = "../../docs/security.md"
	rightsBegin  = "<!-- rights: written by go generate ./cmd/isotone -->\n"
	rightsEnd    = "<!-- end of rights -->\n"
)

//go:generate go test -run ^TestRights_PageIsCurrent$ -update .

// rightsTable returns the table of the documentation: what each path and each command needs.
func rightsTable() string {
	by := map[string][2][]string{} // paths and commands, by what they need
	need := func(roles access.Roles, any bool) string {
		switch {
		case roles != 0:
			return "`" + roles.String() + "`"
		case any:
			return "any role"
		}
		return "nothing"
	}
	for _, r := range web.Rights() {
		path := "`" + r.Path + "`"
		if len(r.Path) > 1 && strings.HasSuffix(r.Path, "/") {
			path = "`" + r.Path + "…`"
		}
		if r.Path == "/" { // see TestRights_AreThoseOfTheTable
			path = "`/` as a page"
			live := by["`live`"]
			live[0] = append(live[0], "`/` as text")
			by["`live`"] = live
		}
		row := by[need(r.Needs, r.Any)]
		row[0] = append(row[0], path)
		by[need(r.Needs, r.Any)] = row
		if r.Or == access.Frontier {
			row := by[need(r.Or, false)]
			row[0] = append(row[0], path)
			by[need(r.Or, false)] = row
		}
	}
	for _, r := range resp.Rights() {
		row := by[need(r.Needs, r.Any)]
		row[1] = append(row[1], "`"+r.Command+"`")
		by[need(r.Needs, r.Any)] = row
		if r.Or != 0 {
			row := by[need(r.Or, false)]
			row[1] = append(row[1], "`"+r.Command+"`")
			by[need(r.Or, false)] = row
		}
	}
	order := []string{"nothing", "any role"}
	for role := access.Timestamps; role <= access.Frontier; role <<= 1 {
		order = append(order, "`"+role.String()+"`")
	}
	var b strings.Builder
	b.WriteString("| needs | paths of HTTP | commands of Redis |\n|---|---|---|\n")
	for _, name := range order {
		row := by[name]
		if name == "`floors`" {
			row = [2][]string{{"`floor=` above the time that the cluster has reached, on `/timestamp`; `wide_floor` and `u64_floor`, the same, on `/isotone.v1.Timestamps/…`"}, {"`FLOOR`, the same"}}
		}
		if name == "`timelines`" {
			row[0] = []string{"`/admin/timelines`, to create, delete and see [those of the user](#timelines)"}
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, strings.Join(row[0], ", "), strings.Join(row[1], ", "))
	}
	return b.String()
}

func TestRights_PageIsCurrent(t *testing.T) {
	page := read(t, securityPage)
	before, rest, ok := strings.Cut(page, rightsBegin)
	table, after, ends := strings.Cut(rest, rightsEnd)
	if !ok || !ends {
		t.Fatal("docs/security.md has no place for the table of rights")
	}
	if want := rightsTable(); table != want {
		if !*update {
			t.Fatal("docs/security.md does not say what the program does: run go generate ./cmd/isotone")
		}
		if err := os.WriteFile(securityPage, []byte(before+rightsBegin+want+rightsEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// visitor is somebody who asks a node, and the roles that docs/security.md says he has.
type visitor struct {
	name  string
	roles access.Roles
	// anonymous ones are told to authenticate, others that they lack a role.
	anonymous bool
	url       string
	client    *http.Client
	host      string   // "": that of the URL
	fields    []string // "Name: value"
	redis     string   // the address, "": not asked
	thrift    string   // the same
	redisTLS  *tls.Config
	auth      string // AUTH name secret
}

// statusOf asks for a path, and returns the status.
func (v *visitor) statusOf(t *testing.T, path string, fields ...string) int {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, v.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range append(fields, v.fields...) {
		name, value, _ := strings.Cut(f, ": ")
		r.Header.Set(name, value)
	}
	if v.host != "" {
		r.Host = v.host
	}
	ctx, cancel := context.WithTimeout(t.Context(), rig.Wait)
	defer cancel()
	answer, err := v.client.Do(r.WithContext(ctx))
	if err != nil {
		t.Fatalf("%s: %s: %v", v.name, path, err)
	}
	_ = answer.Body.Close() // also of a stream
	return answer.StatusCode
}

// allows reports whether roles are enough, and what a refusal is called.
func (v *visitor) allows(needs, or access.Roles, any bool) bool {
	return v.roles&needs == needs && (!any || v.roles != 0) || v.roles&or != 0
}

// TestRights_AreThoseOfTheTable: every path and every command is asked for by all kinds of visitors of real nodes.
func TestRights_AreThoseOfTheTable(t *testing.T) {
	t.Parallel()
	var users []string
	for role := access.Timestamps; role <= access.Frontier; role <<= 1 {
		users = append(users, fmt.Sprintf(`"%s": {"roles": ["%[1]s"], "secrets": ["HASH"]}`, role))
	}
	list := rig.NewUserList(t, `{"users": {`+strings.Join(users, ", ")+`, "nobody": {"roles": [], "secrets": ["HASH"]}}}`)
	run := func(host string, change func(*config.Settings)) *process {
		p := newProcess(t, 1)
		p.s.HTTPHost, p.s.ThriftPort, p.s.RedisLocks = host, portOf(t, freeAddrs(t, 1)[0]), true
		change(&p.s)
		p.start()
		p.ready()
		return p
	}
	none := func(*config.Settings) {}
	reachable, alone := run("", none), run("127.0.0.1", none)
	listed := run("", func(s *config.Settings) { s.ACLFile = list.File })
	some := access.Timestamps | access.Metrics
	open := run("", func(s *config.Settings) { s.Anonymous = &some })

	plain := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	h2 := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}}
	h3 := &http3.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	third := &http.Client{Transport: h3}
	t.Cleanup(func() { _ = h3.Close() })
	t.Cleanup(plain.CloseIdleConnections)
	t.Cleanup(h2.CloseIdleConnections)
	socket := func(p *process) *http.Client {
		return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(p.s.DataDir, operator.SocketName))
		}}}
	}
	var visitors []visitor
	for p, roles := range map[*process]access.Roles{reachable: access.Local, alone: access.Alone, listed: 0, open: some} {
		at, elsewhere := p.s.AdvertiseAddr, min(roles, access.Products)
		if p == open {
			elsewhere = some
		}
		add := func(name string, roles access.Roles, v visitor) {
			v.name, v.roles, v.anonymous = fmt.Sprintf("%s (%s)", name, p.s.DataDir), roles, true
			if v.url == "" {
				v.url, v.client = "http://"+at, plain
			}
			visitors = append(visitors, v)
		}
		add("a program on this machine", roles, visitor{redis: at, thrift: fmt.Sprint("127.0.0.1:", p.s.ThriftPort)})
		add("a program on this machine, HTTP/2 and TLS", roles, visitor{url: "https://" + at, client: h2, redis: at, redisTLS: &tls.Config{InsecureSkipVerify: true}})
		add("a page by a name that resolves to this machine", elsewhere, visitor{host: "rebound.example"})
		add("a program on this machine, HTTP/3", roles, visitor{url: "https://" + at, client: third})
		add("the same page, HTTP/3", elsewhere, visitor{url: "https://" + at, client: third, host: "rebound.example"})
		add("the same page, HTTP/2", elsewhere, visitor{url: "https://" + at, client: h2, host: "rebound.example"})
		for _, field := range []string{"Origin: http://evil.example", "Origin: null", "Sec-Fetch-Site: cross-site", "X-Forwarded-For: 192.0.2.1", "Forwarded: for=192.0.2.1", "Via: 1.1 x", "X-Real-Ip: 192.0.2.1"} {
			add(field, elsewhere, visitor{fields: []string{field}})
		}
		add("the socket", access.All, visitor{url: "http://isotone", client: socket(p)})
	}
	at := listed.s.AdvertiseAddr
	for role := access.Timestamps; role <= access.Frontier; role <<= 1 {
		visitors = append(visitors, visitor{
			name: "user " + role.String(), roles: role, url: "http://" + at, client: plain, redis: at,
			fields: []string{"Authorization: " + rig.Bearer(role.String(), rig.Secret)}, auth: role.String() + " " + rig.Secret,
		})
	}
	visitors = append(visitors, visitor{name: "a user without roles", url: "http://" + at, client: plain, redis: at, fields: []string{"Authorization: " + rig.Bearer("nobody", rig.Secret)}, auth: "nobody " + rig.Secret})

	served := 0
	for _, v := range visitors {
		for _, r := range web.Rights() {
			path := r.Path
			if len(path) > 1 && strings.HasSuffix(path, "/") {
				path += "members" // below it; that there is no such document or profile is said to those who may ask
			}
			status := v.statusOf(t, path)
			refused := status == http.StatusUnauthorized || status == http.StatusForbidden
			if path == "/" { // without Accept, as curl asks: the state
				r.Needs = access.Live
			}
			if allowed := v.allows(r.Needs, r.Or, r.Any); refused == allowed || refused && (status == http.StatusUnauthorized) != v.anonymous {
				t.Errorf("%s: %s needs %v: %d", v.name, path, r.Needs, status)
			}
			if !refused {
				served++
			}
		}
		if status := v.statusOf(t, "/", "Accept: text/html"); status != http.StatusOK {
			t.Errorf("%s: the page, which has no data: %d", v.name, status)
		}
		if v.redis != "" {
			served += v.asksRedis(t)
		}
		if v.thrift != "" {
			kind, err := rig.ThriftCall(t, rig.Dial(t, v.thrift, nil))
			if answered := kind == 2; err != nil || answered != v.allows(access.IDs, 0, false) {
				t.Errorf("%s: Thrift answers with a message of type %d, %v", v.name, kind, err)
			}
		}
	}
	if served == 0 {
		t.Error("nobody was served")
	}
}

// asksRedis asks for every command, each on a connection of its own, and returns how many were not refused.
func (v *visitor) asksRedis(t *testing.T) (served int) {
	t.Helper()
	for _, r := range resp.Rights() {
		c := rig.DialRedis(t, v.redis, v.redisTLS)
		if v.auth != "" {
			c.Does("AUTH "+v.auth, "+OK")
		}
		c.Send(strings.TrimSpace(r.Command + " " + map[string]string{
			"ECHO": "x", "SELECT": "0", "CLIENT": "ID", "WATCH": "k", "CONFIG": "GET x", "CLUSTER": "INFO", "WORKER": "HELP", "AUTH": "x y", "WORKER REVOKE": "9999", "TSIN": "x", "TS64IN": "x", "ORACLE": "x READ", "SESSION": "KEEP", "LOCK": "LIST", "FRONTIER": "GET x",
			"SET": "x y NX PX 1000", "GET": "x", "DEL": "x", "EXISTS": "x", "PTTL": "x", "TTL": "x", "PEXPIRE": "x 1", "EXPIRE": "x 1", "EVAL": "x 1 x", "EVALSHA": "x 1 x", "SCRIPT": "EXISTS x",
		}[r.Command]))
		answer, err := c.R.ReadString('\n')
		if err != nil && err != io.EOF {
			t.Fatalf("%s: %s: %v", v.name, r.Command, err)
		}
		refused := strings.HasPrefix(answer, "-NOAUTH") || strings.HasPrefix(answer, "-NOPERM")
		if r.Command == "HELLO" && v.roles == 0 {
			refused = !strings.HasPrefix(answer, "-NOAUTH HELLO must be called") // as in Redis: with AUTH in it, it needs nothing
		}
		if allowed := v.allows(r.Needs, r.Or, r.Any); refused == allowed || strings.Contains(answer, "wrong number of arguments") {
			t.Errorf("%s: %s needs %v: %q", v.name, r.Command, r.Needs, answer)
		}
		if !refused {
			served++
		}
		_ = c.Close()
	}
	return served
}

// TestRights_HaveARoleEach that is written into the documentation's table of roles.
func TestRights_HaveARoleEach(t *testing.T) {
	page := read(t, securityPage)
	for _, name := range strings.Split(access.All.String(), ",") {
		if !slices.ContainsFunc(strings.Split(page, "\n"), func(line string) bool { return strings.HasPrefix(line, "| `"+name+"` | ") }) {
			t.Errorf("docs/security.md does not explain the role %s", name)
		}
	}
}
